package chronos

import (
	"context"
	"errors"
	"sync"
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
	bell    *bell
	fronts  fronts

	finisher *finisher // of deliveries and of what workers report
}

func newStore(pool *pgxpool.Pool, clock *pg.Clock, guard *webhook.Guard, m *metrics) *Store {
	s := &Store{pool: pool, clock: clock, guard: guard, metrics: m, bell: newBell()}
	s.finisher = &finisher{store: s}
	return s
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
	return answer, replayed, err
}

// maxFronts bounds the queues whose fronts are remembered.
const maxFronts = 1000

// fronts are those of the queues that are pulled from. The zero value is ready, and safe for concurrent use.
type fronts struct {
	mu sync.Mutex
	of map[string]*queue.Front
}

func (f *fronts) front(name string) *queue.Front {
	f.mu.Lock()
	defer f.mu.Unlock()
	front, ok := f.of[name]
	if !ok {
		if f.of == nil || len(f.of) >= maxFronts {
			f.of = map[string]*queue.Front{}
		}
		front = &queue.Front{}
		f.of[name] = front
	}
	return front
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
