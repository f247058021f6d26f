package chronos

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"holdfast/chronos/queue"
)

// pulled is a spec of a job whose runs workers pull from the queue.
func pulled(name string, every time.Duration) Spec {
	spec := DefaultSpec()
	spec.Schedule.Every = every
	spec.Target.Pull = &Pull{Queue: name}
	return spec
}

// relabelled is the spec with another label: a change that moves no instant.
func relabelled(spec Spec, label string) Spec {
	spec.Labels = map[string]string{"label": label}
	return spec
}

// late adds runs of a job in the queue that came due so many seconds ago.
func (w *world) late(j Job, queue string, secondsAgo ...int) {
	w.t.Helper()
	for _, ago := range secondsAgo {
		w.Exec(w.t, `INSERT INTO chronos.job_runs (job_id, queue, scheduled_for, due_at, effective_at)
			SELECT $1, $2, at, at, at FROM (SELECT clock_timestamp() - make_interval(secs => $3) AS at) t`, j.ID, QueueName("default", queue), ago)
	}
}

func (w *world) lease(name string) []queue.Run {
	w.t.Helper()
	runs, _, err := w.store.LeaseRuns(w.t.Context(), me, queue.Claim{Queue: QueueName("default", name), Worker: "w", Max: 10, For: time.Minute}, 0, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return runs
}

func (w *world) count(sql string, args ...any) (n int) {
	w.t.Helper()
	w.Scan(w.t, sql, args, &n)
	return n
}

// instants are those that a job has a run of, to be done or done.
func (w *world) instants(j Job) (at []time.Time) {
	w.t.Helper()
	w.Scan(w.t, `SELECT array_agg(scheduled_for ORDER BY scheduled_for) FROM (
		SELECT scheduled_for FROM chronos.job_runs WHERE job_id = $1
		UNION ALL SELECT scheduled_for FROM chronos.run_history WHERE job_id = $1) r`, []any{j.ID}, &at)
	return at
}

// C3: a run that has come due and waits for its turn isn't planned any more: a change leaves it, and a
// deletion ends it with a record.
func TestC3AChangeLosesNoInstantThatWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.put("job", pulled("q", time.Hour))
	w.late(j, "q", 3, 2)
	if runs := w.lease("q"); len(runs) != 1 {
		t.Fatalf("leased %d runs, want one, and the other to wait", len(runs))
	}
	w.put("job", relabelled(pulled("q", time.Hour), "x"))
	if n := w.count(`SELECT count(*) FROM chronos.job_runs`); n != 2 {
		t.Errorf("after the change there are %d runs, want both", n)
	}
	w.Exec(t, `UPDATE chronos.job_runs SET due_at = clock_timestamp() + interval '1 minute' WHERE status = 'pending'`)
	if err := w.store.DeleteJob(t.Context(), me, "job"); err != nil {
		t.Fatal(err)
	}
	if n := w.count(`SELECT count(*) FROM chronos.run_history WHERE status = 'cancelled' AND reason = 'job_deleted'`); n != 1 {
		t.Errorf("after the deletion %d runs are cancelled, want the one that waited", n)
	}
}

// C1: a run that ended before it came due isn't planned a second time.
func TestC1ACancelledInstantIsNotPlannedAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := pulled("q", 3*time.Second)
	before := w.put("job", spec)
	var id uuid.UUID
	w.Scan(t, `SELECT id FROM chronos.job_runs ORDER BY scheduled_for DESC OFFSET 1 LIMIT 1`, nil, &id)
	if _, _, err := w.store.CancelRun(t.Context(), me, id); err != nil {
		t.Fatal(err)
	}
	after := w.put("job", relabelled(spec, "x"))
	if n := w.count(`SELECT count(*) FROM chronos.job_runs WHERE id = $1`, id); n != 0 {
		t.Error("the cancelled run is back")
	}
	if planned := int64(len(w.instants(after))); after.Used != planned || planned < before.Used {
		t.Errorf("%d instants have a run, %d are counted, %d were before", planned, after.Used, before.Used)
	}
}

// A change that moves no instant leaves the same ones planned.
func TestAChangeLeavesTheSameInstantsPlanned(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := pulled("q", time.Second)
	j := w.put("job", spec)
	before := w.instants(j)
	w.put("job", relabelled(spec, "x"))
	after := w.instants(j)
	if len(before) < 15 || len(after) < len(before) || !slices.EqualFunc(before, after[:len(before)], time.Time.Equal) {
		t.Errorf("planned were\n%v\nand are\n%v", before, after)
	}
	w.noHoles()
}

