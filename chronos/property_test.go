package chronos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"holdfast/chronos/cron"
	"holdfast/chronos/queue"
)

// twins are two replicas' stores and planners on one database, a few jobs, and what their workers hold.
type twins struct {
	*world
	stores   [2]*Store
	planners [2]*planner
	held     []holdingAt
	leased   map[string]bool // tokens that were given out, over all time
	deadly   map[string]bool // tokens whose lease was ended by force
}

type holdingAt struct {
	queue.Holding
	replica int
}

var jobNames = []string{"a", "b", "c"}

func (w *twins) spec(rt *rapid.T) Spec {
	spec := pulled("q", time.Duration(rapid.IntRange(1, 5).Draw(rt, "every"))*time.Second)
	spec.Overlap = rapid.SampledFrom([]Overlap{OverlapAllow, OverlapSkip, OverlapQueue, OverlapReplace}).Draw(rt, "overlap")
	spec.MaxConcurrent = rapid.IntRange(1, 2).Draw(rt, "concurrent")
	spec.Retry = Retry{MaxAttempts: rapid.IntRange(1, 3).Draw(rt, "attempts")}
	spec.CatchUp = CatchUp{rapid.SampledFrom([]CatchUpPolicy{CatchUpNone, CatchUpLatest, CatchUpAll}).Draw(rt, "policy"), time.Hour, 5}
	spec.Priority = rapid.IntRange(0, 2).Draw(rt, "priority")
	if rapid.Bool().Draw(rt, "jittered") {
		spec.Jitter = 3 * time.Second
	}
	if rapid.Bool().Draw(rt, "excludes") {
		spec.Exclude = []string{"days"}
	}
	return spec
}

// either picks one of the two replicas.
func (w *twins) either(rt *rapid.T) (*Store, int) {
	i := rapid.IntRange(0, 1).Draw(rt, "replica")
	return w.stores[i], i
}

func jobName(rt *rapid.T) string { return rapid.SampledFrom(jobNames).Draw(rt, "job") }

// may fails unless err is one of what a command may be refused with.
func may(rt *rapid.T, err error, allowed ...error) {
	if err == nil {
		return
	}
	for _, a := range allowed {
		if errors.Is(err, a) {
			return
		}
	}
	rt.Fatalf("refused with %v", err)
}

