package cron

import "math/bits"

// pattern is the fields of an expression as sets: bit n of a set stands for
// the value n.
type pattern struct {
	seconds, minutes uint64
	years            []yearSpan // nil: every year
	hours            uint32

	// Days of the month: by number, by distance from the last day, the nearest
	// weekday to a number, and the last weekday.
	days, fromLast, nearest uint32
	lastWorkday             bool

	// Days of the week: by weekday, the last one of a month, and by weekday and week
	// (bit 7×(n-1) + weekday for the nth one of a month).
	weekdays, last uint8
	both           bool // a day must match both day fields, not just either
	daily          bool // every day matches, so that there is nothing to look up
	months         uint16
	nth            uint64
}

// yearSpan is every step-th year from first to last.
type yearSpan struct{ first, last, step int }

// everyDay reports whether the day fields let every day through by themselves.
func (p *pattern) everyDay() bool {
	return p.both && p.days == allDays && p.weekdays == allWeek && p.months == allMonths && p.years == nil
}

// next is the first wall time at or after w that matches.
func (p *pattern) next(w wall) (wall, bool) {
	w = max(w, minWall)
	date, clock := floorDiv(w, day)
	if p.onDate(date) {
		if clock, ok := p.nextClock(clock); ok && w <= maxWall {
			return date*day + clock, true
		}
	}
	date, ok := p.nextDate(date + 1)
	if !ok {
		return 0, false
	}
	clock, _ = p.nextClock(0)
	return date*day + clock, true
}

// prev is the last wall time at or before w that matches.
func (p *pattern) prev(w wall) (wall, bool) {
	w = min(w, maxWall)
	date, clock := floorDiv(w, day)
	if p.onDate(date) {
		if clock, ok := p.prevClock(clock); ok && w >= minWall {
			return date*day + clock, true
		}
	}
	date, ok := p.prevDate(date - 1)
	if !ok {
		return 0, false
	}
	clock, _ = p.prevClock(day - 1)
	return date*day + clock, true
}

// nextClock is the first time of day, in seconds, at or after clock.
func (p *pattern) nextClock(clock int64) (int64, bool) {
	h, m, s := int(clock/hour), int(clock/minute%60), int(clock%60)
	if p.hours>>h&1 != 0 {
		if p.minutes>>m&1 != 0 {
			if rest := p.seconds >> s; rest != 0 {
				return clock + int64(bits.TrailingZeros64(rest)), true
			}
		}
		if rest := p.minutes >> (m + 1); rest != 0 {
			m += 1 + bits.TrailingZeros64(rest)
			return int64(h)*hour + int64(m)*minute + int64(bits.TrailingZeros64(p.seconds)), true
		}
	}
	rest := p.hours >> (h + 1)
	if rest == 0 {
		return 0, false
	}
	h += 1 + bits.TrailingZeros32(rest)
	return int64(h)*hour + int64(bits.TrailingZeros64(p.minutes))*minute + int64(bits.TrailingZeros64(p.seconds)), true
}

// prevClock is the last time of day, in seconds, at or before clock.
func (p *pattern) prevClock(clock int64) (int64, bool) {
	h, m, s := int(clock/hour), int(clock/minute%60), int(clock%60)
	if p.hours>>h&1 != 0 {
		if p.minutes>>m&1 != 0 {
			if rest := p.seconds << (63 - s); rest != 0 {
				return clock - int64(bits.LeadingZeros64(rest)), true
			}
		}
		if rest := p.minutes << (64 - m); rest != 0 {
			m -= 1 + bits.LeadingZeros64(rest)
			return int64(h)*hour + int64(m)*minute + highest(p.seconds), true
		}
	}
	rest := p.hours << (32 - h)
	if rest == 0 {
		return 0, false
	}
	h -= 1 + bits.LeadingZeros32(rest)
	return int64(h)*hour + highest(p.minutes)*minute + highest(p.seconds), true
}

func highest(set uint64) int64 { return int64(bits.Len64(set) - 1) }

// onDate reports whether the date, in days since 1970-01-01, matches.
func (p *pattern) onDate(date int64) bool {
	if p.daily {
		return true
	}
	y, m, d := civil(date)
	if p.months>>m&1 == 0 || p.nextYear(y) != y {
		return false
	}
	return p.month(monthLength(y, m), weekday(date-int64(d)+1))>>d&1 != 0
}

// nextDate is the first matching date at or after date.
func (p *pattern) nextDate(date int64) (int64, bool) {
	if p.daily {
		return date, date <= maxWall/day
	}
	y, m, d := civil(date)
	for {
		if next := p.nextYear(y); next != y {
			y, m, d = next, 1, 1
		}
		if y > maxYear {
			return 0, false
		}
		for ; m <= 12; m, d = m+1, 1 {
			rest := p.months >> m
			if rest == 0 {
				break
			}
			if skip := bits.TrailingZeros16(rest); skip > 0 {
				m, d = m+skip, 1
			}
			first := dateOf(y, m, 1)
			if rest := p.month(monthLength(y, m), weekday(first)) >> d; rest != 0 {
				return first + int64(d-1+bits.TrailingZeros32(rest)), true
			}
		}
		y, m, d = y+1, 1, 1
	}
}

