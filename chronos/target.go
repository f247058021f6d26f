package chronos

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sony/gobreaker/v2"

	"holdfast/chronos/queue"
	"holdfast/webhook"
)

const (
	// breakerFailures is how many deliveries to a target must fail in a row for it to be left alone.
	breakerFailures = 10
	// breakerPause is how long it then is left alone, before one delivery tries it again.
	breakerPause = 5 * time.Second
	// leastClaim is how many runs a claim asks for at least, if as many slots are free: see demand.
	leastClaim = 32
	// maxQuietTargets bounds the targets that are remembered for failures alone, while nothing goes to them.
	maxQuietTargets = 10_000
)

// errNotShown says nothing about a target: the delivery ended before its answer.
var errNotShown = errors.New("the delivery ended before its answer")

// targetFailed is a delivery that its target, named by its origin, didn't serve.
type targetFailed string

func (t targetFailed) Error() string { return string(t) + " didn't serve the delivery" }

// targets keeps what a slow or dead target can take of a replica within bounds. A target is what answers at a
// scheme, host and port, whichever jobs go there.
//
// One target may have at most as many deliveries in flight as are free: one alone half of them, two a third each, and
// whatever their number something stays free. Where that many are, or where delivery after delivery has failed, the target is
// shut: its runs stay in the queue, where another replica may take them. It is opened when a quarter of what it may have is free again,
// or after a pause, for one delivery that shows whether all may go on. It is safe for concurrent use.
type targets struct {
	front *queue.Front
	bell  func()
	open  prometheus.Gauge
	log   *slog.Logger
	total int // deliveries that may be in flight

	mu   sync.Mutex
	busy int // deliveries in flight
	of   map[int64]*target
	shut map[int64]*target // those of which no runs are asked for
}

// target is one of them; the targets' mu guards it.
type target struct {
	id      int64
	origin  string // once it has failed
	going   int    // deliveries in flight
	breaker *gobreaker.TwoStepCircuitBreaker[any]
	broken  bool // open, or half open
	resting bool // open
	probing bool // half open, and a delivery is trying it
	mark    queue.Mark
}

func newTargets(total int, front *queue.Front, bell func(), open prometheus.Gauge, log *slog.Logger) *targets {
	return &targets{
		front: front, bell: bell, open: open, log: log, total: total,
		of: map[int64]*target{}, shut: map[int64]*target{},
	}
}

// demand completes a claim with what may be taken of each target. What is due next probably goes where most has gone, so it asks for no more
// than that target may have: runs that a claim leaves cost it as much as those that it takes.
func (t *targets) demand(c *queue.Claim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.Free, c.Targets, c.Probed = t.total-t.busy, make(map[int64]int, len(t.of)), map[int64]bool{}
	c.Shut = slices.Collect(maps.Keys(t.shut))
	most := 0
	for id, to := range t.of {
		if to.going > 0 {
			c.Targets[id] = to.going
		}
		if t.shut[id] == nil {
			most = max(most, to.going)
		}
		if to.broken {
			c.Probed[id] = true
		}
	}
	c.Max = min(c.Max, max(leastClaim, (c.Free-most+1)/2))
}

// crowded takes in which targets a claim left runs of, and reports whether one of them still can't take them.
func (t *targets) crowded(ids []int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	any := false
	for _, id := range ids {
		if to := t.of[id]; to != nil && !t.roomy(to) {
			t.close(to)
			any = true
		}
	}
	return any
}

// close leaves a target's runs where they are, and remembers where. The caller holds mu.
func (t *targets) close(to *target) {
	if t.shut[to.id] == nil {
		t.shut[to.id], to.mark = to, t.front.Mark()
	}
}

// reopen goes back to the runs of those that can take some again. The caller holds mu.
func (t *targets) reopen() {
	for id, to := range t.shut {
		if t.roomy(to) {
			delete(t.shut, id)
			t.front.Rewind(to.mark)
			t.bell()
		}
	}
}

// roomy reports whether a target may have more, and so many that they are worth a claim. The caller holds mu.
func (t *targets) roomy(to *target) bool {
	if to.broken {
		return !to.resting && !to.probing
	}
	return to.going == 0 || 4*to.going <= 3*(t.total-t.busy)
}

// start takes in a delivery that begins, and gives what is to be called once with what it has shown of the target: nil that it serves.
// With ok false nothing must be sent: the target has been shut since its run was asked for.
func (t *targets) start(id int64) (land func(shown error), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy++
	if id == 0 {
		return func(error) { t.land() }, true
	}
	to := t.of[id]
	if to == nil {
		t.forget()
		to = &target{id: id, breaker: gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
			Timeout:     breakerPause,
			ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= breakerFailures },
			IsExcluded:  func(err error) bool { return errors.Is(err, errNotShown) },
		})}
		t.of[id] = to
	}
	to.going++
	done, err := to.breaker.Allow()
	probe := err == nil && to.broken
	if probe {
		to.probing = true
		t.close(to)
	}
	return func(shown error) {
		t.mu.Lock()
		to.going--
		if probe {
			to.probing = false
		}
		if err == nil {
			done(shown)
			t.see(to, shown)
		}
		t.mu.Unlock()
		t.land()
	}, err == nil
}

// land makes room.
func (t *targets) land() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy--
	t.reopen()
}

// see acts on what a delivery has made of a target's breaker. The caller holds mu.
func (t *targets) see(to *target, shown error) {
	var failed targetFailed
	if errors.As(shown, &failed) {
		to.origin = string(failed)
	}
	switch state := to.breaker.State(); {
	case state == gobreaker.StateOpen && !to.resting:
		if !to.broken {
			t.open.Inc()
			t.log.Warn("a target is left alone: one delivery after another failed there", "target", to.origin, "pause", breakerPause)
		}
		to.broken, to.resting = true, true
		t.close(to)
		time.AfterFunc(breakerPause+time.Millisecond, func() { t.rested(to) })
	case state == gobreaker.StateClosed && to.broken:
		to.broken = false
		t.open.Dec()
		t.log.Info("a target that was left alone serves again", "target", to.origin)
	case state == gobreaker.StateClosed && to.going == 0 && to.breaker.Counts().ConsecutiveFailures == 0 && t.shut[to.id] == nil:
		delete(t.of, to.id)
	}
}

// rested lets one delivery try a target whose pause is over.
func (t *targets) rested(to *target) {
	t.mu.Lock()
	defer t.mu.Unlock()
	to.resting = false
	t.reopen()
}

// forget drops, when there are many, targets that have failed but aren't broken, and to which nothing goes. The caller holds mu.
func (t *targets) forget() {
	if len(t.of) < maxQuietTargets {
		return
	}
	for id, to := range t.of {
		if to.going == 0 && !to.broken && t.shut[id] == nil {
			delete(t.of, id)
		}
	}
}

// shown is what a delivery shows of its target.
func shown(r webhook.Result, to *Target) error {
	switch {
	case r.Outcome == webhook.Cancelled, r.Outcome == webhook.TargetForbidden, r.Outcome == webhook.InvalidRequest:
		return errNotShown
	case r.TargetFailed():
		return targetFailed(to.origin())
	}
	return nil
}
