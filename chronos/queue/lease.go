package queue

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// waitStep is how long a run that has to wait for another of its job is put off; several of
// one job are put off by one step each, so that a long row of them costs little.
const waitStep = 200 * time.Millisecond

// pauseSteps is how far a run is put off that waits for the end of a pause: a minute, or until
// the pause ends by itself. Who resumes the job wakes it.
const pauseSteps = int(time.Minute / waitStep)

// Claim says who wants runs, and how many.
type Claim struct {
	Queue  string        // empty: those of the dispatcher; else tenant/queue
	Worker string        // kept with the attempt
	Max    int           // at least 1
	For    time.Duration // how long the lease lasts
	// PerJob bounds the runs of one job that the worker may have at once, and Going says how many it
	// has: so a job whose runs take long leaves room for the others. Zero: no bound.
	PerJob int
	Going  map[int64]int
	// SettleOnly ends what mustn't start any more, and leases nothing.
	SettleOnly bool
}

// full lists the jobs that the worker may take no more runs of.
func (c Claim) full() []int64 {
	full := []int64{}
	for job, n := range c.Going {
		if c.PerJob > 0 && n >= c.PerJob {
			full = append(full, job)
		}
	}
	return full
}

// Claimed is what came of a claim.
type Claimed struct {
	Runs    []Run // leased, in the order in which they should start
	Settled []End // runs that ended instead
	Waiting int   // runs that were put off until another of their job, or a pause of it, has ended
	More    bool  // there was as much to do as was asked for: ask again at once
}

// End is a run that ended without an attempt, with its reason.
type End struct {
	Status Status
	Reason string
}

// candidatesSQL picks due runs, higher priority first, then in due order, each priority from
// its own stretch of the index. The scalar subquery reads the clock once, so that the
// comparison can use the index.
const candidatesSQL = `
WITH candidates AS MATERIALIZED (
	SELECT due.* FROM generate_series(9, 0, -1) AS p CROSS JOIN LATERAL (
		SELECT r.id, r.job_id, r.trigger, r.asked, r.attempt, r.effective_at FROM chronos.job_runs r
		 WHERE r.queue = $1 AND r.priority = p AND r.due_at <= (SELECT clock_timestamp()) AND r.status = 'pending' AND r.job_id <> ALL($3)
		 ORDER BY r.due_at LIMIT $2
		   FOR UPDATE SKIP LOCKED) due
	 LIMIT $2)
SELECT id, job_id, trigger, asked, attempt, effective_at FROM candidates`

type candidate struct {
	ID          uuid.UUID
	JobID       int64
	Trigger     Trigger
	Asked       bool
	Attempt     int
	EffectiveAt time.Time
}

// scheduled reports whether the run is subject to pause and overlap.
func (c *candidate) scheduled() bool { return !c.Asked }

// lockJobsSQL makes rivals that lease runs of the same jobs queue up, in one order.
const lockJobsSQL = `
SELECT id, name, spec, overlap, deleted_at IS NOT NULL, paused_at,
       paused_until, coalesce(paused_at IS NOT NULL AND (paused_until IS NULL OR paused_until > clock_timestamp()), false)
  FROM chronos.jobs WHERE id = ANY($1) ORDER BY id FOR UPDATE`

type job struct {
	ID          int64
	Name        string
	Spec        json.RawMessage
	Overlap     string
	Deleted     bool
	PausedAt    *time.Time
	PausedUntil *time.Time
	Paused      bool
}

// held reports whether the last pause covers a run that was to start at the given time.
func (j *job) held(effective time.Time) bool {
	return j.PausedAt != nil && !effective.Before(*j.PausedAt) && (j.PausedUntil == nil || effective.Before(*j.PausedUntil))
}

// activeSQL finds, after the jobs are locked, since when a run of each has been going. A
// lease that has ended doesn't count, reaped or not.
const activeSQL = `
SELECT job_id, min(coalesce(started_at, 'epoch')) FROM chronos.job_runs
 WHERE job_id = ANY($1) AND NOT asked
   AND status IN ('leased', 'running') AND leased_until > clock_timestamp()
 GROUP BY job_id`

// leaseSQL repeats what makes a run fit to be leased.
const leaseSQL = `
UPDATE chronos.job_runs r
   SET status = 'leased', lease_token = t.token, leased_until = clock_timestamp() + make_interval(secs => $3),
       worker = $4, attempt = r.attempt + 1, started_at = clock_timestamp(), answer = NULL
  FROM unnest($1::uuid[], $2::uuid[]) AS t(id, token)
 WHERE r.id = t.id AND r.status = 'pending' AND r.due_at <= clock_timestamp()
RETURNING r.id, r.lease_token, r.tenant, r.trigger, r.scheduled_for, r.attempt, r.spent, r.max_attempts,
          r.started_at, r.leased_until, r.started_at - r.due_at, r.payload`

