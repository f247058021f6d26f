package inventory_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"holdfast/inventory"
)

// fillLine puts n places, of one unit each unless wants says else, at the end of a line.
func (w *warehouse) fillLine(sku string, n int, wants string) {
	w.Helper()
	w.db.Exec(w, `
		WITH places AS (
			INSERT INTO inventory.waitlist (id, tenant, sku, seq, quantity, customer, hold_ttl, created_at, expires_at)
			SELECT (lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || '7000a' || lpad(to_hex(n), 15, '0'))::uuid, $1, $2, n, `+wants+`,
			       'customer-' || n, interval '1 h', clock_timestamp(), clock_timestamp() + interval '1 h' FROM generate_series(1, $3::bigint) n
			RETURNING seq
		), blocks AS (
			INSERT INTO inventory.waitlist_blocks (tenant, sku, block, waiting) SELECT $1, $2, seq / 1000, count(*) FROM places GROUP BY seq / 1000
		)
		UPDATE inventory.stock SET waiting = $3 WHERE tenant = $1 AND sku = $2`, tenant, sku, n)
}

// More places than one transaction serves: what is still free is theirs, until somebody has come back for them.
func TestALongLineIsServedInSteps(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.put(inventory.Settings{SKU: "mug"})
	w.fillLine("mug", 3000, "1")
	w.receive("mug", 3100)
	if k := w.sku("mug"); k.Held < 100 || k.Held > 1500 {
		t.Errorf("%d held in one transaction", k.Held)
	}
	if _, _, err := w.store().Reserve(t.Context(), caller, one("mug", 1)); !errors.Is(err, inventory.ErrSoldOut) {
		t.Errorf("a reserve, while the line is being served: %v", err)
	}
	w.keepLines()
	w.wantCounts("mug", 3100, 3000, 0)
	w.hold(one("mug", 100))
}

// A batch that frees for a long line does the same.
func TestABatchLeavesALongLineWhatIsItsOwn(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 3000)
	held := w.hold(one("mug", 3000))
	w.fillLine("mug", 3000, "1")
	w.race(6, func(i int, s *inventory.Store) error {
		if i == 0 {
			_, _, err := s.Release(t.Context(), caller, inventory.Release{ID: held.ID})
			return err
		}
		if _, _, err := s.Reserve(t.Context(), caller, one("mug", 1)); !errors.Is(err, inventory.ErrSoldOut) {
			return fmt.Errorf("a reserve before the line: %w", err)
		}
		return nil
	})
	w.keepLines()
	w.wantCounts("mug", 3000, 3000, 0)
}

// The places at the head want more than there is, and the window of those that are read is full of them.
func TestWhoCanBeServedIsFoundFarBehind(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.put(inventory.Settings{SKU: "mug"})
	w.fillLine("mug", 400, "CASE WHEN n = 1 THEN 2 WHEN n = 390 THEN 1 ELSE 2 END")
	w.receive("mug", 3)
	w.wantCounts("mug", 3, 3, 0)
}

func TestPositionsInALongLine(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.put(inventory.Settings{SKU: "mug"})
	w.fillLine("mug", 3500, "1")
	places, err := w.store().ListPlaces(t.Context(), tenant, "mug", "", 0, 3500)
	if err != nil || len(places) != 3500 {
		t.Fatalf("%d places, %v", len(places), err)
	}
	gone := map[int]bool{}
	for range 100 {
		n := rand.IntN(len(places))
		if gone[n] = true; n%3 == 0 {
			w.lapse(places[n])
		} else if err := w.leave(places[n]); err != nil {
			t.Fatal(err)
		}
	}
	check := func() {
		t.Helper()
		position := int64(0)
		for n, p := range places {
			if gone[n] {
				continue
			}
			position++
			if n%50 == 0 || n > 3450 {
				if got := w.place(p); got.Position != position {
					t.Errorf("place %d has position %d, want %d", n, got.Position, position)
				}
			}
		}
		half, err := w.store().ListPlaces(t.Context(), tenant, "mug", "", 1750, 10)
		if err != nil || len(half) != 10 || half[0].Position != w.place(half[0]).Position || half[9].Position != half[0].Position+9 {
			t.Errorf("in the middle: %+v, %v", half, err)
		}
	}
	check()
	w.keepLines()
	check()
	if last := w.join("mug", 1, "last"); last.Position != int64(3500-len(gone)+1) {
		t.Errorf("the last has position %d of %d", last.Position, 3500-len(gone)+1)
	}
}

// Units that come back on both replicas at once, while others want them: each place is offered what it wants, once.
func TestOffersAreMadeOnce(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 40)
	var held []inventory.Reservation
	for range 40 {
		held = append(held, w.hold(one("mug", 1)))
	}
	w.expire(held[20:30]...)
	var places []inventory.Place
	for i := range 30 {
		places = append(places, w.join("mug", 1, fmt.Sprintf("customer-%d", i)))
	}
	w.race(70, func(i int, s *inventory.Store) error {
		switch {
		case i < 20:
			_, _, err := s.Release(t.Context(), caller, inventory.Release{ID: held[i].ID})
			return err
		case i < 25:
			_, _, err := s.ReapOnce(t.Context())
			return err
		case i < 30:
			_, err := s.KeepLines(t.Context())
			return err
		case i < 40:
			return s.Leave(t.Context(), caller, places[i-10].ID)
		}
		_, _, err := s.Reserve(t.Context(), caller, one("mug", 1))
		return err
	}, inventory.ErrSoldOut)
	for _, p := range places[:20] {
		if got := w.place(p); got.Status != inventory.Offered {
			t.Errorf("%+v", got)
		}
	}
}

