package inventory_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"holdfast/inventory"
)

// stockAt makes locations with their ranks in the order given, and puts units of a SKU there.
func (w *warehouse) stockAt(sku string, units ...any) {
	w.Helper()
	w.put(inventory.Settings{SKU: sku})
	for i := 0; i < len(units); i += 2 {
		location, rank := units[i].(string), int32(i)
		_, _, err := w.store().PutLocation(w.Context(), caller, inventory.LocationSettings{Location: location, Rank: inventory.Change[int32]{Set: true, Value: &rank}})
		if err != nil {
			w.Fatal(err)
		}
		if n := int64(units[i+1].(int)); n > 0 {
			if _, _, err := w.store().Adjust(w.Context(), caller, inventory.Adjustment{SKU: sku, Location: location, Delta: n, Reason: "delivery"}); err != nil {
				w.Fatal(err)
			}
		}
	}
}

func shares(r inventory.Reservation) (all []string) {
	for _, l := range r.Lines {
		all = append(all, fmt.Sprintf("%s %s %d", l.SKU, l.Location, l.Quantity))
	}
	return all
}

func TestAllocation(t *testing.T) {
	t.Parallel()
	line := func(sku string, quantity int64) inventory.Line { return inventory.Line{SKU: sku, Quantity: quantity} }
	for _, c := range []struct {
		name  string
		by    inventory.Allocation
		lines []inventory.Line
		want  []string
	}{
		{"prefer goes by rank", "", []inventory.Line{line("mug", 5)}, []string{"mug shop 3", "mug depot 2"}},
		{"fewest takes one that has all", inventory.Fewest, []inventory.Line{line("mug", 5)}, []string{"mug depot 5"}},
		{"fewest serves the cart as a whole", inventory.Fewest, []inventory.Line{line("mug", 2), line("plate", 2)}, []string{"mug attic 2", "plate attic 2"}},
		{"spread goes by what is free", inventory.Spread, []inventory.Line{line("mug", 6)}, []string{"mug shop 2", "mug depot 3", "mug attic 1"}},
		{
			"a line that names its location comes first", inventory.Prefer,
			[]inventory.Line{line("mug", 4), {SKU: "mug", Location: "shop", Quantity: 2}},
			[]string{"mug shop 3", "mug depot 3"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWarehouse(t)
			w.stockAt("mug", "shop", 3, "depot", 6, "attic", 3)
			w.stockAt("plate", "shop", 0, "depot", 1, "attic", 4)
			r := w.hold(inventory.Reserve{Lines: c.lines, Allocate: c.by})
			if got := shares(r); !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
			if err := w.confirm(r.ID); err != nil {
				t.Error(err)
			}
		})
	}
}

