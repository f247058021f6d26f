package inventory_test

import (
	"errors"
	"testing"

	"holdfast/inventory"
)

func TestReturns(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 5)
	w.receive("plate", 5)
	r := w.hold(cart(map[string]int64{"mug": 3, "plate": 2}))
	back := func(sku string, n int64, restock bool) error {
		_, _, err := w.store().Return(t.Context(), caller, inventory.Return{ID: r.ID, Lines: one(sku, n).Lines, Restock: restock, Reason: "broken"})
		return err
	}
	if err := back("mug", 1, true); !errors.Is(err, inventory.ErrHeld) {
		t.Errorf("of a hold: %v", err)
	}
	if err := w.confirm(r.ID); err != nil {
		t.Fatal(err)
	}
	if err := back("mug", 2, true); err != nil {
		t.Error(err)
	}
	w.wantCounts("mug", 4, 0, 1)
	if err := back("mug", 2, true); !errors.Is(err, inventory.ErrOverReturned) {
		t.Errorf("more than is left: %v", err)
	}
	if err := back("mug", 1, false); err != nil {
		t.Error(err)
	}
	w.wantCounts("mug", 4, 0, 0)
	if k := w.sku("mug"); k.WrittenOff != 1 || k.Received != 5 {
		t.Errorf("written off %d of %d received, want 1 of 5", k.WrittenOff, k.Received)
	}
	if err := back("spoon", 1, true); !errors.Is(err, inventory.ErrOverReturned) {
		t.Errorf("what wasn't sold: %v", err)
	}
	got, err := w.store().GetReservation(t.Context(), tenant, r.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range got.Lines {
		if want := map[string]int64{"mug": 3, "plate": 0}[l.SKU]; *l.Returned != want {
			t.Errorf("%s: %d returned, want %d", l.SKU, *l.Returned, want)
		}
	}
	entries, err := w.store().Ledger(t.Context(), tenant, "mug", 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, e := range entries[len(entries)-3:] {
		kinds = append(kinds, e.Kind)
	}
	if len(kinds) != 3 || kinds[0] != "return" || kinds[1] != "return" || kinds[2] != "write_off" {
		t.Errorf("the ledger ends in %v", kinds)
	}
}

// However many ask at once, no more comes back than was sold.
func TestReturnsNeverExceedWhatWasSold(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 5)
	r := w.hold(one("mug", 5))
	if err := w.confirm(r.ID); err != nil {
		t.Fatal(err)
	}
	won := w.race(12, func(i int, s *inventory.Store) error {
		_, _, err := s.Return(t.Context(), caller, inventory.Return{ID: r.ID, Lines: one("mug", 1).Lines, Restock: i%2 == 0, Reason: "r"})
		return err
	}, inventory.ErrOverReturned)
	if won != 5 {
		t.Errorf("%d of 5 came back", won)
	}
	if k := w.sku("mug"); k.Sold != 0 || k.OnHand+k.WrittenOff != 5 {
		t.Errorf("%+v", k)
	}
}

// What came back no longer counts against the customer's limit.
func TestReturnsFreeTheCustomersLimit(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 9)
	two := int64(2)
	w.put(inventory.Settings{SKU: "mug", MaxPerCustomer: inventory.Change[int64]{Set: true, Value: &two}})
	ann := one("mug", 2)
	ann.Customer = "ann"
	r := w.hold(ann)
	if err := w.confirm(r.ID); err != nil {
		t.Fatal(err)
	}
	again := one("mug", 1)
	again.Customer = "ann"
	if _, _, err := w.store().Reserve(t.Context(), caller, again); !errors.Is(err, inventory.ErrCustomerLimit) {
		t.Errorf("a third: %v", err)
	}
	if _, _, err := w.store().Return(t.Context(), caller, inventory.Return{ID: r.ID, Lines: again.Lines, Restock: true, Reason: "r"}); err != nil {
		t.Fatal(err)
	}
	w.hold(again)
}
