package chronos

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"holdfast/chronos/queue"
)

// maxBackfill is how many instants one backfill may have.
const maxBackfill = 10_000

// Backfill is what came of asking for a stretch of the past.
type Backfill struct {
	From, To time.Time // half open; not beyond the time it was asked for
	Instants int       // of the schedule in that time
	Created  int       // runs that will be made up for
	Existing int       // instants that had a run
	Excluded int       // instants that a calendar excludes
}

// BackfillJob makes runs of a job's instants from from until before to, by its schedule as it stands now. An instant that
// has had a run is left out, one that was skipped or missed isn't; the same again makes no further runs. They wait
// behind everything that comes due, run as overlap allows one after the other, and don't count
// towards max_runs. It fails with [ErrJobNotFound], [ErrUnreadable] or a [FieldError].
func (s *Store) BackfillJob(ctx context.Context, c Caller, name string, from, to time.Time) (Backfill, bool, error) {
	var j Job
	out, replayed, err := command(ctx, s, c, func(tx pgx.Tx) (_ Backfill, err error) {
		j, err = lockJob(ctx, tx, c.Tenant, name)
		if err != nil {
			return Backfill{}, err
		}
		now, err := dbNow(ctx, tx)
		if err != nil {
			return Backfill{}, err
		}
		if !to.After(from) {
			return Backfill{}, invalid("to", "must be later than from")
		}
		if to.After(now) {
			to = now
		}
		return j.backfill(ctx, tx, from, to, now)
	})
	s.rung(&j, err)
	return out, replayed, err
}

func (j *Job) backfill(ctx context.Context, tx pgx.Tx, from, to, now time.Time) (Backfill, error) {
	out := Backfill{From: from, To: to}
	tt, err := j.timetable()
	if err != nil {
		return out, err
	}
	var instants []time.Time
	for at := range tt.Between(from, to) {
		if out.Instants++; out.Instants > maxBackfill {
			return out, invalid("to", "from here on there would be more than %d instants: ask for less at a time", maxBackfill)
		}
		if _, ok := tt.Excluded(at); ok {
			out.Excluded++
			continue
		}
		instants = append(instants, at)
	}
	if len(instants) == 0 {
		return out, nil
	}
	ran, err := queue.Ran(ctx, tx, j.ID, from, to)
	if err != nil {
		return out, err
	}
	instants = slices.DeleteFunc(instants, func(at time.Time) bool { return ran[at.UnixMilli()] })
	out.Existing = out.Instants - out.Excluded - len(instants)
	runs := make([]queue.NewRun, len(instants))
	for i, at := range instants {
		// A microsecond each keeps them in order.
		r := j.newRun(queue.BackfillID(j.ID, at), queue.Backfill, at, now.Add(time.Duration(i)*time.Microsecond))
		r.Priority, r.Parked = queue.BackfillPriority, j.Spec.Overlap != OverlapAllow
		runs[i] = r
	}
	if out.Created, err = queue.Insert(ctx, tx, runs); err != nil {
		return out, err
	}
	_, err = queue.NextTurn(ctx, tx, []int64{j.ID})
	return out, err
}
