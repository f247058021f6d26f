package cron

import (
	"strings"
	"time"
)

// At is the schedule of a single instant. local is a date and time as in
// RFC 3339, "2026-12-24T18:00:00"; without an offset it is the wall time of
// loc (nil is UTC), with one ("…Z", "…+01:00") it is that instant. A time that
// the zone's clock jumps over means the first instant after the jump; one that
// it shows twice means the first. Seconds may be left out, and have up to nine
// decimals. An instant that is past is not refused: Next tells.
func At(local string, loc *time.Location) (Schedule, error) {
	loc, err := checkLocation(loc)
	if err != nil {
		return Schedule{}, err
	}
	p := &plan{kind: once, loc: loc, text: local}
	if t, ok := parseAny(local, "2006-01-02T15:04:05Z07:00", "2006-01-02T15:04Z07:00"); ok {
		p.setAnchor(t)
		p.nominal = t.Unix() + offsetAt(loc, t.Unix())
	} else if t, ok := parseAny(local, "2006-01-02T15:04:05", "2006-01-02T15:04"); ok {
		p.nominal = t.Unix()
		u := arrival(loc, p.nominal)
		fraction := int64(t.Nanosecond())
		if u+offsetAt(loc, u) != p.nominal { // in a gap
			fraction = 0
		}
		p.setAnchor(time.Unix(u, fraction))
	} else {
		return Schedule{}, refuse(fieldAt, local, "is not a date and time such as 2026-12-24T18:00:00")
	}
	if y := p.anchor().Year(); y < minYear || y > maxYear {
		return Schedule{}, refuse(fieldAt, local, "is outside the years 1 to 9999")
	}
	return Schedule{p}, nil
}

// parseAny reads a date and time in the first layout that fits. A space may
// stand for the T.
func parseAny(text string, layouts ...string) (time.Time, bool) {
	if len(text) > maxExpression {
		return time.Time{}, false
	}
	text = strings.Replace(text, " ", "T", 1)
	for _, layout := range layouts {
		if t, err := time.Parse(layout, text); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}
