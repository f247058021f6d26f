package cron

import (
	"iter"
	"time"
)

// Timetable is a schedule between bounds, with days on which it doesn't run.
// Whoever previews, shows or plans a job asks its timetable, so that all see
// the same instants.
//
// An excluded instant stays one of the timetable's: it is shown and accounted
// for, and [Timetable.Excluded] says that it doesn't run. The zero value has no
// instants. Make it once and use it from many goroutines.
type Timetable struct {
	Schedule Schedule
	Start    time.Time  // the first instant that counts; zero: no bound
	End      time.Time  // the first that doesn't any more; zero: no bound
	Exclude  []Calendar // any of them excludes an instant
}

// Next returns the first instant later than t; false means that there is none,
// now or ever after. It allocates nothing.
func (tt Timetable) Next(t time.Time) (time.Time, bool) {
	if !tt.Start.IsZero() && t.Before(tt.Start) {
		t = tt.Start.Add(-1)
	}
	at, ok := tt.Schedule.Next(t)
	if !ok || !tt.End.IsZero() && !at.Before(tt.End) {
		return time.Time{}, false
	}
	return at, true
}

// Prev returns the last instant earlier than t; false means that there is none
// before it.
func (tt Timetable) Prev(t time.Time) (time.Time, bool) {
	if !tt.End.IsZero() && t.After(tt.End) {
		t = tt.End
	}
	at, ok := tt.Schedule.Prev(t)
	if !ok || !tt.Start.IsZero() && at.Before(tt.Start) {
		return time.Time{}, false
	}
	return at, true
}

// Between yields, in order, the instants from from (included) to to (excluded).
func (tt Timetable) Between(from, to time.Time) iter.Seq[time.Time] {
	return between(tt.Next, from, to)
}

// Excluded returns the first calendar that excludes the instant at; false means
// that none does, so that it runs.
func (tt Timetable) Excluded(at time.Time) (Calendar, bool) {
	for _, c := range tt.Exclude {
		if c.Excludes(at) {
			return c, true
		}
	}
	return Calendar{}, false
}

// Note says what is special about at, an instant of the timetable: first of
// all that it doesn't run, else what [Schedule.Note] says.
func (tt Timetable) Note(at time.Time) (Note, bool) {
	if c, ok := tt.Excluded(at); ok {
		return Note{NoteExcluded, "doesn't run: " + c.describe(at)}, true
	}
	return tt.Schedule.Note(at)
}
