package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"holdfast/chronos/alert"
)

// Kind is how a holder finishes an attempt.
type Kind string

// The run is done, or the attempt failed.
const (
	Complete Kind = "complete"
	Fail     Kind = "fail"
)

// Finish is the end of an attempt as its holder reports it.
type Finish struct {
	Holding
	Tenant  string // empty: whoever's it is
	Kind    Kind
	Attempt Attempt         // what came of it; number, times and token are the database's to say
	Result  json.RawMessage // kept with a completed run; nil: none

	// Of a failure: Final allows no further attempt. Else the run is retried Delay(n) after
	// its nth failure, unless that was the last one that is allowed.
	Final bool
	Delay func(failures int) time.Duration
}

// Finished says what became of the run.
type Finished struct {
	Status    Status     // succeeded, failed, or pending if it will be retried
	JobID     int64      // zero in the answer to a repeated finish
	Attempt   int        // the number of the attempt that was finished
	NextDueAt *time.Time // when it will be retried
	Repeated  bool       // it had been finished so before
	Queue     string     // where the run was
	Woke      bool       // something that waited for its end, or the end of others in its batch, is due now
}

// End finishes an attempt. It fails with [ErrLeaseLost] if the token isn't the run's current one or
// the lease has ended, by the database's clock; but who reports the same end of the same
// attempt again gets the same answer. It fails with [ErrNotFound] if the tenant has no such run.
func (f Finish) End(ctx context.Context, tx pgx.Tx) (Finished, error) {
	out, errs, err := EndAll(ctx, tx, []Finish{f})
	if err != nil {
		return Finished{}, err
	}
	return out[0], errs[0]
}

// lockHeldSQL keeps the runs as they are until they are moved on; the fence stands there again.
const lockHeldSQL = `
SELECT f.n, r.job_id, r.spent + 1, r.max_attempts, clock_timestamp()
  FROM unnest($1::uuid[], $2::uuid[], $3::text[]) WITH ORDINALITY AS f(id, token, tenant, n)
  JOIN chronos.job_runs r ON r.id = f.id AND r.lease_token = f.token AND (f.tenant = '' OR r.tenant = f.tenant)
 WHERE r.id = ANY($1) AND ` + held + `
   FOR UPDATE OF r`

// EndAll finishes attempts in one go, as [Finish.End] does each: errs has what each is refused with, and
// one that is refused spoils no other.
func EndAll(ctx context.Context, tx pgx.Tx, all []Finish) (out []Finished, errs []error, err error) {
	out, errs = make([]Finished, len(all)), make([]error, len(all))
	var failed []int // those whose outcome depends on what came before
	for i, f := range all {
		if f.Kind == Complete {
			out[i].Status = Succeeded
		} else {
			failed = append(failed, i)
		}
	}
	if err := judgeFailed(ctx, tx, all, failed, out, errs); err != nil {
		return nil, nil, err
	}
	if err := carryOut(ctx, tx, all, out, errs); err != nil {
		return nil, nil, err
	}
	for i, f := range all {
		if errs[i] != nil {
			if out[i], errs[i] = f.repeated(ctx, tx); errs[i] != nil && !errors.Is(errs[i], ErrLeaseLost) && !errors.Is(errs[i], ErrNotFound) {
				return nil, nil, errs[i]
			}
		}
	}
	return out, errs, nil
}

// judgeFailed locks the runs of failed attempts and decides which of them are tried again.
func judgeFailed(ctx context.Context, tx pgx.Tx, all []Finish, failed []int, out []Finished, errs []error) error {
	if len(failed) == 0 {
		return nil
	}
	ids, tokens, tenants := make([]uuid.UUID, len(failed)), make([]uuid.UUID, len(failed)), make([]string, len(failed))
	for k, i := range failed {
		ids[k], tokens[k], tenants[k] = all[i].Run, all[i].Token, all[i].Tenant
		errs[i] = ErrLeaseLost
	}
	rows, err := tx.Query(ctx, lockHeldSQL, native(ids), native(tokens), tenants)
	if err != nil {
		return err
	}
	var (
		n, failures, allowed int
		job                  int64
		now                  time.Time
		jobs                 = map[int]int64{} // of runs that are to be tried again
	)
	_, err = pgx.ForEachRow(rows, []any{&n, &job, &failures, &allowed, &now}, func() error {
		i := failed[n-1]
		if out[i], errs[i] = all[i].outcome(failures, allowed, now), nil; out[i].Status == Pending {
			jobs[i] = job
		}
		return nil
	})
	if err != nil {
		return err
	}
	gone, err := deletedJobs(ctx, tx, slices.Collect(maps.Values(jobs)))
	for i, job := range jobs {
		if gone[job] {
			out[i] = Finished{Status: Failed}
		}
	}
	return err
}

