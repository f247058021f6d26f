package inventory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"holdfast/internal/pg"
)

// SKU is a stock keeping unit: its settings and its counters, as they are at one instant.
type SKU struct {
	SKU            string
	Name           string
	MaxPerCustomer *int64 // units, live and confirmed; nil: no limit
	SafetyStock    int64  // units that are never offered
	BackorderLimit int64  // units that may be held beyond what is on hand
	LowStock       *int64 // with so many units available, or fewer, stock.low is announced; nil: never
	DefaultTTL     *time.Duration
	OnHand         int64
	Held           int64 // expired holds not counted
	Available      int64
	Sold           int64
	WrittenOff     int64
	Received       int64
	Locations      []Stock
	CreatedAt      time.Time
	UpdatedAt      time.Time // of the settings
}

// Stock is one location's part of a SKU.
type Stock struct {
	Location  string `json:"location"`
	OnHand    int64  `json:"on_hand"`
	Held      int64  `json:"held"`
	Available int64  `json:"available"`
}

// Change says what a setting becomes. The zero value leaves it as it is; Set with a nil
// Value gives it its default.
type Change[T any] struct {
	Set   bool
	Value *T
}

// Settings is a command to create a SKU or to change some of its settings.
type Settings struct {
	SKU            string
	Name           Change[string]
	MaxPerCustomer Change[int64]
	SafetyStock    Change[int64]
	BackorderLimit Change[int64]
	LowStock       Change[int64]
	DefaultTTL     Change[time.Duration]
}

func (s Settings) check() error {
	if err := checkSKU("sku", s.SKU); err != nil {
		return err
	}
	if s.Name.Value != nil {
		if err := checkText("name", *s.Name.Value, 255); err != nil {
			return err
		}
	}
	if s.DefaultTTL.Value != nil {
		if err := checkTTL("default_ttl", *s.DefaultTTL.Value); err != nil {
			return err
		}
	}
	for _, units := range []struct {
		field string
		value *int64
		least int64
	}{{"max_per_customer", s.MaxPerCustomer.Value, 1}, {"safety_stock", s.SafetyStock.Value, 0}, {"backorder_limit", s.BackorderLimit.Value, 0}, {"low_stock", s.LowStock.Value, 0}} {
		if units.value != nil && (*units.value < units.least || *units.value > MaxUnits) {
			return invalid(units.field, "must be from %d to %d, not %d", units.least, MaxUnits, *units.value)
		}
	}
	return nil
}

// ensureSKUSQL makes the rows of a SKU that never was, and waits for a rival that is making them.
const ensureSKUSQL = `
WITH made AS (INSERT INTO inventory.skus (tenant, sku) VALUES ($1, $2) ON CONFLICT DO NOTHING)
INSERT INTO inventory.stock (tenant, sku, location, active) VALUES ($1, $2, $3, false) ON CONFLICT DO NOTHING`

// putSKUSQL changes a SKU's settings, or revives it with new ones, under the lock of its stock
// row, so that deletions and creations of the same SKU follow one another.
const putSKUSQL = `
WITH put AS (
	UPDATE inventory.skus
	   SET name        = CASE WHEN $3 THEN coalesce($4, '')              WHEN deleted_at IS NULL THEN name        ELSE '' END,
	       default_ttl = CASE WHEN $5 THEN make_interval(secs => $6) WHEN deleted_at IS NULL THEN default_ttl END,
	       low_stock   = CASE WHEN $14 THEN $15 WHEN deleted_at IS NULL THEN low_stock END,
	       created_at  = CASE WHEN deleted_at IS NULL THEN created_at ELSE clock_timestamp() END,
	       updated_at  = clock_timestamp(),
	       deleted_at  = NULL
	 WHERE tenant = $1 AND sku = $2
)
UPDATE inventory.stock
   SET active           = true,
       max_per_customer = CASE WHEN $8  THEN $9               WHEN active THEN max_per_customer END,
       safety_stock     = CASE WHEN $10 THEN coalesce($11, 0) WHEN active THEN safety_stock     ELSE 0 END,
       backorder_limit  = CASE WHEN $12 THEN coalesce($13, 0) WHEN active THEN backorder_limit  ELSE 0 END
 WHERE tenant = $1 AND sku = $2 AND location = $7`

