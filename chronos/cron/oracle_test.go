package cron_test

import (
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdfast/chronos/cron"
)

// oracle answers the same questions as package cron by brute force, and shares
// nothing with it: it judges every minute (every second, if the expression has
// seconds) by reading the expression's text, and learns about the zone only
// from what the clock shows. It takes valid expressions.
type oracle struct {
	second, minute, hour          [60]bool
	days, months, weekdays, years string
	bothDays, fixed, skip, twice  bool
	step                          time.Duration
	loc                           *time.Location
	knownDates                    map[time.Time]bool
}

func newOracle(expr string, o cron.Options) *oracle {
	macros := map[string]string{
		"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
		"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
	}
	if fields, ok := macros[expr]; ok {
		expr = fields
	}
	f := strings.Fields(strings.ToUpper(expr))
	step := time.Second
	if len(f) == 5 {
		f = append([]string{"0"}, f...)
		step = time.Minute
	}
	if len(f) == 6 {
		f = append(f, "*")
	}
	stars := func(field string) bool { return strings.HasPrefix(field, "*") || strings.HasPrefix(field, "?") }
	for i, h := range [...]struct {
		field  string
		lo, hi int // of a lone H
	}{{"second", 0, 59}, {"minute", 0, 59}, {"hour", 0, 23}, {"day_of_month", 1, 28}, {"month", 1, 12}, {"day_of_week", 0, 6}} {
		f[i] = withoutH(f[i], h.field, o.Seed, h.lo, h.hi)
	}
	r := &oracle{
		days: f[3], months: f[4], weekdays: strings.TrimPrefix(f[5], "+"), years: f[6],
		bothDays:   stars(f[3]) || stars(f[5]) || strings.HasPrefix(f[5], "+") || o.DayMatch == cron.DayAll,
		fixed:      !stars(f[0]) && !stars(f[1]) && !stars(f[2]),
		skip:       o.Gap == cron.GapSkip,
		twice:      o.Overlap == cron.OverlapTwice,
		step:       step,
		loc:        o.Location,
		knownDates: map[time.Time]bool{},
	}
	for v := range 60 {
		r.second[v] = listed(f[0], v, 0, 59, nil)
		r.minute[v] = listed(f[1], v, 0, 59, nil)
		r.hour[v] = v < 24 && listed(f[2], v, 0, 23, nil)
	}
	return r
}

// withoutH writes the values that H stands for instead of it.
func withoutH(list, field, seed string, lo, hi int) string {
	entries := strings.Split(list, ",")
	for i, entry := range entries {
		unsigned, plus := strings.CutPrefix(entry, "+") // of a whole weekday field
		if !strings.HasPrefix(unsigned, "H") {
			continue
		}
		hash := fnv.New64a()
		hash.Write([]byte(field + "\x00" + seed))
		spread := hash.Sum64()
		for _, factor := range [...]uint64{0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53, 1} {
			spread = (spread ^ spread/(1<<33)) * factor
		}
		span, step, stepped := strings.Cut(unsigned, "/")
		a, b := lo, hi
		if span != "H" {
			first, last, _ := strings.Cut(strings.Trim(span, "H()"), "-")
			names := weekdayNames
			if field == "month" {
				names = monthNames
			}
			a, b = toNumber(first, names), toNumber(last, names)
		}
		values := make([]string, 0, 60)
		n, choices := b-a+1, b-a+1 // without a step, one value
		if stepped {
			n = toNumber(step, nil)
			choices = min(n, choices)
		}
		for v := a + int(spread%uint64(choices)); v <= b; v += n {
			values = append(values, strconv.Itoa(v))
		}
		entries[i] = strings.Join(values, ",")
		if plus {
			entries[i] = "+" + entries[i]
		}
	}
	return strings.Join(entries, ",")
}

// between lists the instants from from (included) to to (excluded), which are
// whole minutes, and the zone's offset must be whole minutes too.
//
// It watches the clock, and keeps the highest time that it has shown so far. A
// time above that is new; those that were left out on the way to it were
// jumped over; a time not above it has been shown before.
func (r *oracle) between(from, to time.Time) (found []time.Time) {
	const lead = 50 * time.Hour // longer than any jump
	var highest time.Time       // of the wall times, which are written as UTC
	for at := from.Add(-lead); at.Before(to); {
		shown := wallClock(at, r.loc)
		fires := r.matches(shown)
		if r.fixed && !highest.IsZero() {
			if shown.After(highest) {
				for missed := highest.Add(r.step); missed.Before(shown) && !fires && !r.skip; missed = missed.Add(r.step) {
					fires = r.matches(missed)
				}
			} else if !r.twice {
				fires = false
			}
		}
		if fires && !at.Before(from) {
			found = append(found, at)
		}
		if shown.After(highest) {
			highest = shown
		}
		if at.Before(from) {
			at = at.Add(time.Minute) // nothing can fire yet, and jumps come at whole minutes
			if r.step == time.Second && !at.Before(from) {
				highest = highest.Add(59 * time.Second) // the seconds that weren't looked at
			}
		} else {
			at = at.Add(r.step)
		}
	}
	return found
}

