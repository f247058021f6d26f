package cron

import (
	"fmt"
	"math/bits"
	"time"
)

// Warning is something about a valid schedule that may not be what was meant.
type Warning struct {
	Code    WarningCode
	Message string // one sentence, without a full stop
}

// WarningCode is a stable word.
type WarningCode string

const (
	WarnFrequent    WarningCode = "frequent"     // 60 runs an hour or more
	WarnUneven      WarningCode = "uneven"       // a step that doesn't divide its field
	WarnDayMatch    WarningCode = "day_match"    // both day fields restrict the day
	WarnIgnoredDays WarningCode = "ignored_days" // one of the day fields makes no difference
	WarnShortMonths WarningCode = "short_months" // months in which the day doesn't come, or not always
	WarnGap         WarningCode = "gap"          // a time that the zone's clock will jump over
	WarnOverlap     WarningCode = "overlap"      // a time that the zone's clock will show twice
)

// Lint returns what may not be meant about an expression. Jumps of the zone's
// clock are looked for in the ten years from Options.Anchor; without an anchor,
// from now.
func (s Schedule) Lint() []Warning {
	p := s.p
	if p == nil || p.kind != expression {
		return nil
	}
	var found []Warning
	warn := func(code WarningCode, format string, args ...any) {
		found = append(found, Warning{code, fmt.Sprintf(format, args...)})
	}
	p.lintClock(warn)
	p.lintDays(warn)
	p.lintMonths(warn)
	if p.fixed {
		from := p.anchor()
		if from.IsZero() {
			from = time.Now()
		}
		p.lintJumps(from.Unix(), warn)
	}
	return found
}

type warner = func(code WarningCode, format string, args ...any)

func (p *plan) lintClock(warn warner) {
	if n := bits.OnesCount64(p.minutes) * bits.OnesCount64(p.seconds); n >= 60 {
		hours := "an hour"
		if p.hours != fullDay {
			hours = "an hour in " + members(uint64(p.hours), 24, "hour")
		}
		warn(WarnFrequent, "runs %d times %s", n, hours)
	}
	for _, f := range [...]struct {
		set         uint64
		size        int
		unit, whole string
	}{
		{p.seconds, 60, "seconds", "minute"},
		{p.minutes, 60, "minutes", "hour"},
		{uint64(p.hours), 24, "hours", "day"},
		{uint64(p.days) >> 1, 31, "days", "month"},
	} {
		if _, step, ok := steps(f.set, f.size); ok && (f.size%step != 0 || f.unit == "days") {
			warn(WarnUneven, "every %d %s starts anew with each %s, so the last step is shorter", step, f.unit, f.whole)
		}
	}
}

func (p *plan) lintDays(warn warner) {
	byDay, byWeekday := p.describeDays(), p.describeWeekdays()
	anyDay, anyWeekday := byDay == "", byWeekday == ""
	switch {
	case anyDay && anyWeekday:
	case p.both && !anyDay && !anyWeekday:
		warn(WarnDayMatch, "runs only on days that are %s and %s", byDay, byWeekday)
	case p.both:
	case anyDay:
		warn(WarnIgnoredDays, "day_of_week makes no difference: day_of_month allows every day, and either is enough")
	case anyWeekday:
		warn(WarnIgnoredDays, "day_of_month makes no difference: day_of_week allows every day, and either is enough")
	case !p.onlyDays().possible():
		warn(WarnIgnoredDays, "day_of_month makes no difference: that day never comes in these months")
	default:
		warn(WarnDayMatch, "runs on %s, and also on %s: either is enough; for days that are both, put + before the day of week", byDay, byWeekday)
	}
}

// onlyDays is the pattern without its day of week and years.
func (p *plan) onlyDays() *pattern {
	c := *p.pattern
	c.years, c.both, c.weekdays = nil, true, allWeek
	return &c
}

// lintMonths finds the months in which no day matches, always or sometimes: a
// month is known by its length and its first weekday.
func (p *plan) lintMonths(warn warner) {
	var never, sometimes uint64
	for m := 1; m <= 12; m++ {
		if p.months>>m&1 == 0 {
			continue
		}
		with, without := false, false
		for first := range 7 {
			for _, y := range [...]int{2000, 2001} {
				if p.month(monthLength(y, m), first) != 0 {
					with = true
				} else {
					without = true
				}
			}
		}
		switch {
		case !with:
			never |= 1 << m
		case without:
			sometimes |= 1 << m
		}
	}
	if never != 0 {
		warn(WarnShortMonths, "never runs in %s: no such day", enumerate(monthNames(never)))
	}
	switch sometimes {
	case 0:
	case allMonths:
		warn(WarnShortMonths, "doesn't run every month, since not each has such a day")
	default:
		warn(WarnShortMonths, "doesn't run every time in %s: not always such a day", enumerate(monthNames(sometimes)))
	}
}

func monthNames(set uint64) []string {
	return runs(set, func(m int) string { return time.Month(m).String() })
}

// lintJumps finds the first gap and the first overlap that the schedule meets.
func (p *plan) lintJumps(from instant, warn warner) {
	const horizon = 3653 * day
	var gap, overlap bool
	for u := from; u < from+horizon && !(gap && overlap); {
		s := stretchAt(p.loc, u)
		if s.end > from+horizon {
			return
		}
		u = s.end
		before, after := u+s.offset, u+offsetAt(p.loc, u)
		switch {
		case !gap && p.between(before, after):
			gap = true
			w, _ := p.pattern.next(before)
			instead := "doesn't run then"
			if !p.skipGaps {
				instead = "runs at " + wallText(after) + " instead"
			}
			warn(WarnGap, "%s doesn't exist in %s, where the clock jumps from %s to %s: %s", wallText(w), p.loc, wallText(before), wallText(after), instead)
		case !overlap && p.between(after, before):
			overlap = true
			w, _ := p.pattern.next(after)
			passes := "runs in the first pass only"
			if p.allPasses {
				passes = "runs in both passes"
			}
			warn(WarnOverlap, "%s comes twice in %s, where the clock goes back from %s to %s: %s", wallText(w), p.loc, wallText(before), wallText(after), passes)
		}
	}
}