// A denser schedule begins at once, not after what was planned of the old one.
func TestANewScheduleBeginsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	start := w.store.Now().Add(15 * time.Second).Truncate(time.Second)
	spec := pulled("q", time.Second)
	spec.StartAt = &start
	j := w.put("job", spec)
	if at := w.instants(j); len(at) == 0 || !at[0].Equal(start) {
		t.Fatalf("planned are %v, want from %v", at, start)
	}
	spec.StartAt = nil
	w.put("job", spec)
	if at := w.instants(j); len(at) == 0 || !at[0].Before(start.Add(-10*time.Second)) {
		t.Errorf("planned are %v, want from now", at)
	}
}

// C3: whoever changes a job decides first on what has come due and wasn't planned.
func TestC3AChangeSettlesThePast(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := pulled("q", time.Second)
	j := w.put("job", spec)
	w.Exec(t, `DELETE FROM chronos.job_runs`)
	w.Exec(t, `UPDATE chronos.jobs SET next_at = next_at - interval '10 minutes', last_at = last_at - interval '10 minutes',
		anchor = anchor - interval '1 hour'`)
	var watermark time.Time
	w.Scan(t, `SELECT next_at FROM chronos.jobs`, nil, &watermark)
	w.put("job", relabelled(spec, "x"))
	if at := w.instants(j); len(at) == 0 || !at[0].Equal(watermark) {
		t.Errorf("a fate have %v, want from %v", at, watermark)
	}
	w.noHoles()
}

// Runs that had come due before a pause wait for its end, and then run.
func TestAPauseKeepsWhatWasLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	spec := pulled("q", time.Hour)
	spec.Overlap = OverlapAllow
	w.late(w.put("job", spec), "q", 300, 200)
	if _, _, err := w.store.PauseJob(ctx, me, "job", "", nil); err != nil {
		t.Fatal(err)
	}
	asked, _, err := w.store.TriggerJob(ctx, me, "job", nil)
	if err != nil {
		t.Fatal(err)
	}
	if runs := w.lease("q"); len(runs) != 1 || runs[0].ID != asked.ID {
		t.Errorf("in the pause %v was leased, want what was asked for", runs)
	}
	if _, _, err := w.store.ResumeJob(ctx, me, "job"); err != nil {
		t.Fatal(err)
	}
	if runs := w.lease("q"); len(runs) != 2 {
		t.Errorf("after the pause %d late runs were leased, want 2", len(runs))
	}
}

// What is made up for when a pause begins had come due before it.
func TestAPauseKeepsWhatItMadeUpFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := pulled("q", time.Minute)
	spec.Overlap = OverlapAllow
	w.put("job", spec)
	w.Exec(t, `UPDATE chronos.jobs SET next_at = next_at - interval '10 minutes', last_at = NULL, anchor = anchor - interval '1 hour'`)
	if _, _, err := w.store.PauseJob(t.Context(), me, "job", "", nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.store.ResumeJob(t.Context(), me, "job"); err != nil {
		t.Fatal(err)
	}
	if runs := w.lease("q"); !slices.ContainsFunc(runs, func(r queue.Run) bool { return r.Trigger == queue.CatchUp }) {
		t.Errorf("leased %+v, want the one that is made up for too", runs)
	}
}

// A pause that has ended by itself is remembered until the next: what came due in it is skipped then.
func TestASecondPauseSkipsWhatTheFirstCovered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	j := w.put("job", pulled("q", time.Hour))
	w.Exec(t, `UPDATE chronos.jobs SET used = 2, paused_at = now() - interval '300 seconds', paused_until = now() - interval '100 seconds'`)
	w.late(j, "q", 200, 50)
	if _, _, err := w.store.PauseJob(ctx, me, "job", "", nil); err != nil {
		t.Fatal(err)
	}
	if n := w.count(`SELECT count(*) FROM chronos.run_history WHERE status = 'skipped' AND reason = 'paused'`); n != 1 {
		t.Errorf("%d runs were skipped, want the one that came due in the first pause", n)
	}
	resumed, _, err := w.store.ResumeJob(ctx, me, "job")
	if err != nil || resumed.Used != 1 {
		t.Errorf("%d runs are counted, %v, want 1", resumed.Used, err)
	}
	if runs := w.lease("q"); len(runs) != 1 {
		t.Errorf("leased %d runs, want the one that came due between the pauses", len(runs))
	}
}

// A job that the planner had set aside was paused: what came due meanwhile is skipped.
func TestAJobThatWasSetAsideMakesUpForNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := pulled("q", time.Second)
	spec.CatchUp.Policy = CatchUpAll
	w.put("job", spec)
	w.Exec(t, `DELETE FROM chronos.job_runs`)
	w.Exec(t, `UPDATE chronos.jobs SET next_at = NULL, last_at = last_at - interval '10 minutes', anchor = anchor - interval '1 hour',
		paused_at = now() - interval '20 minutes'`)
	if _, _, err := w.store.ResumeJob(t.Context(), me, "job"); err != nil {
		t.Fatal(err)
	}
	if n := w.count(`SELECT count(*) FROM chronos.job_runs WHERE due_at < clock_timestamp() - interval '1 second'`); n != 0 {
		t.Errorf("%d instants of the pause are to run", n)
	}
	if n := w.count(`SELECT count(*) FROM chronos.job_runs WHERE due_at > clock_timestamp()`); n < 15 {
		t.Errorf("%d runs are planned", n)
	}
	w.noHoles()
}

