package cron_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"holdfast/chronos/cron"
)

// The faults that these tests are named after are described, under the same
// numbers, in the list of what has gone wrong in comparable systems.

func mustLoad(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := cron.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func mustParse(t testing.TB, expr string, o cron.Options) cron.Schedule {
	t.Helper()
	s, err := cron.Parse(expr, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func clocks(times []time.Time) (texts []string) {
	for _, at := range times {
		texts = append(texts, at.Format("02 15:04 -07"))
	}
	return texts
}

func TestPitfall18FallBackRunsOnceSpringForwardRunsAfterTheGap(t *testing.T) {
	t.Parallel()
	berlin := mustLoad(t, "Europe/Berlin")
	daily := "30 2 * * *"
	spring := [2]time.Time{time.Date(2026, 3, 28, 12, 0, 0, 0, berlin), time.Date(2026, 3, 30, 12, 0, 0, 0, berlin)}
	autumn := [2]time.Time{time.Date(2026, 10, 24, 12, 0, 0, 0, berlin), time.Date(2026, 10, 26, 12, 0, 0, 0, berlin)}
	for _, c := range []struct {
		name   string
		o      cron.Options
		window [2]time.Time
		want   []string
	}{
		{"at fall-back once", cron.Options{}, autumn, []string{"25 02:30 +02", "26 02:30 +01"}},
		{"at spring-forward after the gap", cron.Options{}, spring, []string{"29 03:00 +02", "30 02:30 +02"}},
		{"at fall-back twice, if chosen", cron.Options{Overlap: cron.OverlapTwice}, autumn, []string{"25 02:30 +02", "25 02:30 +01", "26 02:30 +01"}},
		{"at spring-forward not, if chosen", cron.Options{Gap: cron.GapSkip}, spring, []string{"30 02:30 +02"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Location = berlin
			got := clocks(slices.Collect(mustParse(t, daily, c.o).Between(c.window[0], c.window[1])))
			if !slices.Equal(got, c.want) {
				t.Errorf("runs %v, want %v", got, c.want)
			}
		})
	}

	// More frequent than hourly: one run every ten minutes, all the way through.
	for _, window := range [][2]time.Time{spring, autumn} {
		at := window[0]
		for at.Before(window[1]) {
			next, ok := mustParse(t, "*/10 * * * *", cron.Options{Location: berlin}).Next(at)
			if !ok || next.Sub(at) != 10*time.Minute {
				t.Fatalf("after %v comes %v, want ten minutes later", at, next)
			}
			at = next
		}
	}
}

func TestPitfall19ImpossibleDateIsRefused(t *testing.T) {
	t.Parallel()
	for _, expr := range []string{
		"0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 31W 6 *", "0 0 L-29 2 *",
		"0 0 1 * +MON#2", "0 0 0 29 2 * 2026", "0 0 0 29 2 * 2027-9999/2",
	} {
		_, err := cron.Parse(expr, cron.Options{})
		var e *cron.Error
		if !errors.Is(err, cron.ErrInvalidSchedule) || !errors.As(err, &e) || e.Field == "" || e.Reason == "" {
			t.Errorf("Parse(%q) = %v, want an *Error with field and reason", expr, err)
		}
	}
	// What does come, however rarely, is not.
	for expr, want := range map[string]int{"0 0 29 2 *": 2028, "0 0 29 2 +MON": 2044, "0 0 * 2 MON#5": 2044, "0 0 0 29 2 * 2400-2403": 2400} {
		next, ok := mustParse(t, expr, cron.Options{}).Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
		if !ok || next.Year() != want {
			t.Errorf("%q runs next at %v, want in %d", expr, next, want)
		}
	}
}

func TestPitfall20UnknownZoneIsAnErrorNeverUTC(t *testing.T) {
	// The machine's zone data must not matter, neither by what it lacks nor by
	// what it has.
	t.Setenv("ZONEINFO", t.TempDir())
	for _, name := range []string{"", "Local", "local", "Mars/Olympus", "europe/berlin", "Europe/Berlin ", "Europe", "/etc/localtime", "../UTC", "UTC+1", "CEST"} {
		loc, err := cron.LoadLocation(name)
		var e *cron.Error
		if loc != nil || !errors.Is(err, cron.ErrInvalidTimezone) || errors.Is(err, cron.ErrInvalidSchedule) || !errors.As(err, &e) || e.Field != "timezone" {
			t.Errorf("LoadLocation(%q) = %v, %v, want no zone and an *Error for timezone", name, loc, err)
		}
	}
	if _, err := cron.Parse("* * * * *", cron.Options{Location: time.Local}); !errors.Is(err, cron.ErrInvalidTimezone) {
		t.Errorf("Parse in time.Local: %v, want refused", err)
	}
	// The zone database is in the binary.
	loc, err := cron.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	if _, offset := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC).In(loc).Zone(); offset != 2*60*60 {
		t.Errorf("Berlin is %d seconds east in summer", offset)
	}
	if len(cron.ZoneDataVersion()) != len("2026c") {
		t.Errorf("zone data version %q", cron.ZoneDataVersion())
	}
}

func TestPitfall21PreviewIsWhatFiresAndSaysHowDaysCombine(t *testing.T) {
	t.Parallel()
	berlin := mustLoad(t, "Europe/Berlin")
	s := mustParse(t, "30 2 13 * FRI", cron.Options{Location: berlin})

	// A preview is Between, what fires is Next from wherever the planner stands.
	from, to := time.Date(2026, 1, 1, 0, 0, 0, 0, berlin), time.Date(2028, 1, 1, 0, 0, 0, 0, berlin)
	preview := slices.Collect(s.Between(from, to))
	var fired []time.Time
	for now := from; now.Before(to); now = now.Add(7 * time.Hour) {
		for at, ok := s.Next(now); ok && !at.After(now.Add(7*time.Hour)) && at.Before(to); at, ok = s.Next(at) {
			fired = append(fired, at)
		}
	}
	if !slices.EqualFunc(preview, fired, time.Time.Equal) {
		t.Errorf("the preview has %d instants, %d fired", len(preview), len(fired))
	}

	// Either day field is enough: said in the description and as a warning.
	if got, want := s.Describe(), "At 02:30 on day 13 of the month, and also on Friday (Europe/Berlin)"; got != want {
		t.Errorf("described as %q, want %q", got, want)
	}
	warned := func(s cron.Schedule) bool {
		return slices.ContainsFunc(s.Lint(), func(w cron.Warning) bool { return w.Code == cron.WarnDayMatch })
	}
	if !warned(s) {
		t.Errorf("no warning about the day fields: %v", s.Lint())
	}

	// AND is on offer, in the expression and as an option.
	for _, both := range []cron.Schedule{
		mustParse(t, "30 2 13 * +FRI", cron.Options{Location: berlin}),
		mustParse(t, "30 2 13 * FRI", cron.Options{Location: berlin, DayMatch: cron.DayAll}),
	} {
		for at := range both.Between(from, to) {
			if at.Day() != 13 || at.Weekday() != time.Friday {
				t.Errorf("%v runs on %v", both, at)
			}
		}
	}
}

func TestPitfall22JobsWithTheSameScheduleAreDifferentJobs(t *testing.T) {
	t.Parallel()
	// The same text gives schedules of their own, which H spreads by name.
	at := map[string]int{}
	for n := range 200 {
		s := mustParse(t, "H H * * *", cron.Options{Seed: fmt.Sprintf("job-%d", n)})
		next, _ := s.Next(time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC))
		at[next.Format("15:04")]++
	}
	if len(at) < 150 {
		t.Errorf("200 names share %d times of day", len(at))
	}
	if mustParse(t, "0 0 * * *", cron.Options{Seed: "a"}) == mustParse(t, "0 0 * * *", cron.Options{Seed: "b"}) {
		t.Error("two schedules are the same value")
	}
}
