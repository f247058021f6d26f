package cron

import (
	"fmt"
	"time"
)

// Note says why an instant isn't an ordinary one.
type Note struct {
	Kind NoteKind
	Text string // one sentence, without a full stop
}

// String is the kind and the text, as in "gap: 2026-03-29 02:30 doesn't exist: …".
func (n Note) String() string { return string(n.Kind) + ": " + n.Text }

// NoteKind is a stable word.
type NoteKind string

const (
	NoteGap     NoteKind = "gap"     // makes up for a time that the clock jumped over
	NoteOverlap NoteKind = "overlap" // the clock shows this time more than once

	// NoteExcluded is given by a Timetable alone.
	NoteExcluded NoteKind = "excluded" // doesn't run: a calendar has its date
)

// Note says what is special about at, an instant that Next, Prev or Between
// gave; false means nothing.
func (s Schedule) Note(at time.Time) (Note, bool) {
	p := s.p
	if p == nil || p.kind == interval || p.loc == time.UTC {
		return Note{}, false
	}
	u := at.Unix()
	shown := u + offsetAt(p.loc, u)
	if p.kind == once && p.nominal != shown {
		return gapNote(p.nominal, reached(p.loc, u), shown), true
	}
	if p.fixed && !p.skipGaps {
		high := reached(p.loc, u)
		if p.between(high, shown) {
			missed, _ := p.pattern.next(high)
			return gapNote(missed, high, shown), true
		}
	}
	which, of := passes(p.loc, u)
	if of < 2 {
		return Note{}, false
	}
	return Note{NoteOverlap, fmt.Sprintf("the clock shows %s %s; this is the %s pass", wallText(shown), times(of), ordinal(which))}, true
}

func gapNote(missed, from, to wall) Note {
	return Note{NoteGap, fmt.Sprintf("%s doesn't exist: the clock jumps from %s to %s", wallText(missed), wallText(from), wallText(to))}
}

// wallText writes a wall time as in "2026-03-29 02:30", with seconds if it has
// any.
func wallText(w wall) string {
	layout := "2006-01-02 15:04"
	if w%minute != 0 {
		layout += ":05"
	}
	return time.Unix(w, 0).UTC().Format(layout)
}

func times(n int) string {
	if n == 2 {
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}
