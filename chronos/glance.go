package chronos

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"holdfast/chronos/queue"
)

// Glance is a run as far as a look over many of them needs it.
type Glance struct {
	ID           uuid.UUID
	Status       queue.Status
	ScheduledFor time.Time
	Reason       string
	Missed       *queue.Stretch
	Attempt      int // the number of the last one; 0: none was made
}

// glancesSQL reads each job's latest runs by its index: a bounded number of rows, however many runs there are.
const glancesSQL = `
SELECT j.id, g.id, g.status, g.scheduled_for, coalesce(g.reason, ''), g.missed, g.attempt
  FROM unnest($1::bigint[]) AS j(id)
 CROSS JOIN LATERAL (
	SELECT id, status, scheduled_for, reason, missed, attempt FROM (
		(SELECT id, status, scheduled_for, NULL::text AS reason, missed, attempt FROM chronos.job_runs
		  WHERE job_id = j.id AND (status <> 'pending' OR attempt > 0 OR due_at <= (SELECT clock_timestamp()))
		  ORDER BY scheduled_for DESC, id DESC LIMIT $2)
		UNION ALL
		(SELECT id, status, scheduled_for, reason, missed, attempt FROM chronos.run_history
		  WHERE job_id = j.id
		  ORDER BY scheduled_for DESC, id DESC LIMIT $2)) r
	 ORDER BY scheduled_for DESC, id DESC LIMIT $2) g`

// LatestRuns gives up to limit runs of each of the jobs, the latest ScheduledFor first, by the job's
// ID. Runs that haven't come due yet are left out.
func (s *Store) LatestRuns(ctx context.Context, jobs []Job, limit int) (map[int64][]Glance, error) {
	ids := make([]int64, len(jobs))
	for i, j := range jobs {
		ids[i] = j.ID
	}
	rows, err := s.pool.Query(ctx, glancesSQL, ids, limit)
	if err != nil {
		return nil, err
	}
	found := make(map[int64][]Glance, len(jobs))
	var (
		job    int64
		g      Glance
		missed []byte
	)
	_, err = pgx.ForEachRow(rows, []any{&job, &g.ID, &g.Status, &g.ScheduledFor, &g.Reason, &missed, &g.Attempt}, func() error {
		g.Missed = nil
		if missed != nil {
			if err := json.Unmarshal(missed, &g.Missed); err != nil {
				return fmt.Errorf("missed instants of run %s: %w", g.ID, err)
			}
		}
		found[job] = append(found[job], g)
		return nil
	})
	return found, err
}

// troublesSQL looks through the tenant's latest ends by their index. No index knows the status,
// so the number of rows to look at is bounded instead.
const troublesSQL = `
SELECT r.id, coalesce(j.name, ''), r.status, r.trigger, r.scheduled_for, r.effective_at, r.created_at, r.finished_at, r.reason, r.missed,
       r.payload, r.result, r.attempts, r.attempt, r.worker, r.started_at, r.answer, r.outcome
  FROM (SELECT id, job_id, status, trigger, scheduled_for, effective_at, created_at, finished_at, reason, missed, payload, result, attempts, attempt,
               worker, started_at, answer, outcome
          FROM chronos.run_history WHERE tenant = $1 ORDER BY scheduled_for DESC, id DESC LIMIT $2) r
  LEFT JOIN chronos.jobs j ON j.id = r.job_id
 WHERE r.status IN ('failed', 'missed', 'skipped') AND r.reason IS DISTINCT FROM 'paused'
 ORDER BY r.scheduled_for DESC, r.id DESC LIMIT $3`

// Troubles gives up to limit runs that failed, were missed, or were skipped though nobody had paused
// their job, among the tenant's latest that have ended, of which it looks at the given number. The latest
// ScheduledFor comes first.
func (s *Store) Troubles(ctx context.Context, tenant string, among, limit int) ([]Run, error) {
	rows, err := s.pool.Query(ctx, troublesSQL, tenant, among, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanRun)
}
