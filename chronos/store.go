package chronos

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/chronos/queue"
	"holdfast/internal/idempotency"
	"holdfast/internal/pg"
	"holdfast/webhook"
)

// Store carries out Chronos's commands and answers its questions. Each command is one
// transaction. It is safe for concurrent use, here and in any number of replicas.
type Store struct {
	pool    *pgxpool.Pool
	clock   *pg.Clock
	guard   *webhook.Guard
	metrics *metrics
	due     chan struct{} // holds a value when something may have come due
}

func newStore(pool *pgxpool.Pool, clock *pg.Clock, guard *webhook.Guard, m *metrics) *Store {
	return &Store{pool: pool, clock: clock, guard: guard, metrics: m, due: make(chan struct{}, 1)}
}

// Caller is on whose behalf, and until when, a command is carried out.
type Caller struct {
	Tenant string
	Key    idempotency.Key
	// Deadline is an instant of this process, with a monotonic reading: after it the command is
	// refused with [pg.ErrDeadline], by the database's clock. Zero: none.
	Deadline time.Time
}

// command runs act in a transaction, once per idempotency key, unless the deadline passes first. That
// is judged when act has done everything and holds every lock: nothing but the commit
// comes after it. A commit of unknown fate is repeated only with a key, since only then is
// the earlier attempt found.
func command[T any](ctx context.Context, s *Store, c Caller, act func(pgx.Tx) (T, error)) (answer T, replayed bool, err error) {
	err = queue.InTx(ctx, s.pool, pg.TxOptions{RepeatUnknown: c.Key.Value != ""}, func(tx pgx.Tx) error {
		var err error
		answer, replayed, err = idempotency.Once(ctx, tx, schemaName, c.Key, func() (T, error) {
			answer, err := act(tx)
			if err == nil {
				err = s.clock.InTime(ctx, tx, c.Deadline)
			}
			return answer, err
		})
		return err
	})
	if err == nil {
		s.wake()
	}
	return answer, replayed, err
}

// wake tells this replica's dispatcher to look; others find out by themselves within moments.
func (s *Store) wake() {
	select {
	case s.due <- struct{}{}:
	default:
	}
}

// Now is the database's time, early by at most one round trip.
func (s *Store) Now() time.Time { return s.clock.Now() }

// dbNow asks for the time within a transaction, after its locks have been taken.
func dbNow(ctx context.Context, tx pgx.Tx) (now time.Time, err error) {
	err = tx.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now)
	return now, err
}

// noRows turns "no rows" into what it means here.
func noRows(err, meaning error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return meaning
	}
	return err
}
