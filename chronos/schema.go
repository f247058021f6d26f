package chronos

import (
	"embed"

	"holdfast/internal/apikey"
	"holdfast/internal/elect"
	"holdfast/internal/idempotency"
	"holdfast/internal/pg"
)

//go:embed migrations/*.sql
var migrations embed.FS

const schemaName = "chronos"

// Schema is the service's place in a database.
func Schema() pg.Schema {
	return pg.Schema{Name: schemaName, Sources: []pg.Source{
		apikey.Migrations(), elect.Migrations(), idempotency.Migrations(), pg.Migrations(schemaName, migrations),
	}}
}
