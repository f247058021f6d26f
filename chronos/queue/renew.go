package queue

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// renewSQL passes over a row that is locked, since one of them must not keep the others from
// being renewed in time: it is asked for again at the next beat.
const renewSQL = `
WITH mine AS MATERIALIZED (
	SELECT r.id FROM chronos.job_runs r JOIN unnest($1::uuid[], $2::uuid[]) AS h(id, token) ON r.id = h.id AND r.lease_token = h.token
	 WHERE r.id = ANY($1) AND ` + held + `
	   FOR UPDATE OF r SKIP LOCKED),
renewed AS (
	UPDATE chronos.job_runs r
	   SET leased_until = greatest(r.leased_until, clock_timestamp() + make_interval(secs => $3)), status = 'running'
	  FROM mine, unnest($1::uuid[], $2::uuid[]) AS h(id, token)
	 WHERE r.id = ANY($1) AND r.id = mine.id AND r.id = h.id AND r.lease_token = h.token AND ` + held + `
	RETURNING r.id)
SELECT r.id, renewed.id IS NOT NULL
  FROM chronos.job_runs r
  JOIN unnest($1::uuid[], $2::uuid[]) AS h(id, token) ON r.id = h.id AND r.lease_token = h.token
  LEFT JOIN renewed ON renewed.id = r.id
 WHERE r.id = ANY($1) AND ` + held

// Renewal is what a renewal found.
type Renewal int

// A holding is lost, still held but not renewed (its row was locked), or renewed.
const (
	Lost Renewal = iota
	Kept
	Renewed
)

// Renew makes all these leases last for at least d from now, in one statement: time that somebody
// was promised, a receiver that takes longer, say, is never taken back. What isn't in the
// answer is lost.
func Renew(ctx context.Context, db querier, holdings []Holding, d time.Duration) (map[uuid.UUID]Renewal, error) {
	ids, tokens := split(holdings)
	rows, err := db.Query(ctx, renewSQL, native(ids), native(tokens), d.Seconds())
	if err != nil {
		return nil, err
	}
	found := make(map[uuid.UUID]Renewal, len(holdings))
	var (
		id      uuid.UUID
		renewed bool
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &renewed}, func() error {
		found[id] = Kept
		if renewed {
			found[id] = Renewed
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

func split(holdings []Holding) (ids, tokens []uuid.UUID) {
	for _, h := range holdings {
		ids, tokens = append(ids, h.Run), append(tokens, h.Token)
	}
	return ids, tokens
}

// Heartbeat renews one lease of the tenant's and returns its new end by the database's clock. It
// never shortens a lease. It fails with [ErrLeaseLost].
func Heartbeat(ctx context.Context, tx pgx.Tx, tenant string, h Holding, d time.Duration) (until time.Time, err error) {
	err = tx.QueryRow(ctx, `
		UPDATE chronos.job_runs r
		   SET leased_until = greatest(r.leased_until, clock_timestamp() + make_interval(secs => $4)), status = 'running'
		 WHERE r.id = $1 AND r.lease_token = $2 AND r.tenant = $3 AND `+held+`
		RETURNING r.leased_until`, h.Run, h.Token, tenant, d.Seconds()).Scan(&until)
	if errors.Is(err, pgx.ErrNoRows) {
		return until, lostOrUnknown(ctx, tx, tenant, h.Run)
	}
	return until, err
}

// Accept leaves the run with whoever knows the token, for d from now: the receiver has said
// that it goes on and will report. answer is kept with the attempt. It fails with [ErrLeaseLost].
func Accept(ctx context.Context, tx pgx.Tx, h Holding, d time.Duration, answer Attempt) error {
	text, err := answer.text()
	if err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, `
		UPDATE chronos.job_runs r
		   SET leased_until = greatest(r.leased_until, clock_timestamp() + make_interval(secs => $3)), status = 'running', answer = $4
		 WHERE r.id = $1 AND r.lease_token = $2 AND `+held, h.Run, h.Token, d.Seconds(), text)
	if err == nil && tag.RowsAffected() == 0 {
		return ErrLeaseLost
	}
	return err
}

// Release gives leases back, due at once; the attempts don't count towards max_attempts.
// What isn't held any more is passed over.
func Release(ctx context.Context, tx pgx.Tx, holdings []Holding) error {
	_, err := release(ctx, tx, holdings)
	return err
}

// GiveBack is [Release] for one lease of the tenant's, and tells the run's queue. It fails with [ErrLeaseLost] or [ErrNotFound].
func GiveBack(ctx context.Context, tx pgx.Tx, tenant string, h Holding) (queue string, err error) {
	if _, err := attemptsOf(ctx, tx, tenant, h.Run); err != nil {
		return "", err
	}
	queues, err := release(ctx, tx, []Holding{h})
	if err != nil {
		return "", err
	}
	if len(queues) == 0 {
		return "", ErrLeaseLost
	}
	return queues[0], nil
}

// release tells the queues of the runs that it gave back.
func release(ctx context.Context, tx pgx.Tx, holdings []Holding) (queues []string, err error) {
	ids, tokens := split(holdings)
	outcome, err := Attempt{Outcome: OutcomeReleased}.text()
	if err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, `
		UPDATE chronos.job_runs r
		   SET status = 'pending', due_at = clock_timestamp(), lease_token = NULL, leased_until = NULL, worker = NULL, answer = NULL,
		       attempts = r.attempts || `+attemptOf+`
		  FROM unnest($1::uuid[], $2::uuid[]) AS h(id, token)
		 WHERE r.id = ANY($1) AND r.id = h.id AND r.lease_token = h.token AND `+held+`
		RETURNING r.id, r.job_id, r.queue`, ids, tokens, outcome)
	if err != nil {
		return nil, err
	}
	var (
		back  []uuid.UUID
		jobs  []int64
		id    uuid.UUID
		job   int64
		queue string
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &job, &queue}, func() error {
		back, jobs, queues = append(back, id), append(jobs, job), append(queues, queue)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return queues, endOrphans(ctx, tx, back, jobs)
}

// endOrphans ends those of the runs, which tx has just made pending, whose job is deleted: nobody else
// would, if they are pulled and nobody pulls.
func endOrphans(ctx context.Context, tx pgx.Tx, ids []uuid.UUID, jobs []int64) error {
	gone, err := deletedJobs(ctx, tx, jobs)
	if err != nil {
		return err
	}
	var orphans []uuid.UUID
	for i, id := range ids {
		if gone[jobs[i]] {
			orphans = append(orphans, id)
		}
	}
	return end(ctx, tx, orphans, Cancelled, ReasonJobDeleted)
}

// text is what is known of an attempt, without what the database adds.
func (a Attempt) text() (string, error) {
	text, err := json.Marshal(struct {
		Outcome    string     `json:"outcome"`
		StatusCode int        `json:"status_code,omitempty"`
		LatencyMS  *int64     `json:"latency_ms,omitempty"`
		Response   string     `json:"response,omitempty"`
		Error      string     `json:"error,omitempty"`
		Finish     Kind       `json:"finish,omitempty"`
		Then       Status     `json:"then,omitempty"`
		NextDueAt  *time.Time `json:"next_due_at,omitempty"`
	}{a.Outcome, a.StatusCode, a.LatencyMS, a.Response, a.Error, a.Finish, a.Then, a.NextDueAt})
	return string(text), err
}
