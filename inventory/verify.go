package inventory

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/internal/pg"
)

// Difference is a counter that isn't what ledger and holds make it.
type Difference struct {
	Tenant   string `json:"tenant"`
	SKU      string `json:"sku"`
	Location string `json:"location"`
	Counter  string `json:"counter"`
	Is       int64  `json:"is"`
	ShouldBe int64  `json:"should_be"`
	Repaired bool   `json:"repaired"`
}

func (d Difference) String() string {
	text := fmt.Sprintf("%s/%s at %s: %s is %d, should be %d", d.Tenant, d.SKU, d.Location, d.Counter, d.Is, d.ShouldBe)
	if d.Repaired {
		text += " (repaired)"
	}
	return text
}

// ledgerSums is what entries of one stock row add up to. Write-offs and receipts are the negative and
// positive changes by adjustments and counts; what a confirmation or a retake takes away from on_hand is sold,
// and what a return adds no longer is.
const ledgerSums = `
       sum(delta_on_hand)::bigint AS on_hand, sum(delta_held)::bigint AS held,
       coalesce(-sum(delta_on_hand) FILTER (WHERE kind IN ('confirm', 'retake', 'return')), 0)::bigint AS sold,
       coalesce(-sum(least(delta_on_hand, 0)) FILTER (WHERE kind IN ('receive', 'write_off', 'count')), 0)::bigint AS written_off,
       coalesce(sum(greatest(delta_on_hand, 0)) FILTER (WHERE kind IN ('receive', 'write_off', 'count')), 0)::bigint AS received`

// recountSQL recomputes every counter: held from the holds (live or not yet given back),
// the others from the ledger. What the ledger says of held is compared too.
const recountSQL = `
SELECT tenant, sku, location,
       coalesce(s.on_hand, 0), coalesce(l.on_hand, 0),
       coalesce(s.held, 0), coalesce(h.held, 0), coalesce(l.held, 0),
       coalesce(s.sold, 0), coalesce(l.sold, 0),
       coalesce(s.written_off, 0), coalesce(l.written_off, 0),
       coalesce(s.received, 0), coalesce(l.received, 0),
       coalesce(s.waiting, 0), coalesce(w.waiting, 0), coalesce(w.misplaced, 0)
  FROM inventory.stock s
  FULL JOIN (SELECT tenant, sku, location, sum(on_hand)::bigint AS on_hand, sum(held)::bigint AS held, sum(sold)::bigint AS sold,
                    sum(written_off)::bigint AS written_off, sum(received)::bigint AS received
               FROM (SELECT tenant, sku, location, ` + ledgerSums + `
                       FROM inventory.ledger WHERE ($1 = '' OR (tenant, sku, location) = ($1, $2, $3)) GROUP BY tenant, sku, location
                     UNION ALL
                     SELECT tenant, sku, location, on_hand, held, sold, written_off, received
                       FROM inventory.ledger_carried WHERE ($1 = '' OR (tenant, sku, location) = ($1, $2, $3))) parts
              GROUP BY tenant, sku, location) l USING (tenant, sku, location)
  FULL JOIN (SELECT r.tenant, line.sku, line.location, sum(line.quantity)::bigint AS held
               FROM inventory.reservations r,
                    unnest(r.line_skus, r.line_locations, r.line_quantities) AS line(sku, location, quantity)
              WHERE r.status = 'held' AND ($1 = '' OR r.tenant = $1 AND line.sku = $2 AND line.location = $3)
              GROUP BY r.tenant, line.sku, line.location) h USING (tenant, sku, location)
  FULL JOIN (SELECT tenant, sku, '` + DefaultLocation + `' AS location, sum(coalesce(p.places, 0))::bigint AS waiting,
                    sum(abs(coalesce(p.places, 0) - coalesce(b.waiting, 0)))::bigint AS misplaced
               FROM (SELECT tenant, sku, seq / 1000 AS block, count(*) AS places FROM inventory.waitlist
                      WHERE ($1 = '' OR (tenant, sku) = ($1, $2)) GROUP BY tenant, sku, seq / 1000) p
               FULL JOIN (SELECT tenant, sku, block, waiting FROM inventory.waitlist_blocks
                           WHERE ($1 = '' OR (tenant, sku) = ($1, $2))) b USING (tenant, sku, block)
              GROUP BY tenant, sku) w USING (tenant, sku, location)
 WHERE ($1 = '' OR (tenant, sku, location) = ($1, $2, $3))
 ORDER BY tenant, sku, location`

// counts is one stock row with what it should be.
type counts struct {
	Tenant, SKU, Location        string
	OnHand, LedgerOnHand         int64
	Held, Holds, LedgerHeld      int64
	Sold, LedgerSold             int64
	WrittenOff, LedgerWrittenOff int64
	Received, LedgerReceived     int64
	Waiting, Places, Misplaced   int64 // the last: by how many the blocks of the line are wrong
}

