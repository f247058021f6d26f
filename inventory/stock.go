package inventory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"holdfast/internal/pg"
)

// DefaultLocation is where stock is kept when nobody says otherwise. Its stock row carries the
// SKU's settings too, and what is on backorder is held there.
const DefaultLocation = "default"

// place is one stock row: a SKU at a location.
type place struct{ sku, location string }

// item is a SKU as it stands under the lock of its stock rows.
type item struct {
	active                      bool
	safetyStock, backorderLimit int64
	maxPerCustomer              *int64
	defaultTTL                  *time.Duration
	shelves                     []*shelf // in the order in which they are preferred

	waiting int64    // places in its waiting list
	line    []waiter // the first of them, as far as read; cut: there may be more
	cut     bool
	closed  bool // what is free is for those
}

// shelf is one stock row.
type shelf struct {
	place
	rank               int32
	active             bool  // false once its location or its SKU is deleted
	backorder          int64 // units that may be held here beyond what is on hand
	onHand, held, sold int64
	before             struct{ onHand, held, sold int64 } // as locked
}

func (s *shelf) free() int64 { return max(0, s.onHand+s.backorder-s.held) }

func (s *shelf) changed() bool {
	return s.onHand != s.before.onHand || s.held != s.before.held || s.sold != s.before.sold
}

// free is what may still be held of the SKU, over all its locations.
func (i *item) free() int64 {
	if i.closed {
		return 0
	}
	free := i.backorderLimit - i.safetyStock
	for _, s := range i.shelves {
		free += s.onHand - s.held
	}
	return max(0, free)
}

// at finds a location's shelf; nil if the SKU never was there.
func (i *item) at(location string) *shelf {
	for _, s := range i.shelves {
		if s.location == location {
			return s
		}
	}
	return nil
}

// isAt reports whether the SKU is kept at a location.
func (i *item) isAt(location string) bool {
	s := i.at(location)
	return s != nil && s.active
}

// executor is a connection, a transaction or a pipeline.
type executor interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// lockStockSQL locks the stock rows of some SKUs in the one order that every transaction keeps, so that
// carts of the same things in opposite orders queue instead of deadlocking. Whoever waited sees the row
// as its rival left it.
//
// The rest is looked up row by row: a join that was planned while there were few SKUs, and is still in use when
// there are many, would read all of them for each row.
const lockStockSQL = `
SELECT s.sku, s.location, coalesce((SELECT l.rank FROM inventory.locations l WHERE l.tenant = s.tenant AND l.location = s.location), 0),
       s.active, s.on_hand, s.held, s.sold, s.safety_stock, s.backorder_limit, s.max_per_customer,
       (SELECT k.default_ttl FROM inventory.skus k WHERE k.tenant = s.tenant AND k.sku = s.sku), s.waiting
  FROM inventory.stock s
 WHERE s.tenant = $1 AND s.sku = ANY($2::text[]%s)
 ORDER BY s.sku, s.location
   FOR UPDATE OF s`

var (
	lockStockOfSQL = fmt.Sprintf(lockStockSQL, "")
	// lockStockOfHoldsSQL locks those that some holds are about too. The holds are locked already.
	lockStockOfHoldsSQL = fmt.Sprintf(lockStockSQL, ` || ARRAY(
		SELECT unnest(r.line_skus) FROM unnest($3::uuid[]) AS h(id) CROSS JOIN LATERAL (
			SELECT r.line_skus FROM inventory.reservations r WHERE r.tenant = $1 AND r.id = h.id OFFSET 0) r)`)
)

// queueLockStock locks the stock rows of some SKUs and holds with the other statements of a
// batch, and reads those that there are into items.
func queueLockStock(batch *pgx.Batch, tenant string, skus []string, holds []uuid.UUID, items map[string]*item) {
	var query *pgx.QueuedQuery
	if len(holds) == 0 {
		query = batch.Queue(lockStockOfSQL, tenant, skus)
	} else {
		query = batch.Queue(lockStockOfHoldsSQL, tenant, skus, holds)
	}
	query.Query(func(rows pgx.Rows) error {
		var last *item
		var lastSKU string
		for rows.Next() {
			var s shelf
			var of item
			err := rows.Scan(&s.sku, &s.location, &s.rank, &s.active, &s.onHand, &s.held, &s.sold, &of.safetyStock, &s.backorder,
				&of.maxPerCustomer, &of.defaultTTL, &of.waiting)
			if err != nil {
				return err
			}
			s.before.onHand, s.before.held, s.before.sold = s.onHand, s.held, s.sold
			if last == nil || lastSKU != s.sku {
				last, lastSKU = &item{}, s.sku
				items[s.sku] = last
			}
			if s.location == DefaultLocation {
				of.active, of.backorderLimit, of.shelves = s.active, s.backorder, last.shelves
				*last = of
			}
			last.shelves = append(last.shelves, &s)
		}
		return rows.Err()
	})
}

