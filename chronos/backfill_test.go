package chronos

import (
	"errors"
	"testing"
	"time"

	"holdfast/chronos/queue"
)

func (w *world) backfill(name string, from, to time.Time) Backfill {
	w.t.Helper()
	b, _, err := w.store.BackfillJob(w.t.Context(), me, name, from, to)
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

func minutely(name string) Spec {
	spec := pulled(name, 0)
	spec.Schedule = Timing{Expression: "* * * * *"}
	return spec
}

// A backfill makes one run for each instant that had none, in order, behind everything else.
func TestBackfillMakesEachInstantOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := minutely("q")
	w.put("job", spec)
	to := w.store.Now().Truncate(time.Minute).Add(-10 * time.Minute)
	from := to.Add(-30 * time.Minute)
	// Of the stretch one instant has run, and one was missed.
	for status, at := range map[string]time.Time{"succeeded": from, "missed": from.Add(time.Minute)} {
		w.Exec(t, `INSERT INTO chronos.run_history (id, job_id, tenant, scheduled_for, effective_at, created_at, finished_at, status, trigger)
			SELECT gen_random_uuid(), id, tenant, $1, $1, $1, clock_timestamp(), $2, 'schedule' FROM chronos.jobs`, at, status)
	}
	if b := w.backfill("job", from, to); b.Instants != 30 || b.Created != 29 || b.Existing != 1 {
		t.Errorf("it says %+v, want 29 of 30", b)
	}
	if b := w.backfill("job", from.Add(-time.Minute), to); b.Created != 1 || b.Existing != 30 {
		t.Errorf("asked again it says %+v, want one more", b)
	}
	if n := w.count(`SELECT count(*) FROM chronos.job_runs WHERE trigger = 'backfill' AND priority = -1 AND parked`); n < 28 {
		t.Errorf("%d runs wait for their turn", n)
	}
	for i := range 4 {
		runs := w.lease("q")
		want := from.Add(time.Duration(i+1) * time.Minute)
		if len(runs) != 1 || runs[0].Trigger != queue.Backfill || !runs[0].ScheduledFor.Equal(want) {
			t.Fatalf("leased %+v, want the run of %v alone", runs, want)
		}
		if i == 2 { // something comes due meanwhile
			asked, _, err := w.store.TriggerJob(t.Context(), me, "job", nil)
			if err != nil {
				t.Fatal(err)
			}
			other := w.lease("q")
			if len(other) != 1 || other[0].ID != asked.ID {
				t.Fatalf("leased %+v, want what was asked for", other)
			}
			if _, _, err := w.store.CompleteRun(t.Context(), me, other[0].Holding(), nil); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := w.store.CompleteRun(t.Context(), me, runs[0].Holding(), nil); err != nil {
			t.Fatal(err)
		}
	}
	j, err := w.store.GetJob(t.Context(), "default", "job")
	if err != nil || j.Used > 1 {
		t.Errorf("%d runs count towards max_runs, %v", j.Used, err)
	}
}

// Live runs come before a backfill's, whatever the priority of their job.
func TestBackfillComesLast(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := minutely("q")
	spec.Overlap, spec.Priority = OverlapAllow, 5
	w.put("filled", spec)
	spec.Priority = 0
	live := w.put("live", spec)
	now := w.store.Now()
	w.backfill("filled", now.Add(-5*time.Minute), now.Add(time.Hour))
	w.put("filled", relabelled(spec, "changed")) // they stay behind
	w.late(live, "q", 1)
	runs, _, err := w.store.LeaseRuns(t.Context(), me, queue.Claim{Queue: QueueName("default", "q"), Worker: "w", Max: 3, For: time.Minute}, 0, nil)
	if err != nil || len(runs) != 3 || runs[0].Job != "live" || runs[1].Trigger != queue.Backfill {
		t.Errorf("leased %+v, %v", runs, err)
	}
}

func TestBackfillIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("job", minutely("q"))
	now := w.store.Now()
	for name, span := range map[string][2]time.Time{
		"backwards": {now, now.Add(-time.Hour)},
		"empty":     {now.Add(-time.Hour), now.Add(-time.Hour)},
		"too long":  {now.Add(-10_001 * time.Minute), now},
	} {
		_, _, err := w.store.BackfillJob(t.Context(), me, "job", span[0], span[1])
		var bad *FieldError
		if !errors.As(err, &bad) || bad.Field != "to" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := w.count(`SELECT count(*) FROM chronos.job_runs WHERE trigger = 'backfill'`); n != 0 {
		t.Errorf("%d runs were made", n)
	}
	start := now.Truncate(time.Minute).Add(-10_000 * time.Minute)
	if b := w.backfill("job", start, start.Add(10_000*time.Minute)); b.Created != 10_000 {
		t.Errorf("of as many as may be, %d were made", b.Created)
	}
	if b := w.backfill("job", now.Add(time.Hour), now.Add(2*time.Hour)); b.Instants != 0 {
		t.Errorf("of what is to come it made %+v", b)
	}
}

// A pause holds a backfill up and costs none of its runs.
func TestBackfillWaitsForTheEndOfAPause(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("job", minutely("q"))
	if _, _, err := w.store.PauseJob(t.Context(), me, "job", "", nil); err != nil {
		t.Fatal(err)
	}
	to := w.store.Now().Truncate(time.Minute)
	w.backfill("job", to.Add(-5*time.Minute), to)
	if runs := w.lease("q"); len(runs) != 0 {
		t.Errorf("in the pause %+v was leased", runs)
	}
	if _, _, err := w.store.ResumeJob(t.Context(), me, "job"); err != nil {
		t.Fatal(err)
	}
	if runs := w.lease("q"); len(runs) != 1 {
		t.Errorf("after the pause %d runs were leased", len(runs))
	}
	if n := w.count(`SELECT count(*) FROM chronos.job_runs WHERE trigger = 'backfill'`); n != 5 {
		t.Errorf("%d runs are left of the backfill", n)
	}
}
