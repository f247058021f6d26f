package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// ErrLeaseLost means that the run is no longer this worker's.
var ErrLeaseLost = errors.New("the lease is lost")

// Refusal is an answer that asking again won't change. It matches [ErrLeaseLost] where that is what it says.
type Refusal struct {
	Status int
	Code   string // a stable word
	Detail string
}

func (e *Refusal) Error() string {
	return fmt.Sprintf("refused with %d %s: %s", e.Status, e.Code, e.Detail)
}

// Is matches [ErrLeaseLost].
func (e *Refusal) Is(target error) bool {
	return target == ErrLeaseLost && (e.Code == "lease_lost" || e.Code == "run_not_found")
}

// passing is a trouble that may be over when it is tried again.
type passing struct {
	err   error
	after time.Duration // not before
	all   bool          // the other replicas needn't be asked meanwhile
}

func (e *passing) Error() string { return e.err.Error() }
func (e *passing) Unwrap() error { return e.err }

const (
	firstPause = 100 * time.Millisecond
	maxPause   = 15 * time.Second
	// maxAfter bounds what a Retry-After is believed.
	maxAfter = 5 * time.Minute
	// maxAnswer bounds an answer in bytes: maxPoll runs with payloads of 1 MiB fit.
	maxAnswer = 64 << 20
)

// client speaks to the replicas. It is safe for concurrent use.
type client struct {
	servers []string
	key     string
	http    *http.Client
	turn    atomic.Uint64 // counts failures: which replica is asked follows from it
}

// request is a POST that counts once however often it is sent.
type request struct {
	path string
	key  string        // idempotency key, if not empty
	body any           // as JSON
	each time.Duration // how long an answer is waited for

	first, sent time.Time // when it was sent first, and last
	replayed    bool      // the answer is that to an earlier time
}

// do sends the request until it gets an answer, or ctx ends. It fails with a [*Refusal], or
// what stood in the way last.
func (c *client) do(ctx context.Context, r *request, into any) error {
	body, err := json.Marshal(r.body)
	if err != nil {
		return err
	}
	pause := firstPause
	for {
		var after time.Duration
		for range c.servers {
			turn := c.turn.Load()
			if err = c.try(ctx, c.servers[turn%uint64(len(c.servers))], r, body, into); err == nil {
				return nil
			}
			trouble, ok := errors.AsType[*passing](err)
			if !ok || ctx.Err() != nil {
				return err
			}
			c.turn.CompareAndSwap(turn, turn+1)
			if after == 0 || trouble.after < after || trouble.all {
				after = trouble.after
			}
			if trouble.all {
				break
			}
		}
		if !sleep(ctx, jittered(max(pause, after))) {
			return err
		}
		pause = min(2*pause, maxPause)
	}
}

// jittered is d and up to a half more, so that workers don't come in step.
func jittered(d time.Duration) time.Duration { return d + rand.N(d/2+1) }

// sleep reports whether ctx still goes on after d.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (c *client) try(ctx context.Context, server string, r *request, body []byte, into any) error {
	ctx, cancel := context.WithTimeout(ctx, r.each)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server+r.path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	r.sent = time.Now()
	if r.first.IsZero() {
		r.first = r.sent
	}
	res, err := c.http.Do(req)
	if err != nil {
		return &passing{err: err}
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return &passing{err: err}
	}
	if res.StatusCode == http.StatusOK {
		r.replayed = res.Header.Get("Idempotency-Replayed") == "true"
		if err := json.Unmarshal(text, into); err != nil {
			return &passing{err: fmt.Errorf("the answer of %s can't be read: %w", server, err)}
		}
		return nil
	}
	refusal := &Refusal{Status: res.StatusCode, Code: "unknown", Detail: http.StatusText(res.StatusCode)}
	_ = json.Unmarshal(text, refusal) // what isn't a problem document is told by its status
	switch status := res.StatusCode; {
	case status == http.StatusTooManyRequests: // a limit of the API key: it holds everywhere
		return &passing{refusal, retryAfter(res), true}
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooEarly, status < 400:
		return &passing{err: refusal, after: retryAfter(res)}
	}
	return refusal
}

// retryAfter reads how long the server asks to be left alone.
func retryAfter(res *http.Response) time.Duration {
	text := res.Header.Get("Retry-After")
	if seconds, err := strconv.Atoi(text); err == nil && seconds >= 0 {
		return min(time.Duration(min(seconds, 86400))*time.Second, maxAfter)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(0, time.Until(at)), maxAfter)
	}
	return 0
}
