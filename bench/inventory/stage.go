package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"holdfast/bench/machine"
	"holdfast/bench/process"
	"holdfast/internal/pg/cluster"
)

// stage is what everything is measured on: a PostgreSQL and Redis servers of its own, in a folder
// of its own, and the binary of the replicas.
type stage struct {
	dir     string
	cluster *cluster.Cluster
	admin   *pgx.Conn
	binary  string
	redis   map[string]*redis // by appendfsync; empty if none is installed
	facts   machine.Facts
	version versions

	mu        sync.Mutex
	processes map[string][]int // numbers by what they are; with PostgreSQL's, its sessions count too
}

// versions are those of the programs that are compared, and what they were told.
type versions struct {
	PostgreSQL string `json:"postgresql"`
	Settings   string `json:"settings"`
	Redis      string `json:"redis"` // "": none is installed
}

// connections is how many sessions PostgreSQL allows: one for each of the callers, and our pools'.
func connections(callers int) int { return callers + 200 }

// setUp brings everything up, PostgreSQL with some more settings. Close ends it again.
func setUp(ctx context.Context, callers int, settings ...string) (*stage, error) {
	dir, err := os.MkdirTemp("", "holdfast-bench-")
	if err != nil {
		return nil, err
	}
	s := &stage{dir: dir, redis: map[string]*redis{}, processes: map[string][]int{}}
	if err := s.start(ctx, append(settings, fmt.Sprintf("max_connections=%d", connections(callers)))); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *stage) start(ctx context.Context, settings []string) error {
	if err := os.Chmod(s.dir, 0o755); err != nil { // PostgreSQL may run as another user
		return err
	}
	s.facts = machine.Read()
	var err error
	if s.facts.Flush, err = machine.Flush(s.dir); err != nil {
		return err
	}
	if s.binary, err = process.Build(ctx, s.dir); err != nil {
		return err
	}
	s.cluster, err = cluster.Start(ctx, cluster.Config{
		Dir: filepath.Join(s.dir, "postgresql"), Progress: os.Stderr, Settings: settings,
	})
	if err != nil {
		return err
	}
	if s.admin, err = pgx.Connect(ctx, s.cluster.SuperuserURL("postgres")); err != nil {
		return err
	}
	if err := s.readSettings(ctx); err != nil {
		return err
	}
	for _, appendfsync := range []string{"always", "everysec"} {
		r, err := s.startRedis(ctx, appendfsync)
		if errors.Is(err, errNoRedis) {
			fmt.Fprintln(os.Stderr, "no redis-server is installed: its rows are left out")
			return nil
		}
		if err != nil {
			return err
		}
		s.redis[appendfsync] = r
		s.uses("Redis "+appendfsync, r.process.PID())
		s.version.Redis = r.version()
	}
	return nil
}

// readSettings notes what the figures depend on, and refuses to measure a server that doesn't flush.
func (s *stage) readSettings(ctx context.Context) error {
	var backend int
	var durable bool
	err := s.admin.QueryRow(ctx, `
		SELECT current_setting('server_version'), pg_backend_pid(),
		       current_setting('fsync')::bool AND current_setting('synchronous_commit') = 'on' AND current_setting('full_page_writes')::bool,
		       (SELECT string_agg(name || '=' || current_setting(name), ', ' ORDER BY name) FROM pg_settings
		         WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers', 'max_wal_size', 'max_connections', 'wal_sync_method', 'jit'))`).
		Scan(&s.version.PostgreSQL, &backend, &durable, &s.version.Settings)
	if err == nil && !durable {
		err = errors.New("PostgreSQL doesn't flush its commits")
	}
	s.uses("PostgreSQL", machine.Parent(backend))
	return err
}

// close ends what was started and removes the folder.
func (s *stage) close() error {
	var errs []error
	for _, r := range s.redis {
		errs = append(errs, r.process.Stop())
	}
	if s.admin != nil {
		errs = append(errs, s.admin.Close(context.Background()))
	}
	if s.cluster != nil {
		errs = append(errs, s.cluster.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// uses says which processes are meant by a name; none any more if no number is given.
func (s *stage) uses(name string, numbers ...int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.processes[name] = numbers
}

// ownPart names what this process uses: the callers, and whatever they do in process.
const ownPart = "client"

// cpu is the processor time that each part has used up to now.
func (s *stage) cpu() map[string]time.Duration {
	s.mu.Lock()
	parts := maps.Clone(s.processes)
	s.mu.Unlock()
	now := machine.Look()
	used := map[string]time.Duration{ownPart: now[os.Getpid()].Used}
	for name, numbers := range parts {
		used[name] = now.Of(numbers...)
	}
	return used
}

// settle puts everybody in the same position before a turn: nothing that the one before has
// left to be written falls into the next.
func (s *stage) settle(ctx context.Context) error {
	_, err := s.admin.Exec(ctx, "CHECKPOINT")
	return err
}

// database makes a database with a role of its own and returns its URL.
func (s *stage) database(ctx context.Context, name string) (string, error) {
	if err := s.cluster.EnsureDatabase(ctx, name, name, name); err != nil {
		return "", err
	}
	return s.cluster.URL(name, name, name), nil
}

// drop ends a database that is no longer needed.
func (s *stage) drop(ctx context.Context, name string) error {
	_, err := s.admin.Exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
	return err
}
