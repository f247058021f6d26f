package chronos

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"holdfast/chronos/cron"
	"holdfast/chronos/queue"
	"holdfast/internal/pg"
)

// Put is the answer to a job that was put.
type Put struct {
	Job     Job
	Created bool
}

// PutJob creates a job or replaces it. Paused says whether it is to be paused; nil leaves
// that as it is. The same spec again changes nothing. Another spec takes effect for every instant
// that hasn't come: what was planned ahead is planned anew, and an interval is counted from
// now if its timing changed. It fails with a [FieldError].
func (s *Store) PutJob(ctx context.Context, c Caller, name string, spec Spec, paused *bool) (Put, bool, error) {
	put, replayed, err := command(ctx, s, c, func(tx pgx.Tx) (Put, error) {
		j, err := lockJob(ctx, tx, c.Tenant, name)
		if errors.Is(err, ErrJobNotFound) {
			j, err = s.create(ctx, tx, c.Tenant, name, spec, paused != nil && *paused)
			return Put{j, true}, err
		}
		if err == nil || errors.Is(err, ErrUnreadable) {
			err = s.replace(ctx, tx, &j, spec, paused)
		}
		return Put{j, false}, err
	})
	s.rung(&put.Job, err)
	return put, replayed, err
}

// rung has those look who wait for runs of a job that a command has changed.
func (s *Store) rung(j *Job, err error) {
	if err == nil {
		s.bell.ring(j.Spec.queueOf(j.Tenant))
	}
}

// EditJob replaces a job by what edit makes of it as it stands. It fails with [ErrJobNotFound],
// [ErrUnreadable], a [FieldError], or what edit says.
func (s *Store) EditJob(ctx context.Context, c Caller, name string, edit func(Job) (Spec, *bool, error)) (Job, bool, error) {
	j, replayed, err := command(ctx, s, c, func(tx pgx.Tx) (Job, error) {
		j, err := lockJob(ctx, tx, c.Tenant, name)
		if err != nil {
			return j, err
		}
		spec, paused, err := edit(j)
		if err != nil {
			return j, err
		}
		return j, s.replace(ctx, tx, &j, spec, paused)
	})
	s.rung(&j, err)
	return j, replayed, err
}

// prepare checks a new or changed spec and makes its instants whole milliseconds, which is
// what a run's id keeps of one.
func (s *Store) prepare(spec *Spec) error {
	for _, t := range []**time.Time{&spec.StartAt, &spec.EndAt} {
		if *t != nil {
			whole := (*t).UTC().Truncate(time.Millisecond)
			*t = &whole
		}
	}
	return spec.check(s.guard)
}

// checkAhead refuses a single instant that is past.
func checkAhead(tt timetable, t Timing, now time.Time) error {
	if _, ok := tt.Next(now); !ok && t.At != "" {
		return &FieldError{"schedule.at", "is past, or outside start_at and end_at", ErrScheduleInPast}
	}
	return nil
}

func (s *Store) create(ctx context.Context, tx pgx.Tx, tenant, name string, spec Spec, paused bool) (Job, error) {
	if err := CheckName(name); err != nil {
		return Job{}, err
	}
	if err := s.prepare(&spec); err != nil {
		return Job{}, err
	}
	now, err := dbNow(ctx, tx)
	if err != nil {
		return Job{}, err
	}
	j := Job{Tenant: tenant, Name: name, Spec: spec, Anchor: now.Truncate(time.Second)}
	if err := keepCalendars(ctx, tx, tenant, spec.Exclude); err != nil {
		return j, err
	}
	if err := loadCalendars(ctx, tx, []*Job{&j}); err != nil {
		return j, err
	}
	tt, err := j.timetable()
	if err != nil {
		return j, err
	}
	if err := checkAhead(tt, spec.Schedule, now); err != nil {
		return j, err
	}
	text, _, err := spec.encode()
	if err != nil {
		return j, err
	}
	if paused {
		j.PausedAt = &now
	}
	err = tx.QueryRow(ctx, `INSERT INTO chronos.jobs (tenant, name, spec, anchor, zone_data, revision) VALUES ($1, $2, $3, $4, $5, 0)
		ON CONFLICT (tenant, name) WHERE deleted_at IS NULL DO NOTHING RETURNING id, created_at`,
		tenant, name, text, j.Anchor, cron.ZoneDataVersion()).Scan(&j.ID, &j.CreatedAt)
	if err != nil {
		return j, noRows(err, pg.ErrRepeat) // a rival has just created it: replace that
	}
	if err := ensureSecret(ctx, tx, tenant); err != nil {
		return j, err
	}
	if err := j.restart(ctx, tx, now); err != nil {
		return j, err
	}
	return j, j.settle(ctx, tx, now, planAhead)
}

