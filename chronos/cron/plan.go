package cron

import "time"

// plan is what a Schedule points to: one of three kinds. It is kept to 64 bytes, since
// a planner reads very many.
type plan struct {
	loc  *time.Location
	text string
	kind kind

	// Of an expression. Each wall time of a fixed one is an appointment: it is run
	// once, in its first pass, unless it is to run in all of them, and made up for if
	// the clock jumps over it, unless gaps are skipped.
	fixed, skipGaps, allPasses bool

	// The anchor is what an interval is counted from, the instant of a schedule that
	// has one, and when an expression was made, which Lint asks for.
	anchorNsec int32
	anchorSec  instant

	*pattern               // of an expression
	every    time.Duration // of an interval: whole seconds
	nominal  wall          // of one instant: the wall time that was asked for
}

func (p *plan) setAnchor(t time.Time) { p.anchorSec, p.anchorNsec = t.Unix(), int32(t.Nanosecond()) }

func (p *plan) anchor() time.Time {
	return time.Unix(p.anchorSec, int64(p.anchorNsec)).In(p.loc)
}

type kind uint8

const (
	expression kind = iota // fields
	interval               // @every
	once                   // one instant
)

func (p *plan) next(t time.Time) (time.Time, bool) {
	switch p.kind {
	case once:
		if at := p.anchor(); at.After(t) {
			return at, true
		}
		return time.Time{}, false
	case interval:
		return p.nextInterval(t)
	}
	u, ok := p.nextInstant(t.Unix() + 1)
	if !ok {
		return time.Time{}, false
	}
	return time.Unix(u, 0).In(p.loc), true
}

func (p *plan) prev(t time.Time) (time.Time, bool) {
	switch p.kind {
	case once:
		if at := p.anchor(); at.Before(t) {
			return at, true
		}
		return time.Time{}, false
	case interval:
		return p.prevInterval(t)
	}
	u := t.Unix()
	if t.Nanosecond() == 0 {
		u--
	}
	u, ok := p.prevInstant(u)
	if !ok {
		return time.Time{}, false
	}
	return time.Unix(u, 0).In(p.loc), true
}

// nextInstant is the first instant of an expression at or after u.
//
// Within a stretch, instants and wall times run in step: the next match of the
// pattern is the answer if the stretch lasts that long. A fixed time belongs
// to the first instant at which the clock has reached it, so after a jump
// forward the wall times in the gap count at once, and after a jump back those
// that had been shown before don't.
func (p *plan) nextInstant(u instant) (instant, bool) {
	u = max(u, minWall)
	for u <= maxWall {
		s := stretchAt(p.loc, u)
		from := u + s.offset
		if p.fixed && !steady(p.loc, s, u) {
			high := reached(p.loc, u)
			if !p.skipGaps && p.between(high, from) {
				return u, true
			}
			if !p.allPasses {
				from = max(from, high)
			}
		}
		w, ok := p.pattern.next(from)
		if ok && w-s.offset < s.end {
			return w - s.offset, w-s.offset <= maxWall
		}
		u = s.end
		if u+s.offset-maxShift >= from { // nothing before w will be shown
			if !ok {
				return 0, false
			}
			u = max(u, w-s.offset-maxShift)
		}
	}
	return 0, false
}

// prevInstant is the last instant of an expression at or before u: the mirror
// of nextInstant.
func (p *plan) prevInstant(u instant) (instant, bool) {
	u = min(u, maxWall)
	for u >= minWall {
		s := stretchAt(p.loc, u)
		start := startOf(p.loc, s, u)
		low := start + s.offset
		w, ok := p.pattern.prev(u + s.offset)
		if ok && w >= low+maxShift {
			return w - s.offset, w-s.offset >= minWall
		}
		high := low
		if p.fixed && start != distantPast {
			high = reached(p.loc, start)
		}
		if ok && w >= low && (p.allPasses || w >= high) {
			return w - s.offset, true
		}
		if !p.skipGaps && p.between(high, low) {
			return start, true
		}
		far := u-start >= maxShift
		u = start - 1
		if far { // nothing after w was shown before
			if !ok {
				return 0, false
			}
			u = min(u, w-s.offset+maxShift)
		}
	}
	return 0, false
}

// between reports whether the pattern matches in the gap from low to high
// (excluded).
func (p *plan) between(low, high wall) bool {
	if low >= high {
		return false
	}
	w, ok := p.pattern.next(low)
	return ok && w < high
}
