package cron_test

import (
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/chronos/cron"
)

var (
	expressions = flag.Int("expressions", 1000, "how many random expressions to compare with the oracle")
	seed        = flag.Uint64("seed", 4, "of the random expressions")
)

// TestDifferential compares random expressions, in every zone, with the oracle:
// all instants of a few days (for expressions with seconds, of a few hours),
// mostly around a jump of the zone's clock, forwards and backwards.
func TestDifferential(t *testing.T) {
	t.Parallel()
	zones := loadJumpyZones(t)
	g := &generator{Rand: rand.New(rand.NewPCG(*seed, 0))}
	var compared, withInstants, instants, atJumps, hashed, impossible int
	perZone := map[string]int{}
	for range *expressions {
		zone := zones[g.IntN(len(zones))]
		near := time.Date(1975+g.IntN(70), 1, 1, 0, g.IntN(365*24*60), 0, 0, time.UTC).In(zone.loc)
		atJump := len(zone.jumps) > 0 && !g.oneIn(4)
		if atJump {
			near = zone.jumps[g.IntN(len(zone.jumps))]
		}
		precise := g.oneIn(5)
		from, to := near.Add(-36*time.Hour), near.Add(48*time.Hour)
		if precise {
			from, to = near.Add(-90*time.Minute), near.Add(150*time.Minute)
		}
		g.near = near.Add(-time.Duration(g.IntN(2)) * time.Second)
		expr, o := g.expression(precise), g.options(zone.loc)

		s, err := cron.Parse(expr, o)
		if err != nil {
			if runsOnSomeDate(newOracle(expr, o), g.near.Year()) {
				t.Fatalf("Parse(%q): %v, but it runs", expr, err)
			}
			impossible++
			continue
		}
		want := newOracle(expr, o).between(from, to)
		if got := slices.Collect(s.Between(from, to)); !equalTimes(got, want) {
			t.Fatalf("%q %+v\nfrom %v to %v\n got %v\nwant %v", expr, o, from, to, got, want)
		}
		if got := backwards(s, from, to); !equalTimes(got, want) {
			t.Fatalf("%q %+v, backwards\nfrom %v to %v\n got %v\nwant %v", expr, o, from, to, got, want)
		}
		checkNextAndPrev(t, g, s, from, to, want)
		compared++
		perZone[zone.loc.String()]++
		if hasH(expr) {
			hashed++
		}
		instants += len(want)
		if len(want) > 0 {
			withInstants++
			if atJump {
				atJumps++
			}
		}
	}
	t.Logf("%d expressions compared in %d zones (%d or more in each), no difference: %d of them run in their window (%d at a jump), %d have an H, %d instants; %d more were refused as impossible, rightly",
		compared, len(perZone), slices.Min(slices.Collect(maps.Values(perZone))), withInstants, atJumps, hashed, instants, impossible)
}

// TestDifferentialDates compares the dates of random expressions with the
// oracle's over 28 years, in UTC.
func TestDifferentialDates(t *testing.T) {
	t.Parallel()
	g := &generator{Rand: rand.New(rand.NewPCG(*seed, 1))}
	dates, impossible := 0, 0
	count := max(*expressions/20, 1)
	for range count {
		g.near = time.Date(1980+g.IntN(120), 1, 1+g.IntN(365), 12, 0, 0, 0, time.UTC)
		expr := strings.Join([]string{"0 0 12", g.days(), g.months(), g.weekdays(), g.years()}, " ")
		o := g.options(time.UTC)
		oracle := newOracle(expr, o)
		s, err := cron.Parse(expr, o)
		if err != nil {
			if runsOnSomeDate(oracle, g.near.Year()) {
				t.Fatalf("Parse(%q): %v, but it runs", expr, err)
			}
			impossible++
			continue
		}
		var want []time.Time
		from, to := g.near.AddDate(-14, 0, 0), g.near.AddDate(14, 0, 0)
		for at := from; at.Before(to); at = at.AddDate(0, 0, 1) {
			if oracle.matches(at) {
				want = append(want, at)
			}
		}
		if got := slices.Collect(s.Between(from, to)); !equalTimes(got, want) {
			t.Fatalf("%q %+v\nfrom %v to %v\n got %v\nwant %v", expr, o, from, to, got, want)
		}
		if got := backwards(s, from, to); !equalTimes(got, want) {
			t.Fatalf("%q %+v, backwards\nfrom %v to %v\n got %v\nwant %v", expr, o, from, to, got, want)
		}
		dates += len(want)
	}
	t.Logf("%d expressions compared over 28 years, no difference: %d dates; %d refused as impossible, rightly", count-impossible, dates, impossible)
}

func hasH(expr string) bool {
	return slices.ContainsFunc(strings.FieldsFunc(expr, func(r rune) bool { return strings.ContainsRune(" \t,+", r) }), func(entry string) bool {
		return strings.HasPrefix(strings.ToUpper(entry), "H")
	})
}

// checkNextAndPrev asks for the neighbours of random instants.
func checkNextAndPrev(t *testing.T, g *generator, s cron.Schedule, from, to time.Time, want []time.Time) {
	t.Helper()
	for range 8 {
		at := from.Add(time.Duration(g.Int64N(int64(to.Sub(from)))))
		if len(want) > 0 && g.oneIn(2) {
			at = pick(g, want...)
		}
		next, ok := s.Next(at)
		later := slices.IndexFunc(want, at.Before)
		switch {
		case later >= 0 && (!ok || !next.Equal(want[later])):
			t.Fatalf("%q in %v: Next(%v) = %v, want %v", s, s.Location(), at, next, want[later])
		case later < 0 && ok && next.Before(to):
			t.Fatalf("%q in %v: Next(%v) = %v, want none before %v", s, s.Location(), at, next, to)
		}
		prev, ok := s.Prev(at)
		earlier := len(want) - 1
		for earlier >= 0 && !want[earlier].Before(at) {
			earlier--
		}
		switch {
		case earlier >= 0 && (!ok || !prev.Equal(want[earlier])):
			t.Fatalf("%q in %v: Prev(%v) = %v, want %v", s, s.Location(), at, prev, want[earlier])
		case earlier < 0 && ok && !prev.Before(from):
			t.Fatalf("%q in %v: Prev(%v) = %v, want none from %v", s, s.Location(), at, prev, from)
		}
	}
}

// runsOnSomeDate looks at 60 years around the given one, which hold every
// combination of month, length and first weekday and, as generated, every year.
func runsOnSomeDate(r *oracle, year int) bool {
	end := time.Date(year+40, 1, 1, 0, 0, 0, 0, time.UTC)
	for date := end.AddDate(-60, 0, 0); date.Before(end); date = date.AddDate(0, 0, 1) {
		if r.judgeDate(date) {
			return true
		}
	}
	return false
}

func backwards(s cron.Schedule, from, to time.Time) (found []time.Time) {
	for at, ok := s.Prev(to); ok && !at.Before(from); at, ok = s.Prev(at) {
		found = append(found, at)
	}
	slices.Reverse(found)
	return found
}

func equalTimes(a, b []time.Time) bool { return slices.EqualFunc(a, b, time.Time.Equal) }
