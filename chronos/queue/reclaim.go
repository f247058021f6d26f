package queue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/chronos/alert"
	"holdfast/internal/pg"
)

// expiredSQL pages through the leases that have ended, in the order of the due index. What is leased was due then, so it stands in
// the front of its lane, which is a queue and a priority, and what is to come, however much it is, isn't looked at. The
// lanes are found from their far ends, where there are few rows that are gone but not yet vacuumed. The CASE keeps the planner
// of queries from thinking that so few leases are worth a scan of the whole table.
const expiredSQL = `
WITH RECURSIVE lanes AS (
	(SELECT r.queue, r.priority FROM chronos.job_runs r ORDER BY r.queue DESC, r.priority DESC LIMIT 1)
	UNION ALL
	SELECT before.* FROM lanes l CROSS JOIN LATERAL (
		SELECT r.queue, r.priority FROM chronos.job_runs r WHERE (r.queue, r.priority) < (l.queue, l.priority)
		 ORDER BY r.queue DESC, r.priority DESC LIMIT 1) before)
SELECT ended.* FROM lanes l CROSS JOIN LATERAL (
	SELECT r.queue, r.priority, r.due_at, r.id FROM chronos.job_runs r
	 WHERE r.queue = l.queue AND r.priority = l.priority AND r.due_at <= (SELECT clock_timestamp())
	   AND (r.queue, r.priority, r.due_at, r.id) > ($1, $2, $3, $4)
	   AND CASE WHEN r.status IN ('leased', 'running') AND r.leased_until < clock_timestamp() THEN true END
	 ORDER BY r.due_at, r.id LIMIT $5) ended
 ORDER BY ended.queue, ended.priority, ended.due_at, ended.id LIMIT $5`

// place is where a run stands in expiredSQL's order.
type place struct {
	Queue    string
	Priority int16
	DueAt    time.Time
	ID       uuid.UUID
}

// reclaimSQL takes back those of $1 whose lease has ended when their row is locked: the predicate
// stands in the UPDATE and the DELETE themselves, so a lease that was renewed, finished or
// reclaimed since they were found is left alone. SKIP LOCKED leaves to a rival, or
// to a renewal under way, what it is at work on. A run whose last allowed attempt this was ends.
const reclaimSQL = `
WITH expired AS MATERIALIZED (
	SELECT r.id, r.spent + 1 >= r.max_attempts AS last FROM chronos.job_runs r
	 WHERE r.id = ANY($1) AND r.status IN ('leased', 'running') AND r.leased_until < clock_timestamp()
	   FOR UPDATE SKIP LOCKED),
again AS (
	UPDATE chronos.job_runs r
	   SET status = 'pending', due_at = clock_timestamp(), spent = r.spent + 1, attempts = r.attempts || ` + reapedAttempt + `,
	       lease_token = NULL, leased_until = NULL, worker = NULL, answer = NULL
	  FROM expired e
	 WHERE r.id = e.id AND NOT e.last AND r.status IN ('leased', 'running') AND r.leased_until < clock_timestamp()
	RETURNING r.id, r.job_id),
gone AS (
	DELETE FROM chronos.job_runs r USING expired e
	 WHERE r.id = e.id AND e.last AND r.status IN ('leased', 'running') AND r.leased_until < clock_timestamp()
	RETURNING r.*),
moved AS (
	INSERT INTO chronos.run_history (` + historyColumns + `)
	SELECT ` + movedColumns + `, NULL, 'failed', '` + OutcomeLeaseExpired + `', NULL, ` + reapedOutcome + ` FROM gone r)
SELECT id, job_id, true, false, false FROM again UNION ALL SELECT id, job_id, false, watched, late_at IS NOT NULL FROM gone`

const reapedAttempt = `jsonb_build_array(jsonb_build_object('number', r.attempt, 'worker', coalesce(r.worker, ''), 'started_at', r.started_at,
	'finished_at', clock_timestamp()) || coalesce(r.answer, '{}') || ` + reapedOutcome + `)`

