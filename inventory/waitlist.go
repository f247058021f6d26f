package inventory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"holdfast/internal/idempotency"
	"holdfast/internal/pg"
)

// MaxWait is how long a place may wait. What is over is kept for longer.
const MaxWait = 30 * 24 * time.Hour

// PlaceStatus is where a place in a waiting list stands.
type PlaceStatus string

// A place waits until it becomes one of the others. An offer becomes lapsed when its hold runs out
// unconfirmed, and left when its hold is released.
const (
	Waiting PlaceStatus = "waiting"
	Offered PlaceStatus = "offered"
	Lapsed  PlaceStatus = "lapsed"
	Left    PlaceStatus = "left"
)

// Why a place has lapsed.
const (
	reasonWaited = "expired"
	reasonLimit  = "customer_limit"
	reasonOffer  = "offer_expired"
)

// Place is a customer's place in the waiting list of a SKU.
type Place struct {
	ID       uuid.UUID   `json:"id"`
	SKU      string      `json:"sku"`
	Quantity int64       `json:"quantity" doc:"Units waited for: all or none"`
	Customer string      `json:"customer"`
	Status   PlaceStatus `json:"status" enum:"waiting,offered,lapsed,left"`
	Position int64       `json:"position" doc:"1 is the head of the line; 0 once it waits no more"`
	Reason   string      `json:"reason,omitempty" enum:"expired,customer_limit,sku_deleted,offer_expired" doc:"Why it has lapsed"`
	// ReservationID is the hold that was made for it; ReservationStatus says what became of that.
	ReservationID     *uuid.UUID `json:"reservation_id,omitempty" doc:"The hold that was made for it, to confirm or to release"`
	ReservationStatus Status     `json:"reservation_status,omitempty" enum:"held,confirmed,released,expired"`
	OfferExpiresAt    *time.Time `json:"offer_expires_at,omitempty" doc:"Until when that hold lasts"`
	CreatedAt         time.Time  `json:"created_at"`
	ExpiresAt         time.Time  `json:"expires_at" doc:"How long it waits: from this instant, unless it was offered units, it has lapsed"`
	EndedAt           *time.Time `json:"ended_at,omitempty" doc:"When its waiting ended"`
	// Seq is, while it waits, its order in the line.
	Seq int64 `json:"-"`
}

// Join is a command to wait for units of a SKU.
type Join struct {
	SKU      string
	Quantity int64 // units, all or none
	Customer string
	TTL      time.Duration // how long to wait; 1 s to [MaxWait]
	// HoldTTL is how long units are held when the turn comes; 0: TTL, or [MaxTTL] if that is shorter.
	HoldTTL time.Duration
}

func (j Join) check() error {
	if err := checkSKU("sku", j.SKU); err != nil {
		return err
	}
	if j.Quantity < 1 || j.Quantity > MaxUnits {
		return invalid("quantity", "must be from 1 to %d, not %d", MaxUnits, j.Quantity)
	}
	if j.Customer == "" {
		return invalid("customer", "must not be empty")
	}
	if err := checkText("customer", j.Customer, 255); err != nil {
		return err
	}
	if j.TTL < MinTTL || j.TTL > MaxWait {
		return invalid("ttl", "must be from %v to %v, not %v", MinTTL, MaxWait, j.TTL)
	}
	if j.HoldTTL != 0 {
		return checkTTL("hold_ttl", j.HoldTTL)
	}
	return nil
}

// offerReference is that of the hold that is made for a place.
func offerReference(id uuid.UUID) string { return "waitlist:" + id.String() }

