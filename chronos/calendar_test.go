package chronos

import (
	"errors"
	"strings"
	"testing"
	"time"

	"holdfast/chronos/cron"
	"holdfast/chronos/queue"
)

func (w *world) calendar(name string, dates ...cron.DateRange) {
	w.t.Helper()
	if _, _, err := w.store.PutCalendar(w.t.Context(), me, Calendar{Name: name, Timezone: "UTC", Dates: dates}); err != nil {
		w.t.Fatal(err)
	}
}

// around is yesterday to tomorrow, so that no midnight comes between.
func (w *world) around() cron.DateRange {
	now := w.store.Now()
	return cron.DateRange{From: now.AddDate(0, 0, -1).Format(time.DateOnly), To: now.AddDate(0, 0, 1).Format(time.DateOnly)}
}

func excluding(spec Spec, calendars ...string) Spec {
	spec.Exclude = calendars
	return spec
}

func TestExcludedInstantsAreSkippedAndRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.calendar("holidays", w.around())
	j := w.put("job", excluding(pulled("q", time.Second), "holidays"))
	if n := w.count(`SELECT count(*) FROM chronos.job_runs`); n != 0 || j.Used != 0 {
		t.Errorf("%d runs are planned, %d are counted", n, j.Used)
	}
	if n := w.count(`SELECT sum((missed->>'count')::int) FROM chronos.run_history WHERE status = 'skipped' AND reason = 'excluded'`); n < 15 {
		t.Errorf("%d instants were recorded", n)
	}
	w.noHoles()
	items, err := w.store.Upcoming(t.Context(), "default", "job", 3)
	if err != nil || len(items) != 3 || !strings.HasPrefix(items[0].Note, "excluded: ") || !strings.Contains(items[0].Note, "holidays") {
		t.Errorf("upcoming are %+v, %v", items, err)
	}
}

// A calendar that changes changes what is planned of its jobs, both ways, and of no other; what is
// recorded already stays.
func TestAChangedCalendarPlansItsJobsAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.calendar("holidays")
	with, without := w.put("with", excluding(pulled("q", time.Second), "holidays")), w.put("without", pulled("q", time.Second))
	pending := func(j Job) int {
		return w.count(`SELECT count(*) FROM chronos.job_runs WHERE job_id = $1 AND scheduled_for > clock_timestamp() + interval '1 s'`, j.ID)
	}
	if pending(with) < 15 {
		t.Fatalf("%d runs are planned", pending(with))
	}
	w.calendar("holidays", w.around())
	if pending(with) != 0 || pending(without) < 15 {
		t.Errorf("after the day was excluded %d runs are planned, of the other job %d", pending(with), pending(without))
	}
	w.noHoles()
	w.calendar("holidays")
	j, err := w.store.GetJob(t.Context(), "default", "with")
	if err != nil || j.NextAt == nil || j.Used != int64(w.count(`SELECT count(*) FROM chronos.job_runs WHERE job_id = $1`, j.ID)) {
		t.Errorf("after the day was given back the job is %+v, %v", j, err)
	}
	w.plan(w.term())
	w.noHoles()
}

// A record of instants to come stays good when some of them have passed: what is planned anew leaves those that
// it covers alone, although it begins before now.
func TestAReplanLeavesARecordThatReachesBeyondNow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.calendar("holidays", w.around())
	j := w.put("job", excluding(pulled("q", time.Second), "holidays"))
	w.Exec(t, `UPDATE chronos.run_history SET scheduled_for = scheduled_for - interval '5 s',
		missed = missed || jsonb_build_object('from', (missed->>'from')::timestamptz - interval '5 s', 'count', (missed->>'count')::int + 5)`)
	w.Exec(t, `UPDATE chronos.jobs SET next_at = next_at - interval '3 s', last_at = last_at - interval '3 s'`)
	w.Exec(t, `UPDATE chronos.run_history SET missed = missed || jsonb_build_object('to', (missed->>'to')::timestamptz - interval '3 s', 'count', (missed->>'count')::int - 3)`)
	w.calendar("holidays") // plans runs behind the record
	if n := w.count(`SELECT count(*) FROM chronos.job_runs WHERE job_id = $1`, j.ID); n < 3 {
		t.Fatalf("%d runs are planned", n)
	}
	w.calendar("holidays", cron.DateRange{From: "2000-01-01", To: "2000-01-01"}) // takes them back and plans them anew
	w.noHoles()
}

// Whoever plans with a calendar as it was before its change is too late.
func TestAPlanWithAnOldCalendarIsDropped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.calendar("holidays")
	w.put("job", excluding(pulled("q", time.Second), "holidays"))
	w.Exec(t, `DELETE FROM chronos.job_runs`)
	p := w.planner(w.term())
	w.Exec(t, `UPDATE chronos.jobs SET next_at = clock_timestamp()`)
	jobs, _, now, err := p.near(t.Context())
	if err != nil || len(jobs) != 1 {
		t.Fatal(jobs, err)
	}
	old, err := jobs[0].plan(now, planAhead)
	if err != nil || len(old.runs) == 0 {
		t.Fatal(old, err)
	}
	w.calendar("holidays", w.around())
	if n, err := p.apply(t.Context(), jobs, []plan{old}); n != 0 || err != nil {
		t.Errorf("%d plans were carried out, %v", n, err)
	}
}

func TestACalendarInUseStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	w.calendar("holidays")
	spec := excluding(pulled("q", time.Hour), "holidays")
	w.put("job", spec)
	err := w.store.DeleteCalendar(ctx, me, "holidays")
	var used *CalendarInUseError
	if !errors.As(err, &used) || !errors.Is(err, ErrCalendarInUse) || used.Jobs[0] != "job" {
		t.Errorf("deleting says %v", err)
	}
	if err := w.store.DeleteCalendar(ctx, Caller{Tenant: "other"}, "holidays"); !errors.Is(err, ErrCalendarNotFound) {
		t.Errorf("another tenant is told %v", err)
	}
	if _, _, err := w.store.PutJob(ctx, me, "other", excluding(spec, "holidays", "nowhere"), nil); err == nil || !strings.Contains(err.Error(), "exclude[1]") {
		t.Errorf("an unknown calendar: %v", err)
	}
	w.put("job", excluding(spec))
	if err := w.store.DeleteCalendar(ctx, me, "holidays"); err != nil {
		t.Error(err)
	}
	if err := w.store.DeleteCalendar(ctx, me, "holidays"); !errors.Is(err, ErrCalendarNotFound) {
		t.Errorf("deleting again says %v", err)
	}
}

// A calendar is deleted while a job is being put that excludes it: the one who is first wins.
func TestDeletingACalendarWaitsForWhoeverNamesIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	w.calendar("holidays")
	tx, err := w.Pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := w.store.create(ctx, tx, "default", "job", excluding(pulled("q", time.Hour), "holidays"), false); err != nil {
		t.Fatal(err)
	}
	deleted := make(chan error, 1)
	go func() { deleted <- w.store.DeleteCalendar(ctx, me, "holidays") }()
	for waiting := false; !waiting; {
		select {
		case err := <-deleted:
			t.Fatalf("it didn't wait: %v", err)
		default:
			w.Scan(t, `SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%calendars%')`, nil, &waiting)
		}
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-deleted; !errors.Is(err, ErrCalendarInUse) {
		t.Errorf("deleting says %v", err)
	}
}

func TestCalendarsAreChecked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, c := range map[string]struct {
		calendar Calendar
		field    string
	}{
		"name":  {Calendar{Name: "a b", Timezone: "UTC"}, "name"},
		"zone":  {Calendar{Name: "a", Timezone: "Mars/Base"}, "timezone"},
		"date":  {Calendar{Name: "a", Timezone: "UTC", Dates: []cron.DateRange{{From: "2026-02-30"}}}, "dates[0]"},
		"range": {Calendar{Name: "a", Timezone: "UTC", Dates: []cron.DateRange{{From: "2026-02-03", To: "2026-02-01"}}}, "dates[0]"},
	} {
		_, _, err := w.store.PutCalendar(t.Context(), me, c.calendar)
		var bad *FieldError
		if !errors.As(err, &bad) || bad.Field != c.field {
			t.Errorf("%s: %v", name, err)
		}
	}
	if all, err := w.store.ListCalendars(t.Context(), "default", "", 10); err != nil || len(all) != 0 {
		t.Errorf("there are %v, %v", all, err)
	}
}

// skip-next skips the next instant that would run, once for each time that it is asked.
func TestSkipNext(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	j := w.put("job", pulled("q", 3*time.Second))
	first := w.instants(j)
	for range 2 {
		if _, _, err := w.store.SkipNext(ctx, me, "job"); err != nil {
			t.Fatal(err)
		}
	}
	var skipped []time.Time
	w.Scan(t, `SELECT array_agg(h.scheduled_for ORDER BY 1) || array_agg((missed->>'to')::timestamptz) FROM chronos.run_history h WHERE status = 'skipped' AND reason = 'skip_next'`, nil, &skipped)
	if len(skipped) == 0 || skipped[0].Before(first[0]) || skipped[0].After(first[1]) {
		t.Errorf("skipped were %v of %v", skipped, first)
	}
	if n := w.count(`SELECT sum((missed->>'count')::int) FROM chronos.run_history WHERE reason = 'skip_next'`); n != 2 {
		t.Errorf("%d instants were skipped, want 2", n)
	}
	yearly := pulled("q", 0)
	yearly.Schedule = Timing{Expression: "0 0 1 1 *"}
	w.put("far", yearly)
	far, _, err := w.store.SkipNext(ctx, me, "far")
	if err != nil || len(far.Skips) != 1 {
		t.Fatal(far.Skips, err)
	}
	items, err := far.Upcoming(w.store.Now(), 2)
	if err != nil || !strings.HasPrefix(items[0].Note, "skip_next") || items[1].Note != "" {
		t.Errorf("upcoming are %+v, %v", items, err)
	}
	// When it comes it is recorded, and the next one runs.
	far.NextAt = &far.Skips[0]
	p, err := far.plan(far.Skips[0], 366*24*time.Hour)
	if err != nil || len(p.records) != 1 || p.records[0].Reason != queue.ReasonSkipNext || len(p.runs) != 1 {
		t.Errorf("planned %+v, %v", p, err)
	}
	once := pulled("q", 0)
	once.Schedule = Timing{At: w.store.Now().Add(time.Hour).Format("2006-01-02T15:04:05")}
	w.put("once", once)
	if _, _, err := w.store.SkipNext(ctx, me, "once"); err != nil {
		t.Error(err)
	}
	if _, _, err := w.store.SkipNext(ctx, me, "once"); !errors.Is(err, ErrNoInstant) {
		t.Errorf("with nothing left to skip it says %v", err)
	}
}
