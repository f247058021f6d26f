package inventory_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"holdfast/internal/pg"
	"holdfast/inventory"
)

// Pitfall 1: two buyers, one last unit; and pitfall 2, no path around the lock.
func TestPitfall01ReserveNeverOversells(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 3)
	won := w.race(40, func(_ int, s *inventory.Store) error {
		_, _, err := s.Reserve(t.Context(), caller, one("mug", 1))
		return err
	}, inventory.ErrSoldOut)
	if won != 3 {
		t.Errorf("%d reservations won, want 3", won)
	}
	w.wantCounts("mug", 3, 3, 0)
}

// Pitfall 2: a CHECK stands behind the code, whatever code comes.
func TestPitfall02TheDatabaseRefusesToOversell(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 3)
	for _, sql := range []string{
		"UPDATE inventory.stock SET held = 4",
		"UPDATE inventory.stock SET held = -1",
		"UPDATE inventory.stock SET on_hand = 2",
	} {
		if _, err := w.db.Pool.Exec(t.Context(), sql); pg.Constraint(err) == "" {
			t.Errorf("%s: %v, want a violated constraint", sql, err)
		}
	}
}

func TestAllLinesOrNone(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 5)
	w.receive("plate", 1)
	_, _, err := w.store().Reserve(t.Context(), caller, cart(map[string]int64{"mug": 2, "plate": 2}))
	var short *inventory.ShortageError
	if !errors.As(err, &short) || len(short.Shortages) != 1 {
		t.Fatalf("error is %v, want one shortage", err)
	}
	if s := short.Shortages[0]; s.SKU != "plate" || s.Wanted != 2 || s.Available != 1 {
		t.Errorf("shortage is %+v", s)
	}
	w.wantCounts("mug", 5, 0, 0)
	w.wantCounts("plate", 1, 0, 0)
}

func TestLinesOfOneSKUAddUp(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 5)
	cmd := inventory.Reserve{Lines: []inventory.Line{{SKU: "mug", Quantity: 2}, {SKU: "mug", Location: "default", Quantity: 3}}}
	if r := w.hold(cmd); len(r.Lines) != 1 || r.Lines[0].Quantity != 5 {
		t.Errorf("lines are %+v", r.Lines)
	}
	if _, _, err := w.store().Reserve(t.Context(), caller, one("mug", 1)); !errors.Is(err, inventory.ErrSoldOut) {
		t.Errorf("a sixth of five: %v", err)
	}
}

// Pitfall 11: carts of the same things in opposite orders, large enough to deadlock at once
// if each locked in its own order.
func TestPitfall11OppositeCartsDoNotDeadlock(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	var forward []inventory.Line
	for i := range 10 {
		sku := fmt.Sprintf("part-%d", i)
		w.receive(sku, 1000)
		forward = append(forward, inventory.Line{SKU: sku, Quantity: 1})
	}
	backward := slices.Clone(forward)
	slices.Reverse(backward)
	won := w.race(100, func(i int, s *inventory.Store) error {
		lines := forward
		if i%4 < 2 {
			lines = backward
		}
		r, _, err := s.Reserve(t.Context(), caller, inventory.Reserve{Lines: lines})
		if err == nil && i%3 == 0 {
			_, _, err = s.Release(t.Context(), caller, inventory.Release{ID: r.ID})
		}
		return err
	})
	if won != 100 {
		t.Errorf("%d carts won, want 100", won)
	}
	var deadlocks int
	w.db.Scan(t, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()", nil, &deadlocks)
	if deadlocks != 0 {
		t.Errorf("%d deadlocks", deadlocks)
	}
}

// Pitfalls 7 and I7: free from the instant of expiry, at the next read and at the next reserve,
// without any reaper; and the reaper that comes later gives nothing back again.
func TestPitfall07ExpiredIsFreeAtOnceAndOnce(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 10)
	old := w.hold(one("mug", 10))
	w.expire(old)
	if k := w.sku("mug"); k.Held != 0 || k.Available != 10 {
		t.Errorf("after expiry: held %d, available %d; want 0 and 10", k.Held, k.Available)
	}
	if r, err := w.store().GetReservation(t.Context(), tenant, old.ID); err != nil || r.Status != inventory.Expired {
		t.Errorf("the hold reads %q, %v; want expired", r.Status, err)
	}
	w.hold(one("mug", 4))
	if n := w.reap(0); n != 0 {
		t.Errorf("the reaper gave back %d holds that the reserve had given back", n)
	}
	w.wantCounts("mug", 10, 4, 0)
}

