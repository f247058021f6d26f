package chronos

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"holdfast/chronos/alert"
	"holdfast/chronos/cron"
	"holdfast/chronos/queue"
)

// Job is a job as it stands.
type Job struct {
	ID          int64
	Tenant      string
	Name        string
	Spec        Spec
	Anchor      time.Time  // what intervals are counted from
	NextAt      *time.Time // the watermark; nil: the schedule has ended
	LastAt      *time.Time // the last instant that was decided on
	Used        int64      // runs that count towards max_runs
	PausedAt    *time.Time // when the last pause began
	PausedUntil *time.Time // when it ends by itself; nil: when resumed
	PauseReason string
	Paused      bool       // now, by the database's clock
	FaultyAt    *time.Time // since when it is set aside, because it can't be planned; nil: it isn't
	Fault       string     // why
	Skips       []time.Time
	Revision    int64
	CreatedAt   time.Time
	UpdatedAt   time.Time

	// unreadable says why this binary can't read its spec, and astray why it can't read a calendar that it
	// excludes; nil: it can.
	unreadable, astray error
	// calendars are those that its spec excludes.
	calendars []cron.Calendar
	// decided has the instants after LastAt that have a run or a record already, in order: unplan leaves some.
	decided []queue.Stretch
}

// Withheld reports whether nothing is planned of the job now, and why.
func (j *Job) Withheld() (reason string, withheld bool) {
	if j.FaultyAt != nil {
		return j.Fault, true
	}
	return j.PauseReason, j.Paused
}

// Unreadable reports whether this version can't read what is stored of the job: its spec may lack something then, and
// nothing is planned of it until it is put anew.
func (j *Job) Unreadable() bool { return j.unreadable != nil }

// timetable fails with a [FieldError] or [ErrUnreadable].
func (j *Job) timetable() (timetable, error) {
	if err := cmp.Or(j.unreadable, j.astray); err != nil {
		return timetable{}, err
	}
	return j.Spec.compile(j.Name, j.Anchor, j.calendars)
}

// isDecided compares as a run's id does, by milliseconds.
func (j *Job) isDecided(at time.Time) bool {
	ms := at.UnixMilli()
	return slices.ContainsFunc(j.decided, func(s queue.Stretch) bool { return s.From.UnixMilli() <= ms && ms <= s.To.UnixMilli() })
}

// decidedTo is the last instant that is decided; zero: none is.
func (j *Job) decidedTo() (last time.Time) {
	for _, s := range j.decided {
		if s.To.After(last) {
			last = s.To
		}
	}
	return last
}

// jobColumns are those that scanJob reads, of a table or alias j.
const jobColumns = `j.id, j.tenant, j.name, j.spec, j.anchor, j.next_at, j.last_at, j.used, j.paused_at, j.paused_until,
	coalesce(j.pause_reason, ''), j.paused_at IS NOT NULL AND (j.paused_until IS NULL OR j.paused_until > clock_timestamp()),
	j.faulty_at, coalesce(j.fault, ''), j.skips, j.revision, j.created_at, j.updated_at, j.labels`

// scanJob gives with [ErrUnreadable] the job as far as it is known: all but its spec, of which only the labels are sure.
func scanJob(row pgx.CollectableRow) (Job, error) {
	var (
		j            = Job{Spec: Spec{MaxConcurrent: 1}} // what was stored before there was a choice
		spec, labels []byte
	)
	err := row.Scan(&j.ID, &j.Tenant, &j.Name, &spec, &j.Anchor, &j.NextAt, &j.LastAt, &j.Used, &j.PausedAt, &j.PausedUntil,
		&j.PauseReason, &j.Paused, &j.FaultyAt, &j.Fault, &j.Skips, &j.Revision, &j.CreatedAt, &j.UpdatedAt, &labels)
	if err != nil {
		return j, err
	}
	if err := json.Unmarshal(spec, &j.Spec); err != nil {
		j.unreadable = fmt.Errorf("%w: %w", ErrUnreadable, err)
		j.Spec.Labels = nil
		return j, errors.Join(j.unreadable, json.Unmarshal(labels, &j.Spec.Labels))
	}
	return j, nil
}

// scanShown is scanJob for those who look: a job that can't be read is one that is set aside, as it will be by the planner when
// it is near.
func scanShown(row pgx.CollectableRow) (Job, error) {
	j, err := scanJob(row)
	if !errors.Is(err, ErrUnreadable) {
		return j, err
	}
	if j.FaultyAt == nil {
		j.FaultyAt, j.Fault = &j.UpdatedAt, faultOf(err)
	}
	return j, nil
}

