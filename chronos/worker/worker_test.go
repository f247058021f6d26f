package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/chronos"
	"holdfast/chronos/api"
	"holdfast/chronos/queue"
	"holdfast/chronos/worker"
	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
	"holdfast/internal/pg/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var quiet = slog.New(slog.DiscardHandler)

// site is two replicas on one database, and a job whose runs are pulled from the queue q.
type site struct {
	*testing.T
	db   *pgtest.DB
	urls []string
}

func newSite(t *testing.T, keys bool) *site {
	t.Helper()
	s := &site{T: t, db: pgtest.New(t, chronos.Schema())}
	if err := queue.EnsurePartitions(t.Context(), s.db.Pool); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		service, err := chronos.New(t.Context(), chronos.Config{
			Pool: s.db.Pool, SessionURL: s.db.URL, Log: quiet, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		})
		if err != nil {
			t.Fatal(err)
		}
		cfg := httpapi.Config{Log: quiet}
		if keys {
			cfg.Keys = apikey.NewStore(s.db.Pool, "chronos")
		}
		server := httptest.NewServer(api.New(service, cfg))
		t.Cleanup(server.Close)
		s.urls = append(s.urls, server.URL)
	}
	if !keys {
		s.put("j", "q", `{"n": 1}`)
	}
	return s
}

func (s *site) post(path, body string, into any) {
	s.Helper()
	s.send(http.MethodPost, path, body, into)
}

func (s *site) send(method, path, body string, into any) {
	s.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, s.urls[0]+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= 300 {
		s.Fatalf("%s %s: %d %s %v", method, path, res.StatusCode, text, err)
	}
	if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			s.Fatal(err)
		}
	}
}

func (s *site) put(job, queue, payload string) {
	s.Helper()
	s.send(http.MethodPut, "/v1/jobs/"+job, `{"schedule": "0 0 1 1 *", "retry": {"max_attempts": 3, "backoff": "0s"},
		"target": {"pull": {"queue": "`+queue+`", "payload": `+payload+`}}}`, nil)
}

func (s *site) trigger(job string) (id string) {
	s.Helper()
	var made struct{ ID string }
	s.post("/v1/jobs/"+job+"/trigger", "", &made)
	return made.ID
}

type run struct {
	Status   string
	Result   any
	Attempts []struct{ Outcome, Error, Worker string }
}

// ended waits until the run has that status; the test's own time limit is the only bound.
func (s *site) ended(id, status string) run {
	s.Helper()
	for {
		var r run
		s.send(http.MethodGet, "/v1/runs/"+id, "", &r)
		if r.Status == status {
			return r
		}
		if r.Status == "failed" || r.Status == "succeeded" {
			s.Fatalf("the run has %+v, want %s", r, status)
		}
	}
}

// start runs a worker; stop has it drain, and waits.
func (s *site) start(cfg worker.Config) (stop func() error) {
	s.Helper()
	if cfg.Servers == nil {
		cfg.Servers = s.urls
	}
	cfg.Log = quiet
	w, err := worker.New(cfg)
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	s.Cleanup(func() {
		if err := stop(); err != nil {
			s.Error(err)
		}
	})
	return stop
}

func handling(h worker.Handler) worker.Config {
	return worker.Config{Queues: []worker.Queue{{Name: "q", Concurrency: 2, Handle: h}}}
}

