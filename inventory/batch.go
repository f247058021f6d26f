package inventory

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"holdfast/internal/idempotency"
	"holdfast/internal/pg"
)

// runBatch carries out the commands of one tenant in one transaction: it locks the
// reservations and the stock rows of all of them in the one order, reads the time, decides on
// the commands in the order of their arrival, and writes what came of it. Each command gets
// its own outcome; an error is the batch's, and then nothing stands.
//
// An idempotency key is looked up when the locks are held and stored with the changes: two
// requests with one key and body want the same locks, so the second finds the first.
func (s *Store) runBatch(ctx context.Context, batch []*task) error {
	take := taking{tenant: batch[0].caller.Tenant}
	return pg.InTx(ctx, s.pool, pg.TxOptions{}, func(tx pgx.Tx) error {
		for {
			b := books{tenant: take.tenant, maxHold: s.maxHold}
			if err := b.open(ctx, tx, batch, &take); err != nil {
				return err
			}
			var inTheWay []Due
			for _, t := range batch {
				b.decide(t)
				var first *reapFirstError
				if errors.As(t.err, &first) {
					inTheWay = append(inTheWay, first.due...)
				}
			}
			if len(inTheWay) > 0 {
				return &reapFirstError{inTheWay}
			}
			// What is short may be held by holds that have run out: then these come first, and
			// everything is decided anew.
			if len(b.short) > 0 {
				some, err := take.giveBackExpired(ctx, tx, b.before, b.short)
				if err != nil {
					return err
				}
				if some {
					continue
				}
			}
			return b.write(ctx, tx)
		}
	})
}

// books are the state that a batch decides on, and what it changes of it.
type books struct {
	tenant  string
	maxHold time.Duration
	now     time.Time // the database's, when the locks were held

	before       map[place]shelf // as locked
	shelves      map[place]*shelf
	reservations map[uuid.UUID]*record
	keys         map[idempotency.Key]idempotency.Stored
	customers    map[customerSKU]int64 // units held or bought
	knownSKUs    map[string]bool       // of those whose place isn't there

	short    []Shortage // what somebody wanted and didn't get
	made     []*record
	changed  []*record
	entries  []entry
	answered []*task    // with a key
	deadline *time.Time // the earliest of the accepted commands'
}

// record is a reservation in a batch.
type record struct {
	Reservation
	firstTTL time.Duration
	stored   Status // in the database
	touched  bool
}

type customerSKU struct{ customer, sku string }

// entry is a ledger entry to be.
type entry struct {
	place
	kind                   string
	deltaOnHand, deltaHeld int64
	onHand, held           int64
	reservation            uuid.UUID
	reference              string
	actor                  string
}

const lockReservationsSQL = `
SELECT first_ttl, status, ` + reservationColumns + `
  FROM inventory.reservations WHERE id = ANY($1) AND tenant = $2 ORDER BY id FOR UPDATE`

// open locks everything that the batch is about, and reads it.
func (b *books) open(ctx context.Context, tx pgx.Tx, batch []*task, take *taking) error {
	places, err := b.lockReservations(ctx, tx, batch)
	if err != nil {
		return err
	}
	places = append(places, take.also...)
	var keys []idempotency.Key
	for _, t := range batch {
		if t.reserve != nil {
			places = append(places, placesOf(t.reserve.Lines)...)
		}
		if t.caller.Key.Value != "" {
			keys = append(keys, t.caller.Key)
		}
	}
	slices.SortFunc(places, comparePlaces)
	places = slices.Compact(places)
	// One message; the statements run one after the other, so the time and the keys are read
	// when the locks are held.
	var pipeline pgx.Batch
	b.before = make(map[place]shelf, len(places))
	queueLockStock(&pipeline, b.tenant, places, b.before)
	pipeline.Queue("SELECT clock_timestamp()").QueryRow(func(row pgx.Row) error { return row.Scan(&b.now) })
	if len(keys) > 0 {
		b.keys = make(map[idempotency.Key]idempotency.Stored)
		idempotency.QueueFind(&pipeline, schemaName, keys, b.keys)
	}
	if err := tx.SendBatch(ctx, &pipeline).Close(); err != nil {
		return err
	}
	b.shelves = make(map[place]*shelf, len(b.before))
	for p, s := range b.before {
		b.shelves[p] = &s
	}
	if err := b.readCustomers(ctx, tx, batch); err != nil {
		return err
	}
	return b.readMissing(ctx, tx, batch)
}

