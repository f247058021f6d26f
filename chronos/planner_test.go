package chronos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"holdfast/chronos/cron"
	"holdfast/chronos/queue"
	"holdfast/internal/elect"
	"holdfast/internal/pg"
)

func (w *world) planner(term elect.Term) *planner {
	return &planner{store: w.store, term: term, log: quiet}
}

// C8, C1, C2: several planners at once, none of which the others know of, plan every instant once.
func TestPitfall24C1C2C8ManyPlannersPlanEveryInstantOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := to("http://127.0.0.1:1/", time.Second)
	spec.CatchUp = CatchUp{CatchUpAll, time.Hour, 20}
	for i := range 20 {
		w.put("job-"+string(rune('a'+i)), spec)
	}
	// All were last planned a minute and a half ago.
	w.Exec(t, `DELETE FROM chronos.job_runs`)
	w.Exec(t, `UPDATE chronos.jobs SET next_at = date_trunc('second', now()) - interval '90 seconds', anchor = anchor - interval '1 day', used = 0`)
	term := w.term()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 5 {
				if _, err := w.planner(term).round(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	w.plan(term)
	// Each job: its instants from the old watermark to the new one, each in one place.
	rows, err := w.Pool.Query(t.Context(), `
		SELECT j.name, extract(epoch FROM j.next_at - (date_trunc('second', j.updated_at) - interval '90 seconds'))::int,
		       (SELECT count(*) FROM chronos.job_runs r WHERE r.job_id = j.id),
		       (SELECT count(DISTINCT scheduled_for) FROM chronos.job_runs r WHERE r.job_id = j.id),
		       (SELECT coalesce(sum((missed->>'count')::int), 0) FROM chronos.run_history h WHERE h.job_id = j.id),
		       j.used
		  FROM chronos.jobs j`)
	if err != nil {
		t.Fatal(err)
	}
	var name string
	var span, runs, distinct, missed, used int
	_, err = pgx.ForEachRow(rows, []any{&name, &span, &runs, &distinct, &missed, &used}, func() error {
		if runs != distinct || used != runs {
			t.Errorf("%s: %d runs of %d instants, %d counted", name, runs, distinct, used)
		}
		if missed == 0 || runs < 20+30 {
			t.Errorf("%s: %d runs, %d missed", name, runs, missed)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w.noHoles()
}

// noHoles checks C3 for jobs that run every second: between the first and the last instant that
// is known of, none is missing and none is there twice.
func (w *world) noHoles() {
	w.t.Helper()
	var instants, distinct, span int
	rows, err := w.Pool.Query(context.Background(), `
		WITH all_runs AS (
			SELECT job_id, scheduled_for, scheduled_for AS upto, 1 AS n FROM chronos.job_runs WHERE trigger <> 'manual'
			UNION ALL
			SELECT job_id, scheduled_for, coalesce((missed->>'to')::timestamptz, scheduled_for), coalesce((missed->>'count')::int, 1)
			  FROM chronos.run_history WHERE trigger <> 'manual')
		SELECT sum(n)::int, count(DISTINCT scheduled_for)::int + sum(n - 1)::int,
		       extract(epoch FROM max(upto) - min(scheduled_for))::int + 1
		  FROM all_runs GROUP BY job_id`)
	if err != nil {
		w.t.Fatal(err)
	}
	_, err = pgx.ForEachRow(rows, []any{&instants, &distinct, &span}, func() error {
		if instants != span || distinct != span {
			w.t.Errorf("%d instants, %d different ones, in %d seconds", instants, distinct, span)
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// plan plans until nothing is left to plan.
func (w *world) plan(term elect.Term) {
	w.t.Helper()
	for near := true; near; {
		if _, err := w.planner(term).round(context.Background()); err != nil {
			w.t.Fatal(err)
		}
		w.Scan(w.t, `SELECT EXISTS (SELECT 1 FROM chronos.jobs WHERE next_at <= clock_timestamp() + interval '4 seconds')`, nil, &near)
	}
}

// A leader that was deposed writes nothing any more.
func TestC8ADeposedLeaderPlansNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("job", to("http://127.0.0.1:1/", time.Second))
	w.Exec(t, `UPDATE chronos.jobs SET next_at = now()`)
	term := w.term()
	term.Epoch--
	if _, err := w.planner(term).round(t.Context()); !errors.Is(err, elect.ErrDeposed) {
		t.Errorf("the round says %v, want ErrDeposed", err)
	}
}

// C2: a plan for a job that has changed since is dropped whole.
func TestC2APlanOfAChangedJobIsDropped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.put("job", to("http://127.0.0.1:1/", time.Second))
	w.Exec(t, `DELETE FROM chronos.job_runs`)
	p := w.planner(w.term())
	for name, change := range map[string]string{
		"revision":  `UPDATE chronos.jobs SET revision = revision + 1`,
		"watermark": `UPDATE chronos.jobs SET next_at = next_at + interval '1 second'`,
		"used":      `UPDATE chronos.jobs SET used = used - 1`,
	} {
		current, err := w.store.GetJob(t.Context(), "default", "job")
		if err != nil {
			t.Fatal(err)
		}
		made, err := current.plan(current.NextAt.Add(time.Second), planAhead)
		if err != nil || len(made.runs) == 0 {
			t.Fatalf("planned %d runs, %v", len(made.runs), err)
		}
		w.Exec(t, change)
		if n, err := p.apply(t.Context(), []*Job{&current}, []plan{made}); n != 0 || err != nil {
			t.Errorf("%s changed: %d plans were carried out, %v", name, n, err)
		}
	}
	var runs int
	w.Scan(t, `SELECT count(*) FROM chronos.job_runs WHERE job_id = $1`, []any{j.ID}, &runs)
	if runs != 0 {
		t.Errorf("%d runs were planned", runs)
	}
}

func TestAChangedScheduleIsPlannedAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := to("http://127.0.0.1:1/", time.Second)
	j := w.put("job", spec)
	var before int
	w.Scan(t, `SELECT count(*) FROM chronos.job_runs`, nil, &before)
	if before < 4 {
		t.Fatalf("%d runs are planned ahead", before)
	}
	if again := w.put("job", spec); again.Revision != j.Revision {
		t.Error("the same spec again made a new revision")
	}
	spec.Schedule = Timing{Expression: "0 0 1 1 *"}
	w.put("job", spec)
	var ahead int
	w.Scan(t, `SELECT count(*) FROM chronos.job_runs WHERE due_at > clock_timestamp()`, nil, &ahead)
	if ahead != 0 {
		t.Errorf("%d runs of the old schedule are left", ahead)
	}
	spec.Schedule, spec.Priority = Timing{Every: time.Second}, 3
	w.put("job", spec)
	spec.Priority = 4
	w.put("job", spec)
	var wrong int
	w.Scan(t, `SELECT count(*) FROM chronos.job_runs WHERE due_at > clock_timestamp() AND priority <> 4`, nil, &wrong)
	if wrong != 0 {
		t.Errorf("%d runs are as they were before the change", wrong)
	}
}

// Even if the database's clock was set back, no instant is planned a second time.
func TestPitfall26AClockThatIsSetBackDoublesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := to("http://127.0.0.1:1/", time.Second)
	w.put("job", spec)
	w.Exec(t, `DELETE FROM chronos.job_runs`) // they have run
	w.Exec(t, `UPDATE chronos.jobs SET last_at = last_at + interval '1 hour', next_at = next_at + interval '1 hour'`)
	var planned time.Time
	w.Scan(t, `SELECT last_at FROM chronos.jobs`, nil, &planned)
	spec.Priority = 1
	if j := w.put("job", spec); !j.NextAt.After(planned) {
		t.Errorf("the next instant is %v, although %v was planned", j.NextAt, planned)
	}
}

// A command whose deadline has passed by the database's clock changes nothing.
func TestACommandIsCarriedOutInTimeOrNever(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("job", to("http://127.0.0.1:1/", time.Hour))
	late := me
	late.Deadline = time.Now().Add(-time.Second)
	if _, _, err := w.store.TriggerJob(t.Context(), late, "job", nil); !errors.Is(err, pg.ErrDeadline) {
		t.Errorf("a late trigger says %v", err)
	}
	if _, _, err := w.store.PauseJob(t.Context(), late, "job", "", nil); !errors.Is(err, pg.ErrDeadline) {
		t.Errorf("a late pause says %v", err)
	}
	if err := w.store.DeleteJob(t.Context(), late, "job"); !errors.Is(err, pg.ErrDeadline) {
		t.Errorf("a late deletion says %v", err)
	}
	var runs int
	w.Scan(t, `SELECT count(*) FROM chronos.job_runs`, nil, &runs)
	if j, err := w.store.GetJob(t.Context(), "default", "job"); err != nil || j.Paused || runs != 0 {
		t.Errorf("after late commands there are %d runs, paused is %v, %v", runs, j.Paused, err)
	}
}

func TestADeletedJobLeavesNothingToRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	w.put("job", to("http://127.0.0.1:1/", time.Second))
	run, _, err := w.store.TriggerJob(ctx, me, "job", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.store.DeleteJob(ctx, me, "job"); err != nil {
		t.Fatal(err)
	}
	var left int
	w.Scan(t, `SELECT count(*) FROM chronos.job_runs`, nil, &left)
	if left != 0 {
		t.Errorf("%d runs are left", left)
	}
	if run, err = w.store.GetRun(ctx, "default", run.ID); err != nil || run.Status != queue.Cancelled || run.Job != "job" {
		t.Errorf("the triggered run is %+v, %v", run, err)
	}
	if _, err := w.store.GetJob(ctx, "default", "job"); !errors.Is(err, ErrJobNotFound) {
		t.Errorf("the job is still there: %v", err)
	}
	w.put("job", to("http://127.0.0.1:1/", time.Hour))
}

// Instants in a pause are skipped, and none is made up for when it ends.
func TestPausedInstantsAreNeverMadeUpFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	spec := to("http://127.0.0.1:1/", time.Second)
	spec.Target = Target{Pull: &Pull{Queue: "q"}}
	w.put("job", spec)
	if _, _, err := w.store.PauseJob(ctx, me, "job", "", nil); err != nil {
		t.Fatal(err)
	}
	// Everything happened a minute earlier, and nobody has planned or pulled since.
	w.Exec(t, `UPDATE chronos.jobs SET paused_at = paused_at - interval '60 seconds', next_at = next_at - interval '60 seconds',
		last_at = last_at - interval '60 seconds', anchor = anchor - interval '60 seconds'`)
	w.Exec(t, `UPDATE chronos.job_runs SET due_at = due_at - interval '60 seconds', effective_at = due_at - interval '60 seconds', scheduled_for = scheduled_for - interval '60 seconds'`)
	job, _, err := w.store.ResumeJob(ctx, me, "job")
	if err != nil || job.Paused {
		t.Fatalf("resumed: %+v, %v", job, err)
	}
	var old, skipped int
	w.Scan(t, `SELECT count(*) FROM chronos.job_runs WHERE due_at <= clock_timestamp() - interval '1 second'`, nil, &old)
	w.Scan(t, `SELECT sum(coalesce((missed->>'count')::int, 1)) FROM chronos.run_history WHERE status = 'skipped' AND reason = 'paused'`, nil, &skipped)
	if old != 0 || skipped < 55 {
		t.Errorf("%d old runs are left to run, %d instants were skipped", old, skipped)
	}
	w.noHoles()
}

// A job that this binary can't read is paused with the reason; the others are planned.
func TestABrokenJobHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"json", "zone", "good"} {
		w.put(name, to("http://127.0.0.1:1/", time.Second))
	}
	w.Exec(t, `DELETE FROM chronos.job_runs`)
	w.Exec(t, `UPDATE chronos.jobs SET next_at = now(), last_at = now()`)
	w.Exec(t, `UPDATE chronos.jobs SET spec = '{"schedule": 5}' WHERE name = 'json'`)
	w.Exec(t, `UPDATE chronos.jobs SET spec = (jsonb_set(spec::jsonb, '{timezone}', '"Mars/Base"'))::json WHERE name = 'zone'`)
	p := w.planner(w.term())
	for range 4 {
		if _, err := p.round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var good, broken int
	w.Scan(t, `SELECT count(*) FROM chronos.job_runs`, nil, &good)
	w.Scan(t, `SELECT count(*) FROM chronos.jobs WHERE next_at IS NULL AND faulty_at IS NOT NULL AND fault <> ''`, nil, &broken)
	if good < 5 || broken != 2 {
		t.Errorf("%d runs of the good job, %d broken ones set aside", good, broken)
	}
	spec := to("http://127.0.0.1:1/", time.Second)
	if _, withheld := func() (string, bool) { j := w.put("zone", spec); return j.Withheld() }(); withheld {
		t.Error("the mended job is still set aside")
	}
	w.Scan(t, `SELECT count(*) FROM chronos.job_runs r JOIN chronos.jobs j ON j.id = r.job_id WHERE j.name = 'zone'`, nil, &good)
	if good == 0 {
		t.Error("the mended job isn't planned")
	}
}

// A job that was mended after the planner had read it is left as it is.
func TestAMendedJobIsNotSetAside(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("job", to("http://127.0.0.1:1/", time.Second))
	w.Exec(t, `UPDATE chronos.jobs SET spec = '{"schedule": 5}', next_at = now(), revision = revision + 1`)
	p := w.planner(w.term())
	_, broken, _, err := p.near(t.Context())
	if err != nil || len(broken) != 1 {
		t.Fatalf("%d jobs are broken, %v", len(broken), err)
	}
	w.put("job", to("http://127.0.0.1:1/", time.Second))
	if err := p.disable(t.Context(), broken[0].job, broken[0].err); err != nil {
		t.Fatal(err)
	}
	if j, err := w.store.GetJob(t.Context(), "default", "job"); err != nil || j.Paused || j.NextAt == nil {
		t.Errorf("the mended job is paused: %v, next %v, %v", j.Paused, j.NextAt, err)
	}
}

// A job that the database refuses to plan is named once and left alone for a while; the
// others are planned.
func TestAJobThatKeepsFailingIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bad, good := w.put("bad", to("http://127.0.0.1:1/", time.Second)), w.put("good", to("http://127.0.0.1:1/", time.Second))
	w.Exec(t, `DELETE FROM chronos.job_runs`)
	w.Exec(t, fmt.Sprintf(`ALTER TABLE chronos.job_runs ADD CONSTRAINT refused CHECK (job_id <> %d)`, bad.ID))
	var told bytes.Buffer
	p := w.planner(w.term())
	p.log = slog.New(slog.NewTextHandler(&told, nil))
	round := func() (wait time.Duration) {
		t.Helper()
		w.Exec(t, `UPDATE chronos.jobs SET next_at = clock_timestamp()`)
		wait, err := p.round(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return wait
	}
	for range 3 {
		round()
	}
	var planned int
	w.Scan(t, `SELECT count(*) FROM chronos.job_runs WHERE job_id = $1`, []any{good.ID}, &planned)
	if n := strings.Count(told.String(), "level=ERROR"); planned == 0 || n != 1 {
		t.Errorf("%d runs of the good job, %d errors:\n%s", planned, n, told.String())
	}
	w.Exec(t, `UPDATE chronos.jobs SET next_at = NULL WHERE name = 'good'`)
	jobs, _, _, err := p.near(t.Context())
	if wait, errNext := p.untilNext(t.Context()); err != nil || errNext != nil || len(jobs) != 0 || wait != planSlice {
		t.Errorf("near are %d jobs, the next round comes in %v; %v, %v", len(jobs), wait, err, errNext)
	}
	w.Exec(t, `ALTER TABLE chronos.job_runs DROP CONSTRAINT refused`)
	p.failing[bad.ID] = time.Now()
	round()
	w.Scan(t, `SELECT count(*) FROM chronos.job_runs WHERE job_id = $1`, []any{bad.ID}, &planned)
	if planned == 0 {
		t.Error("the job isn't tried again")
	}
}

func TestPlanningMakesAMissingPartition(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("job", to("http://127.0.0.1:1/", time.Second))
	w.Exec(t, `DELETE FROM chronos.job_runs`)
	w.Exec(t, `UPDATE chronos.jobs SET next_at = next_at - interval '10 minutes', anchor = anchor - interval '1 hour'`)
	w.Exec(t, `DO $$ DECLARE p regclass; BEGIN
		FOR p IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'chronos.run_history'::regclass LOOP
			EXECUTE 'DROP TABLE ' || p; END LOOP; END $$`)
	if _, err := w.planner(w.term()).round(t.Context()); err != nil {
		t.Fatal(err)
	}
	var missed int
	w.Scan(t, `SELECT count(*) FROM chronos.run_history`, nil, &missed)
	if missed == 0 {
		t.Error("the missed instants have no record")
	}
}

// A job that can't be refreshed keeps nobody from leading.
func TestNewZoneDataPassesOverABrokenJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("json", to("http://127.0.0.1:1/", time.Second))
	refused := w.put("refused", to("http://127.0.0.1:1/", time.Second))
	w.put("good", to("http://127.0.0.1:1/", time.Second))
	w.Exec(t, `UPDATE chronos.jobs SET zone_data = '1999a'`)
	w.Exec(t, `UPDATE chronos.jobs SET spec = '{"schedule": 5}' WHERE name = 'json'`)
	w.Exec(t, fmt.Sprintf(`ALTER TABLE chronos.job_runs ADD CONSTRAINT refused CHECK (job_id <> %d) NOT VALID`, refused.ID))
	if err := w.planner(w.term()).refreshZones(t.Context()); err != nil {
		t.Fatal(err)
	}
	var fresh, paused bool
	w.Scan(t, `SELECT zone_data <> '1999a' FROM chronos.jobs WHERE name = 'good'`, nil, &fresh)
	w.Scan(t, `SELECT faulty_at IS NOT NULL FROM chronos.jobs WHERE name = 'json'`, nil, &paused)
	if !fresh || !paused {
		t.Errorf("the good job is fresh: %v, the broken one set aside: %v", fresh, paused)
	}
}

// New zone data moves what is next.
func TestNewZoneDataIsTakenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := to("http://127.0.0.1:1/", 0)
	spec.Schedule = Timing{Expression: "0 3 * * *"}
	spec.Timezone = "Europe/Berlin"
	want := w.put("job", spec).NextAt
	w.Exec(t, `UPDATE chronos.jobs SET zone_data = '1999a', next_at = next_at + interval '30 minutes'`)
	if err := w.planner(w.term()).refreshZones(t.Context()); err != nil {
		t.Fatal(err)
	}
	j, err := w.store.GetJob(t.Context(), "default", "job")
	if err != nil || !j.NextAt.Equal(*want) {
		t.Errorf("next is %v, %v, want %v", j.NextAt, err, want)
	}
	var version string
	w.Scan(t, `SELECT zone_data FROM chronos.jobs`, nil, &version)
	if version != cron.ZoneDataVersion() {
		t.Errorf("the zone data is recorded as %q", version)
	}
}

