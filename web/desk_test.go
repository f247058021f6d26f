package web_test

import (
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"holdfast/chronos"
	chronosapi "holdfast/chronos/api"
	"holdfast/chronos/queue"
	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
	"holdfast/internal/pg"
	"holdfast/internal/pg/pgtest"
	"holdfast/inventory"
	inventoryapi "holdfast/inventory/api"
	"holdfast/web"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// evil is what people write into every field that takes text.
const evil = `<script>alert(1)</script>"'><img src=x onerror=alert(2)>`

var quiet = slog.New(slog.DiscardHandler)

// desk is a service with its dashboard, looked at as a browser does without scripts.
type desk struct {
	*testing.T
	db   *pgtest.DB
	url  string
	keys *apikey.Store // nil: no authentication
	key  string        // the password, if not empty
}

// newDesk makes the desk of one of the two services.
func newDesk(t *testing.T, schema pg.Schema, keys bool, face func(*pgtest.DB, httpapi.Config) *httpapi.API) *desk {
	t.Helper()
	d := &desk{T: t, db: pgtest.New(t, schema)}
	cfg := httpapi.Config{Log: quiet}
	if keys {
		d.keys = apikey.NewStore(d.db.Pool, schema.Name)
		cfg.Keys = d.keys
	}
	server := httptest.NewServer(face(d.db, cfg))
	t.Cleanup(server.Close)
	d.url = server.URL
	return d
}

func newKey(d *desk, tenant string) string {
	d.Helper()
	_, secret, err := d.keys.Create(d.Context(), tenant, "", []apikey.Scope{apikey.Read})
	if err != nil {
		d.Fatal(err)
	}
	return secret
}

// get asks for a page and checks the status.
func (d *desk) get(want int, path string) (string, http.Header) {
	d.Helper()
	req, err := http.NewRequestWithContext(d.Context(), http.MethodGet, d.url+path, nil)
	if err != nil {
		d.Fatal(err)
	}
	if d.key != "" {
		req.SetBasicAuth("anybody", d.key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		d.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		d.Fatal(err)
	}
	if res.StatusCode != want {
		d.Fatalf("GET %s: status %d, want %d: %s", path, res.StatusCode, want, body)
	}
	return string(body), res.Header
}

var (
	tag    = regexp.MustCompile(`<[^>]*>`)
	spaces = regexp.MustCompile(`\s+`)
)

// text is what a page says, without its markup.
func text(page string) string {
	if _, rest, ok := strings.Cut(page, "<main"); ok {
		page, _, _ = strings.Cut(rest, "</main>")
		_, page, _ = strings.Cut(page, ">")
	}
	return html.UnescapeString(strings.TrimSpace(spaces.ReplaceAllString(tag.ReplaceAllString(page, " "), " ")))
}

// says checks that a page has all the words, in this order.
func (d *desk) says(path string, words ...string) {
	d.Helper()
	page, _ := d.get(http.StatusOK, path)
	rest := text(page)
	for _, w := range words {
		_, after, ok := strings.Cut(rest, w)
		if !ok {
			d.Errorf("%s doesn't say %q after what came before, in: %s", path, w, text(page))
			return
		}
		rest = after
	}
}

// next is where the page's link of that name leads.
func next(t *testing.T, page, name string) string {
	t.Helper()
	found := regexp.MustCompile(`<a class="button" href="([^"]*)">` + name + `</a>`).FindStringSubmatch(page)
	if found == nil {
		t.Fatalf("no link %q in: %s", name, text(page))
	}
	return strings.ReplaceAll(found[1], "&amp;", "&")
}

// shop is Inventory's desk.
type shop struct {
	*desk
	store  *inventory.Store
	caller inventory.Caller
}

func newShop(t *testing.T, keys bool) *shop {
	t.Helper()
	s := &shop{caller: inventory.Caller{Tenant: "default", Actor: "test"}}
	s.desk = newDesk(t, inventory.Schema(), keys, func(db *pgtest.DB, cfg httpapi.Config) *httpapi.API {
		clock, err := pg.NewClock(t.Context(), db.Pool)
		if err != nil {
			t.Fatal(err)
		}
		s.store = inventory.NewStore(db.Pool, clock, inventory.Options{})
		face := inventoryapi.New(s.store, db.Pool, cfg)
		web.Inventory(face, s.store, cfg.Keys)
		return face
	})
	return s
}

func (s *shop) put(sku, name string, units int64, reason string) {
	s.Helper()
	settings := inventory.Settings{SKU: sku, Name: inventory.Change[string]{Set: true, Value: &name}}
	if _, _, err := s.store.PutSKU(s.Context(), s.caller, settings); err != nil {
		s.Fatal(err)
	}
	if units > 0 {
		if _, _, err := s.store.Adjust(s.Context(), s.caller, inventory.Adjustment{SKU: sku, Delta: units, Reason: reason}); err != nil {
			s.Fatal(err)
		}
	}
}

func (s *shop) hold(sku string, quantity int64, ttl time.Duration, who string) inventory.Reservation {
	s.Helper()
	r, _, err := s.store.Reserve(s.Context(), s.caller, inventory.Reserve{
		Lines: []inventory.Line{{SKU: sku, Quantity: quantity}}, TTL: ttl, Customer: who, Reference: who,
	})
	if err != nil {
		s.Fatal(err)
	}
	return r
}

func (s *shop) confirm(id uuid.UUID) {
	s.Helper()
	if _, _, err := s.store.Confirm(s.Context(), s.caller, inventory.Confirmation{ID: id}); err != nil {
		s.Fatal(err)
	}
}

// yard is Chronos's desk. Nothing works in the background: what a test wants run, it runs.
type yard struct {
	*desk
	store  *chronos.Store
	caller chronos.Caller
}

func newYard(t *testing.T, keys bool) *yard {
	t.Helper()
	y := &yard{caller: chronos.Caller{Tenant: "default"}}
	y.desk = newDesk(t, chronos.Schema(), keys, func(db *pgtest.DB, cfg httpapi.Config) *httpapi.API {
		if err := queue.EnsurePartitions(t.Context(), db.Pool); err != nil {
			t.Fatal(err)
		}
		service, err := chronos.New(t.Context(), chronos.Config{Pool: db.Pool, SessionURL: db.URL, Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		y.store = service.Store()
		face := chronosapi.New(service, cfg)
		web.Chronos(face, y.store, cfg.Keys)
		return face
	})
	return y
}

// put makes a job whose runs wait in the queue q. Its schedule is far from now.
func (y *yard) put(name string, change func(*chronos.Spec)) {
	y.Helper()
	spec := chronos.DefaultSpec()
	spec.Schedule.Expression, spec.Timezone = "30 2 29 2 *", "Europe/Berlin"
	spec.Target.Pull = &chronos.Pull{Queue: "q"}
	if change != nil {
		change(&spec)
	}
	if _, _, err := y.store.PutJob(y.Context(), y.caller, name, spec, nil); err != nil {
		y.Fatal(err)
	}
}

// run triggers a job and ends the run: with the error if there is one.
func (y *yard) run(name, failure string) uuid.UUID {
	y.Helper()
	r, _, err := y.store.TriggerJob(y.Context(), y.caller, name, nil)
	if err != nil {
		y.Fatal(err)
	}
	leased, _, err := y.store.LeaseRuns(y.Context(), y.caller,
		queue.Claim{Queue: chronos.QueueName(y.caller.Tenant, "q"), Worker: "worker-1", Max: 1, For: time.Minute}, 0, nil)
	if err != nil || len(leased) != 1 {
		y.Fatalf("leased %v, %v", leased, err)
	}
	if failure != "" {
		_, _, err = y.store.FailRun(y.Context(), y.caller, leased[0].Holding(), failure, false)
	} else {
		_, _, err = y.store.CompleteRun(y.Context(), y.caller, leased[0].Holding(), nil)
	}
	if err != nil {
		y.Fatal(err)
	}
	return r.ID
}
