// Package loop runs periodic work: one call at a time, spread over replicas by jitter,
// sooner when woken.
package loop

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"time"
)

// Config says how often to work. Every replica runs its own loop, so the work itself must
// stand rivals.
type Config struct {
	Name  string
	Every time.Duration   // the pause between the end of one call and the next, ± 20 %
	Wake  <-chan struct{} // a value ends the pause early; nil: never
	Log   *slog.Logger
}

// Run calls work until ctx ends, first at once. An error is logged and the loop goes on, so a
// database that is away costs one line per call; a panic counts as an error. When work
// says that there is more to do, the next call follows without a pause.
func Run(ctx context.Context, cfg Config, work func(context.Context) (more bool, err error)) error {
	for ctx.Err() == nil {
		more, err := call(ctx, cfg, work)
		if err != nil && ctx.Err() == nil {
			cfg.Log.Error("periodic work failed", "loop", cfg.Name, "error", err)
		}
		if more && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
		case <-cfg.Wake:
		case <-time.After(cfg.Every*4/5 + rand.N(cfg.Every*2/5+1)):
		}
	}
	return nil
}

func call(ctx context.Context, cfg Config, work func(context.Context) (bool, error)) (more bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			cfg.Log.Error("periodic work panicked", "loop", cfg.Name, "panic", p, "stack", string(debug.Stack()))
			more = false
		}
	}()
	return work(ctx)
}
