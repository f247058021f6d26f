package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
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
}

// End finishes an attempt. It fails with [ErrLeaseLost] if the token isn't the run's current one or
// the lease has ended, by the database's clock; but who reports the same end of the same
// attempt again gets the same answer. It fails with [ErrNotFound] if the tenant has no such run.
func (f Finish) End(ctx context.Context, tx pgx.Tx) (Finished, error) {
	out := Finished{}
	var (
		spent, allowed int
		now            time.Time
	)
	// The lock keeps the run as it is until it is moved on; the fence stands there again.
	err := tx.QueryRow(ctx, `
		SELECT r.job_id, r.attempt, r.spent, r.max_attempts, clock_timestamp() FROM chronos.job_runs r
		 WHERE r.id = $1 AND r.lease_token = $2 AND ($3 = '' OR r.tenant = $3) AND `+held+`
		   FOR UPDATE`, f.Run, f.Token, f.Tenant).Scan(&out.JobID, &out.Attempt, &spent, &allowed, &now)
	if errors.Is(err, pgx.ErrNoRows) {
		return f.repeated(ctx, tx)
	}
	if err != nil {
		return out, err
	}
	f.Attempt.Finish = f.Kind
	switch {
	case f.Kind == Complete:
		out.Status = Succeeded
	case f.Final || spent+1 >= allowed:
		out.Status = Failed
	default:
		out.Status = Pending
		at := now.Add(f.Delay(spent + 1))
		out.NextDueAt = &at
	}
	f.Attempt.Then, f.Attempt.NextDueAt = out.Status, out.NextDueAt
	if out.Status == Pending {
		err = f.again(ctx, tx)
	} else {
		err = f.move(ctx, tx, out.Status)
	}
	return out, err
}

func (f Finish) move(ctx context.Context, tx pgx.Tx, status Status) error {
	attempt, err := f.Attempt.text()
	if err != nil {
		return err
	}
	var reason, result *string
	if status == Failed {
		reason = &f.Attempt.Outcome
	}
	if f.Result != nil {
		text := string(f.Result)
		result = &text
	}
	tag, err := tx.Exec(ctx, moveHead+`r.id = $5 AND r.lease_token = $6 AND `+held+moveTail,
		status, reason, attempt, result, f.Run, f.Token)
	return lostIfNone(tag.RowsAffected(), err)
}

func (f Finish) again(ctx context.Context, tx pgx.Tx) error {
	attempt, err := f.Attempt.text()
	if err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, `
		UPDATE chronos.job_runs r
		   SET status = 'pending', due_at = $4, spent = r.spent + 1, attempts = r.attempts || `+attemptOf+`,
		       lease_token = NULL, leased_until = NULL, worker = NULL, answer = NULL
		 WHERE r.id = $1 AND r.lease_token = $2 AND `+held, f.Run, f.Token, attempt, f.Attempt.NextDueAt)
	return lostIfNone(tag.RowsAffected(), err)
}

func lostIfNone(rows int64, err error) error {
	if err == nil && rows == 0 {
		return ErrLeaseLost
	}
	return err
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
		SELECT attempts FROM chronos.job_runs WHERE id = $1 AND ($2 = '' OR tenant = $2)
		UNION ALL
		SELECT attempts FROM chronos.run_history WHERE id = $1 AND ($2 = '' OR tenant = $2)
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
