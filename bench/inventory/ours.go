package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"holdfast/internal/idempotency"
	"holdfast/internal/pg"
	"holdfast/inventory"
)

// tenant is whose the stock is. It is also the one that replicas without authentication serve.
const tenant = "default"

// plenty is more units than any load can take.
const plenty = inventory.MaxUnits

// shop is our service on a database of its own.
type shop struct {
	url   string
	pool  *pgxpool.Pool
	store *inventory.Store
	stop  func() error
}

// openShop makes and migrates a database and opens a Store on it, with the background work of a replica.
func (s *stage) openShop(ctx context.Context, database string) (*shop, error) {
	url, err := s.database(ctx, database)
	if err != nil {
		return nil, err
	}
	if err := pg.Migrate(ctx, url, inventory.Schema()); err != nil {
		return nil, err
	}
	pool, err := pg.OpenPool(ctx, url, pg.PoolOptions{})
	if err != nil {
		return nil, err
	}
	clock, err := pg.NewClock(ctx, pool)
	if err != nil {
		pool.Close()
		return nil, err
	}
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	o := &shop{url: url, pool: pool, store: inventory.NewStore(pool, clock, inventory.Options{})}
	go func() {
		ended <- o.store.Run(running, slog.New(slog.NewTextHandler(io.Discard, nil)), prometheus.NewRegistry())
	}()
	o.stop = func() error {
		cancel()
		err := <-ended
		pool.Close()
		return err
	}
	return o, nil
}

var shopkeeper = inventory.Caller{Tenant: tenant, Actor: "bench"}

// stockUp makes SKUs with units, whose holds outlast the run.
func (o *shop) stockUp(ctx context.Context, units int64, skus ...string) error {
	ttl := inventory.MaxTTL
	for _, sku := range skus {
		settings := inventory.Settings{SKU: sku, DefaultTTL: inventory.Change[time.Duration]{Set: true, Value: &ttl}}
		if _, _, err := o.store.PutSKU(ctx, shopkeeper, settings); err != nil {
			return err
		}
		if _, _, err := o.store.Adjust(ctx, shopkeeper, inventory.Adjustment{SKU: sku, Delta: units, Reason: "for sale"}); err != nil {
			return err
		}
	}
	return nil
}

// catalogSQL makes many SKUs at once, as a PUT and a receipt of each would.
const catalogSQL = `
WITH new AS (SELECT unnest($2::text[]) AS sku), made AS (
	INSERT INTO inventory.skus (tenant, sku, default_ttl) SELECT $1, sku, '24 hours' FROM new
), stocked AS (
	INSERT INTO inventory.stock (tenant, sku, location, on_hand, received) SELECT $1, sku, 'default', $3, $3 FROM new
)
INSERT INTO inventory.ledger (tenant, sku, location, kind, delta_on_hand, delta_held, on_hand, held, reason, actor)
SELECT $1, sku, 'default', 'receive', $3, 0, $3, 0, 'for sale', 'bench' FROM new`

// stockCatalog makes more SKUs than commands would in good time.
func (o *shop) stockCatalog(ctx context.Context, units int64, skus []string) error {
	if _, err := o.pool.Exec(ctx, catalogSQL, tenant, skus, units); err != nil {
		return err
	}
	_, err := o.pool.Exec(ctx, "ANALYZE inventory.skus, inventory.stock, inventory.ledger")
	return err
}

// do carries out a command in this process.
func (o *shop) do(ctx context.Context, c command) (string, outcome, error) {
	caller := shopkeeper
	if c.key != "" {
		caller.Key = idempotency.Key{Tenant: tenant, Path: "/v1/reservations", Value: c.key}
	}
	ctx = context.WithoutCancel(ctx) // the turn's end isn't the client's
	var r inventory.Reservation
	var err error
	switch c.kind {
	case reserve:
		lines := make([]inventory.Line, len(c.lines))
		for i, l := range c.lines {
			lines[i] = inventory.Line{SKU: l.sku, Quantity: l.quantity}
		}
		r, _, err = o.store.Reserve(ctx, caller, inventory.Reserve{Lines: lines})
		if errors.Is(err, inventory.ErrSoldOut) {
			return "", soldOut, nil
		}
	case confirm:
		caller.Key.Path += "/" + c.id + "/confirm"
		r, _, err = o.store.Confirm(ctx, caller, inventory.Confirmation{ID: uuid.MustParse(c.id)})
	case release:
		caller.Key.Path += "/" + c.id + "/release"
		r, _, err = o.store.Release(ctx, caller, inventory.Release{ID: uuid.MustParse(c.id)})
	}
	return r.ID.String(), done, err
}

// check compares what callers were told with what stands in the database, and that with itself.
func (o *shop) check(ctx context.Context, told books) error {
	differences, err := inventory.Verify(ctx, o.pool, false)
	if err != nil {
		return err
	}
	if len(differences) > 0 {
		return fmt.Errorf("verify finds %d differences, the first: %v", len(differences), differences[0])
	}
	var held, sold int64
	err = o.pool.QueryRow(ctx, "SELECT sum(held)::bigint, sum(sold)::bigint FROM inventory.stock").Scan(&held, &sold)
	if err != nil {
		return err
	}
	return told.compare(held, sold)
}

// compare says whether the units that were acknowledged are those that a system has.
func (b books) compare(held, sold int64) error {
	if held != b.held() || sold != b.Confirmed {
		return fmt.Errorf("callers were told of %d units held and %d sold, the system has %d and %d", b.held(), b.Confirmed, held, sold)
	}
	return nil
}
