package main

import (
	"context"
	"fmt"

	"holdfast/chronos"
	"holdfast/internal/pg"
	"holdfast/inventory"
)

// schemas are the services that a database can be made ready for.
var schemas = map[string]func() pg.Schema{"inventory": inventory.Schema, "chronos": chronos.Schema}

type migrateCmd struct {
	database
	Service []string `enum:"inventory,chronos" default:"inventory,chronos" help:"For which services."`
}

func (c migrateCmd) Run(ctx context.Context, out output) error {
	for _, service := range c.Service {
		if err := pg.Migrate(ctx, c.DatabaseURL, schemas[service]()); err != nil {
			return err
		}
		fmt.Fprintf(out.stdout, "%s: migrated\n", service)
	}
	return nil
}
