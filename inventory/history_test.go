package inventory_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"holdfast/internal/pg"
	"holdfast/inventory"
)

// age makes everything that is over look as if it had happened a month ago or longer: it moves it to partitions of
// that time.
func (w *warehouse) age(by string) {
	w.Helper()
	w.db.Exec(w, `DO $$ DECLARE month date := date_trunc('month', clock_timestamp() - interval '`+by+`'); low uuid; high uuid;
		BEGIN
			SELECT (lpad(to_hex((extract(epoch FROM month::timestamp AT TIME ZONE 'UTC') * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid,
			       (lpad(to_hex((extract(epoch FROM (month + interval '1 month') AT TIME ZONE 'UTC') * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid INTO low, high;
			EXECUTE format('CREATE TABLE inventory.reservation_history_%s PARTITION OF inventory.reservation_history FOR VALUES FROM (%L) TO (%L)', to_char(month, 'YYYYMM'), low, high);
			EXECUTE format('CREATE TABLE inventory.ledger_%s PARTITION OF inventory.ledger FOR VALUES FROM (%L) TO (%L)', to_char(month, 'YYYYMM'),
				month::timestamp AT TIME ZONE 'UTC', (month + interval '1 month') AT TIME ZONE 'UTC');
		END $$`)
	w.db.Exec(w, `UPDATE inventory.reservation_history SET id = (substr(lpad(to_hex((extract(epoch FROM clock_timestamp() - interval '`+by+`') * 1000)::bigint), 12, '0'), 1, 12)
		|| substr(replace(id::text, '-', ''), 13))::uuid`)
	w.db.Exec(w, `UPDATE inventory.ledger SET at = at - interval '`+by+`'`)
}

// What is dropped is gone, and still everything adds up: the ledger, and what a customer may have.
func TestDropHistory(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	two := int64(2)
	w.put(inventory.Settings{SKU: "mug", MaxPerCustomer: inventory.Change[int64]{Set: true, Value: &two}})
	w.receive("mug", 10)
	ann := one("mug", 2)
	ann.Customer = "ann"
	old := w.hold(ann)
	if err := w.confirm(old.ID); err != nil {
		t.Fatal(err)
	}
	w.age("100 days")
	bob := one("mug", 1)
	bob.Customer = "bob"
	young := w.hold(bob)
	if err := w.release(young.ID); err != nil {
		t.Fatal(err)
	}
	dropped, err := inventory.DropHistory(t.Context(), w.db.Pool, 60*24*time.Hour)
	if err != nil || dropped != 2 {
		t.Fatalf("dropped %d, %v; want a month of two tables", dropped, err)
	}
	entries, err := w.store().Ledger(t.Context(), tenant, "mug", 0, 10)
	if err != nil || len(entries) != 2 {
		t.Errorf("%d entries are left, %v; want 2", len(entries), err)
	}
	if _, err := w.store().GetReservation(t.Context(), tenant, young.ID); err != nil {
		t.Errorf("the young one: %v", err)
	}
	if list, err := w.store().ListReservations(t.Context(), tenant, inventory.ReservationFilter{}, inventory.Position{}, 10); err != nil || len(list) != 1 {
		t.Errorf("%d reservations are left, %v; want 1", len(list), err)
	}
	if _, _, err := w.store().Reserve(t.Context(), caller, ann); !errors.Is(err, inventory.ErrCustomerLimit) {
		t.Errorf("what ann has bought is forgotten: %v", err)
	}
	w.wantCounts("mug", 8, 0, 2)
	// checkInvariants verifies the sums when the test ends; a difference in what was dropped is found too.
	w.db.Exec(t, "UPDATE inventory.ledger_carried SET on_hand = on_hand + 1")
	if differences, err := inventory.Verify(t.Context(), w.db.Pool, false); err != nil || len(differences) == 0 {
		t.Errorf("a wrong sum isn't found: %v, %v", differences, err)
	}
	w.db.Exec(t, "UPDATE inventory.ledger_carried SET on_hand = on_hand - 1")
}

