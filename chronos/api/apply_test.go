package api_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const applySet = `{"set": "team", %s "calendars": [{"name": "feasts", "timezone": "Europe/Berlin", "dates": ["2026-12-25", {"from": "2026-12-30", "to": "2026-12-31"}]}],
 "monitors": [{"name": "backup", "schedule": "@daily", "grace": "1h", "alerts": [{"on": ["missed"], "url": "https://example.com/alert"}]}],
 "jobs": [{"name": "a", "schedule": "@daily", "exclude": ["feasts"], "target": {"pull": {"queue": "q"}}},
          {"name": "b", "schedule": %q, "labels": {"x": "y"},
           "alerts": [{"on": ["late"], "url": "https://example.com/", "after": "5m"}, {"on": ["failed"], "url": "https://example.com/"}], "target": {"webhook": {"url": "https://example.com/", "body": {"z": 1, "a": 2}}}}]}`

func actions(answer object) map[string]any {
	found := map[string]any{}
	for _, list := range []string{"calendars", "monitors", "jobs"} {
		for _, item := range answer[list].([]any) {
			found[item.(object)["name"].(string)] = item.(object)["action"]
		}
	}
	return found
}

func TestApplyMakesJobsWhatASetSays(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	s.call(0, 201, "PUT", "/v1/jobs/mine", pullJob)
	s.call(0, 201, "PUT", "/v1/jobs/b", `{"schedule": "@weekly", "target": {"pull": {"queue": "q"}}, "paused": true}`)
	first, again := fmt.Sprintf(applySet, "", "@hourly"), fmt.Sprintf(applySet, "", "@monthly")

	tried, _ := s.call(0, 200, "POST", "/v1/apply?dry_run=true", first)
	want := map[string]any{"feasts": "create", "backup": "create", "a": "create", "b": "change"}
	if diff := cmp.Diff(want, actions(tried)); diff != "" {
		t.Errorf("the plan (-want +got):\n%s", diff)
	}
	s.refused(404, "job_not_found", "", "GET", "/v1/jobs/a", "")
	s.refused(404, "calendar_not_found", "", "GET", "/v1/calendars/feasts", "")
	s.refused(404, "monitor_not_found", "", "GET", "/v1/monitors/backup", "")
	done, _ := s.call(1, 200, "POST", "/v1/apply", strings.Replace(first, `"jobs"`, `"expect": "`+tried["plan"].(string)+`", "jobs"`, 1), "Idempotency-Key", "k")
	if diff := cmp.Diff(actions(tried), actions(done)); diff != "" || done["plan"] != tried["plan"] {
		t.Errorf("planned %v, did %v", tried, done)
	}
	b, _ := s.call(0, 200, "GET", "/v1/jobs/b", "")
	if b["paused"] != true || b["labels"].(object)["holdfast.set"] != "team" || b["labels"].(object)["x"] != "y" {
		t.Errorf("b is %v", b)
	}
	s.refused(409, "plan_changed", "", "POST", "/v1/apply", strings.Replace(first, `"jobs"`, `"expect": "`+tried["plan"].(string)+`", "jobs"`, 1))

	same, _ := s.call(0, 200, "POST", "/v1/apply", first)
	if diff := cmp.Diff(object{"unchanged": 4.0}, same["summary"]); diff != "" {
		t.Errorf("the same again:\n%s", diff)
	}
	now, _ := s.call(0, 200, "GET", "/v1/jobs/b", "")
	if diff := cmp.Diff(b, now); diff != "" {
		t.Errorf("the same again changed:\n%s", diff)
	}

	changed, _ := s.call(0, 200, "POST", "/v1/apply", again)
	if diff := cmp.Diff(object{"unchanged": 3.0, "change": 1.0}, changed["summary"]); diff != "" {
		t.Errorf("another schedule:\n%s", diff)
	}
	alone := `{"set": "team", "jobs": [{"name": "a", "schedule": "@daily", "exclude": ["feasts"], "target": {"pull": {"queue": "q"}}}]%s}`
	left, _ := s.call(0, 200, "POST", "/v1/apply", fmt.Sprintf(alone, ""))
	if diff := cmp.Diff(map[string]any{"a": "unchanged", "b": "left"}, actions(left)); diff != "" {
		t.Error(diff)
	}
	pruned, _ := s.call(0, 200, "POST", "/v1/apply", fmt.Sprintf(alone, `, "prune": true`))
	if diff := cmp.Diff(map[string]any{"a": "unchanged", "b": "prune"}, actions(pruned)); diff != "" {
		t.Error(diff)
	}
	s.refused(404, "job_not_found", "", "GET", "/v1/jobs/b", "")
	s.call(0, 200, "GET", "/v1/jobs/mine", "")
	s.call(0, 200, "GET", "/v1/calendars/feasts", "")
	s.call(0, 200, "GET", "/v1/monitors/backup", "")
	graced, _ := s.call(0, 200, "POST", "/v1/apply", `{"set": "team", "monitors": [{"name": "backup", "schedule": "@daily", "grace": "2h"}]}`)
	if diff := cmp.Diff(map[string]any{"backup": "change", "a": "left"}, actions(graced)); diff != "" {
		t.Error(diff)
	}
}

