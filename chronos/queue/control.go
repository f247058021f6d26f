package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Cancel ends a run that has no end yet, at once; the token of whoever holds it is dead. A run that is
// cancelled already is left so. It fails with [ErrNotFound], or with [ErrState] if the run has
// another end. It reports whether it was this call that ended the run.
func Cancel(ctx context.Context, tx pgx.Tx, tenant string, id uuid.UUID) (bool, error) {
	attempt, err := Attempt{Outcome: OutcomeCancelled}.text()
	if err != nil {
		return false, err
	}
	var job int64
	err = tx.QueryRow(ctx, moveHead+`r.id = $5 AND r.tenant = $6`+moveTail, Cancelled, ReasonRequested, attempt, nil, id, tenant).Scan(nil, &job)
	if err == nil {
		_, err = NextTurn(ctx, tx, []int64{job})
		return true, err
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return false, err
	}
	status, err := final(ctx, tx, tenant, id)
	if err != nil {
		return false, err
	}
	if status != Cancelled {
		return false, &StateError{id, status, "it can't be cancelled any more"}
	}
	return false, nil
}

// Retry takes a failed, cancelled or missed run back from history, due at once, with its
// id; attempt numbers go on, and max_attempts counts anew. It fails with [ErrNotFound], or with
// [ErrState] if the run has another status or its job is deleted.
func Retry(ctx context.Context, tx pgx.Tx, tenant string, id uuid.UUID) error {
	var (
		job     int64
		deleted bool
	)
	err := tx.QueryRow(ctx, `
		SELECT j.id, j.deleted_at IS NOT NULL FROM chronos.run_history h JOIN chronos.jobs j ON j.id = h.job_id
		 WHERE h.id = $1 AND h.tenant = $2
		   FOR SHARE OF j`, id, tenant).Scan(&job, &deleted)
	if errors.Is(err, pgx.ErrNoRows) {
		return retryRefused(ctx, tx, tenant, id)
	}
	if err != nil {
		return err
	}
	if deleted {
		status, err := final(ctx, tx, tenant, id)
		if err != nil {
			return err
		}
		return &StateError{id, status, "its job is deleted"}
	}
	tag, err := tx.Exec(ctx, `
		WITH back AS (
			DELETE FROM chronos.run_history r
			 WHERE r.id = $1 AND r.tenant = $2 AND r.status IN ('failed', 'cancelled', 'missed')
			RETURNING r.*, r.attempts || `+lastAttempts+` AS all_attempts)
		INSERT INTO chronos.job_runs (id, job_id, tenant, queue, priority, max_attempts, scheduled_for, effective_at, created_at,
		       trigger, asked, attempt, payload, missed, attempts, watched)
		SELECT b.id, b.job_id, b.tenant, j.queue, j.priority, j.max_attempts, b.scheduled_for, b.effective_at, b.created_at,
		       b.trigger, true, b.attempt, b.payload, b.missed, b.all_attempts, j.watched
		  FROM back b JOIN chronos.jobs j ON j.id = b.job_id`, id, tenant)
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		return retryRefused(ctx, tx, tenant, id)
	}
	return nil
}

func retryRefused(ctx context.Context, tx pgx.Tx, tenant string, id uuid.UUID) error {
	var status Status
	err := tx.QueryRow(ctx, `
		SELECT status FROM chronos.job_runs WHERE id = $1 AND tenant = $2
		UNION ALL
		SELECT status FROM chronos.run_history WHERE id = $1 AND tenant = $2
		LIMIT 1`, id, tenant).Scan(&status)
	if errors.Is(err, pgx.ErrNoRows) {
		return ErrNotFound
	}
	if err != nil {
		return err
	}
	return &StateError{id, status, "only failed, cancelled and missed runs can be retried"}
}

// followSQL gives runs what their job says of queue, target, priority, attempts and alerts. A backfill stays behind.
const followSQL = `
WITH astray AS MATERIALIZED (
	SELECT r.id, j.queue, j.target, CASE WHEN r.trigger = 'backfill' AND NOT r.asked THEN -1 ELSE j.priority END AS priority, j.max_attempts,
	       j.watched, CASE WHEN NOT j.watched OR r.trigger = 'backfill' OR r.attempt > 0 THEN NULL ELSE r.effective_at + j.late_after END AS late_at
	  FROM chronos.job_runs r JOIN chronos.jobs j ON j.id = r.job_id
	 WHERE %s
	   FOR UPDATE OF r SKIP LOCKED)
UPDATE chronos.job_runs r SET queue = a.queue, target = a.target, priority = a.priority, max_attempts = a.max_attempts,
       watched = a.watched, late_at = a.late_at
  FROM astray a WHERE r.id = a.id
   AND (r.queue, r.target, r.priority, r.max_attempts, r.watched, r.late_at) IS DISTINCT FROM (a.queue, a.target, a.priority, a.max_attempts, a.watched, a.late_at)`

func follow(ctx context.Context, tx pgx.Tx, ids []uuid.UUID) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, fmt.Sprintf(followSQL, `r.id = ANY($1)`), ids)
	return err
}

// Follow makes a job's runs go where the job now sends them, also those in flight, which may
// come back. With newTurns, those that wait for their turn ask whether it has come by the new rules. One that
// somebody is leasing is put right by them. The caller holds the job's row.
func Follow(ctx context.Context, tx pgx.Tx, job int64, newTurns bool) error {
	if _, err := tx.Exec(ctx, fmt.Sprintf(followSQL, `r.job_id = $1`), job); err != nil || !newTurns {
		return err
	}
	_, err := tx.Exec(ctx, `
		WITH parked AS MATERIALIZED (
			SELECT r.id FROM chronos.job_runs r WHERE r.job_id = $1 AND r.parked AND r.status = 'pending'
			 ORDER BY r.priority DESC, r.effective_at
			   FOR UPDATE SKIP LOCKED)
		UPDATE chronos.job_runs r SET parked = false, due_at = clock_timestamp() WHERE r.id = ANY(ARRAY(SELECT id FROM parked))`, job)
	return err
}

// Wake makes due again what has been put off although it had come due, because it waited
// for the end of a pause. The caller holds the job's row.
func Wake(ctx context.Context, tx pgx.Tx, job int64) error {
	_, err := tx.Exec(ctx, `
		WITH late AS MATERIALIZED (
			SELECT id FROM chronos.job_runs
			 WHERE job_id = $1 AND NOT parked AND status = 'pending' AND attempt = 0 AND NOT asked
			   AND effective_at <= clock_timestamp() AND due_at > clock_timestamp()
			 ORDER BY effective_at
			   FOR UPDATE SKIP LOCKED)
		UPDATE chronos.job_runs r SET due_at = clock_timestamp() WHERE r.id = ANY(ARRAY(SELECT id FROM late))`, job)
	return err
}
