package cron

import "time"

// Ticks end a day before the years that count do, so that no zone shows them in
// another year.
const (
	firstTick instant = minWall + day
	lastTick  instant = maxWall - day
)

// Every is the schedule of the instants anchor + n×d with n ≥ 1, so it doesn't
// drift. d is whole seconds, at least one; a zero anchor is the Unix epoch.
// The instants are in the anchor's zone; in UTC if that is time.Local.
func Every(d time.Duration, anchor time.Time) (Schedule, error) {
	if err := checkInterval(d, d.String()); err != nil {
		return Schedule{}, err
	}
	loc := anchor.Location()
	if loc == time.Local {
		loc = time.UTC
	}
	return newInterval(d, anchor, loc), nil
}

func checkInterval(d time.Duration, written string) error {
	switch {
	case d < time.Second:
		return refuse(fieldEvery, written, "is less than one second")
	case d%time.Second != 0:
		return refuse(fieldEvery, written, "is not a whole number of seconds")
	}
	return nil
}

func newInterval(d time.Duration, anchor time.Time, loc *time.Location) Schedule {
	if anchor.IsZero() {
		anchor = time.Unix(0, 0)
	}
	p := &plan{kind: interval, loc: loc, text: "@every " + d.String(), every: d}
	p.setAnchor(anchor)
	return Schedule{p}
}

// tick is the nth instant of an interval.
func (p *plan) tick(n int64) time.Time {
	u := p.anchorSec + n*int64(p.every/time.Second)
	return time.Unix(u, int64(p.anchorNsec)).In(p.loc)
}

// ticks is how many whole intervals lie between the anchor and t; negative
// before the anchor. Seconds are used because a Duration ends at 292 years.
func (p *plan) ticks(t time.Time) int64 {
	seconds := t.Unix() - p.anchorSec
	if t.Nanosecond() < int(p.anchorNsec) {
		seconds--
	}
	n, _ := floorDiv(seconds, int64(p.every/time.Second))
	return n
}

func (p *plan) nextInterval(t time.Time) (time.Time, bool) {
	if t.Unix() < firstTick {
		t = time.Unix(firstTick, 0).Add(-1)
	}
	if t.Unix() > lastTick {
		return time.Time{}, false
	}
	next := p.tick(max(p.ticks(t)+1, 1))
	if next.Unix() > lastTick {
		return time.Time{}, false
	}
	return next, true
}

func (p *plan) prevInterval(t time.Time) (time.Time, bool) {
	if t.Unix() > lastTick {
		t = time.Unix(lastTick+1, 0)
	}
	if t.Unix() < firstTick {
		return time.Time{}, false
	}
	n := p.ticks(t.Add(-1))
	if n < 1 {
		return time.Time{}, false
	}
	prev := p.tick(n)
	return prev, prev.Unix() >= firstTick
}
