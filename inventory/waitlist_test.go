package inventory_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"holdfast/internal/pg"
	"holdfast/inventory"
)

// join takes a place in a line and must succeed.
func (w *warehouse) join(sku string, quantity int64, customer string) inventory.Place {
	w.Helper()
	p, _, err := w.store().Join(w.Context(), caller, inventory.Join{SKU: sku, Quantity: quantity, Customer: customer, TTL: time.Hour})
	if err != nil {
		w.Fatalf("join: %v", err)
	}
	return p
}

// place reads one on the other replica.
func (w *warehouse) place(p inventory.Place) inventory.Place {
	w.Helper()
	p, err := w.replicas[1].GetPlace(w.Context(), tenant, p.ID)
	if err != nil {
		w.Fatal(err)
	}
	return p
}

// wantPlaces checks where places stand: a position, or how the waiting ended.
func (w *warehouse) wantPlaces(want map[*inventory.Place]any) {
	w.Helper()
	for of, want := range want {
		p := w.place(*of)
		var is any = p.Status
		if p.Status == inventory.Waiting {
			is = int(p.Position)
		}
		if is != want {
			w.Errorf("the place of %s is %v (%+v), want %v", p.Customer, is, p, want)
		}
	}
}

func (w *warehouse) leave(p inventory.Place) error {
	return w.replicas[1].Leave(w.Context(), caller, p.ID)
}

// lapse lets places' time run out, without anybody noticing.
func (w *warehouse) lapse(places ...inventory.Place) {
	w.Helper()
	for _, p := range places {
		w.db.Exec(w, "UPDATE inventory.waitlist SET expires_at = clock_timestamp() - interval '1 s' WHERE id = $1", p.ID)
	}
}

func (w *warehouse) keepLines() {
	w.Helper()
	for full := true; full; {
		var err error
		if full, err = w.replicas[1].KeepLines(w.Context()); err != nil {
			w.Fatal(err)
		}
	}
}

// checkNobodyWaitsForNothing verifies that no place waits that what is free could serve: this holds after every commit.
func (w *warehouse) checkNobodyWaitsForNothing() {
	w.Helper()
	var n int
	w.db.Scan(w, `SELECT count(*) FROM inventory.waitlist w JOIN LATERAL (
		SELECT sum(s.on_hand + s.backorder_limit - s.safety_stock - s.held) AS units FROM inventory.stock s WHERE s.tenant = w.tenant AND s.sku = w.sku) free
	    ON w.quantity <= free.units WHERE w.expires_at > clock_timestamp()`, nil, &n)
	if n > 0 {
		w.Errorf("%d places wait for what is free", n)
	}
}

