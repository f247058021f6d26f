package queue

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// NewRun is a run to be.
type NewRun struct {
	ID           uuid.UUID
	JobID        int64
	Tenant       string
	Queue        string
	Target       int64 // the receiver it goes to; zero: none
	Priority     int
	MaxAttempts  int
	Trigger      Trigger
	Asked        bool
	ScheduledFor time.Time
	DueAt        time.Time       // when it is to start; zero: at once
	Parked       bool            // waits for its turn: [NextTurn] wakes it
	Payload      json.RawMessage // nil: none
	Watched      bool            // its job has alerts
	LateAfter    time.Duration   // when, after it is to start, to look whether it has; zero: never
}

// insertSQL leaves a run that exists as it is: a rival has planned it. One that is late is due now: so
// nothing comes due behind what others have looked through ([Front]).
const insertSQL = `
INSERT INTO chronos.job_runs (id, job_id, tenant, queue, priority, max_attempts, trigger, asked, scheduled_for, due_at, effective_at, parked, payload,
       watched, late_at, target)
SELECT n.id, n.job_id, n.tenant, n.queue, n.priority, n.max_attempts, n.trigger, n.asked, n.scheduled_for,
       greatest(n.due_at, clock.now) + CASE WHEN n.parked THEN make_interval(secs => $13) ELSE interval '0' END,
       coalesce(n.due_at, clock.now), n.parked, n.payload::json, n.watched, coalesce(n.due_at, clock.now) + nullif(n.late_after, interval '0'), n.target
  FROM (SELECT clock_timestamp() AS now) clock,
       unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::smallint[], $6::integer[], $7::text[], $8::boolean[],
              $9::timestamptz[], $10::timestamptz[], $11::text[], $12::boolean[],
              $14::boolean[], $15::interval[], $16::bigint[])
       AS n(id, job_id, tenant, queue, priority, max_attempts, trigger, asked, scheduled_for, due_at, payload, parked, watched, late_after, target)
ON CONFLICT (id) DO NOTHING`

// Insert adds runs as pending and says how many were new: a run whose id exists is
// left as it is. The caller holds the rows of their jobs.
func Insert(ctx context.Context, tx pgx.Tx, runs []NewRun) (int, error) {
	n := len(runs)
	if n == 0 {
		return 0, nil
	}
	var (
		ids                      = make([]uuid.UUID, n)
		jobs, targets            = make([]int64, n), make([]int64, n)
		tenants, queues, trigger = make([]string, n), make([]string, n), make([]string, n)
		priorities               = make([]int16, n)
		maxAttempts              = make([]int32, n)
		asked, parked, watched   = make([]bool, n), make([]bool, n), make([]bool, n)
		lateAfter                = make([]time.Duration, n)
		scheduled                = make([]time.Time, n)
		due                      = make([]*time.Time, n)
		payloads                 = make([]*string, n)
	)
	for i, r := range runs {
		ids[i], jobs[i], tenants[i], queues[i], trigger[i] = r.ID, r.JobID, r.Tenant, r.Queue, string(r.Trigger)
		priorities[i], maxAttempts[i], asked[i], scheduled[i], parked[i] = int16(r.Priority), int32(r.MaxAttempts), r.Asked, r.ScheduledFor, r.Parked
		watched[i], lateAfter[i], targets[i] = r.Watched, r.LateAfter, r.Target
		if !r.DueAt.IsZero() {
			due[i] = &r.DueAt
		}
		if r.Payload != nil {
			text := string(r.Payload)
			payloads[i] = &text
		}
	}
	tag, err := tx.Exec(ctx, insertSQL, native(ids), jobs, tenants, queues, priorities, maxAttempts, trigger, asked, scheduled, due, payloads,
		parked, parkStep.Seconds(), watched, lateAfter, targets)
	return int(tag.RowsAffected()), err
}

// dropPlannedSQL takes only what no attempt was made of and nobody asked for. A row that is
// locked is being leased: it has come due, and its leaser will see the job as it is after this. One
// that has come due and was put off since isn't planned any more, but late: hence effective_at. One whose
// instant has come and that only its jitter delays stays too: by another schedule that instant might not be found again.
const dropPlannedSQL = `
WITH planned AS MATERIALIZED (
	SELECT id FROM chronos.job_runs
	 WHERE job_id = $1 AND NOT parked AND status = 'pending' AND effective_at > clock_timestamp() AND scheduled_for > clock_timestamp()
	   AND attempt = 0 AND NOT asked AND trigger = 'schedule'
	   FOR UPDATE SKIP LOCKED)
DELETE FROM chronos.job_runs r USING planned
 WHERE r.id = planned.id AND r.status = 'pending' AND r.effective_at > clock_timestamp()
RETURNING r.scheduled_for`

// DropPlanned deletes a job's scheduled runs that have not come due, and returns their
// instants. The caller holds the job's row and plans those instants anew.
func DropPlanned(ctx context.Context, tx pgx.Tx, job int64) ([]time.Time, error) {
	rows, err := tx.Query(ctx, dropPlannedSQL, job)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[time.Time])
}

// decidedSQL finds records too that begin before the time and reach beyond it: when they were made all of it was to come, and
// nothing is planned a minute ahead.
const decidedSQL = `
SELECT scheduled_for, scheduled_for FROM chronos.job_runs WHERE job_id = $1 AND trigger = 'schedule' AND scheduled_for > $2
UNION ALL
SELECT scheduled_for, coalesce((missed->>'to')::timestamptz, scheduled_for) FROM chronos.run_history
 WHERE job_id = $1 AND trigger = 'schedule' AND scheduled_for > $2::timestamptz - interval '1 min'
   AND coalesce((missed->>'to')::timestamptz, scheduled_for) > $2
 ORDER BY 1`

// Decided gives a job's instants after t that have a run or a record, as stretches, whether the run is still to do or has
// ended, as when it was cancelled before it came due. They must not be planned again. The caller
// holds the job's row.
func Decided(ctx context.Context, tx pgx.Tx, job int64, t time.Time) ([]Stretch, error) {
	rows, err := tx.Query(ctx, decidedSQL, job, t)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (s Stretch, err error) {
		return s, row.Scan(&s.From, &s.To)
	})
}
