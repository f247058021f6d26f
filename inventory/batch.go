package inventory

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

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
	take := taking{tenant: batch[0].caller.Tenant, window: lineWindow}
	offered := 0
	err := pg.InPipeline(ctx, s.pool, pg.TxOptions{}, func(tx *pg.Pipeline) error {
		for {
			b := books{tenant: take.tenant, maxHold: s.maxHold, opened: s.Now()}
			if err := b.open(ctx, tx, batch, &take); err != nil {
				return err
			}
			// Where somebody waits, all that is free is for the line before it is for anybody else.
			if waiting := withLine(b.items); len(waiting) > 0 {
				some, err := take.giveBackExpired(ctx, tx, b.items, waiting)
				if err != nil {
					return err
				}
				if some {
					continue
				}
				if err := b.readLines(ctx, tx, batch, take.window); err != nil {
					return err
				}
				for _, sku := range waiting {
					b.serve(sku)
				}
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
				some, err := take.giveBackExpired(ctx, tx, b.items, b.shortSKUs())
				if err != nil {
					return err
				}
				if some {
					continue
				}
			}
			if b.closed() && take.window < maxLineWindow {
				take.window *= 4
				continue
			}
			offered = b.offered
			return b.write(ctx, tx)
		}
	})
	if err == nil {
		s.offers.Add(float64(offered))
	}
	return err
}

// books are the state that a batch decides on, and what it changes of it.
type books struct {
	tenant  string
	maxHold time.Duration
	opened  time.Time // the database's, before the locks
	now     time.Time // the database's, when the locks were held

	items        map[string]*item
	reservations map[uuid.UUID]*record
	keys         map[idempotency.ID]idempotency.Stored
	first        map[uuid.UUID]*Reservation // as they were answered first
	customers    map[customerSKU]int64      // units held or bought
	locations    map[string]bool            // of those that some line names and its SKU isn't kept at

	short    []Shortage // what somebody wanted and didn't get
	made     []*record
	changed  []*record
	entries  []entry
	bought   map[customerSKU]int64 // units of SKUs with a limit
	freed    []string              // SKUs with a line of which the command frees units
	ended    []ended               // places of those
	offered  int
	answered []*task    // with a key
	deadline *time.Time // the earliest of the accepted commands'
}

// record is a reservation in a batch.
type record struct {
	Reservation
	firstTTL time.Duration
	stored   Status // in the database; Expired may only be a matter of time, see SettledAt
	touched  bool
	extended bool
}

type customerSKU struct{ customer, sku string }

// entry is a ledger entry to be.
type entry struct {
	place
	kind, event            string
	deltaOnHand, deltaHeld int64
	onHand, held           int64
	reservation            uuid.UUID
	reference              string
	actor                  string
}

// lockReservationsSQL locks holds in the order of the ids that it is given, and reads them.
const lockReservationsSQL = `
SELECT r.* FROM unnest($2::uuid[]) AS h(id) CROSS JOIN LATERAL (
	SELECT first_ttl, status AS stored, ` + reservationColumns + `
	  FROM inventory.reservations WHERE tenant = $1 AND id = h.id OFFSET 0 FOR UPDATE) r`

// open locks everything that the batch is about, and reads it.
//
// It is one message; the statements run one after the other, so each sees what was committed
// while those before it waited: the stock rows are those of the holds as locked, and the time
// and the keys are read when the locks are held.
func (b *books) open(ctx context.Context, tx *pg.Pipeline, batch []*task, take *taking) error {
	var pipeline pgx.Batch
	var ids []uuid.UUID
	var keys []idempotency.Key
	skus := slices.Clone(take.also)
	for _, t := range batch {
		if id := t.reservation(); id != uuid.Nil {
			ids = append(ids, id)
		}
		if t.reserve != nil {
			for _, l := range t.reserve.Lines {
				skus = append(skus, l.SKU)
			}
		}
		if t.caller.Key.Value != "" {
			keys = append(keys, t.caller.Key)
		}
	}
	slices.Sort(skus)
	skus = slices.Compact(skus)
	slices.SortFunc(ids, compareIDs)
	ids = slices.Compact(ids)
	b.reservations = make(map[uuid.UUID]*record, len(ids))
	if len(keys) > 0 {
		idempotency.QueueGuard(&pipeline, keys, b.opened)
	}
	if len(ids) > 0 {
		pipeline.Queue(lockReservationsSQL, b.tenant, ids).Query(b.readRecords)
	}
	b.items = make(map[string]*item, len(skus))
	queueLockStock(&pipeline, b.tenant, skus, ids, b.items)
	pipeline.Queue("SELECT clock_timestamp()").QueryRow(func(row pgx.Row) error { return row.Scan(&b.now) })
	if len(keys) > 0 {
		b.keys = make(map[idempotency.ID]idempotency.Stored)
		idempotency.QueueFind(&pipeline, schemaName, keys, b.keys)
	}
	if err := tx.SendBatch(ctx, &pipeline).Close(); err != nil {
		return err
	}
	inPreference(b.items)
	if err := b.readFinished(ctx, tx, batch, ids, take); err != nil {
		return err
	}
	if err := b.readFirst(ctx, tx); err != nil {
		return err
	}
	if err := b.readCustomers(ctx, tx, batch); err != nil {
		return err
	}
	return b.readLocations(ctx, tx, batch)
}

