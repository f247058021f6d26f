package web_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/chronos"
)

func TestJobPages(t *testing.T) {
	t.Parallel()
	y := newYard(t, false)
	y.put("leap", nil)
	y.put("held-up", nil)
	until := time.Now().Add(24 * time.Hour)
	if _, _, err := y.store.PauseJob(t.Context(), y.caller, "held-up", "the partner is away", &until); err != nil {
		t.Fatal(err)
	}
	done := y.run("leap", "")
	failed := y.run("leap", "disk full")
	y.db.Exec(t, "INSERT INTO chronos.replicas (id, in_flight) VALUES ('11111111-2222-3333-4444-5555deadbeef', 7)")
	y.db.Exec(t, "INSERT INTO chronos.leaderships VALUES ('planner', 42, '11111111-2222-3333-4444-5555deadbeef', 1, clock_timestamp())")

	y.says("/", "held-up", "paused", "the partner is away", "leap", "At 02:30 on day 29 of the month, in February (Europe/Berlin)", "in", "failed",
		"1 succeeded, 1 failed", "Failed, missed, skipped", "leap", "failed", "disk full", "Replicas", "…deadbeef", "leader", "epoch 42", "7")
	y.says("/jobs/leap", "leap", "30 2 29 2 *", "Europe/Berlin", "queue q", "up to 5", "Upcoming", "29 Feb", "02:30:00 +01:00",
		"Runs", "failed", "disk full", "manual", "succeeded")
	y.says("/jobs/held-up", "paused", "the partner is away", "It hasn’t run yet", "curl", "/v1/jobs/held-up/trigger")
	y.says("/runs", "leap", "failed", "leap", "succeeded")
	y.says("/runs/"+failed.String(), "failed", "disk full", "Attempts", "Attempt 1", "failed", "worker-1", "disk full")
	y.says("/runs/"+done.String(), "succeeded", "manual", "Attempt 1")
}

// A strip's cells are told apart by their shape, not by colour alone, and each leads to its run.
func TestStripShowsEveryFate(t *testing.T) {
	t.Parallel()
	y := newYard(t, false)
	y.put("leap", nil)
	ok, bad := y.run("leap", ""), y.run("leap", "no")
	y.db.Exec(t, `INSERT INTO chronos.run_history (id, job_id, tenant, scheduled_for, effective_at, created_at, finished_at, status, trigger, reason, missed)
		SELECT gen_random_uuid(), j.id, 'default', t.now - n * interval '1 h', t.now, t.now, t.now, (ARRAY['missed', 'skipped', 'cancelled'])[n], 'schedule',
		       (ARRAY['outage', 'overlap', 'requested'])[n],
		       CASE n WHEN 1 THEN jsonb_build_object('from', t.now - interval '1 h', 'to', t.now, 'count', 1234) END
		  FROM chronos.jobs j, generate_series(1, 3) n, (SELECT clock_timestamp() AS now) t`)
	page, _ := y.get(http.StatusOK, "/")
	_, strip, _ := strings.Cut(page, `class="strip"`)
	strip, _, _ = strings.Cut(strip, "</svg>")
	order := ""
	for _, cell := range strings.Split(strip, `data-kind="`)[1:] {
		kind, _, _ := strings.Cut(cell, `"`)
		order += kind + " "
	}
	if order != "cancelled skipped missed succeeded failed " {
		t.Errorf("the strip has %s", order)
	}
	shapes := map[string]string{}
	for _, cell := range strings.Split(strip, `height="20"/>`)[1:] {
		shape, _, _ := strings.Cut(cell, "</g>")
		if first, ok := shapes[shape]; ok {
			t.Errorf("two fates have the shape %s: %s", shape, first)
		}
		shapes[shape] = cell
	}
	for _, want := range []string{"1,234 instants", "nobody could run it in time", "an earlier run was still going", "/runs/" + ok.String(), "/runs/" + bad.String()} {
		if !strings.Contains(strip, want) {
			t.Errorf("the strip doesn't have %q: %s", want, strip)
		}
	}
	y.says("/", "Failed, missed, skipped", "failed", "missed", "1,234 instants until", "skipped", "an earlier run was still going")
}

