package chronos

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"holdfast/chronos/queue"
	"holdfast/internal/elect"
	"holdfast/internal/idempotency"
	"holdfast/internal/loop"
	"holdfast/internal/pg"
	"holdfast/webhook"
)

// The defaults of a replica.
const (
	DefaultLease       = 15 * time.Second
	DefaultDrain       = 30 * time.Second
	DefaultConcurrency = 1024
	DefaultKeep        = 30 * 24 * time.Hour
)

// Config says how a replica works. The zero of each optional field is its default.
type Config struct {
	Pool *pgxpool.Pool
	// SessionURL leads to a session of PostgreSQL, not through a transaction pooler: for the
	// leader's lock and the heartbeat.
	SessionURL string

	Allow       []netip.Prefix        // special address ranges that targets may be in; nil: none
	Lease       time.Duration         // how long a delivery's lease lasts unless renewed; at least 1 s
	Drain       time.Duration         // how long deliveries in flight may take to end
	Concurrency int                   // deliveries at once
	Keep        time.Duration         // how long history is kept
	Log         *slog.Logger          // nil: slog.Default()
	Metrics     prometheus.Registerer // nil: none
}

// Service is one replica of Chronos. Make it with [New] and run it once; the [Store] can be
// used with or without that.
type Service struct {
	cfg    Config
	id     uuid.UUID // of this process start: leases belong to it, not to a host
	store  *Store
	flight *flight
	client *webhook.Client
	log    *slog.Logger
	checks selfChecks
}

