package web_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/chronos"
	"holdfast/chronos/alert"
)

func (y *yard) monitor(name string, grace time.Duration) {
	y.Helper()
	_, _, err := y.store.PutMonitor(y.Context(), y.caller, name, chronos.MonitorSpec{
		Schedule: chronos.Timing{Expression: "30 2 * * *"}, Timezone: "Europe/Berlin", Grace: grace,
		Alerts: []alert.Rule{{On: []alert.Kind{alert.Failed, alert.Recovered}, URL: "https://example.com/hook?<b>"}},
	})
	if err != nil {
		y.Fatal(err)
	}
}

func TestMonitorPages(t *testing.T) {
	t.Parallel()
	y := newYard(t, false)
	y.says("/monitors", "No monitor yet", "curl -X PUT "+y.url+"/v1/monitors/backup", "curl -X POST")
	y.monitor("backup", 15*time.Minute)
	y.says("/monitors", "backup", "At 02:30 every day (Europe/Berlin)", "new", "none yet", "in ")
	y.says("/monitors/backup", "backup", "new", "30 2 * * *", "Grace", "15m", "Tells", "failed, recovered → https://example.com/hook?<b>",
		"Nothing has been told", "It hasn’t checked in yet", "/v1/monitors/backup/ping")
	for _, kind := range []chronos.MonitorEventKind{chronos.CheckInStart, chronos.CheckInFail} {
		if _, _, err := y.store.CheckIn(t.Context(), y.caller, "backup", kind, evil); err != nil {
			t.Fatal(err)
		}
	}
	y.says("/monitors", "backup", "down", "since", "now", " ms")
	y.says("/monitors/backup", "down", "Wrong since", "Alerts", "failed", "waits", "https://example.com/hook?<b>", "Check-ins", "fail", " ms", "start")
	y.escaped("/monitors/backup")
	if page, _ := y.get(http.StatusOK, "/"); !strings.Contains(page, `<a href="/monitors">Monitors</a>`) {
		t.Error("no way to the monitors")
	}
	y.get(http.StatusNotFound, "/monitors/other")
	y.get(http.StatusNotFound, "/monitors/a/b")
}

func TestAJobsPageShowsItsAlerts(t *testing.T) {
	t.Parallel()
	y := newYard(t, false)
	y.put("leap", func(s *chronos.Spec) {
		s.Alerts = []alert.Rule{{On: []alert.Kind{alert.Failed}, URL: "https://example.com/hook", After: time.Second}, {On: []alert.Kind{alert.Failed}, URL: "https://example.com/now"}}
	})
	y.says("/jobs/leap", "Tells", "failed → https://example.com/hook (after 1s)", "Alerts", "Nothing has been told of it")
	y.run("leap", "disk full")
	y.db.Exec(t, `UPDATE chronos.alerts SET status = 'failed', finished_at = clock_timestamp(), attempts = 7, error = 'timeout: no answer'`)
	y.says("/jobs/leap", "Alerts", "failed", "given up", "7 attempts: timeout: no answer", "https://example.com/now", "Runs")
}
