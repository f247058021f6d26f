package api_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"holdfast/internal/apikey"
)

const hourly = `{"schedule": "0 * * * *", "timezone": "Europe/Berlin", "grace": "5m", "alerts": [{"on": ["missed", "recovered"], "url": "https://example.com/hook"}]}`

func TestMonitors(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	made, _ := s.call(0, 201, "PUT", "/v1/monitors/backup", hourly)
	if made["state"] != "new" || made["grace"] != "5m" || made["schedule"] != "0 * * * *" || made["expected_at"] == nil || made["deadline"] == nil || made["last_check_in_at"] != nil {
		t.Errorf("%v", made)
	}
	again, _ := s.call(1, 200, "PUT", "/v1/monitors/backup", hourly)
	if diff := cmp.Diff(made, again); diff != "" {
		t.Errorf("the same again changed something:\n%s", diff)
	}
	started, _ := s.call(0, 200, "POST", "/v1/monitors/backup/start", "")
	if started["state"] != "running" || started["started_at"] == nil {
		t.Errorf("%v", started)
	}
	failed, _ := s.call(1, 200, "POST", "/v1/monitors/backup/fail", `{"message": "disk full"}`)
	if failed["state"] != "down" || failed["failures"] != 1.0 || failed["failing_since"] == nil || failed["last_duration"] == nil {
		t.Errorf("%v", failed)
	}
	s.call(0, 200, "POST", "/v1/monitors/backup/fail", "")
	pinged, _ := s.call(0, 200, "POST", "/v1/monitors/backup/ping", "", "Idempotency-Key", "k")
	if pinged["state"] != "up" {
		t.Errorf("%v", pinged)
	}
	replayed, header := s.call(1, 200, "POST", "/v1/monitors/backup/ping", "", "Idempotency-Key", "k")
	if diff := cmp.Diff(pinged, replayed); diff != "" || header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("replayed:\n%s", diff)
	}
	page, _ := s.call(0, 200, "GET", "/v1/monitors/backup/events?limit=3", "")
	rest, _ := s.call(0, 200, "GET", "/v1/monitors/backup/events?cursor="+page["next_cursor"].(string), "")
	var kinds []string
	for _, e := range append(page["items"].([]any), rest["items"].([]any)...) {
		kinds = append(kinds, e.(object)["kind"].(string))
	}
	if strings.Join(kinds, " ") != "ping fail fail start" {
		t.Errorf("events: %v", kinds)
	}
	s.call(0, 201, "PUT", "/v1/monitors/other", hourly)
	list, _ := s.call(0, 200, "GET", "/v1/monitors?limit=1", "")
	next, _ := s.call(0, 200, "GET", "/v1/monitors?cursor="+list["next_cursor"].(string), "")
	if items := next["items"].([]any); len(items) != 1 || items[0].(object)["name"] != "other" {
		t.Errorf("%v", next)
	}
	s.call(0, 204, "DELETE", "/v1/monitors/backup", "")
	s.refused(404, "monitor_not_found", "", "DELETE", "/v1/monitors/backup", "")
	s.refused(404, "monitor_not_found", "", "GET", "/v1/monitors/backup", "")
	s.refused(404, "monitor_not_found", "", "POST", "/v1/monitors/backup/ping", "")
	s.refused(404, "monitor_not_found", "", "GET", "/v1/monitors/backup/events", "")
}

func TestBadMonitorsAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	for _, c := range []struct{ body, code, location string }{
		{`{"grace": "5m"}`, "validation_failed", "body"},
		{`{"schedule": "0 * * * *"}`, "validation_failed", "body"},
		{`{"schedule": "0 * * * *", "grace": "0s"}`, "validation_failed", "body.grace"},
		{`{"schedule": "0 * * * *", "grace": "9000h"}`, "validation_failed", "body.grace"},
		{`{"schedule": "0 * * * *", "grace": 5}`, "validation_failed", "body.grace"},
		{`{"schedule": "61 * * * *", "grace": "5m"}`, "invalid_schedule", "body.schedule"},
		{`{"schedule": {"at": "2020-01-01T00:00:00"}, "grace": "5m"}`, "schedule_in_past", "body.schedule.at"},
		{`{"schedule": "0 * * * *", "timezone": "Mars/Base", "grace": "5m"}`, "invalid_timezone", "body.timezone"},
		{`{"schedule": "0 * * * *", "grace": "5m", "name": "other"}`, "validation_failed", "body.name"},
		{`{"schedule": "0 * * * *", "grace": "5m", "labels": {}}`, "validation_failed", "body.labels"},
		{`{"schedule": "0 * * * *", "grace": "5m", "alerts": [{"on": ["late"], "url": "https://a", "after": "5m"}]}`, "validation_failed", "body.alerts[0].after"},
		{`{"schedule": "0 * * * *", "grace": "5m", "alerts": [{"on": ["late"], "url": "http://10.0.0.1/"}]}`, "target_forbidden", "body.alerts[0].url"},
	} {
		s.refused(422, c.code, c.location, "PUT", "/v1/monitors/backup", c.body)
	}
	s.refused(422, "validation_failed", "path.name", "PUT", "/v1/monitors/b%20c", hourly)
	s.refused(404, "monitor_not_found", "", "GET", "/v1/monitors/backup", "")
	s.call(0, 201, "PUT", "/v1/monitors/backup", hourly)
	s.refused(422, "validation_failed", "body.message", "POST", "/v1/monitors/backup/fail", `{"message": "`+strings.Repeat("x", 1001)+`"}`)
	s.refused(405, "method_not_allowed", "", "GET", "/v1/monitors/backup/ping", "")
}

