package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/schollz/progressbar/v3"

	"holdfast/bench/machine"
	"holdfast/bench/process"
	"holdfast/chronos"
	"holdfast/internal/pg"
	"holdfast/internal/pg/cluster"
)

// stage is what everything is measured on: a PostgreSQL of its own, in a folder of its own, the binary of the
// replicas, and what the rivals need.
type stage struct {
	dir      string
	cluster  *cluster.Cluster
	admin    *pgxpool.Pool
	binary   string
	graphile string // folder of graphile-worker; empty: there is none
	facts    machine.Facts
	version  versions
}

// versions are those of the programs that are compared, and what they were told.
type versions struct {
	PostgreSQL string `json:"postgresql"`
	Settings   string `json:"settings"`
	River      string `json:"river"`
	Graphile   string `json:"graphile_worker,omitempty"` // "": it isn't there
	Node       string `json:"node,omitempty"`
	PgCron     string `json:"pg_cron,omitempty"`
}

const riverVersion = "0.51.2"

func setUp(ctx context.Context) (*stage, error) {
	dir, err := os.MkdirTemp("", "holdfast-bench-")
	if err != nil {
		return nil, err
	}
	s := &stage{dir: dir, version: versions{River: riverVersion}}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *stage) start(ctx context.Context) (err error) {
	if err := os.Chmod(s.dir, 0o755); err != nil { // PostgreSQL may run as another user
		return err
	}
	s.facts = machine.Read()
	if s.facts.Flush, err = machine.Flush(s.dir); err != nil {
		return err
	}
	if s.binary, err = process.Build(ctx, s.dir); err != nil {
		return err
	}
	settings := []string{"max_connections=300", "shared_buffers=256MB"}
	if hasPgCron(ctx) {
		settings = append(settings, "shared_preload_libraries=pg_cron", "cron.database_name="+cronDatabase, "cron.use_background_workers=on", "max_worker_processes=64")
	}
	s.cluster, err = cluster.Start(ctx, cluster.Config{Dir: filepath.Join(s.dir, "postgresql"), Progress: os.Stderr, Settings: settings})
	if err != nil {
		return err
	}
	if s.admin, err = pgxpool.New(ctx, s.cluster.SuperuserURL("postgres")); err != nil {
		return err
	}
	var durable bool
	err = s.admin.QueryRow(ctx, `
		SELECT current_setting('server_version'),
		       current_setting('fsync')::bool AND current_setting('synchronous_commit') = 'on' AND current_setting('full_page_writes')::bool,
		       (SELECT string_agg(name || '=' || current_setting(name), ', ' ORDER BY name) FROM pg_settings
		         WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers', 'max_wal_size', 'max_connections', 'wal_sync_method', 'jit'))`).
		Scan(&s.version.PostgreSQL, &durable, &s.version.Settings)
	if err == nil && !durable {
		err = errors.New("PostgreSQL doesn't flush its commits")
	}
	if err != nil {
		return err
	}
	return s.fetchGraphile(ctx)
}

// close ends what was started and removes the folder.
func (s *stage) close() error {
	var errs []error
	if s.admin != nil {
		s.admin.Close()
	}
	if s.cluster != nil {
		errs = append(errs, s.cluster.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// database makes a new database with a role of its own; drop ends it.
func (s *stage) database(ctx context.Context, name string) (url string, drop func() error, err error) {
	drop = func() error {
		_, err := s.admin.Exec(context.WithoutCancel(ctx), "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
		return err
	}
	if err := drop(); err != nil {
		return "", nil, err
	}
	if err := s.cluster.EnsureDatabase(ctx, name, name, name); err != nil {
		return "", nil, err
	}
	return s.cluster.URL(name, name, name), drop, nil
}

// settle has the server write down and tidy up what was prepared, so that it doesn't fall into the turn.
func (s *stage) settle(ctx context.Context, pool *pgxpool.Pool, tables ...string) error {
	for _, table := range tables {
		if _, err := pool.Exec(ctx, "VACUUM (ANALYZE) "+table); err != nil {
			return err
		}
	}
	_, err := s.admin.Exec(ctx, "CHECKPOINT")
	return err
}

// chronosDatabase makes and migrates a database for Chronos.
func (s *stage) chronosDatabase(ctx context.Context, name string, conns int) (url string, pool *pgxpool.Pool, end func() error, err error) {
	url, drop, err := s.database(ctx, name)
	if err != nil {
		return "", nil, nil, err
	}
	if err := pg.Migrate(ctx, url, chronos.Schema()); err != nil {
		return "", nil, nil, err
	}
	pool, err = pg.OpenPool(ctx, url, pg.PoolOptions{MaxConns: int32(conns)})
	if err != nil {
		return "", nil, nil, err
	}
	return url, pool, func() error { pool.Close(); return drop() }, nil
}

// progress shows how far a load is.
func progress(steps int, what string) *progressbar.ProgressBar {
	return progressbar.NewOptions(steps, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetDescription(what), progressbar.OptionSetWidth(30),
		progressbar.OptionShowCount(), progressbar.OptionOnCompletion(func() { fmt.Fprintln(os.Stderr) }))
}