// joinSQL puts a place at the end of a line, under the lock of its SKU.
const joinSQL = `
WITH clock AS MATERIALIZED (
	SELECT clock_timestamp() AS at
), last AS (
	SELECT coalesce(max(seq), 0) + 1 AS seq FROM inventory.waitlist WHERE tenant = $1 AND sku = $2
), counted AS (
	UPDATE inventory.stock SET waiting = waiting + 1
	 WHERE tenant = $1 AND sku = $2 AND location = '` + DefaultLocation + `' AND active
	   AND clock_timestamp() < coalesce($8, 'infinity'::timestamptz)
	RETURNING 1
), in_block AS (
	INSERT INTO inventory.waitlist_blocks AS b (tenant, sku, block, waiting) SELECT $1, $2, seq / 1000, 1 FROM last, counted
	ON CONFLICT (tenant, sku, block) DO UPDATE SET waiting = b.waiting + 1
)
INSERT INTO inventory.waitlist (id, tenant, sku, seq, quantity, customer, hold_ttl, created_at, expires_at)
SELECT $3, $1, $2, seq, $4, $5, make_interval(secs => $6), at, at + make_interval(secs => $7) FROM last, counted, clock`

// Join takes a place at the end of a SKU's waiting list. If what is wanted is free and nobody before it can have it, the
// place is offered it at once. It fails with [ErrSKUNotFound], with [ErrAlreadyWaiting] if the customer
// waits there, and with [ErrCustomerLimit] if the SKU's limit stands in the way.
func (s *Store) Join(ctx context.Context, c Caller, cmd Join) (Place, bool, error) {
	if err := cmd.check(); err != nil {
		return Place{}, false, err
	}
	id, err := pg.NewID(s.Now())
	if err != nil {
		return Place{}, false, err
	}
	if cmd.HoldTTL == 0 {
		cmd.HoldTTL = min(cmd.TTL, MaxTTL)
	}
	take := taking{tenant: c.Tenant, skus: []string{cmd.SKU}}
	return command(ctx, s, c, func(tx pgx.Tx) (Place, error) {
		items, err := take.giveBackAllExpired(ctx, tx, cmd.SKU)
		if err != nil {
			return Place{}, err
		}
		i := items[cmd.SKU]
		if i.waiting > 0 {
			if err := leaveNoOther(ctx, tx, c.Tenant, cmd); err != nil {
				return Place{}, err
			}
		}
		if i.maxPerCustomer != nil {
			b := books{tenant: c.Tenant, items: items}
			if err := b.countCustomers(ctx, tx, []string{cmd.Customer}, []string{cmd.SKU}); err != nil {
				return Place{}, err
			}
			if err := b.checkCustomer(cmd.Customer, []Line{{SKU: cmd.SKU, Quantity: cmd.Quantity}}); err != nil {
				return Place{}, err
			}
		}
		tag, err := tx.Exec(ctx, joinSQL, c.Tenant, cmd.SKU, id, cmd.Quantity, cmd.Customer, cmd.HoldTTL.Seconds(), cmd.TTL.Seconds(), s.deadline(c))
		if err != nil {
			return Place{}, err
		}
		if tag.RowsAffected() == 0 {
			return Place{}, s.refusedInTime(ctx, tx, c)
		}
		i.waiting++
		if _, err := s.serveLines(ctx, tx, c.Tenant, items); err != nil {
			return Place{}, err
		}
		return placeByID(ctx, tx, c.Tenant, id)
	})
}

// leaveNoOther refuses a second place of the same customer; one that has lapsed makes room.
func leaveNoOther(ctx context.Context, tx pgx.Tx, tenant string, cmd Join) error {
	var other uuid.UUID
	var overdue bool
	err := tx.QueryRow(ctx, `SELECT id, expires_at <= clock_timestamp() FROM inventory.waitlist WHERE tenant = $1 AND sku = $2 AND customer = $3`,
		tenant, cmd.SKU, cmd.Customer).Scan(&other, &overdue)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return err
	case !overdue:
		return &AlreadyWaitingError{SKU: cmd.SKU, Customer: cmd.Customer, ID: other}
	}
	_, err = tx.Exec(ctx, endOverdueOneSQL, tenant, other)
	return err
}

