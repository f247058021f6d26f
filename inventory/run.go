package inventory

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"holdfast/internal/idempotency"
	"holdfast/internal/loop"
)

const (
	reapEvery = time.Second // the ledger entry of an expiry comes within 5 s
	moveEvery = time.Minute
	// serveEvery is how often lines are looked through; whoever frees units serves them at once.
	serveEvery = time.Second
	dropEvery  = time.Hour
)

// Run does what a replica does beside answering, until ctx ends: it gives expired
// reservations back, drops what has been kept long enough, announces what changes, and keeps the clock.
// Every replica runs it.
func (s *Store) Run(ctx context.Context, log *slog.Logger, metrics prometheus.Registerer) error {
	expired := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_inventory_reservations_expired_total", Help: "Reservations whose units this replica's reaper gave back.",
	})
	for _, c := range []prometheus.Collector{expired, s.offers} {
		if err := metrics.Register(c); err != nil {
			return err
		}
	}
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return s.clock.Run(ctx) })
	all.Go(func() error {
		return loop.Run(ctx, loop.Config{Name: "reaper", Every: reapEvery, Log: log}, func(ctx context.Context) (bool, error) {
			reaped, full, err := s.ReapOnce(ctx)
			expired.Add(float64(reaped))
			return full, err
		})
	})
	all.Go(func() error {
		return loop.Run(ctx, loop.Config{Name: "waiting lists", Every: serveEvery, Log: log}, s.KeepLines)
	})
	all.Go(func() error {
		return loop.Run(ctx, loop.Config{Name: "history", Every: dropEvery, Log: log}, func(ctx context.Context) (bool, error) {
			if err := EnsurePartitions(ctx, s.pool); err != nil {
				return false, err
			}
			if err := idempotency.Clear(ctx, s.pool, schemaName); err != nil {
				return false, err
			}
			dropped, err := DropHistory(ctx, s.pool, s.keep)
			if dropped > 0 {
				log.Info("dropped months of the history", "months", dropped, "keep", s.keep)
			}
			return false, err
		})
	})
	all.Go(func() error {
		return loop.Run(ctx, loop.Config{Name: "move finished reservations", Every: moveEvery, Log: log}, func(ctx context.Context) (bool, error) {
			moved, err := moveFinished(ctx, s.pool, "", nil)
			return moved > 0, err
		})
	})
	all.Go(func() error { return s.announce(ctx, log, metrics) })
	return all.Wait()
}
