package alert

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// pausedStep is how soon a run of a paused job is looked at again.
const pausedStep = 30 * time.Second

// dueToLookSQL picks the runs that it is time to look at. What a rival is looking at, leasing or finishing is passed
// over: it comes again, or ends.
const dueToLookSQL = `
SELECT r.id, r.job_id, r.scheduled_for, r.effective_at, coalesce((r.attempts->0->>'started_at')::timestamptz, r.started_at)
  FROM chronos.job_runs r WHERE r.late_at <= (SELECT clock_timestamp()) ORDER BY r.late_at LIMIT $1
   FOR UPDATE SKIP LOCKED`

// lookAgainSQL says when runs are to be looked at again, if ever.
const lookAgainSQL = `
UPDATE chronos.job_runs r SET late_at = t.late_at FROM unnest($1::uuid[], $2::timestamptz[]) AS t(id, late_at)
 WHERE r.id = ANY($1) AND r.id = t.id`

// FindLate tells of up to limit runs that haven't begun in time, or did so too late, and says how many it has looked at; those of
// jobs that somebody else has at hand come again. Any number of replicas may call it at once.
func FindLate(ctx context.Context, tx pgx.Tx, limit int) (looked int, err error) {
	rows, err := tx.Query(ctx, dueToLookSQL, limit)
	if err != nil {
		return 0, err
	}
	type run struct {
		ID                   uuid.UUID
		JobID                int64
		Scheduled, Effective time.Time
		Started              *time.Time
	}
	runs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[run])
	if err != nil || len(runs) == 0 {
		return 0, err
	}
	of := make([]int64, len(runs))
	for i, r := range runs {
		of[i] = r.JobID
	}
	// The runs must not stay locked while this waits for a job: their leases couldn't be renewed.
	jobs, now, err := lockWatched(ctx, tx, lockWatchedSQL+" SKIP LOCKED", of)
	if err != nil {
		return 0, err
	}
	rows, err = tx.Query(ctx, `SELECT id FROM chronos.jobs WHERE id = ANY($1) AND watched AND deleted_at IS NULL`, of)
	if err != nil {
		return 0, err
	}
	watched, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return 0, err
	}
	runs = slices.DeleteFunc(runs, func(r run) bool { return jobs[r.JobID] == nil && slices.Contains(watched, r.JobID) })
	ids, again := make([][16]byte, len(runs)), make([]*time.Time, len(runs))
	var news []News
	for i, r := range runs {
		ids[i] = r.ID
		j := jobs[r.JobID]
		switch {
		case j == nil: // nobody is to be told any more
		case j.paused && r.Started == nil:
			at := now.Add(pausedStep)
			again[i] = &at
		case r.Started != nil:
			by := r.Started.Sub(r.Effective)
			j.incident.InTime(by, j.rules)
			news = append(news, late(j, r.ID, r.Scheduled, r.Effective, now, r.Started, j.incident.Late(by, j.rules)))
		default:
			by := now.Sub(r.Effective)
			news = append(news, late(j, r.ID, r.Scheduled, r.Effective, now, nil, j.incident.Late(by, j.rules)))
			again[i] = nextLook(j.rules, r.Effective, by)
		}
	}
	if _, err := tx.Exec(ctx, lookAgainSQL, ids, again); err != nil {
		return 0, err
	}
	return len(runs), keep(ctx, tx, jobs, news)
}

// nextLook is when a run that is late by so much becomes late by another rule; nil: by none.
func nextLook(rules []Rule, effective time.Time, by time.Duration) (next *time.Time) {
	for _, r := range rules {
		if at := effective.Add(r.lateAfter()); r.is(Late) && r.lateAfter() > by && (next == nil || at.Before(*next)) {
			next = &at
		}
	}
	return next
}