// checkLines verifies what waiting lists promise, beside what Verify does: whoever waits can't be served by what
// is free, each offer was made once, and nobody was overtaken.
func (w *warehouse) checkLines() {
	w.Helper()
	w.checkNobodyWaitsForNothing()
	for what, sql := range map[string]string{
		"places that wait and are over": `SELECT count(*) FROM inventory.waitlist JOIN inventory.waitlist_history USING (tenant, id)`,
		"offers that weren't announced once, or not by their hold": `
			SELECT count(*) FROM inventory.waitlist_history h WHERE status = 'offered' AND (
				SELECT array_agg(kind || coalesce(event, '') ORDER BY seq) FROM inventory.ledger l
				 WHERE l.tenant = h.tenant AND l.reservation_id = h.reservation_id AND l.reference = 'waitlist:' || h.id AND (kind = 'offer' OR event = 'reservation.held'))
			    IS DISTINCT FROM '{holdreservation.held,offerwaitlist.offered}'`,
		"offers to whom had waited their time": `SELECT count(*) FROM inventory.waitlist_history WHERE status = 'offered' AND expires_at < settled_at - interval '5 ms'`,
		"announced offers that nobody got": `
			SELECT count(*) FROM inventory.ledger l WHERE event = 'waitlist.offered' AND NOT EXISTS (
				SELECT FROM inventory.waitlist_history h WHERE h.tenant = l.tenant AND h.reservation_id = l.reservation_id AND h.status = 'offered')`,
		// Somebody else's hold is unfair if a place that waited at that moment could have been served by what was free. Those that
		// were served, or refused for their limit, by the same transaction stood before it.
		"holds that overtook somebody": `
			WITH changes AS (
				SELECT l.*, l.xmin AS tx, s.backorder_limit - s.safety_stock + (
				         SELECT sum(b.on_hand - b.held) FROM (
				           SELECT DISTINCT ON (b.location) b.on_hand, b.held FROM inventory.ledger b
				            WHERE b.tenant = l.tenant AND b.sku = l.sku AND b.seq < l.seq ORDER BY b.location, b.seq DESC) b) AS free
				  FROM inventory.ledger l JOIN inventory.stock s ON s.tenant = l.tenant AND s.sku = l.sku AND s.location = 'default'
				 WHERE (kind = 'hold' AND actor <> 'waitlist') OR kind = 'retake'
			), places AS (
				SELECT tenant, sku, quantity, created_at, expires_at, 'infinity'::timestamptz AS ended, NULL::bigint AS offer, NULL::xid AS refused_by FROM inventory.waitlist
				UNION ALL
				SELECT h.tenant, h.sku, quantity, created_at, expires_at, settled_at, o.seq, CASE WHEN h.reason = 'customer_limit' THEN h.xmin END
				  FROM inventory.waitlist_history h LEFT JOIN inventory.ledger o ON o.tenant = h.tenant AND o.reservation_id = h.reservation_id AND o.kind = 'offer'
			)
			SELECT count(*) FROM changes c JOIN places p USING (tenant, sku)
			 WHERE p.quantity <= c.free AND p.created_at < c.at AND c.at < p.expires_at AND c.at < p.ended AND c.seq < coalesce(p.offer, c.seq + 1)
			   AND p.refused_by IS DISTINCT FROM c.tx`,
	} {
		var n int
		w.db.Scan(w, sql, nil, &n)
		if n > 0 {
			w.Errorf("%d %s", n, what)
		}
	}
}

func TestTheLineIsServedInOrderAndBeforeAnybodyElse(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 2)
	first, second := w.hold(one("mug", 1)), w.hold(one("mug", 1))
	ann, bob, cy := w.join("mug", 1, "ann"), w.join("mug", 1, "bob"), w.join("mug", 1, "cy")
	if ann.Position != 1 || cy.Position != 3 || ann.Status != inventory.Waiting {
		t.Errorf("places are %+v and %+v", ann, cy)
	}
	w.wantPlaces(map[*inventory.Place]any{&ann: 1, &bob: 2, &cy: 3})
	if err := w.release(first.ID); err != nil {
		t.Fatal(err)
	}
	w.wantPlaces(map[*inventory.Place]any{&ann: inventory.Offered, &bob: 1, &cy: 2})
	if _, _, err := w.replicas[1].Reserve(t.Context(), caller, one("mug", 1)); !errors.Is(err, inventory.ErrSoldOut) {
		t.Errorf("a reserve while others wait: %v", err)
	}
	offer := w.place(ann)
	r, err := w.store().GetReservation(t.Context(), tenant, *offer.ReservationID)
	if err != nil || r.Status != inventory.Held || r.Customer != "ann" || r.Reference != "waitlist:"+ann.ID.String() || r.ExpiresAt.Sub(r.CreatedAt) != time.Hour {
		t.Errorf("the offer is %+v, %v", r, err)
	}
	if offer.ReservationStatus != inventory.Held || offer.OfferExpiresAt == nil || !offer.OfferExpiresAt.Equal(r.ExpiresAt) || offer.EndedAt == nil {
		t.Errorf("the place is %+v", offer)
	}
	if err := errors.Join(w.confirm(*offer.ReservationID), w.release(second.ID)); err != nil {
		t.Fatal(err)
	}
	w.wantPlaces(map[*inventory.Place]any{&ann: inventory.Offered, &bob: inventory.Offered, &cy: 1})
	if p := w.place(ann); p.ReservationStatus != inventory.Confirmed {
		t.Errorf("a bought offer reads %+v", p)
	}
	// Released, it goes on to the next in the same step.
	if err := w.release(*w.place(bob).ReservationID); err != nil {
		t.Fatal(err)
	}
	w.wantPlaces(map[*inventory.Place]any{&bob: inventory.Left, &cy: inventory.Offered})
	w.wantCounts("mug", 1, 1, 1)
}

