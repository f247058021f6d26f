package cron

import (
	"math"
	"time"
)

// instant is seconds since the Unix epoch.
type instant = int64

const (
	// maxShift is more than a zone's clock ever jumps, in seconds. Beyond that
	// distance from a jump, instants and wall times are in the same order.
	maxShift = 2 * day

	distantPast   instant = math.MinInt64 / 4
	distantFuture instant = math.MaxInt64 / 4
)

// stretch is a stretch of time in which the zone's offset stays the same. It
// need not be the longest one: two stretches may meet without a jump.
type stretch struct {
	offset int64   // seconds east of UTC: wall time = instant + offset
	end    instant // excluded
	start  instant // only a hint, see startOf
}

// stretchAt is the stretch around u.
//
// Go's ZoneBounds is meant for finding the offset of a wall time and is exact
// only near a jump. In the years that a zone's last rule covers, the end that
// it gives on the last day of a leap year is one day early, so not after u;
// the offset is then known to hold until the year ends. And the start may lie
// before the last jump that the zone's table lists.
func stretchAt(loc *time.Location, u instant) stretch {
	if loc == time.UTC {
		return stretch{start: distantPast, end: distantFuture}
	}
	t := time.Unix(u, 0).In(loc)
	_, offset := t.Zone()
	start, end := t.ZoneBounds()
	s := stretch{offset: int64(offset), start: distantPast, end: distantFuture}
	if !start.IsZero() {
		s.start = start.Unix()
	}
	if !end.IsZero() {
		s.end = end.Unix()
	}
	if s.end <= u {
		date, _ := floorDiv(u, day)
		s.end = (date + 1) * day
	}
	return s
}

// startOf is the true start of the stretch s around u: the ends can be relied
// on, so they are followed from the hint.
func startOf(loc *time.Location, s stretch, u instant) instant {
	start := s.start
	for start != distantPast {
		end := stretchAt(loc, start).end
		if end > u {
			break
		}
		start = end
	}
	return start
}

func offsetAt(loc *time.Location, u instant) int64 {
	_, offset := time.Unix(u, 0).In(loc).Zone()
	return int64(offset)
}

// steady reports whether there was no jump within maxShift before u, which s
// is the stretch around.
func steady(loc *time.Location, s stretch, u instant) bool {
	before := u - maxShift
	return s.start <= before && (s.start == distantPast || offsetAt(loc, before) == s.offset)
}

// reached is the bound of the wall times that the clock has passed before u,
// by showing them or by jumping over them: everything below it. At a jump
// forward it is where the gap begins; after a jump back, where the repetition
// ends.
func reached(loc *time.Location, u instant) wall {
	high := wall(math.MinInt64)
	for at := u - maxShift; at < u; {
		s := stretchAt(loc, at)
		at = min(s.end, u)
		high = max(high, at+s.offset)
	}
	return high
}

// arrival is the first instant at which the clock shows w or, where it jumps
// over w, the first instant after the jump.
func arrival(loc *time.Location, w wall) instant {
	for u := w - maxShift; ; {
		s := stretchAt(loc, u)
		if u+s.offset > w {
			return u
		}
		if at := w - s.offset; at < s.end {
			return at
		}
		u = s.end
	}
}

// passes counts the instants at which the clock shows the same wall time as at
// u, and says which of them u is, from 1.
func passes(loc *time.Location, u instant) (which, of int) {
	w := u + offsetAt(loc, u)
	for at := u - maxShift; at <= u+maxShift; {
		s := stretchAt(loc, at)
		if shown := w - s.offset; at <= shown && shown < s.end {
			of++
			if shown == u {
				which = of
			}
		}
		at = s.end
	}
	return which, of
}
