package cron

import (
	"iter"
	"time"
)

// DayMatch says how the two day fields combine when both restrict the day.
type DayMatch string

// GapPolicy says what becomes of a fixed time that the zone's clock jumps over.
type GapPolicy string

// OverlapPolicy says what becomes of a fixed time that the zone's clock shows twice.
type OverlapPolicy string

const (
	DayAny DayMatch = "any" // either field is enough; the default
	DayAll DayMatch = "all" // both fields must match

	GapRun  GapPolicy = "run"  // at the first instant after the gap, once; the default
	GapSkip GapPolicy = "skip" // not at all

	OverlapOnce  OverlapPolicy = "once"  // in the first pass; the default
	OverlapTwice OverlapPolicy = "twice" // in every pass
)

// Options are what an expression doesn't say itself. The zero value is UTC
// with every default.
type Options struct {
	// Location is the zone whose clock the fields mean; nil is UTC. time.Local
	// is refused, since replicas may not share it. See LoadLocation.
	Location *time.Location

	// Seed is the job's name; H spreads by it.
	Seed string

	DayMatch DayMatch      // "" is DayAny
	Gap      GapPolicy     // "" is GapRun; for fixed-time schedules
	Overlap  OverlapPolicy // "" is OverlapOnce; for fixed-time schedules

	// Anchor is when the schedule was made. The instants of @every are
	// Anchor + n×d with n ≥ 1 (zero: the Unix epoch), and an expression with a
	// year field and no instant after Anchor is refused as past (zero: never,
	// so that the schedule of an old job still parses).
	Anchor time.Time
}

// Schedule is a set of instants. It is a small immutable value: copy it
// freely, use it from many goroutines. The zero value has no instants.
type Schedule struct {
	p *plan
}

// Next returns the first instant that is strictly later than t, in the
// schedule's zone; false means that there is none, now or ever after. Instants
// after the year 9999 don't count. It allocates nothing.
func (s Schedule) Next(t time.Time) (time.Time, bool) {
	if s.p == nil {
		return time.Time{}, false
	}
	return s.p.next(t)
}

// Prev returns the last instant that is strictly earlier than t; false means
// that there is none before it. Instants before the year 1 don't count.
func (s Schedule) Prev(t time.Time) (time.Time, bool) {
	if s.p == nil {
		return time.Time{}, false
	}
	return s.p.prev(t)
}

// Between yields, in order, the instants from from (included) to to (excluded).
func (s Schedule) Between(from, to time.Time) iter.Seq[time.Time] {
	return between(s.Next, from, to)
}

func between(next func(time.Time) (time.Time, bool), from, to time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		at := from.Add(-1)
		for {
			n, ok := next(at)
			if !ok || !n.Before(to) || !yield(n) {
				return
			}
			at = n
		}
	}
}

// Location is the zone of the schedule.
func (s Schedule) Location() *time.Location {
	if s.p == nil {
		return time.UTC
	}
	return s.p.loc
}

// String is the schedule as it was written: the expression, "@every 1m30s", or
// the local time of At.
func (s Schedule) String() string {
	if s.p == nil {
		return ""
	}
	return s.p.text
}