func TestAlertsAreListed(t *testing.T) {
	t.Parallel()
	s := newSite(t, true)
	newKey := func(tenant string) string {
		t.Helper()
		_, secret, err := apikey.NewStore(s.db.Pool, "chronos").Create(t.Context(), tenant, "", []apikey.Scope{apikey.Read, apikey.Write})
		if err != nil {
			t.Fatal(err)
		}
		return secret
	}
	s.key = newKey("acme")
	s.call(0, 201, "PUT", "/v1/jobs/job", `{"schedule": {"every": "1h"}, "target": {"pull": {"queue": "q"}}, "retry": {"max_attempts": 1},
		"alerts": [{"on": ["failed", "late"], "url": "https://example.com/hook", "after": "2m"}]}`)
	shown, _ := s.call(0, 200, "PATCH", "/v1/jobs/job", `{"priority": 3}`)
	want := []any{object{"on": []any{"failed", "late"}, "url": "https://example.com/hook", "after": "2m"}}
	if diff := cmp.Diff(want, shown["alerts"]); diff != "" {
		t.Errorf("alerts of the job (-want +got):\n%s", diff)
	}
	s.call(0, 201, "PUT", "/v1/monitors/backup", `{"schedule": "0 * * * *", "grace": "5m", "alerts": [{"on": ["failed"], "url": "https://example.com/hook"}]}`)
	s.call(0, 200, "POST", "/v1/monitors/backup/fail", "")
	s.db.Exec(t, `INSERT INTO chronos.alerts (tenant, job_id, source, kind, cause, url, payload, status, finished_at, error)
		SELECT tenant, id, name, 'failed', 'x', 'https://example.com/hook', '{"type": "job.failed"}', 'failed', clock_timestamp(), 'timeout: no answer' FROM chronos.jobs`)
	list := func(query string) []any {
		t.Helper()
		answer, _ := s.call(1, 200, "GET", "/v1/alerts"+query, "")
		return answer["items"].([]any)
	}
	if all := list(""); len(all) != 2 || all[0].(object)["job"] != "job" || all[1].(object)["monitor"] != "backup" {
		t.Errorf("%v", all)
	}
	if got := list("?monitor=backup&status=pending"); len(got) != 1 || got[0].(object)["payload"].(object)["type"] != "monitor.failed" {
		t.Errorf("%v", got)
	}
	dead := list("?job=job&status=failed")
	if len(dead) != 1 || dead[0].(object)["error"] != "timeout: no answer" {
		t.Fatalf("%v", dead)
	}
	for _, query := range []string{"?job=backup", "?monitor=job", "?status=delivered"} {
		if got := list(query); len(got) != 0 {
			t.Errorf("%s: %v", query, got)
		}
	}
	id := dead[0].(object)["id"].(string)
	again, _ := s.call(0, 202, "POST", "/v1/alerts/"+id+"/redeliver", "")
	if again["status"] != "pending" || again["id"] != id || again["next_attempt_at"] == nil {
		t.Errorf("%v", again)
	}
	s.refused(422, "validation_failed", "query.status", "GET", "/v1/alerts?status=dead", "")
	s.refused(404, "alert_not_found", "", "POST", "/v1/alerts/x/redeliver", "")
	s.key = newKey("umbrella")
	s.refused(404, "alert_not_found", "", "POST", "/v1/alerts/"+id+"/redeliver", "")
	s.refused(404, "monitor_not_found", "", "POST", "/v1/monitors/backup/ping", "")
	if got := list(""); len(got) != 0 {
		t.Errorf("another tenant's alerts: %v", got)
	}
}
