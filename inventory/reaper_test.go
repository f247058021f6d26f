package inventory_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"holdfast/inventory"
)

// Two transactions that are open at once never get the same reservation.
func TestSelectDueReservationsClaims(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 10)
	want := map[uuid.UUID]bool{}
	for range 5 {
		r := w.hold(one("mug", 1))
		w.expire(r)
		want[r.ID] = true
	}
	w.hold(one("mug", 1)) // not due
	var seen []inventory.Due
	for range 3 {
		tx, err := w.db.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(t.Context()) }()
		due, err := inventory.SelectDueReservations(t.Context(), tx, 2)
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, due...)
	}
	for _, d := range seen {
		if !want[d.ID] {
			t.Errorf("%s was claimed twice, or isn't due", d.ID)
		}
		delete(want, d.ID)
	}
	if len(want) > 0 {
		t.Errorf("%d due reservations were claimed by nobody", len(want))
	}
}

func TestRivalReapersGiveBackOnce(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 1000)
	w.receive("plate", 1000)
	w.db.Exec(t, "ALTER TABLE inventory.reservations SET (autovacuum_enabled = off)")
	for range 250 {
		w.expire(w.hold(cart(map[string]int64{"mug": 1, "plate": 2})))
	}
	reaped := make(chan int, 8)
	w.race(8, func(_ int, s *inventory.Store) error {
		total := 0
		for {
			n, full, err := s.ReapOnce(t.Context())
			total += n
			if err != nil || !full && n == 0 {
				reaped <- total
				return err
			}
		}
	})
	sum := 0
	for range 8 {
		sum += <-reaped
	}
	sum += w.reap(0)
	if sum != 250 {
		t.Errorf("%d given back, want 250", sum)
	}
	w.wantCounts("mug", 1000, 0, 0)
	w.wantCounts("plate", 1000, 0, 0)
}

// Pitfalls 5 and 32: poison rows never stop the reaper, even if they fill its whole batch.
func TestPitfall05PoisonRowsDoNotStopTheReaper(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 10)
	w.receive("plate", 1000)
	const poisoned = 200 // a batch
	for range poisoned {
		w.expire(w.hold(one("plate", 3)))
	}
	// A held counter that is too low refuses to be lowered below zero.
	w.db.Exec(t, "UPDATE inventory.stock SET held = 1 WHERE sku = 'plate'")
	// They don't turn a shortage into something else either, and reads stay sane.
	if k := w.sku("plate"); k.Held != 0 {
		t.Errorf("%d held, want 0", k.Held)
	}
	if _, _, err := w.store().Reserve(t.Context(), caller, one("plate", 1000)); !errors.Is(err, inventory.ErrSoldOut) {
		t.Errorf("a reserve that needs the poisoned units: %v, want ErrSoldOut", err)
	}
	w.db.Exec(t, "UPDATE inventory.reservations SET reap_after = '-infinity'")
	w.expire(w.hold(one("mug", 1)))
	if n := w.reap(0); n != 1 {
		t.Errorf("%d given back, want the good one", n)
	}
	// Repaired, the others are given back too.
	if _, err := inventory.Verify(t.Context(), w.db.Pool, true); err != nil {
		t.Fatal(err)
	}
	w.db.Exec(t, "UPDATE inventory.reservations SET reap_after = '-infinity'")
	if n := w.reap(1); n != poisoned {
		t.Errorf("%d given back after the repair, want %d", n, poisoned)
	}
	w.wantCounts("plate", 1000, 0, 0)
}