// What is free of a SKU is free over all its locations; what isn't offered isn't offered anywhere.
func TestLocationsAddUp(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.stockAt("mug", "shop", 2, "depot", 3)
	two := int64(2)
	w.put(inventory.Settings{SKU: "mug", SafetyStock: inventory.Change[int64]{Set: true, Value: &two}})
	var short *inventory.ShortageError
	_, _, err := w.store().Reserve(t.Context(), caller, one("mug", 4))
	if !errors.As(err, &short) || short.Shortages[0].Available != 3 || short.Shortages[0].Location != "" {
		t.Errorf("4 of 5 with 2 not offered: %v, want a shortage with 3 available", err)
	}
	_, _, err = w.store().Reserve(t.Context(), caller, inventory.Reserve{Lines: []inventory.Line{{SKU: "mug", Location: "shop", Quantity: 3}}})
	if !errors.As(err, &short) || short.Shortages[0].Available != 2 || short.Shortages[0].Location != "shop" {
		t.Errorf("3 of 2 at the shop: %v, want a shortage with 2 available", err)
	}
	_, _, err = w.store().Reserve(t.Context(), caller, inventory.Reserve{Lines: []inventory.Line{{SKU: "mug", Location: "cellar", Quantity: 1}}})
	if !errors.Is(err, inventory.ErrLocationNotFound) {
		t.Errorf("at a location that isn't there: %v", err)
	}
	w.stockAt("plate", "cellar", 1)
	_, _, err = w.store().Reserve(t.Context(), caller, inventory.Reserve{Lines: []inventory.Line{{SKU: "mug", Location: "cellar", Quantity: 1}}})
	if !errors.Is(err, inventory.ErrSoldOut) {
		t.Errorf("at a location that has none: %v", err)
	}
	r := w.hold(inventory.Reserve{Lines: []inventory.Line{{SKU: "mug", Quantity: 9}}, AllowPartial: true})
	if got := shares(r); !slices.Equal(got, []string{"mug shop 2", "mug depot 1"}) || *r.Lines[0].Wanted+*r.Lines[1].Wanted != 9 {
		t.Errorf("a part: %v, wanted %d and %d", got, *r.Lines[0].Wanted, *r.Lines[1].Wanted)
	}
	k := w.sku("mug")
	if k.Available != 0 || k.OnHand != 5 || k.Held != 3 || len(k.Locations) != 3 {
		t.Errorf("%+v", k)
	}
	for _, l := range k.Locations {
		if l.Available != 0 {
			t.Errorf("%s offers %d while the SKU offers none", l.Location, l.Available)
		}
	}
}

// Carts that are spread over locations in every order neither deadlock nor oversell.
func TestRivalsForManyLocations(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.stockAt("mug", "shop", 10, "depot", 10, "attic", 10)
	w.stockAt("plate", "attic", 10, "shop", 10, "depot", 10)
	ways := []inventory.Allocation{inventory.Prefer, inventory.Fewest, inventory.Spread}
	won := w.race(60, func(i int, s *inventory.Store) error {
		lines := []inventory.Line{{SKU: "mug", Quantity: 1}, {SKU: "plate", Quantity: 1}}
		if i%2 == 0 {
			slices.Reverse(lines)
		}
		_, _, err := s.Reserve(t.Context(), caller, inventory.Reserve{Lines: lines, Allocate: ways[i%3]})
		return err
	}, inventory.ErrSoldOut)
	if won != 30 {
		t.Errorf("%d won, want 30", won)
	}
}

func TestLocationLifeCycle(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	s := w.store()
	w.stockAt("mug", "shop", 2)
	if err := s.DeleteLocation(t.Context(), caller, inventory.DefaultLocation); !errors.Is(err, inventory.ErrLocationInUse) {
		t.Errorf("the location default: %v", err)
	}
	if err := s.DeleteLocation(t.Context(), caller, "cellar"); !errors.Is(err, inventory.ErrLocationNotFound) {
		t.Errorf("one that isn't there: %v", err)
	}
	if err := s.DeleteLocation(t.Context(), caller, "shop"); !errors.Is(err, inventory.ErrLocationInUse) {
		t.Errorf("one with stock: %v", err)
	}
	r := w.hold(one("mug", 2))
	if err := w.confirm(r.ID); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteLocation(t.Context(), caller, "shop"); err != nil {
		t.Errorf("an empty one: %v", err)
	}
	if _, err := s.GetLocation(t.Context(), tenant, "shop"); !errors.Is(err, inventory.ErrLocationNotFound) {
		t.Errorf("after that: %v", err)
	}
	if k := w.sku("mug"); k.Sold != 2 || len(k.Locations) != 1 {
		t.Errorf("what was sold there is forgotten: %+v", k)
	}
	_, _, err := s.Adjust(t.Context(), caller, inventory.Adjustment{SKU: "mug", Location: "shop", Delta: 1, Reason: "r"})
	if !errors.Is(err, inventory.ErrLocationNotFound) {
		t.Errorf("stock for a deleted location: %v", err)
	}
	_, _, err = s.Return(t.Context(), caller, inventory.Return{ID: r.ID, Lines: one("mug", 1).Lines, Restock: true, Reason: "r"})
	if !errors.Is(err, inventory.ErrLocationNotFound) {
		t.Errorf("a return to a deleted location: %v", err)
	}
	w.stockAt("mug", "shop", 4)
	if k := w.sku("mug"); k.OnHand != 4 || len(k.Locations) != 2 {
		t.Errorf("made again: %+v", k)
	}
}

