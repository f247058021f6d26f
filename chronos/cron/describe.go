package cron

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Describe says in plain English when the schedule runs, as in "At 02:30 on
// Monday to Friday (Europe/Berlin)". It describes the parsed sets, so what it
// says is what runs, whichever way it was written; H is shown as the value that
// it stands for.
func (s Schedule) Describe() string {
	p := s.p
	if p == nil {
		return "Never"
	}
	zone := " (" + p.loc.String() + ")"
	switch p.kind {
	case once:
		return "Once, on " + p.anchor().Format("2 January 2006 at 15:04:05.999999999") + zone
	case interval:
		return "Every " + spell(p.every) + ", counted from " + p.anchor().Format("2 January 2006 15:04:05.999999999") + zone
	}
	return p.describeClock() + p.describeDate() + zone
}

// spell writes a whole number of seconds as in "2 hours 30 minutes".
func spell(d time.Duration) string {
	seconds := int64(d / time.Second)
	var parts []string
	for _, unit := range [...]struct {
		name string
		size int64
	}{{"hour", hour}, {"minute", minute}, {"second", 1}} {
		n := seconds / unit.size
		seconds %= unit.size
		switch {
		case n == 1:
			parts = append(parts, "1 "+unit.name)
		case n > 1:
			parts = append(parts, strconv.FormatInt(n, 10)+" "+unit.name+"s")
		}
	}
	if len(parts) == 1 {
		return strings.TrimPrefix(parts[0], "1 ")
	}
	return strings.Join(parts, " ")
}

const (
	fullMinute = 1<<60 - 1
	fullDay    = 1<<24 - 1
	allMonths  = 1<<13 - 2
	allWeek    = 1<<7 - 1
)

// describeClock describes the time of day: as a list of times if there are few,
// as a rhythm of hours if there is one time in each, else unit by unit.
func (p *plan) describeClock() string {
	const mostTimes = 6
	hours, minutes, seconds := bits.OnesCount32(p.hours), bits.OnesCount64(p.minutes), bits.OnesCount64(p.seconds)
	if hours*minutes*seconds <= mostTimes {
		return "At " + enumerate(p.times())
	}
	if minutes*seconds == 1 {
		return p.describeHourly()
	}
	var parts []string
	switch {
	case p.seconds == 1:
		parts = append(parts, cadence(p.minutes, "minute", "hour"))
	case p.minutes == fullMinute:
		parts = append(parts, cadence(p.seconds, "second", "minute"))
	default:
		parts = append(parts, cadence(p.seconds, "second", "minute"), "in "+members(p.minutes, 60, "minute"))
	}
	if p.hours != fullDay {
		first, last := bits.TrailingZeros32(p.hours), int(highest(uint64(p.hours)))
		if last-first+1 == hours {
			parts = append(parts, fmt.Sprintf("from %02d:00 to %02d:59", first, last))
		} else {
			parts = append(parts, "in "+members(uint64(p.hours), 24, "hour"))
		}
	}
	return capital(strings.Join(parts, ", "))
}

// describeHourly describes more than a few hours with one time in each.
func (p *plan) describeHourly() string {
	times := p.times()
	first, last := times[0], times[len(times)-1]
	if p.hours == fullDay {
		if p.seconds == 1 {
			return "Every hour at minute " + strconv.Itoa(bits.TrailingZeros64(p.minutes))
		}
		return "Every hour, " + strings.TrimPrefix(first, "00:") + " past the hour"
	}
	if _, step, ok := steps(uint64(p.hours), 24); ok {
		return fmt.Sprintf("Every %d hours from %s to %s", step, first, last)
	}
	if bits.OnesCount32(p.hours>>bits.TrailingZeros32(p.hours)+1) == 1 {
		return "Every hour from " + first + " to " + last
	}
	return "At " + enumerate(times)
}

func (p *plan) times() (times []string) {
	for clock, ok := p.nextClock(0); ok; clock, ok = p.nextClock(clock + 1) {
		text := fmt.Sprintf("%02d:%02d", clock/hour, clock/minute%60)
		if p.seconds != 1 {
			text += fmt.Sprintf(":%02d", clock%60)
		}
		times = append(times, text)
		if clock == day-1 {
			break
		}
	}
	return times
}

// cadence describes a set of seconds or minutes as a rhythm: "every minute",
// "every 15 minutes", "at minutes 5 and 10 to 20 of every hour".
func cadence(set uint64, unit, whole string) string {
	if set == fullMinute {
		return "every " + unit
	}
	first, step, ok := steps(set, 60)
	if !ok {
		return "at " + members(set, 60, unit) + " of every " + whole
	}
	text := fmt.Sprintf("every %d %ss", step, unit)
	switch {
	case 60%step != 0:
		text += fmt.Sprintf(" of each %s from %s %d", whole, unit, first)
	case first > 0:
		text += fmt.Sprintf(" from %s %d", unit, first)
	}
	return text
}

// members describes a set as parts of something: "every 5th minute", "minutes
// 5 and 10 to 20".
func members(set uint64, size int, unit string) string {
	if first, step, ok := steps(set, size); ok {
		text := "every " + ordinal(step) + " " + unit
		if first > 0 {
			text += " from " + strconv.Itoa(first)
		}
		return text
	}
	return several(unit, set) + " " + enumerate(runs(set, strconv.Itoa))
}

