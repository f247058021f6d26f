package inventory

import (
	"log/slog"
	"testing"

	"github.com/google/uuid"

	"holdfast/internal/pg"
	"holdfast/internal/pg/pgtest"
	"holdfast/webhook"
)

// newDepot is a store with one subscription that so many deliveries wait for, each of its own topic.
func newDepot(t *testing.T, deliveries int) (*pgtest.DB, *Store, uuid.UUID) {
	t.Helper()
	db := pgtest.New(t, Schema())
	clock, err := pg.NewClock(t.Context(), db.Pool)
	if err != nil {
		t.Fatal(err)
	}
	s := NewStore(db.Pool, clock, Options{})
	id := uuid.New()
	db.Exec(t, `INSERT INTO inventory.subscriptions (id, tenant, url, events, since_seq) VALUES ($1, 'acme', 'https://example.com/', '{reservation.held}', 0)`, id)
	db.Exec(t, `INSERT INTO inventory.deliveries (id, subscription_id, topic, event, payload)
		SELECT gen_random_uuid(), $1, 'sku:' || n, 'stock.changed', '{}' FROM generate_series(1, $2) n`, id, deliveries)
	db.Exec(t, `INSERT INTO inventory.delivery_topics (subscription_id, topic) SELECT subscription_id, topic FROM inventory.deliveries`)
	return db, s, id
}

func claimOf(t *testing.T, s *Store) []*attempt {
	t.Helper()
	claimed, err := newCourier(s, slog.New(slog.DiscardHandler)).claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return claimed
}

func settled(t *testing.T, s *Store, outcome webhook.Outcome, class webhook.Class, attempts ...*attempt) {
	t.Helper()
	for _, a := range attempts {
		a.result = webhook.Result{Outcome: outcome, Class: class, StatusCode: 500, Error: "answered"}
	}
	if err := s.settleAttempts(t.Context(), attempts); err != nil {
		t.Fatal(err)
	}
}

// A replica that is killed in the middle of an attempt is taken over when its lease is over, not before, and
// what it says after that changes nothing.
func TestALeaseIsTakenOverAndFenced(t *testing.T) {
	t.Parallel()
	db, s, id := newDepot(t, 1)
	first := claimOf(t, s)
	if len(first) != 1 || len(claimOf(t, s)) != 0 {
		t.Fatalf("claimed %d, and then again", len(first))
	}
	db.Exec(t, `UPDATE inventory.delivery_topics SET due_at = clock_timestamp() - interval '1 ms'`)
	second := claimOf(t, s)
	if len(second) != 1 || second[0].delivery != first[0].delivery || second[0].token == first[0].token {
		t.Fatalf("taken over: %+v", second)
	}
	settled(t, s, webhook.Succeeded, webhook.ClassSuccess, first...)
	var left int
	db.Scan(t, `SELECT count(*) FROM inventory.deliveries`, nil, &left)
	if left != 1 {
		t.Error("an attempt whose lease was over ended the delivery")
	}
	settled(t, s, webhook.Succeeded, webhook.ClassSuccess, second...)
	db.Scan(t, `SELECT (SELECT count(*) FROM inventory.deliveries) + (SELECT count(*) FROM inventory.delivery_topics)`, nil, &left)
	if left != 0 {
		t.Errorf("%d rows are left", left)
	}
	got, err := s.ListDeliveries(t.Context(), "acme", id, "", 0, 10)
	if err != nil || len(got) != 1 || got[0].Status != DeliveryDone || got[0].Attempts != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// Failures in a row hold the whole subscription back; then one attempt at a time is made until one succeeds.
func TestABreakerHoldsAFailingSubscriptionBack(t *testing.T) {
	t.Parallel()
	db, s, id := newDepot(t, 40)
	claimed := claimOf(t, s)
	if len(claimed) != deliverShare {
		t.Fatalf("%d attempts of one subscription at once", len(claimed))
	}
	settled(t, s, webhook.HTTPError, webhook.ClassRetry, claimed...)
	u, err := s.GetSubscription(t.Context(), "acme", id)
	if err != nil || u.Failures != deliverShare || u.RetryAt == nil || u.LastError == "" {
		t.Errorf("%+v, %v", u, err)
	}
	if n := len(claimOf(t, s)); n != 0 {
		t.Errorf("%d attempts while it is held back", n)
	}
	db.Exec(t, `UPDATE inventory.subscriptions SET retry_at = clock_timestamp()`)
	probe := claimOf(t, s)
	if len(probe) != 1 {
		t.Fatalf("%d attempts find out whether it is there again", len(probe))
	}
	settled(t, s, webhook.Succeeded, webhook.ClassSuccess, probe...)
	if n := len(claimOf(t, s)); n != deliverShare {
		t.Errorf("%d attempts when it is there again", n)
	}
}

// An attempt that a drain stopped doesn't count, and is due at once.
func TestAStoppedAttemptDoesNotCount(t *testing.T) {
	t.Parallel()
	_, s, id := newDepot(t, 1)
	settled(t, s, webhook.Cancelled, webhook.ClassRetry, claimOf(t, s)...)
	got, err := s.ListDeliveries(t.Context(), "acme", id, DeliveryWaiting, 0, 10)
	if err != nil || len(got) != 1 || got[0].Attempts != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if n := len(claimOf(t, s)); n != 1 {
		t.Errorf("%d are due", n)
	}
}

// What waits is bounded: beyond that, nothing more is taken on until there is room.
func TestWhatWaitsIsBounded(t *testing.T) {
	t.Parallel()
	db, s, id := newDepot(t, 11)
	full := func() bool {
		t.Helper()
		if err := s.boundDeliveries(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
		u, err := s.GetSubscription(t.Context(), "acme", id)
		if err != nil {
			t.Fatal(err)
		}
		return u.FullSince != nil
	}
	if !full() {
		t.Error("11 wait where 10 may, and more are taken on")
	}
	settled(t, s, webhook.Succeeded, webhook.ClassSuccess, claimOf(t, s)[:2]...)
	if full() {
		t.Error("there is room, and nothing is taken on")
	}
	db.Exec(t, `DELETE FROM inventory.subscriptions`)
}

// A replica that finds the position taken has nothing to do, and doesn't wait.
func TestOneReplicaMakesDeliveries(t *testing.T) {
	t.Parallel()
	db, s, _ := newDepot(t, 0)
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), takePositionSQL); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, noteSQL, "mug")
	if made, more, err := s.MakeDeliveries(t.Context()); made != 0 || more || err != nil {
		t.Errorf("%d, %v, %v", made, more, err)
	}
}