func TestApplyRefusesAllForOne(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	s.call(0, 200, "POST", "/v1/apply", `{"set": "other", "jobs": [{"name": "theirs", "schedule": "@daily", "target": {"pull": {}}}]}`)
	set := func(jobs string) string {
		return `{"set": "team", "calendars": [{"name": "c", "dates": []}], "jobs": [{"name": "good", "schedule": "@daily", "target": {"pull": {}}}, ` + jobs + `]}`
	}
	for _, c := range []struct{ body, location string }{
		{set(`{"name": "x", "schedule": "61 * * * *", "target": {"pull": {}}}`), "body.jobs[1].schedule"},
		{set(`{"name": "x", "schedule": "@daily", "target": {"pull": {}}, "exclude": ["none"]}`), "body.jobs[1].exclude[0]"},
		{set(`{"name": "x", "schedule": "@daily", "target": {"pull": {}}, "retry": {"tries": 1}}`), "body.jobs[1].retry.tries"},
		{set(`{"name": "x", "schedule": "@daily", "target": {"webhook": {"url": "http://169.254.169.254/"}}}`), "body.jobs[1].target.webhook.url"},
		{set(`{"name": "x", "schedule": {"at": "2020-01-01T00:00:00"}, "target": {"pull": {}}}`), "body.jobs[1].schedule.at"},
		{set(`{"name": "good", "schedule": "@daily", "target": {"pull": {}}}`), "body.jobs[1].name"},
		{set(`{"name": "theirs", "schedule": "@daily", "target": {"pull": {}}}`), "body.jobs[1].name"},
		{set(`{"schedule": "@daily", "target": {"pull": {}}}`), "body.jobs[1].name"},
		{set(`{"name": "x", "schedule": "@daily"}`), "body.jobs[1].target"},
		{`{"set": "team", "calendars": [{"name": "c", "dates": ["2026-02-30"]}]}`, "body.calendars[0].dates[0]"},
		{`{"set": "team", "calendars": [{"dates": []}]}`, "body.calendars[0].name"},
		{`{"set": "team", "monitors": [{"name": "m", "schedule": "@daily", "grace": "0s"}]}`, "body.monitors[0].grace"},
		{`{"set": "team", "monitors": [{"schedule": "@daily", "grace": "1m"}]}`, "body.monitors[0].name"},
		{`{"set": "a b"}`, "body.set"},
	} {
		s.refused(422, "validation_failed", c.location, "POST", "/v1/apply", c.body)
	}
	both, _ := s.call(0, 422, "POST", "/v1/apply", set(`{"name": "x", "schedule": "61 * * * *", "target": {"pull": {}}}, {"name": "y", "schedule": "@daily", "target": {"pull": {}}, "timezone": "Nowhere"}`))
	if faults := both["errors"].([]any); len(faults) != 2 || faults[1].(object)["location"] != "body.jobs[2].timezone" {
		t.Errorf("told of %v", faults)
	}
	s.refused(404, "job_not_found", "", "GET", "/v1/jobs/good", "")
	s.refused(404, "calendar_not_found", "", "GET", "/v1/calendars/c", "")
}

// Whoever applies at the same time, each plan that is carried out is carried out whole.
func TestRivalAppliesDoNotMix(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	set := func(i int) string {
		var jobs []string
		for _, name := range []string{"a", "b", "c", "d"} {
			jobs = append(jobs, fmt.Sprintf(`{"name": %q, "schedule": "@daily", "exclude": ["feasts"], "target": {"pull": {"queue": "q%d"}}}`, name, i))
		}
		if i%2 == 1 {
			slices.Reverse(jobs)
		}
		return fmt.Sprintf(`{"set": "team", "prune": true, "calendars": [{"name": "feasts", "dates": ["2026-12-%d"]}], "jobs": [%s]}`, 10+i, strings.Join(jobs, ","))
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 3 {
				s.call(i%2, 200, "POST", "/v1/apply", set(i))
			}
		})
	}
	wg.Wait()
	var queues, jobs int
	s.db.Scan(t, "SELECT count(DISTINCT queue), count(*) FROM chronos.jobs WHERE deleted_at IS NULL", nil, &queues, &jobs)
	if queues != 1 || jobs != 4 {
		t.Errorf("%d jobs of %d sets", jobs, queues)
	}
}