// A limit that comes later counts what was bought before it.
func TestALateLimitCountsWhatWasBought(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 10)
	ann := one("mug", 2)
	ann.Customer = "ann"
	for range 2 {
		if err := w.confirm(w.hold(ann).ID); err != nil {
			t.Fatal(err)
		}
	}
	five := int64(5)
	limit := inventory.Settings{SKU: "mug", MaxPerCustomer: inventory.Change[int64]{Set: true, Value: &five}}
	w.put(limit)
	if _, _, err := w.store().Reserve(t.Context(), caller, ann); !errors.Is(err, inventory.ErrCustomerLimit) {
		t.Errorf("4 of 5 bought, 2 more: %v", err)
	}
	ann.Lines[0].Quantity = 1
	if err := w.confirm(w.hold(ann).ID); err != nil {
		t.Fatal(err)
	}
	w.put(inventory.Settings{SKU: "mug", MaxPerCustomer: inventory.Change[int64]{Set: true}})
	if err := w.confirm(w.hold(ann).ID); err != nil { // without a limit nobody counts
		t.Fatal(err)
	}
	seven := int64(7)
	limit.MaxPerCustomer.Value = &seven
	w.put(limit)
	w.hold(ann)
	if _, _, err := w.store().Reserve(t.Context(), caller, ann); !errors.Is(err, inventory.ErrCustomerLimit) {
		t.Errorf("6 bought and 1 held of 7, 1 more: %v", err)
	}
}

// Reservations that a replica of the version before finished in place are found, and moved.
func TestFinishedInPlace(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 10)
	var made []inventory.Reservation
	for range 3 {
		made = append(made, w.hold(one("mug", 1)))
	}
	w.db.Exec(t, `UPDATE inventory.reservations SET status = 'expired', settled_at = clock_timestamp()`)
	w.db.Exec(t, `UPDATE inventory.stock SET held = 0`)
	w.db.Exec(t, `INSERT INTO inventory.ledger (tenant, sku, location, kind, delta_on_hand, delta_held, on_hand, held, reservation_id, actor)
		SELECT tenant, 'mug', 'default', 'expire', 0, -1, 10, 3 - row_number() OVER (ORDER BY id), id, 'old' FROM inventory.reservations ORDER BY id`)
	if r, err := w.store().GetReservation(t.Context(), tenant, made[0].ID); err != nil || r.Status != inventory.Expired {
		t.Errorf("%+v, %v", r, err)
	}
	if err := w.confirm(made[0].ID); !errors.Is(err, inventory.ErrExpired) {
		t.Errorf("confirm: %v", err)
	}
	if _, _, err := w.store().Confirm(t.Context(), caller, inventory.Confirmation{ID: made[1].ID, Retake: true}); err != nil {
		t.Errorf("retake: %v", err)
	}
	if err := w.release(made[2].ID); err != nil {
		t.Errorf("release: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error)
	go func() { ran <- w.store().Run(ctx, slog.New(slog.DiscardHandler), prometheus.NewRegistry()) }()
	for left, deadline := 1, time.Now().Add(20*time.Second); left > 0; {
		w.db.Scan(t, `SELECT count(*) FROM inventory.reservations`, nil, &left)
		if time.Now().After(deadline) {
			t.Fatalf("%d are left in the table of holds", left)
		}
	}
	stop()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	w.wantCounts("mug", 9, 0, 1)
}

// The months and days that come are made ahead, by whichever replica is first.
func TestEnsurePartitions(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	for _, table := range []string{"reservation_history", "ledger", "idempotency_keys"} {
		w.db.Exec(t, `DO $$ DECLARE p regclass; BEGIN
			FOR p IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'inventory.`+table+`'::regclass LOOP EXECUTE 'DROP TABLE ' || p; END LOOP;
		END $$`)
	}
	if won := w.race(4, func(int, *inventory.Store) error { return inventory.EnsurePartitions(t.Context(), w.db.Pool) }); won != 4 {
		t.Fatalf("%d of 4 rivals made them", won)
	}
	w.receive("mug", 2)
	r, _, err := w.store().Reserve(t.Context(), withKey("k"), one("mug", 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.confirm(r.ID); err != nil {
		t.Error(err)
	}
}

// An id begins with the instant of the database's clock, whatever the replica's says, so it finds its month.
func TestIDsAreOfTheDatabasesTime(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 1)
	r := w.hold(one("mug", 1))
	var off float64
	w.db.Scan(t, `SELECT extract(epoch FROM created_at) - ('x' || substr(replace(id::text, '-', ''), 1, 12))::bit(48)::bigint / 1000.0
		FROM inventory.reservations WHERE id = $1`, []any{r.ID}, &off)
	if off < -1 || off > 60 {
		t.Errorf("the id's instant is %v s before the creation", off)
	}
	if id := pg.FirstID(time.UnixMilli(0x0123456789ab)); id != uuid.MustParse("01234567-89ab-0000-0000-000000000000") {
		t.Errorf("the first id of an instant is %s", id)
	}
}