// TestC1ToC8HoldUnderRandomCommands gives random commands to two replicas, one by one and several at once, and checks every
// invariant after each.
func TestC1ToC8HoldUnderRandomCommands(t *testing.T) {
	t.Parallel()
	base := newWorld(t)
	term := base.term()
	rapid.Check(t, func(rt *rapid.T) {
		base.Exec(t, `TRUNCATE chronos.jobs, chronos.job_runs, chronos.run_history, chronos.calendars`)
		w := &twins{world: base, leased: map[string]bool{}, deadly: map[string]bool{}}
		for i := range w.stores {
			w.stores[i] = base.service(Config{}).store
			w.planners[i] = &planner{store: w.stores[i], term: term, log: quiet}
		}
		ctx := context.Background()
		base.calendar("days")
		rt.Repeat(map[string]func(*rapid.T){
			"put": func(rt *rapid.T) {
				s, _ := w.either(rt)
				_, _, err := s.PutJob(ctx, me, jobName(rt), w.spec(rt), nil)
				may(rt, err)
			},
			"delete": func(rt *rapid.T) {
				s, _ := w.either(rt)
				may(rt, s.DeleteJob(ctx, me, jobName(rt)), ErrJobNotFound)
			},
			"pause": func(rt *rapid.T) {
				s, _ := w.either(rt)
				var until *time.Time
				if rapid.Bool().Draw(rt, "ends") {
					at := s.Now().Add(time.Duration(rapid.IntRange(1, 8).Draw(rt, "for")) * time.Second)
					until = &at
				}
				_, _, err := s.PauseJob(ctx, me, jobName(rt), "", until)
				may(rt, err, ErrJobNotFound, ErrInvalid)
			},
			"resume": func(rt *rapid.T) {
				s, _ := w.either(rt)
				_, _, err := s.ResumeJob(ctx, me, jobName(rt))
				may(rt, err, ErrJobNotFound)
			},
			"trigger": func(rt *rapid.T) {
				s, _ := w.either(rt)
				_, _, err := s.TriggerJob(ctx, me, jobName(rt), nil)
				may(rt, err, ErrJobNotFound)
			},
			"skip": func(rt *rapid.T) {
				s, _ := w.either(rt)
				_, _, err := s.SkipNext(ctx, me, jobName(rt))
				may(rt, err, ErrJobNotFound, ErrNoInstant)
			},
			"backfill": func(rt *rapid.T) {
				s, _ := w.either(rt)
				to := s.Now()
				_, _, err := s.BackfillJob(ctx, me, jobName(rt), to.Add(-10*time.Second), to)
				may(rt, err, ErrJobNotFound)
			},
			"calendar": func(rt *rapid.T) {
				s, _ := w.either(rt)
				cal := Calendar{Name: "days", Timezone: "UTC"}
				if rapid.Bool().Draw(rt, "today") {
					cal.Dates = []cron.DateRange{w.around()}
				}
				_, _, err := s.PutCalendar(ctx, me, cal)
				may(rt, err)
			},
			"outage": func(rt *rapid.T) { // nobody has planned for a while
				w.Exec(t, `UPDATE chronos.jobs SET next_at = next_at - interval '2 minutes', last_at = NULL, anchor = anchor - interval '1 hour', revision = revision + 1
					WHERE next_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM chronos.job_runs r WHERE r.job_id = jobs.id)
					  AND NOT EXISTS (SELECT 1 FROM chronos.run_history r WHERE r.job_id = jobs.id)`)
			},
			"plan": func(rt *rapid.T) {
				_, i := w.either(rt)
				_, err := w.planners[i].round(ctx)
				may(rt, err)
			},
			"due": func(rt *rapid.T) { // what is near comes due now
				w.Exec(t, `UPDATE chronos.job_runs SET due_at = clock_timestamp() WHERE status = 'pending' AND due_at < clock_timestamp() + interval '20 s'`)
			},
			"lease": func(rt *rapid.T) {
				s, i := w.either(rt)
				runs, _, err := s.LeaseRuns(ctx, me, queue.Claim{Queue: QueueName("default", "q"), Worker: fmt.Sprint(i), Max: rapid.IntRange(1, 5).Draw(rt, "max"), For: time.Minute}, 0, nil)
				may(rt, err)
				for _, r := range runs {
					if w.leased[r.Token.String()] {
						rt.Fatalf("token %s was given out twice", r.Token)
					}
					w.leased[r.Token.String()] = true
					w.held = append(w.held, holdingAt{r.Holding(), i})
				}
			},
			"finish": func(rt *rapid.T) {
				if len(w.held) == 0 {
					return
				}
				i := rapid.IntRange(0, len(w.held)-1).Draw(rt, "which")
				h := w.held[i]
				s := w.stores[h.replica]
				var err error
				if rapid.Bool().Draw(rt, "succeeds") {
					_, _, err = s.CompleteRun(ctx, me, h.Holding, nil)
				} else {
					_, _, err = s.FailRun(ctx, me, h.Holding, "no", true)
				}
				if err == nil && w.deadly[h.Token.String()] {
					rt.Fatalf("C5: a lease that had ended finished run %s", h.Run)
				}
				may(rt, err, queue.ErrLeaseLost)
				w.held = append(w.held[:i:i], w.held[i+1:]...)
			},
			"expire": func(rt *rapid.T) {
				if len(w.held) == 0 {
					return
				}
				h := w.held[rapid.IntRange(0, len(w.held)-1).Draw(rt, "which")]
				tag, err := w.Pool.Exec(ctx, `UPDATE chronos.job_runs SET leased_until = clock_timestamp() - interval '1 ms' WHERE id = $1 AND lease_token = $2`, h.Run, h.Token)
				may(rt, err)
				if tag.RowsAffected() > 0 {
					w.deadly[h.Token.String()] = true
				}
			},
			"reap": func(rt *rapid.T) {
				_, err := queue.ReclaimExpiredLeases(ctx, w.Pool, 100)
				may(rt, err)
			},
			"cancel": func(rt *rapid.T) {
				if len(w.held) == 0 {
					return
				}
				s, _ := w.either(rt)
				h := w.held[rapid.IntRange(0, len(w.held)-1).Draw(rt, "which")]
				_, _, err := s.CancelRun(ctx, me, h.Run)
				may(rt, err, queue.ErrState)
				if err == nil {
					w.deadly[h.Token.String()] = true
				}
			},
			"together": w.together,
			"":         func(rt *rapid.T) { w.check(rt) },
		})
		w.drain(rt)
	})
}

