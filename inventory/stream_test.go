package inventory_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"holdfast/inventory"
)

// listen begins to listen.
func (w *warehouse) listen(s *inventory.Store, lastly string, skus ...string) *inventory.Listener {
	w.Helper()
	l, err := s.Listen(w.Context(), tenant, skus, lastly)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(l.Close)
	return l
}

// hear waits until an update satisfies, and returns its id.
func (w *warehouse) hear(l *inventory.Listener, what string, satisfies func(inventory.State) bool) string {
	w.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		updates, err := l.Next(w.Context(), time.Second)
		if err != nil {
			w.Fatalf("%s: %v", what, err)
		}
		for _, u := range updates {
			var s inventory.State
			if err := json.Unmarshal([]byte(u.Data), &s); err != nil {
				w.Fatal(err)
			}
			if satisfies(s) {
				return u.ID
			}
		}
	}
	w.Fatalf("never heard: %s", what)
	return ""
}

func available(sku string, n int64) func(inventory.State) bool {
	return func(s inventory.State) bool { return s.SKU == sku && s.Available == n }
}

func TestStreamTellsTheNewestState(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 10)
	w.receive("cup", 7)
	w.run(w.replicas[1])
	mug, all := w.listen(w.replicas[1], "", "mug"), w.listen(w.replicas[1], "")
	w.hear(mug, "the state first", available("mug", 10))
	w.hear(all, "the state of all first", available("cup", 7))
	h := w.hold(one("mug", 4)) // through the other replica
	w.hear(all, "a hold, among all", available("mug", 6))
	id := w.hear(mug, "a hold", func(s inventory.State) bool { return s.Held == 4 && s.Available == 6 && s.OnHand == 10 })
	if err := w.confirm(h.ID); err != nil {
		t.Fatal(err)
	}
	w.hear(mug, "a sale", func(s inventory.State) bool { return s.Sold == 4 && s.OnHand == 6 && s.Held == 0 })

	// Who comes back gets what has changed since, on whatever replica, and nothing else once that replica has seen as
	// much; until then everything.
	w.run(w.replicas[0])
	for deadline := time.Now().Add(20 * time.Second); ; {
		back, unchanged := w.listen(w.replicas[0], id, "mug", "cup"), false
		w.hear(back, "the sale, later", func(s inventory.State) bool {
			unchanged = unchanged || s.SKU == "cup"
			return s.SKU == "mug" && s.Sold == 4
		})
		if !unchanged {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("cup hasn't changed, and is told of each time")
		}
	}
	unknown := w.listen(w.replicas[0], "9999999999", "cup")
	w.hear(unknown, "everything, for an id that says nothing", available("cup", 7))
	backAll := w.listen(w.replicas[0], id)
	w.hear(backAll, "the sale, among all", func(s inventory.State) bool { return s.Sold == 4 })
	if _, err := w.store().Listen(t.Context(), tenant, []string{"none"}, ""); !errors.Is(err, inventory.ErrSKUNotFound) {
		t.Errorf("an unknown SKU: %v", err)
	}
}

// Time frees units without an entry in the ledger: the reaper of this replica can't pass.
func TestStreamTellsOfExpiryWithoutAReaper(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 10)
	h := w.hold(one("mug", 4))
	w.db.Exec(t, `UPDATE inventory.reservations SET reap_after = 'infinity' WHERE id = $1`, h.ID)
	w.run(w.replicas[0])
	l := w.listen(w.replicas[0], "", "mug")
	w.hear(l, "the hold", available("mug", 6))
	w.db.Exec(t, `UPDATE inventory.reservations SET expires_at = clock_timestamp() + interval '300 ms' WHERE id = $1`, h.ID)
	w.hear(l, "its end", available("mug", 10))
	var entries int
	w.db.Scan(t, `SELECT count(*) FROM inventory.ledger WHERE kind = 'expire'`, nil, &entries)
	if entries != 0 {
		t.Error("the reaper has passed")
	}
}

func TestStreamBoundsItsListeners(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	s := w.newStore(inventory.Options{MaxListeners: 4})
	for range 3 {
		w.listen(s, "")
	}
	if _, err := s.Listen(t.Context(), tenant, nil, ""); !errors.Is(err, inventory.ErrTenantListeners) {
		t.Errorf("the tenant's fourth: %v", err)
	}
	other, err := s.Listen(t.Context(), "another", nil, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Listen(t.Context(), "a third", nil, ""); !errors.Is(err, inventory.ErrTooManyListeners) {
		t.Errorf("the fifth of all: %v", err)
	}
	other.Close()
	last, err := s.Listen(t.Context(), "a third", nil, "")
	if err != nil {
		t.Errorf("when there is room again: %v", err)
	} else {
		last.Close()
	}
}

// A list of all SKUs is read in parts.
func TestStreamOfManySKUs(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	const n = 1201
	w.db.Exec(t, `INSERT INTO inventory.skus (tenant, sku) SELECT $1, 'sku-' || i FROM generate_series(1, $2) i`, tenant, n)
	w.db.Exec(t, `INSERT INTO inventory.stock (tenant, sku, location) SELECT tenant, sku, 'default' FROM inventory.skus`)
	w.run(w.replicas[0])
	l := w.listen(w.replicas[0], "")
	seen := map[string]bool{}
	w.hear(l, fmt.Sprint(n, " SKUs"), func(s inventory.State) bool {
		seen[s.SKU] = true
		return len(seen) == n
	})
}