func TestJobsArePaged(t *testing.T) {
	t.Parallel()
	y := newYard(t, false)
	for i := range 27 {
		y.put(fmt.Sprintf("job-%02d", i), nil)
	}
	y.db.Exec(t, `INSERT INTO chronos.run_history (id, job_id, tenant, scheduled_for, effective_at, created_at, finished_at, status, trigger)
		SELECT gen_random_uuid(), j.id, 'default', t.now - n * interval '1 min', t.now, t.now, t.now, 'succeeded', 'schedule'
		  FROM chronos.jobs j, generate_series(1, 60) n, (SELECT clock_timestamp() AS now) t WHERE j.name = 'job-00'`)
	first, _ := y.get(http.StatusOK, "/")
	if strings.Contains(first, "job-25") || !strings.Contains(first, "job-24") {
		t.Error("the first page doesn't end with the 25th job")
	}
	if !strings.Contains(first, "30 succeeded") {
		t.Error("the strip of job-00 doesn't have the last 30 runs")
	}
	y.says(next(t, first, "Next jobs"), "job-25", "job-26", "First page")
	for _, path := range []string{"/jobs/job-00", "/runs"} {
		page, _ := y.get(http.StatusOK, path)
		if path != "/runs" {
			page, _ = y.get(http.StatusOK, path+next(t, page, "Older"))
		} else {
			page, _ = y.get(http.StatusOK, next(t, page, "Older"))
		}
		if n := strings.Count(page, `<tr id="r-`); n != 10 {
			t.Errorf("%s: %d runs on the second page, want 10", path, n)
		}
	}
}

func TestEmptyChronosSaysWhatToDo(t *testing.T) {
	t.Parallel()
	y := newYard(t, false)
	y.says("/", "No job yet", "curl -X PUT "+y.url+"/v1/jobs/hello", "Nothing failed", "No replica leads", "No replica was seen")
	y.says("/runs", "Nothing has run")
}

func TestJobTextIsEscaped(t *testing.T) {
	t.Parallel()
	y := newYard(t, false)
	y.put("leap", func(s *chronos.Spec) {
		s.Labels = map[string]string{"team": evil}
		s.Target = chronos.Target{Webhook: &chronos.Webhook{
			URL: "https://example.com/?q=<script>alert(1)</script>", Method: "POST", Body: []byte(`{"text": "<script>alert(1)</script>"}`), Timeout: time.Second,
			Headers: map[string]string{"X-Token": "s3cret-value"},
		}}
	})
	if _, _, err := y.store.PauseJob(t.Context(), y.caller, "leap", evil, nil); err != nil {
		t.Fatal(err)
	}
	y.put("pulled", nil)
	failed := y.run("pulled", evil)
	y.db.Exec(t, `UPDATE chronos.run_history SET payload = to_json($1::text), result = to_json($1::text), reason = $1,
		outcome = jsonb_set(outcome, '{response}', to_jsonb($1::text))`, evil)
	for _, path := range []string{"/", "/jobs/leap", "/jobs/pulled", "/runs", "/runs/" + failed.String()} {
		y.escaped(path)
	}
	if page, _ := y.get(http.StatusOK, "/jobs/leap"); strings.Contains(page, "s3cret") || !strings.Contains(page, "X-Token") {
		t.Error("headers are to be named, and their values kept back")
	}
}

// A job that this version can't read is shown with its fault, and hides no other.
func TestAnUnreadableJobIsShown(t *testing.T) {
	t.Parallel()
	y := newYard(t, false)
	for _, name := range []string{"a", "b", "c"} {
		y.put(name, nil)
	}
	y.db.Exec(t, `UPDATE chronos.jobs SET spec = '{"schedule": 5}' WHERE name = 'b'`)
	y.says("/", "a", "At 02:30", "b", "can't read", "paused", "c", "At 02:30")
	y.says("/jobs/b", "Set aside", "can't read")
	y.says("/jobs/a", "At 02:30")
	y.says("/runs", "Runs")
}