func (b *books) lockReservations(ctx context.Context, tx pgx.Tx, batch []*task) (places []place, err error) {
	var ids []uuid.UUID
	for _, t := range batch {
		if id := t.reservation(); id != uuid.Nil {
			ids = append(ids, id)
		}
	}
	b.reservations = make(map[uuid.UUID]*record, len(ids))
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := tx.Query(ctx, lockReservationsSQL, ids, b.tenant)
	if err != nil {
		return nil, err
	}
	records, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*record, error) {
		var r record
		var err error
		r.Reservation, err = scanReservation(prefixed{row, []any{&r.firstTTL, &r.stored}})
		return &r, err
	})
	for _, r := range records {
		b.reservations[r.ID] = r
		places = append(places, placesOf(r.Lines)...)
	}
	return places, err
}

// prefixed is a row with some columns before those that its reader knows.
type prefixed struct {
	pgx.CollectableRow
	first []any
}

func (p prefixed) Scan(rest ...any) error { return p.CollectableRow.Scan(append(p.first, rest...)...) }

// readCustomers counts what the customers of limited SKUs have.
func (b *books) readCustomers(ctx context.Context, tx pgx.Tx, batch []*task) error {
	b.customers = map[customerSKU]int64{}
	var customers, skus []string
	want := func(customer string, lines []Line) {
		for _, l := range lines {
			if s := b.shelves[place{l.SKU, l.Location}]; customer != "" && s != nil && s.maxPerCustomer != nil {
				customers, skus = append(customers, customer), append(skus, l.SKU)
			}
		}
	}
	for _, t := range batch {
		if t.reserve != nil {
			want(t.reserve.Customer, t.reserve.Lines)
		} else if r := b.reservations[t.reservation()]; r != nil && t.confirm != nil && t.confirm.Retake {
			want(r.Customer, r.Lines)
		}
	}
	if len(customers) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, customerUnitsSQL, b.tenant, customers, skus)
	if err != nil {
		return err
	}
	var key customerSKU
	var units int64
	_, err = pgx.ForEachRow(rows, []any{&key.customer, &key.sku, &units}, func() error {
		b.customers[key] = units
		return nil
	})
	return err
}

// readMissing finds out which SKUs there are of those that have no stock at the wanted location.
func (b *books) readMissing(ctx context.Context, tx pgx.Tx, batch []*task) error {
	var skus []string
	for _, t := range batch {
		if t.reserve == nil {
			continue
		}
		for _, l := range t.reserve.Lines {
			if s := b.shelves[place{l.SKU, l.Location}]; s == nil || !s.active {
				skus = append(skus, l.SKU)
			}
		}
	}
	if len(skus) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, `SELECT DISTINCT sku FROM inventory.stock WHERE tenant = $1 AND sku = ANY($2) AND active`, b.tenant, skus)
	if err != nil {
		return err
	}
	known, err := pgx.CollectRows(rows, pgx.RowTo[string])
	b.knownSKUs = map[string]bool{}
	for _, sku := range known {
		b.knownSKUs[sku] = true
	}
	return err
}

// writeStockSQL changes the counters. Each row must be as it was decided on, and the time of the
// most urgent command not yet over.
const writeStockSQL = `
UPDATE inventory.stock s SET on_hand = w.on_hand, held = w.held, sold = w.sold
  FROM unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[])
    AS w(sku, location, on_hand, held, sold, on_hand_before, held_before)
 WHERE s.tenant = $1 AND s.sku = w.sku AND s.location = w.location
   AND s.on_hand = w.on_hand_before AND s.held = w.held_before
   AND clock_timestamp() < coalesce($9, 'infinity'::timestamptz)`