// New makes a replica on a migrated database. It asks for the time once, and starts nothing.
func New(ctx context.Context, cfg Config) (*Service, error) {
	if cfg.Lease == 0 {
		cfg.Lease = DefaultLease
	}
	if cfg.Lease < time.Second {
		return nil, errors.New("a lease must last at least 1s")
	}
	if cfg.Drain == 0 {
		cfg.Drain = DefaultDrain
	}
	if cfg.Concurrency == 0 {
		cfg.Concurrency = DefaultConcurrency
	}
	if cfg.Concurrency < 0 || cfg.Keep < 0 || cfg.Drain < 0 {
		return nil, errors.New("concurrency, drain and keep can't be negative")
	}
	if cfg.Keep == 0 {
		cfg.Keep = DefaultKeep
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	clock, err := pg.NewClock(ctx, cfg.Pool)
	if err != nil {
		return nil, err
	}
	guard := webhook.NewGuard(cfg.Allow...)
	id := uuid.New()
	return &Service{
		cfg: cfg, id: id, store: newStore(cfg.Pool, clock, guard, newMetrics(cfg.Metrics)), flight: newFlight(cfg.Lease),
		client: webhook.NewClient(webhook.Options{Guard: guard, UserAgent: "Holdfast-Chronos"}),
		log:    cfg.Log.With("replica", id),
	}, nil
}

// ID is the replica's, new with every process start.
func (s *Service) ID() uuid.UUID { return s.id }

// Store is what the API works with.
func (s *Service) Store() *Store { return s.store }

// Lease is how long a lease lasts unless something else is asked for.
func (s *Service) Lease() time.Duration { return s.cfg.Lease }

// Ready fails unless the database is reachable and migrated.
func (s *Service) Ready(ctx context.Context) error {
	return pg.CheckMigrated(ctx, s.cfg.Pool, Schema())
}

// Run works until ctx ends, then drains: nothing more is leased, deliveries in flight may end
// within cfg.Drain while their leases are renewed, and what is left is given back. A
// database that is away is waited for.
func (s *Service) Run(ctx context.Context) error {
	defer s.client.CloseIdle()
	// What deliveries in flight need goes on until they have ended.
	drained, finish := context.WithCancel(context.WithoutCancel(ctx))
	defer finish()
	var group errgroup.Group
	group.Go(func() error {
		defer finish()
		return s.dispatcher().run(ctx, s.cfg.Drain)
	})
	group.Go(func() error { return s.flight.keep(drained, s.cfg.SessionURL, s.store.bell.beat, s.log) })
	group.Go(func() error { return s.listen(drained) })
	group.Go(func() error { return s.speak(drained) })
	group.Go(func() error { return s.present(drained) })
	group.Go(func() error { return s.watchSchedules(ctx) })
	group.Go(func() error { return s.store.clock.Run(drained) })
	group.Go(func() error { return elect.Lead(ctx, s.election(), s.plan) })
	group.Go(func() error {
		return loop.Run(ctx, loop.Config{Name: "reaper", Every: reapEvery, Log: s.log}, s.reap)
	})
	group.Go(func() error { return newHerald(s.store, s.client, s.log).run(ctx, s.cfg.Drain) })
	for _, l := range []struct {
		name  string
		every time.Duration
		work  func(context.Context) (bool, error)
	}{
		{"late", lateEvery, s.watchLate},
		{"monitors", watchEvery, s.store.WatchMonitors},
		{"alerts", horizonEvery, s.watchAlerts},
		{"alert history", upkeepEvery, s.dropAlerts},
	} {
		group.Go(func() error { return loop.Run(ctx, loop.Config{Name: l.name, Every: l.every, Log: s.log}, l.work) })
	}
	group.Go(func() error {
		return loop.Run(ctx, loop.Config{Name: "history", Every: upkeepEvery, Log: s.log}, s.upkeep)
	})
	group.Go(func() error {
		return loop.Run(ctx, loop.Config{Name: "horizon", Every: horizonEvery, Log: s.log}, s.watchHorizon)
	})
	group.Go(func() error {
		return loop.Run(ctx, loop.Config{Name: "idempotency", Every: upkeepEvery, Log: s.log}, func(ctx context.Context) (bool, error) {
			return false, idempotency.Clear(ctx, s.cfg.Pool, schemaName)
		})
	})
	return group.Wait()
}

// jobShare is the part of a replica's deliveries that one job may have: a receiver that doesn't
// answer must not keep every other job's waiting.
const jobShare = 4

func (s *Service) dispatcher() *dispatcher {
	front := &queue.Front{}
	d := &dispatcher{
		store: s.store, client: s.client, flight: s.flight, worker: s.id.String(), log: s.log,
		slots: make(chan struct{}, s.cfg.Concurrency), perJob: max(1, s.cfg.Concurrency/jobShare),
		front: front,
	}
	d.to = newTargets(s.cfg.Concurrency, front, func() { s.store.bell.ringHere("") }, s.store.metrics.breakers, s.log)
	d.giveBack(s.cfg.Concurrency)
	return d
}

func (s *Service) election() elect.Config {
	return elect.Config{URL: s.cfg.SessionURL, Schema: schemaName, Name: plannerName, Holder: s.id.String(), Log: s.log}
}

func (s *Service) plan(ctx context.Context, term elect.Term) error {
	p := planner{store: s.store, term: term, log: s.log}
	defer s.store.metrics.plannerLag.Set(0)
	return p.run(ctx)
}

const (
	reapEvery = time.Second
	reapBatch = 500
	// upkeepEvery is often enough for partitions that are made a week ahead.
	upkeepEvery = time.Hour
	// horizonEvery is how often the oldest transaction is looked for.
	horizonEvery = 10 * time.Second
	// presentEvery is how often a replica says that it is there.
	presentEvery = 2 * time.Second
)

func (s *Service) reap(ctx context.Context) (more bool, err error) {
	got, err := queue.ReclaimExpiredLeases(ctx, s.cfg.Pool, reapBatch)
	s.store.metrics.reclaimed.Add(float64(got.Total()))
	s.store.metrics.finished.WithLabelValues(string(queue.Failed)).Add(float64(got.Failed))
	if got.Total() > 0 {
		s.log.Warn("reclaimed runs whose leases had ended", "requeued", got.Requeued, "failed", got.Failed)
		s.store.bell.ringAll()
	}
	return got.Total() >= reapBatch, err
}

func (s *Service) upkeep(ctx context.Context) (more bool, err error) {
	if err := queue.EnsurePartitions(ctx, s.cfg.Pool); err != nil {
		return false, err
	}
	_, err = queue.DropPartitions(ctx, s.cfg.Pool, s.cfg.Keep)
	return false, err
}

// watchHorizon measures how far back the oldest transaction reaches: rows that are done with since then can't be cleared
// away, and all that looks for due runs would step over them but for [queue.Front].
func (s *Service) watchHorizon(ctx context.Context) (more bool, err error) {
	var age int64
	err = s.cfg.Pool.QueryRow(ctx, `
		SELECT greatest(
			(SELECT max(age(backend_xmin)) FROM pg_stat_activity WHERE pid <> pg_backend_pid()),
			(SELECT max(age(xmin)) FROM pg_replication_slots),
			(SELECT pg_snapshot_xmax(s)::text::bigint - pg_snapshot_xmin(s)::text::bigint FROM pg_current_snapshot() s), 0)`).Scan(&age)
	if err == nil {
		s.store.metrics.oldestXmin.Set(float64(age))
	}
	return false, err
}

// present keeps the replica's row until ctx ends, then takes it away.
func (s *Service) present(ctx context.Context) error {
	err := loop.Run(ctx, loop.Config{Name: "presence", Every: presentEvery, Log: s.log}, func(ctx context.Context) (bool, error) {
		_, err := s.cfg.Pool.Exec(ctx, `
			WITH gone AS (DELETE FROM chronos.replicas WHERE last_seen < clock_timestamp() - interval '1 hour' AND id <> $1)
			INSERT INTO chronos.replicas (id, in_flight) VALUES ($1, $2)
			ON CONFLICT (id) DO UPDATE SET last_seen = clock_timestamp(), in_flight = excluded.in_flight`, s.id, s.flight.size())
		return false, err
	})
	bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_, _ = s.cfg.Pool.Exec(bye, `DELETE FROM chronos.replicas WHERE id = $1`, s.id) // else it goes out of sight by itself
	return err
}
