package queue_test

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"holdfast/chronos/queue"
)

// Rivals that lease runs of one job that allows overlap don't wait for each other.
func TestLeasesOfAPlainJobGoOnSideBySide(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	job := b.newJob("plain", "allow")
	b.put(job, 20)
	b.put(job, 10)
	tx, err := b.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	first, err := queue.Lease(t.Context(), tx, queue.Claim{Worker: "w", Max: 1, For: lease})
	if err != nil || len(first.Runs) != 1 {
		t.Fatalf("%+v, %v", first, err)
	}
	second := b.lease(5) // while the first is open
	if len(second) != 1 || second[0].ID == first.Runs[0].ID {
		t.Errorf("leased %+v beside %s", second, first.Runs[0].ID)
	}
}

// A job that stops being plain while a lease waits for it is judged by its new rules.
func TestAJobThatStopsAllowingOverlapWhileALeaseWaits(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	job := b.newJob("plain", "allow")
	b.put(job, 20)
	if got := b.lease(1); len(got) != 1 {
		t.Fatalf("leased %+v", got)
	}
	b.put(job, 10)
	tx, err := b.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `UPDATE chronos.jobs SET overlap = 'skip' WHERE id = $1`, job); err != nil {
		t.Fatal(err)
	}
	got := make(chan queue.Claimed, 1)
	go func() {
		var claimed queue.Claimed
		_ = b.inTx(func(tx pgx.Tx) (err error) {
			claimed, err = queue.Lease(context.Background(), tx, queue.Claim{Worker: "w", Max: 5, For: lease})
			return err
		})
		got <- claimed
	}()
	for waits := false; !waits; {
		b.Scan(t, `SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted)`, nil, &waits)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if claimed := <-got; len(claimed.Runs) != 0 {
		t.Errorf("leased %+v although one is going and the job doesn't allow that any more", claimed.Runs)
	}
}

// Those who share a job's lock one after another don't keep its owner from pausing, changing or deleting it.
func TestAChangeGetsThroughWhileManyLease(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	job := b.newJob("plain", "allow")
	b.Exec(t, `INSERT INTO chronos.job_runs (job_id, scheduled_for, due_at, effective_at)
		SELECT $1, at, at, at FROM (SELECT clock_timestamp() - make_interval(secs => n) AS at FROM generate_series(1, 20000) n) t`, job)
	ctx, changed := context.WithCancel(t.Context())
	var leasing sync.WaitGroup
	started := make(chan struct{}, 4)
	for range 4 {
		leasing.Go(func() {
			for ctx.Err() == nil {
				err := b.inTx(func(tx pgx.Tx) error {
					_, err := queue.Lease(context.WithoutCancel(ctx), tx, queue.Claim{Worker: "w", Max: 20, For: lease})
					return err
				})
				if err != nil {
					t.Error(err)
				}
				select {
				case started <- struct{}{}:
				default:
				}
			}
		})
	}
	for range 4 {
		<-started
	}
	for range 5 {
		b.Exec(t, `SELECT 1 FROM chronos.jobs WHERE id = $1 FOR UPDATE`, job)
	}
	changed()
	leasing.Wait()
}