// faultOf is what people are told of a job that is set aside.
func faultOf(cause error) string { return fmt.Sprintf("can't be planned: %v", cause) }

// lockJob locks a job that isn't deleted; [ErrJobNotFound] if there is none. While it is
// locked, nobody else plans it, leases for it, or changes it. With [ErrUnreadable] it gives the
// job without its spec.
func lockJob(ctx context.Context, tx pgx.Tx, tenant, name string) (Job, error) {
	rows, err := tx.Query(ctx, `SELECT `+jobColumns+` FROM chronos.jobs j
		WHERE j.tenant = $1 AND j.name = $2 AND j.deleted_at IS NULL FOR UPDATE`, tenant, name)
	if err != nil {
		return Job{}, err
	}
	j, err := pgx.CollectExactlyOneRow(rows, scanJob)
	if err != nil {
		return j, noRows(err, ErrJobNotFound)
	}
	return j, loadCalendars(ctx, tx, []*Job{&j})
}

// newRun is a run of the job. due is when it starts; zero: at once.
func (j *Job) newRun(id uuid.UUID, trigger queue.Trigger, at, due time.Time) queue.NewRun {
	r := queue.NewRun{
		ID: id, JobID: j.ID, Tenant: j.Tenant, Queue: j.Spec.queueOf(j.Tenant), Target: j.Spec.Target.id(), Priority: j.Spec.Priority,
		MaxAttempts: j.Spec.Retry.MaxAttempts, Trigger: trigger, ScheduledFor: at, DueAt: due, Payload: j.Spec.Target.payload(),
		Watched: len(j.Spec.Alerts) > 0,
	}
	if trigger != queue.Backfill { // which waits behind all others
		r.LateAfter = alert.LateAfter(j.Spec.Alerts)
	}
	return r
}

// carryOut writes plans, which were made of jobs as they stand: runs, records and watermarks in
// one transaction. The caller holds the rows of the jobs.
func carryOut(ctx context.Context, tx pgx.Tx, jobs []*Job, plans []plan) error {
	var (
		runs    []queue.NewRun
		records []queue.Record
		missed  []alert.MissedInstants
		ids     = make([]int64, len(jobs))
		next    = make([]*time.Time, len(jobs))
		last    = make([]*time.Time, len(jobs))
		used    = make([]int64, len(jobs))
	)
	for i, p := range plans {
		runs = append(runs, p.runs...)
		records = append(records, p.records...)
		missed = append(missed, jobs[i].missedOf(p.records)...)
		ids[i], next[i], last[i], used[i] = jobs[i].ID, p.next, p.last, p.used
	}
	if _, err := queue.Insert(ctx, tx, runs); err != nil {
		return fmt.Errorf("insert runs: %w", err)
	}
	if err := queue.AddRecords(ctx, tx, records); err != nil {
		return fmt.Errorf("record instants without a run: %w", err)
	}
	if err := alert.InstantsMissed(ctx, tx, missed); err != nil {
		return fmt.Errorf("alert of missed instants: %w", err)
	}
	_, err := tx.Exec(ctx, `
		UPDATE chronos.jobs j SET next_at = p.next_at, last_at = coalesce(p.last_at, j.last_at), used = p.used
		  FROM unnest($1::bigint[], $2::timestamptz[], $3::timestamptz[], $4::bigint[]) AS p(id, next_at, last_at, used)
		 WHERE j.id = p.id`, ids, next, last, used)
	return err
}

// settle decides on every instant up to ahead of now, as the job stands, and carries that
// out. The caller holds the job's row; whoever changes a job settles the past first, so that
// it is judged by what held then.
func (j *Job) settle(ctx context.Context, tx pgx.Tx, now time.Time, ahead time.Duration) error {
	for {
		p, err := j.plan(now, ahead)
		if err != nil {
			return err
		}
		if err := carryOut(ctx, tx, []*Job{j}, []plan{p}); err != nil {
			return err
		}
		j.NextAt, j.Used = p.next, p.used
		if p.last != nil {
			j.LastAt = p.last
		}
		if !p.more(now.Add(ahead)) {
			return nil
		}
	}
}

// settlePast is settle up to now, for a command that puts an end to the job as it stands. If
// nobody can say what the job's instants were, there is nothing to decide on.
func (j *Job) settlePast(ctx context.Context, tx pgx.Tx, now time.Time) error {
	if _, err := j.timetable(); err != nil {
		j.NextAt = nil
		return nil
	}
	return j.settle(ctx, tx, now, 0)
}

