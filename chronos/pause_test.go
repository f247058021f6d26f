package chronos

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func (w *world) pause(name, reason string, until *time.Time) Job {
	w.t.Helper()
	j, _, err := w.store.PauseJob(w.t.Context(), me, name, reason, until)
	if err != nil {
		w.t.Fatal(err)
	}
	return j
}

// Of two pauses that overlap the longer one holds, with its reason, whichever came first.
func TestAPauseNeverEndsSoonerForAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	soon, late := w.store.Now().Add(time.Hour).Truncate(time.Second), w.store.Now().Add(24*time.Hour).Truncate(time.Second)
	for name, c := range map[string]struct {
		first, second, want *time.Time
		reason              string
	}{
		"longer":              {&soon, &late, &late, "second"},
		"shorter":             {&late, &soon, &late, "first"},
		"open":                {&soon, nil, nil, "second"},
		"after an open one":   {nil, &late, nil, "first"},
		"as long, said again": {nil, nil, nil, "second"},
	} {
		job := strings.ReplaceAll(strings.ReplaceAll(name, " ", "-"), ",", "")
		w.put(job, pulled("q", time.Minute))
		begun := w.pause(job, "first", c.first)
		j := w.pause(job, "second", c.second)
		if !sameInstant(j.PausedUntil, c.want) || j.PauseReason != c.reason || !j.PausedAt.Equal(*begun.PausedAt) {
			t.Errorf("%s: paused from %v until %v for %q", name, j.PausedAt, j.PausedUntil, j.PauseReason)
		}
		if err := w.store.DeleteJob(t.Context(), me, job); err != nil {
			t.Fatal(err)
		}
	}
}

// A receiver that is gone pauses the job for good: not only until a pause by hand would have ended; and what
// came due in a pause that has ended by itself is skipped nevertheless.
func TestAReceiverThatIsGonePausesForGood(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newReceiver(t, func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(410) })
	w.put("timed", to(r.URL, time.Hour))
	until := w.store.Now().Add(time.Hour)
	w.pause("timed", "by hand", &until)
	w.put("ended", to(r.URL, time.Hour))
	w.Exec(t, `UPDATE chronos.jobs SET paused_at = now() - interval '10 minutes', paused_until = now() - interval '5 minutes' WHERE name = 'ended'`)
	w.Exec(t, `INSERT INTO chronos.job_runs (job_id, scheduled_for, effective_at, due_at)
		SELECT id, now() - interval '7 minutes', now() - interval '7 minutes', now() + interval '1 hour' FROM chronos.jobs WHERE name = 'ended'`)
	w.start(Config{})
	for _, name := range []string{"timed", "ended"} {
		if _, _, err := w.store.TriggerJob(t.Context(), me, name, nil); err != nil {
			t.Fatal(err)
		}
		w.await(`SELECT paused_until IS NULL AND pause_reason = $2 FROM chronos.jobs WHERE name = $1`, name, reasonGone)
	}
	if n := w.count(`SELECT count(*) FROM chronos.run_history WHERE status = 'skipped' AND reason = 'paused'`); n != 1 {
		t.Errorf("%d runs of the pause that had ended were skipped, want 1", n)
	}
}

// Setting a job aside leaves its pause as it is, and mending it gives that back.
func TestAJobThatIsSetAsideKeepsItsPause(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	until := w.store.Now().Add(time.Hour).Truncate(time.Second)
	spec := pulled("q", time.Minute)
	w.put("job", spec)
	j := w.pause("job", "by hand", &until)
	if err := w.planner(w.term()).disable(t.Context(), &j, http.ErrAbortHandler); err != nil {
		t.Fatal(err)
	}
	j, err := w.store.GetJob(t.Context(), "default", "job")
	if reason, withheld := j.Withheld(); err != nil || !withheld || reason == "by hand" || j.NextAt != nil {
		t.Errorf("set aside it is %+v, %v", j, err)
	}
	j = w.put("job", spec)
	if reason, withheld := j.Withheld(); !withheld || reason != "by hand" || !sameInstant(j.PausedUntil, &until) || j.NextAt == nil {
		t.Errorf("mended it is %+v", j)
	}
}

