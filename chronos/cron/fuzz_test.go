package cron_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/chronos/cron"
)

// seedExpressions are those of the vector files.
func seedExpressions(f *testing.F) (list []string) {
	f.Helper()
	files, _ := filepath.Glob("testdata/vectors/*.txt")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if expr, ok := strings.CutPrefix(line, "schedule"); ok {
				list = append(list, strings.TrimSpace(expr))
			}
		}
	}
	return append(list, strings.Repeat(",", 10_000), "\x00 * * * *", "* * * * *\n", "٣ * * * *", "*\u00a0* * * *")
}

func FuzzParse(f *testing.F) {
	for _, expr := range seedExpressions(f) {
		f.Add(expr, "job", int64(1_780_000_000))
	}
	f.Fuzz(func(t *testing.T, expr, seed string, anchor int64) {
		o := cron.Options{Seed: seed, Anchor: time.Unix(anchor, 0)}
		s, err := cron.Parse(expr, o)
		if err != nil {
			var e *cron.Error
			if !errors.As(err, &e) || e.Field == "" || e.Reason == "" || len(e.Value) > 64 {
				t.Fatalf("%#v is no refusal with field and reason", err)
			}
			if s != (cron.Schedule{}) {
				t.Fatal("a schedule and an error")
			}
			return
		}
		if len(expr) > 256 {
			t.Fatal("longer than 256 bytes")
		}
		if s.Describe() == "" {
			t.Fatal("no description")
		}
		for _, w := range s.Lint() {
			if w.Code == "" || w.Message == "" {
				t.Fatalf("empty warning %v", w)
			}
		}
		again, err := cron.Parse(s.String(), o)
		if err != nil || again.Describe() != s.Describe() {
			t.Fatalf("%q parses, but not as it is written, %q: %v", expr, s, err)
		}
	})
}

func FuzzNext(f *testing.F) {
	for i, expr := range seedExpressions(f) {
		f.Add(expr, uint8(i), uint8(i), int64(1_774_746_000+i*3600), int64(i))
	}
	zones := loadJumpyZones(f)
	f.Fuzz(func(t *testing.T, expr string, zone, policies uint8, sec, nsec int64) {
		o := cron.Options{Location: zones[int(zone)%len(zones)].loc, Anchor: time.Unix(0, 0)}
		if policies&1 != 0 {
			o.Gap = cron.GapSkip
		}
		if policies&2 != 0 {
			o.Overlap = cron.OverlapTwice
		}
		if policies&4 != 0 {
			o.DayMatch = cron.DayAll
		}
		s, err := cron.Parse(expr, o)
		if err != nil {
			return
		}
		const years = 12_000 * 365 * 24 * 60 * 60 // well beyond what counts, on either side
		at := time.Unix(sec%years, nsec%1_000_000_000)
		next, ok := s.Next(at)
		if !ok {
			if next, ok = s.Next(next); ok {
				checkOrder(t, s, next)
			}
			return
		}
		if !next.After(at) {
			t.Fatalf("Next(%v) = %v", at, next)
		}
		if y := next.Year(); y < 1 || y > 9999 {
			t.Fatalf("Next(%v) = %v", at, next)
		}
		checkOrder(t, s, next)
		if prev, ok := s.Prev(next); ok && prev.After(at) {
			t.Fatalf("Next(%v) = %v, but %v lies between", at, next, prev)
		}
	})
}

// checkOrder checks the neighbours of an instant of the schedule.
func checkOrder(t *testing.T, s cron.Schedule, at time.Time) {
	t.Helper()
	s.Note(at)
	// No clock shows a time in a gap: the wall time leads back to an instant
	// that shows it.
	y, m, d := at.Date()
	if back := time.Date(y, m, d, at.Hour(), at.Minute(), at.Second(), at.Nanosecond(), at.Location()); back.Format(time.DateTime) != at.Format(time.DateTime) {
		t.Fatalf("%v is in a gap", at)
	}
	if next, ok := s.Next(at.Add(-1)); !ok || !next.Equal(at) {
		t.Fatalf("%v is an instant, but Next just before it is %v", at, next)
	}
	if prev, ok := s.Prev(at.Add(1)); !ok || !prev.Equal(at) {
		t.Fatalf("%v is an instant, but Prev just after it is %v", at, prev)
	}
	if next, ok := s.Next(at); ok {
		if prev, ok := s.Prev(next); !ok || !prev.Equal(at) {
			t.Fatalf("after %v comes %v, but before that %v", at, next, prev)
		}
	}
}
