package pg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// dialer notices a peer that vanished without a FIN after about ten seconds.
var dialer = &net.Dialer{
	Timeout: 5 * time.Second,
	KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 4 * time.Second, Interval: 2 * time.Second, Count: 3,
	},
}

// PoolOptions say how to open a pool. The zero of each field is its default.
type PoolOptions struct {
	MaxConns int32  // 0: what the URL says, else 16
	Name     string // application_name, seen in pg_stat_activity; "": holdfast
}

// OpenPool opens a pool on a PostgreSQL URL and reaches the database once, so that a
// wrong URL is told at the start. Errors never show the password. Through a transaction
// pooler, the URL says default_query_exec_mode=cache_describe.
func OpenPool(ctx context.Context, databaseURL string, o PoolOptions) (*pgxpool.Pool, error) {
	if err := checkURL(databaseURL); err != nil {
		return nil, err
	}
	cfg, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err) // pgx redacts the password
	}
	switch {
	case o.MaxConns > 0:
		cfg.MaxConns = o.MaxConns
	case !hasParam(databaseURL, "pool_max_conns"):
		cfg.MaxConns = 16
	}
	setUp(cfg.ConnConfig, o.Name)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	pingCtx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := pool.Ping(pingCtx); err != nil {
		pool.Close()
		return nil, connectError(cfg.ConnConfig, err)
	}
	return pool, nil
}

// Connect opens one connection of its own, for session state such as advisory locks
// and LISTEN, with the same keepalives as a pool's. The caller closes it.
func Connect(ctx context.Context, databaseURL, name string) (*pgx.Conn, error) {
	cfg, err := connConfig(databaseURL, name)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, connectError(cfg, err)
	}
	return conn, nil
}

func connConfig(databaseURL, name string) (*pgx.ConnConfig, error) {
	if err := checkURL(databaseURL); err != nil {
		return nil, err
	}
	// ParseConfig of the pool also takes the pool_… parameters, which pgx alone
	// would send to the server.
	poolCfg, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	setUp(poolCfg.ConnConfig, name)
	return poolCfg.ConnConfig, nil
}

func setUp(cfg *pgx.ConnConfig, name string) {
	if name == "" {
		name = "holdfast"
	}
	cfg.DialFunc = dialer.DialContext
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = 5 * time.Second
	}
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = name
	}
}

func checkURL(databaseURL string) error {
	if databaseURL == "" {
		return errors.New("database URL is empty: set DATABASE_URL, e.g. postgres://user:password@127.0.0.1:5432/database")
	}
	u, err := url.Parse(databaseURL)
	if err != nil {
		// url.Error quotes its input, which holds the password.
		var parse *url.Error
		if errors.As(err, &parse) {
			err = parse.Err
		}
		return fmt.Errorf("database URL can't be parsed: %w", err)
	}
	if u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return fmt.Errorf("database URL must begin with postgres:// or postgresql://, not %q", u.Scheme)
	}
	return nil
}

func hasParam(databaseURL, name string) bool {
	u, err := url.Parse(databaseURL)
	return err == nil && u.Query().Has(name)
}

// connectError says where the database was looked for and what went wrong, shortly.
func connectError(cfg *pgx.ConnConfig, err error) error {
	where := fmt.Sprintf("%s:%d, database %q, user %q", cfg.Host, cfg.Port, cfg.Database, cfg.User)
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return fmt.Errorf("can't use the database at %s: %w", where, pgErr)
	}
	// pgx lists every try of every address over several lines; the first says enough.
	var tries interface{ Unwrap() []error }
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(inner) {
		if errors.As(inner, &tries) && len(tries.Unwrap()) > 0 {
			err = tries.Unwrap()[0]
			break
		}
	}
	return fmt.Errorf("can't reach the database at %s: %w", where, err)
}
