package inventory

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// What is announced of a SKU's stock. Of the reservations' events see decide.go.
const (
	eventChanged = "stock.changed"
	eventLow     = "stock.low"
	eventOut     = "stock.out"
)

// Events are what can be subscribed to. Every event that the ledger gives an entry is announced with the
// reservation that the entry is about; those of the stock are made of what changed.
var Events = []string{eventHeld, eventConfirmed, eventReleased, eventExpired, eventOffered, eventChanged, eventLow, eventOut}

// Event is what is delivered of one.
type Event struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      any       `json:"data"`
}

func (e Event) text() (string, error) {
	text, err := json.Marshal(e)
	return string(text), err
}

// reservationKey names a reservation of any tenant.
type reservationKey struct {
	tenant string
	id     uuid.UUID
}

// readReservationsSQL reads reservations where they are.
const readReservationsSQL = `
SELECT w.tenant, r.*
  FROM unnest($1::text[], $2::uuid[]) AS w(tenant, id)
 CROSS JOIN LATERAL (
	SELECT ` + reservationColumns + ` FROM inventory.reservations r WHERE r.tenant = w.tenant AND r.id = w.id
	UNION ALL
	SELECT ` + historyReservationColumns + ` FROM inventory.reservation_history r WHERE r.tenant = w.tenant AND r.id = w.id
 ) r`

func readReservations(ctx context.Context, db executor, keys []reservationKey) (map[reservationKey]Reservation, error) {
	tenants, ids := make([]string, len(keys)), make([]uuid.UUID, len(keys))
	for i, k := range keys {
		tenants[i], ids[i] = k.tenant, k.id
	}
	rows, err := db.Query(ctx, readReservationsSQL, tenants, ids)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	found := make(map[reservationKey]Reservation, len(keys))
	for rows.Next() {
		var tenant string
		r, err := scanReservation(prefixed{rows, []any{&tenant}})
		if err != nil {
			return nil, err
		}
		found[reservationKey{tenant, r.ID}] = r
	}
	return found, rows.Err()
}

// asOf is the reservation as it was when the event came to pass: by the time that it is read, more
// may have become of it.
func asOf(event string, r Reservation) Reservation {
	status, ok := strings.CutPrefix(event, "reservation.")
	if !ok {
		return r
	}
	r.Status = Status(status)
	if r.Status == Held {
		r.SettledAt = nil
	}
	r.Lines = slices.Clone(r.Lines)
	for i := range r.Lines {
		r.Lines[i].Returned = nil
		if r.Status != Confirmed {
			r.Lines[i].Confirmed = nil
		}
	}
	return r
}

// skuKey names a SKU of any tenant.
type skuKey struct{ tenant, sku string }

// State is what a SKU's stock is like at an instant, over all its locations.
type State struct {
	SKU       string    `json:"sku"`
	OnHand    int64     `json:"on_hand"`
	Held      int64     `json:"held"`
	Available int64     `json:"available"`
	Sold      int64     `json:"sold"`
	LowStock  *int64    `json:"low_stock,omitempty"`
	Deleted   bool      `json:"deleted,omitempty"`
	Seq       int64     `json:"seq"` // the SKU's newest ledger entry
	At        time.Time `json:"at"`
}

// same says whether two states differ in nothing but their time.
func (s State) same(o State) bool {
	low := s.LowStock == o.LowStock || s.LowStock != nil && o.LowStock != nil && *s.LowStock == *o.LowStock
	s.LowStock, o.LowStock, s.At, o.At = nil, nil, time.Time{}, time.Time{}
	return low && s == o
}

// readStatesSQL reads SKUs of any tenants, as of one instant. Holds that have run out aren't counted.
const readStatesSQL = `
SELECT w.tenant, w.sku, k.low_stock, s.on_hand, greatest(s.held - coalesce(o.units, 0), 0), s.sold, s.offset,
       coalesce((SELECT max(l.seq) FROM inventory.ledger l WHERE l.tenant = w.tenant AND l.sku = w.sku), 0), clock_timestamp()
  FROM unnest($1::text[], $2::text[]) AS w(tenant, sku)
  JOIN inventory.skus k ON k.tenant = w.tenant AND k.sku = w.sku AND k.deleted_at IS NULL
 CROSS JOIN LATERAL (
	SELECT sum(on_hand)::bigint, sum(held)::bigint, sum(sold)::bigint,
	       coalesce(sum(backorder_limit - safety_stock) FILTER (WHERE location = '` + DefaultLocation + `'), 0)::bigint
	  FROM inventory.stock s WHERE s.tenant = w.tenant AND s.sku = w.sku
 ) s(on_hand, held, sold, "offset")
  LEFT JOIN (
	SELECT r.tenant, l.sku, sum(l.quantity)::bigint AS units
	  FROM inventory.reservations r, unnest(r.line_skus, r.line_quantities) AS l(sku, quantity)
	 WHERE r.status = 'held' AND r.expires_at <= (SELECT clock_timestamp()) AND r.tenant = ANY($1)
	 GROUP BY r.tenant, l.sku
  ) o ON o.tenant = w.tenant AND o.sku = w.sku`

func readStates(ctx context.Context, db executor, keys []skuKey) (map[skuKey]State, error) {
	tenants, skus := make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		tenants[i], skus[i] = k.tenant, k.sku
	}
	rows, err := db.Query(ctx, readStatesSQL, tenants, skus)
	if err != nil {
		return nil, err
	}
	states := make(map[skuKey]State, len(keys))
	var s State
	var tenant string
	var offset int64
	_, err = pgx.ForEachRow(rows, []any{&tenant, &s.SKU, &s.LowStock, &s.OnHand, &s.Held, &s.Sold, &offset, &s.Seq, &s.At}, func() error {
		s.Available, s.At = max(0, s.OnHand-s.Held+offset), s.At.UTC()
		states[skuKey{tenant, s.SKU}] = s
		s.LowStock = nil
		return nil
	})
	return states, err
}

// level is how much there is of a SKU, as far as it is announced.
type level string

const (
	levelEnough level = "enough"
	levelLow    level = "low"
	levelOut    level = "out"
)

func (s State) levelAt(available int64) level {
	switch {
	case available <= 0:
		return levelOut
	case s.LowStock != nil && available <= *s.LowStock:
		return levelLow
	}
	return levelEnough
}

// crossed are the events that a SKU's coming to a level from another one makes. A SKU that is sold out in
// one go has been low on the way, if it has such a mark.
func (s State) crossed(from, to level) []string {
	switch {
	case from == levelEnough && to == levelLow:
		return []string{eventLow}
	case from == levelEnough && to == levelOut && s.LowStock != nil:
		return []string{eventLow, eventOut}
	case from != levelOut && to == levelOut:
		return []string{eventOut}
	}
	return nil
}
