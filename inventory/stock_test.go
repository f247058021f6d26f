package inventory_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"holdfast/inventory"
)

// Pitfall 14: adjustments and counts change what is on hand, never what is held.
func TestAdjustAndCount(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 10)
	w.hold(one("mug", 4))
	adjust := func(delta int64) error {
		_, _, err := w.store().Adjust(t.Context(), caller, inventory.Adjustment{SKU: "mug", Delta: delta, Reason: "broken"})
		return err
	}
	count := func(counted int64, expected *int64) error {
		_, _, err := w.store().Count(t.Context(), caller, inventory.Count{SKU: "mug", Counted: counted, Expected: expected, Reason: "stock-taking"})
		return err
	}
	if err := adjust(-7); !errors.Is(err, inventory.ErrBelowHeld) {
		t.Errorf("below held: %v", err)
	}
	if err := count(3, nil); !errors.Is(err, inventory.ErrBelowHeld) {
		t.Errorf("a count below held: %v", err)
	}
	nine := int64(9)
	if err := count(8, &nine); !errors.Is(err, inventory.ErrCountChanged) {
		t.Errorf("an unexpected count: %v", err)
	}
	w.wantCounts("mug", 10, 4, 0)
	if err := adjust(-6); err != nil {
		t.Errorf("down to held: %v", err)
	}
	four := int64(4)
	if err := count(12, &four); err != nil {
		t.Errorf("a count: %v", err)
	}
	if k := w.sku("mug"); k.OnHand != 12 || k.Held != 4 || k.WrittenOff != 6 || k.Received != 18 {
		t.Errorf("%+v", k)
	}
	if err := adjust(0); !errors.Is(err, inventory.ErrInvalid) {
		t.Errorf("nothing: %v", err)
	}
}

// An expired hold doesn't keep units from being written off.
func TestWriteOffGivesBackExpiredFirst(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 10)
	w.expire(w.hold(one("mug", 8)))
	w.hold(one("mug", 1))
	_, _, err := w.store().Adjust(t.Context(), caller, inventory.Adjustment{SKU: "mug", Delta: -9, Reason: "flood"})
	if err != nil {
		t.Error(err)
	}
	w.wantCounts("mug", 1, 1, 0)
}

func TestSKULifeCycle(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	put := func(s inventory.Settings) (inventory.SKU, bool) {
		t.Helper()
		k, created, err := w.store().PutSKU(t.Context(), caller, s)
		if err != nil {
			t.Fatal(err)
		}
		return k, created
	}
	ttl := 90 * time.Second
	if _, created := put(inventory.Settings{SKU: "mug", Name: set("Mug"), DefaultTTL: set(ttl)}); !created {
		t.Error("not created")
	}
	k, created := put(inventory.Settings{SKU: "mug", MaxPerCustomer: set(int64(2))})
	if created || k.Name != "Mug" || *k.MaxPerCustomer != 2 || *k.DefaultTTL != ttl {
		t.Errorf("changed: created=%t, %+v", created, k)
	}
	if k, _ = put(inventory.Settings{SKU: "mug", MaxPerCustomer: inventory.Change[int64]{Set: true}}); k.MaxPerCustomer != nil {
		t.Errorf("the limit is still %d", *k.MaxPerCustomer)
	}
	if _, _, err := w.store().Adjust(t.Context(), caller, inventory.Adjustment{SKU: "mug", Delta: 1, Reason: "r"}); err != nil {
		t.Fatal(err)
	}
	r := w.hold(one("mug", 1))
	if d := r.ExpiresAt.Sub(r.CreatedAt); d != ttl {
		t.Errorf("ttl is %v, want the SKU's %v", d, ttl)
	}
	if err := w.store().DeleteSKU(t.Context(), caller, "mug"); !errors.Is(err, inventory.ErrSKUInUse) {
		t.Errorf("delete in use: %v", err)
	}
	if err := w.confirm(r.ID); err != nil {
		t.Fatal(err)
	}
	if err := w.store().DeleteSKU(t.Context(), caller, "mug"); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"read":    func() error { _, err := w.store().GetSKU(t.Context(), tenant, "mug"); return err }(),
		"reserve": func() error { _, _, err := w.store().Reserve(t.Context(), caller, one("mug", 1)); return err }(),
		"delete":  w.store().DeleteSKU(t.Context(), caller, "mug"),
	} {
		if !errors.Is(err, inventory.ErrSKUNotFound) {
			t.Errorf("%s after deletion: %v", what, err)
		}
	}
	if _, err := w.store().GetReservation(t.Context(), tenant, r.ID); err != nil {
		t.Errorf("a past reservation: %v", err)
	}
	if k, created := put(inventory.Settings{SKU: "mug"}); !created || k.Name != "" || k.DefaultTTL != nil || k.Sold != 1 {
		t.Errorf("made again: created=%t, %+v", created, k)
	}
}