func (b *books) readRecords(rows pgx.Rows) error {
	records, err := pgx.CollectRows(rows, scanRecord)
	for _, r := range records {
		b.reservations[r.ID] = r
	}
	return err
}

func scanRecord(row pgx.CollectableRow) (*record, error) {
	var r record
	var err error
	r.Reservation, err = scanReservation(prefixed{row, []any{&r.firstTTL, &r.stored}})
	return &r, err
}

// prefixed is a row with some columns before those that its reader knows.
type prefixed struct {
	pgx.CollectableRow
	first []any
}

func (p prefixed) Scan(rest ...any) error { return p.CollectableRow.Scan(append(p.first, rest...)...) }

// lockFinishedSQL locks and reads reservations that are over. The bounds name their partitions.
const lockFinishedSQL = `
SELECT first_ttl, status, ` + historyReservationColumns + `
  FROM inventory.reservation_history r
 WHERE tenant = $1 AND id = ANY($2) AND id BETWEEN $3 AND $4 ORDER BY id FOR UPDATE`

// readFinished reads those of the reservations that are no longer held. What they were about is
// needed only to take it again.
func (b *books) readFinished(ctx context.Context, tx *pg.Pipeline, batch []*task, ids []uuid.UUID, take *taking) error {
	var over, left []uuid.UUID
	for _, id := range ids {
		if r := b.reservations[id]; r == nil {
			over = append(over, id)
		} else if r.stored != Held {
			left = append(left, id)
		}
	}
	if len(left) > 0 {
		if _, err := moveFinished(ctx, tx, b.tenant, left); err != nil {
			return err
		}
		over = append(over, left...)
	}
	if len(over) == 0 {
		return nil
	}
	slices.SortFunc(over, compareIDs)
	rows, err := tx.Query(ctx, lockFinishedSQL, b.tenant, over, over[0], over[len(over)-1])
	if err != nil {
		return err
	}
	if err := b.readRecords(rows); err != nil {
		return err
	}
	unlocked := false
	for _, t := range batch {
		if r := b.reservations[t.reservation()]; r != nil && t.confirm != nil && t.confirm.Retake && r.stored == Expired {
			for _, l := range r.Lines {
				if b.items[l.SKU] == nil && !slices.Contains(take.also, l.SKU) {
					unlocked = true
					take.also = append(take.also, l.SKU)
				}
			}
		}
	}
	if unlocked {
		return pg.ErrRepeat // with those locked too, in order
	}
	return nil
}

// firstSQL reads reservations wherever they are, with what never changes.
const firstSQL = `
SELECT first_ttl, status, ` + reservationColumns + ` FROM inventory.reservations WHERE tenant = $1 AND id = ANY($2)
UNION ALL
SELECT first_ttl, status, ` + historyReservationColumns + ` FROM inventory.reservation_history WHERE tenant = $1 AND id = ANY($2)`

// readFirst reads what keys were answered with where the answer is a reservation's id: all that it was made
// with, as it was made.
func (b *books) readFirst(ctx context.Context, tx *pg.Pipeline) error {
	var ids []uuid.UUID
	for _, stored := range b.keys {
		if stored.Made != uuid.Nil {
			ids = append(ids, stored.Made)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, firstSQL, b.tenant, ids)
	if err != nil {
		return err
	}
	records, err := pgx.CollectRows(rows, scanRecord)
	b.first = make(map[uuid.UUID]*Reservation, len(records))
	for _, r := range records {
		r.Status, r.SettledAt, r.ExpiresAt = Held, nil, r.CreatedAt.Add(r.firstTTL)
		for i := range r.Lines {
			r.Lines[i].Confirmed, r.Lines[i].Returned = nil, nil
		}
		b.first[r.ID] = &r.Reservation
	}
	return err
}

func (b *books) shortSKUs() []string {
	skus := make([]string, len(b.short))
	for i, s := range b.short {
		skus[i] = s.SKU
	}
	slices.Sort(skus) // a sold-out SKU is wanted by many commands of a batch
	return slices.Compact(skus)
}

// readLocations finds out which of the locations there are that lines name and their SKUs aren't kept at.
func (b *books) readLocations(ctx context.Context, tx *pg.Pipeline, batch []*task) error {
	var names []string
	for _, t := range batch {
		if t.reserve == nil {
			continue
		}
		for _, l := range t.reserve.Lines {
			if i := b.items[l.SKU]; i != nil && l.Location != "" && !i.isAt(l.Location) {
				names = append(names, l.Location)
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, `SELECT location FROM inventory.locations WHERE tenant = $1 AND location = ANY($2)`, b.tenant, names)
	if err != nil {
		return err
	}
	known, err := pgx.CollectRows(rows, pgx.RowTo[string])
	b.locations = make(map[string]bool, len(known))
	for _, name := range known {
		b.locations[name] = true
	}
	return err
}