// A hold that has expired doesn't keep its location in use; one that hasn't does.
func TestExpiredHoldsDoNotKeepALocationInUse(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	minus := int64(1)
	w.stockAt("mug", "shop", 1)
	w.put(inventory.Settings{SKU: "mug", BackorderLimit: inventory.Change[int64]{Set: true, Value: &minus}})
	r := w.hold(one("mug", 1))
	if err := w.store().DeleteLocation(t.Context(), caller, "shop"); !errors.Is(err, inventory.ErrLocationInUse) {
		t.Errorf("with a hold: %v", err)
	}
	w.expire(r)
	if _, _, err := w.store().Adjust(t.Context(), caller, inventory.Adjustment{SKU: "mug", Location: "shop", Delta: -1, Reason: "r"}); err != nil {
		t.Fatal(err)
	}
	if err := w.store().DeleteLocation(t.Context(), caller, "shop"); err != nil {
		t.Errorf("with an expired hold: %v", err)
	}
}

// Stock never lands at a location that is deleted at the same time.
func TestDeleteALocationAgainstADelivery(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	for range 20 {
		w.stockAt("mug", "shop", 0)
		w.race(4, func(i int, s *inventory.Store) error {
			if i == 0 {
				return s.DeleteLocation(t.Context(), caller, "shop")
			}
			_, _, err := s.Adjust(t.Context(), caller, inventory.Adjustment{SKU: "mug", Location: "shop", Delta: 1, Reason: "r"})
			return err
		}, inventory.ErrLocationInUse, inventory.ErrLocationNotFound)
		var stray int
		w.db.Scan(t, `SELECT count(*) FROM inventory.stock s WHERE location = 'shop' AND on_hand > 0
			AND NOT EXISTS (SELECT 1 FROM inventory.locations l WHERE l.tenant = s.tenant AND l.location = s.location)`, nil, &stray)
		if stray > 0 {
			t.Fatal("units lie at a location that isn't there")
		}
		left := w.sku("mug").OnHand
		if left > 0 {
			if _, _, err := w.store().Adjust(t.Context(), caller, inventory.Adjustment{SKU: "mug", Location: "shop", Delta: -left, Reason: "r"}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A shelf that was closed is opened again under the locks of all of its SKU's rows, taken in their order: while it waits for
// the first of them, it holds none.
func TestOpeningAShelfKeepsTheLockOrder(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.stockAt("mug", "attic", 0, "shop", 0)
	for _, location := range []string{"attic", "shop"} {
		if _, _, err := w.store().Adjust(t.Context(), caller, inventory.Adjustment{SKU: "mug", Location: location, Delta: 1, Reason: "r"}); err != nil {
			t.Fatal(err)
		}
	}
	w.db.Exec(t, `UPDATE inventory.stock SET active = false WHERE location = 'shop'`)
	rival, err := w.db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lock := func(location string) error {
		_, err := rival.Exec(t.Context(), "SELECT 1 FROM inventory.stock WHERE location = $1 FOR UPDATE NOWAIT", location)
		return err
	}
	if err := lock("attic"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, _, err := w.store().Adjust(t.Context(), caller, inventory.Adjustment{SKU: "mug", Location: "shop", Delta: 1, Reason: "r"})
		done <- err
	}()
	w.awaitLockWait(1)
	for _, location := range []string{"default", "shop"} {
		if err := lock(location); err != nil {
			t.Errorf("while it waits for attic, it holds %s: %v", location, err)
		}
	}
	if err := rival.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
