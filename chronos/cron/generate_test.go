package cron_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"holdfast/chronos/cron"
)

// jumpyZones are zones whose clocks do something unusual, and UTC.
var jumpyZones = []string{
	"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "America/Santiago",
	"Africa/Cairo", "Asia/Beirut", "Africa/Casablanca", "Europe/Dublin", "Antarctica/Troll", "Pacific/Apia",
	"Asia/Kathmandu", "UTC",
	"America/Havana", "Asia/Gaza", "Pacific/Kwajalein", "America/Ciudad_Juarez", "Antarctica/Casey", "America/Caracas",
}

// jumpyZone is a zone and when its clock jumps, between 1975 and 2045.
type jumpyZone struct {
	loc   *time.Location
	jumps []time.Time
}

func loadJumpyZones(t testing.TB) (zones []jumpyZone) {
	t.Helper()
	for _, name := range jumpyZones {
		loc, err := cron.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		zones = append(zones, jumpyZone{loc, findJumps(loc, 1975, 2045)})
	}
	return zones
}

// findJumps compares the offsets at both ends of every day and closes in on
// those that differ.
func findJumps(loc *time.Location, fromYear, toYear int) (jumps []time.Time) {
	offset := func(u int64) int { _, o := time.Unix(u, 0).In(loc).Zone(); return o }
	const day = 24 * 60 * 60
	end := time.Date(toYear, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	for u := time.Date(fromYear, 1, 1, 0, 0, 0, 0, time.UTC).Unix(); u < end; u += day {
		before, after := u, u+day
		if offset(before) == offset(after) {
			continue
		}
		for after-before > 1 {
			if middle := (before + after) / 2; offset(middle) == offset(u) {
				before = middle
			} else {
				after = middle
			}
		}
		jumps = append(jumps, time.Unix(after, 0).In(loc))
	}
	return jumps
}

// generator makes expressions that often run near a certain time.
type generator struct {
	*rand.Rand
	near time.Time // on the zone's clock
}

func (g *generator) oneIn(n int) bool { return g.IntN(n) == 0 }

func pick[T any](g *generator, of ...T) T { return of[g.IntN(len(of))] }

// expression has five fields or, if precise, six; sometimes seven.
func (g *generator) expression(precise bool) string {
	if !precise && g.oneIn(60) {
		return pick(g, "@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually")
	}
	fields := []string{g.minutes(), g.hours(), g.days(), g.months(), g.weekdays()}
	if precise {
		fields = append([]string{g.seconds()}, fields...)
		if g.oneIn(5) {
			fields = append(fields, g.years())
		}
	}
	return strings.Join(fields, pick(g, " ", " ", "  ", "\t"))
}

func (g *generator) options(loc *time.Location) cron.Options {
	return cron.Options{
		Location: loc,
		Seed:     fmt.Sprintf("job-%d", g.IntN(1000)),
		DayMatch: pick(g, "", "", cron.DayAny, cron.DayAll),
		Gap:      pick(g, "", cron.GapRun, cron.GapSkip),
		Overlap:  pick(g, "", cron.OverlapOnce, cron.OverlapTwice),
	}
}

func (g *generator) seconds() string {
	return g.list(59, func() string { return g.entry(0, 59, 60, g.around(0, 0, 59), nil) })
}

func (g *generator) minutes() string {
	return g.list(59, func() string { return g.entry(0, 59, 60, g.around(pick(g, 0, 30, g.near.Minute()), 0, 59), nil) })
}

func (g *generator) hours() string {
	return g.list(23, func() string { return g.entry(0, 23, 24, g.around(g.near.Hour(), 0, 23), nil) })
}

func (g *generator) days() string {
	if g.oneIn(2) {
		return pick(g, "*", "*", "*", "?")
	}
	return g.list(31, func() string {
		switch g.IntN(10) {
		case 0:
			return pick(g, "L", "l")
		case 1:
			return fmt.Sprintf("L-%d", pick(g, 0, 1, 2, 3, g.IntN(31)))
		case 2:
			return pick(g, "LW", "lw")
		case 3:
			return fmt.Sprintf("%dW", pick(g, 1, 31, g.around(g.near.Day(), 1, 31)))
		}
		return g.entry(1, 31, 31, g.around(g.near.Day(), 1, 31), nil)
	})
}

func (g *generator) months() string {
	if g.oneIn(2) {
		return "*"
	}
	return g.list(12, func() string { return g.entry(1, 12, 12, g.around(int(g.near.Month()), 1, 12), monthNames[1:]) })
}

func (g *generator) weekdays() string {
	plus := ""
	if g.oneIn(8) {
		plus = "+"
	}
	if g.oneIn(2) {
		return plus + pick(g, "*", "*", "*", "?")
	}
	return plus + g.list(7, func() string {
		d := g.around(int(g.near.Weekday()), 0, 7)
		name := pick(g, fmt.Sprint(d), weekdayNames[d%7])
		switch g.IntN(8) {
		case 0:
			return fmt.Sprintf("%s#%d", name, 1+g.IntN(5))
		case 1:
			return name + pick(g, "L", "#L", "l")
		}
		return g.entry(0, 7, 7, d, append(weekdayNames, weekdayNames[0]))
	})
}

func (g *generator) years() string {
	y := max(g.near.Year(), 1978)
	return pick(g, "*", "*/2", fmt.Sprint(y), fmt.Sprintf("%d,%d", y-1, y), fmt.Sprintf("%d-%d", y-3, y+3),
		fmt.Sprintf("%d/4", y-8), fmt.Sprintf("%d-%d/%d", y-6, y+6, 1+g.IntN(4)), fmt.Sprint(y+1))
}

// around is a value at or near v.
func (g *generator) around(v, lo, hi int) int {
	if g.oneIn(4) {
		return lo + g.IntN(hi-lo+1)
	}
	return min(max(v+g.IntN(5)-2, lo), hi)
}

func (g *generator) list(most int, entry func() string) string {
	n := pick(g, 1, 1, 1, 1, 2, 3, 1+g.IntN(min(most, 6)))
	entries := make([]string, n)
	for i := range entries {
		entries[i] = entry()
	}
	return strings.Join(entries, ",")
}

// entry is one of the forms that all fields know, at or near v.
func (g *generator) entry(lo, hi, size, v int, names []string) string {
	name := func(v int) string {
		switch {
		case names == nil || g.oneIn(2):
			return fmt.Sprint(v)
		case g.oneIn(2):
			return strings.ToLower(names[v-lo])
		}
		return names[v-lo]
	}
	step := pick(g, 1, 2, 3, 5, 15, 1+g.IntN(size))
	step = min(step, size)
	switch g.IntN(10) {
	case 9:
		a, b := g.around(v, lo, hi), g.around(v, lo, hi)
		h := pick(g, "H", "h", fmt.Sprintf("H(%d-%d)", min(a, b), max(a, b)))
		if max(a, b) < 7 || names == nil { // SUN is 0, so that FRI-SUN would be out of order
			h = pick(g, h, fmt.Sprintf("H(%s-%s)", name(min(a, b)), name(max(a, b))))
		}
		return h + pick(g, "", "", fmt.Sprintf("/%d", step))
	case 0:
		return "*"
	case 1, 2:
		return fmt.Sprintf("*/%d", step)
	case 3:
		return fmt.Sprintf("%s/%d", name(v), step)
	case 4:
		return name(v) + "-" + name(g.around(v, lo, hi))
	case 5:
		return fmt.Sprintf("%s-%s/%d", name(v), name(lo+g.IntN(hi-lo+1)), step)
	}
	return name(v)
}
