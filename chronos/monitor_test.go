package chronos

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/chronos/alert"
)

// every is a monitor's spec with one rule for everything.
func every(interval, grace time.Duration) MonitorSpec {
	return MonitorSpec{
		Schedule: Timing{Every: interval}, Timezone: "UTC", Grace: grace,
		Alerts: []alert.Rule{{On: everything, URL: "http://127.0.0.1:9/"}},
	}
}

func (w *world) monitor(name string, spec MonitorSpec) Monitor {
	w.t.Helper()
	w.watch() // since the database was made nobody was there
	put, _, err := w.store.PutMonitor(w.t.Context(), me, name, spec)
	if err != nil {
		w.t.Fatal(err)
	}
	return put.Monitor
}

func (w *world) checkIn(name string, kind MonitorEventKind) Monitor {
	w.t.Helper()
	m, _, err := w.store.CheckIn(w.t.Context(), me, name, kind, "")
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

// age moves all that a monitor waits for into the past.
func (w *world) age(by string) {
	w.t.Helper()
	w.Exec(w.t, `UPDATE chronos.monitors SET anchor = anchor - $1::interval, expected_at = expected_at - $1::interval, deadline = deadline - $1::interval,
		started_at = started_at - $1::interval, last_at = last_at - $1::interval`, by)
	w.Exec(w.t, `UPDATE chronos.monitor_outages SET began_at = began_at - $1::interval, ended_at = ended_at - $1::interval`, by)
}

func (w *world) watch() {
	w.t.Helper()
	for more := true; more; {
		var err error
		if more, err = w.store.WatchMonitors(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) wantMonitor(name string, state MonitorState) Monitor {
	w.t.Helper()
	m, err := w.store.GetMonitor(w.t.Context(), me.Tenant, name)
	if err != nil {
		w.t.Fatal(err)
	}
	if m.State != state {
		w.t.Errorf("%s is %s, want %s", name, m.State, state)
	}
	return m
}

func (w *world) wantEvents(name, want string) {
	w.t.Helper()
	events, err := w.store.ListMonitorEvents(w.t.Context(), me.Tenant, name, 0, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	var got []string
	for i := range events {
		got = append(got, string(events[len(events)-1-i].Kind))
	}
	if strings.Join(got, " ") != want {
		w.t.Errorf("events of %s: %s, want %s", name, strings.Join(got, " "), want)
	}
}

// Silence is told once however many look, and the next check-in says that it is over.
func TestSilenceIsToldOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.monitor("backup", every(time.Hour, 5*time.Minute))
	w.wantMonitor("backup", MonitorNew)
	w.checkIn("backup", CheckInPing)
	w.wantMonitor("backup", MonitorUp)
	w.age("62 min")
	w.watch()
	w.wantMonitor("backup", MonitorLate) // there is grace left
	w.wantNews("")
	w.age("4 min")
	other := w.service(Config{}).store
	var racers sync.WaitGroup
	for i := range 8 {
		racers.Go(func() {
			s := []*Store{w.store, other}[i%2]
			if _, err := s.WatchMonitors(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	racers.Wait()
	m := w.wantMonitor("backup", MonitorDown)
	if m.Deadline != nil || m.ExpectedAt == nil {
		t.Errorf("a silence that was told is awaited still: %+v", m)
	}
	w.wantNews("missed")
	w.age("3 h")
	w.watch()
	w.wantNews("missed")
	if m = w.checkIn("backup", CheckInPing); m.State != MonitorUp || m.Since != nil {
		t.Errorf("%+v", m)
	}
	w.wantNews("missed recovered")
	w.wantEvents("backup", "ping missed ping")
}

// One that never checked in is missed too.
func TestAMonitorIsArmedWhenItIsMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.monitor("backup", every(time.Hour, 5*time.Minute))
	w.age("66 min")
	w.watch()
	w.wantMonitor("backup", MonitorDown)
	w.wantNews("missed")
}

// A check-in and who looks for it meet in either order, and never both count.
func TestACheckInRacesItsDeadline(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 10 {
		w.monitor("backup", every(time.Hour, 5*time.Minute))
		w.age("66 min")
		var racers sync.WaitGroup
		racers.Go(func() { w.checkIn("backup", CheckInPing) })
		racers.Go(w.watch)
		racers.Wait()
		w.wantMonitor("backup", MonitorUp)
		if got := w.news(); got != "" && got != "missed recovered" {
			t.Errorf("alerts: %s", got)
		}
		w.Exec(t, `DELETE FROM chronos.alerts`)
		w.Exec(t, `DELETE FROM chronos.monitors`)
	}
}

func TestARunThatDoesNotEndIsLateThenMissed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.monitor("backup", every(time.Hour, 5*time.Minute))
	w.checkIn("backup", CheckInStart)
	w.wantMonitor("backup", MonitorRunning)
	w.age("4 min")
	w.watch()
	w.wantNews("")
	w.age("2 min")
	w.watch()
	w.watch()
	w.wantMonitor("backup", MonitorLate)
	w.wantNews("late")
	if m := w.checkIn("backup", CheckInPing); m.Took < 6*time.Minute || m.StartedAt != nil {
		t.Errorf("it took %v", m.Took)
	}
	w.wantNews("late recovered")
	w.checkIn("backup", CheckInStart)
	w.age("6 min")
	w.watch()
	w.age("60 min")
	w.watch()
	w.wantMonitor("backup", MonitorDown)
	w.wantNews("late recovered late missed")
	w.wantEvents("backup", "start late ping start late missed")
}

func TestAFailureIsToldAndEndsWithAPing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.monitor("backup", every(time.Hour, 5*time.Minute))
	for range 2 {
		m, _, err := w.store.CheckIn(t.Context(), me, "backup", CheckInFail, "disk full")
		if err != nil || m.State != MonitorDown {
			t.Fatal(m, err)
		}
	}
	w.wantNews("failed")
	var message string
	w.Scan(t, `SELECT payload::json->'data'->>'message' FROM chronos.alerts`, nil, &message)
	if message != "disk full" {
		t.Errorf("told %q", message)
	}
	w.checkIn("backup", CheckInPing)
	w.wantNews("failed recovered")
}

// Check-ins that nobody could receive aren't missed, but unknown, and the next instant counts.
func TestAnOutageOfChronosIsNoMissedCheckIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.monitor("within", every(time.Hour, 5*time.Minute))
	w.monitor("running", every(time.Hour, 5*time.Minute))
	w.checkIn("within", CheckInPing)
	w.age("58 min")
	w.checkIn("running", CheckInStart)
	w.watch()
	// Nobody was there for 8 minutes, in which both deadlines passed.
	w.age("8 min")
	w.Exec(t, `UPDATE chronos.monitor_watch SET seen_at = seen_at - interval '8 min'`)
	w.watch()
	w.wantNews("")
	m := w.wantMonitor("within", MonitorUnknownState)
	if m.Deadline == nil || !m.Deadline.After(time.Now().Add(30*time.Minute)) {
		t.Errorf("what is awaited next: %v", m.Deadline)
	}
	w.wantMonitor("running", MonitorUnknownState)
	w.wantEvents("within", "ping unknown")
	w.wantEvents("running", "start unknown")
	w.age("66 min")
	w.watch()
	w.wantMonitor("within", MonitorDown)
	w.wantNews("missed missed")
}

// An outage that is over when the deadline comes may have swallowed the check-in all the same; one that was over before it
// was awaited has not.
func TestAnOutageWithinTheGraceLeavesItUnknown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.monitor("backup", every(time.Hour, 10*time.Minute))
	w.checkIn("backup", CheckInPing)
	w.age("71 min") // awaited for the last eleven minutes
	w.Exec(t, `INSERT INTO chronos.monitor_outages SELECT now - interval '40 min', now - interval '15 min' FROM clock_timestamp() now`)
	w.watch()
	w.wantNews("missed")
	w.checkIn("backup", CheckInPing)
	w.age("71 min")
	w.Exec(t, `INSERT INTO chronos.monitor_outages SELECT now - interval '9 min', now - interval '8 min' FROM clock_timestamp() now`)
	w.watch()
	w.wantNews("missed recovered")
	w.wantEvents("backup", "ping missed ping unknown")
}

// A replica that was frozen between saying that it is there and looking must not judge by what it believes.
func TestASleeperDoesNotJudge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.monitor("backup", every(time.Hour, 5*time.Minute))
	w.age("66 min")
	tx, err := w.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), `UPDATE chronos.monitor_watch SET seen_at = clock_timestamp() - interval '1 min'`); err != nil {
		t.Fatal(err)
	}
	tag, err := tx.Exec(t.Context(), overdueSQL, overdueBatch, blind)
	if err != nil || tag.RowsAffected() != 0 {
		t.Errorf("%d monitors to judge, %v", tag.RowsAffected(), err)
	}
}

