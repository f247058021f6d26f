package chronos

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"holdfast/chronos/queue"
	"holdfast/internal/pg"
	"holdfast/webhook"
)

// What a pull worker may ask for.
const (
	MinLease = time.Second
	MaxLease = 24 * time.Hour
	MaxWait  = 30 * time.Second
)

// pollEvery is how often a queue is looked at while nothing says that something has come due.
const pollEvery = 250 * time.Millisecond

// errNothingYet rolls back a claim that found nothing, so that its idempotency key stays unused.
var errNothingYet = errors.New("nothing is due yet")

const (
	// clearBatch is how many runs that can't start are moved out of the way at once,
	clearBatch = 500
	// clearRounds how often that is done before a worker is told that there is nothing.
	clearRounds = 20
)

// LeaseRuns leases up to claim.Max runs of one of the tenant's queues for a pull worker. If none is
// due it looks again until wait has passed, or until stop is closed, without holding a
// connection meanwhile; then it gives none.
func (s *Store) LeaseRuns(ctx context.Context, c Caller, claim queue.Claim, wait time.Duration, stop <-chan struct{}) (runs []queue.Run, replayed bool, err error) {
	asked := time.Now()
	until := asked.Add(wait)
	claim.Front = s.fronts.front(claim.Queue)
	rounds := 0
	for last := false; ; {
		rang := s.bell.wait(claim.Queue)
		last = last || !time.Now().Before(until)
		if claim.Front.Stale() {
			if _, _, err := queue.NextDue(ctx, s.pool, claim); err != nil {
				return nil, false, err
			}
		}
		var claimed queue.Claimed
		inTheWay := false // runs that mustn't start, or not yet, stand before others
		waited := time.Since(asked)
		runs, replayed, err = command(ctx, s, c, func(tx pgx.Tx) (_ []queue.Run, err error) {
			claimed, err = queue.Lease(ctx, tx, claim)
			inTheWay = len(claimed.Settled)+claimed.Waiting > 0 && rounds < clearRounds
			for i := range claimed.Runs {
				claimed.Runs[i].Waited = waited
			}
			if err == nil && len(claimed.Runs) == 0 && (inTheWay || !last) {
				err = errNothingYet
			}
			return claimed.Runs, err
		})
		if err == nil && len(claimed.Replaced) > 0 {
			s.bell.taken()
		}
		if !errors.Is(err, errNothingYet) {
			return runs, replayed, err
		}
		if inTheWay {
			rounds++
			if err := s.settleOnly(ctx, claim); err != nil {
				return nil, false, err
			}
			continue
		}
		rounds = 0
		if last, err = s.awaitDue(ctx, claim, until, rang, stop); err != nil {
			return nil, false, err
		}
	}
}

// awaitDue returns when something may be due for the claim, or when nothing needs be waited for any longer (last).
func (s *Store) awaitDue(ctx context.Context, claim queue.Claim, until time.Time, rang, stop <-chan struct{}) (last bool, err error) {
	for {
		in, ok, err := queue.NextDue(ctx, s.pool, claim)
		if err != nil {
			return false, err
		}
		due := ok && in <= pollEvery
		pause := pollEvery
		if due {
			pause = max(in+time.Microsecond, claimPause) // what is due already is in somebody else's hands
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-stop:
			return true, nil
		case <-rang:
			return false, nil
		case <-time.After(min(pause, time.Until(until))):
		}
		if due || !time.Now().Before(until) {
			return false, nil
		}
	}
}

func (s *Store) settleOnly(ctx context.Context, claim queue.Claim) error {
	claim.SettleOnly, claim.Max = true, max(claim.Max, clearBatch)
	return queue.InTx(ctx, s.pool, pg.TxOptions{}, func(tx pgx.Tx) error {
		_, err := queue.Lease(ctx, tx, claim)
		return err
	})
}