// Whatever brings units back, they are the line's by the time it is done.
func TestAllThatComesBackIsTheLines(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	ctx := t.Context()
	adjust := func(sku, location string, delta int64) error {
		_, _, err := w.store().Adjust(ctx, caller, inventory.Adjustment{SKU: sku, Location: location, Delta: delta, Reason: "r"})
		return err
	}
	put := func(s inventory.Settings) error {
		_, _, err := w.store().PutSKU(ctx, caller, s)
		return err
	}
	type bringBack = func(sku string, held inventory.Reservation) error
	for name, act := range map[string]bringBack{
		"release": func(_ string, held inventory.Reservation) error { return w.release(held.ID) },
		"part": func(sku string, held inventory.Reservation) error {
			_, _, err := w.store().Confirm(ctx, caller, inventory.Confirmation{ID: held.ID, Lines: []inventory.Line{{SKU: sku, Quantity: 2}}})
			return err
		},
		"reaper": func(_ string, held inventory.Reservation) error {
			w.expire(held)
			w.reap(1)
			return nil
		},
		"restock":    func(sku string, _ inventory.Reservation) error { return adjust(sku, "", 3) },
		"restock-at": func(sku string, _ inventory.Reservation) error { return adjust(sku, "attic", 3) },
		"count": func(sku string, _ inventory.Reservation) error {
			_, _, err := w.store().Count(ctx, caller, inventory.Count{SKU: sku, Counted: 8, Reason: "r"})
			return err
		},
		"backorder": func(sku string, _ inventory.Reservation) error {
			return put(inventory.Settings{SKU: sku, BackorderLimit: set(int64(3))})
		},
		"return": func(sku string, held inventory.Reservation) error {
			if err := w.confirm(held.ID); err != nil {
				return err
			}
			_, _, err := w.store().Return(ctx, caller, inventory.Return{ID: held.ID, Lines: []inventory.Line{{SKU: sku, Quantity: 3}}, Restock: true, Reason: "r"})
			return err
		},
		// Nobody has passed, but somebody comes who would take what has run out.
		"expiry seen by a reserve": func(sku string, held inventory.Reservation) error {
			w.expire(held)
			if _, _, err := w.store().Reserve(ctx, caller, one(sku, 3)); !errors.Is(err, inventory.ErrSoldOut) {
				return fmt.Errorf("the reserve: %w", err)
			}
			return nil
		},
		"expiry seen by a retake": func(sku string, held inventory.Reservation) error {
			w.expire(held)
			_, _, err := w.store().Confirm(ctx, caller, inventory.Confirmation{ID: held.ID, Retake: true})
			if !errors.Is(err, inventory.ErrExpiredSoldOut) {
				return fmt.Errorf("the retake: %w", err)
			}
			return nil
		},
		"expiry seen by a write-off": func(sku string, held inventory.Reservation) error {
			w.expire(held)
			return adjust(sku, "", -2)
		},
		"repair": func(sku string, held inventory.Reservation) error {
			w.db.Exec(w, "DELETE FROM inventory.reservations WHERE id = $1", held.ID)
			_, err := inventory.Verify(ctx, w.db.Pool, true)
			return err
		},
	} {
		sku := strings.ReplaceAll(name, " ", "-")
		w.receive(sku, 5)
		w.stockAt(sku, "attic", 1)
		held := w.hold(one(sku, 5))
		w.hold(one(sku, 1))
		p, next := w.join(sku, 3, "ann"), w.join(sku, 3, "bob")
		if err := act(sku, held); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name == "repair" {
			w.keepLines()
		}
		if got := w.place(p); got.Status != inventory.Offered {
			t.Errorf("%s: the place is %+v", name, got)
		}
		if got := w.place(next); got.Status != inventory.Waiting || got.Position != 1 {
			t.Errorf("%s: the next is %+v", name, got)
		}
	}
}

