package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// Run is one attempt at a run, as a handler gets it.
type Run struct {
	ID           string // the same on every attempt
	Job          string
	Queue        string
	Attempt      int       // from 1
	ScheduledFor time.Time // the instant of the job's schedule
	Payload      json.RawMessage
}

// Decode reads the payload into a value. Its error is [Final]: the payload is the same on every attempt.
func (r *Run) Decode(into any) error {
	if err := json.Unmarshal(r.Payload, into); err != nil {
		return Final(fmt.Errorf("the payload of %s can't be read: %w", r.Job, err))
	}
	return nil
}

// Handler works a run. What it returns is kept with the run: a result, as JSON, or an error's text. It
// has to return soon after ctx has ended. Handlers are called concurrently.
type Handler func(ctx context.Context, run *Run) (result any, err error)

// Typed is a handler whose payload is a P. A payload that isn't one fails for good.
func Typed[P any](handle func(ctx context.Context, run *Run, payload P) (result any, err error)) Handler {
	return func(ctx context.Context, run *Run) (any, error) {
		var payload P
		if err := run.Decode(&payload); err != nil {
			return nil, err
		}
		return handle(ctx, run, payload)
	}
}

// ByJob is a handler that leaves a run to the handler of its job. A run of another job fails, and is
// tried again: another worker may know it.
func ByJob(handlers map[string]Handler) Handler {
	return func(ctx context.Context, run *Run) (any, error) {
		handle, ok := handlers[run.Job]
		if !ok {
			return nil, fmt.Errorf("this worker has no handler for the job %s", run.Job)
		}
		return handle(ctx, run)
	}
}

type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// Final marks an error that no further attempt would mend. A nil error stays nil.
func Final(err error) error {
	if err == nil {
		return nil
	}
	return finalError{err}
}

// PanicError is the error of a handler that panicked.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n\n%s", e.Value, e.Stack) }

// call calls the handler, and makes an error of a panic. One that ends its goroutine fails too.
func (h Handler) call(ctx context.Context, run *Run) (result any, err error) {
	done := make(chan struct{})
	err = errors.New("the handler ended its goroutine")
	go func() {
		defer close(done)
		defer func() {
			if v := recover(); v != nil {
				result, err = nil, &PanicError{v, debug.Stack()}
			}
		}()
		result, err = h(ctx, run)
	}()
	<-done
	return result, err
}