// between puts a proxy before the first replica. meet has the say over each request first: it reports whether
// it has answered it. The answers of those that it lets pass are handed to spoil, if that isn't nil.
func (s *site) between(meet func(http.ResponseWriter, *http.Request) bool, spoil func(*http.Response) error) string {
	target, err := url.Parse(s.urls[0])
	if err != nil {
		s.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: spoil,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			panic(http.ErrAbortHandler) // the connection is cut
		},
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if meet == nil || !meet(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.Start()
	s.Cleanup(server.Close)
	return server.URL
}

func TestTheExampleWorks(t *testing.T) { // alone, for the sake of its variable
	s := newSite(t, false)
	replicas = s.urls
	s.put("nightly-report", "reports", `{"month": "May"}`)
	s.put("last", "reports", `null`)
	id := s.trigger("nightly-report")
	s.trigger("last")
	Example()
	if r := s.ended(id, "succeeded"); r.Result.(map[string]any)["pages"] != 12.0 {
		t.Errorf("the run is %+v", r)
	}
}

func TestWhatAHandlerReturnsIsTheOutcome(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	for job, payload := range map[string]string{"fails": "1", "panics": "1", "final": "1", "typed": `"text"`, "odd": "1"} {
		s.put(job, "q", payload)
	}
	handle := worker.ByJob(map[string]worker.Handler{
		"j": worker.Typed(func(_ context.Context, run *worker.Run, p struct{ N int }) (any, error) {
			return map[string]any{"n": p.N, "attempt": run.Attempt, "queue": run.Queue, "dated": !run.ScheduledFor.IsZero()}, nil
		}),
		"fails": func(_ context.Context, run *worker.Run) (any, error) {
			if run.Attempt < 3 {
				return nil, errors.New("no luck \x00\xff" + strings.Repeat("x", 5000))
			}
			return "at last", nil
		},
		"panics": func(context.Context, *worker.Run) (any, error) { panic("oh") },
		"final":  func(context.Context, *worker.Run) (any, error) { return nil, worker.Final(errors.New("never")) },
		"typed":  worker.Typed(func(context.Context, *worker.Run, int) (any, error) { return nil, nil }),
		"odd":    func(context.Context, *worker.Run) (any, error) { return strings.Repeat("x", 2<<20), nil },
	})
	ids := map[string]string{}
	for _, job := range []string{"j", "fails", "panics", "final", "typed", "odd"} {
		ids[job] = s.trigger(job)
	}
	s.put("stranger", "q", "1")
	stranger := s.trigger("stranger")
	s.start(handling(handle))
	if r := s.ended(ids["j"], "succeeded"); len(r.Attempts) != 1 || r.Attempts[0].Worker == "" ||
		r.Result.(map[string]any)["n"] != 1.0 || r.Result.(map[string]any)["queue"] != "q" || r.Result.(map[string]any)["dated"] != true {
		t.Errorf("it became %+v", r)
	}
	if r := s.ended(ids["fails"], "succeeded"); len(r.Attempts) != 3 || !strings.HasPrefix(r.Attempts[0].Error, "no luck �") || r.Result != "at last" {
		t.Errorf("one that fails became %+v", r)
	}
	if r := s.ended(ids["panics"], "failed"); len(r.Attempts) != 3 || !strings.HasPrefix(r.Attempts[2].Error, "panic: oh") {
		t.Errorf("one that panics became %+v", r)
	}
	if r := s.ended(ids["final"], "failed"); len(r.Attempts) != 1 || r.Attempts[0].Error != "never" {
		t.Errorf("a final failure became %+v", r)
	}
	if r := s.ended(ids["typed"], "failed"); len(r.Attempts) != 1 || !strings.Contains(r.Attempts[0].Error, "payload") {
		t.Errorf("one with another payload became %+v", r)
	}
	if r := s.ended(ids["odd"], "succeeded"); len(r.Attempts) != 1 || r.Result != nil {
		t.Errorf("one whose result is too long became %+v", r)
	}
	if r := s.ended(stranger, "failed"); len(r.Attempts) != 3 || !strings.Contains(r.Attempts[0].Error, "no handler") {
		t.Errorf("one without a handler became %+v", r)
	}
}

// A worker whose heartbeats don't arrive has its handler stop while the lease still lasts, by
// the database's clock.
func TestPitfall29AWorkerThatCannotRenewStopsBeforeItsLeaseEnds(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	id := s.trigger("j")
	lost := make(chan error)
	cfg := handling(func(ctx context.Context, _ *worker.Run) (any, error) {
		<-ctx.Done()
		lost <- context.Cause(ctx)
		return nil, ctx.Err()
	})
	// The leases wait before they are given, which is no part of them.
	front := s.between(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/leases") {
			return false
		}
		panic(http.ErrAbortHandler)
	}, nil)
	cfg.Servers, cfg.Lease, cfg.Margin, cfg.Report = []string{front}, 4*time.Second, 2*time.Second, time.Millisecond
	s.start(cfg)
	cause := <-lost
	var lasts bool
	s.db.Scan(t, "SELECT leased_until > clock_timestamp() FROM chronos.job_runs WHERE id = $1", []any{id}, &lasts)
	if !lasts || !errors.Is(cause, worker.ErrLeaseLost) {
		t.Errorf("the lease lasts: %t; the handler was stopped by %v", lasts, cause)
	}
}

func TestALeaseIsRenewedAndACancelledRunStopsItsHandler(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	id := s.trigger("j")
	began, lost := make(chan struct{}), make(chan error)
	cfg := handling(func(ctx context.Context, _ *worker.Run) (any, error) {
		close(began)
		<-ctx.Done()
		lost <- context.Cause(ctx)
		return "done", nil
	})
	cfg.Lease = time.Second
	s.start(cfg)
	<-began
	for past := false; !past; { // three leases
		s.db.Scan(t, "SELECT clock_timestamp() > started_at + interval '3 s' FROM chronos.job_runs WHERE id = $1", []any{id}, &past)
	}
	s.post("/v1/runs/"+id+"/cancel", "", nil)
	if cause := <-lost; !errors.Is(cause, worker.ErrLeaseLost) {
		t.Errorf("the handler was stopped by %v", cause)
	}
	if r := s.ended(id, "cancelled"); len(r.Attempts) != 1 || r.Result != nil {
		t.Errorf("it became %+v", r)
	}
}

