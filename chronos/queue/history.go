package queue

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// moveHead and moveTail stand around the predicate of the DELETE that ends runs: what it
// deletes is in history when the statement is done. Their parameters are $1 the status,
// $2 the reason or NULL, $3 what came of the current attempt or NULL, $4 the result or NULL.
const (
	moveHead = `
WITH gone AS (
	DELETE FROM chronos.job_runs r WHERE `
	moveTail = `
	RETURNING r.*)
INSERT INTO chronos.run_history (` + historyColumns + `)
SELECT ` + movedColumns + `, r.lease_token, $1, $2::text, $4::text::json, CASE WHEN r.status <> 'pending' THEN $3::text::jsonb END
  FROM gone r
RETURNING id, job_id`

	// historyColumns are those of a run that had been in job_runs; movedColumns what the first of them get.
	historyColumns = `id, job_id, tenant, scheduled_for, effective_at, created_at, finished_at, trigger,
       missed, payload, attempts, attempt, worker, started_at, answer, lease_token, status, reason, result, outcome`
	movedColumns = `r.id, r.job_id, r.tenant, r.scheduled_for, r.effective_at, r.created_at, clock_timestamp(), r.trigger,
       r.missed, r.payload, r.attempts, r.attempt, r.worker, r.started_at, r.answer`

	// lastAttempts is the last attempt of r, a row of history, in an array as with the others; or an empty one.
	lastAttempts = `CASE WHEN r.outcome IS NULL THEN '[]' ELSE jsonb_build_array(jsonb_build_object('number', r.attempt, 'worker', coalesce(r.worker, ''),
		'started_at', r.started_at, 'finished_at', r.finished_at, 'token', r.lease_token) || coalesce(r.answer, '{}') || r.outcome) END`

	// attemptOf is the record of the current attempt of r, with $3 what came of it.
	attemptOf = `jsonb_build_array(` + attemptFacts + ` || $3::jsonb)`

	// attemptFacts is what is known of it before what came of it.
	attemptFacts = `jsonb_build_object('number', r.attempt, 'worker', coalesce(r.worker, ''),
		'started_at', r.started_at, 'finished_at', clock_timestamp(), 'token', r.lease_token) || coalesce(r.answer, '{}')`

	// held is the fence of everything that a holder does to r.
	held = `r.status IN ('leased', 'running') AND r.leased_until > clock_timestamp()`
)

// Record is an end without a run: instants that were skipped or missed.
type Record struct {
	JobID  int64
	Tenant string
	Status Status
	Reason string
	Stretch
}

// recordSQL gives a record the id that the run of its first instant would have had.
const recordSQL = `
INSERT INTO chronos.run_history (id, job_id, tenant, scheduled_for, effective_at, created_at, finished_at, status, trigger, reason, missed)
SELECT n.id, n.job_id, n.tenant, n.at, n.at, clock.now, clock.now, n.status, 'schedule', n.reason, n.missed::jsonb
  FROM (SELECT clock_timestamp() AS now) clock,
       unnest($1::uuid[], $2::bigint[], $3::text[], $4::timestamptz[], $5::text[], $6::text[], $7::text[])
       AS n(id, job_id, tenant, at, status, reason, missed)`

// AddRecords writes records to history. The caller holds the rows of their jobs and moves the
// watermarks past them in the same transaction.
func AddRecords(ctx context.Context, tx pgx.Tx, records []Record) error {
	n := len(records)
	if n == 0 {
		return nil
	}
	var (
		ids                                = make([]uuid.UUID, n)
		jobs                               = make([]int64, n)
		tenants, statuses, reasons, missed = make([]string, n), make([]string, n), make([]string, n), make([]string, n)
		at                                 = make([]time.Time, n)
	)
	for i, r := range records {
		text, err := json.Marshal(r.Stretch)
		if err != nil {
			return err
		}
		ids[i], jobs[i], tenants[i], at[i] = ScheduledID(r.JobID, r.From), r.JobID, r.Tenant, r.From
		statuses[i], reasons[i], missed[i] = string(r.Status), r.Reason, string(text)
	}
	_, err := tx.Exec(ctx, recordSQL, ids, jobs, tenants, at, statuses, reasons, missed)
	return err
}

// end moves the pending runs among ids to history, as they are.
func end(ctx context.Context, tx pgx.Tx, ids []uuid.UUID, status Status, reason string) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, moveHead+`r.id = ANY($5) AND r.status = 'pending'`+moveTail, status, reason, nil, nil, ids)
	return err
}

// EndPending ends all of a job's pending runs, but for those that somebody is about to lease and
// will end himself. The caller holds the job's row.
func EndPending(ctx context.Context, tx pgx.Tx, job int64, status Status, reason string) error {
	_, err := endWhere(ctx, tx, status, reason, `job_id = $1`, job)
	return err
}

// SkipPaused ends, as skipped, what came due in a pause that lasted from one time until before
// another: runs that nobody asked for, be it as a backfill, and no attempt was made of. It returns how many. What had
// come due before the pause is only late, and stays. The caller holds the job's row.
func SkipPaused(ctx context.Context, tx pgx.Tx, job int64, from, to time.Time) (int, error) {
	return endWhere(ctx, tx, Skipped, ReasonPaused,
		`job_id = $1 AND attempt = 0 AND NOT asked AND trigger <> 'backfill' AND effective_at >= $2 AND effective_at < $3`, job, from, to)
}

// endWhere ends the pending runs that are like that and that nobody else has locked.
func endWhere(ctx context.Context, tx pgx.Tx, status Status, reason, where string, args ...any) (int, error) {
	rows, err := tx.Query(ctx, `SELECT id FROM chronos.job_runs WHERE status = 'pending' AND `+where+` FOR UPDATE SKIP LOCKED`, args...)
	if err != nil {
		return 0, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return 0, err
	}
	return len(ids), end(ctx, tx, ids, status, reason)
}

const ranSQL = `
SELECT scheduled_for FROM chronos.job_runs WHERE job_id = $1 AND trigger <> 'manual' AND scheduled_for >= $2 AND scheduled_for < $3
UNION ALL
SELECT scheduled_for FROM chronos.run_history
 WHERE job_id = $1 AND trigger <> 'manual' AND status NOT IN ('skipped', 'missed') AND scheduled_for >= $2 AND scheduled_for < $3`

// Ran tells which of a job's instants in a half-open time have had a run, or have one to come, by their Unix
// milliseconds. The caller holds the job's row.
func Ran(ctx context.Context, tx pgx.Tx, job int64, from, to time.Time) (map[int64]bool, error) {
	rows, err := tx.Query(ctx, ranSQL, job, from, to)
	if err != nil {
		return nil, err
	}
	ran := map[int64]bool{}
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&at}, func() error {
		ran[at.UnixMilli()] = true
		return nil
	})
	return ran, err
}

// final reads the status of a run in history.
func final(ctx context.Context, tx pgx.Tx, tenant string, id uuid.UUID) (Status, error) {
	var status Status
	err := tx.QueryRow(ctx, `SELECT status FROM chronos.run_history WHERE id = $1 AND tenant = $2`, id, tenant).Scan(&status)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", ErrNotFound
	}
	return status, err
}
