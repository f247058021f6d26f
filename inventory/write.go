package inventory

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"holdfast/internal/idempotency"
	"holdfast/internal/pg"
)

// Every statement here judges what it changes by itself, since COMMIT is already on its way
// behind it: inventory.must fails the transaction, which is then decided anew.
//
// Rows to change are looked up one by one, by the primary key, and joined by where they lie: the rows are
// locked, so they stay there. The planner knows nothing of a table that is empty one minute and has a
// hundred thousand holds the next; left a choice, it reads all of a tenant's rows for each one wanted.

// writeStockSQL changes the counters. Each row must be as it was decided on, and the time of the
// most urgent command not yet over.
const writeStockSQL = `
WITH written AS (
	UPDATE inventory.stock s SET on_hand = w.on_hand, held = w.held, sold = w.sold
	  FROM unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[])
	    AS w(sku, location, on_hand, held, sold, on_hand_before, held_before)
	 CROSS JOIN LATERAL (SELECT f.ctid FROM inventory.stock f WHERE f.tenant = $1 AND f.sku = w.sku AND f.location = w.location OFFSET 0) f
	 WHERE s.ctid = f.ctid
	   AND s.on_hand = w.on_hand_before AND s.held = w.held_before
	   AND clock_timestamp() < coalesce($9, 'infinity'::timestamptz)
	RETURNING 1
)
SELECT inventory.must(count(*), $10) FROM written`

// insertReservationSQL makes one reservation of several lines: arrays of arrays of different
// lengths can't be handed over.
const insertReservationSQL = `
INSERT INTO inventory.reservations (id, tenant, line_skus, line_locations, line_quantities, line_wanted,
                                    customer, reference, first_ttl, created_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, nullif($7, ''), nullif($8, ''), make_interval(secs => $9), $10, $11)`

// insertSinglesSQL makes the reservations of one line, which are most, in one statement.
const insertSinglesSQL = `
INSERT INTO inventory.reservations (id, tenant, line_skus, line_locations, line_quantities, line_wanted,
                                    customer, reference, first_ttl, created_at, expires_at)
SELECT r.id, $1, ARRAY[r.sku], ARRAY[r.location], ARRAY[r.quantity], CASE WHEN r.wanted IS NOT NULL THEN ARRAY[r.wanted] END,
       nullif(r.customer, ''), nullif(r.reference, ''), make_interval(secs => r.ttl), $2::timestamptz, $2::timestamptz + make_interval(secs => r.ttl)
  FROM unnest($3::uuid[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::text[], $9::text[], $10::float8[])
    AS r(id, sku, location, quantity, wanted, customer, reference, ttl)`

// finishSQL moves holds that haven't run out, whatever the time was when it was decided, to the history.
const finishSQL = `
WITH gone AS (
	DELETE FROM inventory.reservations r
	 WHERE r.ctid = ANY(ARRAY(` + whereHoldsLie + `)) AND r.status || '' = 'held' AND r.expires_at > clock_timestamp()
	   AND clock_timestamp() < coalesce($5, 'infinity'::timestamptz)
	RETURNING ` + historyColumns + `
), kept AS (
	INSERT INTO inventory.reservation_history (` + historyColumns + `, status, settled_at, line_confirmed)
	SELECT ` + historyColumns + `, $3, $4, CASE WHEN $3 = 'confirmed' THEN line_quantities END FROM gone
)
SELECT inventory.must(count(*), $6) FROM gone`

// extendSQL moves the expiry of holds that haven't run out.
const extendSQL = `
WITH extended AS (
	UPDATE inventory.reservations r SET expires_at = ($3::timestamptz[])[array_position($2::uuid[], r.id)]
	 WHERE r.ctid = ANY(ARRAY(` + whereHoldsLie + `)) AND r.status || '' = 'held' AND r.expires_at > clock_timestamp()
	   AND clock_timestamp() < coalesce($4, 'infinity'::timestamptz)
	RETURNING 1
)
SELECT inventory.must(count(*), $5) FROM extended`

