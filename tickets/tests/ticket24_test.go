package tests

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/internal/pg"
	"holdfast/inventory"
)

// A reservation that one open transaction has selected can't be selected by another that runs
// the same query: driven from two transactions in one goroutine, with the first left
// open, since SKIP LOCKED never waits.
//
// These tests share one database and claim whatever is due in it, so they run one after another.
func TestTicket24(t *testing.T) {
	pool := database(t, inventory.Schema())
	due := dueReservations(t, pool, 6)

	first, second := begin(t, pool), begin(t, pool)
	mine := selectDue(t, first, due)
	if len(mine) != len(due) {
		t.Errorf("the first transaction selected %d of %d due reservations", len(mine), len(due))
	}
	if theirs := selectDue(t, second, due); len(theirs) != 0 {
		t.Errorf("the second transaction selected %d reservations that the first has: each would be given back twice", len(theirs))
	}

	// Rolled back, the claim is gone and the rows are free again, all of them.
	if err := first.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if theirs := selectDue(t, second, due); len(theirs) != len(due) {
		t.Errorf("after a rollback, %d of %d due reservations can be selected", len(theirs), len(due))
	}
}

// Two claims that are limited share the work: no row goes to both, none is lost.
func TestTicket24Shares(t *testing.T) {
	pool := database(t, inventory.Schema())
	due := dueReservations(t, pool, 6)
	var everything int // a shared database may hold more that is due, and older
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM inventory.reservations WHERE status = 'held' AND expires_at <= clock_timestamp()").Scan(&everything); err != nil {
		t.Fatal(err)
	}
	seen := map[uuid.UUID]int{}
	for range 3 {
		claimed, err := inventory.SelectDueReservations(t.Context(), begin(t, pool), everything/3+1)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range claimed {
			seen[d.ID]++
		}
	}
	for id := range due {
		if seen[id] != 1 {
			t.Errorf("reservation %s was claimed %d times over all transactions, want once", id, seen[id])
		}
	}
}

func begin(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	// A query that waits for a rival's rows, instead of skipping them, fails instead of hanging.
	if _, err := tx.Exec(t.Context(), "SET LOCAL lock_timeout = '2s'"); err != nil {
		t.Fatal(err)
	}
	return tx
}

// selectDue runs the production query and keeps what is this test's own: a shared database may
// hold other due reservations.
func selectDue(t *testing.T, tx pgx.Tx, own map[uuid.UUID]bool) (ids []uuid.UUID) {
	t.Helper()
	claimed, err := inventory.SelectDueReservations(t.Context(), tx, 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range claimed {
		if own[d.ID] {
			ids = append(ids, d.ID)
		}
	}
	return ids
}

// dueReservations makes expired holds through the production path, for a tenant of the test's own.
func dueReservations(t *testing.T, pool *pgxpool.Pool, n int) map[uuid.UUID]bool {
	t.Helper()
	ctx := t.Context()
	clock, err := pg.NewClock(ctx, pool)
	if err != nil {
		t.Fatal(err)
	}
	store := inventory.NewStore(pool, clock, inventory.Options{})
	caller := inventory.Caller{Tenant: "ticket24-" + uuid.NewString(), Actor: "ticket24"}
	t.Cleanup(func() {
		for _, table := range []string{"reservations", "reservation_history", "ledger", "stock", "skus"} {
			if _, err := pool.Exec(context.Background(), "DELETE FROM inventory."+table+" WHERE tenant = $1", caller.Tenant); err != nil {
				t.Errorf("clean up: %v", err)
			}
		}
	})
	if err := store.Seed(ctx, caller, "UNIT", "", int64(n)); err != nil {
		t.Fatal(err)
	}
	due := map[uuid.UUID]bool{}
	for range n {
		r, _, err := store.Reserve(ctx, caller, inventory.Reserve{Lines: []inventory.Line{{SKU: "UNIT", Quantity: 1}}})
		if err != nil {
			t.Fatal(err)
		}
		due[r.ID] = true
	}
	// By hand, since waiting for a ttl would be a wait.
	if _, err := pool.Exec(ctx, "UPDATE inventory.reservations SET expires_at = clock_timestamp() - interval '1 s' WHERE tenant = $1", caller.Tenant); err != nil {
		t.Fatal(err)
	}
	return due
}

// The reaper itself goes by that query: with a rival's claim open it gives nothing of it back,
// and afterwards everything once.
func TestTicket24ReapOnce(t *testing.T) {
	pool := database(t, inventory.Schema())
	due := dueReservations(t, pool, 3)
	rival := begin(t, pool)
	if got := selectDue(t, rival, due); len(got) != 3 {
		t.Fatalf("the rival claimed %d", len(got))
	}
	clock, err := pg.NewClock(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	store := inventory.NewStore(pool, clock, inventory.Options{})
	reap := func() {
		t.Helper()
		for full := true; full; {
			if _, full, err = store.ReapOnce(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	expired := func() (n int) {
		t.Helper()
		for id := range due {
			var gone bool
			if err := pool.QueryRow(t.Context(), "SELECT status = 'expired' FROM inventory.reservation_history WHERE id = $1", id).Scan(&gone); err != nil && !errors.Is(err, pgx.ErrNoRows) {
				t.Fatal(err)
			}
			if gone {
				n++
			}
		}
		return n
	}
	reap()
	if n := expired(); n != 0 {
		t.Errorf("%d reservations were given back although a rival had them", n)
	}
	if err := rival.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	reap()
	if n := expired(); n != 3 {
		t.Errorf("%d of 3 were given back", n)
	}
	var held int64
	err = pool.QueryRow(t.Context(), `SELECT held FROM inventory.stock WHERE tenant = (SELECT tenant FROM inventory.reservation_history WHERE id = $1)`,
		anyOf(due)).Scan(&held)
	if err != nil || held != 0 {
		t.Errorf("held is %d, %v; want 0", held, err)
	}
}

func anyOf(ids map[uuid.UUID]bool) (one uuid.UUID) {
	for one = range ids {
		break
	}
	return one
}
