package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// imported is a crontab's answer: its items by line, and how many have which result.
func (s *site) imported(replica int, query, text string, header ...string) (map[int]object, object, http.Header) {
	s.Helper()
	answer, h := s.call(replica, http.StatusOK, "POST", "/v1/imports/crontab"+query, text, append(header, "Content-Type", "text/plain")...)
	items := map[int]object{}
	list, _ := answer["items"].([]any)
	for _, item := range list {
		item := item.(object)
		items[int(item["line"].(float64))] = item
	}
	return items, answer["summary"].(object), h
}

const sampleCrontab = `# nightly work
MAILTO=ops@example.com
GREETING="  hello  "
CRON_TZ=Europe/Berlin
30 2 * * *  /usr/bin/report --full%first%second
@reboot start
61 * * * * never
@daily rotate
`

func TestCrontabImport(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	results := func(items map[int]object) string {
		var b strings.Builder
		for n := range 20 {
			if item, ok := items[n]; ok {
				fmt.Fprintf(&b, "%d %v\n", n, item["result"])
			}
		}
		return b.String()
	}

	// A dry run says what would be, and nothing is.
	items, summary, _ := s.imported(0, "?dry_run=true", sampleCrontab)
	if got, want := results(items), "2 ignored\n3 applied\n4 applied\n5 would_create\n6 refused\n7 refused\n8 would_create\n"; got != want {
		t.Errorf("a dry run:\n%swant\n%s", got, want)
	}
	if summary["would_create"] != 2.0 || summary["refused"] != 2.0 {
		t.Errorf("summary %v", summary)
	}
	if list, _ := s.call(0, 200, "GET", "/v1/jobs", ""); len(list["items"].([]any)) != 0 {
		t.Fatalf("a dry run made %v", list["items"])
	}
	report := items[5]
	if report["schedule"] != "30 2 * * *" || report["timezone"] != "Europe/Berlin" || report["description"] != "At 02:30 every day (Europe/Berlin)" ||
		report["command"] != "/usr/bin/report --full" || report["next"] == nil || !strings.HasPrefix(report["name"].(string), "report-full-") {
		t.Errorf("the job to be: %v", report)
	}
	for line, part := range map[int]string{2: "mail", 6: "event", 7: "outside 0-59"} {
		if reason, _ := items[line]["reason"].(string); !strings.Contains(reason, part) {
			t.Errorf("line %d: reason %q", line, reason)
		}
	}
	if items[7]["field"] != "minute" {
		t.Errorf("line 7: field %v", items[7]["field"])
	}

	// The real one does just that.
	items, _, _ = s.imported(1, "", sampleCrontab)
	if got, want := results(items), "2 ignored\n3 applied\n4 applied\n5 created\n6 refused\n7 refused\n8 created\n"; got != want {
		t.Errorf("the import:\n%swant\n%s", got, want)
	}
	name := items[5]["name"].(string)
	if name != report["name"] || items[5]["next"] != report["next"] {
		t.Errorf("imported as %v, announced as %v", items[5], report)
	}
	job, _ := s.call(0, 200, "GET", "/v1/jobs/"+name, "")
	pull := job["target"].(object)["pull"].(object)
	payload := pull["payload"].(object)
	if job["schedule"] != "30 2 * * *" || job["timezone"] != "Europe/Berlin" || job["overlap"] != "allow" || job["labels"].(object)["source"] != "crontab" ||
		job["retry"].(object)["max_attempts"] != 1.0 || job["catch_up"].(object)["policy"] != "none" || pull["queue"] != "crontab" ||
		payload["command"] != "/usr/bin/report --full" || payload["stdin"] != "first\nsecond\n" || payload["env"].(object)["GREETING"] != "  hello  " {
		t.Errorf("the job: %v", job)
	}

	// Again it changes nothing; an edited line changes its job and what its owner set stays.
	s.call(0, 200, "PATCH", "/v1/jobs/"+name, `{"priority": 7, "overlap": "skip", "paused": true}`)
	items, _, _ = s.imported(0, "", sampleCrontab)
	if items[5]["result"] != "unchanged" || items[8]["result"] != "unchanged" {
		t.Errorf("again:\n%s", results(items))
	}
	edited := strings.Replace(sampleCrontab, "30 2 * * * ", "45 3 * * * ", 1)
	if items, _, _ = s.imported(0, "?dry_run=true", edited); items[5]["result"] != "would_update" {
		t.Errorf("edited, tried:\n%s", results(items))
	}
	if items, _, _ = s.imported(0, "?dry_run=false&queue=shell", edited); items[5]["result"] != "updated" || items[8]["result"] != "updated" {
		t.Errorf("edited:\n%s", results(items))
	}
	job, _ = s.call(0, 200, "GET", "/v1/jobs/"+name, "")
	if job["schedule"] != "45 3 * * *" || job["priority"] != 7.0 || job["overlap"] != "skip" || job["paused"] != true ||
		job["target"].(object)["pull"].(object)["queue"] != "shell" {
		t.Errorf("the edited job: %v", job)
	}
}