// Lease gives the worker up to c.Max runs that are due, each with a new token. In the same
// transaction, runs that mustn't start any more end: of a deleted job as cancelled, what came due in
// a pause as skipped, and, where the job's overlap is skip, one that came due while an earlier
// run was going as skipped. A run that meets another only because it is late (after an
// outage, a retry) is put off instead, and so is one that a pause found due already. Of two
// replicas that lease for one job at once, the second sees what the first has leased.
func Lease(ctx context.Context, tx pgx.Tx, c Claim) (Claimed, error) {
	var out Claimed
	rows, err := tx.Query(ctx, candidatesSQL, c.Queue, c.Max, c.full())
	if err != nil {
		return out, err
	}
	candidates, err := pgx.CollectRows(rows, pgx.RowToStructByPos[candidate])
	if err != nil || len(candidates) == 0 {
		return out, err
	}
	out.More = len(candidates) == c.Max

	jobs, err := lockJobs(ctx, tx, candidates)
	if err != nil {
		return out, err
	}
	active, err := activeSince(ctx, tx, jobs)
	if err != nil {
		return out, err
	}
	v := judge(candidates, jobs, active, c)
	if err := v.settle(ctx, tx, &out); err != nil {
		return out, err
	}
	if len(v.take) == 0 || c.SettleOnly {
		return out, nil
	}
	out.Runs, err = take(ctx, tx, v.take, jobs, c)
	return out, err
}

func lockJobs(ctx context.Context, tx pgx.Tx, candidates []candidate) (map[int64]*job, error) {
	jobs := map[int64]*job{}
	var ids []int64
	for _, c := range candidates {
		if _, ok := jobs[c.JobID]; !ok {
			jobs[c.JobID] = nil
			ids = append(ids, c.JobID)
		}
	}
	rows, err := tx.Query(ctx, lockJobsSQL, ids)
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByPos[job])
	for _, j := range found {
		jobs[j.ID] = j
	}
	return jobs, err
}

func activeSince(ctx context.Context, tx pgx.Tx, jobs map[int64]*job) (map[int64]time.Time, error) {
	active := map[int64]time.Time{}
	var ids []int64
	for id, j := range jobs {
		if j != nil && j.Overlap == "skip" {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return active, nil
	}
	rows, err := tx.Query(ctx, activeSQL, ids)
	if err != nil {
		return nil, err
	}
	var (
		id    int64
		since time.Time
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &since}, func() error {
		active[id] = since
		return nil
	})
	return active, err
}

// verdict is what becomes of the candidates.
type verdict struct {
	take    []candidate
	cancel  []uuid.UUID
	paused  []uuid.UUID
	overlap []uuid.UUID
	wait    []uuid.UUID
	steps   []int         // how far each of wait is put off,
	until   []*time.Time  // and until when at most; nil: that far
	unused  map[int64]int // by job: skipped instants, which don't count towards max_runs
}

// judge decides in the order of the candidates. active says since when each job has had a run going.
// What is beyond the claim's bound of a job is left as it is.
func judge(candidates []candidate, jobs map[int64]*job, active map[int64]time.Time, claim Claim) verdict {
	taken := map[int64]int{}
	v := verdict{unused: map[int64]int{}}
	waiting := map[int64]int{}
	fresh := map[int64]bool{} // jobs that have a run in this very batch
	for _, c := range candidates {
		j := jobs[c.JobID]
		since, busy := active[c.JobID]
		switch {
		case j == nil || j.Deleted:
			v.cancel = append(v.cancel, c.ID)
		case c.scheduled() && c.Attempt == 0 && j.held(c.EffectiveAt):
			v.paused = append(v.paused, c.ID)
			v.unused[c.JobID]++
		case c.scheduled() && c.Attempt == 0 && j.Paused:
			v.putOff(c, pauseSteps, j.PausedUntil)
		case !c.scheduled() || j.Overlap != "skip" || !busy && !fresh[c.JobID]:
			if claim.PerJob > 0 && claim.Going[c.JobID]+taken[c.JobID] >= claim.PerJob {
				continue
			}
			taken[c.JobID]++
			v.take = append(v.take, c)
			fresh[c.JobID] = fresh[c.JobID] || c.scheduled()
		case busy && c.Trigger == Schedule && c.Attempt == 0 && !since.After(c.EffectiveAt):
			v.overlap = append(v.overlap, c.ID)
			v.unused[c.JobID]++
		default:
			waiting[c.JobID]++
			v.putOff(c, waiting[c.JobID], nil)
		}
	}
	return v
}

