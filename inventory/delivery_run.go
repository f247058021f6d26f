package inventory

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"holdfast/internal/loop"
)

const (
	// makeEvery is how often a replica looks whether there are deliveries to be made.
	makeEvery = 200 * time.Millisecond
	// boundEvery is how often deliveries are given up, and what waits is bounded.
	boundEvery = 10 * time.Second
)

// announce runs what carries changes out of the service, until ctx ends: deliveries and the stream.
func (s *Store) announce(ctx context.Context, log *slog.Logger, metrics prometheus.Registerer) error {
	made := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_inventory_deliveries_made_total", Help: "Deliveries that this replica has made of events.",
	})
	for _, m := range []prometheus.Collector{made, s.attempted, newListenersGauge(s.stream)} {
		if err := metrics.Register(m); err != nil {
			return err
		}
	}
	defer s.client.CloseIdle()
	courier := newCourier(s, log)
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return courier.run(ctx, s.drain) })
	all.Go(func() error { return (&caster{store: s, stream: s.stream, log: log}).run(ctx) })
	all.Go(func() error {
		return loop.Run(ctx, loop.Config{Name: "make deliveries", Every: makeEvery, Log: log}, func(ctx context.Context) (bool, error) {
			n, more, err := s.MakeDeliveries(ctx)
			if n > 0 {
				made.Add(float64(n))
				courier.ring()
			}
			return more, err
		})
	})
	all.Go(func() error {
		return loop.Run(ctx, loop.Config{Name: "bound deliveries", Every: boundEvery, Log: log}, func(ctx context.Context) (bool, error) {
			if err := s.boundDeliveries(ctx, maxWaiting); err != nil {
				return false, err
			}
			gone, err := s.GiveUpDeliveries(ctx)
			return gone > 0, err
		})
	})
	all.Go(func() error {
		return loop.Run(ctx, loop.Config{Name: "delivery history", Every: dropEvery, Log: log}, func(ctx context.Context) (bool, error) {
			_, err := deliveryHistory.Drop(ctx, s.pool, deliveryKeep)
			return false, err
		})
	})
	return all.Wait()
}