const insertReservationSQL = `
INSERT INTO inventory.reservations (id, tenant, line_skus, line_locations, line_quantities, line_wanted,
                                    customer, reference, first_ttl, created_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, nullif($7, ''), nullif($8, ''), make_interval(secs => $9), $10, $11)`

// insertSinglesSQL makes the reservations of one line, which are most, in one statement: arrays
// of arrays of different lengths can't be handed over.
const insertSinglesSQL = `
INSERT INTO inventory.reservations (id, tenant, line_skus, line_locations, line_quantities, line_wanted,
                                    customer, reference, first_ttl, created_at, expires_at)
SELECT r.id, $1, ARRAY[r.sku], ARRAY[r.location], ARRAY[r.quantity], CASE WHEN r.wanted IS NOT NULL THEN ARRAY[r.wanted] END,
       nullif(r.customer, ''), nullif(r.reference, ''), make_interval(secs => r.ttl), $2::timestamptz, $2::timestamptz + make_interval(secs => r.ttl)
  FROM unnest($3::uuid[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::text[], $9::text[], $10::float8[])
    AS r(id, sku, location, quantity, wanted, customer, reference, ttl)`

// changeReservationsSQL moves reservations on from the status that was decided on; holds only
// while they haven't run out, whatever the time was when it was decided.
const changeReservationsSQL = `
UPDATE inventory.reservations r SET status = c.status, settled_at = c.settled_at, expires_at = c.expires_at,
       line_confirmed = CASE WHEN c.status = 'confirmed' THEN r.line_quantities END
  FROM unnest($1::uuid[], $2::text[], $3::text[], $4::timestamptz[], $5::timestamptz[]) AS c(id, stored, status, settled_at, expires_at)
 WHERE r.id = c.id AND r.status = c.stored AND (r.status <> 'held' OR r.expires_at > clock_timestamp())
   AND clock_timestamp() < coalesce($6, 'infinity'::timestamptz)`

// confirmPartSQL says of a reservation that was confirmed in part which part.
const confirmPartSQL = `UPDATE inventory.reservations SET line_confirmed = $2 WHERE id = $1 AND status = 'confirmed'`

const insertEntriesSQL = `
INSERT INTO inventory.ledger (tenant, sku, location, kind, delta_on_hand, delta_held, on_hand, held, reservation_id, reference, actor)
SELECT $1, e.sku, e.location, e.kind, e.delta_on_hand, e.delta_held, e.on_hand, e.held, e.reservation_id, nullif(e.reference, ''), e.actor
  FROM unnest($2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::uuid[], $10::text[], $11::text[])
       WITH ORDINALITY AS e(sku, location, kind, delta_on_hand, delta_held, on_hand, held, reservation_id, reference, actor, n)
 ORDER BY e.n`

// write writes what was decided, in one message. If anything isn't as it was decided on any
// more, a hold that has run out since, say, the whole transaction is repeated.
func (b *books) write(ctx context.Context, tx pgx.Tx) error {
	if len(b.made) == 0 && len(b.changed) == 0 && len(b.answered) == 0 {
		return nil
	}
	var pipeline pgx.Batch
	asDecided := true
	must := func(q *pgx.QueuedQuery, want int) {
		q.Exec(func(tag pgconn.CommandTag) error {
			asDecided = asDecided && tag.RowsAffected() == int64(want)
			return nil
		})
	}
	b.queueStock(&pipeline, must)
	b.queueMade(&pipeline, must)
	b.queueChanged(&pipeline, must)
	b.queueEntries(&pipeline, must)
	if len(b.answered) > 0 {
		answers := make([]idempotency.Answer, len(b.answered))
		for i, t := range b.answered {
			text, err := json.Marshal(t.answer)
			if err != nil {
				return err
			}
			answers[i] = idempotency.Answer{Key: t.caller.Key, Text: text}
		}
		must(idempotency.QueueStore(&pipeline, schemaName, answers), len(answers))
	}
	if err := tx.SendBatch(ctx, &pipeline).Close(); err != nil {
		return err
	}
	if !asDecided {
		return pg.ErrRepeat
	}
	return nil
}

