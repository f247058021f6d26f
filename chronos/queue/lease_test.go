package queue_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"holdfast/chronos/queue"
)

// C1: whoever plans an instant of a job gives its run the same id, and two jobs or two
// instants never share one.
func TestC1ScheduledIDIsOneForEachJobAndInstant(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 12, 24, 18, 0, 0, 0, time.UTC)
	berlin := at.In(time.FixedZone("", 3600))
	seen := map[uuid.UUID]bool{}
	for _, job := range []int64{1, 2, 1 << 40} {
		for i := range 1000 {
			id := queue.ScheduledID(job, at.Add(time.Duration(i)*time.Second))
			if seen[id] {
				t.Fatalf("job %d, instant %d: id %s is taken", job, i, id)
			}
			seen[id] = true
			if id.Version() != 8 || id.Variant() != uuid.RFC4122 {
				t.Fatalf("id %s has version %d, variant %d", id, id.Version(), id.Variant())
			}
		}
	}
	if queue.ScheduledID(7, at) != queue.ScheduledID(7, berlin) {
		t.Error("the zone changes the id")
	}
	earlier, later := queue.ScheduledID(9, at), queue.ScheduledID(1, at.Add(time.Millisecond))
	if earlier.String() >= later.String() {
		t.Error("ids don't sort by time")
	}
}