func (v *verdict) putOff(c candidate, steps int, until *time.Time) {
	v.wait, v.steps, v.until = append(v.wait, c.ID), append(v.steps, steps), append(v.until, until)
}

func (v *verdict) settle(ctx context.Context, tx pgx.Tx, out *Claimed) error {
	for _, s := range []struct {
		ids []uuid.UUID
		End
	}{
		{v.cancel, End{Cancelled, ReasonJobDeleted}},
		{v.paused, End{Skipped, ReasonPaused}},
		{v.overlap, End{Skipped, ReasonOverlap}},
	} {
		if err := end(ctx, tx, s.ids, s.Status, s.Reason); err != nil {
			return err
		}
		for range s.ids {
			out.Settled = append(out.Settled, s.End)
		}
	}
	for job, n := range v.unused {
		if err := Unuse(ctx, tx, job, n); err != nil {
			return err
		}
	}
	out.Waiting = len(v.wait)
	if len(v.wait) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `
		UPDATE chronos.job_runs r SET due_at = least(clock_timestamp() + make_interval(secs => $4::float8 * w.steps), w.until)
		  FROM unnest($1::uuid[], $2::integer[], $3::timestamptz[]) AS w(id, steps, until)
		 WHERE r.id = w.id AND r.status = 'pending'`, v.wait, v.steps, v.until, waitStep.Seconds())
	return err
}

// Unuse gives back n of a job's max_runs, which may be set later: instants that were skipped don't
// use them up. A job that had none left is planned on from where it stopped. The caller holds the job's row.
func Unuse(ctx context.Context, tx pgx.Tx, job int64, n int) error {
	if n == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `
		UPDATE chronos.jobs
		   SET used = used - $2,
		       next_at = CASE WHEN max_runs IS NULL THEN next_at ELSE coalesce(next_at, last_at + interval '1 microsecond') END
		 WHERE id = $1`, job, n)
	return err
}

func take(ctx context.Context, tx pgx.Tx, candidates []candidate, jobs map[int64]*job, c Claim) ([]Run, error) {
	ids, tokens := make([]uuid.UUID, len(candidates)), make([]uuid.UUID, len(candidates))
	order := make(map[uuid.UUID]int, len(candidates))
	for i, candidate := range candidates {
		ids[i], tokens[i] = candidate.ID, uuid.New()
		order[candidate.ID] = i
	}
	rows, err := tx.Query(ctx, leaseSQL, ids, tokens, c.For.Seconds(), c.Worker)
	if err != nil {
		return nil, err
	}
	byOrder := make([]*Run, len(candidates))
	var r Run
	_, err = pgx.ForEachRow(rows, []any{
		&r.ID, &r.Token, &r.Tenant, &r.Trigger, &r.ScheduledFor, &r.Attempt, &r.Spent, &r.MaxAttempts,
		&r.StartedAt, &r.LeasedUntil, &r.Late, &r.Payload,
	}, func() error {
		run := r
		run.Payload = append(json.RawMessage(nil), r.Payload...)
		byOrder[order[run.ID]] = &run
		return nil
	})
	if err != nil {
		return nil, err
	}
	runs := make([]Run, 0, len(candidates))
	for i, run := range byOrder {
		if run == nil {
			continue // the database's clock was set back between the two statements
		}
		j := jobs[candidates[i].JobID]
		run.JobID, run.Job, run.Spec = j.ID, j.Name, j.Spec
		runs = append(runs, *run)
	}
	return runs, nil
}

// nextDueSQL looks only at what is pending; the runs in flight, which stand before it in the
// index, are bounded in number.
const nextDueSQL = `
SELECT min(due.due_at) - clock_timestamp() FROM generate_series(0, 9) AS p CROSS JOIN LATERAL (
	SELECT r.due_at FROM chronos.job_runs r
	 WHERE r.queue = $1 AND r.priority = p AND r.status = 'pending' AND r.job_id <> ALL($2)
	 ORDER BY r.due_at LIMIT 1) due`

// NextDue is how long it is, by the database's clock, until there is something for the claim to
// find, negative if there is already; ok is false if there is nothing.
func NextDue(ctx context.Context, db querier, c Claim) (in time.Duration, ok bool, err error) {
	var wait *time.Duration
	if err := db.QueryRow(ctx, nextDueSQL, c.Queue, c.full()).Scan(&wait); err != nil || wait == nil {
		return 0, false, ignoreNoRows(err)
	}
	return *wait, true, nil
}

// querier is a pool, a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func ignoreNoRows(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	return err
}
