package queue_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"holdfast/chronos/queue"
)

func TestOverlapSkipsARunThatCameDueWhileAnotherWasGoing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put(b.job, 10)
	b.lease(1)
	b.Exec(t, `UPDATE chronos.job_runs SET started_at = started_at - interval '10 seconds'`)
	second := b.put(b.job, 0)
	if got := b.lease(5); len(got) != 0 {
		t.Fatalf("leased %d runs beside the one that is going", len(got))
	}
	b.wantStatus(second, "skipped overlap")
}

func TestOverlapCountsARunOnlyUntilItsLeaseEnds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first := b.put(b.job, 10)
	b.lease(1)
	b.expire(first)
	second := b.put(b.job, 0)
	if got := b.lease(5); len(got) != 1 || got[0].ID != second {
		t.Errorf("leased %v, want the second run", got)
	}
}

// Runs that meet because they are late, as after an outage, go one after the other.
func TestOverlapMakesLateRunsWaitTheirTurn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first, second, third := b.put(b.job, 3), b.put(b.job, 2), b.put(b.job, 1)
	for _, want := range []any{first, second, third} {
		runs := b.lease(5)
		if len(runs) != 1 || runs[0].ID != want {
			t.Fatalf("leased %v, want one run, %v", runs, want)
		}
		if _, err := b.finish(success(runs[0])); err != nil {
			t.Fatal(err)
		}
		b.Exec(t, `UPDATE chronos.job_runs SET due_at = effective_at`) // the wait is over
	}
}

func TestOverlapLetsThroughWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put(b.job, 10)
	b.lease(1)
	b.Exec(t, `UPDATE chronos.job_runs SET asked = true, trigger = 'manual' WHERE id = $1`, b.put(b.job, 0))
	if got := b.lease(5); len(got) != 1 {
		t.Errorf("leased %d runs, want the manual one", len(got))
	}
}

// Two replicas lease two runs of one job at once, each in an open transaction: the second
// waits for the job's row, then sees what the first has leased.
func TestOverlapHoldsBetweenReplicas(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx := t.Context()
	b.put(b.job, 2)
	b.put(b.job, 1)
	claim := queue.Claim{Worker: "w", Max: 1, For: lease}
	one, err := b.Pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = one.Rollback(ctx) }()
	first, err := queue.Lease(ctx, one, claim)
	if err != nil || len(first.Runs) != 1 {
		t.Fatalf("the first replica leased %+v, %v", first, err)
	}

	var pid int
	two, err := b.Pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = two.Rollback(ctx) }()
	if err := two.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	type result struct {
		claimed queue.Claimed
		err     error
	}
	second := make(chan result, 1)
	go func() {
		claimed, err := queue.Lease(ctx, two, claim)
		second <- result{claimed, err}
	}()
	// Until it waits for a lock; without the guard it is done instead.
	for waiting := false; !waiting; {
		select {
		case r := <-second:
			t.Fatalf("the second replica didn't wait: leased %d runs, %v", len(r.claimed.Runs), r.err)
		default:
			b.Scan(t, `SELECT coalesce(wait_event_type = 'Lock', false) FROM pg_stat_activity WHERE pid = $1`, []any{pid}, &waiting)
		}
	}
	if err := one.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	r := <-second
	if r.err != nil || len(r.claimed.Runs) != 0 {
		t.Errorf("the second replica leased %d runs of the job, %v", len(r.claimed.Runs), r.err)
	}
}

func TestPausedAndDeletedJobsStartNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	paused, deleted := b.newJob("paused", "allow"), b.newJob("deleted", "allow")
	over := b.newJob("over", "allow")
	b.Exec(t, `UPDATE chronos.jobs SET paused_at = now() - interval '1 hour' WHERE id = $1`, paused)
	b.Exec(t, `UPDATE chronos.jobs SET deleted_at = now() WHERE id = $1`, deleted)
	b.Exec(t, `UPDATE chronos.jobs SET paused_at = now() - interval '1 hour', paused_until = now() - interval '1 minute' WHERE id = $1`, over)
	onPause, onDeleted, orphan := b.put(paused, 1), b.put(deleted, 1), b.put(999, 1)
	during, after := b.put(over, 90), b.put(over, 30)
	begun := b.put(paused, 1)
	b.Exec(t, `UPDATE chronos.job_runs SET attempt = 1 WHERE id = $1`, begun)

	leased := map[any]bool{}
	for _, r := range b.lease(10) {
		leased[r.ID] = true
	}
	b.wantStatus(onPause, "skipped paused")
	b.wantStatus(onDeleted, "cancelled job_deleted")
	b.wantStatus(orphan, "cancelled job_deleted")
	b.wantStatus(during, "skipped paused")
	if len(leased) != 2 || !leased[after] || !leased[begun] {
		t.Errorf("leased %v, want the run after the pause and the one that had begun", leased)
	}
}