func TestCrontabOfTheSystem(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	items, _, _ := s.imported(0, "?system=true&timezone=Asia%2FKathmandu", "17 * * * * root run-parts /etc/cron.hourly\n")
	if items[1]["result"] != "created" || items[1]["user"] != "root" || items[1]["timezone"] != "Asia/Kathmandu" {
		t.Fatalf("%v", items[1])
	}
	name := items[1]["name"].(string)
	s.call(0, 202, "POST", "/v1/jobs/"+name+"/trigger", "")
	answer, _ := s.call(1, 200, "POST", "/v1/leases", `{"queue": "crontab", "max": 1}`)
	run := answer["runs"].([]any)[0].(object)
	payload := run["payload"].(object)
	if run["job"] != name || payload["command"] != "run-parts /etc/cron.hourly" || payload["user"] != "root" {
		t.Errorf("a worker gets %v", run)
	}
	// A trigger's own payload comes first.
	s.call(0, 202, "POST", "/v1/jobs/"+name+"/trigger", `{"payload": {"only": "once"}}`)
	answer, _ = s.call(1, 200, "POST", "/v1/leases", `{"queue": "crontab", "max": 1}`)
	if run := answer["runs"].([]any)[0].(object); run["payload"].(object)["only"] != "once" {
		t.Errorf("a worker gets %v", run)
	}
}

// TestCrontabImportIsCarriedOutOnce: with a key, all of it or nothing, and once; a dry run doesn't
// use the key up.
func TestCrontabImportIsCarriedOutOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	key := []string{"Idempotency-Key", "import-1"}
	s.imported(0, "?dry_run=true", sampleCrontab, key...)
	first, _, h := s.imported(0, "", sampleCrontab, key...)
	if first[5]["result"] != "created" || h.Get("Idempotency-Replayed") != "" {
		t.Errorf("the first: %v, replayed %q", first[5], h.Get("Idempotency-Replayed"))
	}
	name := first[5]["name"].(string)
	s.call(0, 204, "DELETE", "/v1/jobs/"+name, "")
	again, _, h := s.imported(1, "", sampleCrontab, key...)
	if fmt.Sprint(again) != fmt.Sprint(first) || h.Get("Idempotency-Replayed") != "true" {
		t.Errorf("again: %v, replayed %q, want the first answer", again, h.Get("Idempotency-Replayed"))
	}
	s.call(0, 404, "GET", "/v1/jobs/"+name, "")
	s.refused(422, "idempotency_key_reused", "", "POST", "/v1/imports/crontab", sampleCrontab+"0 1 * * * more\n", key...)
}