// I7 for settings and deletion: what has expired stands in nobody's way, reaper or no reaper.
func TestExpiredHoldsDoNotKeepASKUInUse(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.put(inventory.Settings{SKU: "mug", BackorderLimit: set(int64(5))})
	w.expire(w.hold(one("mug", 3)))
	if _, _, err := w.store().PutSKU(t.Context(), caller, inventory.Settings{SKU: "mug", BackorderLimit: set(int64(1))}); err != nil {
		t.Errorf("a lower backorder limit: %v", err)
	}
	live := w.hold(one("mug", 1))
	if err := w.store().DeleteSKU(t.Context(), caller, "mug"); !errors.Is(err, inventory.ErrSKUInUse) {
		t.Errorf("delete with a live hold on backorder: %v", err)
	}
	w.expire(live)
	if err := w.store().DeleteSKU(t.Context(), caller, "mug"); err != nil {
		t.Errorf("delete with an expired hold: %v", err)
	}
}

// Of many who create a SKU at once, one has; and a seed is sown once.
func TestCreationAndSeedHappenOnce(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	created := make(chan bool, 10)
	w.race(10, func(_ int, s *inventory.Store) error {
		_, made, err := s.PutSKU(t.Context(), caller, inventory.Settings{SKU: "mug"})
		created <- made
		return err
	})
	made := 0
	for range 10 {
		if <-created {
			made++
		}
	}
	if made != 1 {
		t.Errorf("%d were told that they had created the SKU", made)
	}
	w.race(10, func(_ int, s *inventory.Store) error { return s.Seed(t.Context(), caller, "mug", "Mug", 10) })
	w.race(2, func(_ int, s *inventory.Store) error { return s.Seed(t.Context(), caller, "mug", "Mug", 10) })
	w.wantCounts("mug", 10, 0, 0)
}

// Pitfall 15: whoever asks gets the history.
func TestPitfall15LedgerTellsEveryChange(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 5)
	sold, released, expired := w.hold(one("mug", 1)), w.hold(one("mug", 1)), w.hold(one("mug", 1))
	if err := errors.Join(w.confirm(sold.ID), w.release(released.ID)); err != nil {
		t.Fatal(err)
	}
	w.expire(expired)
	w.reap(0)
	entries, err := w.store().Ledger(t.Context(), tenant, "mug", 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		kind                                 string
		deltaOnHand, deltaHeld, onHand, held int64
		of                                   *uuid.UUID
		actor                                string
	}{
		{"receive", 5, 0, 5, 0, nil, "test"},
		{"hold", 0, 1, 5, 1, &sold.ID, "test"},
		{"hold", 0, 1, 5, 2, &released.ID, "test"},
		{"hold", 0, 1, 5, 3, &expired.ID, "test"},
		{"confirm", -1, -1, 4, 2, &sold.ID, "test"},
		{"release", 0, -1, 4, 1, &released.ID, "test"},
		{"expire", 0, -1, 4, 0, &expired.ID, "expiry"},
	}
	if len(entries) != len(want) {
		t.Fatalf("%d entries, want %d: %+v", len(entries), len(want), entries)
	}
	for i, e := range entries {
		x := want[i]
		if e.Kind != x.kind || e.DeltaOnHand != x.deltaOnHand || e.DeltaHeld != x.deltaHeld || e.OnHand != x.onHand || e.Held != x.held || e.Actor != x.actor {
			t.Errorf("entry %d is %+v, want %+v", i, e, x)
		}
		if x.of != nil && (e.ReservationID == nil || *e.ReservationID != *x.of) {
			t.Errorf("entry %d is of %v, want %v", i, e.ReservationID, x.of)
		}
	}
	rest, err := w.store().Ledger(t.Context(), tenant, "mug", entries[4].Seq, 1)
	if err != nil || len(rest) != 1 || rest[0].Seq != entries[5].Seq {
		t.Errorf("from after entry 4: %+v, %v", rest, err)
	}
}