func TestC1InsertingAnInstantTwiceLeavesOneRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	at := time.Now().Truncate(time.Second)
	run := queue.NewRun{ID: queue.ScheduledID(b.job, at), JobID: b.job, Tenant: "default", MaxAttempts: 5, Trigger: queue.Schedule, ScheduledFor: at, DueAt: at}
	for i, want := range []int{1, 0} {
		err := b.inTx(func(tx pgx.Tx) error {
			n, err := queue.Insert(t.Context(), tx, []queue.NewRun{run})
			if n != want {
				t.Errorf("insert %d made %d runs, want %d", i, n, want)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// C4: many workers, every run is leased once.
func TestC4ARunIsLeasedOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i := range 60 {
		b.put(b.newJob("j"+uuid.NewString(), "allow"), i)
	}
	var (
		mu     sync.Mutex
		leased = map[uuid.UUID]int{}
		wg     sync.WaitGroup
	)
	for range 6 {
		wg.Go(func() {
			for {
				runs := b.lease(7)
				if len(runs) == 0 {
					return
				}
				mu.Lock()
				for _, r := range runs {
					leased[r.ID]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for id, n := range leased {
		if n != 1 {
			t.Errorf("run %s was leased %d times", id, n)
		}
	}
	// A worker that met only rows that others were at has stopped, so the rest may be left.
	for _, r := range b.lease(60) {
		leased[r.ID]++
	}
	if len(leased) != 60 {
		t.Errorf("%d runs were leased, want 60", len(leased))
	}
}

// C4, step by step: a run that one worker is leasing isn't offered to another, who doesn't wait for it.
func TestC4ARunThatIsBeingLeasedIsPassedOver(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx := t.Context()
	b.put(b.newJob("a", "allow"), 2)
	claim := queue.Claim{Worker: "w", Max: 5, For: lease}
	one, err := b.Pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = one.Rollback(ctx) }()
	if got, err := queue.Lease(ctx, one, claim); err != nil || len(got.Runs) != 1 {
		t.Fatalf("the first worker leased %+v, %v", got, err)
	}
	err = b.inTx(func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '1s'"); err != nil {
			return err
		}
		got, err := queue.Lease(ctx, tx, claim)
		if len(got.Runs) != 0 {
			t.Error("the second worker leased it too")
		}
		return err
	})
	if err != nil {
		t.Errorf("the second worker waited: %v", err)
	}
}

func TestLeaseTakesHigherPriorityFirstThenInDueOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var want []uuid.UUID
	for _, r := range []struct{ priority, ago int }{{9, 1}, {5, 30}, {5, 20}, {0, 99}} {
		id := b.put(b.newJob("j"+uuid.NewString(), "allow"), r.ago)
		b.Exec(t, `UPDATE chronos.job_runs SET priority = $2 WHERE id = $1`, id, r.priority)
		want = append(want, id)
	}
	b.Exec(t, `UPDATE chronos.job_runs SET due_at = now() + interval '1 hour' WHERE id = $1`, b.put(b.job, 0))
	got := b.lease(3)
	got = append(got, b.lease(3)...)
	if len(got) != len(want) {
		t.Fatalf("leased %d runs, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i].ID != want[i] {
			t.Errorf("run %d came in another order", i)
		}
	}
}

// C5: only the current token, and only while the lease lasts.
func TestPitfall28C5OnlyTheCurrentTokenFinishes(t *testing.T) {
	t.Parallel()
	ends := map[string]func(queue.Run) queue.Finish{"complete": success, "fail": failure}
	for name, end := range ends {
		for _, c := range []struct {
			name  string
			spoil func(b *bench, r *queue.Run)
		}{
			{"another token", func(_ *bench, r *queue.Run) { r.Token = uuid.New() }},
			{"lease ended, not reaped", func(b *bench, r *queue.Run) { b.expire(r.ID) }},
			{"lease ended, reaped", func(b *bench, r *queue.Run) { b.expire(r.ID); b.reclaim() }},
			{"leased again", func(b *bench, r *queue.Run) { b.expire(r.ID); b.reclaim(); b.lease(1) }},
			{"cancelled", func(b *bench, r *queue.Run) { b.cancel(r.ID) }},
		} {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				id := b.put(b.job, 1)
				r := b.lease(1)[0]
				c.spoil(b, &r)
				before := b.status(id)
				if _, err := b.finish(end(r)); !errors.Is(err, queue.ErrLeaseLost) {
					t.Errorf("finish says %v, want ErrLeaseLost", err)
				}
				err := b.inTx(func(tx pgx.Tx) error {
					_, err := queue.Heartbeat(t.Context(), tx, "default", r.Holding(), lease)
					return err
				})
				if !errors.Is(err, queue.ErrLeaseLost) {
					t.Errorf("heartbeat says %v, want ErrLeaseLost", err)
				}
				if found, err := queue.Renew(t.Context(), b.Pool, []queue.Holding{r.Holding()}, lease); err != nil || found[id] != queue.Lost {
					t.Errorf("renew says %v, %v, want lost", found, err)
				}
				b.wantStatus(id, before)
			})
		}
	}
}

func TestFinishRepeatedGivesTheSameAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.put(b.job, 1)
	first := b.lease(1)[0]
	failed, err := b.finish(failure(first))
	if err != nil || failed.Status != queue.Pending || failed.NextDueAt == nil {
		t.Fatalf("fail gave %+v, %v", failed, err)
	}
	b.Exec(t, `UPDATE chronos.job_runs SET due_at = now()`)
	second := b.lease(1)[0]
	if second.Attempt != 2 || second.Spent != 1 || second.ID != id {
		t.Errorf("second attempt is %+v", second)
	}
	if done, err := b.finish(success(second)); err != nil || done.Status != queue.Succeeded {
		t.Fatalf("complete gave %+v, %v", done, err)
	}
	again, err := b.finish(failure(first))
	if err != nil || again.Status != queue.Pending || again.Attempt != 1 || !again.NextDueAt.Equal(failed.NextDueAt.Round(time.Microsecond)) {
		t.Errorf("the first failure again gave %+v, %v", again, err)
	}
	if again, err := b.finish(success(second)); err != nil || again.Status != queue.Succeeded || !again.Repeated {
		t.Errorf("the completion again gave %+v, %v", again, err)
	}
	if _, err := b.finish(failure(second)); !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("another end with the same token says %v", err)
	}
	b.wantStatus(id, "succeeded")
}

func TestFailureIsFinalAfterTheLastAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.put(b.job, 1)
	b.Exec(t, `UPDATE chronos.job_runs SET max_attempts = 2`)
	for _, want := range []string{"pending", "failed timeout"} {
		if _, err := b.finish(failure(b.lease(1)[0])); err != nil {
			t.Fatal(err)
		}
		b.wantStatus(id, want)
		b.Exec(t, `UPDATE chronos.job_runs SET due_at = now()`)
	}
	err := b.inTx(func(tx pgx.Tx) error { return queue.Retry(t.Context(), tx, "default", id) })
	if err != nil {
		t.Fatal(err)
	}
	r := b.lease(1)[0]
	if r.ID != id || r.Attempt != 3 || r.Spent != 0 {
		t.Errorf("the retried run is %+v", r)
	}
}

func TestRenewKeepsALockedRowAndRenewsTheOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put(b.newJob("a", "allow"), 2)
	b.put(b.newJob("b", "allow"), 1)
	runs := b.lease(2)
	holder, err := b.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback(t.Context()) }()
	if _, err := holder.Exec(t.Context(), `SELECT 1 FROM chronos.job_runs WHERE id = $1 FOR UPDATE`, runs[0].ID); err != nil {
		t.Fatal(err)
	}
	found, err := queue.Renew(t.Context(), b.Pool, []queue.Holding{runs[0].Holding(), runs[1].Holding()}, lease)
	if err != nil || found[runs[0].ID] != queue.Kept || found[runs[1].ID] != queue.Renewed {
		t.Errorf("renew says %v, %v", found, err)
	}
	b.wantStatus(runs[1].ID, "running")
}

// What a drain gives back isn't counted; its number is.
func TestPitfall30WhatIsGivenBackIsNotCounted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.put(b.job, 1)
	b.Exec(t, `UPDATE chronos.job_runs SET max_attempts = 1`)
	r := b.lease(1)[0]
	if err := b.inTx(func(tx pgx.Tx) error { return queue.Release(t.Context(), tx, []queue.Holding{r.Holding()}) }); err != nil {
		t.Fatal(err)
	}
	b.wantStatus(id, "pending")
	r = b.lease(1)[0]
	if r.Attempt != 2 || r.Spent != 0 {
		t.Errorf("leased again as attempt %d with %d spent, want 2 and 0", r.Attempt, r.Spent)
	}
	if _, err := b.finish(success(r)); err != nil {
		t.Error(err)
	}
}

func TestNextDueIsTheNextPendingRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if _, ok, err := queue.NextDue(t.Context(), b.Pool, queue.Claim{}); ok || err != nil {
		t.Errorf("an empty queue says %v, %v", ok, err)
	}
	b.put(b.job, 100)
	b.lease(1)
	b.put(b.job, -3600)
	b.Exec(t, `UPDATE chronos.job_runs SET priority = 3 WHERE id = $1`, b.put(b.job, -60))
	in, ok, err := queue.NextDue(t.Context(), b.Pool, queue.Claim{})
	if err != nil || !ok || in < 50*time.Second || in > time.Minute {
		t.Errorf("next due in %v, %v, %v", in, ok, err)
	}
}

func (b *bench) cancel(id uuid.UUID) {
	b.t.Helper()
	err := b.inTx(func(tx pgx.Tx) error {
		_, err := queue.Cancel(b.t.Context(), tx, "default", id)
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// The dispatcher's beat is short; a lease that somebody was promised for longer stays that long.
func TestRenewNeverShortensALease(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put(b.job, 1)
	run := b.lease(1)[0]
	var before, after time.Time
	b.Exec(t, "UPDATE chronos.job_runs SET leased_until = clock_timestamp() + interval '15 minutes' WHERE id = $1", run.ID)
	b.Scan(t, "SELECT leased_until FROM chronos.job_runs WHERE id = $1", []any{run.ID}, &before)
	if _, err := queue.Renew(t.Context(), b.Pool, []queue.Holding{run.Holding()}, 15*time.Second); err != nil {
		t.Fatal(err)
	}
	b.Scan(t, "SELECT leased_until FROM chronos.job_runs WHERE id = $1", []any{run.ID}, &after)
	if !after.Equal(before) {
		t.Errorf("the lease ended at %v, and after a renewal at %v", before, after)
	}
}