// I7 against a reaper that has claimed the hold and waits for the stock row: the reserve may
// neither wait for it (a deadlock) nor call the stock sold out.
func TestPitfall03ExpiredIsFreeWhileAReaperHasIt(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 1)
	w.expire(w.hold(one("mug", 1)))

	stock, err := w.db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stock.Exec(t.Context(), "SELECT 1 FROM inventory.stock FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 2)
	go func() { // queues first, with the reservation claimed
		_, _, err := w.replicas[0].ReapOnce(t.Context())
		done <- err
	}()
	w.awaitLockWait(1)
	go func() {
		_, _, err := w.replicas[1].Reserve(t.Context(), caller, one("mug", 1))
		done <- err
	}()
	w.awaitLockWait(2)
	if err := stock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Errorf("%v", err)
		}
	}
	w.wantCounts("mug", 1, 1, 0)
}

// The other order: the reserve has the stock row when it finds a hold that a transaction has
// claimed which then asks for the stock row.
func TestReserveGivesWayToTheHolderOfAnExpiredHold(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 1)
	hold := w.hold(one("mug", 1))
	w.expire(hold)
	reaper, err := w.db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	due, err := inventory.SelectDueReservations(t.Context(), reaper, 10)
	if err != nil || len(due) != 1 {
		t.Fatalf("%d due, %v", len(due), err)
	}
	done := make(chan error, 1)
	go func() {
		_, _, err := w.store().Reserve(t.Context(), caller, one("mug", 1))
		done <- err
	}()
	// It keeps coming back to the stock row without holding on to it: a lock can be had.
	if _, err := reaper.Exec(t.Context(), "SELECT 1 FROM inventory.stock FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		t.Fatalf("the reserve ended before the hold was free or given back: %v", err)
	default:
	}
	if err := reaper.Rollback(t.Context()); err != nil { // the reaper dies: nothing was given back
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	w.wantCounts("mug", 1, 1, 0)
}

// An expired hold of another cart is given back whole, although the reserve that needs a part
// of it had not locked the rest.
func TestReserveGivesBackWholeCarts(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	for _, sku := range []string{"a", "b", "c"} {
		w.receive(sku, 1)
	}
	w.expire(w.hold(cart(map[string]int64{"a": 1, "b": 1, "c": 1})))
	w.hold(one("b", 1))
	w.wantCounts("a", 1, 0, 0)
	w.wantCounts("b", 1, 1, 0)
	w.wantCounts("c", 1, 0, 0)
}

func TestRestockSeenByOneReplicaSellsOnTheOther(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 1)
	w.hold(one("mug", 1))
	if _, _, err := w.replicas[0].Reserve(t.Context(), caller, one("mug", 1)); !errors.Is(err, inventory.ErrSoldOut) {
		t.Fatalf("error is %v, want sold out", err)
	}
	if _, _, err := w.replicas[1].Adjust(t.Context(), caller, inventory.Adjustment{SKU: "mug", Delta: 1, Reason: "delivery"}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.replicas[0].Reserve(t.Context(), caller, one("mug", 1)); err != nil {
		t.Errorf("after a restock: %v", err)
	}
}

// Pitfall 17: the limit holds over live and confirmed reservations, in the same atomic step.
func TestPitfall17CustomerLimitHoldsUnderARace(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("ticket", 100)
	w.put(inventory.Settings{SKU: "ticket", MaxPerCustomer: set(int64(4))})
	if _, _, err := w.store().Reserve(t.Context(), caller, one("ticket", 1)); !errors.Is(err, inventory.ErrCustomerRequired) {
		t.Errorf("no customer: %v", err)
	}
	byAnn := one("ticket", 1)
	byAnn.Customer = "ann"
	bought := w.hold(byAnn)
	if err := w.confirm(bought.ID); err != nil {
		t.Fatal(err)
	}
	gone := w.hold(byAnn)
	w.expire(gone) // no longer counts
	won := w.race(20, func(_ int, s *inventory.Store) error {
		_, _, err := s.Reserve(t.Context(), caller, byAnn)
		return err
	}, inventory.ErrCustomerLimit)
	if won != 3 {
		t.Errorf("%d more reservations won, want 3", won)
	}
}