// wallClock is what a clock in the zone shows at t, written as if in UTC.
func wallClock(t time.Time, loc *time.Location) time.Time {
	_, offset := t.In(loc).Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// matches reports whether a wall time satisfies every field.
func (r *oracle) matches(w time.Time) bool {
	return r.second[w.Second()] && r.minute[w.Minute()] && r.hour[w.Hour()] && r.onDate(w.Truncate(24*time.Hour))
}

func (r *oracle) onDate(date time.Time) bool {
	on, known := r.knownDates[date]
	if !known {
		on = r.judgeDate(date)
		r.knownDates[date] = on
	}
	return on
}

func (r *oracle) judgeDate(date time.Time) bool {
	if !listed(r.years, date.Year(), 1970, 9999, nil) && r.years != "*" {
		return false
	}
	if !listed(r.months, int(date.Month()), 1, 12, monthNames) {
		return false
	}
	byDay := slices.ContainsFunc(strings.Split(r.days, ","), func(entry string) bool { return dayEntry(entry, date) })
	byWeekday := slices.ContainsFunc(strings.Split(r.weekdays, ","), func(entry string) bool { return weekdayEntry(entry, date) })
	if r.bothDays {
		return byDay && byWeekday
	}
	return byDay || byWeekday
}

var (
	monthNames   = []string{"", "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}
	weekdayNames = []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}
)

// listed reports whether v is in a list of *, a, a-b, a/n, */n and a-b/n, by
// counting along each range.
func listed(list string, v, lo, hi int, names []string) bool {
	for entry := range strings.SplitSeq(list, ",") {
		span, n, stepped := strings.Cut(entry, "/")
		step := 1
		if stepped {
			step = toNumber(n, nil)
		}
		first, last := lo, hi
		if span != "*" && span != "?" {
			a, b, isRange := strings.Cut(span, "-")
			first = toNumber(a, names)
			switch {
			case isRange:
				last = toNumber(b, names)
			case !stepped:
				last = first
			}
		}
		for at, count := first, 0; ; count++ {
			if at == v && count%step == 0 {
				return true
			}
			if at == last {
				break
			}
			if at++; at > hi {
				at = lo
			}
		}
	}
	return false
}

func toNumber(text string, names []string) int {
	if at := slices.Index(names, text); at >= 0 {
		return at
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		panic("the oracle was given " + text)
	}
	return n
}

func dayEntry(entry string, date time.Time) bool {
	day := func(n int) time.Time { return date.AddDate(0, 0, n) }
	sameMonth := func(t time.Time) bool { return t.Month() == date.Month() }
	workday := func(t time.Time) bool { return t.Weekday() != time.Saturday && t.Weekday() != time.Sunday }
	switch {
	case entry == "L":
		return !sameMonth(day(1))
	case entry == "LW":
		// A weekday, and none follows it in this month.
		for n := 1; sameMonth(day(n)); n++ {
			if workday(day(n)) {
				return false
			}
		}
		return workday(date)
	case strings.HasPrefix(entry, "L-"):
		n := toNumber(entry[2:], nil)
		return sameMonth(day(n)) && !sameMonth(day(n+1))
	case strings.HasSuffix(entry, "W"):
		n := toNumber(strings.TrimSuffix(entry, "W"), nil)
		target := day(n - date.Day())
		if !sameMonth(target) || !workday(date) {
			return false
		}
		// No other weekday of this month is nearer.
		distance := max(n-date.Day(), date.Day()-n)
		for other := -distance + 1; other < distance; other++ {
			if t := target.AddDate(0, 0, other); sameMonth(t) && workday(t) {
				return false
			}
		}
		return true
	}
	return listed(entry, date.Day(), 1, 31, nil)
}

func weekdayEntry(entry string, date time.Time) bool {
	name, nth, ok := strings.Cut(entry, "#")
	if !ok && strings.HasSuffix(entry, "L") {
		name, nth, ok = strings.TrimSuffix(entry, "L"), "L", true
	}
	if ok {
		if int(date.Weekday()) != toNumber(name, weekdayNames)%7 {
			return false
		}
		if nth == "L" {
			return date.AddDate(0, 0, 7).Month() != date.Month()
		}
		earlier := 0 // of the same weekday and month
		for t := date.AddDate(0, 0, -7); t.Month() == date.Month(); t = t.AddDate(0, 0, -7) {
			earlier++
		}
		return earlier+1 == toNumber(nth, nil)
	}
	span, step, stepped := strings.Cut(entry, "/")
	a, b, isRange := strings.Cut(span, "-")
	if isRange && toNumber(b, weekdayNames) == 7 && toNumber(a, weekdayNames) < 7 {
		// Sunday as the end of the week: count to 7, and let it be Sunday.
		return listed(entry, int(date.Weekday()), 0, 7, weekdayNames) ||
			date.Weekday() == time.Sunday && listed(entry, 7, 0, 7, weekdayNames)
	}
	if a == "7" {
		a = "0"
	}
	if isRange && b == "7" {
		b = "0"
	}
	if isRange {
		a += "-" + b
	}
	if stepped {
		a += "/" + step
	}
	return listed(a, int(date.Weekday()), 0, 6, weekdayNames)
}
