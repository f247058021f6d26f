package inventory

import (
	"context"

	"github.com/jackc/pgx/v5"

	"holdfast/internal/pg"
)

// customerUnitsSQL counts what customers hold or have bought of some SKUs. Under the lock of
// their stock rows it can't grow.
const customerUnitsSQL = `
SELECT w.customer, w.sku,
       coalesce((SELECT u.units FROM inventory.customer_units u WHERE u.tenant = $1 AND u.customer = w.customer AND u.sku = w.sku), 0)
     + coalesce((SELECT sum(l.quantity)::bigint
                   FROM inventory.reservations r CROSS JOIN LATERAL unnest(r.line_skus, r.line_quantities) AS l(sku, quantity)
                  WHERE r.tenant = $1 AND r.customer = w.customer AND l.sku = w.sku
                    AND r.status = 'held' AND r.expires_at > clock_timestamp()), 0)
  FROM (SELECT DISTINCT customer, sku FROM unnest($2::text[], $3::text[]) AS w(customer, sku)) w`

// readCustomers counts what the customers of limited SKUs have.
func (b *books) readCustomers(ctx context.Context, tx *pg.Pipeline, batch []*task) error {
	b.customers = map[customerSKU]int64{}
	var customers, skus []string
	want := func(customer string, lines []Line) {
		for _, l := range lines {
			if i := b.items[l.SKU]; customer != "" && i != nil && i.maxPerCustomer != nil {
				customers, skus = append(customers, customer), append(skus, l.SKU)
			}
		}
	}
	for _, t := range batch {
		if t.reserve != nil {
			want(t.reserve.Customer, t.reserve.Lines)
		} else if r := b.reservations[t.reservation()]; r != nil && t.confirm != nil && t.confirm.Retake {
			want(r.Customer, r.Lines)
		}
	}
	return b.countCustomers(ctx, tx, customers, skus)
}

// countCustomers counts what customers, side by side with SKUs, have of them.
func (b *books) countCustomers(ctx context.Context, tx executor, customers, skus []string) error {
	if b.customers == nil {
		b.customers = map[customerSKU]int64{}
	}
	if len(customers) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, customerUnitsSQL, b.tenant, customers, skus)
	if err != nil {
		return err
	}
	var key customerSKU
	var units int64
	_, err = pgx.ForEachRow(rows, []any{&key.customer, &key.sku, &units}, func() error {
		b.customers[key] = units
		return nil
	})
	return err
}

// checkCustomer refuses what would pass a SKU's limit per customer.
func (b *books) checkCustomer(customer string, lines []Line) error {
	wants := map[string]int64{}
	for _, l := range lines {
		wants[l.SKU] += l.Quantity
	}
	for _, l := range lines {
		limit := b.items[l.SKU].maxPerCustomer
		if limit == nil {
			continue
		}
		if customer == "" {
			return &NotFoundError{Kind: ErrCustomerRequired, Name: l.SKU}
		}
		if has := b.customers[customerSKU{customer, l.SKU}]; has+wants[l.SKU] > *limit {
			return &CustomerLimitError{SKU: l.SKU, Limit: *limit, Has: has, Wanted: wants[l.SKU]}
		}
	}
	return nil
}

func (b *books) addToCustomer(customer, sku string, units int64) {
	if customer != "" {
		b.customers[customerSKU{customer, sku}] += units
	}
}

// sell keeps what a customer has bought of a SKU with a limit.
func (b *books) sell(customer, sku string, units int64) {
	if customer == "" || b.items[sku].maxPerCustomer == nil {
		return
	}
	if b.bought == nil {
		b.bought = map[customerSKU]int64{}
	}
	b.bought[customerSKU{customer, sku}] += units
}

// addBoughtSQL keeps what customers have bought, under the lock of the SKUs' stock.
const addBoughtSQL = `
INSERT INTO inventory.customer_units AS u (tenant, customer, sku, units)
SELECT $1, w.customer, w.sku, w.units FROM unnest($2::text[], $3::text[], $4::bigint[]) AS w(customer, sku, units)
ON CONFLICT (tenant, customer, sku) DO UPDATE SET units = u.units + excluded.units`

func (b *books) queueBought(pipeline *pgx.Batch) {
	var customers, skus []string
	var units []int64
	for key, n := range b.bought {
		customers, skus, units = append(customers, key.customer), append(skus, key.sku), append(units, n)
	}
	if len(customers) > 0 {
		pipeline.Queue(addBoughtSQL, b.tenant, customers, skus, units)
	}
}

// countBoughtSQL counts, under the lock of its stock, what customers have bought of a SKU that had
// no limit so far, from what is kept of its history.
const countBoughtSQL = `
WITH entries AS (
	SELECT DISTINCT reservation_id FROM inventory.ledger WHERE tenant = $1 AND sku = $2 AND kind IN ('confirm', 'retake')
), bought AS (
	SELECT r.customer, sum(l.confirmed - coalesce(l.returned, 0))::bigint AS units
	  FROM entries e JOIN inventory.reservation_history r ON r.tenant = $1 AND r.id = e.reservation_id
	 CROSS JOIN LATERAL unnest(r.line_skus, r.line_confirmed, r.line_returned) AS l(sku, confirmed, returned)
	 WHERE r.status = 'confirmed' AND r.customer IS NOT NULL AND l.sku = $2
	 GROUP BY r.customer
), forgotten AS (
	DELETE FROM inventory.customer_units u WHERE tenant = $1 AND sku = $2 AND NOT EXISTS (SELECT 1 FROM bought b WHERE b.customer = u.customer)
)
INSERT INTO inventory.customer_units AS u (tenant, customer, sku, units)
SELECT $1, customer, $2, units FROM bought
ON CONFLICT (tenant, customer, sku) DO UPDATE SET units = excluded.units`