// PutSKU creates a SKU, with created set, or changes the settings that the command names. It
// fails with [ErrSettings] if more is on backorder than the new limit allows.
func (s *Store) PutSKU(ctx context.Context, c Caller, cmd Settings) (sku SKU, created bool, err error) {
	if err := cmd.check(); err != nil {
		return SKU{}, false, err
	}
	take := taking{tenant: c.Tenant, also: []string{cmd.SKU}}
	sku, _, err = command(ctx, s, c, func(tx pgx.Tx) (SKU, error) {
		if _, err := tx.Exec(ctx, ensureSKUSQL, c.Tenant, cmd.SKU, DefaultLocation); err != nil {
			return SKU{}, err
		}
		items, err := take.lock(ctx, tx)
		if err == nil && cmd.BackorderLimit.Set {
			items, err = take.giveBackAllExpired(ctx, tx, cmd.SKU) // they no longer count
		}
		if err != nil {
			return SKU{}, err
		}
		before := items[cmd.SKU]
		created = !before.active
		var ttl *float64
		if cmd.DefaultTTL.Value != nil {
			seconds := cmd.DefaultTTL.Value.Seconds()
			ttl = &seconds
		}
		_, err = tx.Exec(ctx, putSKUSQL, c.Tenant, cmd.SKU, cmd.Name.Set, cmd.Name.Value, cmd.DefaultTTL.Set, ttl, DefaultLocation,
			cmd.MaxPerCustomer.Set, cmd.MaxPerCustomer.Value, cmd.SafetyStock.Set, cmd.SafetyStock.Value,
			cmd.BackorderLimit.Set, cmd.BackorderLimit.Value, cmd.LowStock.Set, cmd.LowStock.Value)
		if pg.Constraint(err) == "stock_held_within_on_hand" {
			return SKU{}, ErrSettings
		}
		if err == nil && before.maxPerCustomer == nil && cmd.MaxPerCustomer.Value != nil {
			_, err = tx.Exec(ctx, countBoughtSQL, c.Tenant, cmd.SKU)
		}
		if err == nil {
			_, err = s.serveLines(ctx, tx, c.Tenant, items)
		}
		if err == nil {
			err = s.clock.InTime(ctx, tx, c.Deadline)
		}
		if err != nil {
			return SKU{}, err
		}
		return skuByID(ctx, tx, c.Tenant, cmd.SKU)
	})
	return sku, created, err
}

// skusSQL reads SKUs with their totals. Holds that have expired are no longer counted,
// whether or not they have been given back; all of it is one snapshot.
//
// One text for one SKU and another for a list: a prepared statement that served both would
// get a plan that suits neither.
const skusSQL = `
SELECT k.sku, k.name, k.default_ttl, k.low_stock, k.created_at, k.updated_at, s.location, s.active, s.max_per_customer, s.safety_stock, s.backorder_limit,
       s.on_hand, greatest(s.held - coalesce(overdue.units, 0), 0), s.sold, s.written_off, s.received
  FROM (SELECT * FROM inventory.skus WHERE tenant = $1 AND deleted_at IS NULL AND sku %s $2 ORDER BY sku LIMIT $3) k
  JOIN inventory.stock s USING (tenant, sku)
  LEFT JOIN (SELECT r.tenant, l.sku, l.location, sum(l.quantity)::bigint AS units
          FROM inventory.reservations r, unnest(r.line_skus, r.line_locations, r.line_quantities) AS l(sku, location, quantity)
         WHERE r.status = 'held' AND r.expires_at <= (SELECT clock_timestamp()) AND r.tenant = $1
         GROUP BY r.tenant, l.sku, l.location) overdue
    ON overdue.tenant = s.tenant AND overdue.sku = s.sku AND overdue.location = s.location
 ORDER BY k.sku, s.location`

// readSKUs reads those that compare with the given one as the operator says.
func readSKUs(ctx context.Context, db executor, tenant, operator, sku string, limit int) ([]SKU, error) {
	rows, err := db.Query(ctx, fmt.Sprintf(skusSQL, operator), tenant, sku, limit)
	if err != nil {
		return nil, err
	}
	var skus []SKU
	var k SKU
	var here Stock
	var safety, backorder, sold, writtenOff, received int64
	var limitPerCustomer *int64
	var open bool // its location is still there
	_, err = pgx.ForEachRow(rows, []any{
		&k.SKU, &k.Name, &k.DefaultTTL, &k.LowStock, &k.CreatedAt, &k.UpdatedAt, &here.Location, &open,
		&limitPerCustomer, &safety, &backorder, &here.OnHand, &here.Held, &sold, &writtenOff, &received,
	}, func() error {
		if len(skus) == 0 || skus[len(skus)-1].SKU != k.SKU {
			k.CreatedAt, k.UpdatedAt = k.CreatedAt.UTC(), k.UpdatedAt.UTC()
			skus = append(skus, k)
		}
		total := &skus[len(skus)-1]
		if here.Location == DefaultLocation {
			total.MaxPerCustomer, total.SafetyStock, total.BackorderLimit = limitPerCustomer, safety, backorder
		}
		here.Available = max(0, here.OnHand+backorder-here.Held) // see below
		if open {
			total.Locations = append(total.Locations, here)
		}
		total.OnHand += here.OnHand
		total.Held += here.Held
		total.Sold += sold
		total.WrittenOff += writtenOff
		total.Received += received
		return nil
	})
	for i := range skus {
		total := &skus[i]
		total.Available = max(0, total.OnHand+total.BackorderLimit-total.Held-total.SafetyStock)
		for n := range total.Locations { // none offers more than the SKU as a whole
			total.Locations[n].Available = min(total.Locations[n].Available, total.Available)
		}
	}
	return skus, err
}