// prevDate is the last matching date at or before date.
func (p *pattern) prevDate(date int64) (int64, bool) {
	if p.daily {
		return date, date >= minWall/day
	}
	y, m, d := civil(date)
	for {
		if prev := p.prevYear(y); prev != y {
			y, m, d = prev, 12, 31
		}
		if y < minYear {
			return 0, false
		}
		for ; m >= 1; m, d = m-1, 31 {
			rest := p.months << (15 - m)
			if rest == 0 {
				break
			}
			if skip := bits.LeadingZeros16(rest); skip > 0 {
				m, d = m-skip, 31
			}
			first := dateOf(y, m, 1)
			if rest := p.month(monthLength(y, m), weekday(first)) << (31 - d); rest != 0 {
				return first + int64(d-1-bits.LeadingZeros32(rest)), true
			}
		}
		y, m, d = y-1, 12, 31
	}
}

// nextYear is the first year at or after y that matches; past maxYear if none.
func (p *pattern) nextYear(y int) int {
	if p.years == nil {
		return y
	}
	next := maxYear + 1
	for _, r := range p.years {
		switch {
		case y <= r.first:
			next = min(next, r.first)
		case y <= r.last:
			if up := y + (r.step-(y-r.first)%r.step)%r.step; up <= r.last {
				next = min(next, up)
			}
		}
	}
	return next
}

// prevYear is the last year at or before y that matches; before minYear if none.
func (p *pattern) prevYear(y int) int {
	if p.years == nil {
		return y
	}
	prev := minYear - 1
	for _, r := range p.years {
		if y >= r.first {
			at := min(y, r.last)
			prev = max(prev, at-(at-r.first)%r.step)
		}
	}
	return prev
}

// month is the set of matching days in a month of that length that begins on
// that weekday.
func (p *pattern) month(length, first int) uint32 {
	valid := allDays >> (31 - length) & allDays
	byDay := p.days & valid
	byWeekday := eachWeek(p.weekdays, first) & valid
	if p.fromLast|p.nearest != 0 || p.lastWorkday {
		byDay |= p.specialDays(length, first)
	}
	if p.nth != 0 || p.last != 0 {
		byWeekday |= p.specialWeekdays(length, first) & valid
	}
	if p.both {
		return byDay & byWeekday
	}
	return byDay | byWeekday
}

func (p *pattern) specialDays(length, first int) (days uint32) {
	for rest := p.fromLast; rest != 0; rest &= rest - 1 {
		if before := bits.TrailingZeros32(rest); before < length {
			days |= 1 << (length - before)
		}
	}
	for rest := p.nearest; rest != 0; rest &= rest - 1 {
		if d := bits.TrailingZeros32(rest); d <= length {
			days |= 1 << workday(d, length, first)
		}
	}
	if p.lastWorkday {
		days |= 1 << workday(length, length, first)
	}
	return days
}

// workday is the weekday, Monday to Friday, nearest to day d of the month:
// the Friday before a Saturday and the Monday after a Sunday, unless that
// would leave the month.
func workday(d, length, first int) int {
	switch (first + d - 1) % 7 {
	case 6: // Saturday
		if d == 1 {
			return 3
		}
		return d - 1
	case 0: // Sunday
		if d == length {
			return d - 2
		}
		return d + 1
	}
	return d
}

func (p *pattern) specialWeekdays(length, first int) (days uint32) {
	for week := range 5 {
		days |= from(uint8(p.nth>>(7*week)&127), first) << (7*week + 1)
	}
	end := length - 6 // the last seven days begin here
	return days | from(p.last, (first+end-1)%7)<<end
}

// eachWeek spreads a set of weekdays over a month that begins on first.
func eachWeek(weekdays uint8, first int) uint32 {
	week := from(weekdays, first) << 1
	return week | week<<7 | week<<14 | week<<21 | week<<28
}

// from renumbers a set of weekdays so that bit 0 is the weekday first.
func from(weekdays uint8, first int) uint32 {
	return (uint32(weekdays)>>first | uint32(weekdays)<<(7-first)) & 127
}

// possible reports whether any day matches, ever. A year is known by its
// length and its first weekday, and all fourteen kinds come within 400 years,
// so there is no calendar to search.
func (p *pattern) possible() bool {
	var in [2][7]bool
	for kind, y := range [...]int{2000, 2001} {
		for first := range 7 {
			in[kind][first] = p.inYear(y, first)
			if in[kind][first] && p.years == nil {
				return true
			}
		}
	}
	for _, r := range p.years {
		for n, y := 0, r.first; n < 400 && y <= r.last; n, y = n+1, y+r.step {
			kind := 1
			if leap(y) {
				kind = 0
			}
			if in[kind][weekday(dateOf(y, 1, 1))] {
				return true
			}
		}
	}
	return false
}

// inYear reports whether any day matches in a year as long as y that begins on
// the weekday first.
func (p *pattern) inYear(y, first int) bool {
	for m := 1; m <= 12; m++ {
		length := monthLength(y, m)
		if p.months>>m&1 != 0 && p.month(length, first) != 0 {
			return true
		}
		first = (first + length) % 7
	}
	return false
}