func TestCrontabRefusals(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	const path = "/v1/imports/crontab"
	s.refused(400, "body_required", "", "POST", path, "")
	s.refused(400, "body_required", "", "POST", path, " \n\n")
	s.refused(422, "invalid_timezone", "query.timezone", "POST", path+"?timezone=Mars/Olympus", sampleCrontab)
	s.refused(422, "validation_failed", "query.dry_run", "POST", path+"?dry_run=yes", sampleCrontab)
	s.refused(422, "validation_failed", "query.queue", "POST", path+"?queue=a+b", sampleCrontab)
	s.refused(422, "validation_failed", "query.sytem", "POST", path+"?sytem=true", sampleCrontab)
	s.refused(422, "validation_failed", "body", "POST", path, strings.Repeat("* * * * * x\n", 1001))
	s.refused(413, "body_too_large", "", "POST", path, strings.Repeat("#", 4<<20+1))
	if list, _ := s.call(0, 200, "GET", "/v1/jobs", ""); len(list["items"].([]any)) != 0 {
		t.Errorf("refused imports made %v", list["items"])
	}
	// Longer than a JSON body may be, and as many jobs as there may be.
	var long strings.Builder
	long.WriteString(strings.Repeat("# "+strings.Repeat("x", 1000)+"\n", 2000))
	for n := range 1000 {
		fmt.Fprintf(&long, "%d %d * * * work --shard %d\n", n%60, n%24, n)
	}
	if _, summary, _ := s.imported(0, "", long.String()); summary["created"] != 1000.0 {
		t.Errorf("a long crontab: %v", summary)
	}
	// Bytes that JSON can't carry are told without being repeated.
	items, _, _ := s.imported(0, "", "0 1 * * * good\n\xff\xfe * * * * bad\n")
	if items[1]["result"] != "created" || items[2]["result"] != "refused" {
		t.Errorf("%v", items)
	}
}

// TestCrontabNeedsWrite: importing makes jobs, even when it only tries.
func TestCrontabNeedsWrite(t *testing.T) {
	t.Parallel()
	s := newSite(t, true)
	s.refused(401, "missing_api_key", "", "POST", "/v1/imports/crontab?dry_run=true", sampleCrontab)
}

// TestPreviewUpcomingAndRunsAgree: what is previewed for a line is what its job is shown to have
// coming, and what is planned.
func TestPreviewUpcomingAndRunsAgree(t *testing.T) {
	t.Parallel()
	s := newSite(t, false)
	// Near enough that the planner makes the runs at once.
	s.call(0, 201, "PUT", "/v1/jobs/often", `{"schedule": "* * * * * *", "timezone": "Asia/Kathmandu", "target": {"pull": {}}}`)
	upcoming, _ := s.call(0, 200, "GET", "/v1/jobs/often/upcoming?count=50", "")
	first := upcoming["items"].([]any)[0].(object)["at"].(string)
	at, err := time.Parse(time.RFC3339, first)
	if err != nil {
		t.Fatal(err)
	}
	preview, _ := s.call(1, 200, "POST", "/v1/schedules/preview", fmt.Sprintf(
		`{"schedule": "* * * * * *", "timezone": "Asia/Kathmandu", "from": %q, "count": 50}`, at.Add(-time.Millisecond).Format(time.RFC3339Nano)))
	var shown, coming []string
	for i, item := range preview["times"].([]any) {
		shown = append(shown, item.(object)["at"].(string))
		coming = append(coming, upcoming["items"].([]any)[i].(object)["at"].(string))
	}
	if fmt.Sprint(shown) != fmt.Sprint(coming) || len(shown) != 50 {
		t.Errorf("previewed %v\ncoming    %v", shown, coming)
	}
	runs, _ := s.call(0, 200, "GET", "/v1/runs?job=often&limit=500&to=2100-01-01T00:00:00Z&from="+first, "")
	planned := map[string]bool{}
	for _, r := range runs["items"].([]any) {
		planned[r.(object)["scheduled_for"].(string)] = true
	}
	if len(planned) < 3 {
		t.Fatalf("planned %v of %v", planned, runs)
	}
	for _, instant := range shown[:len(planned)] {
		if !planned[instant] {
			t.Errorf("%s was previewed and isn't planned: %v", instant, planned)
		}
	}
}