// preferred orders shelves by the rank of their locations.
func preferred(a, b *shelf) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), strings.Compare(a.location, b.location))
}

func inPreference(items map[string]*item) {
	for _, i := range items {
		if len(i.shelves) > 1 {
			slices.SortFunc(i.shelves, preferred)
		}
	}
}

func lockStock(ctx context.Context, tx executor, tenant string, skus []string) (map[string]*item, error) {
	var batch pgx.Batch
	items := make(map[string]*item, len(skus))
	queueLockStock(&batch, tenant, skus, nil, items)
	err := tx.SendBatch(ctx, &batch).Close()
	inPreference(items)
	return items, err
}

// taking is a transaction that needs free stock. Its fields outlive a repetition of the
// transaction, which may have to lock more than the first try knew of.
type taking struct {
	tenant string
	skus   []string
	also   []string // SKUs of expired reservations that hold something wanted
	window int      // how far lines are looked at
}

// lock locks what is wanted, and what giving back expired holds of it touches. It fails with
// [ErrSKUNotFound] unless the SKUs that are wanted are there.
func (t *taking) lock(ctx context.Context, tx executor) (map[string]*item, error) {
	items, err := lockStock(ctx, tx, t.tenant, slices.Concat(t.skus, t.also))
	if err != nil {
		return nil, err
	}
	for _, sku := range t.skus {
		if i := items[sku]; i == nil || !i.active {
			return nil, &NotFoundError{Kind: ErrSKUNotFound, Name: sku}
		}
	}
	return items, nil
}

// giveBackBatch bounds the expired holds that are given back in one statement.
const giveBackBatch = 1000

// overdueSQL reads, without locks, the overdue holds on some SKUs. Under the lock of those
// SKUs' stock rows none of them can change: each way out of held needs that lock.
const overdueSQL = `
SELECT id, line_skus FROM inventory.reservations
 WHERE status = 'held' AND expires_at <= (SELECT clock_timestamp()) AND reap_after <= clock_timestamp() AND tenant = $1 AND line_skus && $2
 ORDER BY expires_at LIMIT $3`

// giveBackExpired gives back the oldest expired holds on what is short and says whether there
// were any. A hold whose row another transaction has (a reaper, or a release, that waits for
// this one's stock lock) is neither waited for nor passed over: the transaction is repeated.
func (t *taking) giveBackExpired(ctx context.Context, tx executor, items map[string]*item, short []string) (bool, error) {
	rows, err := tx.Query(ctx, overdueSQL, t.tenant, short, giveBackBatch)
	if err != nil {
		return false, err
	}
	var ids []uuid.UUID
	var id uuid.UUID
	var lineSKUs []string
	unlocked := false
	_, err = pgx.ForEachRow(rows, []any{&id, &lineSKUs}, func() error {
		ids = append(ids, id)
		for _, sku := range lineSKUs {
			if items[sku] == nil && !slices.Contains(t.also, sku) {
				unlocked = true
				t.also = append(t.also, sku)
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
	locked, err := lockFree(ctx, tx, t.tenant, ids)
	if err != nil {
		return false, err
	}
	if len(locked) < len(ids) {
		return false, pg.ErrRepeat
	}
	_, err = expire(ctx, tx, t.tenant, locked)
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
func (t *taking) giveBackAllExpired(ctx context.Context, tx executor, sku string) (map[string]*item, error) {
	for {
		items, err := t.lock(ctx, tx)
		if err != nil {
			return nil, err
		}
		if some, err := t.giveBackExpired(ctx, tx, items, []string{sku}); err != nil || !some {
			return items, err
		}
	}
}

// lockFree locks those of the holds that nobody else has locked.
func lockFree(ctx context.Context, tx executor, tenant string, ids []uuid.UUID) ([]uuid.UUID, error) {
	rows, err := tx.Query(ctx, `SELECT id FROM inventory.reservations WHERE tenant = $1 AND id = ANY($2) AND status = 'held' FOR UPDATE SKIP LOCKED`, tenant, ids)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
}