// Heartbeat makes a lease last for d from now and returns its end. It fails with
// [queue.ErrLeaseLost] or [queue.ErrNotFound].
func (s *Store) Heartbeat(ctx context.Context, c Caller, h queue.Holding, d time.Duration) (time.Time, bool, error) {
	return command(ctx, s, c, func(tx pgx.Tx) (time.Time, error) { return queue.Heartbeat(ctx, tx, c.Tenant, h, d) })
}

// CompleteRun ends a run as succeeded. The same again gives the same answer. It fails with
// [queue.ErrLeaseLost] or [queue.ErrNotFound].
func (s *Store) CompleteRun(ctx context.Context, c Caller, h queue.Holding, result json.RawMessage) (queue.Finished, bool, error) {
	f := queue.Finish{
		Holding: h, Tenant: c.Tenant, Kind: queue.Complete, Result: result,
		Attempt: queue.Attempt{Outcome: string(webhook.Succeeded)},
	}
	if c.Key.Value == "" { // its token makes it repeatable, and others may share its transaction
		done, err := s.finisher.end(f, c.Deadline)
		return s.counted(done, false, err)
	}
	return s.counted(command(ctx, s, c, func(tx pgx.Tx) (queue.Finished, error) { return f.End(ctx, tx) }))
}

func (s *Store) counted(f queue.Finished, replayed bool, err error) (queue.Finished, bool, error) {
	if err == nil && !replayed && !f.Repeated {
		s.metrics.ended(f.Status)
		if f.Woke || f.Status == queue.Pending {
			s.bell.ring(f.Queue)
		}
	}
	return f, replayed, err
}

// ReleaseRun gives a lease back: the run is due at once, and the attempt doesn't count. It fails with
// [queue.ErrLeaseLost] or [queue.ErrNotFound].
func (s *Store) ReleaseRun(ctx context.Context, c Caller, h queue.Holding) (replayed bool, err error) {
	where, replayed, err := command(ctx, s, c, func(tx pgx.Tx) (string, error) { return queue.GiveBack(ctx, tx, c.Tenant, h) })
	if err == nil && !replayed {
		s.bell.ring(where)
	}
	return replayed, err
}

// OutcomeReportedFailure is the outcome of an attempt whose worker said that it failed.
const OutcomeReportedFailure = "failed"

// FailRun ends an attempt as failed; if retry is set, the run is tried again as its job says. The
// same again gives the same answer. It fails with [queue.ErrLeaseLost] or [queue.ErrNotFound].
func (s *Store) FailRun(ctx context.Context, c Caller, h queue.Holding, text string, retry bool) (queue.Finished, bool, error) {
	return s.counted(command(ctx, s, c, func(tx pgx.Tx) (queue.Finished, error) {
		policy, err := retryOf(ctx, tx, h.Run)
		if err != nil {
			return queue.Finished{}, err
		}
		f := queue.Finish{
			Holding: h, Tenant: c.Tenant, Kind: queue.Fail, Final: !retry, Delay: policy.delay(0),
			Attempt: queue.Attempt{Outcome: OutcomeReportedFailure, Error: text},
		}
		return f.End(ctx, tx)
	}))
}

// retryOf is what the job of a run says about retries; the defaults if it says nothing that can be read.
func retryOf(ctx context.Context, tx pgx.Tx, id uuid.UUID) (Retry, error) {
	spec := DefaultSpec()
	var text []byte
	err := tx.QueryRow(ctx, `SELECT j.spec FROM chronos.job_runs r JOIN chronos.jobs j ON j.id = r.job_id WHERE r.id = $1`, id).Scan(&text)
	if errors.Is(err, pgx.ErrNoRows) {
		return spec.Retry, nil
	}
	if err != nil {
		return spec.Retry, err
	}
	if err := json.Unmarshal(text, &spec); err != nil {
		return DefaultSpec().Retry, nil
	}
	return spec.Retry, nil
}

// delay is the wait after the nth failure, when the receiver asks for at least retryAfter.
func (r Retry) delay(retryAfter time.Duration) func(failures int) time.Duration {
	return func(failures int) time.Duration {
		return webhook.Backoff{Base: r.Backoff, Max: r.MaxBackoff}.Delay(failures, retryAfter, rand.Float64())
	}
}
