package inventory

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"holdfast/internal/idempotency"
	"holdfast/internal/pg"
	"holdfast/webhook"
)

// DefaultMaxHold is how long a hold may be extended to, from its creation, unless it began longer.
const DefaultMaxHold = time.Hour

// Store carries out inventory's commands and answers its questions. It is safe for
// concurrent use, here and in any number of replicas.
type Store struct {
	pool    *pgxpool.Pool
	clock   *pg.Clock
	maxHold time.Duration
	keep    time.Duration
	// slots has room for the commands that may use connections at once. They may all wait
	// for one hot row; the rest of the pool is for reads, the reaper and readiness.
	slots  chan struct{}
	lanes  [laneCount]lane
	offers prometheus.Counter
	// For what goes out, see subscription.go and stream.go.
	guard     *webhook.Guard
	client    *webhook.Client
	drain     time.Duration
	attempted *prometheus.CounterVec // deliveries, by outcome
	stream    *stream
}

// Options say how a store works. The zero of each field is its default.
type Options struct {
	MaxHold time.Duration // how long a hold may be extended to, from its creation; 0: [DefaultMaxHold]
	Keep    time.Duration // how long what is over is kept; 0: [DefaultKeep]

	Allow        []netip.Prefix // special address ranges that subscriptions may name; nil: none
	Drain        time.Duration  // how long attempts under way may take when Run ends; 0: 10 s
	MaxListeners int            // of the stream; 0: [DefaultMaxListeners]
}

// NewStore makes a Store on a migrated database. The clock must be kept by its Run.
func NewStore(pool *pgxpool.Pool, clock *pg.Clock, o Options) *Store {
	guard := webhook.NewGuard(o.Allow...)
	return &Store{
		guard: guard, client: webhook.NewClient(webhook.Options{Guard: guard, UserAgent: "Holdfast-Inventory"}),
		drain: cmp.Or(o.Drain, deliverTimeout), stream: newStream(cmp.Or(o.MaxListeners, DefaultMaxListeners)),
		attempted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_inventory_delivery_attempts_total", Help: "Attempts of this replica to deliver events, by outcome.",
		}, []string{"outcome"}),
		pool: pool, clock: clock, maxHold: cmp.Or(o.MaxHold, DefaultMaxHold), keep: cmp.Or(o.Keep, DefaultKeep),
		slots: make(chan struct{}, max(1, pool.Config().MaxConns*3/4)),
		offers: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_inventory_waitlist_offers_total", Help: "Holds that this replica made for places in waiting lists.",
		}),
	}
}

// Now is the database's time, early by at most one round trip.
func (s *Store) Now() time.Time { return s.clock.Now() }

// Caller is on whose behalf, and until when, a command is carried out.
type Caller struct {
	Tenant string
	Actor  string // for the ledger
	Key    idempotency.Key
	// Deadline is an instant of this process, with a monotonic reading: after it the command
	// is refused with [pg.ErrDeadline], by the database's clock in the statement that acts. Zero: none.
	Deadline time.Time
}

// deadline is the caller's, as the database's clock counts; nil if there is none.
func (s *Store) deadline(c Caller) *time.Time {
	if c.Deadline.IsZero() {
		return nil
	}
	at := s.clock.At(c.Deadline)
	return &at
}

// maxReapFirst bounds how often a command begins anew because expired holds stood in its way.
const maxReapFirst = 10

// command runs act in a transaction, once per idempotency key. A commit of unknown fate is
// repeated only with a key, since only then is the earlier attempt found. Where act needs
// expired holds given back on their own first, that is done and act runs again.
func command[T any](ctx context.Context, s *Store, c Caller, act func(pgx.Tx) (T, error)) (answer T, replayed bool, err error) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return answer, false, ctx.Err()
	}
	for attempt := 1; ; attempt++ {
		err = pg.InTx(ctx, s.pool, pg.TxOptions{RepeatUnknown: c.Key.Value != ""}, func(tx pgx.Tx) error {
			var err error
			answer, replayed, err = idempotency.Once(ctx, tx, schemaName, c.Key, func() (T, error) { return act(tx) })
			return err
		})
		var first *reapFirstError
		if !errors.As(err, &first) || attempt == maxReapFirst {
			return answer, replayed, err
		}
		if _, err := s.reapEach(ctx, first.due); err != nil {
			return answer, false, err
		}
	}
}

// refusedInTime says why a statement with a deadline changed nothing: the deadline has
// passed, or a rival was faster and the transaction is to run again.
func (s *Store) refusedInTime(ctx context.Context, tx pgx.Tx, c Caller) error {
	if err := s.clock.InTime(ctx, tx, c.Deadline); err != nil {
		return err
	}
	return pg.ErrRepeat
}