// whereHoldsLie finds the rows of holds that are locked. What else is asked of them must be of no use to an
// index (hence status || ”), or the planner reads all the holds there are.
const whereHoldsLie = `
	SELECT f.ctid FROM unnest($2::uuid[]) AS h(id) CROSS JOIN LATERAL (
		SELECT f.ctid FROM inventory.reservations f WHERE f.tenant = $1 AND f.id = h.id OFFSET 0) f`

// retakeSQL sells a reservation that had expired.
const retakeSQL = `
WITH sold AS (
	UPDATE inventory.reservation_history SET status = 'confirmed', settled_at = $3, line_confirmed = $4
	 WHERE tenant = $1 AND id = $2 AND status = 'expired' AND clock_timestamp() < coalesce($5, 'infinity'::timestamptz)
	RETURNING 1
)
SELECT inventory.must(count(*), 1) FROM sold`

// confirmPartSQL says of a reservation that was confirmed in part which part.
const confirmPartSQL = `
WITH part AS (
	UPDATE inventory.reservation_history SET line_confirmed = $3 WHERE tenant = $1 AND id = $2 AND status = 'confirmed' RETURNING 1
)
SELECT inventory.must(count(*), 1) FROM part`

const insertEntriesSQL = `
INSERT INTO inventory.ledger (tenant, sku, location, kind, event, delta_on_hand, delta_held, on_hand, held, reservation_id, reference, actor)
SELECT $1, e.sku, e.location, e.kind, nullif(e.event, ''), e.delta_on_hand, e.delta_held, e.on_hand, e.held, e.reservation_id, nullif(e.reference, ''), e.actor
  FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::uuid[], $11::text[], $12::text[])
       WITH ORDINALITY AS e(sku, location, kind, event, delta_on_hand, delta_held, on_hand, held, reservation_id, reference, actor, n)
 ORDER BY e.n`

// write writes what was decided, in one message with COMMIT. If anything isn't as it was decided
// on any more, a hold that has run out since, say, the whole transaction is repeated.
func (b *books) write(ctx context.Context, tx *pg.Pipeline) error {
	if len(b.made) == 0 && len(b.changed) == 0 && len(b.answered) == 0 && len(b.ended) == 0 {
		return nil
	}
	var pipeline pgx.Batch
	b.queueStock(&pipeline)
	b.queueMade(&pipeline)
	b.queueChanged(&pipeline)
	b.queueEntries(&pipeline)
	b.queueBought(&pipeline)
	b.queueEnded(&pipeline)
	if len(b.answered) > 0 {
		answers := make([]idempotency.Answer, len(b.answered))
		for i, t := range b.answered {
			text, err := json.Marshal(t.answer)
			if err != nil {
				return err
			}
			answers[i] = idempotency.Answer{Key: t.caller.Key, Text: text}
		}
		idempotency.QueueStore(&pipeline, schemaName, answers)
	}
	return tx.Commit(ctx, &pipeline)
}

func (b *books) queueStock(pipeline *pgx.Batch) {
	var skus, locations []string
	var onHand, held, sold, onHandBefore, heldBefore []int64
	for _, i := range b.items {
		for _, s := range i.shelves {
			if s.changed() {
				skus, locations = append(skus, s.sku), append(locations, s.location)
				onHand, held, sold = append(onHand, s.onHand), append(held, s.held), append(sold, s.sold)
				onHandBefore, heldBefore = append(onHandBefore, s.before.onHand), append(heldBefore, s.before.held)
			}
		}
	}
	if n := len(skus); n > 0 {
		pipeline.Queue(writeStockSQL, b.tenant, skus, locations, onHand, held, sold, onHandBefore, heldBefore, b.deadline, n)
	}
}

