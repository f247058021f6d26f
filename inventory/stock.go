package inventory

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"holdfast/internal/pg"
)

// DefaultLocation is where stock is kept when nobody says otherwise.
const DefaultLocation = "default"

// place is one stock row: a SKU at a location.
type place struct{ sku, location string }

func comparePlaces(a, b place) int {
	if c := strings.Compare(a.sku, b.sku); c != 0 {
		return c
	}
	return strings.Compare(a.location, b.location)
}

// shelf is a stock row as it stands under the lock.
type shelf struct {
	active                      bool
	onHand, held, sold          int64
	safetyStock, backorderLimit int64
	maxPerCustomer              *int64
	defaultTTL                  *time.Duration
}

// free is what may still be held.
func (s shelf) free() int64 { return max(0, s.onHand+s.backorderLimit-s.held-s.safetyStock) }

// lockStockSQL locks stock rows in the one order that every transaction keeps, so that
// carts of the same things in opposite orders queue instead of deadlocking. Whoever
// waited sees the row as its rival left it.
const lockStockSQL = `
SELECT s.sku, s.location, s.active, s.on_hand, s.held, s.sold, s.safety_stock, s.backorder_limit, s.max_per_customer, k.default_ttl
  FROM inventory.stock s JOIN inventory.skus k USING (tenant, sku)
 WHERE s.tenant = $1 AND (s.sku, s.location) IN (SELECT * FROM unnest($2::text[], $3::text[]))
 ORDER BY s.sku, s.location
   FOR UPDATE OF s`

// queueLockStock locks the stock rows of some places with the other statements of a batch, and
// reads those that there are.
func queueLockStock(batch *pgx.Batch, tenant string, places []place, shelves map[place]shelf) {
	skus, locations := make([]string, len(places)), make([]string, len(places))
	for i, p := range places {
		skus[i], locations[i] = p.sku, p.location
	}
	batch.Queue(lockStockSQL, tenant, skus, locations).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var p place
			var s shelf
			err := rows.Scan(&p.sku, &p.location, &s.active, &s.onHand, &s.held, &s.sold, &s.safetyStock, &s.backorderLimit, &s.maxPerCustomer, &s.defaultTTL)
			if err != nil {
				return err
			}
			shelves[p] = s
		}
		return rows.Err()
	})
}

func lockStock(ctx context.Context, tx pgx.Tx, tenant string, places []place) (map[place]shelf, error) {
	var batch pgx.Batch
	shelves := make(map[place]shelf, len(places))
	queueLockStock(&batch, tenant, places, shelves)
	return shelves, tx.SendBatch(ctx, &batch).Close()
}

// taking is a transaction that needs free stock. Its fields outlive a repetition of the
// transaction, which may have to lock more than the first try knew of.
type taking struct {
	tenant string
	wanted map[place]int64
	also   []place // of expired reservations that hold something wanted
}

// lock locks what is wanted, and what giving back expired holds of it touches.
func (t *taking) lock(ctx context.Context, tx pgx.Tx) (map[place]shelf, error) {
	places := slices.Clone(t.also)
	for p := range t.wanted {
		places = append(places, p)
	}
	shelves, err := lockStock(ctx, tx, t.tenant, places)
	if err != nil {
		return nil, err
	}
	for p := range t.wanted {
		if s, ok := shelves[p]; !ok || !s.active {
			return nil, t.missing(ctx, tx, p)
		}
	}
	return shelves, nil
}

func (t *taking) missing(ctx context.Context, tx pgx.Tx, p place) error {
	var known bool
	err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM inventory.stock WHERE tenant = $1 AND sku = $2 AND active)`, t.tenant, p.sku).Scan(&known)
	switch {
	case err != nil:
		return err
	case known:
		return &NotFoundError{Kind: ErrLocationNotFound, Name: p.location}
	}
	return &NotFoundError{Kind: ErrSKUNotFound, Name: p.sku}
}

// giveBackBatch bounds the expired holds that are given back in one statement.
const giveBackBatch = 1000

// overdueSQL reads, without locks, the overdue holds on some SKUs. Under the lock of those
// SKUs' stock rows none of them can change: each way out of held needs that lock.
const overdueSQL = `
SELECT id, line_skus, line_locations FROM inventory.reservations
 WHERE status = 'held' AND expires_at <= (SELECT clock_timestamp()) AND reap_after <= clock_timestamp() AND tenant = $1 AND line_skus && $2
 ORDER BY expires_at LIMIT $3`

// giveBackExpired gives back the oldest expired holds on what is short and says whether there
// were any. A hold whose row another transaction has (a reaper, or a release, that waits for
// this one's stock lock) is neither waited for nor passed over: the transaction is repeated.
func (t *taking) giveBackExpired(ctx context.Context, tx pgx.Tx, shelves map[place]shelf, shortages []Shortage) (bool, error) {
	skus := make([]string, len(shortages))
	for i, s := range shortages {
		skus[i] = s.SKU
	}
	slices.Sort(skus) // a sold-out SKU is wanted by many commands of a batch
	skus = slices.Compact(skus)
	rows, err := tx.Query(ctx, overdueSQL, t.tenant, skus, giveBackBatch)
	if err != nil {
		return false, err
	}
	var ids []uuid.UUID
	var id uuid.UUID
	var lineSKUs, lineLocations []string
	known := map[place]bool{}
	for _, p := range t.also {
		known[p] = true
	}
	unlocked := false
	_, err = pgx.ForEachRow(rows, []any{&id, &lineSKUs, &lineLocations}, func() error {
		ids = append(ids, id)
		for i := range lineSKUs {
			p := place{lineSKUs[i], lineLocations[i]}
			if _, locked := shelves[p]; !locked && !known[p] {
				known[p], unlocked = true, true
				t.also = append(t.also, p)
			}
		}
		return nil
	})
	if err != nil || len(ids) == 0 {
		return false, err
	}
	if unlocked {
		return false, pg.ErrRepeat // from the start, with those locked too, in order
	}
	locked, err := lockFree(ctx, tx, ids)
	if err != nil {
		return false, err
	}
	if len(locked) < len(ids) {
		return false, pg.ErrRepeat
	}
	_, err = expire(ctx, tx, locked)
	if pg.Constraint(err) != "" { // one of them can't be, and must not spoil the rest
		first := &reapFirstError{}
		for _, id := range locked {
			first.due = append(first.due, Due{ID: id, Tenant: t.tenant})
		}
		return false, first
	}
	return true, err
}

// giveBackAllExpired gives back every expired hold on a SKU, and reads its shelves again.
func (t *taking) giveBackAllExpired(ctx context.Context, tx pgx.Tx, sku string) (map[place]shelf, error) {
	for {
		shelves, err := t.lock(ctx, tx)
		if err != nil {
			return nil, err
		}
		if some, err := t.giveBackExpired(ctx, tx, shelves, []Shortage{{SKU: sku}}); err != nil || !some {
			return shelves, err
		}
	}
}

// lockFree locks those of the reservations that nobody else has locked and that are still held.
func lockFree(ctx context.Context, tx pgx.Tx, ids []uuid.UUID) ([]uuid.UUID, error) {
	rows, err := tx.Query(ctx, `SELECT id FROM inventory.reservations WHERE id = ANY($1) AND status = 'held' FOR UPDATE SKIP LOCKED`, ids)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
}
