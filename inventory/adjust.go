package inventory

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Adjustment is a command to receive units, or to write them off.
type Adjustment struct {
	SKU       string
	Location  string // "": default
	Delta     int64  // units, not zero
	Reason    string
	Reference string
}

// Count is a command to set what is on hand to what was counted.
type Count struct {
	SKU      string
	Location string // "": default
	Counted  int64  // units
	Expected *int64 // refuse if something else is on hand
	Reason   string
}

// adjustSQL changes what is on hand, never what is held. Less than is held may only be left
// where more comes in than goes out.
const adjustSQL = `
WITH changed AS (
	UPDATE inventory.stock
	   SET on_hand = on_hand + $4, received = received + greatest($4, 0), written_off = written_off + greatest(-$4, 0)
	 WHERE tenant = $1 AND sku = $2 AND location = $3 AND active
	   AND ($4 >= 0 OR on_hand + $4 >= held)
	   AND clock_timestamp() < coalesce($9, 'infinity'::timestamptz)
	RETURNING on_hand, held
), noted AS (
	INSERT INTO inventory.ledger (tenant, sku, location, kind, delta_on_hand, delta_held, on_hand, held, reason, reference, actor)
	SELECT $1, $2, $3, $5, $4, 0, on_hand, held, $6, nullif($7, ''), $8 FROM changed
)
SELECT count(*) FROM changed`

// Adjust receives units or writes them off, and returns the SKU. It fails with [ErrSKUNotFound],
// [ErrLocationNotFound] or [ErrBelowHeld].
func (s *Store) Adjust(ctx context.Context, c Caller, a Adjustment) (SKU, bool, error) {
	if a.Location == "" {
		a.Location = DefaultLocation
	}
	if a.Delta == 0 || a.Delta > MaxUnits || a.Delta < -MaxUnits {
		return SKU{}, false, invalid("delta", "must be from -%d to %d and not 0, not %d", MaxUnits, MaxUnits, a.Delta)
	}
	if err := checkReason(a.Reason); err != nil {
		return SKU{}, false, err
	}
	if err := checkText("reference", a.Reference, 255); err != nil {
		return SKU{}, false, err
	}
	take := taking{tenant: c.Tenant, skus: []string{a.SKU}}
	return command(ctx, s, c, func(tx pgx.Tx) (SKU, error) {
		if err := ensureShelf(ctx, tx, c.Tenant, a.SKU, a.Location); err != nil {
			return SKU{}, err
		}
		kind := "receive"
		if a.Delta < 0 {
			kind = "write_off"
		}
		if err := s.adjust(ctx, tx, c, &take, a, kind); err != nil {
			return SKU{}, err
		}
		return skuByID(ctx, tx, c.Tenant, a.SKU)
	})
}

// Count sets what is on hand, and returns the SKU. It fails with [ErrSKUNotFound],
// [ErrLocationNotFound], [ErrCountChanged] or [ErrBelowHeld].
func (s *Store) Count(ctx context.Context, c Caller, n Count) (SKU, bool, error) {
	if n.Location == "" {
		n.Location = DefaultLocation
	}
	if n.Counted < 0 || n.Counted > MaxUnits {
		return SKU{}, false, invalid("counted", "must be from 0 to %d, not %d", MaxUnits, n.Counted)
	}
	if err := checkReason(n.Reason); err != nil {
		return SKU{}, false, err
	}
	take := taking{tenant: c.Tenant, skus: []string{n.SKU}}
	return command(ctx, s, c, func(tx pgx.Tx) (SKU, error) {
		if err := ensureShelf(ctx, tx, c.Tenant, n.SKU, n.Location); err != nil {
			return SKU{}, err
		}
		items, err := take.lock(ctx, tx)
		if err != nil {
			return SKU{}, err
		}
		onHand := items[n.SKU].at(n.Location).onHand
		if n.Expected != nil && *n.Expected != onHand {
			return SKU{}, &AmountError{ErrCountChanged, fmt.Sprintf("%d are on hand, not %d as expected", onHand, *n.Expected)}
		}
		a := Adjustment{SKU: n.SKU, Location: n.Location, Delta: n.Counted - onHand, Reason: n.Reason}
		if err := s.adjust(ctx, tx, c, &take, a, "count"); err != nil {
			return SKU{}, err
		}
		return skuByID(ctx, tx, c.Tenant, n.SKU)
	})
}

// adjust changes what is on hand. If that would leave less than is held, expired holds are
// given back first, since they no longer count.
func (s *Store) adjust(ctx context.Context, tx pgx.Tx, c Caller, take *taking, a Adjustment, kind string) error {
	below := func(s *shelf) bool { return a.Delta < 0 && s.onHand+a.Delta < s.held }
	items, err := take.lock(ctx, tx)
	if err == nil && below(items[a.SKU].at(a.Location)) {
		items, err = take.giveBackAllExpired(ctx, tx, a.SKU)
	}
	if err != nil {
		return err
	}
	if s := items[a.SKU].at(a.Location); below(s) {
		return &AmountError{ErrBelowHeld, fmt.Sprintf("%d would be left, and %d are held", s.onHand+a.Delta, s.held)}
	}
	var changed int
	err = tx.QueryRow(ctx, adjustSQL, c.Tenant, a.SKU, a.Location, a.Delta, kind, a.Reason, a.Reference, c.Actor, s.deadline(c)).Scan(&changed)
	if err != nil {
		return err
	}
	if changed == 0 {
		return s.refusedInTime(ctx, tx, c)
	}
	_, err = s.serveLines(ctx, tx, c.Tenant, items)
	return err
}

// keepLocationSQL waits for a location that is being deleted, and keeps one that is there.
const keepLocationSQL = `SELECT 1 FROM inventory.locations WHERE tenant = $1 AND location = $2 FOR KEY SHARE`

// lockShelvesSQL locks a SKU's rows in the order of [lockStockSQL]: opening one again locks it too.
const lockShelvesSQL = `SELECT 1 FROM inventory.stock WHERE tenant = $1 AND sku = $2 ORDER BY location FOR UPDATE`

// ensureShelfSQL makes the stock row of a SKU at a location, or opens it again.
const ensureShelfSQL = `
INSERT INTO inventory.stock (tenant, sku, location)
SELECT tenant, sku, $3 FROM inventory.stock WHERE tenant = $1 AND sku = $2 AND location = '` + DefaultLocation + `' AND active
ON CONFLICT (tenant, sku, location) DO UPDATE SET active = true`

// ensureShelf makes sure that a SKU has a stock row at a location. It comes before all other locks of the SKU's rows.
func ensureShelf(ctx context.Context, tx executor, tenant, sku, location string) error {
	if location == DefaultLocation {
		return nil
	}
	var there bool
	err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM inventory.stock WHERE tenant = $1 AND sku = $2 AND location = $3 AND active)`,
		tenant, sku, location).Scan(&there)
	if err != nil || there {
		return err
	}
	kept, err := tx.Exec(ctx, keepLocationSQL, tenant, location)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, lockShelvesSQL, tenant, sku); err != nil {
		return err
	}
	made, err := tx.Exec(ctx, ensureShelfSQL, tenant, sku, location)
	if err != nil {
		return err
	}
	switch {
	case made.RowsAffected() == 0:
		return &NotFoundError{Kind: ErrSKUNotFound, Name: sku}
	case kept.RowsAffected() == 0:
		return &NotFoundError{Kind: ErrLocationNotFound, Name: location}
	}
	return nil
}

func checkReason(reason string) error {
	if reason == "" {
		return invalid("reason", "must not be empty")
	}
	return checkText("reason", reason, 500)
}
