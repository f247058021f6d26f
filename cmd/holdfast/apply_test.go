package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// folder writes files into a folder of their own, which apply may be given.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const (
	fileOfJobs = `name: nightly
schedule: 30 2 * * *
timezone: Europe/Berlin
exclude: [feasts]
target:
  webhook:
    url: https://example.com/hook
    body: {z: 1, a: [2, 3]}
---
name: often
schedule: {every: 90s}
target: {pull: {queue: q}}
`
	fileOfCalendars = `[{"kind": "calendar", "name": "feasts", "timezone": "Europe/Berlin", "dates": ["2026-12-25"]}]`
)

func TestApplyAFolder(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.call("PUT", "/v1/jobs/mine", `{"schedule": "@daily", "target": {"pull": {}}}`, nil)
	dir := folder(t, map[string]string{"jobs.yaml": fileOfJobs, "feasts.json": fileOfCalendars})
	apply := func(want int, args ...string) (stdout string) {
		t.Helper()
		code, stdout, stderr := holdfast(t, append([]string{"chronos", "apply", dir, "--set=team", "--url=http://127.0.0.1:1," + d.urls}, args...)...)
		if code != want {
			t.Errorf("%q: exit code %d, want %d: %s%s", args, code, want, stdout, stderr)
		}
		return stdout + stderr
	}
	if said := apply(3, "--dry-run"); !strings.Contains(said, "+ create job nightly  ("+filepath.Join(dir, "jobs.yaml")+":1)\n") || !strings.Contains(said, "3 to create, 0 to change, 0 to delete, 0 unchanged\n") {
		t.Errorf("the plan says %s", said)
	}
	apply(0)
	if said := apply(0, "--dry-run"); said != "0 to create, 0 to change, 0 to delete, 3 unchanged\n" {
		t.Errorf("again it says %s", said)
	}
	var before, after struct {
		Revision int
		NextAt   string `json:"next_at"`
	}
	d.call("GET", "/v1/jobs/often", "", &before)
	apply(0)
	if d.call("GET", "/v1/jobs/often", "", &after); before != after {
		t.Errorf("applied again, the job changed from %+v to %+v", before, after)
	}

	// A change by hand is drift, told by field; so is one in the files.
	d.call("PATCH", "/v1/jobs/often", `{"retry": {"max_attempts": 2}, "labels": {"by": "hand"}}`, nil)
	if said := apply(3, "--dry-run"); !strings.Contains(said, "~ change job often") || !strings.Contains(said, "    retry.max_attempts: 2 → 5\n    labels.by: \"hand\" → nothing\n") {
		t.Errorf("drift is told as %s", said)
	}
	if err := os.WriteFile(filepath.Join(dir, "jobs.yaml"), []byte(strings.Split(fileOfJobs, "---")[1]), 0o600); err != nil {
		t.Fatal(err)
	}
	if said := apply(0); !strings.Contains(said, "? left job nightly") {
		t.Errorf("what is left is told as %s", said)
	}
	d.call("GET", "/v1/jobs/nightly", "", nil)
	if said := apply(3, "--dry-run", "--prune"); !strings.Contains(said, "- prune job nightly") || strings.Contains(said, "mine") {
		t.Errorf("pruning is told as %s", said)
	}
	if said := apply(1, "--prune"); !strings.Contains(said, "Delete 1 job? [y/N]") || !strings.Contains(said, "not confirmed") {
		t.Errorf("unconfirmed, it says %s", said)
	}
	d.call("GET", "/v1/jobs/nightly", "", nil)
	var report struct {
		Applied bool
		Items   []struct{ Kind, Name, Action, File string }
		Summary map[string]int
	}
	if err := json.Unmarshal([]byte(apply(0, "--prune", "--yes", "--json")), &report); err != nil || !report.Applied || report.Summary["prune"] != 1 || len(report.Items) != 3 {
		t.Errorf("%v in %+v", err, report)
	}
	var names struct{ Items []struct{ Name string } }
	if d.call("GET", "/v1/jobs", "", &names); len(names.Items) != 2 || names.Items[0].Name != "mine" {
		t.Errorf("there are %v", names)
	}
}

func TestApplyRefusesBadFilesWithTheirPlaces(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	good := "name: good\nschedule: '@daily'\ntarget: {pull: {}}\n"
	for name, c := range map[string]struct {
		text, file string
		line       int
		want       string
	}{
		"a schedule":     {good + "---\nname: bad\ntarget: {pull: {}}\nschedule: '61 * * * *'\n", "jobs.yaml", 7, "schedule"},
		"unknown member": {good + "retry:\n  tries: 2\n", "jobs.yaml", 5, "retry.tries"},
		"a type":         {good + "priority: high\n", "jobs.yaml", 4, "priority"},
		"a number":       {good + "priority: 1.5\n", "jobs.yaml", 4, "priority"},
		"no calendar":    {good + "exclude:\n- none\n", "jobs.yaml", 5, "exclude[0]"},
		"a target":       {"name: x\nschedule: '@daily'\ntarget:\n  webhook:\n    url: http://169.254.169.254/\n", "jobs.yaml", 5, "target.webhook.url"},
		"no name":        {"schedule: '@daily'\ntarget: {pull: {}}\n", "jobs.yaml", 1, "name"},
		"syntax":         {"name: [", "jobs.yaml", 1, "did not find"},
	} {
		dir := folder(t, map[string]string{"other.yaml": "name: other\nschedule: '@daily'\ntarget: {pull: {}}\n", c.file: c.text})
		code, stdout, stderr := holdfast(t, "chronos", "apply", dir, "--url="+d.urls, "--json")
		var report struct {
			Applied bool
			Errors  []struct {
				File, Field, Reason string
				Line                int
			}
		}
		if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != 1 || report.Applied || len(report.Errors) != 1 {
			t.Errorf("%s: exit code %d, %v: %s%s", name, code, err, stdout, stderr)
			continue
		}
		if e := report.Errors[0]; e.File != filepath.Join(dir, c.file) || e.Line != c.line || !strings.Contains(e.Field+e.Reason, c.want) {
			t.Errorf("%s: it is placed at %+v, want line %d, %s", name, e, c.line, c.want)
		}
	}
	var list struct{ Items []any }
	if d.call("GET", "/v1/jobs", "", &list); len(list.Items) != 0 {
		t.Errorf("there are jobs: %v", list)
	}
	for want, args := range map[string][]string{
		"no job in": {t.TempDir()}, "no such file": {"nowhere"}, "--url": {".", "--url=shop"}, "--set": {folder(t, map[string]string{"a.yaml": good}), "--url=" + d.urls, "--set=a b"},
	} {
		if code, _, stderr := holdfast(t, append([]string{"chronos", "apply"}, args...)...); code == 0 || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit code %d: %s", args, code, stderr)
		}
	}
}

