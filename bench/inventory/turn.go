package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// pace says how long a turn is: for a time, of which a first part isn't measured, or a
// number of commands.
type pace struct {
	warm, length time.Duration
	count        int64 // not 0: this many commands, and all of them measured
}

// stopwatch decides when a turn's callers stop, and what of it is measured.
type stopwatch struct {
	from, to time.Time // zero: from the first to the last command
	left     atomic.Int64
	counted  bool
}

func (p pace) start() *stopwatch {
	w := &stopwatch{counted: p.count > 0}
	if w.counted {
		w.left.Store(p.count)
		w.from = time.Now()
		return w
	}
	w.from = time.Now().Add(p.warm)
	w.to = w.from.Add(p.length)
	return w
}

// more reports whether another command is to be sent at the given time.
func (w *stopwatch) more(now time.Time) bool {
	if w.counted {
		return w.left.Add(-1) >= 0
	}
	return now.Before(w.to)
}

// measured reports whether a command that ended at the given time counts.
func (w *stopwatch) measured(ended time.Time) bool {
	return w.counted || ended.After(w.from) && !ended.After(w.to)
}

// timing collects what one goroutine of the client sees of a turn.
type timing struct {
	latencies []time.Duration // of the commands that are measured
	errors    map[string]int64
}

func (t *timing) note(w *stopwatch, began, ended time.Time) {
	if w.measured(ended) {
		t.latencies = append(t.latencies, ended.Sub(began))
	}
}

func (t *timing) failed(err error) {
	if t.errors == nil {
		t.errors = map[string]int64{}
	}
	t.errors[err.Error()]++
}

// longest is the most that the histogram takes in.
const longest = 5 * time.Minute

// histogram makes one of many timings, in nanoseconds, to three digits.
func histogram(timings []timing) *hdrhistogram.Histogram {
	h := hdrhistogram.New(1, int64(longest), 3)
	for _, t := range timings {
		for _, d := range t.latencies {
			_ = h.RecordValue(int64(min(d, longest)))
		}
	}
	return h
}

// errStopped says that a command wasn't begun because the turn is over.
var errStopped = errors.New("the turn is over")

// call carries out one command: a function call for us, or a transaction. When ctx ends, what
// has not begun is left undone, with errStopped.
type call func(context.Context, command) (id string, o outcome, err error)

// inProcess lets each buyer call as fast as it gets answers, in a goroutine of its own.
func inProcess(do call) play {
	return func(ctx context.Context, buyers []*buyer, w *stopwatch) []timing {
		if !w.counted {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, w.to)
			defer cancel()
		}
		timings := make([]timing, len(buyers))
		var all sync.WaitGroup
		for i, b := range buyers {
			all.Go(func() {
				t := &timings[i]
				for began := time.Now(); ctx.Err() == nil && w.more(began); {
					c := b.next()
					id, o, err := do(ctx, c)
					ended := time.Now()
					if errors.Is(err, errStopped) {
						return
					}
					if err != nil {
						t.failed(err)
					} else {
						b.answered(c, id, o)
						t.note(w, began, ended)
					}
					began = ended
				}
			})
		}
		all.Wait()
		return timings
	}
}

// play lets buyers work on a system until the stopwatch says that it is enough, and all
// their commands are answered.
type play func(ctx context.Context, buyers []*buyer, w *stopwatch) []timing
