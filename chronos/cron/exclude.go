package cron

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// maxDates is how many entries a calendar may have.
const maxDates = 10_000

// DateRange is the dates from From to To, both included and written as in
// 2026-12-25. An empty To means From alone.
type DateRange struct{ From, To string }

// Calendar is a set of dates on which jobs don't run, such as a country's
// public holidays. It is a small immutable value; the zero value has no dates.
type Calendar struct{ c *dateSet }

// dateSet is a calendar's dates as spans in order that neither meet nor overlap.
type dateSet struct {
	name  string
	loc   *time.Location
	spans []dateSpan
}

// dateSpan is the days from first to last, both included, since 1970-01-01.
type dateSpan struct{ first, last int64 }

// NewCalendar makes a calendar of dates in any order, which may overlap. The
// dates are those of the zone loc (nil is UTC): a day of 23 or 25 hours is
// excluded whole. The name is what a note says. It fails with an *Error for the
// field "timezone", "dates", or the entry and member that is wrong, counted
// from 0: "dates[2]", "dates[2].from" or "dates[2].to".
func NewCalendar(name string, loc *time.Location, dates []DateRange) (Calendar, error) {
	loc, err := checkLocation(loc)
	if err != nil {
		return Calendar{}, err
	}
	if len(dates) > maxDates {
		return Calendar{}, refuse(fieldDates, strconv.Itoa(len(dates))+" entries", "are too many: at most "+strconv.Itoa(maxDates))
	}
	spans := make([]dateSpan, len(dates))
	for i, d := range dates {
		if spans[i], err = d.parse(fieldDates + "[" + strconv.Itoa(i) + "]"); err != nil {
			return Calendar{}, err
		}
	}
	slices.SortFunc(spans, func(a, b dateSpan) int { return cmp.Compare(a.first, b.first) })
	merged := spans[:0]
	for _, s := range spans {
		if n := len(merged); n > 0 && s.first <= merged[n-1].last+1 {
			merged[n-1].last = max(merged[n-1].last, s.last)
			continue
		}
		merged = append(merged, s)
	}
	return Calendar{&dateSet{name, loc, merged}}, nil
}

func (r DateRange) parse(field string) (dateSpan, error) {
	if r.To == "" {
		d, err := parseDate(field, r.From)
		return dateSpan{d, d}, err
	}
	first, err := parseDate(field+".from", r.From)
	if err != nil {
		return dateSpan{}, err
	}
	last, err := parseDate(field+".to", r.To)
	if err != nil {
		return dateSpan{}, err
	}
	if last < first {
		return dateSpan{}, refuse(field, r.From+" to "+r.To, "ends before it begins")
	}
	return dateSpan{first, last}, nil
}

func parseDate(field, text string) (int64, error) {
	t, err := time.Parse(time.DateOnly, text)
	switch {
	case err != nil:
		return 0, refuse(field, text, "is not a date such as 2026-12-25")
	case t.Year() < minYear:
		return 0, refuse(field, text, "is outside the years 1 to 9999")
	}
	date, _ := floorDiv(t.Unix(), day)
	return date, nil
}

// Name is what the calendar was called.
func (c Calendar) Name() string {
	if c.c == nil {
		return ""
	}
	return c.c.name
}

// Excludes reports whether the date of t, in the calendar's zone, is one of the
// calendar's. It allocates nothing.
func (c Calendar) Excludes(t time.Time) bool {
	if c.c == nil || len(c.c.spans) == 0 {
		return false
	}
	u := t.Unix()
	date, _ := floorDiv(u+offsetAt(c.c.loc, u), day)
	at, _ := slices.BinarySearchFunc(c.c.spans, date, func(s dateSpan, date int64) int { return cmp.Compare(s.last, date) })
	return at < len(c.c.spans) && c.c.spans[at].first <= date
}

// describe says which date of the calendar t falls on, and whose it is.
func (c Calendar) describe(t time.Time) string {
	return t.In(c.c.loc).Format(time.DateOnly) + " is in the calendar " + c.c.name
}
