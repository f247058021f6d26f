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
	reapEvery  = time.Second // the ledger entry of an expiry comes within 5 s
	clearEvery = time.Minute
)

// Run does what a replica does beside answering, until ctx ends: it gives expired
// reservations back, clears idempotency keys that have had their day, and keeps the clock.
// Every replica runs it.
func (s *Store) Run(ctx context.Context, log *slog.Logger, metrics prometheus.Registerer) error {
	expired := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_inventory_reservations_expired_total", Help: "Reservations whose units this replica's reaper gave back.",
	})
	if err := metrics.Register(expired); err != nil {
		return err
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
		return loop.Run(ctx, loop.Config{Name: "clear idempotency keys", Every: clearEvery, Log: log}, func(ctx context.Context) (bool, error) {
			return idempotency.Clear(ctx, s.pool, schemaName)
		})
	})
	return all.Wait()
}
