package inventory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"holdfast/internal/pg"
)

const (
	// lineWindow and maxLineWindow bound how many places of a line one transaction looks at: first few,
	// since mostly few units come back, then more.
	lineWindow    = 64
	maxLineWindow = 1024
)

// actorWaitlist stands in the ledger where the line was served.
const actorWaitlist = "waitlist"

// eventOffered is told of a hold that was made for a place, beside [eventHeld].
const eventOffered = "waitlist.offered"

// waiter is a place that waits, under the lock of its SKU.
type waiter struct {
	id       uuid.UUID
	sku      string
	quantity int64
	customer string
	holdTTL  time.Duration
	offer    uuid.UUID // of the reservation that it may get
}

// ended is a place whose waiting ends.
type ended struct {
	id          uuid.UUID
	status      PlaceStatus
	reason      string
	reservation *uuid.UUID
}

// withLine gives the SKUs that somebody waits for, in their order.
func withLine(items map[string]*item) []string {
	var skus []string
	for sku, i := range items {
		if i.waiting > 0 && i.active {
			skus = append(skus, sku)
		}
	}
	slices.Sort(skus)
	return skus
}

// lineSQL reads, in their order, the first places of lines that so many units could serve. Where the smallest
// of a line wants more, it isn't looked through.
const lineSQL = `
SELECT w.id, w.sku, w.quantity, w.customer, w.hold_ttl
  FROM unnest($2::text[], $3::bigint[]) AS l(sku, most) CROSS JOIN LATERAL (
	SELECT w.id, w.sku, w.seq, w.quantity, w.customer, w.hold_ttl FROM inventory.waitlist w
	 WHERE w.tenant = $1 AND w.sku = l.sku AND w.quantity <= l.most AND w.expires_at > clock_timestamp()
	   AND l.most >= (SELECT min(m.quantity) FROM inventory.waitlist m WHERE m.tenant = $1 AND m.sku = l.sku)
	 ORDER BY w.seq LIMIT $4) w
 ORDER BY w.sku, w.seq`

// readLines reads the lines of the locked SKUs, as far as they could be served if all that
// the commands of the batch may free were free.
func (b *books) readLines(ctx context.Context, tx executor, batch []*task, window int) error {
	most := map[string]int64{}
	for _, sku := range withLine(b.items) {
		most[sku] = b.items[sku].free()
	}
	for _, t := range batch {
		if r := b.reservations[t.reservation()]; r != nil && r.Status == Held {
			for _, l := range r.Lines {
				if _, ok := most[l.SKU]; ok {
					most[l.SKU] += l.Quantity
				}
			}
		}
	}
	maps.DeleteFunc(most, func(_ string, units int64) bool { return units == 0 })
	if len(most) == 0 {
		return nil
	}
	skus := slices.Sorted(maps.Keys(most))
	units := make([]int64, len(skus))
	for n, sku := range skus {
		units[n] = most[sku]
	}
	rows, err := tx.Query(ctx, lineSQL, b.tenant, skus, units, window)
	if err != nil {
		return err
	}
	var w waiter
	var customers, limited []string
	_, err = pgx.ForEachRow(rows, []any{&w.id, &w.sku, &w.quantity, &w.customer, &w.holdTTL}, func() (err error) {
		i := b.items[w.sku]
		i.line = append(i.line, w)
		i.cut = len(i.line) == window
		if i.maxPerCustomer != nil {
			customers, limited = append(customers, w.customer), append(limited, w.sku)
		}
		i.line[len(i.line)-1].offer, err = pg.NewID(b.now)
		return err
	})
	if err != nil {
		return err
	}
	return b.countCustomers(ctx, tx, customers, limited)
}

// serve holds what is free of a SKU for the places of its line: in their order, each that can have all
// that it wants. One whose customer may not have it lapses. If there may be more of them than were
// read, what is still free is theirs, and nobody's in this batch.
func (b *books) serve(sku string) {
	i := b.items[sku]
	for n := 0; n < len(i.line) && i.free() > 0; {
		w := i.line[n]
		want := []Line{{SKU: sku, Quantity: w.quantity}}
		d := allot(b.items, want, Prefer, false)
		if len(d.shortages) > 0 {
			n++
			continue
		}
		i.line = slices.Delete(i.line, n, n+1)
		if b.checkCustomer(w.customer, want) != nil {
			b.ended = append(b.ended, ended{id: w.id, status: Lapsed, reason: reasonLimit})
			continue
		}
		b.offer(w, d.lines)
	}
	if i.cut && i.free() > 0 {
		i.closed = true
	}
}

// offer holds units for a place.
func (b *books) offer(w waiter, lines []Line) {
	r := &record{firstTTL: w.holdTTL, stored: Held, Reservation: Reservation{
		ID: w.offer, Status: Held, Lines: lines, Customer: w.customer, Reference: offerReference(w.id),
		CreatedAt: b.now.UTC(), ExpiresAt: b.now.Add(w.holdTTL).UTC(),
	}}
	b.hold(r, actorWaitlist)
	last := b.entries[len(b.entries)-1]
	last.kind, last.event, last.deltaHeld = "offer", eventOffered, 0
	b.entries = append(b.entries, last)
	b.ended = append(b.ended, ended{id: w.id, status: Offered, reservation: &r.ID})
	b.offered++
}

// closed reports whether a line wasn't read far enough.
func (b *books) closed() bool {
	for _, i := range b.items {
		if i.closed {
			return true
		}
	}
	return false
}

