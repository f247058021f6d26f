// Package tests holds the acceptance tests of the tickets that the project began from.
//
// They run against TEST_DATABASE_URL, with a role that owns its one database and nothing
// else, or, without the variable, on a private cluster. A database that can't be reached
// is a failure. They migrate what they need, and remove the rows that they put in.
package tests

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/internal/pg"
	"holdfast/internal/pg/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func database(t *testing.T, schema pg.Schema) *pgxpool.Pool {
	t.Helper()
	databaseURL := os.Getenv("TEST_DATABASE_URL")
	if databaseURL == "" {
		return pgtest.New(t, schema).Pool
	}
	if err := pg.Migrate(t.Context(), databaseURL, schema); err != nil {
		t.Fatalf("TEST_DATABASE_URL: %v", err)
	}
	pool, err := pg.OpenPool(t.Context(), databaseURL, pg.PoolOptions{Name: "holdfast tickets"})
	if err != nil {
		t.Fatalf("TEST_DATABASE_URL: %v", err)
	}
	t.Cleanup(pool.Close)
	return pool
}