// steps reports whether a set of values below size is every step-th one from
// first on.
func steps(set uint64, size int) (first, step int, ok bool) {
	if bits.OnesCount64(set) < 3 {
		return 0, 0, false
	}
	first = bits.TrailingZeros64(set)
	step = bits.TrailingZeros64(set>>(first+1)) + 1
	if step == 1 || first >= step {
		return 0, 0, false
	}
	for v := first; v < size; v += step {
		set &^= 1 << v
		if v+step >= size {
			return first, step, set == 0
		}
		if set>>(v+step)&1 == 0 {
			return 0, 0, false
		}
	}
	return 0, 0, false
}

// describeDate describes the days, months and years.
func (p *plan) describeDate() string {
	byDay, byWeekday := p.describeDays(), p.describeWeekdays()
	text := ""
	switch {
	case p.both && byDay == "" && byWeekday == "", !p.both && (byDay == "" || byWeekday == ""):
		if p.hours != fullDay {
			text = " every day"
		}
	case byDay == "":
		text = " on " + byWeekday
	case byWeekday == "":
		text = " on " + byDay
	case p.both:
		text = " on " + byDay + ", but only if it falls on " + byWeekday
	default:
		text = " on " + byDay + ", and also on " + byWeekday
	}
	if p.months != allMonths {
		text += ", in " + enumerate(monthNames(uint64(p.months)))
	}
	if p.years != nil {
		var list []string
		for _, r := range p.years {
			list = append(list, r.describe())
		}
		text += ", in " + enumerate(list)
	}
	return text
}

func (r yearSpan) describe() string {
	switch {
	case r.first == r.last:
		return strconv.Itoa(r.first)
	case r.step == 1 && r.last == maxYear:
		return "all years from " + strconv.Itoa(r.first)
	case r.step == 1:
		return fmt.Sprintf("%d to %d", r.first, r.last)
	case r.last == maxYear:
		return fmt.Sprintf("every %s year from %d", ordinal(r.step), r.first)
	}
	return fmt.Sprintf("every %s year from %d to %d", ordinal(r.step), r.first, r.last)
}

// describeDays describes the day of month; "" if it doesn't restrict.
func (p *plan) describeDays() string {
	if p.days == allDays {
		return ""
	}
	var parts []string
	if first, step, ok := steps(uint64(p.days)>>1, 31); ok {
		parts = append(parts, fmt.Sprintf("every %s day of the month from day %d", ordinal(step), first+1))
	} else if p.days != 0 {
		parts = append(parts, several("day", uint64(p.days))+" "+enumerate(runs(uint64(p.days), strconv.Itoa))+" of the month")
	}
	for rest := p.nearest; rest != 0; rest &= rest - 1 {
		parts = append(parts, fmt.Sprintf("the weekday nearest day %d of the month", bits.TrailingZeros32(rest)))
	}
	for rest := p.fromLast; rest != 0; rest &= rest - 1 {
		switch n := bits.TrailingZeros32(rest); n {
		case 0:
			parts = append(parts, "the last day of the month")
		case 1:
			parts = append(parts, "the day before the last day of the month")
		default:
			parts = append(parts, fmt.Sprintf("the day %d days before the last day of the month", n))
		}
	}
	if p.lastWorkday {
		parts = append(parts, "the last weekday (Monday to Friday) of the month")
	}
	return enumerate(parts)
}

// describeWeekdays describes the day of week; "" if it doesn't restrict.
func (p *plan) describeWeekdays() string {
	if p.weekdays == allWeek {
		return ""
	}
	// The week is told from Monday, so that a weekend is one run.
	name := func(d int) string { return time.Weekday((d + 1) % 7).String() }
	parts := runs(uint64(p.weekdays>>1|p.weekdays<<6&allWeek), name)
	for rest := p.nth; rest != 0; rest &= rest - 1 {
		n := bits.TrailingZeros64(rest)
		parts = append(parts, "the "+ordinal(n/7+1)+" "+time.Weekday(n%7).String()+" of the month")
	}
	for rest := p.last; rest != 0; rest &= rest - 1 {
		parts = append(parts, "the last "+time.Weekday(bits.TrailingZeros8(rest)).String()+" of the month")
	}
	return enumerate(parts)
}

// runs names the values of a set, three or more in a row as "a to b".
func runs(set uint64, name func(int) string) (parts []string) {
	for set != 0 {
		a := bits.TrailingZeros64(set)
		b := a + bits.TrailingZeros64(^(set >> a)) - 1
		set = set >> (b + 1) << (b + 1)
		switch b - a {
		case 0:
			parts = append(parts, name(a))
		case 1:
			parts = append(parts, name(a), name(b))
		default:
			parts = append(parts, name(a)+" to "+name(b))
		}
	}
	return parts
}

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// several is the unit in the plural unless the set has one value.
func several(unit string, set uint64) string {
	if bits.OnesCount64(set) == 1 {
		return unit
	}
	return unit + "s"
}

// enumerate joins as in "a, b and c".
func enumerate(parts []string) string {
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	last := len(parts) - 1
	return strings.Join(parts[:last], ", ") + " and " + parts[last]
}

func ordinal(n int) string {
	suffix := "th"
	if n/10%10 != 1 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return strconv.Itoa(n) + suffix
}
