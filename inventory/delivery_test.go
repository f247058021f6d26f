package inventory_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"holdfast/internal/pg"
	"holdfast/inventory"
	"holdfast/webhook"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// newPost is a warehouse whose replicas may deliver to this machine.
func newPost(t *testing.T) *warehouse {
	t.Helper()
	w := newWarehouse(t)
	for i := range w.replicas {
		w.replicas[i] = w.newStore(inventory.Options{Allow: loopback})
	}
	return w
}

func (w *warehouse) newStore(o inventory.Options) *inventory.Store {
	w.Helper()
	clock, err := pg.NewClock(w.Context(), w.db.Pool)
	if err != nil {
		w.Fatal(err)
	}
	pool, err := pg.OpenPool(w.Context(), w.db.URL, pg.PoolOptions{MaxConns: 8})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(pool.Close)
	return inventory.NewStore(pool, clock, o)
}

// run runs a replica until stop is called, or the test ends.
func (w *warehouse) run(s *inventory.Store) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, slog.New(slog.DiscardHandler), prometheus.NewRegistry()) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.Errorf("run: %v", err)
		}
	})
	w.Cleanup(stop)
	return stop
}

// got is a delivery as a receiver got it.
type got struct {
	http.Header `json:"-"`
	body        string
	Type        string `json:"type"`
	Data        struct {
		ID        string           `json:"id"`
		Status    string           `json:"status"`
		SKU       string           `json:"sku"`
		Available int64            `json:"available"`
		Lines     []inventory.Line `json:"lines"`
	} `json:"data"`
}

// receiver is a webhook's other end. It answers as its answer function says.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	all    []got
	answer func(w http.ResponseWriter, g got)
	came   chan struct{}
}

func (w *warehouse) receiver(answer func(w http.ResponseWriter, g got)) *receiver {
	r := &receiver{answer: answer, came: make(chan struct{}, 1)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		g := got{Header: req.Header, body: string(body)}
		if err := json.Unmarshal(body, &g); err != nil {
			w.Errorf("%s: %v", body, err)
		}
		r.mu.Lock()
		r.all = append(r.all, g)
		r.mu.Unlock()
		select {
		case r.came <- struct{}{}:
		default:
		}
		if answer != nil {
			answer(rw, g)
		}
	}))
	w.Cleanup(r.Close)
	return r
}

func (r *receiver) received() []got {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// await waits until so many deliveries have come.
func (w *warehouse) await(r *receiver, n int) []got {
	w.Helper()
	for deadline := time.After(30 * time.Second); ; {
		if all := r.received(); len(all) >= n {
			return all
		}
		select {
		case <-r.came:
		case <-deadline:
			w.Fatalf("%d deliveries came, want %d", len(r.received()), n)
		}
	}
}

// until waits for a condition of the database.
func (w *warehouse) until(what, sql string, args ...any) {
	w.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		var ok bool
		w.db.Scan(w, sql, args, &ok)
		if ok {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("never: %s", what)
		}
	}
}

func to[T any](v T) inventory.Change[T] { return inventory.Change[T]{Set: true, Value: &v} }

func (w *warehouse) subscribe(url string, events ...string) inventory.Subscription {
	w.Helper()
	u, _, err := w.store().Subscribe(w.Context(), caller, inventory.SubscriptionSettings{URL: to(url), Events: to(events)})
	if err != nil {
		w.Fatal(err)
	}
	return u
}

