package inventory

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"

	"holdfast/internal/pg"
)

const (
	// keepBatch bounds the lines of one pass.
	keepBatch = 1000
	// lapseBatch bounds the places that lapse in one transaction.
	lapseBatch = 1000
)

// line names one.
type line struct{ tenant, sku string }

// dueLinesSQL finds lines with places that have waited their time.
const dueLinesSQL = `
SELECT DISTINCT tenant, sku FROM inventory.waitlist WHERE expires_at <= (SELECT clock_timestamp()) LIMIT $1`

// servableLinesSQL finds lines with a place that what is free could serve. As in lineSQL, where the smallest
// wants more, the line isn't looked through.
const servableLinesSQL = `
SELECT s.tenant, s.sku
  FROM inventory.stock s CROSS JOIN LATERAL (
	SELECT sum(o.on_hand - o.held)::bigint + s.backorder_limit - s.safety_stock AS units
	  FROM inventory.stock o WHERE o.tenant = s.tenant AND o.sku = s.sku) free
 WHERE s.waiting > 0 AND s.location = '` + DefaultLocation + `' AND s.active AND free.units > 0
   AND EXISTS (SELECT 1 FROM inventory.waitlist w
                WHERE w.tenant = s.tenant AND w.sku = s.sku AND w.quantity <= free.units AND w.expires_at > clock_timestamp()
                  AND free.units >= (SELECT min(m.quantity) FROM inventory.waitlist m WHERE m.tenant = s.tenant AND m.sku = s.sku))
 LIMIT $1`

// KeepLines moves places that have waited their time out of the lines, and serves those that somebody has
// left to be served: after very many units came at once, or a repair. full says that there may be more
// to do. Replicas may run it at once. A line that can't be kept is logged, and holds up no other.
func (s *Store) KeepLines(ctx context.Context) (full bool, err error) {
	due, err := s.lines(ctx, dueLinesSQL)
	if err != nil {
		return false, err
	}
	servable, err := s.lines(ctx, servableLinesSQL)
	if err != nil {
		return false, err
	}
	for _, work := range []struct {
		lines []line
		keep  func(context.Context, pgx.Tx, line) (bool, error)
	}{{due, lapse}, {servable, s.serveAlone}} {
		for _, l := range work.lines {
			more := false
			err := pg.InTx(ctx, s.pool, pg.TxOptions{}, func(tx pgx.Tx) (err error) {
				more, err = work.keep(ctx, tx, l)
				return err
			})
			if pg.Unavailable(err) || ctx.Err() != nil {
				return false, err
			}
			if err != nil {
				slog.Error("a waiting list can't be kept; run: holdfast inventory verify", "tenant", l.tenant, "sku", l.sku, "error", err)
			}
			full = full || err == nil && more
		}
	}
	return full, nil
}

func (s *Store) lines(ctx context.Context, sql string) ([]line, error) {
	rows, err := s.pool.Query(ctx, sql, keepBatch)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (l line, err error) {
		return l, row.Scan(&l.tenant, &l.sku)
	})
}

var endOverdueSQL = fmt.Sprintf(endPlacesSQL, chosenOverdue) + ` SELECT count(*) FROM gone`

func lapse(ctx context.Context, tx pgx.Tx, l line) (more bool, err error) {
	if _, err := lockStock(ctx, tx, l.tenant, []string{l.sku}); err != nil {
		return false, err
	}
	var lapsed int
	err = tx.QueryRow(ctx, endOverdueSQL, l.tenant, l.sku, lapseBatch).Scan(&lapsed)
	return lapsed == lapseBatch, err
}

func (s *Store) serveAlone(ctx context.Context, tx pgx.Tx, l line) (more bool, err error) {
	items, err := lockStock(ctx, tx, l.tenant, []string{l.sku})
	if err != nil {
		return false, err
	}
	return s.serveLines(ctx, tx, l.tenant, items)
}