func (b *books) queueStock(pipeline *pgx.Batch, must func(*pgx.QueuedQuery, int)) {
	var places []place
	for p, s := range b.shelves {
		if *s != b.before[p] {
			places = append(places, p)
		}
	}
	if len(places) == 0 {
		return
	}
	n := len(places)
	skus, locations := make([]string, n), make([]string, n)
	onHand, held, sold, onHandBefore, heldBefore := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	for i, p := range places {
		now, before := b.shelves[p], b.before[p]
		skus[i], locations[i] = p.sku, p.location
		onHand[i], held[i], sold[i], onHandBefore[i], heldBefore[i] = now.onHand, now.held, now.sold, before.onHand, before.held
	}
	must(pipeline.Queue(writeStockSQL, b.tenant, skus, locations, onHand, held, sold, onHandBefore, heldBefore, b.deadline), n)
}

func (b *books) queueMade(pipeline *pgx.Batch, must func(*pgx.QueuedQuery, int)) {
	var ids []uuid.UUID
	var skus, locations, customers, references []string
	var quantities []int64
	var wanted []*int64
	var ttls []float64
	for _, r := range b.made {
		if len(r.Lines) > 1 {
			skus, locations, quantities, wanted, _ := columnsOf(r.Lines)
			must(pipeline.Queue(insertReservationSQL, r.ID, b.tenant, skus, locations, quantities, wanted,
				r.Customer, r.Reference, r.firstTTL.Seconds(), r.CreatedAt, r.ExpiresAt), 1)
			continue
		}
		l := r.Lines[0]
		ids = append(ids, r.ID)
		skus, locations, quantities, wanted = append(skus, l.SKU), append(locations, l.Location), append(quantities, l.Quantity), append(wanted, l.Wanted)
		customers, references, ttls = append(customers, r.Customer), append(references, r.Reference), append(ttls, r.firstTTL.Seconds())
	}
	if len(ids) > 0 {
		must(pipeline.Queue(insertSinglesSQL, b.tenant, b.now, ids, skus, locations, quantities, wanted, customers, references, ttls), len(ids))
	}
}

func (b *books) queueChanged(pipeline *pgx.Batch, must func(*pgx.QueuedQuery, int)) {
	n := len(b.changed)
	if n == 0 {
		return
	}
	ids, stored, statuses := make([]uuid.UUID, n), make([]string, n), make([]string, n)
	settledAt, expiresAt := make([]*time.Time, n), make([]time.Time, n)
	for i, r := range b.changed {
		ids[i], stored[i], statuses[i] = r.ID, string(r.stored), string(r.Status)
		settledAt[i], expiresAt[i] = r.SettledAt, r.ExpiresAt
	}
	must(pipeline.Queue(changeReservationsSQL, ids, stored, statuses, settledAt, expiresAt, b.deadline), n)
	for _, r := range b.changed {
		if _, _, quantities, _, confirmed := columnsOf(r.Lines); confirmed != nil && !slices.Equal(quantities, confirmed) {
			must(pipeline.Queue(confirmPartSQL, r.ID, confirmed), 1)
		}
	}
}

func (b *books) queueEntries(pipeline *pgx.Batch, must func(*pgx.QueuedQuery, int)) {
	n := len(b.entries)
	if n == 0 {
		return
	}
	skus, locations, kinds := make([]string, n), make([]string, n), make([]string, n)
	deltaOnHand, deltaHeld, onHand, held := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	ids, references, actors := make([]uuid.UUID, n), make([]string, n), make([]string, n)
	for i, e := range b.entries {
		skus[i], locations[i], kinds[i] = e.sku, e.location, e.kind
		deltaOnHand[i], deltaHeld[i], onHand[i], held[i] = e.deltaOnHand, e.deltaHeld, e.onHand, e.held
		ids[i], references[i], actors[i] = e.reservation, e.reference, e.actor
	}
	must(pipeline.Queue(insertEntriesSQL, b.tenant, skus, locations, kinds, deltaOnHand, deltaHeld, onHand, held, ids, references, actors), n)
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
