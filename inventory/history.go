package inventory

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/internal/idempotency"
	"holdfast/internal/pg"
)

// DefaultKeep is how long finished reservations and the ledger are kept.
const DefaultKeep = 400 * 24 * time.Hour

// partitioned are the tables that grow, by month: what they drop is older than any of its rows
// is still needed for.
var partitioned = []pg.Partitioned{
	{Schema: schemaName, Table: "waitlist_history", Span: pg.Month, ByID: true}, // before the reservations that it names
	{Schema: schemaName, Table: "reservation_history", Span: pg.Month, ByID: true},
	{Schema: schemaName, Table: "ledger", Span: pg.Month, Before: carryLedger},
}

// carrySQL adds a month of the ledger to what the dropped ones added up to.
const carrySQL = `
INSERT INTO inventory.ledger_carried AS c (tenant, sku, location, on_hand, held, sold, written_off, received)
SELECT tenant, sku, location, ` + ledgerSums + ` FROM %s GROUP BY tenant, sku, location
ON CONFLICT (tenant, sku, location) DO UPDATE
   SET on_hand = c.on_hand + excluded.on_hand, held = c.held + excluded.held, sold = c.sold + excluded.sold,
       written_off = c.written_off + excluded.written_off, received = c.received + excluded.received`

func carryLedger(ctx context.Context, tx pgx.Tx, partition string) error {
	_, err := tx.Exec(ctx, fmt.Sprintf(carrySQL, partition))
	return err
}

// EnsurePartitions makes the partitions that the next days and months need. Replicas may call it at once.
func EnsurePartitions(ctx context.Context, pool *pgxpool.Pool) error {
	for _, p := range append(partitioned[:len(partitioned):len(partitioned)], idempotency.Partitioned(schemaName), deliveryHistory) {
		if err := p.Ensure(ctx, pool); err != nil {
			return err
		}
	}
	return nil
}

// DropHistory drops the months of finished reservations and of the ledger that ended more than keep
// ago, and says how many. What customers have bought and what the ledger adds up to stay.
func DropHistory(ctx context.Context, pool *pgxpool.Pool, keep time.Duration) (dropped int, err error) {
	for _, p := range partitioned {
		n, err := p.Drop(ctx, pool, keep)
		dropped += n
		if err != nil {
			return dropped, err
		}
	}
	return dropped, nil
}

// moveFinishedSQL moves what a replica of the version before has finished in place, which left it
// in the table of holds.
const moveFinishedSQL = `
WITH old AS MATERIALIZED (
	SELECT tenant, id FROM inventory.reservations
	 WHERE status <> 'held' AND ($1::text IS NULL OR tenant = $1 AND id = ANY($2::uuid[]))
	 ORDER BY tenant, id LIMIT 1000 FOR UPDATE SKIP LOCKED
), gone AS (
	DELETE FROM inventory.reservations r USING old WHERE r.tenant = old.tenant AND r.id = old.id AND r.status <> 'held' RETURNING r.*
)
INSERT INTO inventory.reservation_history (` + historyColumns + `, status, settled_at, line_confirmed)
SELECT ` + historyColumns + `, status, settled_at, line_confirmed FROM gone`

// moveFinished moves some reservations of a tenant that are over, which the caller has locked; without
// ids up to a thousand of anybody's. It says how many it moved.
func moveFinished(ctx context.Context, db executor, tenant string, ids []uuid.UUID) (int64, error) {
	var whose *string
	if ids != nil {
		whose = &tenant
	}
	tag, err := db.Exec(ctx, moveFinishedSQL, whose, ids)
	return tag.RowsAffected(), err
}
