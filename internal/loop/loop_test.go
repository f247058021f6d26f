package loop_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/loop"
)

func run(t *testing.T, wake <-chan struct{}, work func(context.Context) (bool, error)) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		cfg := loop.Config{Name: "test", Every: time.Minute, Wake: wake, Log: slog.New(slog.DiscardHandler)}
		_ = loop.Run(ctx, cfg, work)
	}()
	return func() { cancel(); <-done }
}

func TestRunWorksAtOnceThenAboutEveryInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, calls := time.Now(), []time.Duration(nil)
		stop := run(t, nil, func(context.Context) (bool, error) {
			calls = append(calls, time.Since(start))
			return false, nil
		})
		<-time.After(10 * time.Minute) // on the bubble's clock
		stop()
		if len(calls) < 8 || len(calls) > 14 || calls[0] != 0 {
			t.Errorf("called at %v", calls)
		}
	})
}

func TestErrorsAndPanicsDoNotEndTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		stop := run(t, nil, func(context.Context) (bool, error) {
			if calls++; calls == 1 {
				panic("one poison row")
			}
			return true, errors.New("the database is away")
		})
		<-time.After(5 * time.Minute)
		stop()
		if calls < 3 || calls > 8 {
			t.Errorf("%d calls in five minutes, want about six: an error must pause, even with more to do", calls)
		}
	})
}

func TestMoreAndWakeSkipThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wake, calls := make(chan struct{}), 0
		stop := run(t, wake, func(context.Context) (bool, error) {
			calls++
			return calls < 5, nil
		})
		synctest.Wait()
		if calls != 5 {
			t.Errorf("%d calls at once, want 5", calls)
		}
		wake <- struct{}{}
		synctest.Wait()
		if calls != 6 {
			t.Errorf("%d calls after a wake-up, want 6", calls)
		}
		stop()
	})
}