func TestListReservations(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 9)
	w.receive("plate", 9)
	ann := one("mug", 1)
	ann.Customer, ann.Reference = "ann", "order-1"
	a, b, c := w.hold(ann), w.hold(one("plate", 1)), w.hold(one("mug", 2))
	w.expire(c)
	list := func(f inventory.ReservationFilter, before inventory.Position, limit int) (ids []uuid.UUID) {
		t.Helper()
		got, err := w.store().ListReservations(t.Context(), tenant, f, before, limit)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range got {
			ids = append(ids, r.ID)
		}
		return ids
	}
	for name, c := range map[string]struct {
		got, want []uuid.UUID
	}{
		"all":       {list(inventory.ReservationFilter{}, inventory.Position{}, 10), []uuid.UUID{c.ID, b.ID, a.ID}},
		"paged":     {list(inventory.ReservationFilter{}, b.Position(), 10), []uuid.UUID{a.ID}},
		"limit":     {list(inventory.ReservationFilter{}, inventory.Position{}, 1), []uuid.UUID{c.ID}},
		"sku":       {list(inventory.ReservationFilter{SKU: "mug"}, inventory.Position{}, 10), []uuid.UUID{c.ID, a.ID}},
		"held":      {list(inventory.ReservationFilter{Status: inventory.Held}, inventory.Position{}, 10), []uuid.UUID{b.ID, a.ID}},
		"expired":   {list(inventory.ReservationFilter{Status: inventory.Expired}, inventory.Position{}, 10), []uuid.UUID{c.ID}},
		"customer":  {list(inventory.ReservationFilter{Customer: "ann"}, inventory.Position{}, 10), []uuid.UUID{a.ID}},
		"reference": {list(inventory.ReservationFilter{Reference: "order-1", SKU: "plate"}, inventory.Position{}, 10), nil},
	} {
		if len(c.got) != len(c.want) {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
			continue
		}
		for i := range c.got {
			if c.got[i] != c.want[i] {
				t.Errorf("%s: %v, want %v", name, c.got, c.want)
			}
		}
	}
}

// A difference that was put in by hand is found, named and repaired.
func TestVerifyFindsAndRepairs(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 10)
	w.receive("plate", 10)
	w.hold(one("mug", 3))
	w.db.Exec(t, "UPDATE inventory.stock SET held = 5, on_hand = 12, received = 12 WHERE sku = 'mug'")
	found, err := inventory.Verify(t.Context(), w.db.Pool, false)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][2]int64{"held": {5, 3}, "on_hand": {12, 10}, "received": {12, 10}}
	if len(found) != len(want) {
		t.Errorf("found %v", found)
	}
	for _, d := range found {
		if d.SKU != "mug" || d.Repaired || want[d.Counter] != [2]int64{d.Is, d.ShouldBe} {
			t.Errorf("found %+v", d)
		}
	}
	repaired, err := inventory.Verify(t.Context(), w.db.Pool, true)
	if err != nil || len(repaired) != 3 || !repaired[0].Repaired {
		t.Errorf("repaired %v, %v", repaired, err)
	}
	w.wantCounts("mug", 10, 3, 0)
}

// A stock row that is gone is found and made again; a row that can't be repaired holds up no other.
func TestVerifyFindsAMissingRow(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 10)
	w.receive("plate", 10)
	w.receive("spoon", 4)
	w.hold(one("mug", 3))
	w.db.Exec(t, "DELETE FROM inventory.stock WHERE sku IN ('mug', 'spoon')")
	// No counters can satisfy a ledger that says less than nothing was received.
	w.db.Exec(t, "UPDATE inventory.ledger SET delta_on_hand = -5 WHERE sku = 'plate'")
	found, err := inventory.Verify(t.Context(), w.db.Pool, true)
	if err == nil {
		t.Error("an impossible repair is no error")
	}
	repaired := map[string]bool{}
	for _, d := range found {
		repaired[d.SKU] = repaired[d.SKU] || d.Repaired
	}
	if !repaired["mug"] || !repaired["spoon"] || repaired["plate"] {
		t.Errorf("found %v", found)
	}
	w.db.Exec(t, "UPDATE inventory.ledger SET delta_on_hand = 10 WHERE sku = 'plate'")
	w.wantCounts("mug", 10, 3, 0)
}

// A ledger that lost an entry of a hold is made right by an entry of its own.
func TestVerifyRepairsTheLedgersAccountOfHeld(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 10)
	r := w.hold(one("mug", 3))
	w.db.Exec(t, "DELETE FROM inventory.ledger WHERE reservation_id = $1", r.ID)
	found, err := inventory.Verify(t.Context(), w.db.Pool, true)
	if err != nil || len(found) != 1 || found[0].Counter != "held in the ledger" {
		t.Fatalf("found %v, %v", found, err)
	}
	if again, err := inventory.Verify(t.Context(), w.db.Pool, false); err != nil || len(again) != 0 {
		t.Errorf("after the repair: %v, %v", again, err)
	}
}