func (s *Store) replace(ctx context.Context, tx pgx.Tx, j *Job, spec Spec, paused *bool) error {
	if err := s.prepare(&spec); err != nil {
		return err
	}
	now, err := dbNow(ctx, tx)
	if err != nil {
		return err
	}
	if !sameSpec(&j.Spec, &spec) || j.FaultyAt != nil || j.unreadable != nil {
		if err := s.change(ctx, tx, j, spec, now); err != nil {
			return err
		}
	}
	if paused == nil || *paused == j.Paused {
		return nil
	}
	if *paused {
		return j.pause(ctx, tx, now, "", nil)
	}
	return j.resume(ctx, tx, now)
}

// sameSpec compares what would be stored.
func sameSpec(a, b *Spec) bool {
	one, _, err1 := a.encode()
	two, _, err2 := b.encode()
	return err1 == nil && err2 == nil && one == two
}

func (s *Store) change(ctx context.Context, tx pgx.Tx, j *Job, spec Spec, now time.Time) error {
	anchor := j.Anchor
	if !j.Spec.sameTiming(&spec) {
		anchor = now.Truncate(time.Second)
	}
	tt, err := spec.compile(j.Name, anchor, nil)
	if err != nil {
		return err
	}
	if !j.Spec.sameTiming(&spec) {
		if err := checkAhead(tt, spec.Schedule, now); err != nil {
			return err
		}
	}
	if err := keepCalendars(ctx, tx, j.Tenant, spec.Exclude); err != nil {
		return err
	}
	if err := j.mend(ctx, tx, now); err != nil {
		return err
	}
	if err := j.unplan(ctx, tx, now); err != nil {
		return err
	}
	newTurns := j.Spec.Overlap != spec.Overlap || j.Spec.MaxConcurrent != spec.MaxConcurrent
	if !j.Spec.sameTiming(&spec) {
		j.Skips = nil
	}
	j.Spec, j.Anchor, j.unreadable = spec, anchor, nil
	if err := loadCalendars(ctx, tx, []*Job{j}); err != nil {
		return err
	}
	if err := j.restart(ctx, tx, now); err != nil {
		return err
	}
	if err := queue.Follow(ctx, tx, j.ID, newTurns); err != nil {
		return err
	}
	return j.settle(ctx, tx, now, planAhead)
}

// mend settles the past, and ends the time for which the job was set aside, if it was: what came due
// then is skipped.
func (j *Job) mend(ctx context.Context, tx pgx.Tx, now time.Time) error {
	if j.FaultyAt != nil {
		j.reopen()
	}
	if err := j.settlePast(ctx, tx, now); err != nil || j.FaultyAt == nil {
		return err
	}
	skipped, err := queue.SkipPaused(ctx, tx, j.ID, *j.FaultyAt, now)
	j.Used -= int64(skipped)
	j.FaultyAt, j.Fault = nil, ""
	return err
}

// replan plans anew what hasn't come, by the job as it is in j.
func (j *Job) replan(ctx context.Context, tx pgx.Tx, now time.Time) error {
	if err := j.unplan(ctx, tx, now); err != nil {
		return err
	}
	if err := j.restart(ctx, tx, now); err != nil {
		return err
	}
	return j.settle(ctx, tx, now, planAhead)
}

// DeleteJob ends a job: nothing is planned any more, its pending runs are cancelled, and
// those in flight end as they do, without another attempt. Its history stays, and its name is free.
// It fails with [ErrJobNotFound].
func (s *Store) DeleteJob(ctx context.Context, c Caller, name string) error {
	_, _, err := command(ctx, s, c, func(tx pgx.Tx) (none struct{}, err error) {
		j, err := lockJob(ctx, tx, c.Tenant, name)
		if err != nil && !errors.Is(err, ErrUnreadable) {
			return none, err
		}
		return none, j.delete(ctx, tx)
	})
	return err
}