// What export writes is what apply finds unchanged, on this server, and makes the same jobs of on another.
func TestExportWritesWhatApplyReads(t *testing.T) {
	t.Parallel()
	d, other := newDesk(t), newDesk(t)
	d.call("PUT", "/v1/calendars/feasts", `{"dates": ["2026-12-25", {"from": "2026-12-30", "to": "2026-12-31"}]}`, nil)
	d.call("PUT", "/v1/monitors/backup", `{"schedule": {"every": "1h"}, "grace": "5m", "alerts": [{"on": ["missed", "recovered"], "url": "https://example.com/alert"}]}`, nil)
	d.call("POST", "/v1/monitors/backup/ping", "", nil)
	for _, body := range []string{
		`{"name": "plain", "schedule": "*/5 * * * *", "target": {"webhook": {"url": "https://example.com/"}}}`,
		`{"name": "full", "schedule": {"every": "90s"}, "timezone": "Europe/Berlin", "target": {"webhook": {"url": "https://example.com/?a=1&b=<2>", "method": "PUT", "headers": {"X-A": "yes"},
			"body": {"z": 1.50, "a": ["null", null, "2026-12-25", 1e3], "e": {}}, "timeout": "1m30s"}}, "retry": {"max_attempts": 1, "backoff": "1s", "max_backoff": "2s"}, "overlap": "queue",
			"catch_up": {"policy": "all", "window": "2h", "max": 3}, "jitter": "5s", "start_at": "2026-01-01T00:00:00Z", "end_at": "2099-01-01T00:00:00Z", "max_runs": 7, "exclude": ["feasts"],
			"priority": 3, "max_concurrent": 2, "dst_gap": "skip", "dst_overlap": "twice", "day_match": "all", "labels": {"team": "on", "n": "1"}, "alerts": [{"on": ["failed"], "url": "https://example.com/alert", "after": "2m"}], "paused": true}`,
		`{"name": "..", "schedule": {"at": "2099-12-24T18:00:00"}, "target": {"pull": {"queue": "q", "payload": "text: *"}}}`,
		`{"name": "__", "schedule": "@daily", "target": {"pull": {"queue": "default"}}, "catch_up": {"max": 11}}`,
	} {
		d.call("POST", "/v1/jobs", body, nil)
	}
	for _, format := range []string{"--json=false", "--json"} {
		dir := filepath.Join(t.TempDir(), "jobs")
		if code, _, stderr := holdfast(t, "chronos", "export", dir, "--url="+d.urls, format); code != 0 || !strings.Contains(stderr, "6 files") {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
		if code, stdout, stderr := holdfast(t, "chronos", "apply", dir, "--dry-run", "--url="+d.urls); code != 3 || strings.Count(stdout, "labels.holdfast.set: nothing") != 4 || strings.Count(stdout, " → ") != 4 {
			t.Errorf("exit code %d: %s%s", code, stdout, stderr)
		}
		if code, stdout, stderr := holdfast(t, "chronos", "apply", dir, "--url="+other.urls); code != 0 {
			t.Errorf("exit code %d: %s%s", code, stdout, stderr)
		}
	}
	_, one, _ := holdfast(t, "chronos", "export", "--url="+d.urls)
	_, two, _ := holdfast(t, "chronos", "export", "--url="+other.urls)
	if _, set, _ := holdfast(t, "chronos", "export", "--url="+other.urls, "--set=default"); set != strings.Replace(two, two[strings.Index(two, "name: backup"):strings.Index(two, "name: ..")], "", 1) {
		t.Errorf("exported of the set\n%s", set)
	}
	if one != two || !strings.HasPrefix(one, "name: feasts\ndates:\n") {
		t.Errorf("exported\n%s\nthen\n%s", one, two)
	}
	if code, _, stderr := holdfast(t, "chronos", "export", t.TempDir()+"/..", "--url="+d.urls); code != 1 || !strings.Contains(stderr, "isn't empty") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	// What the server can't read isn't written by halves.
	d.db.Exec(t, `UPDATE chronos.jobs SET spec = '{"schedule": 5}' WHERE name = 'full'`)
	if code, stdout, stderr := holdfast(t, "chronos", "export", "--url="+d.urls); code != 1 || strings.Contains(stdout, "name: full") || !strings.Contains(stdout, "name: plain") || !strings.Contains(stderr, "job full") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
}