// Leave gives a place up. What was offered is given back, to the next in the line. It changes nothing if the place is
// over. It fails with [ErrPlaceNotFound], and with [ErrConfirmed] if the offer was bought.
func (s *Store) Leave(ctx context.Context, c Caller, id uuid.UUID) error {
	c.Key = idempotency.Key{} // to leave twice is no harm
	for {
		p, err := s.GetPlace(ctx, c.Tenant, id)
		if err != nil {
			return err
		}
		switch p.Status {
		case Offered:
			_, _, err := s.Release(ctx, c, Release{ID: *p.ReservationID})
			return err
		case Lapsed, Left:
			return nil
		}
		left, _, err := command(ctx, s, c, func(tx pgx.Tx) (left int, err error) {
			if _, err := lockStock(ctx, tx, c.Tenant, []string{p.SKU}); err != nil {
				return 0, err
			}
			if err := tx.QueryRow(ctx, endOneSQL, c.Tenant, id).Scan(&left); err != nil {
				return 0, err
			}
			return left, s.clock.InTime(ctx, tx, c.Deadline)
		})
		if err != nil || left == 1 {
			return err
		}
		// Its turn has come, or its time has, since it was read.
	}
}

var (
	endLineSQL = fmt.Sprintf(endPlacesSQL, chosenLine) + ` SELECT count(*) FROM gone`
	endOneSQL  = fmt.Sprintf(endPlacesSQL, chosenOne) + ` SELECT count(*) FROM gone`
	// endOverdueOneSQL ends a place that has waited its time.
	endOverdueOneSQL = fmt.Sprintf(endPlacesSQL, `
	SELECT $2::uuid AS id, 'lapsed' AS status, 'expired' AS reason, NULL::uuid AS reservation_id, true AS overdue`) + ` SELECT count(*) FROM gone`
)

// positionSQL is the position of a place w that waits: the blocks before its own, those before it in its
// own, less what has lapsed.
const positionSQL = `(
	SELECT coalesce(sum(b.waiting), 0)::bigint FROM inventory.waitlist_blocks b WHERE b.tenant = w.tenant AND b.sku = w.sku AND b.block < w.seq / 1000
) + (
	SELECT count(*) FROM inventory.waitlist o WHERE o.tenant = w.tenant AND o.sku = w.sku AND o.seq >= w.seq / 1000 * 1000 AND o.seq < w.seq
) - (
	SELECT count(*) FROM inventory.waitlist o WHERE o.expires_at <= (SELECT clock_timestamp()) AND o.tenant = w.tenant AND o.sku = w.sku AND o.seq < w.seq
) + 1`

// waitingSQL reads a place that stands in the line; one that has waited its time has lapsed.
const waitingSQL = `
SELECT id, sku, quantity, customer, CASE WHEN overdue THEN 'lapsed' ELSE 'waiting' END, CASE WHEN overdue THEN 0 ELSE ` + positionSQL + ` END,
       CASE WHEN overdue THEN '` + reasonWaited + `' ELSE '' END, NULL::uuid, '', NULL::timestamptz, created_at, expires_at,
       CASE WHEN overdue THEN expires_at END, seq
  FROM (SELECT *, expires_at <= clock_timestamp() AS overdue FROM inventory.waitlist WHERE tenant = $1 AND id = $2) w`

// endedSQL reads a place whose waiting is over. What became of an offer stands with its reservation.
const endedSQL = `
SELECT h.id, h.sku, h.quantity, h.customer,
       CASE r.status WHEN 'expired' THEN 'lapsed' WHEN 'released' THEN 'left' ELSE h.status END, 0::bigint,
       CASE WHEN r.status = 'expired' THEN '` + reasonOffer + `' ELSE coalesce(h.reason, '') END,
       h.reservation_id, coalesce(r.status, ''), r.expires_at, h.created_at, h.expires_at, h.settled_at, 0::bigint
  FROM inventory.waitlist_history h LEFT JOIN LATERAL (
	SELECT CASE WHEN a.status = 'held' AND a.expires_at <= clock_timestamp() THEN 'expired' ELSE a.status END AS status, a.expires_at
	  FROM inventory.reservations a WHERE a.tenant = h.tenant AND a.id = h.reservation_id
	UNION ALL
	SELECT o.status, o.expires_at FROM inventory.reservation_history o WHERE o.tenant = h.tenant AND o.id = h.reservation_id) r ON true
 WHERE h.tenant = $1 AND h.id = $2`