// unplan takes back the scheduled runs that haven't come due, so that they can be planned
// anew: it moves LastAt back to before them. Those it has to leave, such as the end of one that
// was cancelled ahead of its time, are remembered as decided.
func (j *Job) unplan(ctx context.Context, tx pgx.Tx, now time.Time) error {
	dropped, err := queue.DropPlanned(ctx, tx, j.ID)
	if err != nil || len(dropped) == 0 {
		return err
	}
	j.Used -= int64(len(dropped))
	j.decided, err = queue.Decided(ctx, tx, j.ID, now)
	if err != nil {
		return err
	}
	first, last := slices.MinFunc(dropped, time.Time.Compare), now
	for _, s := range j.decided {
		if s.To.Before(first) && s.To.After(last) {
			last = s.To
		}
	}
	if j.LastAt == nil || j.LastAt.After(last) {
		j.LastAt = &last
	}
	return nil
}

// reopen lets planning go on where it stopped: max_runs may have some left again.
func (j *Job) reopen() {
	if j.NextAt == nil && j.LastAt != nil {
		at := j.LastAt.Add(time.Microsecond)
		j.NextAt = &at
	}
}

// endPause skips what came due in the last pause up to now, whether it still lasts or not, and
// forgets that pause.
func (j *Job) endPause(ctx context.Context, tx pgx.Tx, now time.Time) error {
	if j.PausedAt == nil {
		return nil
	}
	until := now
	if j.PausedUntil != nil && j.PausedUntil.Before(now) {
		until = *j.PausedUntil
	}
	skipped, err := queue.SkipPaused(ctx, tx, j.ID, *j.PausedAt, until)
	if err != nil {
		return err
	}
	if skipped > 0 {
		j.Used -= int64(skipped)
		j.reopen()
	}
	j.PausedAt, j.PausedUntil, j.PauseReason = nil, nil, ""
	return nil
}

// restart sets the watermark to the first instant after now, and after all that was decided on, by the
// job's timing as it is in j, and writes j.
func (j *Job) restart(ctx context.Context, tx pgx.Tx, now time.Time) error {
	if j.FaultyAt != nil {
		return j.write(ctx, tx)
	}
	tt, err := j.timetable()
	if err != nil {
		return err
	}
	from := now
	if j.LastAt != nil && j.LastAt.After(from) {
		from = *j.LastAt
	}
	j.NextAt = nil
	if at, ok := tt.Next(from); ok {
		j.NextAt = &at
	}
	j.Skips = slices.DeleteFunc(j.Skips, func(at time.Time) bool { return !at.After(from) })
	return j.write(ctx, tx)
}

// write stores what commands may change of a job, under a new revision.
func (j *Job) write(ctx context.Context, tx pgx.Tx) error {
	spec, labels, err := j.Spec.encode()
	if err != nil {
		return err
	}
	return tx.QueryRow(ctx, `
		UPDATE chronos.jobs
		   SET spec = $2, labels = $3, queue = $4, overlap = $5, priority = $6, max_attempts = $7, max_runs = $8, anchor = $9, zone_data = $10,
		       next_at = $11, last_at = $12, used = $13, paused_at = $14, paused_until = $15, pause_reason = nullif($16, ''),
		       max_concurrent = $17, calendars = coalesce($18::text[], '{}'), skips = coalesce($19::timestamptz[], '{}'),
		       faulty_at = $20, fault = nullif($21, ''),
		       watched = $22, late_after = nullif($23::interval, interval '0'), incident = CASE WHEN $22 THEN incident END, target = $24,
		       revision = revision + 1, updated_at = clock_timestamp()
		 WHERE id = $1
		RETURNING revision, updated_at, paused_at IS NOT NULL AND (paused_until IS NULL OR paused_until > clock_timestamp())`,
		j.ID, spec, labels, j.Spec.queueOf(j.Tenant), j.Spec.Overlap, j.Spec.Priority, j.Spec.Retry.MaxAttempts, j.Spec.MaxRuns,
		j.Anchor, cron.ZoneDataVersion(), j.NextAt, j.LastAt, j.Used, j.PausedAt, j.PausedUntil, j.PauseReason,
		j.Spec.MaxConcurrent, j.Spec.Exclude, j.Skips, j.FaultyAt, j.Fault,
		len(j.Spec.Alerts) > 0, alert.LateAfter(j.Spec.Alerts), j.Spec.Target.id(),
	).Scan(&j.Revision, &j.UpdatedAt, &j.Paused)
}

func (s *Spec) encode() (spec, labels string, err error) {
	text, err := json.Marshal(s)
	if err != nil {
		return "", "", err
	}
	tags, err := json.Marshal(s.Labels)
	if s.Labels == nil {
		tags = []byte("{}")
	}
	return string(text), string(tags), err
}
