package inventory_test

import (
	"errors"
	"net/url"
	"testing"
	"time"

	"holdfast/internal/pg"
	"holdfast/inventory"
)

// Faults that users of other systems have reported, as behaviour to have. Those that a rule of this package is
// about are tested where the rule is, under names of the same kind.

// Neither a failed nor a repeated command makes a hold longer, and an extension has a cap.
func TestPitfall06NothingButExtendExtends(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 5)
	s := w.store()
	cmd := one("mug", 2)
	cmd.TTL = 10 * time.Minute
	r, _, err := s.Reserve(t.Context(), withKey("k"), cmd)
	if err != nil {
		t.Fatal(err)
	}
	same := func(what string) {
		t.Helper()
		if got, err := s.GetReservation(t.Context(), tenant, r.ID); err != nil || !got.ExpiresAt.Equal(r.ExpiresAt) {
			t.Errorf("%s: expires at %v, %v; want %v as before", what, got.ExpiresAt, err, r.ExpiresAt)
		}
	}
	again, replayed, err := s.Reserve(t.Context(), withKey("k"), cmd)
	if err != nil || !replayed || !again.ExpiresAt.Equal(r.ExpiresAt) {
		t.Errorf("repeated: %v, %t, %v", again.ExpiresAt, replayed, err)
	}
	same("a repeated reserve")
	if _, _, err := s.Confirm(t.Context(), caller, inventory.Confirmation{ID: r.ID, Lines: one("mug", 3).Lines}); !errors.Is(err, inventory.ErrOverConfirmed) {
		t.Fatal(err)
	}
	same("a failed confirm")
	if _, _, err := s.Extend(t.Context(), caller, inventory.Extension{ID: r.ID, TTL: 2 * time.Hour}); !errors.Is(err, inventory.ErrExtensionLimit) {
		t.Errorf("past the cap: %v", err)
	}
	same("an extension past the cap")
	if _, _, err := s.Extend(t.Context(), caller, inventory.Extension{ID: r.ID, TTL: time.Minute}); err != nil {
		t.Error(err)
	}
	same("an extension that would end sooner")
	longer, _, err := s.Extend(t.Context(), withKey("e"), inventory.Extension{ID: r.ID, TTL: 20 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	twice, replayed, err := s.Extend(t.Context(), withKey("e"), inventory.Extension{ID: r.ID, TTL: 20 * time.Minute})
	if err != nil || !replayed || !twice.ExpiresAt.Equal(longer.ExpiresAt) {
		t.Errorf("a repeated extension: %v, %t, %v; want %v", twice.ExpiresAt, replayed, err, longer.ExpiresAt)
	}
}

// Time is the database's, in durations: neither the session's zone nor the server's has a say.
func TestPitfall10NoLocalTime(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 3)
	address, err := url.Parse(w.db.URL)
	if err != nil {
		t.Fatal(err)
	}
	query := address.Query()
	query.Set("timezone", "Asia/Kathmandu")
	address.RawQuery = query.Encode()
	pool, err := pg.OpenPool(t.Context(), address.String(), pg.PoolOptions{MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	clock, err := pg.NewClock(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	away := inventory.NewStore(pool, clock, inventory.Options{})
	cmd := one("mug", 1)
	cmd.TTL = time.Minute
	r, _, err := away.Reserve(t.Context(), withKey("k"), cmd)
	if err != nil {
		t.Fatal(err)
	}
	if d := r.ExpiresAt.Sub(r.CreatedAt); d != time.Minute || r.ExpiresAt.Location() != time.UTC {
		t.Errorf("holds for %v, until %v", d, r.ExpiresAt)
	}
	replayed, _, err := away.Reserve(t.Context(), withKey("k"), cmd)
	if err != nil || replayed.ExpiresAt != r.ExpiresAt {
		t.Errorf("repeated: until %v, %v; want %v", replayed.ExpiresAt, err, r.ExpiresAt)
	}
	if got, err := w.store().GetReservation(t.Context(), tenant, r.ID); err != nil || got.Status != inventory.Held || !got.ExpiresAt.Equal(r.ExpiresAt) {
		t.Errorf("read by a replica at home: %+v, %v", got, err)
	}
	w.expire(r)
	if got, err := away.GetReservation(t.Context(), tenant, r.ID); err != nil || got.Status != inventory.Expired {
		t.Errorf("run out, and read away: %+v, %v", got, err)
	}
	if _, _, err := away.Reserve(t.Context(), caller, one("mug", 3)); err != nil {
		t.Errorf("what has run out isn't free away: %v", err)
	}
}

// What storefronts read has the holds taken off already, and no replica decides by what it has seen before.
func TestPitfall16AvailabilityIsOfTheInstant(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 3)
	r := w.hold(one("mug", 2))
	if k := w.sku("mug"); k.Available != 1 || k.Held != 2 {
		t.Errorf("2 of 3 held: %d available, %d held", k.Available, k.Held)
	}
	if list, err := w.store().ListSKUs(t.Context(), tenant, "", 10); err != nil || list[0].Available != 1 {
		t.Errorf("in a list: %+v, %v", list, err)
	}
	for i := range w.replicas { // both have seen it sold out
		if _, _, err := w.replicas[i].Reserve(t.Context(), caller, one("mug", 2)); !errors.Is(err, inventory.ErrSoldOut) {
			t.Fatal(err)
		}
	}
	if _, _, err := w.replicas[0].Release(t.Context(), caller, inventory.Release{ID: r.ID}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.replicas[1].Reserve(t.Context(), caller, one("mug", 3)); err != nil {
		t.Errorf("released through the other replica: %v", err)
	}
}