// Where a job's runs go, and how often they are tried, is for the job to say as it stands: that holds
// for what is pending, and for what is in flight and may come back.
func TestRunsFollowTheirJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := pulled("old", time.Hour)
	spec.Overlap = OverlapAllow
	j := w.put("job", spec)
	w.late(j, "old", 5)
	flying := w.lease("old")
	w.late(j, "old", 3)
	if _, _, err := w.store.TriggerJob(t.Context(), me, "job", nil); err != nil || len(flying) != 1 {
		t.Fatal(flying, err)
	}
	spec.Target.Pull, spec.Priority, spec.Retry.MaxAttempts, spec.Retry.Backoff = &Pull{Queue: "new"}, 7, 2, 0
	w.put("job", spec)
	if n := w.count(`SELECT count(*) FROM chronos.job_runs WHERE (queue, priority, max_attempts) = ('default/new', 7, 2)`); n != 3 {
		t.Errorf("%d runs follow, want 3", n)
	}
	if _, _, err := w.store.FailRun(t.Context(), me, flying[0].Holding(), "", true); err != nil {
		t.Fatal(err)
	}
	if old, now := w.lease("old"), w.lease("new"); len(old) != 0 || len(now) != 3 {
		t.Errorf("leased %d runs from the old queue, %d from the new, want 3", len(old), len(now))
	}
}

// Nobody need ask a queue for the runs of a deleted job to end.
func TestADeletedPullJobLeavesNothingPending(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	j := w.put("job", pulled("q", time.Second))
	w.late(j, "q", 5, 4)
	if _, _, err := w.store.TriggerJob(t.Context(), me, "job", nil); err != nil {
		t.Fatal(err)
	}
	if err := w.store.DeleteJob(t.Context(), me, "job"); err != nil {
		t.Fatal(err)
	}
	left := w.count(`SELECT count(*) FROM chronos.job_runs`)
	ended := w.count(`SELECT count(*) FROM chronos.run_history WHERE status = 'cancelled' AND reason = 'job_deleted'`)
	if left != 0 || ended < 3 {
		t.Errorf("%d runs are left, %d were cancelled", left, ended)
	}
}

