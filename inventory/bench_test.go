package inventory_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"holdfast/internal/pg"
	"holdfast/internal/pg/cluster"
	"holdfast/inventory"
)

// BenchmarkReserveHot holds one unit after the other of a single SKU, in process, on a PostgreSQL that
// flushes every commit, with as many callers at once as the name says.
func BenchmarkReserveHot(b *testing.B) {
	c, err := cluster.Start(b.Context(), cluster.Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Stop() }()
	if err := c.EnsureDatabase(b.Context(), "inventory", "inventory", "inventory"); err != nil {
		b.Fatal(err)
	}
	databaseURL := c.URL("inventory", "inventory", "inventory")
	if err := pg.Migrate(b.Context(), databaseURL, inventory.Schema()); err != nil {
		b.Fatal(err)
	}
	pool, err := pg.OpenPool(b.Context(), databaseURL, pg.PoolOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	clock, err := pg.NewClock(b.Context(), pool)
	if err != nil {
		b.Fatal(err)
	}
	store := inventory.NewStore(pool, clock, inventory.Options{})
	if err := store.Seed(b.Context(), caller, "hot", "", inventory.MaxUnits); err != nil {
		b.Fatal(err)
	}
	for _, callers := range []int{1, 64, 512} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			var left atomic.Int64
			left.Store(int64(b.N))
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					for left.Add(-1) >= 0 {
						if _, _, err := store.Reserve(b.Context(), caller, one("hot", 1)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "reserves/s")
		})
	}
}