// A leader takes up again what another binary has set aside and this one understands.
func TestALeaderMendsWhatItUnderstands(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("good", pulled("q", time.Second))
	w.put("bad", pulled("q", time.Second))
	w.Exec(t, `DELETE FROM chronos.job_runs`)
	w.Exec(t, `UPDATE chronos.jobs SET next_at = NULL, last_at = clock_timestamp(), faulty_at = clock_timestamp(), fault = 'of another version'`)
	w.Exec(t, `UPDATE chronos.jobs SET spec = '{"schedule": {"expression": "nonsense"}}' WHERE name = 'bad'`)
	if err := w.planner(w.term()).mendFaults(t.Context()); err != nil {
		t.Fatal(err)
	}
	good := w.count(`SELECT count(*) FROM chronos.job_runs r JOIN chronos.jobs j ON j.id = r.job_id WHERE j.name = 'good' AND j.faulty_at IS NULL`)
	bad := w.count(`SELECT count(*) FROM chronos.jobs WHERE name = 'bad' AND faulty_at IS NOT NULL AND next_at IS NULL`)
	if good < 15 || bad != 1 {
		t.Errorf("%d runs of the good one; the bad one is set aside: %d", good, bad)
	}
}

// Instants of a paused job are recorded as they come, whether or not anybody asks for its runs; what
// was planned when the pause began is taken back.
func TestAPausedPullJobLeavesNothingPending(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("job", pulled("q", time.Second))
	w.pause("job", "", nil)
	if n := w.count(`SELECT count(*) FROM chronos.job_runs WHERE scheduled_for > clock_timestamp()`); n != 0 {
		t.Errorf("%d runs are planned in the pause", n)
	}
	w.Exec(t, `UPDATE chronos.jobs SET paused_at = paused_at - interval '10 s', next_at = next_at - interval '10 s', last_at = last_at - interval '10 s', anchor = anchor - interval '1 h'`)
	w.Exec(t, `DELETE FROM chronos.job_runs`)
	p := w.planner(w.term())
	if _, err := p.round(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := w.count(`SELECT sum((missed->>'count')::int) FROM chronos.run_history WHERE status = 'skipped' AND reason = 'paused'`); n < 9 {
		t.Errorf("%d instants were recorded", n)
	}
	if n := w.count(`SELECT count(*) FROM chronos.job_runs`); n != 0 {
		t.Errorf("%d runs are pending", n)
	}
	w.noHoles()
	// A pause that ends by itself is planned beyond its end in time, and not before.
	if _, _, err := w.store.ResumeJob(t.Context(), me, "job"); err != nil {
		t.Fatal(err)
	}
	until := w.store.Now().Add(2 * time.Second)
	w.pause("job", "", &until)
	w.await(`SELECT clock_timestamp() > $1`, until)
	if _, err := p.round(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := w.count(`SELECT count(*) FROM chronos.job_runs WHERE scheduled_for >= $1`, until); n < 15 {
		t.Errorf("%d runs are planned after the pause", n)
	}
	w.noHoles()
}

// A pause leaves alone what ended ahead of its time: it isn't planned again when the pause is over.
func TestAPauseRemembersWhatWasCancelled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("job", pulled("q", 2*time.Second))
	var cancelled Run
	w.inTx(func(tx pgx.Tx) error {
		return tx.QueryRow(t.Context(), `SELECT id, scheduled_for FROM chronos.job_runs ORDER BY scheduled_for OFFSET 3 LIMIT 1`).Scan(&cancelled.ID, &cancelled.ScheduledFor)
	})
	if _, _, err := w.store.CancelRun(t.Context(), me, cancelled.ID); err != nil {
		t.Fatal(err)
	}
	w.pause("job", "", nil)
	if _, _, err := w.store.ResumeJob(t.Context(), me, "job"); err != nil {
		t.Fatal(err)
	}
	w.plan(w.term())
	n := w.count(`SELECT count(*) FROM (SELECT scheduled_for FROM chronos.job_runs UNION ALL SELECT scheduled_for FROM chronos.run_history) r WHERE scheduled_for = $1`, cancelled.ScheduledFor)
	if n != 1 {
		t.Errorf("the cancelled instant is there %d times", n)
	}
}