func (w *warehouse) makeDeliveries() (made int) {
	w.Helper()
	for {
		n, more, err := w.store().MakeDeliveries(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		if made += n; !more {
			return made
		}
	}
}

var reservationEvents = []string{"reservation.held", "reservation.confirmed", "reservation.released", "reservation.expired"}

func TestEventsArriveSignedOnceAndInOrder(t *testing.T) {
	t.Parallel()
	w := newPost(t)
	w.receive("mug", 100)
	w.hold(one("mug", 1)) // before anybody subscribed
	r := w.receiver(nil)
	w.subscribe(r.URL, reservationEvents...)
	w.run(w.replicas[0])
	w.run(w.replicas[1])
	const n = 20
	want := map[string][]string{}
	for i := range n {
		h := w.hold(one("mug", 1))
		id := h.ID.String()
		switch i % 3 {
		case 0:
			if err := w.confirm(h.ID); err != nil {
				t.Fatal(err)
			}
			want[id] = []string{"reservation.held", "reservation.confirmed"}
		case 1:
			if err := w.release(h.ID); err != nil {
				t.Fatal(err)
			}
			want[id] = []string{"reservation.held", "reservation.released"}
		default:
			w.expire(h)
			want[id] = []string{"reservation.held", "reservation.expired"}
		}
	}
	pair, err := w.store().SigningSecret(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := webhook.ParseSecret(pair.Secret)
	if err != nil {
		t.Fatal(err)
	}
	came, ids := map[string][]string{}, map[string]bool{}
	for _, g := range w.await(r, 2*n) {
		if err := webhook.Verify(g.Header, []byte(g.body), time.Now(), time.Minute, secret); err != nil {
			t.Errorf("%s: %v", g.body, err)
		}
		if id := g.Get(webhook.HeaderID); ids[id] {
			t.Errorf("%s came twice", id)
		} else {
			ids[id] = true
		}
		if "reservation."+g.Data.Status != g.Type || g.Get("Holdfast-Event") != g.Type || len(g.Data.Lines) != 1 {
			t.Errorf("%s", g.body)
		}
		came[g.Data.ID] = append(came[g.Data.ID], g.Type)
	}
	if fmt.Sprint(came) != fmt.Sprint(want) {
		t.Errorf("came:\n%v\nwant:\n%v", came, want)
	}
	w.until("all are in the history", `SELECT NOT EXISTS (SELECT 1 FROM inventory.deliveries) AND NOT EXISTS (SELECT 1 FROM inventory.delivery_topics)
		AND (SELECT count(*) FROM inventory.delivery_history WHERE status = 'delivered') = $1`, 2*n)
}

// Both replicas make deliveries while both sell, and each event is made once.
func TestDeliveriesAreMadeOnceByManyReplicas(t *testing.T) {
	t.Parallel()
	w := newPost(t)
	w.receive("mug", 1000)
	u := w.subscribe("http://127.0.0.1:9/", reservationEvents...)
	const n = 60
	stop := make(chan struct{})
	var makers sync.WaitGroup
	for i := range 4 {
		makers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, _, err := w.replicas[i%2].MakeDeliveries(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	w.race(n, func(_ int, s *inventory.Store) error {
		r, _, err := s.Reserve(t.Context(), caller, one("mug", 1))
		if err == nil {
			_, _, err = s.Confirm(t.Context(), caller, inventory.Confirmation{ID: r.ID})
		}
		return err
	})
	close(stop)
	makers.Wait()
	w.makeDeliveries()
	w.makeDeliveries()
	var events, deliveries, topics, wrong int
	w.db.Scan(t, `SELECT (SELECT count(*) FROM inventory.ledger WHERE event IS NOT NULL), count(*), count(DISTINCT topic),
		(SELECT count(*) FROM (SELECT event, row_number() OVER (PARTITION BY topic ORDER BY n) AS place FROM inventory.deliveries) d
		  WHERE event <> CASE place WHEN 1 THEN 'reservation.held' ELSE 'reservation.confirmed' END)
		FROM inventory.deliveries WHERE subscription_id = $1`, []any{u.ID}, &events, &deliveries, &topics, &wrong)
	if events != 2*n || deliveries != 2*n || topics != n || wrong > 0 {
		t.Errorf("%d events, %d deliveries in %d topics, %d of them out of order", events, deliveries, topics, wrong)
	}
}

// What fails is tried again before what comes after it in its topic, and nothing else waits for it.
func TestADeliveryThatFailsHoldsBackItsTopicAlone(t *testing.T) {
	t.Parallel()
	w := newPost(t)
	w.receive("mug", 10)
	var first uuid.UUID
	var mu sync.Mutex
	fail := true
	r := w.receiver(func(rw http.ResponseWriter, g got) {
		mu.Lock()
		defer mu.Unlock()
		if g.Data.ID == first.String() && fail {
			rw.Header().Set("Retry-After", "1000")
			rw.WriteHeader(http.StatusInternalServerError)
		}
	})
	u := w.subscribe(r.URL, reservationEvents...)
	mu.Lock()
	first = w.hold(one("mug", 1)).ID
	second := w.hold(one("mug", 1)).ID
	mu.Unlock()
	for _, id := range []uuid.UUID{first, second} {
		if err := w.confirm(id); err != nil {
			t.Fatal(err)
		}
	}
	w.makeDeliveries()
	w.run(w.replicas[0])
	w.await(r, 2)
	// Pitfall 40: what the receiver asks for is honoured, for all of the subscription, and jitter only delays.
	w.until("the receiver is left alone", `SELECT retry_at > clock_timestamp() + interval '900 s' FROM inventory.subscriptions WHERE id = $1`, u.ID)
	w.until("the delivery waits", `SELECT due_at > clock_timestamp() + interval '900 s' FROM inventory.delivery_topics WHERE topic = $1`, "reservation:"+first.String())
	w.db.Exec(t, `UPDATE inventory.subscriptions SET retry_at = '-infinity'`)
	w.await(r, 3)
	w.until("the second has arrived", `SELECT count(*) = 2 FROM inventory.delivery_history`)
	for _, g := range r.received() {
		if g.Data.ID == first.String() && g.Type != "reservation.held" {
			t.Errorf("%s came before the one before it had arrived", g.Type)
		}
	}
	mu.Lock()
	fail = false
	mu.Unlock()
	w.db.Exec(t, `UPDATE inventory.delivery_topics SET due_at = clock_timestamp()`)
	all := w.await(r, 5)
	ids := map[string]int{}
	for _, g := range all {
		ids[g.Get(webhook.HeaderID)]++
	}
	if len(ids) != 4 || all[4].Type != "reservation.confirmed" || all[4].Data.ID != first.String() {
		t.Errorf("%d ids; the last is %s", len(ids), all[4].body)
	}
}

// Pitfalls 12 and 39: a receiver that doesn't answer keeps nobody else's deliveries waiting, and no transaction.
func TestPitfall12ASlowReceiverDelaysNobody(t *testing.T) {
	t.Parallel()
	w := newPost(t)
	w.receive("mug", 100)
	answer := make(chan struct{})
	slow := w.receiver(func(http.ResponseWriter, got) { <-answer })
	quick := w.receiver(nil)
	w.subscribe(slow.URL, "reservation.held")
	w.subscribe(quick.URL, "reservation.held")
	stop := w.run(w.replicas[0])
	const n = 40
	for range n {
		w.hold(one("mug", 1))
	}
	w.await(slow, 16)
	w.await(quick, n)
	if under := len(slow.received()); under > 16 {
		t.Errorf("%d attempts are under way to one receiver", under)
	}
	w.until("no transaction waits for a receiver", `SELECT NOT EXISTS (SELECT 1 FROM pg_stat_activity
		WHERE datname = current_database() AND state LIKE 'idle in transaction%' AND xact_start < clock_timestamp() - interval '100 ms')`)
	close(answer)
	w.await(slow, n)
	stop()
}

// Nobody is notified by a transaction that sells: a NOTIFY would make commits wait for each other.
func TestPitfall12SellingNotifiesNobody(t *testing.T) {
	t.Parallel()
	w := newPost(t)
	w.receive("mug", 10)
	w.subscribe("http://127.0.0.1:9/", reservationEvents...)
	h := w.hold(one("mug", 1))
	if err := w.confirm(h.ID); err != nil {
		t.Fatal(err)
	}
	w.makeDeliveries()
	var triggers int
	w.db.Scan(t, `SELECT count(*) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'inventory' AND NOT t.tgisinternal`, nil, &triggers)
	var usage float64
	w.db.Scan(t, `SELECT pg_notification_queue_usage()`, nil, &usage)
	if triggers > 0 || usage > 0 {
		t.Errorf("%d triggers, the queue of notifications is used to %v", triggers, usage)
	}
}

func TestGonePausesAndResumeGoesOn(t *testing.T) {
	t.Parallel()
	w := newPost(t)
	w.receive("mug", 10)
	var mu sync.Mutex
	status := http.StatusGone
	r := w.receiver(func(rw http.ResponseWriter, _ got) {
		mu.Lock()
		defer mu.Unlock()
		rw.WriteHeader(status)
	})
	u := w.subscribe(r.URL, "reservation.held")
	w.run(w.replicas[0])
	w.hold(one("mug", 1))
	w.until("it is paused", `SELECT paused_at IS NOT NULL FROM inventory.subscriptions WHERE id = $1`, u.ID)
	u, err := w.store().GetSubscription(t.Context(), tenant, u.ID)
	if err != nil || !u.Paused || !strings.Contains(u.PauseReason, "410") || u.LastError == "" || u.WaitsSince == nil {
		t.Errorf("%+v, %v", u, err)
	}
	w.hold(one("mug", 1))
	w.until("events are collected", `SELECT count(*) = 2 FROM inventory.deliveries`)
	mu.Lock()
	status = http.StatusOK
	mu.Unlock()
	if u, _, err = w.store().ChangeSubscription(t.Context(), caller, u.ID, inventory.SubscriptionSettings{Paused: to(false)}); err != nil || u.Paused {
		t.Fatalf("%+v, %v", u, err)
	}
	w.until("both have arrived", `SELECT count(*) = 2 FROM inventory.delivery_history WHERE status = 'delivered'`)
}

// Pitfall 41: an address is judged when the subscription is made and again at the dial.
func TestForbiddenTargets(t *testing.T) {
	t.Parallel()
	w := newPost(t)
	w.receive("mug", 10)
	closed := w.newStore(inventory.Options{})
	for _, url := range []string{"http://127.0.0.1/x", "http://localhost/x", "http://169.254.169.254/latest", "http://[::1]/", "http://10.0.0.1/", "http://2130706433/"} {
		_, _, err := closed.Subscribe(t.Context(), caller, inventory.SubscriptionSettings{URL: to(url), Events: to([]string{"stock.changed"})})
		if !isTargetForbidden(err) {
			t.Errorf("%s: %v", url, err)
		}
	}
	r := w.receiver(nil)
	u := w.subscribe(r.URL, "reservation.held") // allowed here, but not at the replica that delivers
	w.run(closed)
	w.hold(one("mug", 1))
	w.until("it is dead", `SELECT EXISTS (SELECT 1 FROM inventory.delivery_history WHERE status = 'dead' AND error LIKE 'target_forbidden%')`)
	dead, err := w.store().ListDeliveries(t.Context(), tenant, u.ID, inventory.DeliveryDead, 0, 10)
	if err != nil || len(dead) != 1 || dead[0].Attempts != 1 || len(r.received()) > 0 {
		t.Errorf("%+v, %v, received %d", dead, err, len(r.received()))
	}
}

// What isn't delivered for three days is dead, and can be asked for again with the same id.
func TestOldDeliveriesDieAndComeAgain(t *testing.T) {
	t.Parallel()
	w := newPost(t)
	w.receive("mug", 10)
	r := w.receiver(nil)
	u := w.subscribe(r.URL, reservationEvents...)
	h := w.hold(one("mug", 1))
	if err := w.release(h.ID); err != nil {
		t.Fatal(err)
	}
	w.makeDeliveries()
	if gone, err := w.store().GiveUpDeliveries(t.Context()); err != nil || gone != 0 {
		t.Errorf("%d, %v", gone, err)
	}
	w.db.Exec(t, `UPDATE inventory.deliveries SET queued_at = queued_at - interval '73 hours'`)
	if gone, err := w.store().GiveUpDeliveries(t.Context()); err != nil || gone != 2 {
		t.Errorf("%d, %v", gone, err)
	}
	dead, err := w.store().ListDeliveries(t.Context(), tenant, u.ID, inventory.DeliveryDead, 0, 10)
	if err != nil || len(dead) != 2 {
		t.Fatalf("%+v, %v", dead, err)
	}
	out, _, err := w.store().Redeliver(t.Context(), caller, u.ID, inventory.Redelivery{Delivery: &dead[1].ID})
	if err != nil || out.Redelivered != 1 {
		t.Fatalf("%+v, %v", out, err)
	}
	w.run(w.replicas[1])
	if g := w.await(r, 1)[0]; g.Get(webhook.HeaderID) != dead[1].ID.String() || g.Type != "reservation.held" {
		t.Errorf("%v %s", g.Header, g.body)
	}
	w.until("it has arrived", `SELECT EXISTS (SELECT 1 FROM inventory.delivery_history WHERE id = $1 AND status = 'delivered')`, dead[1].ID)
	from := h.CreatedAt.Add(-time.Second)
	if out, _, err = w.store().Redeliver(t.Context(), caller, u.ID, inventory.Redelivery{From: &from}); err != nil || out.Redelivered != 2 || out.More {
		t.Fatalf("%+v, %v", out, err)
	}
	all := w.await(r, 3)
	if all[1].Type != "reservation.held" || all[2].Type != "reservation.released" {
		t.Errorf("%s\n%s", all[1].body, all[2].body)
	}
}

// Levels are announced when they are crossed, once, whoever makes the deliveries, and changes are coalesced.
func TestStockLevelsAreAnnouncedWhenTheyAreCrossed(t *testing.T) {
	t.Parallel()
	w := newPost(t)
	w.receive("mug", 10)
	w.put(inventory.Settings{SKU: "mug", LowStock: to(int64(3))})
	w.subscribe("http://127.0.0.1:9/", "stock.low", "stock.out")
	replica := 0
	events := func() (events []string) {
		t.Helper()
		if _, _, err := w.replicas[replica].MakeDeliveries(t.Context()); err != nil {
			t.Fatal(err)
		}
		replica = 1 - replica
		w.db.Scan(t, `SELECT coalesce(array_agg(event ORDER BY n), '{}') FROM inventory.deliveries`, nil, &events)
		w.db.Exec(t, `DELETE FROM inventory.deliveries`)
		return events
	}
	want := func(step string, got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", step, got, want)
		}
	}
	h := w.hold(one("mug", 6))
	want("4 left", events())
	low := w.hold(one("mug", 1))
	want("3 left", events(), "stock.low")
	w.hold(one("mug", 1))
	want("2 left", events())
	last := w.hold(one("mug", 2))
	want("none left", events(), "stock.out")
	for _, r := range []inventory.Reservation{last, low} {
		if err := w.release(r.ID); err != nil {
			t.Fatal(err)
		}
	}
	want("3 again", events())
	w.hold(one("mug", 3))
	want("none again", events(), "stock.out")
	if err := w.release(h.ID); err != nil {
		t.Fatal(err)
	}
	want("6 again", events())
	w.hold(one("mug", 6))
	want("none at once", events(), "stock.low", "stock.out")
	for i := range 5 {
		w.receive(fmt.Sprint("new-", i), 5)
	}
	want("others", events())
	// A new mark is in no ledger: what counts is what was announced.
	w.hold(one("new-0", 1))
	want("4 left, and no mark", events())
	w.put(inventory.Settings{SKU: "new-0", LowStock: to(int64(4))})
	w.hold(one("new-0", 1))
	want("3 left, and a mark", events(), "stock.low")
}

func TestStockChangesAreCoalesced(t *testing.T) {
	t.Parallel()
	w := newPost(t)
	w.receive("mug", 10)
	w.receive("cup", 10)
	r := w.receiver(nil)
	if _, _, err := w.store().Subscribe(t.Context(), caller, inventory.SubscriptionSettings{
		URL: to(r.URL), Events: to([]string{"stock.changed"}), SKUs: to([]string{"mug"}),
	}); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		w.hold(one("mug", 1))
		w.hold(one("cup", 1))
	}
	if made := w.makeDeliveries(); made != 1 {
		t.Errorf("%d deliveries of 5 changes", made)
	}
	w.run(w.replicas[0])
	if g := w.await(r, 1)[0]; g.Type != "stock.changed" || g.Data.SKU != "mug" || g.Data.Available != 5 {
		t.Errorf("%s", g.body)
	}
}

func TestADeletedSubscriptionTakesItsDeliveriesAlong(t *testing.T) {
	t.Parallel()
	w := newPost(t)
	w.receive("mug", 10)
	u := w.subscribe("http://127.0.0.1:9/", "reservation.held")
	w.hold(one("mug", 1))
	w.makeDeliveries()
	if err := w.store().Unsubscribe(t.Context(), caller, u.ID); err != nil {
		t.Fatal(err)
	}
	if err := w.store().Unsubscribe(t.Context(), caller, u.ID); err == nil {
		t.Error("deleted twice")
	}
	w.hold(one("mug", 1))
	u = w.subscribe("http://127.0.0.1:9/", "reservation.held")
	w.hold(one("mug", 1))
	if made := w.makeDeliveries(); made != 1 {
		t.Errorf("%d deliveries, want that of the hold after the new subscription", made)
	}
	w.hold(one("mug", 1))
	w.subscribe("http://127.0.0.1:9/", "reservation.held") // while the other lags behind
	w.hold(one("mug", 1))
	if made := w.makeDeliveries(); made != 3 {
		t.Errorf("%d deliveries, want two for the one and one for the other", made)
	}
	if list, err := w.store().ListDeliveries(t.Context(), "another", u.ID, "", 0, 10); err == nil {
		t.Errorf("another tenant reads %v", list)
	}
}

func isTargetForbidden(err error) bool { return errors.Is(err, webhook.ErrTargetForbidden) }
