package chronos

import (
	"testing"
	"time"

	"holdfast/chronos/queue"
)

// fill gives jobs a history: n ends of each, one a minute back from now, with the given status and reason.
func (w *world) fill(job string, n int, status queue.Status, reason string) {
	w.t.Helper()
	w.Exec(w.t, `INSERT INTO chronos.run_history (id, job_id, tenant, scheduled_for, effective_at, created_at, finished_at, status, trigger, reason, missed)
		SELECT gen_random_uuid(), j.id, j.tenant, t.now - n * interval '1 min', t.now, t.now, t.now, $3, 'schedule', nullif($4, ''),
		       CASE WHEN $3 = 'missed' THEN jsonb_build_object('from', t.now, 'to', t.now, 'count', 7) END
		  FROM chronos.jobs j, generate_series(1, $2) n, (SELECT clock_timestamp() AS now) t WHERE j.name = $1`, job, n, string(status), reason)
}

func TestLatestRunsOfManyJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := DefaultSpec()
	spec.Schedule.Every = 3 * time.Second // within what is planned ahead
	spec.Target.Pull = &Pull{Queue: "q"}
	busy, quietOne := w.put("busy", spec), w.put("quiet", spec)
	w.fill("busy", 5, queue.Succeeded, "")
	w.fill("busy", 1, queue.Missed, queue.ReasonOutage)
	if _, _, err := w.store.TriggerJob(t.Context(), me, "busy", nil); err != nil {
		t.Fatal(err)
	}
	w.Exec(t, "UPDATE chronos.job_runs SET due_at = clock_timestamp() + interval '1 h' WHERE trigger = 'schedule'")
	found, err := w.store.LatestRuns(t.Context(), []Job{busy, quietOne}, 4)
	if err != nil {
		t.Fatal(err)
	}
	got := found[busy.ID]
	if len(got) != 4 || got[0].Status != queue.Pending {
		t.Fatalf("got %+v, want 4 runs, the waiting one first and those that aren't due left out", got)
	}
	missed := 0
	for i, g := range got {
		if i > 0 && g.ScheduledFor.After(got[i-1].ScheduledFor) {
			t.Errorf("run %d is later than the one before", i)
		}
		if g.Missed != nil {
			missed++
			if g.Missed.Count != 7 || g.Status != queue.Missed || g.Reason != queue.ReasonOutage {
				t.Errorf("a missed stretch is %+v", g)
			}
		}
	}
	if missed != 1 {
		t.Errorf("%d runs have a stretch, want 1", missed)
	}
	if len(found[quietOne.ID]) != 0 {
		t.Errorf("a job without runs has %+v", found[quietOne.ID])
	}
}

func TestTroublesAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := DefaultSpec()
	spec.Schedule.Every = time.Hour
	spec.Target.Pull = &Pull{Queue: "q"}
	w.put("a", spec)
	w.fill("a", 3, queue.Succeeded, "")
	w.fill("a", 3, queue.Failed, "http_error")
	w.fill("a", 3, queue.Skipped, queue.ReasonOverlap)
	w.fill("a", 3, queue.Skipped, queue.ReasonPaused)
	w.fill("a", 3, queue.Missed, queue.ReasonOutage)
	count := func(tenant string, among, limit int) map[string]int {
		t.Helper()
		found, err := w.store.Troubles(t.Context(), tenant, among, limit)
		if err != nil {
			t.Fatal(err)
		}
		counts := map[string]int{}
		for _, r := range found {
			if r.Job != "a" {
				t.Errorf("a run of %q", r.Job)
			}
			counts[string(r.Status)+" "+r.Reason]++
			counts["all"]++
		}
		return counts
	}
	all := count(me.Tenant, 100, 100)
	if all["failed http_error"] != 3 || all["skipped overlap"] != 3 || all["missed outage"] != 3 || all["all"] != 9 {
		t.Errorf("troubles %v", all)
	}
	if got := count(me.Tenant, 5, 100); got["all"] != 3 { // of each kind one, of which two are none
		t.Errorf("among the latest 5: %v", got)
	}
	if got := count(me.Tenant, 100, 2); got["all"] != 2 {
		t.Errorf("at most 2: %v", got)
	}
	if got := count("another", 100, 100); got["all"] != 0 {
		t.Errorf("another tenant sees %v", got)
	}
}

func TestDescribeAndUpcomingOfAJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := DefaultSpec()
	spec.Schedule.Expression, spec.Timezone = "30 2 * * *", "Europe/Berlin"
	spec.Target.Pull = &Pull{Queue: "q"}
	j := w.put("nightly", spec)
	words, err := j.Describe()
	if err != nil || words != "At 02:30 every day (Europe/Berlin)" {
		t.Errorf("described as %q, %v", words, err)
	}
	next, err := j.Upcoming(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), 2)
	if err != nil || len(next) != 2 || next[0].Local != "2030-01-01T02:30:00+01:00" || next[1].Local != "2030-01-02T02:30:00+01:00" {
		t.Errorf("upcoming %+v, %v", next, err)
	}
	j.Spec.Timezone = "Mars/Olympus"
	if words, err := j.Describe(); err == nil {
		t.Errorf("a zone that isn't known is described as %q", words)
	}
}
