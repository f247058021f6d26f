package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sample is the job of the contract, with every member at its default.
const sample = `{"name": "nightly-report", "schedule": "30 2 * * *", "timezone": "Europe/Berlin",
 "target": {"webhook": {"url": "https://example.com/hook", "method": "POST", "headers": {}, "body": {}, "timeout": "10s"}},
 "retry": {"max_attempts": 5, "backoff": "10s", "max_backoff": "1h"},
 "overlap": "skip", "catch_up": {"policy": "latest", "window": "1h", "max": 10},
 "jitter": "0s", "start_at": null, "end_at": null, "max_runs": null, "exclude": [], "priority": 0, "max_concurrent": 1,
 "dst_gap": "run", "dst_overlap": "once", "day_match": "any", "labels": {}, "alerts": [], "paused": false}`

const short = `{"schedule": "30 2 * * *", "timezone": "Europe/Berlin", "target": {"webhook": {"url": "https://example.com/hook"}}}`

func TestTheSampleJobIsWhatTheDefaultsMake(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	var want object
	if err := json.Unmarshal([]byte(sample), &want); err != nil {
		t.Fatal(err)
	}
	made, _ := s.call(0, 201, "PUT", "/v1/jobs/nightly-report", sample)
	for name, value := range want {
		if diff := cmp.Diff(value, made[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	again, _ := s.call(1, 200, "PUT", "/v1/jobs/nightly-report", short)
	if diff := cmp.Diff(made, again); diff != "" {
		t.Errorf("the short form changed something:\n%s", diff)
	}
	got, _ := s.call(1, 200, "GET", "/v1/jobs/nightly-report", "")
	if diff := cmp.Diff(made, got); diff != "" {
		t.Errorf("GET shows something else:\n%s", diff)
	}
	s.call(0, 200, "POST", "/v1/jobs", sample)
	s.call(0, 204, "DELETE", "/v1/jobs/nightly-report", "")
	s.refused(404, "job_not_found", "", "GET", "/v1/jobs/nightly-report", "")
	s.call(0, 201, "POST", "/v1/jobs", sample)
}

func TestPatchChangesInPart(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	s.call(0, 201, "PUT", "/v1/jobs/j", `{"schedule": "@daily", "labels": {"team": "a", "env": "x"},
		"target": {"webhook": {"url": "https://example.com/", "headers": {"A": "1"}, "timeout": "1m"}}, "retry": {"max_attempts": 9}}`)
	got, _ := s.call(1, 200, "PATCH", "/v1/jobs/j", `{"priority": 3, "labels": {"env": null, "b": "c"}, "retry": {"backoff": "1s"},
		"target": {"webhook": {"body": {"z": 1, "a": 2}}}}`)
	want := object{
		"priority": 3.0, "labels": object{"team": "a", "b": "c"},
		"retry": object{"max_attempts": 9.0, "backoff": "1s", "max_backoff": "1h"},
		"target": object{"webhook": object{
			"url": "https://example.com/", "method": "POST", "headers": object{"A": "1"},
			"body": object{"z": 1.0, "a": 2.0}, "timeout": "1m",
		}},
	}
	for name, value := range want {
		if diff := cmp.Diff(value, got[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	got, _ = s.call(0, 200, "PATCH", "/v1/jobs/j", `{"retry": null, "target": {"pull": {"queue": "q"}}, "paused": true}`)
	if diff := cmp.Diff(object{"max_attempts": 5.0, "backoff": "10s", "max_backoff": "1h"}, got["retry"]); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(object{"pull": object{"queue": "q"}}, got["target"]); diff != "" {
		t.Error(diff)
	}
	if got["paused"] != true {
		t.Error("the job isn't paused")
	}
	got, _ = s.call(0, 200, "PUT", "/v1/jobs/j", short)
	if got["paused"] != true {
		t.Error("a PUT that doesn't speak of it resumed the job")
	}
	s.refused(404, "job_not_found", "", "PATCH", "/v1/jobs/k", `{"priority": 3}`)
	s.refused(422, "validation_failed", "body.name", "PATCH", "/v1/jobs/j", `{"name": "k"}`)
}

func TestBadJobsAreRefusedByField(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	with := func(member string) string {
		return `{"schedule": "@daily", "target": {"webhook": {"url": "https://example.com/"}}, ` + member + `}`
	}
	hook := func(member string) string {
		return `{"schedule": "@daily", "target": {"webhook": {"url": "https://example.com/", ` + member + `}}}`
	}
	timed := func(schedule string) string {
		return `{"schedule": ` + schedule + `, "target": {"webhook": {"url": "https://example.com/"}}}`
	}
	for _, c := range []struct{ body, code, location string }{
		{`{"schedule": "@daily"}`, "validation_failed", "body.target"},
		{`{"target": {"pull": {"queue": "q"}}}`, "validation_failed", "body.schedule"},
		{with(`"name": "other"`), "validation_failed", "body.name"},
		{with(`"colour": "red"`), "validation_failed", "body.colour"},
		{with(`"priority": 10`), "validation_failed", "body.priority"},
		{with(`"priority": "high"`), "validation_failed", "body.priority"},
		{with(`"max_runs": 0`), "validation_failed", "body.max_runs"},
		{with(`"overlap": "maybe"`), "validation_failed", "body.overlap"},
		{with(`"retry": {"max_attempts": 0}`), "validation_failed", "body.retry.max_attempts"},
		{with(`"retry": {"backoff": "-1s"}`), "validation_failed", "body.retry.backoff"},
		{with(`"retry": {"tries": 2}`), "validation_failed", "body.retry.tries"},
		{with(`"catch_up": {"policy": "some"}`), "validation_failed", "body.catch_up.policy"},
		{with(`"start_at": "2026-01-02T00:00:00Z", "end_at": "2026-01-01T00:00:00Z"`), "validation_failed", "body.end_at"},
		{with(`"start_at": "tomorrow"`), "validation_failed", "body.start_at"},
		{with(`"timezone": "Mars/Base"`), "invalid_timezone", "body.timezone"},
		{with(`"overlap": "never"`), "validation_failed", "body.overlap"},
		{with(`"jitter": "25h"`), "validation_failed", "body.jitter"},
		{with(`"jitter": "-1s"`), "validation_failed", "body.jitter"},
		{with(`"jitter": "1500us"`), "validation_failed", "body.jitter"},
		{with(`"exclude": ["x"]`), "validation_failed", "body.exclude[0]"},
		{with(`"exclude": [""]`), "validation_failed", "body.exclude[0]"},
		{with(`"exclude": ["x", "x"]`), "validation_failed", "body.exclude[1]"},
		{with(`"exclude": [{"date": "2026-12-25"}]`), "validation_failed", "body.exclude[0]"},
		{with(`"exclude": "x"`), "validation_failed", "body.exclude"},
		{with(`"max_concurrent": 0`), "validation_failed", "body.max_concurrent"},
		{with(`"max_concurrent": 1001`), "validation_failed", "body.max_concurrent"},
		{with(`"alerts": [{"on": ["success"], "url": "https://example.com"}]`), "validation_failed", "body.alerts[0].on[0]"},
		{with(`"alerts": [{"on": [], "url": "https://example.com"}]`), "validation_failed", "body.alerts[0].on"},
		{with(`"alerts": [{"on": ["failed", "failed"], "url": "https://example.com"}]`), "validation_failed", "body.alerts[0].on[1]"},
		{with(`"alerts": [{"on": ["failed"], "url": "https://a"}, {"on": ["failed"], "url": "https://a"}]`), "validation_failed", "body.alerts[1].on[0]"},
		{with(`"alerts": [{"on": ["failed"]}]`), "validation_failed", "body.alerts[0]"},
		{with(`"alerts": [{"on": ["failed"], "url": "ftp://example.com"}]`), "validation_failed", "body.alerts[0].url"},
		{with(`"alerts": [{"on": ["failed"], "url": "http://169.254.169.254/"}]`), "target_forbidden", "body.alerts[0].url"},
		{with(`"alerts": [{"on": ["missed"], "url": "https://example.com", "after": "1m"}]`), "validation_failed", "body.alerts[0].after"},
		{with(`"alerts": [{"on": ["late"], "url": "https://example.com", "after": "0s"}]`), "validation_failed", "body.alerts[0].after"},
		{with(`"alerts": [{"on": ["late"], "url": "https://example.com", "after": "169h"}]`), "validation_failed", "body.alerts[0].after"},
		{with(`"alerts": [{"on": ["late"], "url": "https://example.com", "then": 1}]`), "validation_failed", "body.alerts[0].then"},
		{with(`"alerts": "x"`), "validation_failed", "body.alerts"},
		{timed(`"61 * * * *"`), "invalid_schedule", "body.schedule"},
		{timed(`"0 0 30 2 *"`), "invalid_schedule", "body.schedule"},
		{timed(`""`), "validation_failed", "body.schedule"},
		{timed(`5`), "validation_failed", "body.schedule"},
		{timed(`{"every": "1s", "at": "2030-01-01T00:00:00"}`), "validation_failed", "body.schedule"},
		{timed(`{"every": "1.5s"}`), "invalid_schedule", "body.schedule.every"},
		{timed(`{"every": "0s"}`), "invalid_schedule", "body.schedule.every"},
		{timed(`{"every": 5}`), "validation_failed", "body.schedule"},
		{timed(`{"at": "soon"}`), "invalid_schedule", "body.schedule.at"},
		{timed(`{"at": "2020-01-01T00:00:00"}`), "schedule_in_past", "body.schedule.at"},
		{hook(`"method": "TRACE"`), "validation_failed", "body.target.webhook.method"},
		{hook(`"timeout": "16m"`), "validation_failed", "body.target.webhook.timeout"},
		{hook(`"headers": {"Host": "x"}`), "validation_failed", "body.target.webhook.headers.Host"},
		{hook(`"headers": {"chronos-job": "x"}`), "validation_failed", "body.target.webhook.headers.chronos-job"},
		{`{"schedule": "@daily", "target": {"webhook": {"url": "http://10.1.2.3/"}}}`, "target_forbidden", "body.target.webhook.url"},
		{`{"schedule": "@daily", "target": {"webhook": {"url": "ftp://example.com/"}}}`, "validation_failed", "body.target.webhook.url"},
		{`{"schedule": "@daily", "target": {"webhook": {"url": "https://example.com/"}, "pull": {"queue": "q"}}}`, "validation_failed", "body.target"},
		{`{"schedule": "@daily", "target": {"pull": {"queue": "a b"}}}`, "validation_failed", "body.target.pull.queue"},
	} {
		s.refused(422, c.code, c.location, "PUT", "/v1/jobs/j", c.body)
	}
	s.refused(422, "validation_failed", "path.name", "PUT", "/v1/jobs/a%20b", short)
	s.refused(422, "validation_failed", "body.name", "POST", "/v1/jobs", short)
	s.refused(400, "malformed_json", "", "PUT", "/v1/jobs/j", `{`)
	s.refused(400, "body_required", "", "PUT", "/v1/jobs/j", ``)
	if list, _ := s.call(0, 200, "GET", "/v1/jobs", ""); len(list["items"].([]any)) != 0 {
		t.Error("a refused job was made")
	}
}

func TestJobsAreListedAndFiltered(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	for name, labels := range map[string]string{"alpha": `{"team": "a"}`, "beta": `{"team": "b"}`, "gamma": `{"team": "a", "x": "y:z"}`} {
		s.call(0, 201, "PUT", "/v1/jobs/"+name, `{"schedule": "@daily", "target": {"pull": {"queue": "q"}}, "labels": `+labels+`}`)
	}
	s.call(0, 200, "POST", "/v1/jobs/beta/pause", `{"reason": "holidays"}`)
	names := func(query string) (names []string) {
		list, _ := s.call(1, 200, "GET", "/v1/jobs"+query, "")
		for _, item := range list["items"].([]any) {
			names = append(names, item.(object)["name"].(string))
		}
		return names
	}
	for query, want := range map[string][]string{
		"": {"alpha", "beta", "gamma"}, "?label=team:a": {"alpha", "gamma"}, "?label=x:y:z": {"gamma"}, "?label=team:c": nil,
		"?paused=true": {"beta"}, "?paused=false": {"alpha", "gamma"}, "?q=ET": {"beta"}, "?q=a_": nil,
	} {
		if diff := cmp.Diff(want, names(query)); diff != "" {
			t.Errorf("%s: %s", query, diff)
		}
	}
	page, _ := s.call(0, 200, "GET", "/v1/jobs?limit=2", "")
	rest, _ := s.call(1, 200, "GET", "/v1/jobs?limit=2&cursor="+page["next_cursor"].(string), "")
	if len(page["items"].([]any)) != 2 || len(rest["items"].([]any)) != 1 || rest["next_cursor"] != nil {
		t.Errorf("pages are %v and %v", page, rest)
	}
	s.refused(422, "validation_failed", "query.paused", "GET", "/v1/jobs?paused=maybe", "")
	s.refused(422, "validation_failed", "query.label", "GET", "/v1/jobs?label=team", "")
	s.refused(422, "invalid_cursor", "query.cursor", "GET", "/v1/jobs?cursor=abc", "")
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	s.call(0, 201, "PUT", "/v1/jobs/j", pullJob)
	got, _ := s.call(0, 200, "POST", "/v1/jobs/j/pause", `{"reason": "holidays", "until": "2100-01-01T00:00:00Z"}`)
	if got["paused"] != true || got["pause_reason"] != "holidays" || got["paused_until"] != "2100-01-01T00:00:00Z" {
		t.Errorf("paused: %v", got)
	}
	got, _ = s.call(1, 200, "POST", "/v1/jobs/j/resume", "")
	if got["paused"] != false || got["pause_reason"] != nil {
		t.Errorf("resumed: %v", got)
	}
	s.call(1, 200, "POST", "/v1/jobs/j/resume", "")
	s.call(1, 200, "POST", "/v1/jobs/j/pause", "")
	s.refused(422, "validation_failed", "body.until", "POST", "/v1/jobs/j/pause", `{"until": "2020-01-01T00:00:00Z"}`)
	s.refused(404, "job_not_found", "", "POST", "/v1/jobs/k/pause", "")
}

func TestSchedulesAreShownAsTheyWillRun(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	got, _ := s.call(0, 200, "POST", "/v1/schedules/preview",
		`{"schedule": "30 2 * * *", "timezone": "Europe/Berlin", "from": "2026-03-28T12:00:00Z", "count": 2}`)
	times := got["times"].([]any)
	if len(times) != 2 || times[0].(object)["at"] != "2026-03-29T01:00:00Z" || times[0].(object)["local"] != "2026-03-29T03:00:00+02:00" ||
		times[0].(object)["note"] == nil || times[1].(object)["at"] != "2026-03-30T00:30:00Z" {
		t.Errorf("the preview across a gap is %v", times)
	}
	if got["description"] == "" || got["warnings"] == nil {
		t.Errorf("the preview is %v", got)
	}
	got, _ = s.call(0, 200, "POST", "/v1/schedules/preview", `{"schedule": {"every": "90s"}, "from": "2026-01-01T00:00:00Z", "count": 1}`)
	if at := got["times"].([]any)[0].(object)["at"]; at != "2026-01-01T00:01:30Z" {
		t.Errorf("every 90s begins at %v", at)
	}
	got, _ = s.call(0, 200, "POST", "/v1/schedules/preview", `{"schedule": "* * * * *"}`)
	if len(got["times"].([]any)) != 10 {
		t.Errorf("without a count: %d times", len(got["times"].([]any)))
	}
	s.refused(422, "invalid_schedule", "body.schedule", "POST", "/v1/schedules/preview", `{"schedule": "0 0 31 2 *"}`)
	s.refused(422, "invalid_timezone", "body.timezone", "POST", "/v1/schedules/preview", `{"schedule": "@daily", "timezone": "Nowhere"}`)
	s.refused(422, "validation_failed", "body.count", "POST", "/v1/schedules/preview", `{"schedule": "@daily", "count": 1001}`)
	s.refused(422, "validation_failed", "body.count", "POST", "/v1/schedules/preview", `{"schedule": "@daily", "count": 0}`)

	s.call(0, 201, "PUT", "/v1/jobs/j", `{"schedule": {"every": "1h"}, "target": {"pull": {"queue": "q"}}, "start_at": "2100-01-01T00:00:00Z", "max_runs": 2}`)
	up, _ := s.call(1, 200, "GET", "/v1/jobs/j/upcoming?count=5", "")
	items := up["items"].([]any)
	if len(items) != 2 || items[0].(object)["at"] != "2100-01-01T00:00:00Z" || items[1].(object)["effective_at"] != "2100-01-01T01:00:00Z" {
		t.Errorf("upcoming is %v", items)
	}
}

// A job that this version can't read is listed as such, beside the others, and what needs it is refused.
func TestAnUnreadableJobIsListed(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	for _, name := range []string{"a", "b", "c"} {
		s.call(0, 201, "PUT", "/v1/jobs/"+name, pullJob)
	}
	s.db.Exec(t, `UPDATE chronos.jobs SET spec = '{"schedule": 5, "labels": []}' WHERE name = 'b'`)
	list, _ := s.call(1, 200, "GET", "/v1/jobs", "")
	items := list["items"].([]any)
	if len(items) != 3 {
		t.Fatalf("listed: %v", list)
	}
	one, _ := s.call(0, 200, "GET", "/v1/jobs/b", "")
	for _, shown := range []object{items[1].(object), one} {
		if shown["name"] != "b" || shown["unreadable"] != true || shown["paused"] != true || !strings.Contains(shown["pause_reason"].(string), "can't read") {
			t.Errorf("shown as %v", shown)
		}
	}
	if a := items[0].(object); a["unreadable"] != nil || a["paused"] != false {
		t.Errorf("the other is shown as %v", a)
	}
	for path, body := range map[string]string{"pause": "", "resume": "", "trigger": "", "skip-next": "", "backfill": `{"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}`} {
		s.refused(409, "unreadable", "", "POST", "/v1/jobs/b/"+path, body)
	}
	s.refused(409, "unreadable", "", "PATCH", "/v1/jobs/b", `{"priority": 1}`)
	s.refused(409, "unreadable", "", "GET", "/v1/jobs/b/upcoming", "")
	s.call(0, 200, "GET", "/v1/runs", "")
	plan, _ := s.call(0, 200, "POST", "/v1/apply?dry_run=true", `{"set": "s", "jobs": [{"name": "b", "schedule": {"every": "1h"}, "target": {"pull": {"queue": "q"}}}]}`)
	if actions(plan)["b"] != "change" {
		t.Errorf("planned: %v", plan)
	}
	put, _ := s.call(0, 200, "PUT", "/v1/jobs/b", pullJob)
	if put["unreadable"] != nil || put["paused"] != false {
		t.Errorf("put anew it is %v", put)
	}
}