// What safety stock kept back is the line's too; and a SKU that is in an expired cart beside the one that is
// wanted has its line served.
func TestLinesOfOtherSKUsAreServedWithThem(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 1)
	w.receive("plate", 3)
	w.put(inventory.Settings{SKU: "spoon"})
	w.expire(w.hold(cart(map[string]int64{"mug": 1, "plate": 3})))
	ann := w.join("spoon", 1, "ann")
	w.db.Exec(t, "UPDATE inventory.reservations SET expires_at = clock_timestamp() + interval '1 h'")
	bob := w.join("plate", 2, "bob")
	w.db.Exec(t, "UPDATE inventory.reservations SET expires_at = clock_timestamp() - interval '1 s'")
	if _, _, err := w.store().Adjust(t.Context(), caller, inventory.Adjustment{SKU: "mug", Delta: -1, Reason: "broken"}); err != nil {
		t.Fatal(err)
	}
	w.wantPlaces(map[*inventory.Place]any{&ann: 1, &bob: inventory.Offered})
	w.wantCounts("plate", 3, 2, 0)
	w.put(inventory.Settings{SKU: "plate", SafetyStock: set(int64(1))})
	cy := w.join("plate", 1, "cy")
	w.wantPlaces(map[*inventory.Place]any{&cy: 1})
	w.put(inventory.Settings{SKU: "plate", SafetyStock: inventory.Change[int64]{Set: true}})
	w.wantPlaces(map[*inventory.Place]any{&cy: inventory.Offered})
}

// What deleting a SKU or a location gives back of expired carts is given to the lines of the other SKUs in them; and who
// joins finds free what has expired.
func TestExpiredCartsServeTheLinesBeside(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("plate", 3)
	w.put(inventory.Settings{SKU: "gone", BackorderLimit: set(int64(1))})
	w.stockAt("mug", "attic", 1)
	first, second := w.hold(cart(map[string]int64{"gone": 1, "plate": 1})), w.hold(cart(map[string]int64{"mug": 1, "plate": 1}))
	third := w.hold(one("plate", 1))
	ann, bob := w.join("plate", 1, "ann"), w.join("plate", 1, "bob")
	w.expire(first)
	if err := w.store().DeleteSKU(t.Context(), caller, "gone"); err != nil {
		t.Fatal(err)
	}
	w.wantPlaces(map[*inventory.Place]any{&ann: inventory.Offered, &bob: 1})
	w.db.Exec(t, "UPDATE inventory.reservations SET expires_at = clock_timestamp() + interval '1 h'")
	w.expire(second)
	// It has stock, so it stays; and nothing is served by a command that is refused.
	if err := w.store().DeleteLocation(t.Context(), caller, "attic"); !errors.Is(err, inventory.ErrLocationInUse) {
		t.Fatal(err)
	}
	w.wantPlaces(map[*inventory.Place]any{&bob: 1})
	w.db.Exec(t, "UPDATE inventory.reservations SET expires_at = clock_timestamp() + interval '1 h' WHERE id = $1", second.ID)
	w.expire(third)
	if cy := w.join("plate", 1, "cy"); cy.Position != 1 {
		t.Errorf("%+v", cy)
	}
	w.wantPlaces(map[*inventory.Place]any{&bob: inventory.Offered})
}

// A location where nothing is but a hold that has run out is deleted, and the rest of its cart is the line's.
func TestADeletedLocationServesTheLinesBeside(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("plate", 1)
	w.stockAt("mug", "attic", 1)
	cmd := inventory.Reserve{Lines: []inventory.Line{{SKU: "mug", Location: "attic", Quantity: 1}, {SKU: "plate", Quantity: 1}}}
	w.expire(w.hold(cmd))
	// Nobody gives it back while its unit is counted away beneath it.
	w.db.Exec(t, "UPDATE inventory.reservations SET reap_after = clock_timestamp() + interval '1 h'")
	ann := w.join("plate", 1, "ann")
	w.wantPlaces(map[*inventory.Place]any{&ann: 1})
	w.db.Exec(t, "UPDATE inventory.stock SET backorder_limit = 1, on_hand = 0, written_off = 1 WHERE sku = 'mug' AND location = 'attic'")
	w.db.Exec(t, `INSERT INTO inventory.ledger (tenant, sku, location, kind, delta_on_hand, delta_held, on_hand, held, actor) VALUES ('acme', 'mug', 'attic', 'write_off', -1, 0, 0, 1, 'test')`)
	w.db.Exec(t, "UPDATE inventory.reservations SET reap_after = '-infinity'")
	if err := w.store().DeleteLocation(t.Context(), caller, "attic"); err != nil {
		t.Fatal(err)
	}
	w.wantPlaces(map[*inventory.Place]any{&ann: inventory.Offered})
}

