package pg

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
)

// Schema is one service's place in a database: a schema of its own name and the
// migrations that fill it, in order.
type Schema struct {
	Name    string
	Sources []Source
}

// Source is a numbered set of migrations, in goose's format, at the root of FS. Their
// names are unqualified: search_path is the schema while they run. A source keeps its
// version in a table of its own, so that the kernel's tables and a service's can grow apart.
type Source struct {
	Name string
	FS   fs.FS
}

// Migrations is the source of that name whose files lie in the embedded folder migrations.
func Migrations(name string, files embed.FS) Source {
	sub, err := fs.Sub(files, "migrations")
	if err != nil {
		panic(err) // the folder is embedded
	}
	return Source{Name: name, FS: sub}
}

func (s Source) table() string { return "schema_version_" + s.Name }

// Migrate creates the schema and brings it to what this binary needs. It takes no more
// than ownership of the database, waits for a rival that is migrating, and changes
// nothing when there is nothing to do. The URL must lead to a session, not through a
// transaction pooler.
func Migrate(ctx context.Context, databaseURL string, s Schema) error {
	cfg, err := connConfig(databaseURL, "holdfast migrate")
	if err != nil {
		return err
	}
	guard, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return connectError(cfg, err)
	}
	// Closing the session gives the lock back, whatever became of ctx.
	defer func() {
		closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = guard.Close(closeCtx)
	}()
	if _, err := guard.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", "holdfast.migrate."+s.Name); err != nil {
		return fmt.Errorf("migrate %s: wait for other migrations: %w", s.Name, err)
	}
	if _, err := guard.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+pgx.Identifier{s.Name}.Sanitize()); err != nil {
		return fmt.Errorf("migrate %s: create schema (the role must own the database): %w", s.Name, err)
	}

	within := cfg.Copy()
	within.RuntimeParams["search_path"] = pgx.Identifier{s.Name}.Sanitize()
	db := stdlib.OpenDB(*within)
	defer func() { _ = db.Close() }()
	for _, source := range s.Sources {
		store, err := database.NewStore(database.DialectPostgres, source.table())
		if err != nil {
			return fmt.Errorf("migrate %s: %w", s.Name, err)
		}
		provider, err := goose.NewProvider(goose.DialectCustom, db, source.FS, goose.WithStore(store), goose.WithDisableGlobalRegistry(true))
		if err != nil {
			return fmt.Errorf("migrate %s: read %s: %w", s.Name, source.Name, err)
		}
		if _, err := provider.Up(ctx); err != nil {
			return fmt.Errorf("migrate %s: %w", s.Name, err)
		}
	}
	return nil
}

// ErrNotMigrated means the schema is missing or older than this binary needs.
var ErrNotMigrated = errors.New("database not migrated")

// CheckMigrated fails with [ErrNotMigrated] unless the schema has at least the versions
// that this binary brings. A newer schema is fine: migrations keep the previous binary working.
func CheckMigrated(ctx context.Context, pool *pgxpool.Pool, s Schema) error {
	for _, source := range s.Sources {
		want, err := newest(source)
		if err != nil {
			return err
		}
		table := pgx.Identifier{s.Name, source.table()}.Sanitize()
		var have int64
		err = pool.QueryRow(ctx, "SELECT coalesce(max(version_id), 0) FROM "+table+" WHERE is_applied").Scan(&have)
		if code := Code(err); code == pgerrcode.UndefinedTable || code == pgerrcode.InvalidSchemaName {
			return fmt.Errorf("%w: schema %q has no %s tables; run: holdfast migrate", ErrNotMigrated, s.Name, source.Name)
		}
		if err != nil {
			return fmt.Errorf("check the schema %s: %w", s.Name, err)
		}
		if have < want {
			return fmt.Errorf("%w: schema %q has version %d of %s, this binary needs %d; run: holdfast migrate",
				ErrNotMigrated, s.Name, have, source.Name, want)
		}
	}
	return nil
}

func newest(source Source) (int64, error) {
	files, err := fs.Glob(source.FS, "*.sql")
	if err != nil {
		return 0, err
	}
	var version int64
	for _, file := range files {
		v, err := goose.NumericComponent(file)
		if err != nil {
			return 0, fmt.Errorf("migration %s: %w", file, err)
		}
		version = max(version, v)
	}
	return version, nil
}
