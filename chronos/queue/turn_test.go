package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"holdfast/chronos/queue"
)

// limitedJob adds a job that doesn't allow overlap.
func (b *bench) limitedJob(name, overlap string, concurrent int) int64 {
	b.t.Helper()
	id := b.newJob(name, overlap)
	b.Exec(b.t, `UPDATE chronos.jobs SET max_concurrent = $2 WHERE id = $1`, id, concurrent)
	return id
}

func (b *bench) set(id uuid.UUID, assignment string) {
	b.t.Helper()
	b.Exec(b.t, `UPDATE chronos.job_runs SET `+assignment+` WHERE id = $1`, id)
}

// leased are the ids of what a claim of max gives.
func (b *bench) leased(max int) (ids []uuid.UUID) {
	b.t.Helper()
	for _, r := range b.lease(max) {
		ids = append(ids, r.ID)
	}
	return ids
}

func (b *bench) want(got []uuid.UUID, want ...uuid.UUID) {
	b.t.Helper()
	if len(got) != len(want) {
		b.t.Fatalf("leased %d runs, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			b.t.Errorf("run %d is another", i)
		}
	}
}

func (b *bench) parked(job int64) (n int) {
	b.t.Helper()
	b.Scan(b.t, `SELECT count(*) FROM chronos.job_runs WHERE job_id = $1 AND parked`, []any{job}, &n)
	return n
}

// began moves a run's start into the past.
func (b *bench) began(secondsAgo int) {
	b.t.Helper()
	b.Exec(b.t, `UPDATE chronos.job_runs SET started_at = clock_timestamp() - make_interval(secs => $1) WHERE status = 'leased'`, secondsAgo)
}

// Runs of a job with overlap queue wait in the order in which they came, and each ending wakes the next.
func TestQueueWaitsInOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	job := b.limitedJob("q", "queue", 1)
	b.put(job, 100)
	running := b.lease(1)[0]
	b.began(60)
	third, first, second := b.put(job, 10), b.put(job, 30), b.put(job, 20)
	b.want(b.leased(10))
	if n := b.parked(job); n != 3 {
		t.Fatalf("%d runs are parked, want 3", n)
	}
	for _, next := range []uuid.UUID{first, second, third} {
		if _, err := b.finish(success(running)); err != nil {
			t.Fatal(err)
		}
		runs := b.lease(10)
		if len(runs) != 1 || runs[0].ID != next {
			t.Fatalf("leased %+v, want the next in order", runs)
		}
		running = runs[0]
	}
}

// One that has just come doesn't overtake those that were waiting when a run ended.
func TestQueueLetsNobodyOvertake(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	job := b.limitedJob("q", "queue", 1)
	b.put(job, 100)
	running := b.lease(1)[0]
	waiting := b.put(job, 30)
	b.lease(10)
	if _, err := b.finish(success(running)); err != nil {
		t.Fatal(err)
	}
	late := b.put(job, 1)
	b.set(late, `due_at = clock_timestamp() - interval '1 hour'`) // it comes first in the index
	b.want(b.leased(1))
	b.want(b.leased(1), waiting)
	b.wantStatus(late, "pending")
}

func TestQueueHoldsAHundred(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	job := b.limitedJob("q", "queue", 1)
	b.put(job, 1000)
	b.lease(1)
	b.began(900)
	b.Exec(t, `INSERT INTO chronos.job_runs (job_id, scheduled_for, due_at, effective_at)
		SELECT $1, at, at, at FROM (SELECT clock_timestamp() - make_interval(secs => 500 - n) AS at FROM generate_series(1, 103) n) t`, job)
	for len(b.lease(200)) > 0 {
	}
	var waiting, full, last int
	b.Scan(t, `SELECT count(*) FROM chronos.job_runs WHERE job_id = $1 AND status = 'pending'`, []any{job}, &waiting)
	b.Scan(t, `SELECT count(*), count(*) FILTER (WHERE scheduled_for > (SELECT max(scheduled_for) FROM chronos.job_runs WHERE job_id = $1))
		FROM chronos.run_history WHERE job_id = $1 AND status = 'skipped' AND reason = 'queue_full'`, []any{job}, &full, &last)
	if waiting != queue.MaxWaiting || full != 3 || last != 3 {
		t.Errorf("%d wait, %d were skipped, %d of them after those: want 100, 3, 3", waiting, full, last)
	}
}

