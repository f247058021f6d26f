package system

import (
	"path/filepath"
	"testing"
	"time"

	"holdfast/chronos"
	"holdfast/internal/pg"
	"holdfast/internal/pg/cluster"
	"holdfast/inventory"
)

// The database is stopped under running replicas and comes back: meanwhile requests get 503 with
// Retry-After, then the replicas go on by themselves; nothing acknowledged is lost, and every
// instant of a job has its run.
func TestTheDatabaseGoesAndComesBack(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "cluster")
	c, err := cluster.Start(t.Context(), cluster.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop() })
	if err := c.EnsureDatabase(t.Context(), "both", "both", "both"); err != nil {
		t.Fatal(err)
	}
	databaseURL := c.URL("both", "both", "both") // one database for both services
	for _, schema := range []pg.Schema{inventory.Schema(), chronos.Schema()} {
		if err := pg.Migrate(t.Context(), databaseURL, schema); err != nil {
			t.Fatal(err)
		}
	}
	shop := serve(t, "inventory", databaseURL)
	cron := serve(t, "chronos", databaseURL, "--allow-targets=127.0.0.0/8")
	cron.awaitLine(leading)
	h := newHook(t, false)
	putJob(t, cron, "tick", `"schedule": {"every": "1s"}, "overlap": "allow"`, h)
	stock(t, shop, "mug", 5)
	var r reservation
	shop.call(201, "POST", "/v1/reservations", `{"lines": [{"sku": "mug", "quantity": 2}]}`, &r)
	first := h.next(t).scheduledFor

	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]service{"inventory": shop, "chronos": cron} {
		path := map[string]string{"inventory": "/v1/skus/mug", "chronos": "/v1/jobs/tick"}[name]
		if status, answer, header := s.try("GET", path, ""); status != 503 || header.Get("Retry-After") == "" {
			t.Errorf("%s: status %d, Retry-After %q: %s", name, status, header.Get("Retry-After"), answer)
		}
		if status, _, _ := s.try("GET", "/readyz", ""); status != 503 {
			t.Errorf("%s: /readyz is %d", name, status)
		}
	}
	if status, answer, header := shop.try("POST", "/v1/reservations", `{"lines": [{"sku": "mug", "quantity": 1}]}`); status != 503 || header.Get("Retry-After") == "" {
		t.Errorf("reserve: status %d: %s", status, answer)
	}
	again, err := cluster.Start(t.Context(), cluster.Config{Dir: dir, Port: c.Port})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = again.Stop() })

	shop.await(func() bool { status, _, _ := shop.try("GET", "/readyz", ""); return status == 200 })
	shop.call(200, "POST", "/v1/reservations/"+r.ID+"/confirm", "", &r)
	if r.Status != "confirmed" {
		t.Errorf("the hold is %s", r.Status)
	}
	verified(t, databaseURL)

	back := time.Now()
	seen := map[time.Time]bool{first: true}
	for last := first; last.Before(back.Add(3 * time.Second)); {
		d := h.next(t)
		seen[d.scheduledFor] = true
		if d.scheduledFor.After(last) {
			last = d.scheduledFor
		}
	}
	// The oldest of the instants may still be on their way: all are there in the end.
	for at := first; at.Before(back); at = at.Add(time.Second) {
		for !seen[at] {
			seen[h.next(t).scheduledFor] = true
		}
	}
}
