package main

import (
	"context"
	"fmt"
	"io"

	"github.com/schollz/progressbar/v3"
)

// pastSQL writes confirmed reservations of one unit of the hot SKU, as the service leaves them:
// in the history, with an entry in the ledger for the hold and one for the sale. They were made one
// after the other, from the beginning of the month on: that is the oldest partition of a new database.
const pastSQL = `
WITH past AS (
	SELECT began + n * (clock_timestamp() - began) / $4 AS at, n
	  FROM generate_series($2::bigint, $3::bigint) AS n,
	       (SELECT date_trunc('month', clock_timestamp() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' AS began) AS month
), made AS (
	SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '70008' || lpad(to_hex(n), 15, '0'))::uuid AS id, at, n FROM past
), kept AS (
	INSERT INTO inventory.reservation_history (id, tenant, status, line_skus, line_locations, line_quantities, line_confirmed,
	                                           first_ttl, created_at, expires_at, settled_at)
	SELECT id, $1, 'confirmed', '{hot}', '{default}', '{1}', '{1}', '10 minutes', at, at + interval '10 minutes', at FROM made
)
INSERT INTO inventory.ledger (at, tenant, sku, location, kind, event, delta_on_hand, delta_held, on_hand, held, reservation_id, actor)
SELECT at, $1, 'hot', 'default', step.kind, step.event, step.delta_on_hand, step.delta_held, $5 - n - step.delta_on_hand - 1, greatest(step.delta_held, 0), id, 'bench'
  FROM made, (VALUES ('hold', 'reservation.held', 0, 1), ('confirm', 'reservation.confirmed', -1, -1)) AS step(kind, event, delta_on_hand, delta_held)`

const soldSQL = `UPDATE inventory.stock SET on_hand = on_hand - $2, sold = sold + $2 WHERE tenant = $1 AND sku = 'hot' AND location = 'default'`

// fillHistory gives a shop a past of n sales of its hot SKU.
func (o *shop) fillHistory(ctx context.Context, n int, progress io.Writer) error {
	bar := progressbar.NewOptions(n, progressbar.OptionSetWriter(progress), progressbar.OptionSetDescription("finished reservations"),
		progressbar.OptionSetWidth(30), progressbar.OptionShowCount(), progressbar.OptionSetPredictTime(true),
		progressbar.OptionOnCompletion(func() { fmt.Fprintln(progress) }))
	const atOnce = 100_000
	for from := 0; from < n; from += atOnce {
		to := min(n, from+atOnce)
		if _, err := o.pool.Exec(ctx, pastSQL, tenant, from, to-1, n, plenty); err != nil {
			return err
		}
		_ = bar.Add(to - from)
	}
	if _, err := o.pool.Exec(ctx, soldSQL, tenant, n); err != nil {
		return err
	}
	// As the background work of a database with such a past has left it.
	_, err := o.pool.Exec(ctx, "VACUUM ANALYZE inventory.reservation_history, inventory.ledger, inventory.stock")
	return err
}
