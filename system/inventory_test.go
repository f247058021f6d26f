package system

import (
	"fmt"
	"sync"
	"syscall"
	"testing"

	"holdfast/internal/pg/pgtest"
	"holdfast/inventory"
)

type sku struct {
	OnHand    int `json:"on_hand"`
	Held      int `json:"held"`
	Available int `json:"available"`
	Sold      int `json:"sold"`
}

type reservation struct {
	ID     string `json:"id"`
	Status string `json:"status"`
}

// verified checks the invariants with the command that operators use.
func verified(t *testing.T, databaseURL string) {
	t.Helper()
	p := start(t, "verify", []string{"DATABASE_URL=" + databaseURL}, "inventory", "verify")
	if code := p.wait(); code != 0 {
		t.Errorf("verify: exit code %d", code)
	}
}

func stock(t *testing.T, s service, name string, units int) {
	t.Helper()
	s.call(201, "PUT", "/v1/skus/"+name, `{}`, nil)
	s.call(200, "POST", "/v1/skus/"+name+"/adjustments", fmt.Sprintf(`{"delta": %d, "reason": "delivery"}`, units), nil)
}

// Held on one replica, seen and sold on the other.
func TestTwoReplicasShareTheStock(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, inventory.Schema())
	one, two := serve(t, "inventory", db.URL), serve(t, "inventory", db.URL)
	stock(t, one, "FLASH-10", 10)
	var r reservation
	one.call(201, "POST", "/v1/reservations", `{"lines": [{"sku": "FLASH-10", "quantity": 3}]}`, &r)
	var k sku
	two.call(200, "GET", "/v1/skus/FLASH-10", "", &k)
	if k.Available != 7 {
		t.Errorf("replica 2 sees %d available, want 7", k.Available)
	}
	two.call(200, "POST", "/v1/reservations/"+r.ID+"/confirm", "", &r)
	one.call(200, "GET", "/v1/skus/FLASH-10", "", &k)
	if r.Status != "confirmed" || k != (sku{OnHand: 7, Available: 7, Sold: 3}) {
		t.Errorf("after the sale: %+v, %+v", r, k)
	}

	// A hold of a second is free a second later, once; the reapers of both replicas agree.
	two.call(201, "POST", "/v1/reservations", `{"lines": [{"sku": "FLASH-10", "quantity": 5}], "ttl": "1s"}`, &r)
	one.await(func() bool { one.call(200, "GET", "/v1/skus/FLASH-10", "", &k); return k.Available == 7 })
	one.await(func() bool {
		var ledger struct{ Items []struct{ Kind string } }
		two.call(200, "GET", "/v1/skus/FLASH-10/ledger", "", &ledger)
		return len(ledger.Items) == 5 && ledger.Items[4].Kind == "expire"
	})
	verified(t, db.URL)
}

func TestFlashSaleIsExact(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, inventory.Schema())
	one, two := serve(t, "inventory", db.URL), serve(t, "inventory", db.URL)
	sale := start(t, "flashsale", nil, "flashsale", "--clicks=2000", "--units=50", "--connections=64", "--url="+one.url+","+two.url)
	if code := sale.wait(); code != 0 {
		t.Errorf("exit code %d: %v", code, sale.said())
	}
	sale.awaitLine(`exactly 50 of 50 units held`)
	verified(t, db.URL)
}

// SIGTERM: the request in flight is answered, new ones aren't taken, and the process exits 0.
func TestDrainAnswersWhatIsInFlight(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, inventory.Schema())
	s := serve(t, "inventory", db.URL)
	stock(t, s, "mug", 5)
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT 1 FROM inventory.stock FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	answered := make(chan int, 1)
	go func() {
		status, _, _ := s.try("POST", "/v1/reservations", `{"lines": [{"sku": "mug", "quantity": 1}]}`)
		answered <- status
	}()
	s.await(func() bool {
		var waiting int
		db.Scan(t, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'", nil, &waiting)
		return waiting == 1
	})
	s.signal(syscall.SIGTERM)
	s.await(func() bool { status, _, _ := s.try("GET", "/livez", ""); return status == 0 })
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if status := <-answered; status != 201 {
		t.Errorf("the request in flight got %d, want 201", status)
	}
	if code := s.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// I5 and I6: replicas are killed in the middle of a sale, over and over. Every click asks until it is
// told; what was acknowledged stands, and no key has two holds.
func TestKilledReplicasLoseNothingAcknowledged(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, inventory.Schema())
	steady := serve(t, "inventory", db.URL)
	stock(t, steady, "mug", 1000)
	var mu sync.Mutex
	shaky := serve(t, "inventory", db.URL)
	current := func() service { mu.Lock(); defer mu.Unlock(); return shaky }

	const buyers, each = 8, 25
	ids := make(chan string, buyers*each)
	var all sync.WaitGroup
	for b := range buyers {
		all.Go(func() {
			for i := range each {
				key := fmt.Sprintf("buyer-%d-%d", b, i)
				for attempt := 0; ; attempt++ {
					s := current()
					if attempt%2 == 1 {
						s = steady
					}
					var r reservation
					status, answer, _ := s.try("POST", "/v1/reservations", `{"lines": [{"sku": "mug", "quantity": 1}]}`, "Idempotency-Key", key)
					if status == 201 {
						unmarshal(t, answer, &r)
						ids <- r.ID
						break
					}
					if status != 0 && status != 503 {
						t.Errorf("status %d: %s", status, answer)
						return
					}
				}
			}
		})
	}
	for range 4 {
		sold := len(ids)
		await(t, func() bool { return len(ids) > sold+5 || len(ids) == buyers*each })
		current().kill()
		next := serve(t, "inventory", db.URL)
		mu.Lock()
		shaky = next
		mu.Unlock()
	}
	all.Wait()
	close(ids)
	seen := map[string]bool{}
	for id := range ids {
		if seen[id] {
			t.Errorf("reservation %s was given to two keys", id)
		}
		seen[id] = true
		var status string
		db.Scan(t, "SELECT status FROM inventory.reservations WHERE id = $1", []any{id}, &status)
		if status != "held" {
			t.Errorf("an acknowledged hold is %s", status)
		}
	}
	var k sku
	steady.call(200, "GET", "/v1/skus/mug", "", &k)
	if k.Held != buyers*each || len(seen) != buyers*each {
		t.Errorf("%d held, %d acknowledged; want %d of each", k.Held, len(seen), buyers*each)
	}
	verified(t, db.URL)
}
