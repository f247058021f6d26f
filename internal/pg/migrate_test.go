package pg_test

import (
	"errors"
	"testing"
	"testing/fstest"

	"holdfast/internal/pg"
	"holdfast/internal/pg/pgtest"
)

func schemaOf(files ...string) pg.Schema {
	source := fstest.MapFS{}
	for i, sql := range files {
		source[[]string{"00001_a.sql", "00002_b.sql"}[i]] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + sql)}
	}
	return pg.Schema{Name: "shop", Sources: []pg.Source{{Name: "stock", FS: source}}}
}

func TestMigrateNeedsOnlyOwnershipAndIsRepeatable(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	one := schemaOf("CREATE TABLE units (n int);")
	two := schemaOf("CREATE TABLE units (n int);", "ALTER TABLE units ADD m int;")
	if err := pg.CheckMigrated(t.Context(), db.Pool, one); !errors.Is(err, pg.ErrNotMigrated) {
		t.Errorf("an empty database: %v, want ErrNotMigrated", err)
	}
	errs := make(chan error)
	for range 4 { // replicas that start together
		go func() { errs <- pg.Migrate(t.Context(), db.URL, one) }()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Errorf("migrate: %v", err)
		}
	}
	if err := pg.CheckMigrated(t.Context(), db.Pool, one); err != nil {
		t.Error(err)
	}
	if err := pg.CheckMigrated(t.Context(), db.Pool, two); !errors.Is(err, pg.ErrNotMigrated) {
		t.Errorf("an old schema: %v, want ErrNotMigrated", err)
	}
	if err := pg.Migrate(t.Context(), db.URL, two); err != nil {
		t.Fatal(err)
	}
	if err := pg.CheckMigrated(t.Context(), db.Pool, one); err != nil {
		t.Errorf("the previous binary on a newer schema: %v", err)
	}
	db.Exec(t, "INSERT INTO shop.units (n, m) VALUES (1, 2)")
}

func TestAFailedMigrationChangesNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	bad := schemaOf("CREATE TABLE units (n int);\nSELECT 1/0;")
	if err := pg.Migrate(t.Context(), db.URL, bad); err == nil {
		t.Fatal("no error")
	}
	var exists bool
	db.Scan(t, "SELECT to_regclass('shop.units') IS NOT NULL", nil, &exists)
	if exists {
		t.Error("half of the migration stands")
	}
}