// A hold that has run out, with or without a reaper, is the line's first, even where there would be enough for whoever comes:
// together with what is free it serves the place.
func TestAReserveDoesNotOvertakeWhereNothingIsShort(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 2)
	old := w.hold(one("mug", 1))
	ann := w.join("mug", 2, "ann")
	w.wantPlaces(map[*inventory.Place]any{&ann: 1})
	w.expire(old)
	if _, _, err := w.store().Reserve(t.Context(), caller, one("mug", 1)); !errors.Is(err, inventory.ErrSoldOut) {
		t.Errorf("the reserve: %v", err)
	}
	w.wantPlaces(map[*inventory.Place]any{&ann: inventory.Offered})
}

// A place that wants more than is free doesn't keep it from those behind it, nor from anybody else.
func TestWhoCannotBeServedHoldsUpNobody(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 2)
	held := w.hold(one("mug", 2))
	ann, bob := w.join("mug", 5, "ann"), w.join("mug", 1, "bob")
	if err := w.release(held.ID); err != nil {
		t.Fatal(err)
	}
	w.wantPlaces(map[*inventory.Place]any{&ann: 1, &bob: inventory.Offered})
	if cy := w.join("mug", 1, "cy"); cy.Status != inventory.Offered || cy.Position != 0 || cy.ReservationID == nil {
		t.Errorf("units are free and nobody can have them: %+v", cy)
	}
	w.receive("mug", 1)
	w.hold(one("mug", 1)) // no use to ann
	w.receive("mug", 5)
	w.wantPlaces(map[*inventory.Place]any{&ann: inventory.Offered})
}

// A place lapses by time alone; it is passed over and, once moved, read the same.
func TestAPlaceLapses(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 1)
	held := w.hold(one("mug", 1))
	ann, bob, cy := w.join("mug", 1, "ann"), w.join("mug", 1, "bob"), w.join("mug", 1, "cy")
	w.lapse(ann)
	w.wantPlaces(map[*inventory.Place]any{&ann: inventory.Lapsed, &bob: 1, &cy: 2})
	again := w.join("mug", 1, "ann") // it doesn't count as waiting
	w.wantPlaces(map[*inventory.Place]any{&ann: inventory.Lapsed, &again: 3})
	w.lapse(bob)
	if err := w.leave(bob); err != nil {
		t.Errorf("leave what has lapsed: %v", err)
	}
	if err := w.release(held.ID); err != nil {
		t.Fatal(err)
	}
	w.wantPlaces(map[*inventory.Place]any{&bob: inventory.Lapsed, &cy: inventory.Offered, &again: 1})
	w.keepLines()
	w.wantPlaces(map[*inventory.Place]any{&bob: inventory.Lapsed, &again: 1})
	if p := w.place(bob); p.Reason != "expired" || p.Position != 0 {
		t.Errorf("%+v", p)
	}
	if n, err := w.store().CountWaiting(t.Context(), tenant, "mug"); err != nil || n != 1 {
		t.Errorf("%d wait, %v; want 1", n, err)
	}
	// An offer that runs out goes to the next.
	offer := *w.place(cy).ReservationID
	w.expire(inventory.Reservation{ID: offer})
	w.wantPlaces(map[*inventory.Place]any{&cy: inventory.Lapsed})
	w.reap(0)
	w.wantPlaces(map[*inventory.Place]any{&cy: inventory.Lapsed, &again: inventory.Offered})
	if p := w.place(cy); p.Reason != "offer_expired" || p.ReservationStatus != inventory.Expired {
		t.Errorf("%+v", p)
	}
}