func skuByID(ctx context.Context, db executor, tenant, sku string) (SKU, error) {
	if !isName(sku) {
		return SKU{}, &NotFoundError{Kind: ErrSKUNotFound, Name: sku}
	}
	skus, err := readSKUs(ctx, db, tenant, "=", sku, 1)
	if err != nil {
		return SKU{}, err
	}
	if len(skus) == 0 {
		return SKU{}, &NotFoundError{Kind: ErrSKUNotFound, Name: sku}
	}
	return skus[0], nil
}

// GetSKU reads one SKU as it is now. It fails with [ErrSKUNotFound].
func (s *Store) GetSKU(ctx context.Context, tenant, sku string) (SKU, error) {
	return skuByID(ctx, s.pool, tenant, sku)
}

// ListSKUs reads up to limit SKUs in the order of their names, from after the given one.
func (s *Store) ListSKUs(ctx context.Context, tenant, after string, limit int) ([]SKU, error) {
	return readSKUs(ctx, s.pool, tenant, ">", after, limit)
}

// DeleteSKU deletes a SKU that has no stock and no holds; its past stays readable. The places of its waiting list
// lapse. It fails with [ErrSKUNotFound] or [ErrSKUInUse].
func (s *Store) DeleteSKU(ctx context.Context, c Caller, sku string) error {
	if !isName(sku) {
		return &NotFoundError{Kind: ErrSKUNotFound, Name: sku}
	}
	take := taking{tenant: c.Tenant, skus: []string{sku}}
	_, _, err := command(ctx, s, c, func(tx pgx.Tx) (struct{}, error) {
		var none struct{}
		items, err := take.giveBackAllExpired(ctx, tx, sku)
		if err != nil {
			return none, err
		}
		tag, err := tx.Exec(ctx, `UPDATE inventory.stock SET active = false
			WHERE tenant = $1 AND sku = $2 AND active AND NOT EXISTS (
				SELECT 1 FROM inventory.stock s WHERE s.tenant = $1 AND s.sku = $2 AND (s.on_hand <> 0 OR s.held <> 0))`, c.Tenant, sku)
		if err != nil {
			return none, err
		}
		if tag.RowsAffected() == 0 {
			return none, ErrSKUInUse
		}
		_, err = tx.Exec(ctx, `UPDATE inventory.skus SET deleted_at = clock_timestamp() WHERE tenant = $1 AND sku = $2`, c.Tenant, sku)
		if err == nil {
			_, err = tx.Exec(ctx, endLineSQL, c.Tenant, sku)
		}
		if err == nil {
			_, err = s.serveLines(ctx, tx, c.Tenant, items) // of what expired carts gave back beside it
		}
		if err == nil {
			err = s.clock.InTime(ctx, tx, c.Deadline)
		}
		return none, err
	})
	return err
}

// Seed makes a SKU with some units unless it exists.
func (s *Store) Seed(ctx context.Context, c Caller, sku, name string, units int64) error {
	_, err := s.GetSKU(ctx, c.Tenant, sku)
	if errors.Is(err, ErrSKUNotFound) {
		_, _, err = s.PutSKU(ctx, c, Settings{SKU: sku, Name: Change[string]{true, &name}})
	}
	if err != nil {
		return err
	}
	take := taking{tenant: c.Tenant, skus: []string{sku}}
	_, _, err = command(ctx, s, c, func(tx pgx.Tx) (none struct{}, err error) {
		if _, err := take.lock(ctx, tx); err != nil {
			return none, err
		}
		k, err := skuByID(ctx, tx, c.Tenant, sku)
		if err != nil || k.Received > 0 { // by somebody else, or at an earlier start
			return none, err
		}
		return none, s.adjust(ctx, tx, c, &take, Adjustment{SKU: sku, Location: DefaultLocation, Delta: units, Reason: "initial stock"}, "receive")
	})
	return err
}
