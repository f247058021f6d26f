package worker

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ErrDrained is the cause for which a handler's context ends when the time to drain is over.
var ErrDrained = errors.New("the worker shuts down")

// The defaults of a [Config].
const (
	DefaultLease  = 30 * time.Second
	DefaultDrain  = 30 * time.Second
	DefaultReport = time.Minute
)

const (
	// pollWait is how long a replica is to wait for a run to come due: short enough for one that hangs to be
	// noticed before long.
	pollWait = 10 * time.Second
	// answerWithin is how long any other answer is waited for, and that of a poll after it should have come.
	answerWithin = 10 * time.Second
	// lastWord is how long a replica is asked whether it leased runs to a poll that was left.
	lastWord = time.Second
	// maxPoll is how many runs are taken at once: what they may have as payloads fits into maxAnswer.
	maxPoll = 50
	// afterDrain is how long handlers may take to return when the time to drain is over.
	afterDrain = 5 * time.Second
)

// Config says what a worker works on. The zero of each optional field is its default.
type Config struct {
	Servers []string // addresses of the replicas, such as https://chronos.example.com; at least one
	Key     string   // API key with the scope write; empty: none
	Queues  []Queue  // at least one

	Name   string        // kept with each attempt, up to 255 characters; default: host and process id
	Lease  time.Duration // how long a lease lasts unless it is renewed; 1 s to 24 h
	Margin time.Duration // how long before its end a handler is told to stop; default: a sixth of Lease
	Drain  time.Duration // how long handlers may go on when Run is to end; negative: not at all
	Report time.Duration // how long it is tried to report the end of a run; default: a minute
	Client *http.Client  // default: one of its own
	Log    *slog.Logger  // default: slog.Default()
}

// Queue is a queue and who works its runs.
type Queue struct {
	Name        string
	Concurrency int // how many runs at once; default: 1
	Handle      Handler
}

// Worker works runs. Make it with [New].
type Worker struct {
	cfg    Config
	client *client
	log    *slog.Logger

	inHand atomic.Int64
}

// shift is what belongs to one call of Run.
type shift struct {
	hands  context.Context // what handlers work by, until the time to drain is over
	leases context.Context // what leases are kept by, until Run returns
	runs   sync.WaitGroup
}

// New checks the configuration; it starts nothing.
func New(cfg Config) (*Worker, error) {
	servers := make([]string, len(cfg.Servers))
	for i, address := range cfg.Servers {
		u, err := url.Parse(address)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return nil, fmt.Errorf("servers: %q isn't an address such as http://127.0.0.1:8090", address)
		}
		servers[i] = strings.TrimRight(address, "/")
	}
	if cfg.Lease == 0 {
		cfg.Lease = DefaultLease
	}
	if cfg.Margin == 0 {
		cfg.Margin = cfg.Lease / 6
	}
	if cfg.Drain == 0 {
		cfg.Drain = DefaultDrain
	}
	if cfg.Report == 0 {
		cfg.Report = DefaultReport
	}
	switch {
	case len(servers) == 0:
		return nil, errors.New("servers: at least one is needed")
	case len(cfg.Queues) == 0:
		return nil, errors.New("queues: at least one is needed")
	case cfg.Lease < time.Second || cfg.Lease > 24*time.Hour:
		return nil, errors.New("lease: must be 1s to 24h")
	case cfg.Margin < 0 || cfg.Margin > cfg.Lease/2:
		return nil, errors.New("margin: must be 0s to half the lease")
	case cfg.Report < 0:
		return nil, errors.New("report: can't be negative")
	}
	queues := make([]Queue, len(cfg.Queues))
	for i, q := range cfg.Queues {
		if q.Concurrency == 0 {
			q.Concurrency = 1
		}
		if q.Name == "" || q.Concurrency < 0 || q.Handle == nil {
			return nil, fmt.Errorf("queues[%d]: a name and a handler are needed, and the concurrency can't be negative", i)
		}
		queues[i] = q
	}
	cfg.Queues = queues
	if cfg.Name == "" {
		host, _ := os.Hostname()
		cfg.Name = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	if cfg.Client == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConnsPerHost = 64
		cfg.Client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Worker{cfg: cfg, client: &client{servers: servers, key: cfg.Key, http: cfg.Client}, log: cfg.Log}, nil
}