func TestMaxRunsAreNotUsedUpBySkippedInstants(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := to("http://127.0.0.1:1/", time.Second)
	three := int64(3)
	spec.MaxRuns = &three
	j := w.put("job", spec)
	if j.NextAt != nil || j.Used != 3 {
		t.Fatalf("after planning three runs: next %v, used %d", j.NextAt, j.Used)
	}
	w.Exec(t, `UPDATE chronos.jobs SET paused_at = clock_timestamp() - interval '1 minute'`)
	w.Exec(t, `UPDATE chronos.job_runs SET due_at = clock_timestamp() - interval '1 second', effective_at = clock_timestamp() - interval '1 second'`)
	w.inTx(func(tx pgx.Tx) error {
		claimed, err := queue.Lease(t.Context(), tx, queue.Claim{Worker: "w", Max: 10, For: time.Minute})
		if len(claimed.Settled) != 3 {
			t.Errorf("%d runs were skipped, want 3", len(claimed.Settled))
		}
		return err
	})
	w.Exec(t, `UPDATE chronos.jobs SET last_at = clock_timestamp(), next_at = clock_timestamp()`) // time has passed
	if _, _, err := w.store.ResumeJob(t.Context(), me, "job"); err != nil {
		t.Fatal(err)
	}
	var runs int
	w.Scan(t, `SELECT count(*) FROM chronos.job_runs`, nil, &runs)
	if runs != 3 {
		t.Errorf("%d runs are planned in place of the skipped ones, want 3", runs)
	}
}
