package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
	"holdfast/internal/pg"
)

// database is where a command finds its database.
type database struct {
	DatabaseURL string `required:"" env:"DATABASE_URL" help:"PostgreSQL, as postgres://user:password@host:port/database." placeholder:"URL"`
}

// serving is what the replicas of both services are told alike.
type serving struct {
	database
	SessionDatabaseURL string        `env:"SESSION_DATABASE_URL" help:"The same database without a transaction pooler between, for locks that belong to a session. Default: DATABASE_URL." placeholder:"URL"`
	Listen             string        `default:"${listen}" env:"HOLDFAST_LISTEN" help:"Address to serve on."`
	Auth               string        `enum:"on,off" default:"on" env:"HOLDFAST_AUTH" help:"Ask for API keys. Off serves loopback only."`
	Connections        int32         `default:"16" help:"Database connections of the pool."`
	RequestTimeout     time.Duration `default:"10s" help:"A request is carried out within this time or never."`
	MaxInFlight        int           `default:"4096" help:"Requests worked on at once; more are told to come back."`
	RatePerSecond      int           `default:"0" help:"Requests per second of one API key; 0: no limit."`
	Drain              time.Duration `default:"30s" help:"How long what is in flight may take to end after SIGTERM."`
}

// check refuses what would only fail later.
func (s serving) check() error {
	switch {
	case s.Connections < 4:
		return usage("--connections: must be at least 4, not %d", s.Connections)
	case s.RequestTimeout < time.Millisecond:
		return usage("--request-timeout: must be at least 1ms, not %v", s.RequestTimeout)
	case s.MaxInFlight < 1:
		return usage("--max-in-flight: must be at least 1, not %d", s.MaxInFlight)
	case s.RatePerSecond < 0:
		return usage("--rate-per-second: can't be negative")
	case s.Drain < 0:
		return usage("--drain: can't be negative")
	case s.Auth == "off":
		return httpapi.CheckOpen(s.Listen)
	}
	return nil
}

func (s serving) sessionURL() string {
	if s.SessionDatabaseURL != "" {
		return s.SessionDatabaseURL
	}
	return s.DatabaseURL
}

// open reaches the database and checks that it is migrated.
func (s serving) open(ctx context.Context, name string, schema pg.Schema) (*pgxpool.Pool, error) {
	pool, err := pg.OpenPool(ctx, s.DatabaseURL, pg.PoolOptions{MaxConns: s.Connections, Name: name})
	if err != nil {
		return nil, err
	}
	if err := pg.CheckMigrated(ctx, pool, schema); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

func (s serving) httpConfig(pool *pgxpool.Pool, schema pg.Schema) httpapi.Config {
	cfg := httpapi.Config{
		Version: version, RequestTimeout: s.RequestTimeout, MaxInFlight: s.MaxInFlight, RatePerSecond: s.RatePerSecond,
		Log: slog.Default(), Metrics: prometheus.NewRegistry(),
	}
	if s.Auth == "on" {
		cfg.Keys = apikey.NewStore(pool, schema.Name)
	}
	return cfg
}

func (s serving) listen() (net.Listener, error) {
	ln, err := net.Listen("tcp", s.Listen)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	return ln, nil
}

// gcPercent is how far the heap grows between collections, beyond what is live. That is a few tens of
// megabytes at most, and at tens of thousands of requests a second the usual 100 costs a tenth of the
// processor time.
const gcPercent = 400

// serve answers requests and does the background work until ctx ends; both drain then.
func (s serving) serve(ctx context.Context, api *httpapi.API, ln net.Listener, background func(context.Context) error) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	slog.Info("serving", "address", ln.Addr().String(), "auth", s.Auth)
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return api.Serve(ctx, ln, s.Drain) })
	all.Go(func() error { return background(ctx) })
	err := all.Wait()
	if err == nil {
		slog.Info("drained")
	}
	return err
}