// With overlap replace the running one ends, its token dead, and the latest instant runs.
func TestReplaceCancelsTheRunningOne(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	job := b.limitedJob("r", "replace", 1)
	first := b.put(job, 100)
	running := b.lease(1)[0]
	b.began(50)
	older, latest := b.put(job, 20), b.put(job, 10)
	var got queue.Claimed
	err := b.inTx(func(tx pgx.Tx) (err error) {
		got, err = queue.Lease(t.Context(), tx, queue.Claim{Worker: "w", Max: 10, For: lease})
		return err
	})
	if err != nil || len(got.Runs) != 1 || got.Runs[0].ID != latest || len(got.Replaced) != 1 || got.Replaced[0] != first {
		t.Fatalf("leased %+v, %v", got, err)
	}
	b.wantStatus(first, "cancelled replaced")
	b.wantStatus(older, "skipped replaced")
	if _, err := b.finish(success(running)); !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("the replaced run's holder is told %v", err)
	}
}

// While somebody is at work on the running one's row, it isn't replaced but a moment later.
func TestReplaceWaitsForNobody(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	job := b.limitedJob("r", "replace", 1)
	first := b.put(job, 100)
	b.lease(1)
	b.began(50)
	second := b.put(job, 10)
	holder, err := b.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Exec(t.Context(), `SELECT 1 FROM chronos.job_runs WHERE id = $1 FOR UPDATE`, first); err != nil {
		t.Fatal(err)
	}
	b.want(b.leased(10))
	b.wantStatus(first, "leased")
	b.wantStatus(second, "pending")
	if err := holder.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.set(second, `due_at = clock_timestamp()`)
	b.want(b.leased(10), second)
}

func TestMaxConcurrentRunsMayGo(t *testing.T) {
	t.Parallel()
	for overlap, want := range map[string]string{"skip": "skipped overlap", "queue": "pending", "replace": "leased"} {
		t.Run(overlap, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			job := b.limitedJob("j", overlap, 3)
			first := b.put(job, 100)
			b.lease(1)
			b.put(job, 90)
			b.put(job, 80)
			if n := len(b.lease(10)); n != 2 {
				t.Fatalf("leased %d more runs, want 2", n)
			}
			b.began(50)
			fourth := b.put(job, 10)
			b.lease(10)
			b.wantStatus(fourth, want)
			if overlap == "replace" {
				b.wantStatus(first, "cancelled replaced")
			}
		})
	}
}

// What was asked for starts whatever is going, and counts as going.
func TestManualRunsIgnoreOverlapAndCount(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for range 2 {
		asked := b.put(b.job, 100)
		b.set(asked, `asked = true, trigger = 'manual'`)
		b.want(b.leased(5), asked)
	}
	b.began(50)
	instant := b.put(b.job, 10)
	b.want(b.leased(5))
	b.wantStatus(instant, "skipped overlap")
}

// An instant that finds a backfill's run going isn't skipped because of it: it waits, and goes first.
func TestABackfillCostsNoInstant(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for range 3 {
		b.set(b.put(b.job, 100), `trigger = 'backfill', priority = -1`)
	}
	running := b.lease(1)[0]
	b.began(50)
	instant := b.put(b.job, 10)
	b.want(b.leased(5))
	b.wantStatus(instant, "pending")
	if _, err := b.finish(success(running)); err != nil {
		t.Fatal(err)
	}
	b.want(b.leased(5), instant)
}

