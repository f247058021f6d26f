package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/internal/apikey"
	"holdfast/internal/pg"
)

type keysCmd struct {
	Create keysCreate `cmd:"" help:"Make a key and print it, this once."`
	List   keysList   `cmd:"" help:"List keys."`
	Revoke keysRevoke `cmd:"" help:"End a key."`
}

// keyring is whose keys a command is about.
type keyring struct {
	database
	Service string `required:"" enum:"inventory,chronos" help:"inventory or chronos."`
	JSON    bool   `name:"json" help:"Write JSON."`
}

func (k keyring) open(ctx context.Context) (*pgxpool.Pool, *apikey.Store, error) {
	pool, err := pg.OpenPool(ctx, k.DatabaseURL, pg.PoolOptions{MaxConns: 2, Name: "holdfast keys"})
	if err != nil {
		return nil, nil, err
	}
	schema := schemas[k.Service]()
	if err := pg.CheckMigrated(ctx, pool, schema); err != nil {
		pool.Close()
		return nil, nil, err
	}
	return pool, apikey.NewStore(pool, schema.Name), nil
}

func (k keyring) print(out output, keys []apikey.Key) error {
	if k.JSON {
		return json.NewEncoder(out.stdout).Encode(keys)
	}
	w := tabwriter.NewWriter(out.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tTENANT\tNAME\tSCOPES\tCREATED\tREVOKED")
	for _, key := range keys {
		revoked := "-"
		if key.RevokedAt != nil {
			revoked = key.RevokedAt.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", key.ID, key.Tenant, key.Name, scopeWords(key), key.CreatedAt.UTC().Format(time.RFC3339), revoked)
	}
	return w.Flush()
}

func scopeWords(key apikey.Key) string {
	words := make([]string, len(key.Scopes))
	for i, scope := range key.Scopes {
		words[i] = string(scope)
	}
	return strings.Join(words, ",")
}

type keysCreate struct {
	keyring
	Tenant string   `required:"" help:"Whose things the key is for."`
	Name   string   `help:"What people call it; shown in ledgers."`
	Scope  []string `required:"" help:"read, write, admin."`
}

func (c keysCreate) Run(ctx context.Context, out output) error {
	scopes, err := apikey.ParseScopes(c.Scope...)
	if err != nil {
		return usage("--scope: %w", err)
	}
	pool, store, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	key, secret, err := store.Create(ctx, c.Tenant, c.Name, scopes)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(out.stdout).Encode(struct {
			apikey.Key
			Secret string `json:"key"`
		}{key, secret})
	}
	fmt.Fprintf(out.stderr, "key %s of tenant %s (%s); it is shown only now:\n", key.ID, key.Tenant, scopeWords(key))
	fmt.Fprintln(out.stdout, secret)
	return nil
}

type keysList struct {
	keyring
	Tenant string `help:"Only this tenant's."`
}

func (c keysList) Run(ctx context.Context, out output) error {
	pool, store, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	keys, err := store.List(ctx, c.Tenant)
	if err != nil {
		return err
	}
	return c.print(out, keys)
}

type keysRevoke struct {
	keyring
	ID string `arg:"" help:"The key's id, as list shows it."`
}

func (c keysRevoke) Run(ctx context.Context, out output) error {
	id, err := uuid.Parse(c.ID)
	if err != nil {
		return usage("%q isn't a key's id; holdfast keys list shows them", c.ID)
	}
	pool, store, err := c.keyring.open(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	key, err := store.Revoke(ctx, id)
	if err != nil {
		return err
	}
	return c.print(out, []apikey.Key{key})
}