func set[T any](value T) inventory.Change[T] { return inventory.Change[T]{Set: true, Value: &value} }

func TestSafetyStockIsNotOfferedAndBackorderIs(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 5)
	w.put(inventory.Settings{SKU: "mug", SafetyStock: set(int64(2))})
	if k := w.sku("mug"); k.Available != 3 {
		t.Errorf("available is %d, want 3", k.Available)
	}
	w.hold(one("mug", 3))
	if _, _, err := w.store().Reserve(t.Context(), caller, one("mug", 1)); !errors.Is(err, inventory.ErrSoldOut) {
		t.Errorf("into the safety stock: %v", err)
	}
	w.put(inventory.Settings{SKU: "mug", SafetyStock: inventory.Change[int64]{Set: true}, BackorderLimit: set(int64(4))})
	beyond := w.hold(one("mug", 6))
	if err := w.confirm(beyond.ID); err != nil {
		t.Errorf("confirm a backorder: %v", err)
	}
	w.wantCounts("mug", -1, 3, 6)
	if _, _, err := w.store().PutSKU(t.Context(), caller, inventory.Settings{SKU: "mug", BackorderLimit: set(int64(1))}); !errors.Is(err, inventory.ErrSettings) {
		t.Errorf("a limit below what is owed: %v, want ErrSettings", err)
	}
}

func TestPartialReservations(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 2)
	w.receive("plate", 9)
	w.put(inventory.Settings{SKU: "spoon"})
	cmd := cart(map[string]int64{"mug": 5, "plate": 3, "spoon": 1})
	cmd.AllowPartial = true
	r := w.hold(cmd)
	got := map[string][2]int64{}
	for _, l := range r.Lines {
		got[l.SKU] = [2]int64{*l.Wanted, l.Quantity}
	}
	if len(got) != 2 || got["mug"] != [2]int64{5, 2} || got["plate"] != [2]int64{3, 3} {
		t.Errorf("wanted and granted: %v", got)
	}
	if len(r.Shortages) != 2 {
		t.Errorf("shortages: %+v, want mug and spoon", r.Shortages)
	}
	only := one("spoon", 1)
	only.AllowPartial = true
	if _, _, err := w.store().Reserve(t.Context(), caller, only); !errors.Is(err, inventory.ErrSoldOut) {
		t.Errorf("nothing at all: %v", err)
	}
}

// I6: the same key gives the same hold, on either replica, in parallel too.
func TestOneKeyOneHold(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 50)
	ids := make(chan string, 20)
	w.race(20, func(_ int, s *inventory.Store) error {
		r, _, err := s.Reserve(t.Context(), withKey("k"), one("mug", 2))
		ids <- r.ID.String()
		return err
	})
	first := <-ids
	for range 19 {
		if id := <-ids; id != first {
			t.Errorf("holds %s and %s for one key", first, id)
		}
	}
	w.wantCounts("mug", 50, 2, 0)
}

