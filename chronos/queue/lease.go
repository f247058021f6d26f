package queue

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

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
	// Free is how many more runs the worker could have in all: a target may have at most as many of its runs as
	// that, so that no number of slow targets takes everything. Targets says how many each has; nil: no bound.
	Free    int
	Targets map[int64]int
	// Probed are targets that may have one run at a time, and Shut those that are left alone.
	Probed map[int64]bool
	Shut   []int64
	// Backfill bounds the runs of backfills among Max. Zero: no bound; negative: none.
	Backfill int
	// SettleOnly ends what mustn't start any more, and leases nothing.
	SettleOnly bool
	// Front remembers where the queue's pending runs begin; nil: they are looked for from the very first row.
	Front *Front
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

// Crowded reports whether a target may have no more runs when it has taken so many of all that are taken.
func (c Claim) Crowded(target int64, taken, all int) bool {
	switch has := c.Targets[target] + taken; {
	case target == 0 || c.Targets == nil:
		return false
	case c.Probed[target]:
		return taken > 0
	default:
		return has > 0 && has >= c.Free-all
	}
}

// shut is never NULL in SQL.
func (c Claim) shut() []int64 {
	if c.Shut == nil {
		return []int64{}
	}
	return c.Shut
}

// backfill is how many runs of backfills may be taken.
func (c Claim) backfill() int {
	switch {
	case c.Backfill == 0:
		return c.Max
	case c.Backfill < 0:
		return 0
	}
	return c.Backfill
}

// perJobOf bounds the runs of one job; half of them at most may be a backfill's, so that it
// leaves room for those that come due.
func (c Claim) perJobOf(trigger Trigger) int {
	if trigger == Backfill && c.PerJob > 0 {
		return max(1, c.PerJob/2)
	}
	return c.PerJob
}

// Claimed is what came of a claim.
type Claimed struct {
	Runs     []Run       // leased, in the order in which they should start
	Settled  []End       // runs that ended instead
	Replaced []uuid.UUID // runs that were going and were cancelled for one that came after them
	Waiting  int         // runs that were put off until another of their job, or a pause of it, has ended
	Crowded  []int64     // targets whose runs were left where they are, as they may have no more of them
	More     bool        // there was as much to do as was asked for: ask again at once
}

// End is a run that ended without an attempt, with its reason.
type End struct {
	Status Status
	Reason string
}

// candidatesSQL picks due runs, higher priority first, then in due order, each priority from
// its own stretch of the index, which begins where the claim's front says. The scalar subquery
// reads the clock once, so that the comparison can use the index.
const candidatesSQL = `
WITH candidates AS MATERIALIZED (
	SELECT due.* FROM unnest($4::timestamptz[]) WITH ORDINALITY AS f(front, n) CROSS JOIN LATERAL (
		SELECT r.id, r.job_id, r.trigger, r.asked, r.attempt, r.effective_at FROM chronos.job_runs r
		 WHERE r.queue = $1 AND r.priority = 10 - f.n AND r.due_at <= (SELECT clock_timestamp()) AND r.due_at >= f.front
		   AND ` + isPending + ` AND r.job_id <> ALL($3) AND r.target <> ALL($6)
		 ORDER BY r.due_at LIMIT CASE WHEN f.n > 10 THEN least($2::integer, $5::integer) ELSE $2::integer END
		   FOR UPDATE SKIP LOCKED) due
	 LIMIT $2::integer)
SELECT id, job_id, trigger, asked, attempt, effective_at,
       NOT EXISTS (SELECT 1 FROM chronos.jobs j WHERE j.id = ANY(ARRAY(SELECT DISTINCT job_id FROM candidates)) AND NOT (` + isPlain + `))
  FROM candidates`

// isPlain says of a job that its runs may all start, however many: to lease some, nobody has to know of others, or to change the job.
const isPlain = `j.overlap = 'allow' AND j.deleted_at IS NULL AND j.paused_at IS NULL AND j.faulty_at IS NULL`

type candidate struct {
	ID          uuid.UUID
	JobID       int64
	Trigger     Trigger
	Asked       bool
	Attempt     int
	EffectiveAt time.Time
}

// lockJobsSQL with " FOR UPDATE" makes rivals that lease runs of the same jobs queue up, in one order. With " FOR SHARE", where all of the
// jobs are plain, they share the lock: it keeps off only those who would change the jobs.
const lockJobsSQL = `
SELECT id, name, spec, queue, target, overlap, max_concurrent, deleted_at IS NOT NULL, paused_at, paused_until, faulty_at,
       faulty_at IS NOT NULL OR coalesce(paused_at IS NOT NULL AND (paused_until IS NULL OR paused_until > clock_timestamp()), false), ` + isPlain + `
  FROM chronos.jobs j WHERE id = ANY($1) ORDER BY id`

