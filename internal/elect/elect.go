// Package elect lets one of many replicas lead, on an advisory lock of PostgreSQL.
//
// The lock belongs to a session, so it lives on a connection of its own, outside any pool
// and any transaction pooler. Leadership is a term: a context that ends as soon as that
// session can no longer be trusted, and an epoch, raised in the leaderships table by every win.
//
// The lock alone can't tell a leader that is frozen from one that works: the session of a
// stopped process stays open. So the leader renews its row every second, and a challenger
// that finds the row stale for [Stale] ends that session and takes over. What the
// frozen one writes after it wakes is refused by [Term.Fence], which its
// transactions call first.
//
// Leading is an optimisation: it keeps replicas from doing the same work at the
// same time. Correctness must rest on constraints and row locks, and survive two leaders.
package elect

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"holdfast/internal/pg"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrations makes the leaderships table; a service that elects a leader lists it in its schema.
func Migrations() pg.Source { return pg.Migrations("elect", migrations) }

// Stale is how long a leader's row may go without a renewal before a challenger ends
// its session, by the database's clock.
const Stale = 10 * time.Second

const (
	challengeEvery = 500 * time.Millisecond
	renewEvery     = time.Second
	// answerTimeout bounds every statement on the lock's connection: a silent one ends the term.
	answerTimeout = 3 * time.Second
)

// ErrDeposed means that a later leader has won: nothing of this term may be written any more.
var ErrDeposed = errors.New("no longer the leader")

// Config says what to lead.
type Config struct {
	URL    string // a session of PostgreSQL, not a transaction pooler
	Schema string // where the leaderships table is
	Name   string // what is led, e.g. "planner"
	Holder string // who this is, for people to read
	Log    *slog.Logger
}

func (c Config) table() string { return pgx.Identifier{c.Schema, "leaderships"}.Sanitize() }

func (c Config) lockName() string { return "holdfast.lead." + c.Schema + "." + c.Name }

// Term is one spell of leadership.
type Term struct {
	Epoch int64
	table string
	name  string
}

// Fence holds off the next leader until tx ends, but not this one's renewals, and fails with
// [ErrDeposed] if there is one already. Every transaction that writes as the leader calls it first.
func (t Term) Fence(ctx context.Context, tx pgx.Tx) error {
	var one int
	err := tx.QueryRow(ctx, "SELECT 1 FROM "+t.table+" WHERE name = $1 AND epoch = $2 FOR KEY SHARE", t.name, t.Epoch).Scan(&one)
	if errors.Is(err, pgx.ErrNoRows) {
		return ErrDeposed
	}
	return err
}

// Lead campaigns until ctx ends, and runs work for each term that it wins. The context
// given to work ends with the term; the session is closed, and another may win, only after
// work has returned. An error of work ends the term, is logged, and campaigning goes on.
func Lead(ctx context.Context, cfg Config, work func(context.Context, Term) error) error {
	for ctx.Err() == nil {
		err := campaign(ctx, cfg, work)
		if ctx.Err() == nil {
			cfg.Log.Warn("not leading", "what", cfg.Name, "error", err)
			pause(ctx, challengeEvery)
		}
	}
	return nil
}

// campaign connects, waits until it wins, leads for one term, and gives the lock back by
// closing the session.
func campaign(ctx context.Context, cfg Config, work func(context.Context, Term) error) error {
	conn, err := pg.Connect(ctx, cfg.URL, "holdfast elect "+cfg.Name)
	if err != nil {
		return err
	}
	defer func() {
		closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
		defer cancel()
		_ = conn.Close(closeCtx)
	}()
	for {
		term, won, err := challenge(ctx, conn, cfg)
		if err != nil {
			return err
		}
		if won {
			cfg.Log.Info("leading", "what", cfg.Name, "epoch", term.Epoch)
			return lead(ctx, conn, cfg, term, work)
		}
		if !pause(ctx, challengeEvery) {
			return ctx.Err()
		}
	}
}

// challenge tries the lock once and raises the epoch in the same statement, so that a
// winner that freezes right after it is on record as the holder. If it loses against a
// holder gone stale, it ends that session; the next try finds the lock free.
func challenge(ctx context.Context, conn *pgx.Conn, cfg Config) (Term, bool, error) {
	// The wait for the row is for transactions of the last term that are under way.
	ctx, cancel := context.WithTimeout(ctx, Stale)
	defer cancel()
	term := Term{table: cfg.table(), name: cfg.Name}
	err := conn.QueryRow(ctx, `
		WITH lock AS MATERIALIZED (SELECT pg_try_advisory_lock(hashtextextended($1, 0)) AS won)
		INSERT INTO `+cfg.table()+` AS l (name, epoch, holder, backend_pid, renewed_at)
		SELECT $2, 1, $3, pg_backend_pid(), clock_timestamp() FROM lock WHERE won
		ON CONFLICT (name) DO UPDATE
		   SET epoch = l.epoch + 1, holder = excluded.holder, backend_pid = excluded.backend_pid, renewed_at = clock_timestamp()
		RETURNING epoch`, cfg.lockName(), cfg.Name, cfg.Holder).Scan(&term.Epoch)
	if err == nil {
		return term, true, nil
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return Term{}, false, err
	}
	var ended int
	err = conn.QueryRow(ctx, `
		SELECT count(pg_terminate_backend(held.pid))
		  FROM pg_locks held
		  JOIN `+cfg.table()+` l ON l.name = $2 AND l.backend_pid = held.pid
		 WHERE held.locktype = 'advisory' AND held.granted AND held.objsubid = 1
		   AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		   AND (held.classid::bigint << 32 | held.objid::bigint) = hashtextextended($1, 0)
		   AND l.renewed_at < clock_timestamp() - make_interval(secs => $3)`,
		cfg.lockName(), cfg.Name, Stale.Seconds()).Scan(&ended)
	if err != nil {
		return Term{}, false, err
	}
	if ended > 0 {
		cfg.Log.Warn("ended the session of a leader that no longer renews", "what", cfg.Name)
	}
	return Term{}, false, nil
}

func lead(ctx context.Context, conn *pgx.Conn, cfg Config, term Term, work func(context.Context, Term) error) error {
	termCtx, end := context.WithCancelCause(ctx)
	defer end(nil)
	done := make(chan error, 1)
	go func() { done <- work(termCtx, term) }()
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if err == nil && ctx.Err() == nil {
				err = errors.New("the leader's work ended by itself")
			}
			return err
		case <-ctx.Done():
			return <-done
		case <-tick.C:
			if err := renew(ctx, conn, cfg, term); err != nil && ctx.Err() == nil {
				end(fmt.Errorf("%w: %w", ErrDeposed, err))
				workErr := <-done
				return errors.Join(fmt.Errorf("the term of epoch %d ended: %w", term.Epoch, err), workErr)
			}
		}
	}
}

// renew proves that the session still lives and still leads.
func renew(ctx context.Context, conn *pgx.Conn, cfg Config, term Term) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	tag, err := conn.Exec(ctx, `
		UPDATE `+cfg.table()+` SET renewed_at = clock_timestamp()
		 WHERE name = $1 AND epoch = $2 AND backend_pid = pg_backend_pid()`, cfg.Name, term.Epoch)
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		return ErrDeposed
	}
	return nil
}

// pause waits about d, spread so that challengers don't march in step; false when ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d*3/4 + rand.N(d/2)):
		return true
	}
}