// Each way in which a run can end, or stop going, lets the next have its turn.
func TestEveryEndWakesTheNext(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, end := range map[string]func(b *bench, r queue.Run) error{
		"complete": func(b *bench, r queue.Run) error { _, err := b.finish(success(r)); return err },
		"fail":     func(b *bench, r queue.Run) error { f := failure(r); f.Final = true; _, err := b.finish(f); return err },
		"retry":    func(b *bench, r queue.Run) error { _, err := b.finish(failure(r)); return err },
		"cancel":   func(b *bench, r queue.Run) error { b.cancel(r.ID); return nil },
		"reclaim": func(b *bench, r queue.Run) error {
			b.set(r.ID, `max_attempts = 1, leased_until = clock_timestamp() - interval '1 s'`)
			_, err := queue.ReclaimExpiredLeases(ctx, b.Pool, 10)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			job := b.limitedJob("q", "queue", 1)
			b.put(job, 100)
			running := b.lease(1)[0]
			b.began(50)
			next := b.put(job, 10)
			b.lease(5)
			if b.parked(job) != 1 {
				t.Fatal("the next one doesn't wait")
			}
			if err := end(b, running); err != nil {
				t.Fatal(err)
			}
			b.want(b.leased(5), next)
		})
	}
}

// The first that waits asks by itself before long: it may have been parked while the run before it was ending.
func TestTheFirstThatWaitsAsksByItself(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	job := b.limitedJob("q", "queue", 1)
	b.put(job, 100)
	b.lease(1)
	b.began(50)
	first, second := b.put(job, 3), b.put(job, 2)
	b.lease(5)
	var soon, later bool
	b.Scan(t, `SELECT due_at < clock_timestamp() + interval '5 s' FROM chronos.job_runs WHERE id = $1`, []any{first}, &soon)
	b.Scan(t, `SELECT due_at > clock_timestamp() + interval '1 minute' FROM chronos.job_runs WHERE id = $1`, []any{second}, &later)
	if !soon || !later {
		t.Errorf("the first asks soon: %v; the second waits to be woken: %v", soon, later)
	}
	// The wake-up is lost, and time passes; then the second is the first.
	b.Exec(t, `DELETE FROM chronos.job_runs WHERE status = 'leased'`)
	b.set(first, `due_at = clock_timestamp()`)
	b.want(b.leased(5), first)
	b.Scan(t, `SELECT due_at < clock_timestamp() + interval '5 s' FROM chronos.job_runs WHERE id = $1`, []any{second}, &soon)
	if !soon {
		t.Error("the second still waits to be woken")
	}
}

// A run that its leaser had locked while its job was given another queue goes where the job is now.
func TestALockedRunFollowsItsJobWhenItIsLeased(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.put(b.job, 10)
	b.Exec(t, `UPDATE chronos.jobs SET queue = 'default/other', priority = 4, max_attempts = 9`)
	b.want(b.leased(5))
	var moved bool
	b.Scan(t, `SELECT (queue, priority, max_attempts) = ('default/other', 4, 9) AND status = 'pending' FROM chronos.job_runs WHERE id = $1`, []any{id}, &moved)
	if !moved {
		t.Error("the run stays in its old queue")
	}
}

// A run in flight of a job that is deleted ends with its attempt, whichever way it comes back.
func TestARunOfADeletedJobDoesNotComeBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		back func(b *bench, r queue.Run) error
		want string
	}{
		"failed": {func(b *bench, r queue.Run) error { _, err := b.finish(failure(r)); return err }, "failed timeout"},
		"given back": {func(b *bench, r queue.Run) error {
			return b.inTx(func(tx pgx.Tx) error { return queue.Release(context.Background(), tx, []queue.Holding{r.Holding()}) })
		}, "cancelled job_deleted"},
		"reclaimed": {func(b *bench, r queue.Run) error {
			b.expire(r.ID)
			_, err := queue.ReclaimExpiredLeases(context.Background(), b.Pool, 10)
			return err
		}, "cancelled job_deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			id := b.put(b.job, 10)
			r := b.lease(1)[0]
			b.Exec(t, `UPDATE chronos.jobs SET deleted_at = now()`)
			if err := c.back(b, r); err != nil {
				t.Fatal(err)
			}
			b.wantStatus(id, c.want)
		})
	}
}

