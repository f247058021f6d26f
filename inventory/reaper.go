package inventory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"holdfast/internal/pg"
)

// Due is an expired reservation that still has to be given back.
type Due struct {
	ID     uuid.UUID
	Tenant string
	skus   []string
}

// selectDueSQL claims: a row that one transaction has chosen can't be chosen by another
// that runs the same query, until the first ends. SKIP LOCKED makes rival reapers
// share the work instead of queueing for it. The clock is read in a subquery, since as a
// volatile function it couldn't be looked up in reservations_due_idx.
const selectDueSQL = `
SELECT id, tenant, line_skus
  FROM inventory.reservations
 WHERE status = 'held' AND expires_at <= (SELECT clock_timestamp()) AND reap_after <= clock_timestamp()
 ORDER BY expires_at
 LIMIT $1
   FOR UPDATE SKIP LOCKED`

// SelectDueReservations claims up to limit expired reservations for tx, oldest first: no other
// transaction that calls it gets them until tx ends. It never waits.
func SelectDueReservations(ctx context.Context, tx pgx.Tx, limit int) ([]Due, error) {
	rows, err := tx.Query(ctx, selectDueSQL, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (d Due, err error) {
		return d, row.Scan(&d.ID, &d.Tenant, &d.skus)
	})
}

// reapBatch bounds one reaping transaction, and so how long it holds stock rows.
const reapBatch = 200

// ReapOnce gives back up to one batch of expired reservations and says how many; full
// says that there may be more. Replicas may run it at once: each reservation is given back once.
// One that can't be given back is logged, put off for a minute, and holds up no other.
func (s *Store) ReapOnce(ctx context.Context) (reaped int, full bool, err error) {
	var due []Due
	err = pg.InTx(ctx, s.pool, pg.TxOptions{}, func(tx pgx.Tx) error {
		reaped = 0
		var err error
		if due, err = SelectDueReservations(ctx, tx, reapBatch); err != nil || len(due) == 0 {
			return err
		}
		reaped, err = s.giveBack(ctx, tx, due)
		return err
	})
	if err == nil || len(due) == 0 || pg.Unavailable(err) || errors.Is(err, pg.ErrCommitUnknown) || ctx.Err() != nil {
		return reaped, len(due) == reapBatch, err
	}
	// One of them spoils the batch: find out which.
	reaped, err = s.reapEach(ctx, due)
	return reaped, err == nil && len(due) == reapBatch, err
}

// reapFirstError asks for expired reservations to be given back on their own, outside the
// transaction that needs their units: because one of them can't be, or because the
// transaction must not hold on to it.
type reapFirstError struct{ due []Due }

func (e *reapFirstError) Error() string {
	return fmt.Sprintf("%d expired reservations have to be given back first", len(e.due))
}

// reapEach gives expired reservations back, each in a transaction of its own. One that can't be
// given back is logged and put off: until then it counts as held.
func (s *Store) reapEach(ctx context.Context, due []Due) (reaped int, err error) {
	for _, d := range due {
		gone, err := s.reapAlone(ctx, d)
		if err != nil {
			if pg.Unavailable(err) || ctx.Err() != nil {
				return reaped, err
			}
			slog.Error("an expired reservation can't be given back; run: holdfast inventory verify", "reservation", d.ID, "tenant", d.Tenant, "error", err)
			if _, err := s.pool.Exec(ctx, `UPDATE inventory.reservations SET reap_after = clock_timestamp() + interval '1 minute'
				WHERE tenant = $1 AND id = $2 AND status = 'held'`, d.Tenant, d.ID); err != nil {
				return reaped, err
			}
		}
		reaped += gone
	}
	return reaped, nil
}

func (s *Store) reapAlone(ctx context.Context, d Due) (reaped int, err error) {
	err = pg.InTx(ctx, s.pool, pg.TxOptions{}, func(tx pgx.Tx) error {
		r, err := LockReservation(ctx, tx, d.Tenant, d.ID)
		if err != nil || r.Status != Expired || r.SettledAt != nil {
			reaped = 0
			return err
		}
		reaped, err = s.giveBack(ctx, tx, []Due{{ID: r.ID, Tenant: d.Tenant, skus: skusOf(r.Lines)}})
		return err
	})
	return reaped, err
}

// giveBack expires claimed reservations, tenant by tenant in one order, for those who wait first.
func (s *Store) giveBack(ctx context.Context, tx pgx.Tx, due []Due) (int, error) {
	byTenant := map[string][]Due{}
	for _, d := range due {
		byTenant[d.Tenant] = append(byTenant[d.Tenant], d)
	}
	reaped := 0
	for _, tenant := range slices.Sorted(maps.Keys(byTenant)) {
		var ids []uuid.UUID
		var skus []string
		for _, d := range byTenant[tenant] {
			ids = append(ids, d.ID)
			skus = append(skus, d.skus...)
		}
		items, err := lockStock(ctx, tx, tenant, skus)
		if err != nil {
			return 0, err
		}
		n, err := expire(ctx, tx, tenant, ids)
		if err != nil {
			return 0, fmt.Errorf("give back %d expired reservations of %s: %w", len(ids), tenant, err)
		}
		reaped += n
		if _, err := s.serveLines(ctx, tx, tenant, items); err != nil {
			return 0, err
		}
	}
	return reaped, nil
}

func skusOf(lines []Line) []string {
	skus := make([]string, len(lines))
	for i, l := range lines {
		skus[i] = l.SKU
	}
	return skus
}
