package chronos

import (
	"slices"
	"time"

	"holdfast/chronos/queue"
)

const (
	// planAhead is how far ahead runs are made: longer than it takes to replace a leader, even
	// one that is frozen (15 s), so that between two leaders nothing comes due unplanned.
	planAhead = 20 * time.Second
	// punctual is how late an instant may be reached and still fire as usual; what is
	// older fell into an outage.
	punctual = 30 * time.Second
	// maxLook bounds the instants that one plan goes through. A long outage of a frequent job
	// takes several, each of which leaves the watermark where it stopped.
	maxLook = 100_000
)

// plan is what becomes of a job's instants from its watermark to a horizon.
type plan struct {
	runs    []queue.NewRun
	records []queue.Record
	next    *time.Time // the new watermark; nil: the schedule has ended
	last    *time.Time // the last instant that was decided on; nil: as before
	used    int64      // of max_runs, in all
	waits   bool       // next is withheld by a pause and is decided on when it comes
}

// more reports whether the plan stopped short of the horizon.
func (p *plan) more(horizon time.Time) bool {
	return p.next != nil && !p.waits && !p.next.After(horizon)
}

// plan decides on the instants from the job's watermark up to ahead of now, the
// database's time. It is a pure function of the job and its arguments.
//
// One that is withheld is skipped with the reason; of a pause that may yet be ended, only once it has come.
// Others are due as their jitter says. One that is due at most 30 s ago runs as usual. Of older ones
// the newest that the job's catch_up allows are made up for; the rest are missed.
// Neighbours with the same fate share one record.
func (j *Job) plan(now time.Time, ahead time.Duration) (plan, error) {
	p := plan{used: j.Used}
	if j.NextAt == nil {
		return p, nil
	}
	tt, err := j.timetable()
	if err != nil {
		return p, err
	}
	horizon, outage := now.Add(ahead), now.Add(-punctual)
	at, ok := tt.Next(j.NextAt.Add(-1))
	madeUp := j.madeUpFrom(tt, at, now, outage)
	for looked := 0; ok && !at.After(horizon) && looked < maxLook; looked++ {
		if j.Spec.MaxRuns != nil && p.used >= *j.Spec.MaxRuns {
			ok = false
			break
		}
		due, reason := tt.effective(at), j.withheld(tt, at)
		switch {
		case j.isDecided(at):
		case reason == queue.ReasonPaused && at.After(now) && at.After(j.decidedTo()):
			p.next, p.waits = &at, true
			return p, nil
		case reason != "":
			p.record(j, queue.Skipped, reason, at, now)
		case !due.Before(outage):
			p.run(j, queue.Schedule, at, due)
		case madeUp != nil && !at.Before(*madeUp):
			p.run(j, queue.CatchUp, at, time.Time{})
		default:
			p.record(j, queue.Missed, queue.ReasonOutage, at, now)
		}
		decided := at
		p.last = &decided
		at, ok = tt.Next(at)
	}
	if ok && (j.Spec.MaxRuns == nil || p.used < *j.Spec.MaxRuns) {
		p.next = &at
	}
	return p, nil
}

// withheld is why an instant of the job doesn't run, come what may; empty: it does, as far as can be told
// before it comes.
func (j *Job) withheld(tt timetable, at time.Time) (reason string) {
	if _, ok := tt.Excluded(at); ok {
		return queue.ReasonExcluded
	}
	if slices.ContainsFunc(j.Skips, at.Equal) {
		return queue.ReasonSkipNext
	}
	if j.pausedDuring(at) {
		return queue.ReasonPaused
	}
	return ""
}

// madeUpFrom is the oldest of the instants that were due before outage that is made up for; nil: none is.
func (j *Job) madeUpFrom(tt timetable, first, now, outage time.Time) *time.Time {
	c := j.Spec.CatchUp
	allowed := c.Max
	switch c.Policy {
	case CatchUpNone:
		return nil
	case CatchUpLatest:
		allowed = 1
	}
	var oldest *time.Time
	at, ok := tt.Prev(outage)
	for looked := 0; ok && allowed > 0 && looked < maxLook; looked++ {
		if at.Before(first) || now.Sub(at) > c.Window {
			break
		}
		if tt.effective(at).Before(outage) && j.withheld(tt, at) == "" {
			kept := at
			oldest = &kept
			allowed--
		}
		at, ok = tt.Prev(at)
	}
	return oldest
}

// pausedDuring reports whether the last pause covers t, or the job has been set aside by then.
func (j *Job) pausedDuring(t time.Time) bool {
	return j.PausedAt != nil && !t.Before(*j.PausedAt) && (j.PausedUntil == nil || t.Before(*j.PausedUntil)) ||
		j.FaultyAt != nil && !t.Before(*j.FaultyAt)
}

func (p *plan) run(j *Job, trigger queue.Trigger, at, due time.Time) {
	p.runs = append(p.runs, j.newRun(queue.ScheduledID(j.ID, at), trigger, at, due))
	p.used++
}

// record keeps what comes before now apart from what comes after it, which may have to be told from what
// is planned anew.
func (p *plan) record(j *Job, status queue.Status, reason string, at, now time.Time) {
	if n := len(p.records); n > 0 {
		last := &p.records[n-1]
		if last.Status == status && last.Reason == reason && p.last != nil && last.To.Equal(*p.last) && at.After(now) == last.To.After(now) {
			last.To = at
			last.Count++
			return
		}
	}
	p.records = append(p.records, queue.Record{
		JobID: j.ID, Tenant: j.Tenant, Status: status, Reason: reason, Stretch: queue.Stretch{From: at, To: at, Count: 1},
	})
}
