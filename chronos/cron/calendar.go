package cron

import "math/bits"

// A wall time is what a zone's clock and calendar show, as seconds since
// 1970-01-01 00:00:00 of that calendar. Calendar arithmetic knows wall times
// only; zone.go ties them to instants.
type wall = int64

const (
	minute = 60
	hour   = 60 * minute
	day    = 24 * hour

	minYear, maxYear = 1, 9999
	minWall          = -719162 * day     // 0001-01-01 00:00:00
	maxWall          = 2932897*day - 1   // 9999-12-31 23:59:59
	firstYear        = 1970              // of the year field
	allDays          = uint32(1<<32 - 2) // bits 1 to 31
	weekend          = 1<<0 | 1<<6       // Sunday and Saturday as a set of weekdays
)

// calendar is the fields of an expression as sets: bit n of a set stands for
// the value n.
type calendar struct {
	seconds, minutes uint64
	hours            uint32
	months           uint16
	years            []yearSpan // nil: every year

	// Days of the month: by number, by distance from the last day, the nearest
	// weekday to a number, and the last weekday.
	days        uint32
	fromLast    uint32
	nearest     uint32
	lastWorkday bool

	// Days of the week: by weekday, by weekday and week (bit 7×(n-1) + weekday
	// for the nth one of a month), and the last one of a month.
	weekdays uint8
	nth      uint64
	last     uint8

	both  bool // a day must match both day fields, not just either
	daily bool // every day matches, so that there is nothing to look up
}

// yearSpan is every step-th year from first to last.
type yearSpan struct{ first, last, step int }

// next is the first wall time at or after w that matches.
func (c *calendar) next(w wall) (wall, bool) {
	w = max(w, minWall)
	date, clock := floorDiv(w, day)
	if c.onDate(date) {
		if clock, ok := c.nextClock(clock); ok && w <= maxWall {
			return date*day + clock, true
		}
	}
	date, ok := c.nextDate(date + 1)
	if !ok {
		return 0, false
	}
	clock, _ = c.nextClock(0)
	return date*day + clock, true
}

// prev is the last wall time at or before w that matches.
func (c *calendar) prev(w wall) (wall, bool) {
	w = min(w, maxWall)
	date, clock := floorDiv(w, day)
	if c.onDate(date) {
		if clock, ok := c.prevClock(clock); ok && w >= minWall {
			return date*day + clock, true
		}
	}
	date, ok := c.prevDate(date - 1)
	if !ok {
		return 0, false
	}
	clock, _ = c.prevClock(day - 1)
	return date*day + clock, true
}

// nextClock is the first time of day, in seconds, at or after clock.
func (c *calendar) nextClock(clock int64) (int64, bool) {
	h, m, s := int(clock/hour), int(clock/minute%60), int(clock%60)
	if c.hours>>h&1 != 0 {
		if c.minutes>>m&1 != 0 {
			if rest := c.seconds >> s; rest != 0 {
				return clock + int64(bits.TrailingZeros64(rest)), true
			}
		}
		if rest := c.minutes >> (m + 1); rest != 0 {
			m += 1 + bits.TrailingZeros64(rest)
			return int64(h)*hour + int64(m)*minute + int64(bits.TrailingZeros64(c.seconds)), true
		}
	}
	rest := c.hours >> (h + 1)
	if rest == 0 {
		return 0, false
	}
	h += 1 + bits.TrailingZeros32(rest)
	return int64(h)*hour + int64(bits.TrailingZeros64(c.minutes))*minute + int64(bits.TrailingZeros64(c.seconds)), true
}

// prevClock is the last time of day, in seconds, at or before clock.
func (c *calendar) prevClock(clock int64) (int64, bool) {
	h, m, s := int(clock/hour), int(clock/minute%60), int(clock%60)
	if c.hours>>h&1 != 0 {
		if c.minutes>>m&1 != 0 {
			if rest := c.seconds << (63 - s); rest != 0 {
				return clock - int64(bits.LeadingZeros64(rest)), true
			}
		}
		if rest := c.minutes << (64 - m); rest != 0 {
			m -= 1 + bits.LeadingZeros64(rest)
			return int64(h)*hour + int64(m)*minute + highest(c.seconds), true
		}
	}
	rest := c.hours << (32 - h)
	if rest == 0 {
		return 0, false
	}
	h -= 1 + bits.LeadingZeros32(rest)
	return int64(h)*hour + highest(c.minutes)*minute + highest(c.seconds), true
}

func highest(set uint64) int64 { return int64(bits.Len64(set) - 1) }

// onDate reports whether the date, in days since 1970-01-01, matches.
func (c *calendar) onDate(date int64) bool {
	if c.daily {
		return true
	}
	y, m, d := civil(date)
	if c.months>>m&1 == 0 || c.nextYear(y) != y {
		return false
	}
	return c.month(monthLength(y, m), weekday(date-int64(d)+1))>>d&1 != 0
}

// nextDate is the first matching date at or after date.
func (c *calendar) nextDate(date int64) (int64, bool) {
	if c.daily {
		return date, date <= maxWall/day
	}
	y, m, d := civil(date)
	for {
		if next := c.nextYear(y); next != y {
			y, m, d = next, 1, 1
		}
		if y > maxYear {
			return 0, false
		}
		for ; m <= 12; m, d = m+1, 1 {
			rest := c.months >> m
			if rest == 0 {
				break
			}
			if skip := bits.TrailingZeros16(rest); skip > 0 {
				m, d = m+skip, 1
			}
			first := dateOf(y, m, 1)
			if rest := c.month(monthLength(y, m), weekday(first)) >> d; rest != 0 {
				return first + int64(d-1+bits.TrailingZeros32(rest)), true
			}
		}
		y, m, d = y+1, 1, 1
	}
}