// endPlacesSQL ends the waiting of places, each once: they go to the history, and leave the counts, in one
// statement whose DELETE says that it is legal. The caller has locked the stock of their SKU.
const (
	endPlacesSQL = `
WITH chosen AS MATERIALIZED (%s
), gone AS (
	DELETE FROM inventory.waitlist w USING chosen c
	 WHERE w.tenant = $1 AND w.id = c.id AND (w.expires_at <= clock_timestamp()) = c.overdue
	RETURNING w.id, w.sku, w.seq, w.quantity, w.customer, w.created_at, w.expires_at, c.status, c.reason, c.reservation_id
), kept AS (
	INSERT INTO inventory.waitlist_history (id, tenant, sku, quantity, customer, status, reason, reservation_id, created_at, expires_at, settled_at)
	SELECT id, $1, sku, quantity, customer, status, reason, reservation_id, created_at, expires_at, clock_timestamp() FROM gone
), left_blocks AS (
	SELECT sku, seq / 1000 AS block, count(*) AS n FROM gone GROUP BY sku, seq / 1000
), fewer AS (
	UPDATE inventory.waitlist_blocks b SET waiting = b.waiting - l.n
	  FROM left_blocks l WHERE b.tenant = $1 AND b.sku = l.sku AND b.block = l.block AND b.waiting > l.n
), emptied AS (
	DELETE FROM inventory.waitlist_blocks b USING left_blocks l
	 WHERE b.tenant = $1 AND b.sku = l.sku AND b.block = l.block AND b.waiting <= l.n
), counted AS (
	UPDATE inventory.stock s SET waiting = greatest(s.waiting - l.n, 0)
	  FROM (SELECT sku, sum(n)::bigint AS n FROM left_blocks GROUP BY sku) l
	 WHERE s.tenant = $1 AND s.sku = l.sku AND s.location = '` + DefaultLocation + `'
)`

	// chosenDecided are those that a batch decided on.
	chosenDecided = `
	SELECT c.id, c.status, nullif(c.reason, '') AS reason, c.reservation_id, false AS overdue
	  FROM unnest($2::uuid[], $3::text[], $4::text[], $5::uuid[]) AS c(id, status, reason, reservation_id)`
	// chosenOne is a place that is left.
	chosenOne = `
	SELECT $2::uuid AS id, 'left' AS status, NULL::text AS reason, NULL::uuid AS reservation_id, false AS overdue`
	// chosenOverdue are places of a line that have waited their time.
	chosenOverdue = `
	SELECT id, 'lapsed' AS status, 'expired' AS reason, NULL::uuid AS reservation_id, true AS overdue
	  FROM inventory.waitlist WHERE tenant = $1 AND sku = $2 AND expires_at <= (SELECT clock_timestamp()) ORDER BY expires_at LIMIT $3`
	// chosenLine is the whole line of a SKU that is deleted.
	chosenLine = `
	SELECT id, 'lapsed' AS status, CASE WHEN overdue THEN 'expired' ELSE 'sku_deleted' END AS reason, NULL::uuid AS reservation_id, overdue
	  FROM (SELECT id, expires_at <= (SELECT clock_timestamp()) AS overdue FROM inventory.waitlist WHERE tenant = $1 AND sku = $2) line`
)

var endDecidedSQL = fmt.Sprintf(endPlacesSQL, chosenDecided) + `
SELECT inventory.must(count(*), $6) FROM gone`

func (b *books) queueEnded(pipeline *pgx.Batch) {
	n := len(b.ended)
	if n == 0 {
		return
	}
	ids, statuses, reasons, reservations := make([]uuid.UUID, n), make([]string, n), make([]string, n), make([]*uuid.UUID, n)
	for i, e := range b.ended {
		ids[i], statuses[i], reasons[i], reservations[i] = e.id, string(e.status), e.reason, e.reservation
	}
	pipeline.Queue(endDecidedSQL, b.tenant, ids, statuses, reasons, reservations, n)
}

// serveLines serves the lines of SKUs whose stock rows tx has locked. Every transaction that may have
// freed units, outside a batch, calls it at its end: then nobody can take them before the line. more says
// that there may be places left that what is free could serve.
func (s *Store) serveLines(ctx context.Context, tx executor, tenant string, locked map[string]*item) (more bool, err error) {
	skus := withLine(locked)
	if len(skus) == 0 {
		return false, nil
	}
	for window := lineWindow; ; window *= 4 {
		b := books{tenant: tenant, items: make(map[string]*item, len(skus))}
		var pipeline pgx.Batch
		queueLockStock(&pipeline, tenant, skus, nil, b.items)
		pipeline.Queue("SELECT clock_timestamp()").QueryRow(func(row pgx.Row) error { return row.Scan(&b.now) })
		if err := tx.SendBatch(ctx, &pipeline).Close(); err != nil {
			return false, err
		}
		inPreference(b.items)
		if err := b.readLines(ctx, tx, nil, window); err != nil {
			return false, err
		}
		for _, sku := range skus {
			b.serve(sku)
		}
		if b.closed() && window < maxLineWindow {
			continue
		}
		if len(b.ended) == 0 {
			return b.closed(), nil
		}
		var changes pgx.Batch
		b.queueStock(&changes)
		b.queueMade(&changes)
		b.queueEntries(&changes)
		b.queueEnded(&changes)
		if err := tx.SendBatch(ctx, &changes).Close(); err != nil {
			return false, err
		}
		s.offers.Add(float64(b.offered))
		return b.closed(), nil
	}
}