// The events of a monitor are bounded, and the newest are kept.
func TestMonitorEventsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.monitor("backup", every(time.Hour, 5*time.Minute))
	for range eventsKept + 20 {
		w.checkIn("backup", CheckInPing)
	}
	events, err := w.store.ListMonitorEvents(t.Context(), me.Tenant, "backup", 0, 1000)
	if err != nil || len(events) != eventsKept || events[0].N != eventsKept+20 || events[eventsKept-1].N != 21 {
		t.Errorf("%d events, %v", len(events), err)
	}
}

func TestPuttingAMonitor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := every(time.Hour, 5*time.Minute)
	first := w.monitor("backup", spec)
	if again := w.monitor("backup", spec); !again.UpdatedAt.Equal(first.UpdatedAt) || !again.Deadline.Equal(*first.Deadline) {
		t.Error("the same monitor again changed something")
	}
	w.checkIn("backup", CheckInFail)
	w.age("66 min")
	spec.Schedule = Timing{Expression: "30 2 * * *"}
	spec.Timezone = "Europe/Berlin"
	put, _, err := w.store.PutMonitor(t.Context(), me, "backup", spec)
	if err != nil {
		t.Fatal(err)
	}
	m := put.Monitor
	if m.State != MonitorDown || !m.ExpectedAt.After(time.Now()) || m.Deadline.Sub(*m.ExpectedAt) != spec.Grace {
		t.Errorf("%+v", m)
	}
	if err := w.store.DeleteMonitor(t.Context(), me, "backup"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.store.CheckIn(t.Context(), me, "backup", CheckInPing, ""); !errors.Is(err, ErrMonitorNotFound) {
		t.Errorf("a check-in of a deleted monitor: %v", err)
	}
	if a, err := w.store.ListAlerts(t.Context(), me.Tenant, AlertFilter{Monitor: "backup", Limit: 10}); err != nil || len(a) != 1 {
		t.Errorf("%d alerts are left, %v", len(a), err)
	}
}