// Run works until ctx ends, then drains as the package says, and returns nil. It ends sooner, with
// a [*Refusal], if Chronos refuses to give it runs: the key isn't good, say. It fails if handlers
// haven't returned 5 s after their contexts have ended; they go on, and their leases end.
func (w *Worker) Run(ctx context.Context) error {
	defer w.client.http.CloseIdleConnections()
	polling, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	leases, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	hands, drop := context.WithCancelCause(leases)
	defer drop(nil)
	s := &shift{hands: hands, leases: leases}
	var polls sync.WaitGroup
	for _, q := range w.cfg.Queues {
		polls.Go(func() {
			if err := w.poll(polling, s, q); err != nil {
				stop(err)
			}
		})
	}
	polls.Wait() // until ctx has ended, or one of them was refused
	refused, _ := errors.AsType[*Refusal](context.Cause(polling))
	done := make(chan struct{})
	go func() { s.runs.Wait(); close(done) }()
	if !waitFor(done, w.cfg.Drain) {
		drop(ErrDrained)
		if !waitFor(done, 2*afterDrain) {
			return errors.Join(context.Cause(polling), fmt.Errorf("%d handlers haven't returned; their leases end", w.inHand.Load()))
		}
	}
	if refused != nil {
		return context.Cause(polling)
	}
	return nil
}

func waitFor(done <-chan struct{}, d time.Duration) bool {
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}

// poll leases runs of a queue whenever there is a hand free, and hands them out.
func (w *Worker) poll(ctx context.Context, s *shift, q Queue) error {
	free := make(chan struct{}, q.Concurrency)
	for range q.Concurrency {
		free <- struct{}{}
	}
	idle := firstPause
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-free:
		}
		n := 1
		for more := true; more && n < maxPoll; {
			select {
			case <-free:
				n++
			default:
				more = false
			}
		}
		asked := time.Now()
		got, err := w.lease(ctx, s, q, n)
		for _, h := range got {
			s.runs.Go(func() {
				defer func() { free <- struct{}{} }()
				w.work(s, q, h)
			})
		}
		for range n - len(got) {
			free <- struct{}{}
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, new(*Refusal)):
			return fmt.Errorf("lease runs of the queue %s: %w", q.Name, err)
		case err != nil:
			w.log.Warn("can't lease runs", "queue", q.Name, "error", err)
		case len(got) == 0 && time.Since(asked) < pollWait/2: // the replica shuts down: it doesn't wait any more
			w.client.turn.Add(1)
			sleep(ctx, jittered(idle))
			idle = min(2*idle, time.Second)
			continue
		}
		idle = firstPause
	}
}

// leaseAnswer is what a replica says to who asks for runs.
type leaseAnswer struct {
	Runs []struct {
		ID           string          `json:"id"`
		Job          string          `json:"job"`
		Attempt      int             `json:"attempt"`
		LeaseToken   string          `json:"lease_token"`
		Payload      json.RawMessage `json:"payload"`
		ScheduledFor time.Time       `json:"scheduled_for"`
	} `json:"runs"`
	Waited string `json:"waited"` // at the least, between the request and the leases
}

