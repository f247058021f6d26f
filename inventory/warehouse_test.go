package inventory_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"holdfast/internal/idempotency"
	"holdfast/internal/pg"
	"holdfast/internal/pg/pgtest"
	"holdfast/inventory"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const tenant = "acme"

// warehouse is a database with two replicas' stores on it, each with a pool of its own.
type warehouse struct {
	*testing.T
	db       *pgtest.DB
	replicas [2]*inventory.Store
}

func newWarehouse(t *testing.T) *warehouse {
	t.Helper()
	w := &warehouse{T: t, db: pgtest.New(t, inventory.Schema())}
	for i := range w.replicas {
		pool, err := pg.OpenPool(t.Context(), w.db.URL, pg.PoolOptions{MaxConns: 8})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		clock, err := pg.NewClock(t.Context(), pool)
		if err != nil {
			t.Fatal(err)
		}
		w.replicas[i] = inventory.NewStore(pool, clock, inventory.Options{})
	}
	t.Cleanup(func() {
		if !t.Failed() {
			w.checkInvariants()
		}
	})
	return w
}

func (w *warehouse) store() *inventory.Store { return w.replicas[0] }

var caller = inventory.Caller{Tenant: tenant, Actor: "test"}

func withKey(key string) inventory.Caller {
	c := caller
	c.Key = idempotency.Key{Tenant: tenant, Path: "/test", Value: key}
	return c
}

// receive makes a SKU with so many units.
func (w *warehouse) receive(sku string, units int64) {
	w.Helper()
	w.put(inventory.Settings{SKU: sku})
	if _, _, err := w.store().Adjust(w.Context(), caller, inventory.Adjustment{SKU: sku, Delta: units, Reason: "delivery"}); err != nil {
		w.Fatal(err)
	}
}

func (w *warehouse) put(s inventory.Settings) {
	w.Helper()
	if _, _, err := w.store().PutSKU(w.Context(), caller, s); err != nil {
		w.Fatal(err)
	}
}

func cart(quantities map[string]int64) inventory.Reserve {
	var cmd inventory.Reserve
	for sku, quantity := range quantities {
		cmd.Lines = append(cmd.Lines, inventory.Line{SKU: sku, Quantity: quantity})
	}
	return cmd
}

func one(sku string, quantity int64) inventory.Reserve { return cart(map[string]int64{sku: quantity}) }

// hold reserves and must succeed.
func (w *warehouse) hold(cmd inventory.Reserve) inventory.Reservation {
	w.Helper()
	r, _, err := w.store().Reserve(w.Context(), caller, cmd)
	if err != nil {
		w.Fatalf("reserve: %v", err)
	}
	return r
}

// expire lets the holds' time run out, without anybody noticing.
func (w *warehouse) expire(reservations ...inventory.Reservation) {
	w.Helper()
	for _, r := range reservations {
		w.db.Exec(w, "UPDATE inventory.reservations SET expires_at = clock_timestamp() - interval '1 s' WHERE id = $1", r.ID)
	}
}

// reap runs the reaper on one replica until nothing is due.
func (w *warehouse) reap(replica int) (reaped int) {
	w.Helper()
	for {
		n, full, err := w.replicas[replica].ReapOnce(w.Context())
		if err != nil {
			w.Fatalf("reap: %v", err)
		}
		if reaped += n; !full {
			return reaped
		}
	}
}

func (w *warehouse) confirm(id uuid.UUID) error {
	_, _, err := w.store().Confirm(w.Context(), caller, inventory.Confirmation{ID: id})
	return err
}

func (w *warehouse) release(id uuid.UUID) error {
	_, _, err := w.store().Release(w.Context(), caller, inventory.Release{ID: id})
	return err
}

func (w *warehouse) sku(sku string) inventory.SKU {
	w.Helper()
	k, err := w.replicas[1].GetSKU(w.Context(), tenant, sku)
	if err != nil {
		w.Fatal(err)
	}
	return k
}

// wantCounts checks a SKU's counters as the other replica reads them.
func (w *warehouse) wantCounts(sku string, onHand, held, sold int64) {
	w.Helper()
	k := w.sku(sku)
	if k.OnHand != onHand || k.Held != held || k.Sold != sold {
		w.Errorf("%s: on hand %d, held %d, sold %d; want %d, %d, %d", sku, k.OnHand, k.Held, k.Sold, onHand, held, sold)
	}
}

// race runs n calls at once, spread over both replicas, and counts those that succeed. Any
// error but the expected ones fails the test.
func (w *warehouse) race(n int, act func(i int, s *inventory.Store) error, expected ...error) (won int) {
	w.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		all.Go(func() {
			<-start
			err := act(i, w.replicas[i%2])
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
				return
			}
			for _, e := range expected {
				if errors.Is(err, e) {
					return
				}
			}
			w.Errorf("call %d: %v", i, err)
		})
	}
	close(start)
	all.Wait()
	return won
}

// checkInvariants verifies I1 to I4 after whatever has happened.
func (w *warehouse) checkInvariants() {
	w.Helper()
	ctx := context.Background()
	differences, err := inventory.Verify(ctx, w.db.Pool, false)
	if err != nil {
		w.Errorf("verify: %v", err)
	}
	for _, d := range differences {
		w.Errorf("verify: %v", d)
	}
	rows, err := w.db.Pool.Query(ctx, `
		SELECT format('%s seq %s: %s/%s after %s/%s %s/%s', sku, seq, on_hand, held, before_on_hand, before_held, delta_on_hand, delta_held)
		  FROM (SELECT sku, seq, l.on_hand, l.held, delta_on_hand, delta_held, coalesce(lag(l.on_hand) OVER w, c.on_hand, 0) AS before_on_hand, coalesce(lag(l.held) OVER w, c.held, 0) AS before_held
		          FROM inventory.ledger l LEFT JOIN (SELECT tenant, sku, location, on_hand, held FROM inventory.ledger_carried) c USING (tenant, sku, location) WINDOW w AS (PARTITION BY tenant, sku, location ORDER BY seq)) l
		 WHERE on_hand <> before_on_hand + delta_on_hand OR held <> before_held + delta_held`)
	if err != nil {
		w.Fatal(err)
	}
	broken, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		w.Error(err)
	}
	for _, b := range broken {
		w.Errorf("the ledger doesn't go on from its last balance: %s", b)
	}
	var twice int
	w.db.Scan(w, `SELECT count(*) FROM (SELECT FROM inventory.ledger WHERE kind IN ('expire', 'release', 'confirm')
		GROUP BY reservation_id, sku, location, kind HAVING count(*) > 1) t`, nil, &twice)
	if twice > 0 {
		w.Errorf("%d holds left held more than once", twice)
	}
	w.checkLines()
}

// awaitLockWait returns once some session of the test's database waits for a lock.
func (w *warehouse) awaitLockWait(sessions int) {
	w.Helper()
	var waiting int
	for deadline := time.Now().Add(20 * time.Second); waiting < sessions; {
		w.db.Scan(w, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`, nil, &waiting)
		if time.Now().After(deadline) {
			w.Fatalf("%d sessions wait for a lock, want %d", waiting, sessions)
		}
	}
}