func (j *Job) delete(ctx context.Context, tx pgx.Tx) error {
	now, err := dbNow(ctx, tx)
	if err != nil {
		return err
	}
	if err := j.settlePast(ctx, tx, now); err != nil {
		return err
	}
	if err := j.unplan(ctx, tx, now); err != nil {
		return err
	}
	if err := queue.EndPending(ctx, tx, j.ID, queue.Cancelled, queue.ReasonJobDeleted); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `UPDATE chronos.jobs SET deleted_at = clock_timestamp(), next_at = NULL, revision = revision + 1 WHERE id = $1`, j.ID)
	return err
}

// PauseJob pauses a job, until a time or until it is resumed: instants that come meanwhile
// are skipped and never made up for; runs that had come due before, and haven't begun, wait for its
// end. A paused job keeps the beginning of its pause, and its end and reason unless the new end is later. It
// fails with [ErrJobNotFound], [ErrUnreadable] or a [FieldError].
func (s *Store) PauseJob(ctx context.Context, c Caller, name, reason string, until *time.Time) (Job, bool, error) {
	return command(ctx, s, c, func(tx pgx.Tx) (Job, error) {
		j, err := lockJob(ctx, tx, c.Tenant, name)
		if err != nil {
			return j, err
		}
		now, err := dbNow(ctx, tx)
		if err != nil {
			return j, err
		}
		if until != nil && !until.After(now) {
			return j, invalid("until", "must be in the future")
		}
		return j, j.pause(ctx, tx, now, reason, until)
	})
}

// pause takes back what is planned in the pause: it will be decided on when it comes.
func (j *Job) pause(ctx context.Context, tx pgx.Tx, now time.Time, reason string, until *time.Time) error {
	if err := j.settle(ctx, tx, now, 0); err != nil {
		return err
	}
	switch {
	case !j.Paused:
		if err := j.endPause(ctx, tx, now); err != nil { // an earlier one, which ended by itself
			return err
		}
		begin, err := dbNow(ctx, tx) // what settle has made up for came due before
		if err != nil {
			return err
		}
		j.PausedAt, j.PausedUntil, j.PauseReason = &begin, until, reason
	case j.PausedUntil != nil && (until == nil || until.After(*j.PausedUntil)):
		j.PausedUntil, j.PauseReason = until, reason
	case sameInstant(j.PausedUntil, until) && reason != "":
		j.PauseReason = reason
	}
	if err := j.unplan(ctx, tx, now); err != nil {
		return err
	}
	if err := j.restart(ctx, tx, now); err != nil {
		return err
	}
	return j.settle(ctx, tx, now, max(0, j.decidedTo().Sub(now)))
}

// pauseGone pauses a job whose receiver is gone, if it can still be planned.
func pauseGone(ctx context.Context, tx pgx.Tx, id int64) error {
	rows, err := tx.Query(ctx, `SELECT `+jobColumns+` FROM chronos.jobs j WHERE j.id = $1 AND j.deleted_at IS NULL AND j.faulty_at IS NULL FOR UPDATE`, id)
	if err != nil {
		return err
	}
	j, err := pgx.CollectExactlyOneRow(rows, scanJob)
	if errors.Is(err, pgx.ErrNoRows) || errors.Is(err, ErrUnreadable) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := loadCalendars(ctx, tx, []*Job{&j}); err != nil {
		return err
	}
	if _, err := j.timetable(); err != nil {
		return nil
	}
	now, err := dbNow(ctx, tx)
	if err != nil {
		return err
	}
	return j.pause(ctx, tx, now, reasonGone, nil)
}

// ResumeJob ends a pause. A job that isn't paused is left as it is. It fails with [ErrJobNotFound] or [ErrUnreadable].
func (s *Store) ResumeJob(ctx context.Context, c Caller, name string) (Job, bool, error) {
	j, replayed, err := command(ctx, s, c, func(tx pgx.Tx) (Job, error) {
		j, err := lockJob(ctx, tx, c.Tenant, name)
		if err != nil {
			return j, err
		}
		if _, withheld := j.Withheld(); !withheld {
			return j, nil
		}
		now, err := dbNow(ctx, tx)
		if err != nil {
			return j, err
		}
		return j, j.resume(ctx, tx, now)
	})
	s.rung(&j, err)
	return j, replayed, err
}