const reapedOutcome = `'{"outcome": "` + OutcomeLeaseExpired + `"}'`

// Reclaimed counts what a reaper took back.
type Reclaimed struct {
	Requeued int // pending again
	Failed   int // ended, their last allowed attempt lost
}

// Total is the number of leases taken back.
func (r Reclaimed) Total() int { return r.Requeued + r.Failed }

// ReclaimExpiredLeases takes back leases that have ended by the database's clock, about limit
// of them, and returns what it took: their workers have gone, so the runs become pending again,
// due at once, and the lost attempt counts; a run that has none left has failed. A lease that
// hasn't ended is never touched, and a run is reclaimed whether or not its job exists.
// A row that can't be reclaimed is passed over and named in the error, which comes
// with what was done nevertheless. Any number of replicas may call it at once.
func ReclaimExpiredLeases(ctx context.Context, db *pgxpool.Pool, limit int) (Reclaimed, error) {
	var (
		done Reclaimed
		errs []error
		last = place{Priority: math.MinInt16} // before all others
	)
	for done.Total() < limit {
		rows, err := db.Query(ctx, expiredSQL, last.Queue, last.Priority, last.DueAt, last.ID, limit)
		if err != nil {
			return done, errors.Join(append(errs, err)...)
		}
		page, err := pgx.CollectRows(rows, pgx.RowToStructByPos[place])
		if err != nil {
			return done, errors.Join(append(errs, err)...)
		}
		if len(page) > 0 {
			last = page[len(page)-1]
			ids := make([]uuid.UUID, len(page))
			for i, p := range page {
				ids[i] = p.ID
			}
			err = reclaim(ctx, db, ids, &done)
			if pg.Unavailable(err) || ctx.Err() != nil {
				return done, errors.Join(append(errs, err)...)
			}
			if err != nil {
				errs = append(errs, reclaimSingly(ctx, db, ids, &done)...)
			}
		}
		if len(page) < limit {
			break
		}
	}
	return done, errors.Join(errs...)
}

func reclaim(ctx context.Context, db *pgxpool.Pool, ids []uuid.UUID, done *Reclaimed) error {
	var again []uuid.UUID
	var jobs, againJobs []int64
	var watched []alert.Ended
	err := InTx(ctx, db, pg.TxOptions{}, func(tx pgx.Tx) error {
		again, jobs, againJobs, watched = nil, nil, nil, nil
		rows, err := tx.Query(ctx, reclaimSQL, ids)
		if err != nil {
			return err
		}
		var (
			id                   uuid.UUID
			job                  int64
			pending, tells, look bool
		)
		_, err = pgx.ForEachRow(rows, []any{&id, &job, &pending, &tells, &look}, func() error {
			jobs = append(jobs, job)
			if tells {
				watched = append(watched, alert.Ended{Run: id, JobID: job, Look: look})
			}
			if pending {
				again, againJobs = append(again, id), append(againJobs, job)
			}
			return nil
		})
		if err != nil || len(jobs) == 0 {
			return err
		}
		if err := endOrphans(ctx, tx, again, againJobs); err != nil {
			return err
		}
		if _, err = NextTurn(ctx, tx, jobs); err != nil {
			return err
		}
		return alert.RunsEnded(ctx, tx, watched)
	})
	if err == nil {
		done.Requeued += len(again)
		done.Failed += len(jobs) - len(again)
	}
	return err
}

// reclaimSingly finds out which row of a page it was that spoiled it.
func reclaimSingly(ctx context.Context, db *pgxpool.Pool, ids []uuid.UUID, done *Reclaimed) (errs []error) {
	for _, id := range ids {
		if err := reclaim(ctx, db, []uuid.UUID{id}, done); err != nil {
			errs = append(errs, fmt.Errorf("reclaim run %s: %w", id, err))
			if pg.Unavailable(err) || ctx.Err() != nil {
				break
			}
		}
	}
	return errs
}