// A request that is carried out late by the database's clock isn't carried out at all, even if
// it got hold of the lock after its client had given up.
func TestDeadlineIsJudgedWhenActing(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 5)
	w.put(inventory.Settings{SKU: "empty"})
	held, gone := w.hold(one("mug", 1)), w.hold(one("mug", 1))
	w.expire(gone)
	late := caller
	late.Deadline = time.Now().Add(-time.Millisecond)
	acts := map[string]func() error{
		"reserve": func() error { _, _, err := w.store().Reserve(t.Context(), late, one("mug", 1)); return err },
		"confirm": func() error {
			_, _, err := w.store().Confirm(t.Context(), late, inventory.Confirmation{ID: held.ID})
			return err
		},
		"release": func() error {
			_, _, err := w.store().Release(t.Context(), late, inventory.Release{ID: held.ID})
			return err
		},
		"extend": func() error {
			_, _, err := w.store().Extend(t.Context(), late, inventory.Extension{ID: held.ID, TTL: time.Minute})
			return err
		},
		"count": func() error {
			_, _, err := w.store().Count(t.Context(), late, inventory.Count{SKU: "mug", Counted: 7, Reason: "r"})
			return err
		},
		"retake": func() error {
			_, _, err := w.store().Confirm(t.Context(), late, inventory.Confirmation{ID: gone.ID, Retake: true})
			return err
		},
		"put": func() error {
			_, _, err := w.store().PutSKU(t.Context(), late, inventory.Settings{SKU: "new"})
			return err
		},
		"delete": func() error { return w.store().DeleteSKU(t.Context(), late, "empty") },
		"adjust": func() error {
			_, _, err := w.store().Adjust(t.Context(), late, inventory.Adjustment{SKU: "mug", Delta: 1, Reason: "r"})
			return err
		},
	}
	for name, act := range acts {
		if err := act(); !errors.Is(err, pg.ErrDeadline) {
			t.Errorf("%s: %v, want ErrDeadline", name, err)
		}
	}
	w.wantCounts("mug", 5, 1, 0)
}

func TestReserveRefusesBadInput(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 5)
	line := func(sku string, quantity int64) inventory.Reserve {
		return inventory.Reserve{Lines: []inventory.Line{{SKU: sku, Quantity: quantity}}}
	}
	withTTL := func(ttl time.Duration) inventory.Reserve { c := one("mug", 1); c.TTL = ttl; return c }
	for field, cmd := range map[string]inventory.Reserve{
		"lines":             {},
		"lines[0].sku":      line("a mug", 1),
		"lines[0].quantity": line("mug", 0),
		"ttl":               withTTL(-time.Second),
		"customer":          {Lines: line("mug", 1).Lines, Customer: string(make([]byte, 256))},
		"lines[1].quantity": {Lines: []inventory.Line{{SKU: "mug", Quantity: 1}, {SKU: "mug", Quantity: inventory.MaxUnits}}},
	} {
		_, _, err := w.store().Reserve(t.Context(), caller, cmd)
		var bad *inventory.InvalidError
		if !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("error is %v, want one about %s", err, field)
		}
	}
	for sku, kind := range map[string]error{"cup": inventory.ErrSKUNotFound} {
		if _, _, err := w.store().Reserve(t.Context(), caller, one(sku, 1)); !errors.Is(err, kind) {
			t.Errorf("%s: %v", sku, err)
		}
	}
	elsewhere := inventory.Reserve{Lines: []inventory.Line{{SKU: "mug", Location: "moon", Quantity: 1}}}
	if _, _, err := w.store().Reserve(t.Context(), caller, elsewhere); !errors.Is(err, inventory.ErrLocationNotFound) {
		t.Errorf("elsewhere: %v", err)
	}
	w.wantCounts("mug", 5, 0, 0)
}

// Another tenant's things don't exist.
func TestTenantsDoNotMeet(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 5)
	r := w.hold(one("mug", 1))
	other := inventory.Caller{Tenant: "globex", Actor: "test"}
	if _, err := w.store().GetSKU(t.Context(), "globex", "mug"); !errors.Is(err, inventory.ErrSKUNotFound) {
		t.Errorf("SKU: %v", err)
	}
	if _, _, err := w.store().Release(t.Context(), other, inventory.Release{ID: r.ID}); !errors.Is(err, inventory.ErrReservationNotFound) {
		t.Errorf("release: %v", err)
	}
	if _, _, err := w.store().Reserve(t.Context(), other, one("mug", 1)); !errors.Is(err, inventory.ErrSKUNotFound) {
		t.Errorf("reserve: %v", err)
	}
	if _, err := w.store().Ledger(t.Context(), "globex", "mug", 0, 10); !errors.Is(err, inventory.ErrSKUNotFound) {
		t.Errorf("ledger: %v", err)
	}
}
