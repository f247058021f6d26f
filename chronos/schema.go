package chronos

import (
	"embed"
	"io/fs"

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
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		panic(err) // the folder is embedded above
	}
	return pg.Schema{Name: schemaName, Sources: []pg.Source{
		apikey.Migrations(), elect.Migrations(), idempotency.Migrations(), {Name: schemaName, FS: files},
	}}
}