// A job whose stored spec this binary can't make sense of can be replaced and deleted.
func TestABrokenJobCanBeReplacedAndDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, broken := range map[string]string{
		"nonsense":   `{"schedule": {"expression": "nonsense"}}`,
		"unreadable": `{"schedule": 5}`,
		"odd time":   `{"start_at": "yesterday"}`,
	} {
		w.put("job", pulled("q", time.Second))
		stored := func() {
			w.Exec(t, `UPDATE chronos.jobs SET spec = $1::text::json, next_at = now() WHERE deleted_at IS NULL`, broken)
		}
		stored()
		put, _, err := w.store.PutJob(t.Context(), me, "job", pulled("q", time.Second), nil)
		if err != nil || put.Created || put.Job.NextAt == nil {
			t.Errorf("%s: replaced by %+v, %v", name, put.Job, err)
		}
		stored()
		if err := w.store.DeleteJob(t.Context(), me, "job"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A job that another version has stored so that this one can't read it is shown as set aside, with what is known of it, and hides no
// other; what needs its spec is refused, and nothing changes.
func TestAnUnreadableJobHidesNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.calendar("feasts")
	spec := pulled("q", time.Hour)
	spec.Labels = map[string]string{"team": "one"}
	for _, name := range []string{"a", "b", "c", "d"} {
		if name == "c" {
			spec.Exclude = []string{"feasts"}
		}
		w.put(name, spec)
	}
	run, _, err := w.store.TriggerJob(t.Context(), me, "b", nil)
	if err != nil {
		t.Fatal(err)
	}
	leased, _, err := w.store.LeaseRuns(t.Context(), me, queue.Claim{Queue: QueueName("default", "q"), Worker: "w", Max: 1, For: time.Minute}, 0, nil)
	if err != nil || len(leased) != 1 {
		t.Fatalf("leased %v, %v", leased, err)
	}
	w.Exec(t, `UPDATE chronos.jobs SET spec = jsonb_set(spec::jsonb, '{retry}', '"of another version"')::json WHERE name = 'b'`)
	w.Exec(t, `UPDATE chronos.calendars SET dates = '["of another version"]'`)

	check := func(jobs []Job, unreadable, faulty string) {
		t.Helper()
		for _, j := range jobs {
			_, withheld := j.Withheld()
			if j.Unreadable() != (j.Name == unreadable) || withheld != strings.Contains(faulty, j.Name) || j.Spec.Labels["team"] != "one" {
				t.Errorf("shown as %+v", j)
			}
		}
	}
	jobs, err := w.store.ListJobs(t.Context(), "default", JobFilter{Limit: 10})
	if err != nil || len(jobs) != 4 {
		t.Fatalf("%d jobs are listed, %v", len(jobs), err)
	}
	check(jobs, "b", "b")
	for i, name := range []string{"a", "b", "c", "d"} {
		j, err := w.store.GetJob(t.Context(), "default", name)
		if err != nil || j.Revision != jobs[i].Revision {
			t.Errorf("%s is %+v, %v", name, j, err)
		}
		_, wrong := j.Describe()
		if _, err := w.store.Upcoming(t.Context(), "default", name, 1); errors.Is(err, ErrUnreadable) != (name != "a") || errors.Is(wrong, ErrUnreadable) != (name != "a") {
			t.Errorf("what is to come of %s: %v; in words: %v", name, err, wrong)
		}
	}
	runs, err := w.store.ListRuns(t.Context(), "default", RunFilter{Limit: 10})
	if err != nil || len(runs) != 1 || runs[0].ID != run.ID {
		t.Errorf("the runs are %+v, %v", runs, err)
	}
	for what, do := range map[string]func() error{
		"pause":   func() error { _, _, err := w.store.PauseJob(t.Context(), me, "b", "", nil); return err },
		"resume":  func() error { _, _, err := w.store.ResumeJob(t.Context(), me, "b"); return err },
		"trigger": func() error { _, _, err := w.store.TriggerJob(t.Context(), me, "b", nil); return err },
		"skip":    func() error { _, _, err := w.store.SkipNext(t.Context(), me, "b"); return err },
		"skip c":  func() error { _, _, err := w.store.SkipNext(t.Context(), me, "c"); return err },
		"backfill": func() error {
			_, _, err := w.store.BackfillJob(t.Context(), me, "b", w.store.Now().Add(-time.Hour), w.store.Now())
			return err
		},
		"edit": func() error {
			_, _, err := w.store.EditJob(t.Context(), me, "b", func(j Job) (Spec, *bool, error) { return j.Spec, nil, nil })
			return err
		},
	} {
		if err := do(); !errors.Is(err, ErrUnreadable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if f, _, err := w.store.FailRun(t.Context(), me, leased[0].Holding(), "no", true); err != nil || f.Status != queue.Pending {
		t.Errorf("its run failed: %+v, %v", f, err)
	}
	if j, _ := w.store.GetJob(t.Context(), "default", "b"); j.Revision != jobs[1].Revision {
		t.Errorf("it is changed: %+v", j)
	}

	// The planner sets aside what can't be read, and plans the others.
	w.Exec(t, `UPDATE chronos.jobs SET next_at = clock_timestamp()`)
	p := w.planner(w.term())
	for range 5 {
		if _, err := p.round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	jobs, err = w.store.ListJobs(t.Context(), "default", JobFilter{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	check(jobs, "b", "bcd")

	// A set that has such a job mends it, even if what can be read of it is as it is to be; another set can't take it over.
	spec.Exclude = nil
	set := Set{Name: "s", Jobs: []SetJob{{Name: "a", Spec: spec}, {Name: "b", Spec: spec}}}
	plan, _, err := w.store.Apply(t.Context(), me, set, true)
	if err != nil || plan.Jobs[1].Action != Change || !plan.Jobs[1].Before.Unreadable() {
		t.Fatalf("the plan is %+v, %v", plan, err)
	}
	if _, _, err := w.store.Apply(t.Context(), me, set, false); err != nil {
		t.Fatal(err)
	}
	w.Exec(t, `UPDATE chronos.jobs SET spec = json_build_object('labels', 5, 'retry', spec->'retry', 'schedule', spec->'schedule', 'target', spec->'target') WHERE name = 'b'`)
	if _, _, err := w.store.Apply(t.Context(), me, Set{Name: "other", Jobs: set.Jobs}, false); !errors.Is(err, ErrInvalid) {
		t.Errorf("another set takes it: %v", err)
	}
	if _, _, err := w.store.Apply(t.Context(), me, set, false); err != nil {
		t.Fatal(err)
	}
	j, err := w.store.GetJob(t.Context(), "default", "b")
	if _, withheld := j.Withheld(); err != nil || withheld || j.Unreadable() || j.NextAt == nil {
		t.Errorf("mended it is %+v, %v", j, err)
	}
}
