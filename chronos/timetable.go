package chronos

import (
	"strings"
	"time"

	"holdfast/chronos/cron"
)

// timetable is a schedule within its bounds: the one source of instants, for the planner,
// for upcoming and for the preview.
type timetable struct {
	schedule cron.Schedule
	from, to time.Time // instants are from ≤ t < to; zero: unbounded
}

// next is the first instant later than t.
func (tt timetable) next(t time.Time) (time.Time, bool) {
	if !tt.from.IsZero() && t.Before(tt.from) {
		t = tt.from.Add(-1)
	}
	at, ok := tt.schedule.Next(t)
	if !ok || !tt.to.IsZero() && !at.Before(tt.to) {
		return time.Time{}, false
	}
	return at, true
}

// prev is the last instant earlier than t.
func (tt timetable) prev(t time.Time) (time.Time, bool) {
	if !tt.to.IsZero() && t.After(tt.to) {
		t = tt.to
	}
	at, ok := tt.schedule.Prev(t)
	if !ok || at.Before(tt.from) {
		return time.Time{}, false
	}
	return at, true
}

// compile reads the timing of a spec. seed is the job's name, anchor what intervals are
// counted from unless there is a start_at, which then is an interval's first instant. It
// fails with a [FieldError].
func (s *Spec) compile(seed string, anchor time.Time) (timetable, error) {
	tt := timetable{}
	if s.StartAt != nil {
		tt.from = *s.StartAt
	}
	if s.EndAt != nil {
		tt.to = *s.EndAt
	}
	loc, err := cron.LoadLocation(s.Timezone)
	if err != nil {
		return tt, scheduleError(err)
	}
	options := cron.Options{
		Location: loc, Seed: seed, Anchor: anchor,
		DayMatch: cron.DayMatch(s.DayMatch), Gap: cron.GapPolicy(s.DSTGap), Overlap: cron.OverlapPolicy(s.DSTOverlap),
	}
	// The policies are judged for every kind of timing, whether it needs them or not.
	if _, err := cron.Parse("* * * * *", options); err != nil {
		return tt, scheduleError(err)
	}
	tt.schedule, err = s.Schedule.parse(options, s.StartAt)
	if err != nil {
		return tt, scheduleError(err)
	}
	return tt, nil
}

func (t Timing) parse(o cron.Options, start *time.Time) (cron.Schedule, error) {
	given := 0
	for _, is := range []bool{t.Expression != "", t.Every != 0, t.At != ""} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return cron.Schedule{}, &FieldError{"schedule", `must be an expression, {"every": …} or {"at": …}`, cron.ErrInvalidSchedule}
	case t.At != "":
		return parseAt(t.At, o.Location)
	case t.Every != 0:
		if start != nil {
			o.Anchor = start.Add(-t.Every)
		}
		return cron.Every(t.Every, o.Anchor.In(o.Location))
	case strings.HasPrefix(strings.TrimLeft(t.Expression, " \t"), "@every") && start != nil:
		s, err := cron.Parse(t.Expression, o)
		if err != nil {
			return s, err
		}
		first, _ := s.Next(o.Anchor)
		o.Anchor = start.Add(o.Anchor.Sub(first))
		return cron.Parse(t.Expression, o)
	}
	return cron.Parse(t.Expression, o)
}

func parseAt(local string, loc *time.Location) (cron.Schedule, error) {
	s, err := cron.At(local, loc)
	if err != nil {
		return s, err
	}
	at, _ := s.Next(time.Time{})
	if !at.Equal(at.Truncate(time.Millisecond)) {
		return s, &FieldError{"schedule.at", "is finer than a millisecond", cron.ErrInvalidSchedule}
	}
	return s, nil
}

// Instant is a time of a schedule as people are shown it.
type Instant struct {
	At    time.Time
	Local string // in the schedule's zone, with its offset
	Note  string // why it isn't an ordinary one; empty: it is
}

func (tt timetable) instant(at time.Time) Instant {
	in := Instant{At: at.UTC(), Local: at.In(tt.schedule.Location()).Format(time.RFC3339Nano)}
	if note, ok := tt.schedule.Note(at); ok {
		in.Note = note.Text
	}
	return in
}

// Preview is what a schedule would do.
type Preview struct {
	Times       []Instant
	Description string
	Warnings    []string
}

// PreviewSpec gives the first count instants after from, which also is what intervals are
// counted from. Only the timing of the spec counts; seed stands for the job's name. It
// fails with a [FieldError].
func PreviewSpec(s Spec, seed string, from time.Time, count int) (Preview, error) {
	tt, err := s.compile(seed, from)
	if err != nil {
		return Preview{}, err
	}
	p := Preview{Description: tt.schedule.Describe()}
	at, ok := from, true
	for len(p.Times) < count {
		if at, ok = tt.next(at); !ok {
			break
		}
		p.Times = append(p.Times, tt.instant(at))
	}
	for _, w := range tt.schedule.Lint() {
		p.Warnings = append(p.Warnings, w.Message)
	}
	return p, nil
}
