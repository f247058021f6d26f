package cron_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/chronos/cron"
)

func TestZeroScheduleHasNoInstants(t *testing.T) {
	t.Parallel()
	var s cron.Schedule
	now := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	if at, ok := s.Next(now); ok {
		t.Errorf("Next = %v", at)
	}
	if at, ok := s.Prev(now); ok {
		t.Errorf("Prev = %v", at)
	}
	if s.Describe() != "Never" || s.String() != "" || s.Lint() != nil || s.Location() != time.UTC {
		t.Errorf("%q %q %v %v", s.Describe(), s, s.Lint(), s.Location())
	}
	if note, ok := s.Note(now); ok {
		t.Errorf("Note = %v", note)
	}
}

func TestNextIsStrictlyLaterAndPrevStrictlyEarlier(t *testing.T) {
	t.Parallel()
	s := mustParse(t, "0 12 * * *", cron.Options{})
	noon := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		at         time.Time
		prev, next time.Time
	}{
		{noon, noon.AddDate(0, 0, -1), noon.AddDate(0, 0, 1)},
		{noon.Add(-1), noon.AddDate(0, 0, -1), noon},
		{noon.Add(1), noon, noon.AddDate(0, 0, 1)},
		{noon.Add(-time.Second), noon.AddDate(0, 0, -1), noon},
	} {
		if next, ok := s.Next(c.at); !ok || !next.Equal(c.next) {
			t.Errorf("Next(%v) = %v, want %v", c.at, next, c.next)
		}
		if prev, ok := s.Prev(c.at); !ok || !prev.Equal(c.prev) {
			t.Errorf("Prev(%v) = %v, want %v", c.at, prev, c.prev)
		}
	}
}

func TestBetweenIsHalfOpen(t *testing.T) {
	t.Parallel()
	s := mustParse(t, "0 * * * *", cron.Options{})
	from := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	got := slices.Collect(s.Between(from, from.Add(2*time.Hour)))
	if want := []time.Time{from, from.Add(time.Hour)}; !equalTimes(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for range s.Between(from, from.AddDate(5000, 0, 0)) {
		break // stops when told to
	}
	for at := range s.Between(from, from) {
		t.Errorf("%v in an empty window", at)
	}
}

func TestTimeEndsWithTheYear9999(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"UTC", "Europe/Berlin", "Pacific/Kiritimati", "Pacific/Pago_Pago"} {
		loc := mustLoad(t, zone)
		for _, expr := range []string{"* * * * *", "0 0 * * *", "0 0 29 2 *", "0 0 1 1 *", "0 0 0 1 1 * 2026-2030", "@every 1h"} {
			s := mustParse(t, expr, cron.Options{Location: loc})
			for _, at := range []time.Time{
				time.Date(9999, 12, 31, 23, 59, 59, 0, loc), time.Date(12000, 1, 1, 0, 0, 0, 0, loc), time.Unix(1<<55, 0), time.Unix(1<<62, 0),
			} {
				if next, ok := s.Next(at); ok {
					t.Errorf("%s in %s: Next(%v) = %v", expr, zone, at, next)
				}
				if prev, ok := s.Prev(at); !ok || prev.Year() > 9999 || expr != "0 0 0 1 1 * 2026-2030" && prev.Year() < 9996 {
					t.Errorf("%s in %s: Prev(%v) = %v, %v", expr, zone, at, prev, ok)
				}
			}
			for _, at := range []time.Time{time.Date(1, 1, 1, 0, 0, 0, 0, loc), time.Date(-3000, 1, 1, 0, 0, 0, 0, loc), time.Unix(-1<<55, 0)} {
				if prev, ok := s.Prev(at); ok {
					t.Errorf("%s in %s: Prev(%v) = %v", expr, zone, at, prev)
				}
				if next, ok := s.Next(at); !ok || next.Year() < 1 {
					t.Errorf("%s in %s: Next(%v) = %v, %v", expr, zone, at, next, ok)
				}
			}
		}
	}
}

// TestPastYearIsJudgedByTheAnchor: a new schedule is refused if it is over, but
// that of an old job still parses.
func TestPastYearIsJudgedByTheAnchor(t *testing.T) {
	t.Parallel()
	expr := "0 0 0 1 1 * 2027"
	made, now := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC), time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	if _, err := cron.Parse(expr, cron.Options{Anchor: now}); err == nil {
		t.Error("made when it is over: not refused")
	}
	for _, anchor := range []time.Time{made, {}} {
		s := mustParse(t, expr, cron.Options{Anchor: anchor})
		if next, ok := s.Next(now); ok {
			t.Errorf("runs at %v after its last year", next)
		}
		if prev, ok := s.Prev(now); !ok || prev.Year() != 2027 {
			t.Errorf("ran last at %v", prev)
		}
	}
}

func TestNextAllocatesNothing(t *testing.T) {
	from := time.Date(2026, 6, 15, 12, 34, 56, 0, time.UTC)
	for _, zone := range []string{"UTC", "Europe/Berlin"} {
		for _, expr := range []string{"* * * * *", "30 2 * * *", "0 9-17 * * MON-FRI", "0 0 LW * *", "0 0 29 2 +MON", "@every 90s", "0 0 0 1 1 * 2026/4"} {
			s := mustParse(t, expr, cron.Options{Location: mustLoad(t, zone)})
			if n := testing.AllocsPerRun(100, func() { s.Next(from); s.Prev(from) }); n != 0 {
				t.Errorf("%s in %s: Next and Prev allocate %v times", expr, zone, n)
			}
		}
	}
}

func TestSchedulesAreSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var wg sync.WaitGroup
	counts := make([]int, 8)
	for i := range counts {
		wg.Go(func() {
			loc, err := cron.LoadLocation("America/Bogota") // by all at once
			if err != nil {
				t.Error(err)
				return
			}
			s, err := cron.Parse("0 */6 * * *", cron.Options{Location: loc})
			if err != nil {
				t.Error(err)
				return
			}
			for range s.Between(from, from.AddDate(1, 0, 0)) {
				counts[i]++
			}
		})
	}
	wg.Wait()
	if slices.Min(counts) != 4*365 || slices.Max(counts) != 4*365 {
		t.Errorf("counts %v", counts)
	}
}

// TestRefusalsStayShort: an error doesn't repeat ten kilobytes of nonsense.
func TestRefusalsStayShort(t *testing.T) {
	t.Parallel()
	for _, input := range []string{strings.Repeat(",", 10_000), strings.Repeat("1,", 127) + " *", strings.Repeat("x", 256)} {
		_, err := cron.Parse(input, cron.Options{})
		if err == nil || len(err.Error()) > 300 {
			t.Errorf("%d bytes: %v", len(input), err)
		}
		if _, err := cron.LoadLocation(input); err == nil || len(err.Error()) > 300 {
			t.Errorf("%d bytes as a zone: %v", len(input), err)
		}
		if _, err := cron.At(input, time.UTC); err == nil || len(err.Error()) > 300 {
			t.Errorf("%d bytes as an instant: %v", len(input), err)
		}
	}
}
