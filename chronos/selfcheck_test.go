package chronos

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"holdfast/chronos/cron"
)

func (w *world) selfCheck() SelfCheck {
	w.t.Helper()
	c, err := w.store.selfCheck(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	if c.Expected != c.Fired+c.Recorded+c.Missing {
		w.t.Errorf("it doesn't add up: %+v", c)
	}
	return c
}

// aged puts jobs of every kind and lets them be two hours old, of which nothing was planned; then a planner comes.
func (w *world) aged() {
	w.t.Helper()
	if _, _, err := w.store.PutCalendar(w.t.Context(), me, Calendar{Name: "always", Timezone: "UTC", Dates: []cron.DateRange{{From: "2020-01-01", To: "2099-12-31"}}}); err != nil {
		w.t.Fatal(err)
	}
	two, soon := int64(2), time.Now().Add(-30*time.Minute)
	for name, edit := range map[string]func(*Spec){
		"plain":    func(*Spec) {},
		"all":      func(s *Spec) { s.CatchUp = CatchUp{CatchUpAll, time.Hour, 5} },
		"jitter":   func(s *Spec) { s.Jitter = 50 * time.Second },
		"excluded": func(s *Spec) { s.Exclude = []string{"always"} },
		"bounded":  func(s *Spec) { s.MaxRuns = &two; s.CatchUp = CatchUp{CatchUpAll, 24 * time.Hour, 1000} },
		"paused":   func(*Spec) {},
		"skips":    func(*Spec) {},
		"local":    func(s *Spec) { s.Schedule = Timing{Expression: "*/7 * * * *"}; s.Timezone = "Europe/Berlin" },
		"pulled":   func(s *Spec) { s.Target = Target{Pull: &Pull{Queue: "q"}} },
		"often":    func(s *Spec) { s.Schedule = Timing{Every: time.Second} },
		"changed":  func(*Spec) {},
		"foreign":  func(*Spec) {},
		"ended":    func(s *Spec) { end := soon; start := soon.Add(-24 * time.Hour); s.StartAt, s.EndAt = &start, &end },
	} {
		spec := to("http://127.0.0.1:1/", time.Minute)
		edit(&spec)
		w.put(name, spec)
	}
	if _, _, err := w.store.SkipNext(w.t.Context(), me, "skips"); err != nil {
		w.t.Fatal(err)
	}
	w.Exec(w.t, `DELETE FROM chronos.job_runs`)
	w.Exec(w.t, `DELETE FROM chronos.run_history`)
	w.Exec(w.t, `UPDATE chronos.calendars SET updated_at = updated_at - interval '1 day'`)
	w.Exec(w.t, `UPDATE chronos.jobs SET next_at = clock_timestamp() - interval '2 hours', last_at = NULL, used = 0, anchor = anchor - interval '1 day',
		created_at = created_at - interval '2 hours 2 minutes', updated_at = updated_at - interval '2 hours', skips = ARRAY(SELECT s - interval '1 hour' FROM unnest(skips) s)`)
	w.Exec(w.t, `UPDATE chronos.jobs SET paused_at = clock_timestamp() - interval '90 minutes' WHERE name = 'paused'`)
	w.plan(w.term())
	if _, _, err := w.store.EditJob(w.t.Context(), me, "changed", func(j Job) (Spec, *bool, error) {
		j.Spec.Schedule = Timing{Expression: "* * * * *"}
		return j.Spec, nil, nil
	}); err != nil {
		w.t.Fatal(err)
	}
	w.Exec(w.t, `UPDATE chronos.jobs SET zone_data = '1999a', next_at = NULL WHERE name = 'foreign'`)
	w.Exec(w.t, `DELETE FROM chronos.run_history WHERE job_id = (SELECT id FROM chronos.jobs WHERE name = 'foreign')`)
}

// Pitfall 42: what should have fired is worked out from the schedules and compared with what has, whatever the planner believes.
func TestPitfall42SchedulesThatStopAreNoticed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.aged()
	before := w.selfCheck()
	if before.Missing != 0 || before.Jobs != 12 || !before.All || before.Fired < 10 || before.Recorded < 400 {
		t.Fatalf("with nothing wrong: %+v", before)
	}
	// A watermark that was lost, after which nothing was planned; and one instant that fell through.
	w.Exec(t, `DELETE FROM chronos.run_history WHERE job_id = (SELECT id FROM chronos.jobs WHERE name = 'plain')`)
	w.Exec(t, `DELETE FROM chronos.job_runs WHERE job_id = (SELECT id FROM chronos.jobs WHERE name = 'plain')`)
	w.Exec(t, `UPDATE chronos.jobs SET next_at = NULL WHERE name = 'plain'`)
	w.Exec(t, `DELETE FROM chronos.job_runs WHERE id = (SELECT r.id FROM chronos.job_runs r JOIN chronos.jobs j ON j.id = r.job_id
		WHERE r.trigger = 'catch_up' AND j.name = 'all' ORDER BY r.scheduled_for LIMIT 1)`)
	c := w.selfCheck()
	if c.Missing != selfCheckInstants+1 || c.Expected != before.Expected {
		t.Errorf("after both: %+v, before %+v", c, before)
	}
	if len(c.named) != selfCheckNamed || !strings.HasPrefix(c.named[0], "default/") {
		t.Errorf("it names %v", c.named)
	}
}

