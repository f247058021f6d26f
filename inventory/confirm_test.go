package inventory_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"holdfast/inventory"
)

// Pitfall 13: a repeated payment webhook confirms once, in parallel too.
func TestPitfall13ConfirmRepeatedSellsOnce(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 5)
	r := w.hold(one("mug", 2))
	won := w.race(10, func(_ int, s *inventory.Store) error {
		got, _, err := s.Confirm(t.Context(), caller, inventory.Confirmation{ID: r.ID})
		if err == nil && (got.Status != inventory.Confirmed || *got.Lines[0].Confirmed != 2) {
			t.Errorf("answer is %+v", got)
		}
		return err
	})
	if won != 10 {
		t.Errorf("%d of 10 repetitions were answered", won)
	}
	w.wantCounts("mug", 3, 0, 2)
	if err := w.release(r.ID); !errors.Is(err, inventory.ErrConfirmed) {
		t.Errorf("release after confirm: %v", err)
	}
}

// Pitfalls 4 and 5: a release counts once and is no error when repeated.
func TestPitfall04ReleaseRepeatedFreesOnce(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 5)
	r := w.hold(one("mug", 2))
	if won := w.race(10, func(_ int, s *inventory.Store) error {
		_, _, err := s.Release(t.Context(), caller, inventory.Release{ID: r.ID})
		return err
	}); won != 10 {
		t.Errorf("%d of 10 repetitions succeeded", won)
	}
	w.wantCounts("mug", 5, 0, 0)
	if err := w.confirm(r.ID); !errors.Is(err, inventory.ErrReleased) {
		t.Errorf("confirm after release: %v", err)
	}
	expired := w.hold(one("mug", 1))
	w.expire(expired)
	if got, _, err := w.store().Release(t.Context(), caller, inventory.Release{ID: expired.ID}); err != nil || got.Status != inventory.Expired {
		t.Errorf("release after expiry: %q, %v", got.Status, err)
	}
}

// One of confirm and release wins, and the loser is told which.
func TestConfirmAgainstRelease(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 20)
	for range 20 {
		r := w.hold(one("mug", 1))
		won := w.race(2, func(i int, s *inventory.Store) error {
			if i == 0 {
				_, _, err := s.Confirm(t.Context(), caller, inventory.Confirmation{ID: r.ID})
				return err
			}
			_, _, err := s.Release(t.Context(), caller, inventory.Release{ID: r.ID})
			return err
		}, inventory.ErrConfirmed, inventory.ErrReleased)
		if won != 1 {
			t.Fatalf("%d of two contradicting commands won", won)
		}
	}
}

// Pitfall 8: confirm and reaper in both orders, with a reaper and without.
func TestPitfall08ConfirmAgainstReaper(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 10)

	noReaper := w.hold(one("mug", 1))
	w.expire(noReaper)
	if err := w.confirm(noReaper.ID); !errors.Is(err, inventory.ErrExpired) {
		t.Errorf("confirm after expiry, no reaper: %v, want ErrExpired", err)
	}
	w.reap(1)
	if err := w.confirm(noReaper.ID); !errors.Is(err, inventory.ErrExpired) {
		t.Errorf("confirm after the reaper: %v, want ErrExpired", err)
	}
	w.wantCounts("mug", 10, 0, 0)

	confirmed := w.hold(one("mug", 1))
	if err := w.confirm(confirmed.ID); err != nil {
		t.Fatal(err)
	}
	w.expire(confirmed)
	if n := w.reap(0); n != 0 {
		t.Errorf("the reaper took %d confirmed reservations", n)
	}
	w.wantCounts("mug", 9, 0, 1)
}

// The confirm has the reservation, waits for the stock, and its time runs out meanwhile: it is
// judged when it acts.
func TestConfirmIsJudgedAfterItsWait(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 1)
	r := w.hold(one("mug", 1))
	stock, err := w.db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stock.Exec(t.Context(), "SELECT 1 FROM inventory.stock FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	w.db.Exec(t, "UPDATE inventory.reservations SET expires_at = clock_timestamp() + interval '200 ms' WHERE id = $1", r.ID)
	done := make(chan error, 1)
	go func() { done <- w.confirm(r.ID) }()
	w.awaitLockWait(1)
	w.db.Exec(t, "SELECT pg_sleep(0.3)") // the hold's time, on the database's clock
	if err := stock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, inventory.ErrExpired) {
		t.Errorf("error is %v, want ErrExpired", err)
	}
	w.wantCounts("mug", 1, 0, 0)
}

// Pitfall 9: paid, but expired meanwhile.
func TestPitfall09Retake(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 3)
	retake := func(id uuid.UUID) error {
		_, _, err := w.store().Confirm(t.Context(), caller, inventory.Confirmation{ID: id, Retake: true})
		return err
	}
	notReaped, reaped := w.hold(one("mug", 1)), w.hold(one("mug", 1))
	w.expire(reaped)
	w.reap(0)
	w.expire(notReaped)
	for name, r := range map[string]inventory.Reservation{"not reaped": notReaped, "reaped": reaped} {
		if err := retake(r.ID); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := retake(r.ID); err != nil {
			t.Errorf("%s, repeated: %v", name, err)
		}
	}
	w.wantCounts("mug", 1, 0, 2)

	lost := w.hold(one("mug", 1))
	w.expire(lost)
	w.hold(one("mug", 1)) // somebody else's now
	if err := retake(lost.ID); !errors.Is(err, inventory.ErrExpiredSoldOut) {
		t.Errorf("sold meanwhile: %v, want ErrExpiredSoldOut", err)
	}
	w.wantCounts("mug", 1, 1, 2)
}