// prevDate is the last matching date at or before date.
func (c *calendar) prevDate(date int64) (int64, bool) {
	if c.daily {
		return date, date >= minWall/day
	}
	y, m, d := civil(date)
	for {
		if prev := c.prevYear(y); prev != y {
			y, m, d = prev, 12, 31
		}
		if y < minYear {
			return 0, false
		}
		for ; m >= 1; m, d = m-1, 31 {
			rest := c.months << (15 - m)
			if rest == 0 {
				break
			}
			if skip := bits.LeadingZeros16(rest); skip > 0 {
				m, d = m-skip, 31
			}
			first := dateOf(y, m, 1)
			if rest := c.month(monthLength(y, m), weekday(first)) << (31 - d); rest != 0 {
				return first + int64(d-1-bits.LeadingZeros32(rest)), true
			}
		}
		y, m, d = y-1, 12, 31
	}
}

// nextYear is the first year at or after y that matches; past maxYear if none.
func (c *calendar) nextYear(y int) int {
	if c.years == nil {
		return y
	}
	next := maxYear + 1
	for _, r := range c.years {
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
func (c *calendar) prevYear(y int) int {
	if c.years == nil {
		return y
	}
	prev := minYear - 1
	for _, r := range c.years {
		if y >= r.first {
			at := min(y, r.last)
			prev = max(prev, at-(at-r.first)%r.step)
		}
	}
	return prev
}

// month is the set of matching days in a month of that length that begins on
// that weekday.
func (c *calendar) month(length, first int) uint32 {
	valid := allDays >> (31 - length) & allDays
	byDay := c.days & valid
	byWeekday := eachWeek(c.weekdays, first) & valid
	if c.fromLast|c.nearest != 0 || c.lastWorkday {
		byDay |= c.specialDays(length, first)
	}
	if c.nth != 0 || c.last != 0 {
		byWeekday |= c.specialWeekdays(length, first) & valid
	}
	if c.both {
		return byDay & byWeekday
	}
	return byDay | byWeekday
}

func (c *calendar) specialDays(length, first int) (days uint32) {
	for rest := c.fromLast; rest != 0; rest &= rest - 1 {
		if before := bits.TrailingZeros32(rest); before < length {
			days |= 1 << (length - before)
		}
	}
	for rest := c.nearest; rest != 0; rest &= rest - 1 {
		if d := bits.TrailingZeros32(rest); d <= length {
			days |= 1 << workday(d, length, first)
		}
	}
	if c.lastWorkday {
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

func (c *calendar) specialWeekdays(length, first int) (days uint32) {
	for week := range 5 {
		days |= from(uint8(c.nth>>(7*week)&127), first) << (7*week + 1)
	}
	end := length - 6 // the last seven days begin here
	return days | from(c.last, (first+end-1)%7)<<end
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
func (c *calendar) possible() bool {
	var in [2][7]bool
	for kind, y := range [...]int{2000, 2001} {
		for first := range 7 {
			in[kind][first] = c.inYear(y, first)
			if in[kind][first] && c.years == nil {
				return true
			}
		}
	}
	for _, r := range c.years {
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
func (c *calendar) inYear(y, first int) bool {
	for m := 1; m <= 12; m++ {
		length := monthLength(y, m)
		if c.months>>m&1 != 0 && c.month(length, first) != 0 {
			return true
		}
		first = (first + length) % 7
	}
	return false
}

func weekday(date int64) int {
	_, wd := floorDiv(date+4, 7) // 1970-01-01 was a Thursday
	return int(wd)
}

func monthLength(y, m int) int {
	switch m {
	case 2:
		if leap(y) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

func leap(y int) bool { return y%4 == 0 && (y%100 != 0 || y%400 == 0) }

// dateOf counts the days from 1970-01-01 to a date of the Gregorian calendar,
// which is taken to have held always. Years are counted from March, so that
// the leap day is the last of its year.
func dateOf(y, m, d int) int64 {
	y, m = y+(m-3-11)/12, (m+9)%12 // March is month 0
	y64 := int64(y)
	era, year := floorDiv(y64, 400)
	return era*146097 + year*365 + year/4 - year/100 + int64((153*m+2)/5+d-1) - 719468
}

// civil is the inverse of dateOf.
func civil(date int64) (y, m, d int) {
	era, n := floorDiv(date+719468, 146097)         // days since 1 March of a year divisible by 400
	year := (n - n/1460 + n/36524 - n/146096) / 365 // of the 400
	n -= year*365 + year/4 - year/100               // days since its 1 March
	m = int(5*n+2) / 153                            // months since March
	d = int(n) - (153*m+2)/5 + 1
	y = int(era*400 + year)
	if m < 10 {
		return y, m + 3, d
	}
	return y + 1, m - 9, d
}

// floorDiv divides rounding down; the remainder is never negative.
func floorDiv(a, b int64) (quotient, remainder int64) {
	q, r := a/b, a%b
	if r < 0 {
		q, r = q-1, r+b
	}
	return q, r
}