// check looks for whatever breaks an invariant.
func (w *twins) check(rt *rapid.T) {
	for what, sql := range map[string]string{
		"C1: an instant has two fates": `
			SELECT r.job_id || ' ' || r.scheduled_for FROM (
				SELECT job_id, scheduled_for FROM chronos.job_runs WHERE trigger IN ('schedule', 'catch_up')
				UNION ALL SELECT job_id, scheduled_for FROM chronos.run_history WHERE trigger IN ('schedule', 'catch_up')) r
			 GROUP BY r.job_id, r.scheduled_for HAVING count(*) > 1`,
		"C1: a record covers an instant that has a run": `
			SELECT h.job_id || ' ' || r.scheduled_for FROM chronos.run_history h JOIN chronos.job_runs r ON r.job_id = h.job_id AND r.trigger IN ('schedule', 'catch_up')
			 WHERE h.missed IS NOT NULL AND r.missed IS NULL AND r.scheduled_for BETWEEN h.scheduled_for AND (h.missed->>'to')::timestamptz`,
		"C1: two records overlap": `
			SELECT h.job_id || ' ' || h.scheduled_for FROM chronos.run_history h JOIN chronos.run_history o ON o.job_id = h.job_id AND o.id <> h.id
			 WHERE h.missed IS NOT NULL AND o.missed IS NOT NULL AND o.scheduled_for BETWEEN h.scheduled_for AND (h.missed->>'to')::timestamptz`,
		"C2: a run stands at or beyond its job's watermark": `
			SELECT r.job_id || ' ' || r.scheduled_for FROM chronos.job_runs r JOIN chronos.jobs j ON j.id = r.job_id
			 WHERE r.trigger = 'schedule' AND NOT r.asked AND j.deleted_at IS NULL AND r.status = 'pending' AND r.attempt = 0 AND r.scheduled_for >= j.next_at
			   AND r.scheduled_for > clock_timestamp() AND (j.last_at IS NULL OR r.scheduled_for > j.last_at)`,
		"C3: a record without a reason": `
			SELECT id::text FROM chronos.run_history WHERE status IN ('skipped', 'missed', 'cancelled') AND coalesce(reason, '') = ''`,
		"C4: a lease without a token, or a token without a lease": `
			SELECT id::text FROM chronos.job_runs WHERE (status = 'pending') <> (lease_token IS NULL) OR (status = 'pending') <> (leased_until IS NULL)`,
		"C4: more runs of the schedule go than may": `
			SELECT j.name || ' ' || count(*) FROM chronos.jobs j JOIN chronos.job_runs r ON r.job_id = j.id
			 WHERE j.overlap <> 'allow' AND j.deleted_at IS NULL AND r.status IN ('leased', 'running') AND r.leased_until > clock_timestamp() AND NOT r.asked
			   AND r.started_at >= j.updated_at
			 GROUP BY j.id HAVING count(*) > j.max_concurrent`,
		"C6: a parked run is held": `SELECT id::text FROM chronos.job_runs WHERE parked AND status <> 'pending'`,
		"C6: a run waits longer than any backstop": `
			SELECT id::text FROM chronos.job_runs WHERE status = 'pending' AND due_at > clock_timestamp() + interval '11 minutes'`,
		"max_runs would count what isn't there": `SELECT name FROM chronos.jobs WHERE used < 0`,
	} {
		rows, err := w.Pool.Query(context.Background(), sql)
		if err != nil {
			rt.Fatalf("%s: %v", what, err)
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			rt.Fatalf("%s: %v", what, err)
		}
		if len(found) > 0 {
			rt.Fatalf("%s: %v%s", what, found, w.account(rt))
		}
	}
}