func (b *books) queueMade(pipeline *pgx.Batch) {
	var ids []uuid.UUID
	var skus, locations, customers, references []string
	var quantities []int64
	var wanted []*int64
	var ttls []float64
	for _, r := range b.made {
		if len(r.Lines) > 1 {
			skus, locations, quantities, wanted, _ := columnsOf(r.Lines)
			pipeline.Queue(insertReservationSQL, r.ID, b.tenant, skus, locations, quantities, wanted,
				r.Customer, r.Reference, r.firstTTL.Seconds(), r.CreatedAt, r.ExpiresAt)
			continue
		}
		l := r.Lines[0]
		ids = append(ids, r.ID)
		skus, locations, quantities, wanted = append(skus, l.SKU), append(locations, l.Location), append(quantities, l.Quantity), append(wanted, l.Wanted)
		customers, references, ttls = append(customers, r.Customer), append(references, r.Reference), append(ttls, r.firstTTL.Seconds())
	}
	if len(ids) > 0 {
		pipeline.Queue(insertSinglesSQL, b.tenant, b.now, ids, skus, locations, quantities, wanted, customers, references, ttls)
	}
}

func (b *books) queueChanged(pipeline *pgx.Batch) {
	var extended []uuid.UUID
	var until []time.Time
	finished := map[Status][]uuid.UUID{}
	for _, r := range b.changed {
		if r.stored == Expired {
			_, _, _, _, confirmed := columnsOf(r.Lines)
			pipeline.Queue(retakeSQL, b.tenant, r.ID, r.SettledAt, confirmed, b.deadline)
			continue
		}
		if r.extended { // perhaps before it was finished, in the same batch
			extended, until = append(extended, r.ID), append(until, r.ExpiresAt)
		}
		if r.Status != Held {
			finished[r.Status] = append(finished[r.Status], r.ID)
		}
	}
	if len(extended) > 0 {
		pipeline.Queue(extendSQL, b.tenant, extended, until, b.deadline, len(extended))
	}
	for status, ids := range finished {
		pipeline.Queue(finishSQL, b.tenant, ids, status, b.now, b.deadline, len(ids))
	}
	for _, r := range b.changed {
		if _, _, quantities, _, confirmed := columnsOf(r.Lines); r.stored == Held && confirmed != nil && !slices.Equal(quantities, confirmed) {
			pipeline.Queue(confirmPartSQL, b.tenant, r.ID, confirmed)
		}
	}
}

func (b *books) queueEntries(pipeline *pgx.Batch) {
	n := len(b.entries)
	if n == 0 {
		return
	}
	skus, locations, kinds, events := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	deltaOnHand, deltaHeld, onHand, held := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	ids, references, actors := make([]uuid.UUID, n), make([]string, n), make([]string, n)
	for i, e := range b.entries {
		skus[i], locations[i], kinds[i], events[i] = e.sku, e.location, e.kind, e.event
		deltaOnHand[i], deltaHeld[i], onHand[i], held[i] = e.deltaOnHand, e.deltaHeld, e.onHand, e.held
		ids[i], references[i], actors[i] = e.reservation, e.reference, e.actor
	}
	pipeline.Queue(insertEntriesSQL, b.tenant, skus, locations, kinds, events, deltaOnHand, deltaHeld, onHand, held, ids, references, actors)
}

// columnsOf is lines as they are stored: side by side.
func columnsOf(lines []Line) (skus, locations []string, quantities, wanted, confirmed []int64) {
	for _, l := range lines {
		skus, locations, quantities = append(skus, l.SKU), append(locations, l.Location), append(quantities, l.Quantity)
		if l.Wanted != nil {
			wanted = append(wanted, *l.Wanted)
		}
		if l.Confirmed != nil {
			confirmed = append(confirmed, *l.Confirmed)
		}
	}
	return skus, locations, quantities, wanted, confirmed
}

func compareIDs(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) }