// outcome is what becomes of a run whose attempt fails so.
func (f *Finish) outcome(failures, allowed int, now time.Time) Finished {
	if f.Final || failures >= allowed {
		return Finished{Status: Failed}
	}
	at := now.Add(f.Delay(failures))
	return Finished{Status: Pending, NextDueAt: &at}
}

// deletedJobs tells which of the jobs are deleted. Until tx ends none of the others will be: who
// deletes one finds its runs as tx leaves them.
func deletedJobs(ctx context.Context, tx pgx.Tx, jobs []int64) (map[int64]bool, error) {
	gone := map[int64]bool{}
	if len(jobs) == 0 {
		return gone, nil
	}
	rows, err := tx.Query(ctx, `SELECT id, deleted_at IS NOT NULL FROM chronos.jobs WHERE id = ANY($1) ORDER BY id FOR KEY SHARE`, jobs)
	if err != nil {
		return nil, err
	}
	var (
		id      int64
		deleted bool
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &deleted}, func() error {
		gone[id] = deleted
		return nil
	})
	return gone, err
}

// moveAllSQL moves runs to history that have ended, each with what came of its last attempt.
const moveAllSQL = `
WITH gone AS (
	DELETE FROM chronos.job_runs r USING unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[])
	       AS f(id, token, ended, reason, came, result, whose)
	 WHERE r.id = ANY($1) AND r.id = f.id AND r.lease_token = f.token AND (f.whose = '' OR r.tenant = f.whose) AND ` + held + `
	RETURNING r.*, f.ended, f.reason, f.came, f.result),
moved AS (
INSERT INTO chronos.run_history (` + historyColumns + `)
SELECT ` + movedColumns + `, r.lease_token, r.ended, r.reason, r.result::json, r.came::jsonb FROM gone r)
SELECT id, job_id, attempt, queue, watched, late_at IS NOT NULL FROM gone`

// againSQL puts runs back that are to be tried again.
const againSQL = `
UPDATE chronos.job_runs r
   SET status = 'pending', due_at = f.due_at, spent = r.spent + 1, attempts = r.attempts || jsonb_build_array(` + attemptFacts + ` || f.came::jsonb),
       lease_token = NULL, leased_until = NULL, worker = NULL, answer = NULL
  FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::timestamptz[]) AS f(id, token, came, due_at)
 WHERE r.id = ANY($1) AND r.id = f.id AND r.lease_token = f.token AND ` + held + `
RETURNING r.id, r.job_id, r.attempt, r.queue, false, false`

// The runs of a batch are found by their ids, and matched with what is to become of them. What PostgreSQL believes to know of a table
// whose rows come and go is never right, and for one row it would compare each of the batch with each: for a thousand, a million
// comparisons. So it is told to match them by hash for as long as that takes.
const (
	withoutNestedLoops = `SET LOCAL enable_nestloop = off`
	withNestedLoops    = `SET LOCAL enable_nestloop = on`
)