func (c counts) differences() []Difference {
	var found []Difference
	compare := func(counter string, is, shouldBe int64) {
		if is != shouldBe {
			found = append(found, Difference{Tenant: c.Tenant, SKU: c.SKU, Location: c.Location, Counter: counter, Is: is, ShouldBe: shouldBe})
		}
	}
	compare("on_hand", c.OnHand, c.LedgerOnHand)
	compare("held", c.Held, c.Holds)
	compare("held in the ledger", c.LedgerHeld, c.Holds)
	compare("sold", c.Sold, c.LedgerSold)
	compare("written_off", c.WrittenOff, c.LedgerWrittenOff)
	compare("received", c.Received, c.LedgerReceived)
	compare("waiting", c.Waiting, c.Places)
	compare("waiting in the wrong block", c.Misplaced, 0)
	return found
}

// Verify recomputes every tenant's counters from ledger and holds, as of one instant, and
// returns the differences. With repair it then makes each differing row right, in a transaction of
// its own that locks it, and marks what it wrote as repaired; a row that can't be repaired holds
// up no other, and the error names it. It may run while the service works.
func Verify(ctx context.Context, pool *pgxpool.Pool, repair bool) ([]Difference, error) {
	var rows []counts
	err := pg.InTx(ctx, pool, pg.TxOptions{Snapshot: true}, func(tx pgx.Tx) error {
		var err error
		rows, err = recount(ctx, tx, "", place{})
		return err
	})
	if err != nil {
		return nil, err
	}
	var found []Difference
	var failed []error
	for _, row := range rows {
		differences := row.differences()
		if len(differences) > 0 && repair {
			repaired, err := repairRow(ctx, pool, row.Tenant, place{row.SKU, row.Location})
			if err == nil {
				differences = repaired
			} else {
				failed = append(failed, fmt.Errorf("repair %s/%s at %s: %w", row.Tenant, row.SKU, row.Location, err))
			}
		}
		found = append(found, differences...)
	}
	return found, errors.Join(failed...)
}

func recount(ctx context.Context, tx pgx.Tx, tenant string, p place) ([]counts, error) {
	rows, err := tx.Query(ctx, recountSQL, tenant, p.sku, p.location)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[counts])
}

// repairSQL makes the counters what ledger and holds say; the ledger's account of held is
// made right by an entry of its own.
const repairSQL = `
WITH repaired AS (
	INSERT INTO inventory.stock (tenant, sku, location, on_hand, held, sold, written_off, received, waiting)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $11)
	ON CONFLICT (tenant, sku, location) DO UPDATE
	   SET on_hand = excluded.on_hand, held = excluded.held, sold = excluded.sold, written_off = excluded.written_off, received = excluded.received,
	       waiting = excluded.waiting
	RETURNING on_hand, held
)
INSERT INTO inventory.ledger (tenant, sku, location, kind, delta_on_hand, delta_held, on_hand, held, reason, actor)
SELECT $1, $2, $3, 'repair', 0, $9, on_hand, held, $10, 'verify' FROM repaired`

// repairBlocksSQL counts the places of a line anew, under the lock of its SKU.
const repairBlocksSQL = `
WITH counted AS (
	SELECT seq / 1000 AS block, count(*) AS places FROM inventory.waitlist WHERE tenant = $1 AND sku = $2 GROUP BY seq / 1000
), empty AS (
	DELETE FROM inventory.waitlist_blocks WHERE tenant = $1 AND sku = $2 AND block NOT IN (SELECT block FROM counted)
)
INSERT INTO inventory.waitlist_blocks (tenant, sku, block, waiting) SELECT $1, $2, block, places FROM counted
ON CONFLICT (tenant, sku, block) DO UPDATE SET waiting = excluded.waiting`

func repairRow(ctx context.Context, pool *pgxpool.Pool, tenant string, p place) (differences []Difference, err error) {
	err = pg.InTx(ctx, pool, pg.TxOptions{}, func(tx pgx.Tx) error {
		differences = nil
		if _, err := lockStock(ctx, tx, tenant, []string{p.sku}); err != nil {
			return err
		}
		// Counted again under the lock, by a statement that sees all that was committed before it.
		rows, err := recount(ctx, tx, tenant, p)
		if err != nil || len(rows) == 0 {
			return err
		}
		row := rows[0]
		if differences = row.differences(); len(differences) == 0 {
			return nil
		}
		reason := "verify --repair"
		for i := range differences {
			reason += "; " + differences[i].Counter + fmt.Sprintf(" was %d", differences[i].Is)
			differences[i].Repaired = true
		}
		_, err = tx.Exec(ctx, repairSQL, tenant, p.sku, p.location, row.LedgerOnHand, row.Holds,
			row.LedgerSold, row.LedgerWrittenOff, row.LedgerReceived, row.Holds-row.LedgerHeld, reason, row.Places)
		if err == nil && row.Misplaced > 0 {
			_, err = tx.Exec(ctx, repairBlocksSQL, tenant, p.sku)
		}
		return err
	})
	return differences, err
}