type job struct {
	ID            int64
	Name          string
	Spec          []byte // not a json.RawMessage, which would be parsed to be read
	Queue         string
	Target        int64
	Overlap       string
	MaxConcurrent int
	Deleted       bool
	PausedAt      *time.Time
	PausedUntil   *time.Time
	FaultyAt      *time.Time
	Paused        bool
	Plain         bool
}

// held reports whether the last pause covers a run that was to start at the given time.
func (j *job) held(effective time.Time) bool {
	return j.PausedAt != nil && !effective.Before(*j.PausedAt) && (j.PausedUntil == nil || effective.Before(*j.PausedUntil)) ||
		j.FaultyAt != nil && !effective.Before(*j.FaultyAt)
}

// leaseSQL repeats what makes a run fit to be leased.
const leaseSQL = `
UPDATE chronos.job_runs r
   SET status = 'leased', lease_token = gen_random_uuid(), leased_until = clock_timestamp() + make_interval(secs => $2),
       worker = $3, attempt = r.attempt + 1, started_at = clock_timestamp(), answer = NULL, parked = false
 WHERE r.id = ANY($1) AND r.status = 'pending' AND r.due_at <= clock_timestamp()
RETURNING r.id, r.lease_token, r.tenant, r.trigger, r.scheduled_for, r.attempt, r.spent, r.max_attempts,
          r.started_at, r.leased_until, r.started_at - CASE WHEN r.attempt = 1 THEN r.effective_at ELSE r.due_at END, r.payload`

// Lease gives the worker up to c.Max runs that are due, each with a new token. In the same
// transaction, runs that mustn't start any more end: of a deleted job as cancelled, what came due in
// a pause as skipped, and what the job's overlap says of one that comes while as many as may
// are going (see judge). Of two replicas that lease for one job at once, the second sees what
// the first has leased.
func Lease(ctx context.Context, tx pgx.Tx, c Claim) (Claimed, error) {
	var out Claimed
	floors, _ := c.Front.floors()
	rows, err := tx.Query(ctx, candidatesSQL, c.Queue, c.Max, c.full(), floors, c.backfill(), c.shut())
	if err != nil {
		return out, err
	}
	var (
		one        candidate
		plain      bool // all of their jobs are
		candidates = make([]candidate, 0, c.Max)
	)
	_, err = pgx.ForEachRow(rows, []any{raw(&one.ID), &one.JobID, &one.Trigger, &one.Asked, &one.Attempt, &one.EffectiveAt, &plain}, func() error {
		candidates = append(candidates, one)
		return nil
	})
	if err != nil || len(candidates) == 0 {
		return out, err
	}
	out.More = len(candidates) == c.Max

	s, err := look(ctx, tx, candidates, plain)
	if err != nil {
		return out, err
	}
	v := judge(candidates, s, c)
	out.Crowded = v.crowded
	if err := v.replaceGoing(ctx, tx, &out); err != nil {
		return out, err
	}
	if err := v.settle(ctx, tx, &out); err != nil {
		return out, err
	}
	if len(v.take) == 0 || c.SettleOnly {
		return out, nil
	}
	out.Runs, err = take(ctx, tx, v.take, s.jobs, c)
	return out, err
}

func take(ctx context.Context, tx pgx.Tx, candidates []candidate, jobs map[int64]*job, c Claim) ([]Run, error) {
	ids := make([]uuid.UUID, len(candidates))
	order := make(map[uuid.UUID]int, len(candidates))
	for i, candidate := range candidates {
		ids[i] = candidate.ID
		order[candidate.ID] = i
	}
	rows, err := tx.Query(ctx, leaseSQL, native(ids), c.For.Seconds(), c.Worker)
	if err != nil {
		return nil, err
	}
	byOrder := make([]*Run, len(candidates))
	var r Run
	_, err = pgx.ForEachRow(rows, []any{
		raw(&r.ID), raw(&r.Token), &r.Tenant, &r.Trigger, &r.ScheduledFor, &r.Attempt, &r.Spent, &r.MaxAttempts,
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
		run.JobID, run.Job, run.Spec, run.Target = j.ID, j.Name, j.Spec, j.Target
		runs = append(runs, *run)
	}
	return runs, nil
}
