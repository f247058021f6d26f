package inventory_test

import (
	"testing"

	"holdfast/inventory"
)

func TestLatestEntriesReadBackwards(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 5)
	w.receive("plate", 5)
	for range 3 {
		w.hold(one("mug", 1))
	}
	forward, err := w.store().Ledger(t.Context(), tenant, "mug", 0, 10)
	if err != nil || len(forward) != 4 {
		t.Fatalf("ledger: %+v, %v", forward, err)
	}
	var backward []inventory.Entry
	for before := int64(0); ; {
		page, err := w.store().LatestEntries(t.Context(), tenant, "mug", before, 3)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		backward = append(backward, page...)
		before = page[len(page)-1].Seq
	}
	if len(backward) != len(forward) {
		t.Fatalf("%d entries backwards, want %d", len(backward), len(forward))
	}
	for i, e := range backward {
		if want := forward[len(forward)-1-i]; e.Seq != want.Seq || e.Held != want.Held || !e.At.Equal(want.At) {
			t.Errorf("entry %d from the end is %+v, want %+v", i, e, want)
		}
	}
	for _, other := range []struct{ tenant, sku string }{{"another", "mug"}, {tenant, "none"}} {
		if found, err := w.store().LatestEntries(t.Context(), other.tenant, other.sku, 0, 3); err != nil || len(found) > 0 {
			t.Errorf("%v: %+v, %v", other, found, err)
		}
	}
}
