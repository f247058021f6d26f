// Package api is inventory's HTTP face: it turns requests into commands and answers into
// JSON, and decides nothing itself.
package api

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/internal/httpapi"
	"holdfast/internal/pg"
	"holdfast/inventory"
)

const description = `Oversell-proof stock reservations.

A **reservation** holds units of one or more SKUs for a bounded time, all lines or none. It is then confirmed (sold), released,
or it expires; an expired hold counts as free from the instant of its expiry. Send an ` + "`Idempotency-Key`" + ` with every change: after a lost
answer, asking again with the same key gives the final word.`

// New makes the API of a store. The config's Title, Description, Errors and Ready are filled in here.
func New(store *inventory.Store, pool *pgxpool.Pool, cfg httpapi.Config) *httpapi.API {
	cfg.Title = "Holdfast Inventory"
	cfg.Description = description
	cfg.Errors = rules
	cfg.Ready = func(ctx context.Context) (any, error) {
		return map[string]string{"schema": inventory.Schema().Name}, pg.CheckMigrated(ctx, pool, inventory.Schema())
	}
	a := httpapi.New(cfg)
	registerSKUs(a, store)
	registerImports(a, store)
	registerLocations(a, store)
	registerReservations(a, store)
	registerReturns(a, store)
	registerWaitlist(a, store)
	registerSubscriptions(a, store)
	registerSecret(a, store)
	registerStream(a, store)
	return a
}

// callerOf is on whose behalf the request is carried out.
func callerOf(ctx context.Context) inventory.Caller {
	who := httpapi.PrincipalOf(ctx)
	return inventory.Caller{Tenant: who.Tenant, Actor: who.Name, Key: httpapi.IdempotencyKey(ctx), Deadline: httpapi.Deadline(ctx)}
}
