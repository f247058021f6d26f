package chronos

import (
	"hash/fnv"
	"strings"
	"time"

	"holdfast/chronos/cron"
)

// timetable is a job's instants, and when each is to start: the one source of both, for the
// planner, for upcoming and for the preview.
type timetable struct {
	cron.Timetable
	seed   uint64        // of the job
	jitter time.Duration // in whole milliseconds
}

// effective is when the instant at is to start: later by its jitter, which anybody who knows the
// job's name works out the same.
func (tt timetable) effective(at time.Time) time.Time {
	if tt.jitter == 0 {
		return at
	}
	x := tt.seed ^ uint64(at.UnixMilli())*0x9e3779b97f4a7c15
	for range 2 { // the finalizer of MurmurHash3, so that neighbours share nothing
		x ^= x >> 33
		x *= 0xff51afd7ed558ccd
	}
	x ^= x >> 33
	return at.Add(time.Duration(x%uint64(tt.jitter/time.Millisecond)) * time.Millisecond)
}

func seedOf(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return h.Sum64()
}

// compile reads the timing of a spec. seed is the job's name, anchor what intervals are
// counted from unless there is a start_at, which then is an interval's first instant. The calendars
// are those that exclude names. It fails with a [FieldError].
func (s *Spec) compile(seed string, anchor time.Time, calendars []cron.Calendar) (timetable, error) {
	tt := timetable{Timetable: cron.Timetable{Exclude: calendars}, seed: seedOf(seed), jitter: s.Jitter}
	if s.StartAt != nil {
		tt.Start = *s.StartAt
	}
	if s.EndAt != nil {
		tt.End = *s.EndAt
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
	tt.Schedule, err = s.Schedule.parse(options, s.StartAt)
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
	At          time.Time
	EffectiveAt time.Time // with jitter
	Local       string    // in the schedule's zone, with its offset
	Note        string    // a stable word and why it isn't an ordinary one; empty: it is
}

func (tt timetable) instant(at time.Time) Instant {
	in := Instant{At: at.UTC(), EffectiveAt: tt.effective(at).UTC(), Local: at.In(tt.Schedule.Location()).Format(time.RFC3339Nano)}
	if note, ok := tt.Note(at); ok {
		in.Note = note.String()
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
	tt, err := s.compile(seed, from, nil)
	if err != nil {
		return Preview{}, err
	}
	p := Preview{Description: tt.Schedule.Describe()}
	at, ok := from, true
	for len(p.Times) < count {
		if at, ok = tt.Next(at); !ok {
			break
		}
		p.Times = append(p.Times, tt.instant(at))
	}
	for _, w := range tt.Schedule.Lint() {
		p.Warnings = append(p.Warnings, w.Message)
	}
	return p, nil
}
