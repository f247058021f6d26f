package worker

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"
)

// hold is a lease that this worker has, from its beginning to its end.
type hold struct {
	run    *Run
	token  string
	length time.Duration // that is asked for
	margin time.Duration
	client *client

	mu    sync.Mutex
	until time.Time // the lease lasts at least until then, by the monotonic clock
}

// path is that of one of the run's actions.
func (h *hold) path(action string) string {
	return "/v1/runs/" + url.PathEscape(h.run.ID) + "/" + action
}

func (h *hold) end() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.until
}

// ensure renews a lease that has less than half of its time left, as one may have whose answer was long in coming.
func (h *hold) ensure(ctx context.Context) error {
	now := time.Now()
	if h.end().Sub(now) > h.length/2 {
		return nil
	}
	return h.renew(ctx, now.Add(h.length/2))
}

// keep renews the lease until ctx ends or it is lost; then it calls lose with the reason, a margin before
// the lease ends if it wasn't renewed by then.
func (h *hold) keep(ctx context.Context, lose func(error)) {
	var last error
	for {
		end := h.end()
		stop := end.Add(-h.margin)
		if !sleep(ctx, min(time.Until(end.Add(-h.length*2/3)), time.Until(stop))) {
			return
		}
		if !time.Now().Before(stop) {
			lose(fmt.Errorf("%w: it couldn't be renewed: %w", ErrLeaseLost, orNobody(last)))
			return
		}
		err := h.renew(ctx, stop)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrLeaseLost):
			lose(&lostError{err})
			return
		case err != nil:
			last = err
			if errors.As(err, new(*Refusal)) && !sleep(ctx, min(jittered(h.length/20), time.Until(stop))) {
				return
			}
		}
	}
}

// lostError is the word of a replica that the lease is lost: there is nothing left to report.
type lostError struct{ error }

func (e *lostError) Unwrap() error { return e.error }

func orNobody(err error) error {
	if err == nil {
		return errors.New("this process stood still")
	}
	return err
}

// renew asks until stop. The new lease is counted from before it was asked for.
func (h *hold) renew(ctx context.Context, stop time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, stop)
	defer cancel()
	var answer struct{}
	req := request{
		path: h.path("heartbeat"), each: h.length / 6,
		body: map[string]string{"lease_token": h.token, "lease": h.length.String()},
	}
	if err := h.client.do(ctx, &req, &answer); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if until := req.sent.Add(h.length); until.After(h.until) {
		h.until = until
	}
	return nil
}

// maxErrorText is how much of an error Chronos keeps, in bytes.
const maxErrorText = 4 << 10

// complete reports success, until ctx ends. A result that is refused is left out: the work is done.
func (h *hold) complete(ctx context.Context, result any) (err, left error) {
	body := map[string]any{"lease_token": h.token, "result": result}
	if result == nil {
		delete(body, "result")
	}
	send := func() error {
		var answer struct{}
		return h.client.do(ctx, &request{path: h.path("complete"), body: body, each: answerWithin}, &answer)
	}
	err = send()
	refused, ok := errors.AsType[*Refusal](err)
	unsent := err != nil && !ok && ctx.Err() == nil // it can't be made JSON
	if result == nil || !unsent && (!ok || errors.Is(err, ErrLeaseLost) || refused.Status == 401 || refused.Status == 403) {
		return err, nil
	}
	delete(body, "result")
	return send(), err
}

// fail reports a failure, until ctx ends.
func (h *hold) fail(ctx context.Context, cause error) error {
	text := strings.ReplaceAll(strings.ToValidUTF8(cause.Error(), "�"), "\x00", "�")
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "")
	}
	body := map[string]any{"lease_token": h.token, "error": text, "retry": !errors.As(cause, new(finalError))}
	var answer struct{}
	return h.client.do(ctx, &request{path: h.path("fail"), body: body, each: answerWithin}, &answer)
}

// giveBack makes the run due again for others.
func (h *hold) giveBack(ctx context.Context) error {
	var answer struct{}
	return h.client.do(ctx, &request{
		path: h.path("release"), key: newKey(), body: map[string]string{"lease_token": h.token}, each: answerWithin,
	}, &answer)
}
