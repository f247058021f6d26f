package chronos

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/chronos/queue"
	"holdfast/internal/elect"
	"holdfast/internal/pg"
	"holdfast/internal/pg/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var me = Caller{Tenant: "default"}

var quiet = slog.New(slog.DiscardHandler)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// world is one test's database and the replicas on it.
type world struct {
	*pgtest.DB
	t     *testing.T
	store *Store
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{DB: pgtest.New(t, Schema()), t: t}
	if err := queue.EnsurePartitions(t.Context(), w.Pool); err != nil {
		t.Fatal(err)
	}
	w.store = w.service(Config{}).store
	return w
}

func (w *world) service(cfg Config) *Service {
	w.t.Helper()
	cfg.SessionURL, cfg.Allow, cfg.Log = w.URL, loopback, quiet
	if cfg.Pool == nil {
		cfg.Pool = w.Pool
	}
	s, err := New(w.t.Context(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// start runs a replica; stop drains it and waits.
func (w *world) start(cfg Config) (s *Service, stop func()) {
	w.t.Helper()
	pool, err := pgxpool.New(w.t.Context(), w.URL)
	if err != nil {
		w.t.Fatal(err)
	}
	cfg.Pool = pool
	s = w.service(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("the replica ended with %v", err)
		}
		pool.Close()
	})
	w.t.Cleanup(stop)
	return s, stop
}

func (w *world) put(name string, spec Spec) Job {
	w.t.Helper()
	put, _, err := w.store.PutJob(w.t.Context(), me, name, spec, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return put.Job
}

func (w *world) trigger(name string) Run {
	w.t.Helper()
	run, _, err := w.store.TriggerJob(w.t.Context(), me, name, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return run
}

// to is a spec of a webhook that runs every so often.
func to(url string, every time.Duration) Spec {
	spec := DefaultSpec()
	spec.Schedule.Every = every
	spec.Target.Webhook = &Webhook{URL: url, Method: "POST", Timeout: 10 * time.Second}
	return spec
}

// await waits for a condition on the database; the test's own time limit is the only bound.
func (w *world) await(sql string, args ...any) {
	w.t.Helper()
	for ok := false; !ok; {
		if err := w.Pool.QueryRow(context.Background(), sql, args...).Scan(&ok); err != nil && !pg.Unavailable(err) {
			w.t.Fatalf("%s: %v", sql, err)
		}
	}
}

// term wins a leadership as a leader would.
func (w *world) term() elect.Term {
	w.t.Helper()
	won := make(chan elect.Term)
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = elect.Lead(ctx, elect.Config{URL: w.URL, Schema: schemaName, Name: plannerName, Holder: "test", Log: quiet},
			func(ctx context.Context, term elect.Term) error {
				select {
				case won <- term:
				case <-ctx.Done():
				}
				<-ctx.Done()
				return nil
			})
	}()
	w.t.Cleanup(func() { cancel(); <-done })
	return <-won
}

// receiver answers deliveries and remembers them.
type receiver struct {
	*httptest.Server
	mu   sync.Mutex
	got  []received
	news chan struct{}
}

type received struct {
	http.Header
	body string
}

// newReceiver makes a receiver; answer may be nil for 200.
func newReceiver(t *testing.T, answer http.HandlerFunc) *receiver {
	r := &receiver{news: make(chan struct{}, 1)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		r.got = append(r.got, received{req.Header, string(body)})
		r.mu.Unlock()
		select {
		case r.news <- struct{}{}:
		default:
		}
		if answer != nil {
			answer(rw, req)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) all() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]received(nil), r.got...)
}

// wait returns once n deliveries have come.
func (r *receiver) wait(n int) []received {
	for {
		if got := r.all(); len(got) >= n {
			return got
		}
		<-r.news
	}
}

func (w *world) inTx(fn func(tx pgx.Tx) error) {
	w.t.Helper()
	if err := queue.InTx(context.Background(), w.Pool, pg.TxOptions{}, fn); err != nil {
		w.t.Fatal(err)
	}
}
