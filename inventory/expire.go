package inventory

import (
	"context"

	"github.com/google/uuid"
)

// actorExpiry stands in the ledger where time itself ended a hold.
const actorExpiry = "expiry"

// expireSQL takes holds that have run out out of held: they go to the history, the units leave held,
// and the ledger gets its entries, in one statement whose DELETE carries the predicates that
// make it legal. A rival that was faster leaves it nothing to do, so units are
// credited once. The caller has locked the reservations and their stock rows.
//
// Several entries for one stock row get the balances that they would have had one by one.
const expireSQL = `
WITH expired AS (
	DELETE FROM inventory.reservations
	 WHERE tenant = $1 AND id = ANY($2) AND status = 'held' AND expires_at <= clock_timestamp()
	RETURNING ` + historyColumns + `
), kept AS (
	INSERT INTO inventory.reservation_history (` + historyColumns + `, status, settled_at)
	SELECT ` + historyColumns + `, 'expired', clock_timestamp() FROM expired
), lines AS (
	SELECT e.id, e.tenant, e.reference, l.sku, l.location, l.quantity, l.n
	  FROM expired e, unnest(e.line_skus, e.line_locations, e.line_quantities) WITH ORDINALITY AS l(sku, location, quantity, n)
), freed AS (
	UPDATE inventory.stock s SET held = s.held - l.quantity
	  FROM (SELECT tenant, sku, location, sum(quantity)::bigint AS quantity FROM lines GROUP BY tenant, sku, location) l
	 WHERE s.tenant = l.tenant AND s.sku = l.sku AND s.location = l.location
	RETURNING s.tenant, s.sku, s.location, s.on_hand, s.held
), noted AS (
	INSERT INTO inventory.ledger (tenant, sku, location, kind, event, delta_on_hand, delta_held, on_hand, held, reservation_id, reference, actor)
	SELECT l.tenant, l.sku, l.location, 'expire', CASE WHEN l.n = 1 THEN '` + eventExpired + `' END, 0, -l.quantity,
	       f.on_hand, f.held + coalesce(sum(l.quantity) OVER later, 0), l.id, l.reference, '` + actorExpiry + `'
	  FROM lines l JOIN freed f USING (tenant, sku, location)
	WINDOW later AS (PARTITION BY l.tenant, l.sku, l.location ORDER BY l.id, l.n ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)
	 ORDER BY l.id, l.n
)
SELECT count(*) FROM expired`

// historyColumns are those that a reservation takes along when it is over.
const historyColumns = `id, tenant, line_skus, line_locations, line_quantities, line_wanted, customer, reference, first_ttl, created_at, expires_at`

// expire returns how many of the reservations it took out of held.
func expire(ctx context.Context, tx executor, tenant string, ids []uuid.UUID) (expired int, err error) {
	err = tx.QueryRow(ctx, expireSQL, tenant, ids).Scan(&expired)
	return expired, err
}