func TestSkippedInstantsGiveBackMaxRuns(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.Exec(t, `UPDATE chronos.jobs SET max_runs = 3, used = 3, last_at = now(), paused_at = now() - interval '1 minute'`)
	b.put(b.job, 1)
	b.lease(1)
	var used int
	var open bool
	b.Scan(t, `SELECT used, next_at > last_at FROM chronos.jobs`, nil, &used, &open)
	if used != 2 || !open {
		t.Errorf("used is %d, open is %v: want 2, and planning to go on", used, open)
	}
}

// max_runs may be set later: it counts what was planned and not skipped by then.
func TestSkippedInstantsAreNotCountedWithoutMaxRunsEither(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.Exec(t, `UPDATE chronos.jobs SET used = 3, last_at = now(), paused_at = now() - interval '1 minute'`)
	b.put(b.job, 1)
	b.lease(1)
	var used int
	var ended bool
	b.Scan(t, `SELECT used, next_at IS NULL FROM chronos.jobs`, nil, &used, &ended)
	if used != 2 || !ended {
		t.Errorf("used is %d, ended is %v: want 2, and a schedule that has ended", used, ended)
	}
}

// What came due before a pause waits until it is over, and no longer; what was asked for doesn't.
func TestALateRunWaitsForTheEndOfAPause(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	open, bounded := b.newJob("open", "allow"), b.newJob("bounded", "allow")
	b.Exec(t, `UPDATE chronos.jobs SET paused_at = now() - interval '1 minute' WHERE id = $1`, open)
	b.Exec(t, `UPDATE chronos.jobs SET paused_at = now() - interval '1 minute', paused_until = now() + interval '20 seconds' WHERE id = $1`, bounded)
	waits, waitsLess, asked := b.put(open, 90), b.put(bounded, 90), b.put(open, 90)
	b.Exec(t, `UPDATE chronos.job_runs SET asked = true WHERE id = $1`, asked)
	if got := b.lease(10); len(got) != 1 || got[0].ID != asked {
		t.Errorf("leased %v, want only what was asked for", got)
	}
	b.wantStatus(waits, "pending")
	b.wantStatus(waitsLess, "pending")
	var later, atTheEnd bool
	b.Scan(t, `SELECT due_at > clock_timestamp() + interval '30 seconds' FROM chronos.job_runs WHERE id = $1`, []any{waits}, &later)
	b.Scan(t, `SELECT due_at = paused_until FROM chronos.job_runs r JOIN chronos.jobs j ON j.id = job_id WHERE r.id = $1`, []any{waitsLess}, &atTheEnd)
	if !later || !atTheEnd {
		t.Errorf("put off for long: %v, until the pause ends by itself: %v", later, atTheEnd)
	}
	b.Exec(t, `UPDATE chronos.jobs SET paused_at = NULL WHERE id = $1`, open)
	if err := b.inTx(func(tx pgx.Tx) error { return queue.Wake(t.Context(), tx, open) }); err != nil {
		t.Fatal(err)
	}
	if got := b.lease(10); len(got) != 1 || got[0].ID != waits {
		t.Errorf("after the pause %v was leased", got)
	}
}

func TestHistoryMakesAMissingPartition(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put(b.job, 1)
	r := b.lease(1)[0]
	b.Exec(t, `DO $$ DECLARE p regclass; BEGIN
		FOR p IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'chronos.run_history'::regclass LOOP
			EXECUTE 'DROP TABLE ' || p; END LOOP; END $$`)
	if _, err := b.finish(success(r)); err != nil {
		t.Fatal(err)
	}
	b.wantStatus(r.ID, "succeeded")
	var direct int
	b.Scan(t, `SELECT count(*) FROM ONLY chronos.run_history`, nil, &direct)
	if direct != 0 {
		t.Error("a row stands in no partition")
	}
	if err := b.inTx(func(tx pgx.Tx) error { return queue.Retry(t.Context(), tx, "default", r.ID) }); err == nil {
		t.Error("a succeeded run was retried")
	}
}