func TestLeaving(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 1)
	held := w.hold(one("mug", 1))
	ann, bob, cy := w.join("mug", 1, "ann"), w.join("mug", 1, "bob"), w.join("mug", 1, "cy")
	for range 2 {
		if err := w.leave(ann); err != nil {
			t.Fatal(err)
		}
	}
	w.wantPlaces(map[*inventory.Place]any{&ann: inventory.Left, &bob: 1, &cy: 2})
	if err := w.release(held.ID); err != nil {
		t.Fatal(err)
	}
	for range 2 { // gives the offer to the next
		if err := w.leave(bob); err != nil {
			t.Fatal(err)
		}
	}
	w.wantPlaces(map[*inventory.Place]any{&bob: inventory.Left, &cy: inventory.Offered})
	if err := w.confirm(*w.place(cy).ReservationID); err != nil {
		t.Fatal(err)
	}
	if err := w.leave(cy); !errors.Is(err, inventory.ErrConfirmed) {
		t.Errorf("leave what is bought: %v", err)
	}
	if err := w.leave(inventory.Place{ID: uuid.New()}); !errors.Is(err, inventory.ErrPlaceNotFound) {
		t.Errorf("leave what never was: %v", err)
	}
}

// Two who leave at once are counted one after the other.
func TestLeavingAtOnce(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.put(inventory.Settings{SKU: "mug"})
	places := []inventory.Place{w.join("mug", 1, "ann"), w.join("mug", 1, "bob")}
	stock, err := w.db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stock.Exec(t.Context(), "SELECT 1 FROM inventory.stock FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 2)
	for i, p := range places {
		go func() { done <- w.replicas[i].Leave(t.Context(), caller, p.ID) }()
	}
	w.awaitLockWait(2)
	if err := stock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	w.wantPlaces(map[*inventory.Place]any{&places[0]: inventory.Left, &places[1]: inventory.Left})
}

func TestOnePlaceForEachCustomer(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.put(inventory.Settings{SKU: "mug"})
	w.put(inventory.Settings{SKU: "plate"})
	won := w.race(20, func(_ int, s *inventory.Store) error {
		_, _, err := s.Join(t.Context(), caller, inventory.Join{SKU: "mug", Quantity: 1, Customer: "ann", TTL: time.Hour})
		return err
	}, inventory.ErrAlreadyWaiting)
	if won != 1 {
		t.Errorf("%d places for one customer", won)
	}
	places, err := w.store().ListPlaces(t.Context(), tenant, "mug", "ann", 0, 10)
	if err != nil || len(places) != 1 {
		t.Fatalf("%v, %v", places, err)
	}
	_, _, err = w.store().Join(t.Context(), caller, inventory.Join{SKU: "mug", Quantity: 2, Customer: "ann", TTL: time.Hour})
	var already *inventory.AlreadyWaitingError
	if !errors.As(err, &already) || already.ID != places[0].ID {
		t.Errorf("again: %v", err)
	}
	w.join("plate", 1, "ann")
	// The same key is the same place, on either replica.
	ids := make(chan uuid.UUID, 10)
	w.race(10, func(_ int, s *inventory.Store) error {
		p, _, err := s.Join(t.Context(), withKey("k"), inventory.Join{SKU: "mug", Quantity: 1, Customer: "bob", TTL: time.Hour})
		ids <- p.ID
		return err
	})
	first := <-ids
	for range 9 {
		if id := <-ids; id != first {
			t.Errorf("places %s and %s for one key", first, id)
		}
	}
}

// Pitfall 17 for lines: the limit counts offers, on joining and when the turn comes.
func TestTheCustomersLimitHoldsForOffers(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("ticket", 4)
	w.put(inventory.Settings{SKU: "ticket", MaxPerCustomer: set(int64(2))})
	of := func(customer string, units int64) inventory.Reserve {
		cmd := one("ticket", units)
		cmd.Customer = customer
		return cmd
	}
	held := w.hold(of("cy", 2))
	w.hold(of("ann", 1))
	ann := w.join("ticket", 1, "ann")
	if ann.Status != inventory.Offered {
		t.Fatalf("%+v", ann)
	}
	_, _, err := w.store().Join(t.Context(), caller, inventory.Join{SKU: "ticket", Quantity: 1, Customer: "ann", TTL: time.Hour})
	if !errors.Is(err, inventory.ErrCustomerLimit) {
		t.Errorf("join beyond the limit: %v", err)
	}
	bob, dan, eve := w.join("ticket", 1, "bob"), w.join("ticket", 2, "dan"), w.join("ticket", 1, "eve")
	// Meanwhile bob gets others.
	w.db.Exec(t, "INSERT INTO inventory.customer_units (tenant, customer, sku, units) VALUES ('acme', 'bob', 'ticket', 2)")
	if err := w.release(held.ID); err != nil {
		t.Fatal(err)
	}
	w.wantPlaces(map[*inventory.Place]any{&bob: inventory.Lapsed, &dan: inventory.Offered, &eve: 1})
	if p := w.place(bob); p.Reason != "customer_limit" {
		t.Errorf("%+v", p)
	}
}

func TestADeletedSKUHasNoLine(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.put(inventory.Settings{SKU: "mug"})
	join := inventory.Join{SKU: "mug", Quantity: 1, Customer: "bob", TTL: time.Hour}
	ann, bob := w.join("mug", 1, "ann"), w.join("mug", 1, "bob")
	w.lapse(bob)
	if err := w.store().DeleteSKU(t.Context(), caller, "mug"); err != nil {
		t.Fatal(err)
	}
	w.wantPlaces(map[*inventory.Place]any{&ann: inventory.Lapsed, &bob: inventory.Lapsed})
	if p, q := w.place(ann), w.place(bob); p.Reason != "sku_deleted" || q.Reason != "expired" {
		t.Errorf("%+v, %+v", p, q)
	}
	if _, _, err := w.store().Join(t.Context(), caller, join); !errors.Is(err, inventory.ErrSKUNotFound) {
		t.Errorf("join: %v", err)
	}
	w.receive("mug", 1)
	if p, _, err := w.store().Join(t.Context(), caller, join); err != nil || p.Status != inventory.Offered {
		t.Errorf("in the line of the new one: %+v, %v", p, err)
	}
}

// Of bad input nothing stays, and other tenants see nothing.
func TestJoinRefusals(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.put(inventory.Settings{SKU: "mug"})
	good := inventory.Join{SKU: "mug", Quantity: 1, Customer: "ann", TTL: time.Hour}
	for field, spoil := range map[string]func(*inventory.Join){
		"sku":      func(j *inventory.Join) { j.SKU = "a mug" },
		"quantity": func(j *inventory.Join) { j.Quantity = 0 },
		"customer": func(j *inventory.Join) { j.Customer = "" },
		"ttl":      func(j *inventory.Join) { j.TTL = inventory.MaxWait + 1 },
		"hold_ttl": func(j *inventory.Join) { j.HoldTTL = 25 * time.Hour },
	} {
		bad := good
		spoil(&bad)
		_, _, err := w.store().Join(t.Context(), caller, bad)
		var invalid *inventory.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	late := caller
	late.Deadline = time.Now().Add(-time.Millisecond)
	if _, _, err := w.store().Join(t.Context(), late, good); !errors.Is(err, pg.ErrDeadline) {
		t.Errorf("too late: %v", err)
	}
	if n, err := w.store().CountWaiting(t.Context(), tenant, "mug"); err != nil || n != 0 {
		t.Errorf("%d wait, %v", n, err)
	}
	p := w.join("mug", 1, "ann")
	if err := w.store().Leave(t.Context(), late, p.ID); !errors.Is(err, pg.ErrDeadline) {
		t.Errorf("leave too late: %v", err)
	}
	w.wantPlaces(map[*inventory.Place]any{&p: 1})
	if _, err := w.store().GetPlace(t.Context(), "globex", p.ID); !errors.Is(err, inventory.ErrPlaceNotFound) {
		t.Errorf("another tenant: %v", err)
	}
	if err := w.store().Leave(t.Context(), inventory.Caller{Tenant: "globex"}, p.ID); !errors.Is(err, inventory.ErrPlaceNotFound) {
		t.Errorf("another tenant leaves: %v", err)
	}
}