func TestPitfall42IsToldOnceAndShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.aged()
	var log bytes.Buffer
	registry := prometheus.NewRegistry()
	s, err := New(t.Context(), Config{Pool: w.Pool, SessionURL: w.URL, Log: slog.New(slog.NewTextHandler(&log, nil)), Metrics: registry})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := s.LastSelfCheck(); ok {
		t.Error("there is one before the first")
	}
	good := w.selfCheck()
	w.Exec(t, `DELETE FROM chronos.run_history WHERE job_id = (SELECT id FROM chronos.jobs WHERE name = 'plain')`)
	bad := w.selfCheck()
	for _, c := range []SelfCheck{good, bad, bad, good} {
		s.noteSelfCheck(c)
		if last, ok := s.LastSelfCheck(); !ok || last.Missing != c.Missing {
			t.Errorf("the last one is %+v, want %+v", last, c)
		}
	}
	for text, n := range map[string]int{"neither a run nor a record": 1, "default/plain at": selfCheckNamed, "again": 1, "compared": 1} {
		if got := strings.Count(log.String(), text); got != n {
			t.Errorf("%q was logged %d times, want %d:\n%s", text, got, n, log.String())
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "holdfast_chronos_selfcheck_instants" {
				shown[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
			}
		}
	}
	if shown["expected"] != float64(good.Expected) || shown["missing"] != 0 || shown["fired"] != float64(good.Fired) || len(shown) != 4 {
		t.Errorf("the metrics are %v", shown)
	}
}

// A job that the planner can't make sense of is counted, and keeps the others from nothing.
func TestASelfCheckCountsWhatIsSetAside(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.aged()
	w.Exec(t, `UPDATE chronos.jobs SET spec = '{"schedule": 5}' WHERE name = 'plain'`)
	w.Exec(t, `UPDATE chronos.jobs SET faulty_at = clock_timestamp(), next_at = NULL WHERE name = 'all'`)
	if c := w.selfCheck(); c.SetAside != 2 || c.Missing != 0 || c.Jobs != 12 {
		t.Errorf("%+v", c)
	}
	w.Exec(t, `UPDATE chronos.jobs SET next_at = clock_timestamp() - interval '5 minutes' WHERE name = 'local'`)
	if c := w.selfCheck(); !c.Behind {
		t.Errorf("the planner isn't taken to be behind: %+v", c)
	}
	w.Exec(t, `UPDATE chronos.jobs SET deleted_at = clock_timestamp(), next_at = NULL`)
	if c := w.selfCheck(); c.Jobs != 0 || !c.All || c.Expected != 0 || c.Behind {
		t.Errorf("without jobs: %+v", c)
	}
}

// Many jobs cost no more than some: as many as are looked at, wherever it begins.
func TestASelfCheckIsASample(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("first", to("http://127.0.0.1:1/", time.Hour))
	w.Exec(t, `INSERT INTO chronos.jobs (tenant, name, spec, anchor, zone_data)
		SELECT tenant, 'job-' || n, spec, anchor, zone_data FROM chronos.jobs, generate_series(1, 3000) n`)
	if c := w.selfCheck(); c.Jobs != selfCheckJobs || c.All {
		t.Errorf("%+v", c)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.service(Config{}).watchSchedules(ctx); err != nil {
		t.Error(err)
	}
}
