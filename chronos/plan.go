package chronos

import (
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
}

// more reports whether the plan stopped short of the horizon.
func (p *plan) more(horizon time.Time) bool { return p.next != nil && !p.next.After(horizon) }

// plan decides on the instants from the job's watermark up to ahead of now, the
// database's time. It is a pure function of the job and its arguments.
//
// An instant that is at most 30 s late runs as usual. Of older ones, those in a pause are
// skipped; the newest that the job's catch_up allows are made up for; the rest are missed.
// Neighbours with the same fate share one record.
func (j *Job) plan(now time.Time, ahead time.Duration) (plan, error) {
	p := plan{used: j.Used}
	if j.NextAt == nil {
		return p, nil
	}
	tt, err := j.Spec.compile(j.Name, j.Anchor)
	if err != nil {
		return p, err
	}
	horizon, outage := now.Add(ahead), now.Add(-punctual)
	at, ok := tt.next(j.NextAt.Add(-1))
	madeUp := j.madeUpFrom(tt, at, now, outage)
	for looked := 0; ok && !at.After(horizon) && looked < maxLook; looked++ {
		if j.Spec.MaxRuns != nil && p.used >= *j.Spec.MaxRuns {
			ok = false
			break
		}
		switch {
		case j.decided[at.UnixMilli()]:
		case !at.Before(outage):
			p.run(j, queue.Schedule, at, at)
		case j.pausedDuring(at):
			p.record(j, queue.Skipped, queue.ReasonPaused, at)
		case madeUp != nil && !at.Before(*madeUp):
			p.run(j, queue.CatchUp, at, time.Time{})
		default:
			p.record(j, queue.Missed, queue.ReasonOutage, at)
		}
		decided := at
		p.last = &decided
		at, ok = tt.next(at)
	}
	if ok && (j.Spec.MaxRuns == nil || p.used < *j.Spec.MaxRuns) {
		p.next = &at
	}
	return p, nil
}

// madeUpFrom is the oldest of the instants before outage that is made up for; nil: none is.
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
	at, ok := tt.prev(outage)
	for looked := 0; ok && allowed > 0 && looked < maxLook; looked++ {
		if at.Before(first) || now.Sub(at) > c.Window {
			break
		}
		if !j.pausedDuring(at) {
			kept := at
			oldest = &kept
			allowed--
		}
		at, ok = tt.prev(at)
	}
	return oldest
}

// pausedDuring reports whether the last pause covers t.
func (j *Job) pausedDuring(t time.Time) bool {
	return j.PausedAt != nil && !t.Before(*j.PausedAt) && (j.PausedUntil == nil || t.Before(*j.PausedUntil))
}

func (p *plan) run(j *Job, trigger queue.Trigger, at, due time.Time) {
	p.runs = append(p.runs, j.newRun(queue.ScheduledID(j.ID, at), trigger, at, due))
	p.used++
}

func (p *plan) record(j *Job, status queue.Status, reason string, at time.Time) {
	if n := len(p.records); n > 0 {
		if last := &p.records[n-1]; last.Status == status && last.Reason == reason && p.last != nil && last.To.Equal(*p.last) {
			last.To = at
			last.Count++
			return
		}
	}
	p.records = append(p.records, queue.Record{
		JobID: j.ID, Tenant: j.Tenant, Status: status, Reason: reason, Stretch: queue.Stretch{From: at, To: at, Count: 1},
	})
}