// A place whose time runs out, or that is gone, between the decision and the writing isn't offered anything: it is decided anew.
func TestAnOfferIsMadeInTimeOrNotAtAll(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 2)
	w.receive("plate", 1)
	mugs, plate := w.hold(one("mug", 2)), w.hold(one("plate", 1))
	ann, bob, cy := w.join("mug", 1, "ann"), w.join("mug", 1, "bob"), w.join("plate", 1, "cy")
	// Once, when the first hold is made for each, time passes.
	w.db.Exec(t, `
		CREATE SEQUENCE inventory.moments;
		CREATE FUNCTION inventory.pass_time() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF nextval('inventory.moments') <= 2 THEN
				UPDATE inventory.waitlist SET expires_at = clock_timestamp() - interval '1 s' WHERE reference_of(id) = NEW.reference;
			END IF;
			RETURN NEW;
		END $$;
		CREATE FUNCTION reference_of(id uuid) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'waitlist:' || id $$;
		CREATE TRIGGER pass_time AFTER INSERT ON inventory.reservations FOR EACH ROW WHEN (NEW.reference LIKE 'waitlist:%') EXECUTE FUNCTION inventory.pass_time()`)
	if err := w.release(mugs.ID); err != nil {
		t.Fatal(err)
	}
	w.expire(plate)
	w.reap(0)
	w.wantPlaces(map[*inventory.Place]any{&ann: inventory.Offered, &bob: inventory.Offered, &cy: inventory.Offered})
	w.wantCounts("mug", 2, 2, 0)
	w.wantCounts("plate", 1, 1, 0)
}

// A count of the line that is too low, which Verify finds, keeps nothing from being given back.
func TestAWrongCountHoldsUpNothing(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 2)
	held := w.hold(one("mug", 2))
	ann, bob := w.join("mug", 1, "ann"), w.join("mug", 1, "bob")
	w.db.Exec(t, "UPDATE inventory.stock SET waiting = 1 WHERE sku = 'mug'")
	if err := w.release(held.ID); err != nil {
		t.Fatal(err)
	}
	w.wantPlaces(map[*inventory.Place]any{&ann: inventory.Offered, &bob: inventory.Offered})
}

// One line that can't be kept holds up no other.
func TestALineThatCannotBeKeptHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.put(inventory.Settings{SKU: "mug"})
	w.put(inventory.Settings{SKU: "plate"})
	w.db.Exec(t, "ALTER TABLE inventory.waitlist_history ADD CHECK (customer <> 'ann')")
	ann, bob := w.join("mug", 1, "ann"), w.join("plate", 1, "bob")
	w.lapse(ann, bob)
	w.keepLines()
	w.wantPlaces(map[*inventory.Place]any{&ann: inventory.Lapsed, &bob: inventory.Lapsed})
	if n, err := w.store().CountWaiting(t.Context(), tenant, "plate"); err != nil || n != 0 {
		t.Errorf("%d wait, %v", n, err)
	}
}

func TestVerifyCountsLines(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.put(inventory.Settings{SKU: "mug"})
	w.put(inventory.Settings{SKU: "plate"})
	w.fillLine("mug", 2100, "1")
	w.db.Exec(t, "UPDATE inventory.stock SET waiting = 7 WHERE sku = 'mug'")
	w.db.Exec(t, "UPDATE inventory.stock SET waiting = 3 WHERE sku = 'plate'")
	w.db.Exec(t, "DELETE FROM inventory.waitlist_blocks WHERE sku = 'mug' AND block = 1")
	w.db.Exec(t, "INSERT INTO inventory.waitlist_blocks VALUES ('acme', 'mug', 9, 5)")
	want := map[string][2]int64{"mug waiting": {7, 2100}, "mug waiting in the wrong block": {1005, 0}, "plate waiting": {3, 0}}
	for _, repair := range []bool{false, true} {
		found, err := inventory.Verify(t.Context(), w.db.Pool, repair)
		if err != nil || len(found) != len(want) {
			t.Fatalf("found %v, %v", found, err)
		}
		for _, d := range found {
			if want[d.SKU+" "+d.Counter] != [2]int64{d.Is, d.ShouldBe} || d.Repaired != repair {
				t.Errorf("found %+v", d)
			}
		}
	}
	w.checkInvariants()
}

// A place is kept as long as other history.
func TestPlacesThatAreOverAreDroppedByTheMonth(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.put(inventory.Settings{SKU: "mug"})
	p := w.join("mug", 1, "ann")
	if err := w.leave(p); err != nil {
		t.Fatal(err)
	}
	var before, after int
	const partitions = `SELECT count(*) FROM pg_inherits WHERE inhparent = 'inventory.waitlist_history'::regclass`
	if err := inventory.EnsurePartitions(t.Context(), w.db.Pool); err != nil {
		t.Fatal(err)
	}
	w.db.Scan(t, partitions, nil, &before)
	if _, err := inventory.DropHistory(t.Context(), w.db.Pool, -40*24*time.Hour); err != nil {
		t.Fatal(err)
	}
	w.db.Scan(t, partitions, nil, &after)
	if _, err := w.store().GetPlace(t.Context(), tenant, p.ID); !errors.Is(err, inventory.ErrPlaceNotFound) || after >= before {
		t.Errorf("%d partitions of %d are left, %v", after, before, err)
	}
}