func scanPlace(row pgx.CollectableRow) (p Place, err error) {
	err = row.Scan(&p.ID, &p.SKU, &p.Quantity, &p.Customer, &p.Status, &p.Position, &p.Reason, &p.ReservationID, &p.ReservationStatus,
		&p.OfferExpiresAt, &p.CreatedAt, &p.ExpiresAt, &p.EndedAt, &p.Seq)
	p.CreatedAt, p.ExpiresAt = p.CreatedAt.UTC(), p.ExpiresAt.UTC()
	for _, at := range []**time.Time{&p.OfferExpiresAt, &p.EndedAt} {
		if *at != nil {
			utc := (*at).UTC()
			*at = &utc
		}
	}
	return p, err
}

// placeByID reads a place where it is. One that is over between the two statements is found by the second.
func placeByID(ctx context.Context, db executor, tenant string, id uuid.UUID) (Place, error) {
	for _, sql := range []string{waitingSQL, endedSQL} {
		rows, err := db.Query(ctx, sql, tenant, id)
		if err != nil {
			return Place{}, err
		}
		p, err := pgx.CollectExactlyOneRow(rows, scanPlace)
		if !errors.Is(err, pgx.ErrNoRows) {
			return p, err
		}
	}
	return Place{}, ErrPlaceNotFound
}

// GetPlace reads one place as it is now. It fails with [ErrPlaceNotFound].
func (s *Store) GetPlace(ctx context.Context, tenant string, id uuid.UUID) (Place, error) {
	return placeByID(ctx, s.pool, tenant, id)
}

// lineListSQL reads those that wait in a line. Only of the first is the position counted: the next have
// the next.
const lineListSQL = `
SELECT id, sku, quantity, customer, 'waiting', CASE WHEN n = 1 THEN ` + positionSQL + ` ELSE 0 END,
       '', NULL::uuid, '', NULL::timestamptz, created_at, expires_at, NULL::timestamptz, seq
  FROM (SELECT *, row_number() OVER (ORDER BY seq) AS n
          FROM inventory.waitlist WHERE tenant = $1 AND sku = $2 AND seq > $3 AND expires_at > clock_timestamp()
           AND ($4 = '' OR customer = $4)
         ORDER BY seq LIMIT $5) w
 ORDER BY seq`

// ListPlaces reads up to limit of the places that wait for a SKU, in the order of the line, from after the given
// one; with a customer, that customer's. It doesn't say whether the SKU ever was.
func (s *Store) ListPlaces(ctx context.Context, tenant, sku, customer string, after int64, limit int) ([]Place, error) {
	rows, err := s.pool.Query(ctx, lineListSQL, tenant, sku, after, customer, limit)
	if err != nil {
		return nil, err
	}
	places, err := pgx.CollectRows(rows, scanPlace)
	for n := 1; n < len(places); n++ {
		places[n].Position = places[n-1].Position + 1
	}
	return places, err
}

// CountWaiting is how many places wait for a SKU, some of which may just have lapsed; 0 if it isn't there.
func (s *Store) CountWaiting(ctx context.Context, tenant, sku string) (waiting int64, err error) {
	err = s.pool.QueryRow(ctx, `SELECT coalesce((SELECT waiting FROM inventory.stock WHERE tenant = $1 AND sku = $2 AND location = $3), 0)`,
		tenant, sku, DefaultLocation).Scan(&waiting)
	return waiting, err
}
