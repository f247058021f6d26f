package chronos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"pgregory.net/rapid"

	"holdfast/chronos/cron"
	"holdfast/chronos/queue"
)

// together draws a few commands, gives them to both replicas at once, and waits for all. What each may be refused with is
// what any of them may be; the invariants hold whichever came first.
func (w *twins) together(rt *rapid.T) {
	var (
		ctx      = context.Background()
		commands []func() error
		mu       sync.Mutex // of what the commands share below
		leased   []holdingAt
	)
	for range rapid.IntRange(2, 6).Draw(rt, "at once") {
		commands = append(commands, w.drawCommand(rt, func(runs []queue.Run, replica int) {
			mu.Lock()
			defer mu.Unlock()
			for _, r := range runs {
				leased = append(leased, holdingAt{r.Holding(), replica})
			}
		}))
	}
	var (
		over sync.WaitGroup
		errs = make([]error, len(commands))
	)
	for i, do := range commands {
		over.Go(func() { errs[i] = do() })
	}
	over.Wait()
	for _, err := range errs {
		may(rt, err, ErrJobNotFound, ErrInvalid, ErrNoInstant, queue.ErrLeaseLost, queue.ErrState, queue.ErrNotFound)
	}
	for _, h := range leased {
		if w.leased[h.Token.String()] {
			rt.Fatalf("token %s was given out twice", h.Token)
		}
		w.leased[h.Token.String()] = true
		w.held = append(w.held, h)
	}
	if rapid.Bool().Draw(rt, "then reap") {
		_, err := queue.ReclaimExpiredLeases(ctx, w.Pool, 100)
		may(rt, err)
	}
}

// drawCommand draws all that a command is given before it begins; took learns what it leases.
func (w *twins) drawCommand(rt *rapid.T, took func(runs []queue.Run, replica int)) func() error {
	ctx := context.Background()
	s, replica := w.either(rt)
	name := jobName(rt)
	kind := rapid.SampledFrom([]string{"put", "delete", "pause", "resume", "trigger", "skip", "backfill", "calendar", "plan", "plan", "lease", "lease", "finish", "finish", "cancel", "reap"}).Draw(rt, "command")
	if len(w.held) == 0 && (kind == "finish" || kind == "cancel") {
		kind = "lease"
	}
	switch kind {
	case "put":
		spec := w.spec(rt)
		return func() error { _, _, err := s.PutJob(ctx, me, name, spec, nil); return err }
	case "delete":
		return func() error { return s.DeleteJob(ctx, me, name) }
	case "pause":
		until := s.Now().Add(time.Duration(rapid.IntRange(1, 8).Draw(rt, "for")) * time.Second)
		return func() error { _, _, err := s.PauseJob(ctx, me, name, "", &until); return err }
	case "resume":
		return func() error { _, _, err := s.ResumeJob(ctx, me, name); return err }
	case "trigger":
		return func() error { _, _, err := s.TriggerJob(ctx, me, name, nil); return err }
	case "skip":
		return func() error { _, _, err := s.SkipNext(ctx, me, name); return err }
	case "backfill":
		to := s.Now()
		return func() error { _, _, err := s.BackfillJob(ctx, me, name, to.Add(-10*time.Second), to); return err }
	case "calendar":
		cal := Calendar{Name: "days", Timezone: "UTC"}
		if rapid.Bool().Draw(rt, "today") {
			cal.Dates = []cron.DateRange{w.around()}
		}
		return func() error { _, _, err := s.PutCalendar(ctx, me, cal); return err }
	case "plan":
		p := &planner{store: s, term: w.planners[replica].term, log: quiet}
		return func() error { _, err := p.round(ctx); return err }
	case "finish":
		i := rapid.IntRange(0, len(w.held)-1).Draw(rt, "which")
		h := w.held[i]
		w.held = append(w.held[:i:i], w.held[i+1:]...)
		dead := w.deadly[h.Token.String()]
		succeeds := rapid.Bool().Draw(rt, "succeeds")
		return func() (err error) {
			if succeeds {
				_, _, err = s.CompleteRun(ctx, me, h.Holding, nil)
			} else {
				_, _, err = s.FailRun(ctx, me, h.Holding, "no", true)
			}
			if err == nil && dead {
				err = fmt.Errorf("C5: a lease that had ended finished run %s", h.Run)
			}
			return err
		}
	case "cancel":
		h := w.held[rapid.IntRange(0, len(w.held)-1).Draw(rt, "which")]
		return func() error { _, _, err := s.CancelRun(ctx, me, h.Run); return err }
	case "reap":
		return func() error { _, err := queue.ReclaimExpiredLeases(ctx, w.Pool, 100); return err }
	case "lease":
		claim := queue.Claim{Queue: QueueName("default", "q"), Worker: fmt.Sprint(replica), Max: rapid.IntRange(1, 5).Draw(rt, "max"), For: time.Minute}
		return func() error {
			runs, _, err := s.LeaseRuns(ctx, me, claim, 0, nil)
			took(runs, replica)
			return err
		}
	}
	return func() error { return errors.New("no such command: " + kind) }
}
