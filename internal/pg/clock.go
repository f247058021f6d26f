package pg

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// clockEvery is how often a replica asks the database for the time. Between two
// answers it counts on its monotonic clock, which drifts by microseconds.
const clockEvery = 5 * time.Second

// Clock is a replica's view of the database's clock: the last answer plus what
// the monotonic clock has counted since, so that a replica whose wall clock is
// hours off, or which was frozen for a while, still names the same instant as
// the database. It never runs ahead of the database by more than the drift
// between two answers. Use [NewClock], then Run; it is safe for concurrent use.
type Clock struct {
	pool *pgxpool.Pool

	mu    sync.Mutex
	db    time.Time // the database's answer,
	local time.Time // and when it arrived, with a monotonic reading
}

// NewClock asks the database once, so that the clock is usable from the start.
func NewClock(ctx context.Context, pool *pgxpool.Pool) (*Clock, error) {
	c := &Clock{pool: pool}
	if err := c.ask(ctx); err != nil {
		return nil, fmt.Errorf("read the database's clock: %w", err)
	}
	return c, nil
}

// Run keeps the clock near the database's until ctx ends. An answer that fails
// to come leaves the last one in force.
func (c *Clock) Run(ctx context.Context) error {
	tick := time.NewTicker(clockEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			askCtx, cancel := context.WithTimeout(ctx, clockEvery)
			_ = c.ask(askCtx)
			cancel()
		}
	}
}

func (c *Clock) ask(ctx context.Context) error {
	var db time.Time
	if err := c.pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&db); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.db, c.local = db, time.Now()
	return nil
}

// At translates an instant that this process took with time.Now into the
// database's time, early by at most one round trip.
func (c *Clock) At(local time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.db.Add(local.Sub(c.local))
}

// InTime fails with [ErrDeadline] if the deadline, an instant of this process like [Clock.At]'s, has
// passed by the database's clock. A zero one never does. Where no statement that changes something
// compares the time itself, this is the last of its transaction, with every lock held.
func (c *Clock) InTime(ctx context.Context, tx pgx.Tx, deadline time.Time) error {
	if deadline.IsZero() {
		return nil
	}
	var late bool
	if err := tx.QueryRow(ctx, "SELECT clock_timestamp() >= $1", c.At(deadline)).Scan(&late); err != nil {
		return err
	}
	if late {
		return ErrDeadline
	}
	return nil
}

// Now is the database's time now, early by at most one round trip.
func (c *Clock) Now() time.Time { return c.At(time.Now()) }