func (j *Job) resume(ctx context.Context, tx pgx.Tx, now time.Time) error {
	if _, err := j.timetable(); err != nil {
		return err // still at fault
	}
	j.reopen()
	if err := j.mend(ctx, tx, now); err != nil {
		return err
	}
	if err := j.endPause(ctx, tx, now); err != nil {
		return err
	}
	if err := queue.Wake(ctx, tx, j.ID); err != nil {
		return err
	}
	if err := j.write(ctx, tx); err != nil {
		return err
	}
	return j.settle(ctx, tx, now, planAhead)
}

// maxSkips is how many instants of a job may be skipped ahead of their time.
const maxSkips = 100

// SkipNext has the job's next instant skipped that would run: asked again, the one after that too. It
// fails with [ErrJobNotFound], [ErrUnreadable], [ErrNoInstant] or a [FieldError].
func (s *Store) SkipNext(ctx context.Context, c Caller, name string) (Job, bool, error) {
	return command(ctx, s, c, func(tx pgx.Tx) (Job, error) {
		j, err := lockJob(ctx, tx, c.Tenant, name)
		if err != nil {
			return j, err
		}
		now, err := dbNow(ctx, tx)
		if err != nil {
			return j, err
		}
		return j, j.skipNext(ctx, tx, now)
	})
}

func (j *Job) skipNext(ctx context.Context, tx pgx.Tx, now time.Time) error {
	tt, err := j.timetable()
	if err != nil {
		return err
	}
	j.Skips = slices.DeleteFunc(j.Skips, func(at time.Time) bool { return !at.After(now) })
	if len(j.Skips) >= maxSkips {
		return invalid("name", "has %d instants that are to be skipped already", maxSkips)
	}
	if err := j.settle(ctx, tx, now, 0); err != nil {
		return err
	}
	if err := j.unplan(ctx, tx, now); err != nil {
		return err
	}
	if j.Spec.MaxRuns != nil && j.Used >= *j.Spec.MaxRuns {
		return ErrNoInstant
	}
	from := now
	if j.LastAt != nil && j.LastAt.After(from) {
		from = *j.LastAt
	}
	at, ok := tt.Next(from)
	for looked := 0; ok && (j.isDecided(at) || isSettled(j.withheld(tt, at))); looked++ {
		if looked == maxLook {
			return ErrNoInstant
		}
		at, ok = tt.Next(at)
	}
	if !ok {
		return ErrNoInstant
	}
	j.Skips = append(j.Skips, at)
	if err := j.restart(ctx, tx, now); err != nil {
		return err
	}
	return j.settle(ctx, tx, now, planAhead)
}

// isSettled reports whether an instant that is withheld for the reason won't run even if a pause ends early.
func isSettled(reason string) bool {
	return reason == queue.ReasonExcluded || reason == queue.ReasonSkipNext
}

// TriggerJob makes a run of the job at once, paused or not; payload, if there is one, is
// delivered instead of the job's body or payload. It fails with [ErrJobNotFound] or [ErrUnreadable].
func (s *Store) TriggerJob(ctx context.Context, c Caller, name string, payload json.RawMessage) (Run, bool, error) {
	var j Job
	run, replayed, err := command(ctx, s, c, func(tx pgx.Tx) (_ Run, err error) {
		j, err = lockJob(ctx, tx, c.Tenant, name)
		if err != nil {
			return Run{}, err
		}
		now, err := dbNow(ctx, tx)
		if err != nil {
			return Run{}, err
		}
		id, err := uuid.NewV7()
		if err != nil {
			return Run{}, err
		}
		r := j.newRun(id, queue.Manual, now, now)
		r.Asked = true
		if payload != nil {
			r.Payload = payload
		}
		if _, err := queue.Insert(ctx, tx, []queue.NewRun{r}); err != nil {
			return Run{}, err
		}
		return readRun(ctx, tx, c.Tenant, id)
	})
	s.rung(&j, err)
	return run, replayed, err
}