// carryOut stores outcomes; what isn't held by now is lost.
func carryOut(ctx context.Context, tx pgx.Tx, all []Finish, out []Finished, errs []error) error {
	var (
		ids, tokens, againIDs, againTokens []uuid.UUID
		ended, came, tenants, againCame    []string
		reasons, results                   []*string
		due                                []*time.Time
		jobs                               []int64
		watched                            []alert.Ended
		index                              = make(map[uuid.UUID]int, len(all))
	)
	for i := range all {
		f := &all[i]
		if errs[i] != nil {
			continue
		}
		errs[i] = ErrLeaseLost // until it is stored
		if _, twice := index[f.Run]; twice {
			continue
		}
		index[f.Run] = i
		f.Attempt.Finish, f.Attempt.Then, f.Attempt.NextDueAt = f.Kind, out[i].Status, out[i].NextDueAt
		text, err := f.Attempt.text()
		if err != nil {
			return err
		}
		if out[i].Status == Pending {
			againIDs, againTokens, againCame, due = append(againIDs, f.Run), append(againTokens, f.Token), append(againCame, text), append(due, out[i].NextDueAt)
			continue
		}
		var reason, result *string
		if out[i].Status == Failed {
			reason = &f.Attempt.Outcome
		}
		if f.Result != nil {
			text := string(f.Result)
			result = &text
		}
		ids, tokens, ended, came = append(ids, f.Run), append(tokens, f.Token), append(ended, string(out[i].Status)), append(came, text)
		reasons, results, tenants = append(reasons, reason), append(results, result), append(tenants, f.Tenant)
	}
	if len(index) == 0 {
		return nil
	}
	collect := func(rows pgx.Rows) error {
		var (
			id          uuid.UUID
			got         Finished
			tells, look bool
		)
		_, err := pgx.ForEachRow(rows, []any{raw(&id), &got.JobID, &got.Attempt, &got.Queue, &tells, &look}, func() error {
			i := index[id]
			errs[i] = nil
			out[i].JobID, out[i].Attempt, out[i].Queue = got.JobID, got.Attempt, got.Queue
			jobs = append(jobs, got.JobID)
			if tells {
				watched = append(watched, alert.Ended{Run: id, JobID: got.JobID, Look: look})
			}
			return nil
		})
		return err
	}
	var batch pgx.Batch
	batch.Queue(withoutNestedLoops)
	if len(ids) > 0 {
		batch.Queue(moveAllSQL, native(ids), native(tokens), ended, reasons, came, results, tenants).Query(collect)
	}
	if len(againIDs) > 0 {
		batch.Queue(againSQL, native(againIDs), native(againTokens), againCame, due).Query(collect)
	}
	batch.Queue(withNestedLoops)
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil || len(jobs) == 0 {
		return err
	}
	slices.Sort(jobs)
	woke, err := NextTurn(ctx, tx, slices.Compact(jobs))
	for i := range out {
		out[i].Woke = woke > 0
	}
	if err != nil {
		return err
	}
	return alert.RunsEnded(ctx, tx, watched)
}

// repeated looks for the attempt that this token finished.
func (f Finish) repeated(ctx context.Context, tx pgx.Tx) (Finished, error) {
	known, err := attemptsOf(ctx, tx, f.Tenant, f.Run)
	if err != nil {
		return Finished{}, err
	}
	for _, a := range known {
		if a.Token != nil && *a.Token == f.Token && a.Finish == f.Kind {
			return Finished{Status: a.Then, Attempt: a.Number, NextDueAt: a.NextDueAt, Repeated: true}, nil
		}
	}
	return Finished{}, ErrLeaseLost
}

// attemptsOf reads a run's attempts, wherever it is; [ErrNotFound] if it is nowhere.
func attemptsOf(ctx context.Context, tx pgx.Tx, tenant string, id uuid.UUID) ([]Attempt, error) {
	var text []byte
	err := tx.QueryRow(ctx, `
		SELECT r.attempts FROM chronos.job_runs r WHERE r.id = $1 AND ($2 = '' OR r.tenant = $2)
		UNION ALL
		SELECT r.attempts || `+lastAttempts+` FROM chronos.run_history r WHERE r.id = $1 AND ($2 = '' OR r.tenant = $2)
		LIMIT 1`, id, tenant).Scan(&text)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	var attempts []Attempt
	if err := json.Unmarshal(text, &attempts); err != nil {
		return nil, fmt.Errorf("attempts of run %s: %w", id, err)
	}
	return attempts, nil
}

func lostOrUnknown(ctx context.Context, tx pgx.Tx, tenant string, id uuid.UUID) error {
	if _, err := attemptsOf(ctx, tx, tenant, id); err != nil {
		return err
	}
	return ErrLeaseLost
}