// account is all that is known of the jobs, so that a failure that depends on the time can be read.
func (w *twins) account(rt *rapid.T) string {
	rows, err := w.Pool.Query(context.Background(), `
		SELECT to_jsonb(r)::text FROM (
			SELECT created_at AS at, id::text, job_id, trigger, status, scheduled_for, reason, missed FROM chronos.run_history
			UNION ALL SELECT created_at, id::text, job_id, trigger, status, scheduled_for, NULL, NULL FROM chronos.job_runs
			UNION ALL SELECT updated_at, name, id, 'job', '', next_at, NULL, jsonb_build_object('last', last_at, 'anchor', anchor, 'paused', paused_at, 'until', paused_until, 'deleted', deleted_at, 'spec', spec) FROM chronos.jobs) r
		 ORDER BY job_id, at`)
	if err != nil {
		rt.Fatal(err)
	}
	facts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		rt.Fatal(err)
	}
	return "\n" + strings.Join(facts, "\n")
}

// drain shows that every state has a way out (C6): with everything due and no pause, all that is left can be worked off.
func (w *twins) drain(rt *rapid.T) {
	ctx := context.Background()
	s := w.stores[0]
	for _, name := range jobNames {
		if _, _, err := s.PauseJob(ctx, me, name, "", nil); err == nil {
			if _, _, err := s.ResumeJob(ctx, me, name); err != nil {
				rt.Fatal(err)
			}
		}
	}
	w.Exec(w.t, `UPDATE chronos.job_runs SET leased_until = clock_timestamp() - interval '1 ms' WHERE status <> 'pending'`)
	if _, err := queue.ReclaimExpiredLeases(ctx, w.Pool, 1000); err != nil {
		rt.Fatal(err)
	}
	// What is to come is far: only what has come is to be worked off.
	w.Exec(w.t, `DELETE FROM chronos.job_runs WHERE effective_at > clock_timestamp() AND attempt = 0`)
	w.Exec(w.t, `UPDATE chronos.jobs SET next_at = NULL`)
	for round := 0; ; round++ {
		// Only the clock moves: what was put off, parked as it is, comes due.
		w.Exec(w.t, `UPDATE chronos.job_runs SET due_at = clock_timestamp() WHERE status = 'pending' AND NOT parked`)
		runs, _, err := s.LeaseRuns(ctx, me, queue.Claim{Queue: QueueName("default", "q"), Worker: "d", Max: 50, For: time.Minute}, 0, nil)
		if err != nil {
			rt.Fatal(err)
		}
		for _, r := range runs {
			if _, _, err := s.CompleteRun(ctx, me, r.Holding(), nil); err != nil && !errors.Is(err, queue.ErrLeaseLost) {
				rt.Fatal(err)
			}
		}
		var left, parked int
		w.Scan(w.t, `SELECT count(*), count(*) FILTER (WHERE parked) FROM chronos.job_runs`, nil, &left, &parked)
		if left == 0 {
			return
		}
		if len(runs) == 0 && parked == left { // all wait for the backstop, after a job was changed, say
			w.Exec(w.t, `UPDATE chronos.job_runs SET due_at = clock_timestamp() WHERE parked`)
		}
		if round > 500 {
			rt.Fatalf("C6: %d runs have no way out, %d of them parked", left, parked)
		}
	}
}
