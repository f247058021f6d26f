package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"holdfast/internal/pg"
	"holdfast/inventory"
	"holdfast/inventory/api"
	"holdfast/web"
	"holdfast/webhook"
)

type inventoryCmd struct {
	Serve  inventoryServe  `cmd:"" help:"Run one replica." set:"listen=127.0.0.1:8080"`
	Import inventoryImport `cmd:"" help:"Send a file of deltas or counts to the API."`
	Verify inventoryVerify `cmd:"" help:"Recompute every counter from ledger and holds."`
}

type inventoryServe struct {
	serving
	MaxHold time.Duration `default:"1h" help:"How long after its creation a hold may be extended to."`
	Keep    time.Duration `default:"9600h" help:"How long finished reservations and the ledger are kept; whole months are dropped."`

	AllowTargets string `env:"HOLDFAST_ALLOW_TARGETS" help:"Loopback, private and similar address ranges that subscriptions may name, as in 127.0.0.0/8,::1/128." placeholder:"CIDR,…"`
	MaxListeners int    `default:"4096" help:"Listeners of the stream at once, within --max-in-flight; one tenant may have three quarters of them."`
}

// minKeep leaves no hold without its history, however long it may be extended.
const minKeep = 32 * 24 * time.Hour

func (c inventoryServe) Run(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	if c.MaxHold < inventory.MinTTL {
		return usage("--max-hold: must be at least %v, not %v", inventory.MinTTL, c.MaxHold)
	}
	if c.Keep < minKeep {
		return usage("--keep: must be at least %v, not %v", minKeep, c.Keep)
	}
	if c.MaxListeners < 1 {
		return usage("--max-listeners: must be at least 1, not %d", c.MaxListeners)
	}
	allow, err := webhook.ParsePrefixes(c.AllowTargets)
	if err != nil {
		return usage("--allow-targets: %w", err)
	}
	schema := inventory.Schema()
	pool, err := c.open(ctx, "holdfast inventory", schema)
	if err != nil {
		return err
	}
	defer pool.Close()
	clock, err := pg.NewClock(ctx, pool)
	if err != nil {
		return err
	}
	ln, err := c.listen()
	if err != nil {
		return err
	}
	if err := inventory.EnsurePartitions(ctx, pool); err != nil {
		return err
	}
	store := inventory.NewStore(pool, clock, inventory.Options{
		MaxHold: c.MaxHold, Keep: c.Keep, Allow: allow, Drain: c.Drain, MaxListeners: c.MaxListeners,
	})
	httpConfig := c.httpConfig(pool, schema)
	face := api.New(store, pool, httpConfig)
	web.Inventory(face, store, httpConfig.Keys)
	return c.serve(ctx, face, ln, func(ctx context.Context) error {
		return store.Run(ctx, slog.Default(), face.Metrics())
	})
}

type inventoryVerify struct {
	// Not a required flag: without it, JSON was asked for all the same.
	DatabaseURL string `env:"DATABASE_URL" help:"PostgreSQL, as postgres://user:password@host:port/database." placeholder:"URL"`
	JSON        bool   `name:"json" help:"Write JSON, whatever happens."`
	Repair      bool   `help:"Make the counters right, and say what was written."`
}

func (c inventoryVerify) Run(ctx context.Context, out output) error {
	pool, err := pg.OpenPool(ctx, c.DatabaseURL, pg.PoolOptions{MaxConns: 2, Name: "holdfast verify"})
	if err == nil {
		defer pool.Close()
		err = pg.CheckMigrated(ctx, pool, inventory.Schema())
	}
	var differences []inventory.Difference
	if err == nil {
		differences, err = inventory.Verify(ctx, pool, c.Repair)
	}
	left := 0
	for _, d := range differences {
		if !d.Repaired {
			left++
		}
	}
	if c.JSON {
		if err := writeVerifyJSON(out, differences, left, err); err != nil {
			return err
		}
	} else {
		for _, d := range differences {
			fmt.Fprintln(out.stdout, d)
		}
		if err == nil && len(differences) == 0 {
			fmt.Fprintln(out.stdout, "every counter agrees with ledger and holds")
		}
	}
	if err != nil {
		return err
	}
	if left > 0 {
		return exitError(1)
	}
	return nil
}

// writeVerifyJSON writes an object whatever happened, so that a script can always read one.
func writeVerifyJSON(out output, differences []inventory.Difference, left int, failed error) error {
	report := struct {
		OK          bool                   `json:"ok"`
		Differences []inventory.Difference `json:"differences"`
		Error       string                 `json:"error,omitempty"`
	}{OK: failed == nil && left == 0, Differences: differences}
	if failed != nil {
		report.Error = failed.Error()
	}
	if report.Differences == nil {
		report.Differences = []inventory.Difference{}
	}
	encoder := json.NewEncoder(out.stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(report)
}
