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

// Run is a run as it stands, wherever it is kept.
type Run struct {
	ID           uuid.UUID
	Job          string
	Status       queue.Status
	Trigger      queue.Trigger
	ScheduledFor time.Time
	EffectiveAt  time.Time
	CreatedAt    time.Time
	FinishedAt   *time.Time // nil: it has no end yet
	Reason       string
	Missed       *queue.Stretch
	Payload      json.RawMessage `json:",omitempty"` // nil must come back from a stored answer as nil
	Result       json.RawMessage `json:",omitempty"`
	Attempts     []queue.Attempt // with the one that is going, without FinishedAt
}

// runsSQL is both places where runs are, as one; %s is what of each is wanted.
const runsSQL = `
SELECT r.id, coalesce(j.name, ''), r.status, r.trigger, r.scheduled_for, r.effective_at, r.created_at, r.finished_at, r.reason, r.missed,
       r.payload, r.result, r.attempts, r.attempt, r.worker, r.started_at, r.answer, r.outcome
  FROM ((SELECT id, job_id, status, trigger, scheduled_for, effective_at, created_at, NULL::timestamptz AS finished_at,
                NULL::text AS reason, missed, payload, NULL::json AS result, attempts, attempt, worker, started_at, answer, NULL::jsonb AS outcome
           FROM chronos.job_runs r WHERE %[1]s)
        UNION ALL
        (SELECT id, job_id, status, trigger, scheduled_for, effective_at, created_at, finished_at,
                reason, missed, payload, result, attempts, attempt, worker, started_at, answer, outcome
           FROM chronos.run_history r WHERE %[1]s)) r
  LEFT JOIN chronos.jobs j ON j.id = r.job_id`

func scanRun(row pgx.CollectableRow) (Run, error) {
	var (
		r                Run
		reason, worker   *string
		missed, attempts []byte
		answer, outcome  []byte
		last             queue.Attempt // that is going, or ended the run
	)
	err := row.Scan(&r.ID, &r.Job, &r.Status, &r.Trigger, &r.ScheduledFor, &r.EffectiveAt, &r.CreatedAt, &r.FinishedAt, &reason, &missed,
		&r.Payload, &r.Result, &attempts, &last.Number, &worker, &last.StartedAt, &answer, &outcome)
	if err != nil {
		return r, err
	}
	if reason != nil {
		r.Reason = *reason
	}
	if missed != nil {
		if err := json.Unmarshal(missed, &r.Missed); err != nil {
			return r, fmt.Errorf("missed instants of run %s: %w", r.ID, err)
		}
	}
	if err := json.Unmarshal(attempts, &r.Attempts); err != nil {
		return r, fmt.Errorf("attempts of run %s: %w", r.ID, err)
	}
	going := r.Status == queue.Leased || r.Status == queue.Running
	if !going && outcome == nil {
		return r, nil
	}
	if worker != nil {
		last.Worker = *worker
	}
	for _, text := range [][]byte{answer, outcome} {
		if text == nil {
			continue
		}
		if err := json.Unmarshal(text, &last); err != nil {
			return r, fmt.Errorf("last attempt of run %s: %w", r.ID, err)
		}
	}
	last.FinishedAt = r.FinishedAt
	if going {
		last.Outcome = string(r.Status)
	}
	r.Attempts = append(r.Attempts, last)
	return r, nil
}

func readRun(ctx context.Context, tx querier, tenant string, id uuid.UUID) (Run, error) {
	rows, err := tx.Query(ctx, fmt.Sprintf(runsSQL, `r.id = $1 AND r.tenant = $2`), id, tenant)
	if err != nil {
		return Run{}, err
	}
	r, err := pgx.CollectOneRow(rows, scanRun)
	return r, noRows(err, queue.ErrNotFound)
}

// GetRun gives one run; [queue.ErrNotFound] if the tenant has none of this id.
func (s *Store) GetRun(ctx context.Context, tenant string, id uuid.UUID) (Run, error) {
	return readRun(ctx, s.pool, tenant, id)
}

// RunFilter says which runs a list has. A zero field doesn't restrict it.
type RunFilter struct {
	Job      string
	Status   queue.Status
	From, To time.Time    // by ScheduledFor, half open; without To, up to now
	After    *RunPosition // continue after this one
	Limit    int          // at least 1
}

// RunPosition is a run's place in a list.
type RunPosition struct {
	ScheduledFor time.Time `json:"at"`
	ID           uuid.UUID `json:"id"`
}

// Position is where the run stands in a list.
func (r *Run) Position() RunPosition { return RunPosition{r.ScheduledFor, r.ID} }

// ListRuns gives runs of the tenant, the latest ScheduledFor first. A job that was deleted keeps its runs.
func (s *Store) ListRuns(ctx context.Context, tenant string, f RunFilter) ([]Run, error) {
	where, args := `r.tenant = $1`, []any{tenant, f.Limit}
	add := func(condition string, values ...any) {
		for _, v := range values {
			args = append(args, v)
			condition = fmt.Sprintf(condition, len(args))
		}
		where += " AND " + condition
	}
	if f.Job != "" {
		rows, err := s.pool.Query(ctx, `SELECT id FROM chronos.jobs WHERE tenant = $1 AND name = $2`, tenant, f.Job)
		if err != nil {
			return nil, err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return nil, err
		}
		if len(ids) == 0 {
			return nil, nil
		}
		if len(ids) == 1 {
			add(`r.job_id = $%d`, ids[0]) // an index then gives the order
		} else {
			add(`r.job_id = ANY($%d)`, ids)
		}
	}
	if f.Status != "" {
		add(`r.status = $%d`, string(f.Status))
	}
	if !f.From.IsZero() {
		add(`r.scheduled_for >= $%d`, f.From)
	}
	if f.To.IsZero() {
		where += " AND r.scheduled_for <= (SELECT clock_timestamp())"
	} else {
		add(`r.scheduled_for < $%d`, f.To)
	}
	if f.After != nil {
		args = append(args, f.After.ScheduledFor, f.After.ID)
		where += fmt.Sprintf(" AND (r.scheduled_for, r.id) < ($%d, $%d)", len(args)-1, len(args))
	}
	const order = ` ORDER BY r.scheduled_for DESC, r.id DESC LIMIT $2`
	rows, err := s.pool.Query(ctx, fmt.Sprintf(runsSQL, where+order)+order, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanRun)
}

// CancelRun ends a run at once, and stops its delivery; see [queue.Cancel].
func (s *Store) CancelRun(ctx context.Context, c Caller, id uuid.UUID) (Run, bool, error) {
	run, replayed, err := command(ctx, s, c, func(tx pgx.Tx) (Run, error) {
		if _, err := queue.Cancel(ctx, tx, c.Tenant, id); err != nil {
			return Run{}, err
		}
		return readRun(ctx, tx, c.Tenant, id)
	})
	if err == nil {
		s.bell.taken()
		s.bell.ringAll() // one that waited for it may start
	}
	return run, replayed, err
}

// RetryRun takes a failed, cancelled or missed run back; see [queue.Retry].
func (s *Store) RetryRun(ctx context.Context, c Caller, id uuid.UUID) (Run, bool, error) {
	run, replayed, err := command(ctx, s, c, func(tx pgx.Tx) (Run, error) {
		if err := queue.Retry(ctx, tx, c.Tenant, id); err != nil {
			return Run{}, err
		}
		return readRun(ctx, tx, c.Tenant, id)
	})
	if err == nil {
		s.bell.ringAll()
	}
	return run, replayed, err
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}
