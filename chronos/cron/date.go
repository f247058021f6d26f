package cron

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
)

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