// Two who retake in opposite orders while each other's expired carts stand in the way.
func TestRetakeOfCrossedCarts(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	for _, sku := range []string{"a", "b", "z"} {
		w.receive(sku, 1)
	}
	first := w.hold(cart(map[string]int64{"b": 1, "z": 1}))
	w.expire(first)
	w.reap(0)
	second := w.hold(cart(map[string]int64{"a": 1, "b": 1}))
	w.expire(second)
	won := w.race(2, func(i int, s *inventory.Store) error {
		id := first.ID
		if i == 1 {
			id = second.ID
		}
		_, _, err := s.Confirm(t.Context(), caller, inventory.Confirmation{ID: id, Retake: true})
		return err
	}, inventory.ErrExpiredSoldOut)
	if won != 1 {
		t.Errorf("%d retook, want 1: there is one b", won)
	}
}

// Many who retake the same few units: none holds on to its own expired hold while it queues for the
// stock, so they don't stand in each other's way.
func TestManyRetakeFewUnits(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 20)
	var lost []inventory.Reservation
	for range 20 {
		lost = append(lost, w.hold(one("mug", 1)))
	}
	w.expire(lost...)
	w.put(inventory.Settings{SKU: "mug", SafetyStock: set(int64(15))})
	won := w.race(20, func(i int, s *inventory.Store) error {
		_, _, err := s.Confirm(t.Context(), caller, inventory.Confirmation{ID: lost[i].ID, Retake: true})
		return err
	}, inventory.ErrExpiredSoldOut)
	if won != 5 {
		t.Errorf("%d retook, want 5", won)
	}
	w.wantCounts("mug", 15, 0, 5)
}

// What a retake has to lock beyond its own stock is locked in the one order too: while it waits
// for the first of them, it holds none.
func TestRetakeKeepsTheLockOrder(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	for _, sku := range []string{"a", "b", "z"} {
		w.receive(sku, 1)
	}
	lost := w.hold(cart(map[string]int64{"b": 1, "z": 1}))
	w.expire(lost)
	w.reap(0)
	w.expire(w.hold(cart(map[string]int64{"a": 1, "b": 1}))) // stands in the way, and brings a into it
	rival, err := w.db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lock := func(sku string) error {
		_, err := rival.Exec(t.Context(), "SELECT 1 FROM inventory.stock WHERE sku = $1 FOR UPDATE NOWAIT", sku)
		return err
	}
	if err := lock("a"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, _, err := w.store().Confirm(t.Context(), caller, inventory.Confirmation{ID: lost.ID, Retake: true})
		done <- err
	}()
	w.awaitLockWait(1)
	if err := lock("z"); err != nil {
		t.Errorf("while it waits for a, the retake holds z: %v", err)
	}
	if err := rival.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestPartialConfirm(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 5)
	w.receive("plate", 5)
	r := w.hold(cart(map[string]int64{"mug": 3, "plate": 2}))
	confirm := func(lines ...inventory.Line) error {
		_, _, err := w.store().Confirm(t.Context(), caller, inventory.Confirmation{ID: r.ID, Lines: lines})
		return err
	}
	mugs := func(n int64) inventory.Line { return inventory.Line{SKU: "mug", Quantity: n} }
	if err := confirm(mugs(4)); !errors.Is(err, inventory.ErrOverConfirmed) {
		t.Errorf("more than held: %v", err)
	}
	if err := confirm(inventory.Line{SKU: "spoon", Quantity: 1}); !errors.Is(err, inventory.ErrOverConfirmed) {
		t.Errorf("something else: %v", err)
	}
	_, _, err := w.store().Confirm(t.Context(), caller, inventory.Confirmation{ID: r.ID, Lines: []inventory.Line{}})
	if !errors.Is(err, inventory.ErrInvalid) {
		t.Errorf("no lines: %v", err)
	}
	w.wantCounts("mug", 5, 3, 0)
	if err := confirm(mugs(1), mugs(1)); err != nil {
		t.Fatal(err)
	}
	if err := confirm(mugs(2)); err != nil {
		t.Errorf("the same lines again: %v", err)
	}
	if err := confirm(mugs(3)); !errors.Is(err, inventory.ErrConfirmed) {
		t.Errorf("other lines: %v", err)
	}
	w.wantCounts("mug", 3, 0, 2)
	w.wantCounts("plate", 5, 0, 0)
}

// Pitfall 6: an extension has a cap, counted from the creation, and never shortens.
func TestExtend(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 5)
	r := w.hold(inventory.Reserve{Lines: one("mug", 1).Lines, TTL: 30 * time.Minute})
	extend := func(ttl time.Duration) (inventory.Reservation, error) {
		got, _, err := w.store().Extend(t.Context(), caller, inventory.Extension{ID: r.ID, TTL: ttl})
		return got, err
	}
	if got, err := extend(time.Second); err != nil || !got.ExpiresAt.Equal(r.ExpiresAt) {
		t.Errorf("a shorter ttl moved the expiry from %v to %v, %v", r.ExpiresAt, got.ExpiresAt, err)
	}
	if got, err := extend(50 * time.Minute); err != nil || !got.ExpiresAt.After(r.ExpiresAt) {
		t.Errorf("a longer ttl: %v after %v, %v", got.ExpiresAt, r.ExpiresAt, err)
	}
	if _, err := extend(time.Hour); !errors.Is(err, inventory.ErrExtensionLimit) {
		t.Errorf("beyond the cap: %v", err)
	}
	w.expire(r)
	if _, err := extend(time.Minute); !errors.Is(err, inventory.ErrExpired) {
		t.Errorf("an expired one: %v", err)
	}
	if _, _, err := w.store().Extend(t.Context(), caller, inventory.Extension{ID: uuid.New(), TTL: time.Minute}); !errors.Is(err, inventory.ErrReservationNotFound) {
		t.Errorf("an unknown one: %v", err)
	}
}