// lease asks for runs as long as their leases would last, so that none is lost with an answer. If ctx
// ends meanwhile it makes sure of that, and gives back what it gets.
func (w *Worker) lease(ctx context.Context, s *shift, q Queue, n int) ([]*hold, error) {
	req := request{
		path: "/v1/leases", key: newKey(), each: pollWait + answerWithin,
		body: map[string]any{"queue": q.Name, "max": n, "lease": w.cfg.Lease.String(), "wait": pollWait.String(), "worker": w.cfg.Name},
	}
	var answer leaseAnswer
	asking, cancel := context.WithTimeout(ctx, min(max(w.cfg.Lease, 2*req.each), time.Hour))
	defer cancel()
	err := w.client.do(asking, &req, &answer)
	if err == nil {
		return w.holds(q, &req, &answer), nil
	}
	if ctx.Err() != nil && !req.sent.IsZero() {
		// A replica that had leased some, when it was left, says so at once.
		soon, cancel := context.WithTimeout(s.hands, lastWord)
		defer cancel()
		if w.client.do(soon, &req, &answer) == nil {
			for _, h := range w.holds(q, &req, &answer) {
				s.runs.Go(func() { w.giveBack(s, h) })
			}
		}
	}
	return nil, err
}

func (w *Worker) holds(q Queue, req *request, answer *leaseAnswer) []*hold {
	from := req.sent
	if req.replayed {
		from = req.first
	}
	waited, _ := time.ParseDuration(answer.Waited) // none: it is counted from the request
	holds := make([]*hold, len(answer.Runs))
	for i, r := range answer.Runs {
		holds[i] = &hold{
			run:   &Run{ID: r.ID, Job: r.Job, Queue: q.Name, Attempt: r.Attempt, ScheduledFor: r.ScheduledFor, Payload: r.Payload},
			token: r.LeaseToken, length: w.cfg.Lease, margin: w.cfg.Margin, client: w.client,
			until: from.Add(max(0, waited) + w.cfg.Lease),
		}
	}
	return holds
}

// work has the handler work a run, and reports what came of it.
func (w *Worker) work(s *shift, q Queue, h *hold) {
	w.inHand.Add(1)
	defer w.inHand.Add(-1)
	log := w.log.With("run", h.run.ID, "job", h.run.Job, "attempt", h.run.Attempt)
	if err := h.ensure(s.leases); err != nil {
		log.Warn("left a run alone whose lease is nearly over", "error", err)
		return
	}
	ctx, lose := context.WithCancelCause(s.hands)
	defer lose(nil)
	keeping, enough := context.WithCancel(s.leases)
	var kept sync.WaitGroup
	kept.Go(func() { h.keep(keeping, lose) })
	defer kept.Wait()
	defer enough()

	result, err := q.Handle.call(ctx, h.run)
	cause := context.Cause(ctx)
	switch {
	case errors.As(cause, new(*lostError)):
		log.Warn("a run was taken away", "error", cause)
	case err != nil && errors.Is(cause, ErrDrained):
		w.giveBack(s, h)
	case err != nil:
		log.Warn("a run failed", "error", err)
		w.report(s, log, func(ctx context.Context) error { return h.fail(ctx, err) })
	default:
		w.report(s, log, func(ctx context.Context) error {
			err, left := h.complete(ctx, result)
			if left != nil {
				log.Error("the result of a run was left out", "error", left)
			}
			return err
		})
	}
}

// report tries for a while, and the less when Run is to end.
func (w *Worker) report(s *shift, log *slog.Logger, send func(context.Context) error) {
	ctx, cancel := context.WithTimeout(s.leases, w.cfg.Report)
	defer cancel()
	defer context.AfterFunc(s.hands, func() { time.AfterFunc(afterDrain, cancel) })()
	if err := send(ctx); err != nil {
		log.Error("can't report the end of a run", "error", err)
	}
}

func (w *Worker) giveBack(s *shift, h *hold) {
	ctx, cancel := context.WithTimeout(s.leases, afterDrain)
	defer cancel()
	if err := h.giveBack(ctx); err != nil {
		w.log.Warn("can't give a run back", "run", h.run.ID, "job", h.run.Job, "error", err)
	}
}

// newKey is an idempotency key.
func newKey() string { return rand.Text() }
