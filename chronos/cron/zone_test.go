package cron

import (
	"math/rand/v2"
	"sort"
	"testing"
	"time"
)

// TestEveryZoneLoads also shows that no zone has jumps closer to each other
// than maxShift, or larger.
func TestEveryZoneLoads(t *testing.T) {
	t.Parallel()
	if len(zoneFiles()) < 500 {
		t.Errorf("%d zones", len(zoneFiles()))
	}
	from, to := time.Date(1840, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), time.Date(2110, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	for name := range zoneFiles() {
		loc, err := LoadLocation(name)
		if err != nil || loc.String() != name {
			t.Fatalf("%s: %v, %v", name, loc, err)
		}
		if again, _ := LoadLocation(name); again != loc {
			t.Errorf("%s is loaded anew", name)
		}
		last := from - 10*maxShift
		for u := from; u < to; {
			s := stretchAt(loc, u)
			if s.end <= u {
				t.Fatalf("%s: the stretch around %d ends at %d", name, u, s.end)
			}
			u = s.end
			jump := offsetAt(loc, u) - s.offset
			if jump == 0 {
				continue
			}
			if u-last <= maxShift || jump > maxShift || -jump > maxShift {
				t.Errorf("%s: a jump by %d seconds at %d, %d after the last", name, jump, u, u-last)
			}
			last = u
		}
	}
}

// TestStretchesAreSteady looks into random stretches, in zones whose bounds
// time.Time.ZoneBounds gets wrong and in others: the offset is the same
// throughout, and the start is one.
func TestStretchesAreSteady(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	zones := []string{"Africa/Cairo", "America/Ciudad_Juarez", "America/Indiana/Winamac", "America/Metlakatla", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Gaza"}
	sort.Strings(zones)
	for _, name := range zones {
		loc, err := LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		for range 3000 {
			u := time.Date(1990+random.IntN(60), 1, 1, 0, 0, random.IntN(366*24*60*60), 0, time.UTC).Unix()
			s := stretchAt(loc, u)
			start := startOf(loc, s, u)
			if start > u || u >= s.end {
				t.Fatalf("%s: the stretch around %d is %d to %d", name, u, start, s.end)
			}
			for _, at := range []instant{start, s.end - 1, start + random.Int64N(s.end-start)} {
				if offsetAt(loc, at) != s.offset {
					t.Fatalf("%s: the stretch %d to %d around %d has another offset at %d", name, start, s.end, u, at)
				}
			}
		}
	}
}

// TestJumpsThatZoneBoundsMisses: where time.Time.ZoneBounds is wrong, no run
// is hidden and none comes twice.
func TestJumpsThatZoneBoundsMisses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ zone, expr, before, run, after string }{
		// The last day of a leap year, where it gives an end that is past.
		{"Africa/Cairo", "30 2 31 12 *", "2024-12-31T00:15:00Z", "2024-12-31T00:30:00Z", "2024-12-31T00:45:00Z"},
		{"Europe/Berlin", "30 2 31 12 *", "2028-12-31T00:00:00Z", "2028-12-31T01:30:00Z", "2028-12-31T02:00:00Z"},
		// A jump that the stretch after it claims to begin before: 23:30 comes
		// twice, and the second pass doesn't count.
		{"America/Ciudad_Juarez", "30 23 29 11 *", "2022-11-30T05:00:00Z", "2022-11-30T05:30:00Z", "2022-11-30T07:00:00Z"},
	} {
		loc, err := LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Parse(c.expr, Options{Location: loc})
		if err != nil {
			t.Fatal(err)
		}
		before, _ := time.Parse(time.RFC3339, c.before)
		run, _ := time.Parse(time.RFC3339, c.run)
		after, _ := time.Parse(time.RFC3339, c.after)
		if next, ok := s.Next(before); !ok || next.UTC().Format(time.RFC3339) != c.run {
			t.Errorf("%s in %s: after %s comes %v, want %s", c.expr, c.zone, c.before, next, c.run)
		}
		if next, ok := s.Next(run); !ok || next.Sub(run) < 24*time.Hour {
			t.Errorf("%s in %s: after %s comes %v, another run of the same day", c.expr, c.zone, c.run, next)
		}
		if prev, ok := s.Prev(after); !ok || prev.UTC().Format(time.RFC3339) != c.run {
			t.Errorf("%s in %s: before %s came %v, want %s", c.expr, c.zone, c.after, prev, c.run)
		}
	}
}