// Draining keeps leases while handlers go on; what outlasts it is given back and doesn't count.
func TestPitfall29DrainingKeepsHeartbeating(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		drain time.Duration
		want  string
	}{"ends": {time.Minute, "succeeded"}, "given back": {-1, "pending"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, false)
			id := s.trigger("j")
			began, end := make(chan struct{}), make(chan struct{})
			cfg := handling(func(ctx context.Context, _ *worker.Run) (any, error) {
				close(began)
				select {
				case <-end:
					return nil, nil
				case <-ctx.Done():
					return nil, context.Cause(ctx)
				}
			})
			cfg.Lease, cfg.Drain = time.Second, c.drain
			stop := s.start(cfg)
			<-began
			stopped := make(chan error, 1)
			go func() { stopped <- stop() }()
			if c.drain > 0 {
				for past := false; !past; {
					s.db.Scan(t, "SELECT clock_timestamp() > started_at + interval '3 s' FROM chronos.job_runs WHERE id = $1", []any{id}, &past)
				}
				close(end)
			}
			if err := <-stopped; err != nil {
				t.Error(err)
			}
			r := s.ended(id, c.want)
			if c.drain < 0 && (len(r.Attempts) != 1 || r.Attempts[0].Outcome != "released") || c.drain > 0 && len(r.Attempts) != 1 {
				t.Errorf("it became %+v", r)
			}
		})
	}
}

// An answer that is lost costs no attempt: the same leases are got from the other replica, and an end is
// reported again.
func TestAnswersThatAreLostAreAskedForAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	id := s.trigger("j")
	var leases, ends atomic.Int64
	front := s.between(nil, func(r *http.Response) error {
		path := r.Request.URL.Path
		if strings.HasSuffix(path, "/leases") && leases.Add(1) == 1 || strings.HasSuffix(path, "/complete") && ends.Add(1) == 1 {
			return errors.New("lost")
		}
		return nil
	})
	cfg := handling(func(context.Context, *worker.Run) (any, error) { return "done", nil })
	cfg.Servers = []string{"http://127.0.0.1:1", front}
	stop := s.start(cfg)
	if r := s.ended(id, "succeeded"); len(r.Attempts) != 1 || r.Result != "done" {
		t.Errorf("it became %+v", r)
	}
	if err := stop(); err != nil || leases.Load() < 2 || ends.Load() != 2 {
		t.Errorf("%v; leases were asked for %d times, the end was reported %d times", err, leases.Load(), ends.Load())
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		s := newSite(t, false)
		asked := make(chan time.Time, 100) // polls may overlap
		front := s.between(func(w http.ResponseWriter, r *http.Request) bool {
			first := len(asked) == 0
			select {
			case asked <- time.Now():
			default:
			}
			if !first {
				return false
			}
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(status)
			return true
		}, nil)
		id := s.trigger("j")
		cfg := handling(func(context.Context, *worker.Run) (any, error) { return nil, nil })
		cfg.Servers = []string{front}
		cfg.Queues[0].Concurrency = 1
		stop := s.start(cfg)
		s.ended(id, "succeeded")
		if err := stop(); err != nil {
			t.Error(err)
		}
		first, second := <-asked, <-asked
		if pause := second.Sub(first); pause < time.Second {
			t.Errorf("%d: asked again after %v", status, pause)
		}
	}
}

func TestABadKeyEndsTheWorker(t *testing.T) {
	t.Parallel()
	s := newSite(t, true)
	w, err := worker.New(worker.Config{Servers: s.urls, Key: "hf_nobody", Log: quiet, Queues: handling(worker.ByJob(nil)).Queues})
	if err != nil {
		t.Fatal(err)
	}
	var refused *worker.Refusal
	if err := w.Run(t.Context()); !errors.As(err, &refused) || refused.Status != http.StatusUnauthorized || !strings.Contains(err.Error(), "queue q") {
		t.Errorf("it ended with %v", err)
	}
}

func TestConfigsThatCannotBe(t *testing.T) {
	t.Parallel()
	good := func() worker.Config {
		return worker.Config{Servers: []string{"http://127.0.0.1:1/"}, Queues: handling(worker.ByJob(nil)).Queues}
	}
	if _, err := worker.New(good()); err != nil {
		t.Error(err)
	}
	for want, spoil := range map[string]func(*worker.Config){
		"servers":   func(c *worker.Config) { c.Servers = nil },
		"127.0":     func(c *worker.Config) { c.Servers = []string{"127.0.0.1:8090"} },
		"queues":    func(c *worker.Config) { c.Queues = nil },
		"queues[0]": func(c *worker.Config) { c.Queues[0].Handle = nil },
		"lease":     func(c *worker.Config) { c.Lease = time.Millisecond },
		"margin":    func(c *worker.Config) { c.Lease, c.Margin = time.Second, time.Second },
		"report":    func(c *worker.Config) { c.Report = -1 },
	} {
		cfg := good()
		spoil(&cfg)
		if _, err := worker.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
