package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestCalendars(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	const body = `{"timezone": "Europe/Berlin", "dates": ["2026-12-25", {"from": "2026-12-31", "to": "2027-01-01"}]}`
	made, _ := s.call(0, 201, "PUT", "/v1/calendars/holidays", body)
	s.call(1, 200, "PUT", "/v1/calendars/holidays", body)
	got, _ := s.call(1, 200, "GET", "/v1/calendars/holidays", "")
	dates := fmt.Sprint(got["dates"])
	if fmt.Sprint(got) != fmt.Sprint(made) || dates != "[2026-12-25 map[from:2026-12-31 to:2027-01-01]]" || got["timezone"] != "Europe/Berlin" {
		t.Errorf("made %v, got %v", made, got)
	}
	list, _ := s.call(0, 200, "GET", "/v1/calendars", "")
	if items := list["items"].([]any); len(items) != 1 || list["next_cursor"] != nil {
		t.Errorf("listed %v", list)
	}
	s.refused(404, "calendar_not_found", "", "GET", "/v1/calendars/none", "")
	s.refused(404, "calendar_not_found", "", "DELETE", "/v1/calendars/none", "")
	for location, bad := range map[string]string{
		"body.dates[0]":      `{"dates": ["2026-02-30"]}`,
		"body.dates[1]":      `{"dates": ["2026-02-28", {"from": "2026-03-02", "to": "2026-03-01"}]}`,
		"body.dates[0].to":   `{"dates": [{"from": "2026-03-02", "to": "soon"}]}`,
		"body.dates[0].till": `{"dates": [{"from": "2026-03-02", "till": "2026-03-04"}]}`,
		"body.timezone":      `{"timezone": "Mars/Base", "dates": []}`,
		"body":               `{"timezone": "UTC"}`,
		"body.name":          `{"name": "other", "dates": []}`,
	} {
		code := "validation_failed"
		if strings.Contains(bad, "Mars") {
			code = "invalid_timezone"
		} else if strings.Contains(bad, "-30") || strings.Contains(bad, "03-01") || strings.Contains(bad, "soon") {
			code = "invalid_calendar"
		}
		s.refused(422, code, location, "PUT", "/v1/calendars/bad", bad)
	}
	for _, bad := range []string{`{"dates": [7]}`, `{"dates": [{}]}`, `{"dates": [{"from": "2026-03-02"}]}`, `{"dates": [null]}`, `{"dates": {}}`, `{"dates": null}`} {
		s.call(0, 422, "PUT", "/v1/calendars/bad", bad)
	}
	s.call(0, 422, "PUT", "/v1/calendars/a%20b", body)

	s.call(0, 201, "PUT", "/v1/jobs/j", `{"schedule": "0 12 25 12 *", "timezone": "Europe/Berlin", "target": {"pull": {}}, "exclude": ["holidays"], "jitter": "1m"}`)
	s.refused(409, "calendar_in_use", "", "DELETE", "/v1/calendars/holidays", "")
	up, _ := s.call(0, 200, "GET", "/v1/jobs/j/upcoming?count=5", "")
	notes := 0
	for _, item := range up["items"].([]any) {
		item := item.(object)
		at, err1 := time.Parse(time.RFC3339, item["at"].(string))
		effective, err2 := time.Parse(time.RFC3339, item["effective_at"].(string))
		if err1 != nil || err2 != nil || effective.Before(at) || !effective.Before(at.Add(time.Minute)) {
			t.Errorf("upcoming has %v", item)
		}
		if note, ok := item["note"].(string); ok && strings.HasPrefix(note, "excluded") {
			notes++
		}
	}
	if notes != 1 {
		t.Errorf("%d of upcoming are excluded: %v", notes, up)
	}
	s.call(0, 204, "DELETE", "/v1/jobs/j", "")
	s.call(0, 204, "DELETE", "/v1/calendars/holidays", "")
}

func TestSkipNextAndBackfill(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	s.call(0, 201, "PUT", "/v1/jobs/j", `{"schedule": "0 0 1 1 *", "target": {"pull": {}}, "overlap": "queue", "max_concurrent": 3}`)
	skipped, _ := s.call(0, 200, "POST", "/v1/jobs/j/skip-next", "", "Idempotency-Key", "k")
	again, header := s.call(1, 200, "POST", "/v1/jobs/j/skip-next", "", "Idempotency-Key", "k")
	if len(skipped["skips"].([]any)) != 1 || fmt.Sprint(skipped) != fmt.Sprint(again) || header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("skipped %v, again %v", skipped["skips"], again["skips"])
	}
	up, _ := s.call(0, 200, "GET", "/v1/jobs/j/upcoming?count=2", "")
	if items := up["items"].([]any); !strings.HasPrefix(items[0].(object)["note"].(string), "skip_next") || items[1].(object)["note"] != nil {
		t.Errorf("upcoming are %v", items)
	}
	s.refused(404, "job_not_found", "", "POST", "/v1/jobs/none/skip-next", "")
	s.call(0, 201, "PUT", "/v1/jobs/once", `{"schedule": {"at": "2999-01-01T00:00:00"}, "target": {"pull": {}}}`)
	s.call(0, 200, "POST", "/v1/jobs/once/skip-next", "")
	s.refused(409, "no_next_instant", "", "POST", "/v1/jobs/once/skip-next", "")

	s.call(0, 201, "PUT", "/v1/jobs/m", `{"schedule": "* * * * *", "target": {"pull": {}}}`)
	b, _ := s.call(0, 202, "POST", "/v1/jobs/m/backfill", `{"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T01:00:00Z"}`)
	if b["count"] != 60.0 || b["created"] != 60.0 || b["job"] != "m" {
		t.Errorf("backfill says %v", b)
	}
	runs, _ := s.call(0, 200, "GET", "/v1/runs?job=m&from=2026-01-01T00:00:00Z&to=2026-01-01T01:00:00Z&limit=100", "")
	if items := runs["items"].([]any); len(items) != 60 || items[0].(object)["trigger"] != "backfill" {
		t.Errorf("%d runs are listed", len(items))
	}
	s.refused(422, "validation_failed", "body.to", "POST", "/v1/jobs/m/backfill", `{"from": "2026-01-01T00:00:00Z", "to": "2026-02-01T00:00:00Z"}`)
	s.refused(422, "validation_failed", "body.to", "POST", "/v1/jobs/m/backfill", `{"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"}`)
	s.refused(422, "validation_failed", "body", "POST", "/v1/jobs/m/backfill", `{"to": "2026-01-01T00:00:00Z"}`)
	s.call(0, 400, "POST", "/v1/jobs/m/backfill", "")
}