// A long row of late runs of one job is parked at once.
func TestALongRowOfLateRunsIsParked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.Exec(t, `INSERT INTO chronos.job_runs (job_id, scheduled_for, due_at, effective_at)
		SELECT $1, at, at, at FROM (SELECT clock_timestamp() - make_interval(secs => 3000 - n) AS at FROM generate_series(1, 2000) n) t`, b.job)
	first := b.lease(1)
	b.lease(1)
	if n := b.parked(b.job); len(first) != 1 || n < 1990 {
		t.Errorf("leased %d runs, %d are parked", len(first), n)
	}
	for range 3 {
		if _, err := b.finish(success(first[0])); err != nil {
			t.Fatal(err)
		}
		var next uuid.UUID
		b.Scan(t, `SELECT id FROM chronos.job_runs ORDER BY effective_at LIMIT 1`, nil, &next)
		if first = b.lease(1); len(first) != 1 || first[0].ID != next {
			t.Fatalf("leased %+v, want the next in order", first)
		}
	}
}

// A front lets a claim begin behind what is in flight; what comes due later is found, and what comes behind the
// front is found by the next full look.
func TestAFrontHidesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	front := &queue.Front{}
	claim := queue.Claim{Worker: "w", Max: 10, For: lease, Front: front}
	take := func() (ids []uuid.UUID) {
		t.Helper()
		err := b.inTx(func(tx pgx.Tx) error {
			got, err := queue.Lease(t.Context(), tx, claim)
			for _, r := range got.Runs {
				ids = append(ids, r.ID)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}
	look := func() bool {
		t.Helper()
		_, ok, err := queue.NextDue(t.Context(), b.Pool, claim)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	job := b.newJob("a", "allow")
	inFlight := b.put(job, 100)
	b.want(take(), inFlight)
	if look() {
		t.Error("there is something due already")
	}
	fresh := b.put(job, 0)
	if !look() {
		t.Error("what has come due isn't found")
	}
	b.want(take(), fresh)
	look()
	behind := b.put(job, 50) // its transaction was slow
	b.want(take())
	front.Reset()
	b.want(take(), behind)
	if front.Stale() {
		t.Error("the front is stale at once")
	}
	// A run that comes back is due now, not as of old.
	look()
	b.expire(inFlight)
	if _, err := queue.ReclaimExpiredLeases(t.Context(), b.Pool, 10); err != nil {
		t.Fatal(err)
	}
	b.want(take(), inFlight)
}

// An attempt that isn't held any more spoils no other of its batch.
func TestFinishesInOneBatchAreJudgedEachByItself(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	job := b.newJob("a", "allow")
	for i := range 4 {
		b.put(job, 10-i)
	}
	runs := b.lease(4)
	b.expire(runs[1].ID)
	all := []queue.Finish{success(runs[0]), success(runs[1]), failure(runs[2]), {Holding: queue.Holding{Run: uuid.New()}, Kind: queue.Complete}}
	var (
		out  []queue.Finished
		errs []error
	)
	err := b.inTx(func(tx pgx.Tx) (err error) {
		out, errs, err = queue.EndAll(t.Context(), tx, all)
		return err
	})
	if err != nil || errs[0] != nil || !errors.Is(errs[1], queue.ErrLeaseLost) || errs[2] != nil || !errors.Is(errs[3], queue.ErrNotFound) {
		t.Fatalf("the batch says %v, %v", errs, err)
	}
	if out[0].Status != queue.Succeeded || out[2].Status != queue.Pending || out[2].NextDueAt.Before(time.Now().Add(30*time.Minute)) {
		t.Errorf("the batch gave %+v", out)
	}
	b.wantStatus(runs[0].ID, "succeeded")
	b.wantStatus(runs[1].ID, "leased")
	b.wantStatus(runs[2].ID, "pending")
	b.wantStatus(runs[3].ID, "leased")
}
