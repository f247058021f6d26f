package queue_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"holdfast/chronos/queue"
)

func (b *bench) reclaim() queue.Reclaimed {
	b.t.Helper()
	got, err := queue.ReclaimExpiredLeases(context.Background(), b.Pool, 100)
	if err != nil {
		b.t.Fatal(err)
	}
	return got
}

// byHand puts a row in as an operator would, without a job.
func (b *bench) byHand(status, leasedUntil string) (id uuid.UUID) {
	b.t.Helper()
	id = uuid.New()
	b.Exec(b.t, `INSERT INTO chronos.job_runs (id, job_id, scheduled_for, status, leased_until)
		VALUES ($1, 999, now(), $2, now() + $3::text::interval)`, id, status, leasedUntil)
	return id
}

// C6, in both directions, for both states in which a lease can be.
func TestPitfall27C6OnlyEndedLeasesAreReclaimed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var live, ended []uuid.UUID
	for _, status := range []string{"leased", "running"} {
		live = append(live, b.byHand(status, "1 hour"), b.byHand(status, "2 seconds"))
		ended = append(ended, b.byHand(status, "-1 minute"), b.byHand(status, "-1 millisecond"))
	}
	if got := b.reclaim(); got.Requeued != len(ended) || got.Failed != 0 {
		t.Errorf("reclaimed %+v, want %d requeued", got, len(ended))
	}
	for _, id := range ended {
		b.wantStatus(id, "pending")
	}
	for _, id := range live {
		if s := b.status(id); s == "pending" {
			t.Errorf("a live lease was reclaimed")
		}
	}
	var spent int
	var outcome string
	b.Scan(t, `SELECT spent, attempts->0->>'outcome' FROM chronos.job_runs WHERE id = $1`, []any{ended[0]}, &spent, &outcome)
	if spent != 1 || outcome != "lease_expired" {
		t.Errorf("the reaped attempt counts %d with outcome %q", spent, outcome)
	}
}

func TestReclaimingTheLastAttemptFailsTheRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.byHand("running", "-1 second")
	b.Exec(t, `UPDATE chronos.job_runs SET spent = 4`)
	if got := b.reclaim(); got.Failed != 1 || got.Requeued != 0 {
		t.Errorf("reclaimed %+v", got)
	}
	b.wantStatus(id, "failed lease_expired")
}

// A lease that is renewed between the reaper's look and its UPDATE is left alone.
func TestReclaimLeavesALeaseThatWasRenewedMeanwhile(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.byHand("running", "-1 second")
	holder, err := b.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback(t.Context()) }()
	if _, err := holder.Exec(t.Context(), `UPDATE chronos.job_runs SET leased_until = now() + interval '1 hour' WHERE id = $1`, id); err != nil {
		t.Fatal(err)
	}
	if got := b.reclaim(); got.Total() != 0 {
		t.Errorf("reclaimed %+v while the row was being renewed", got)
	}
	if err := holder.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := b.reclaim(); got.Total() != 0 {
		t.Errorf("reclaimed %+v", got)
	}
	b.wantStatus(id, "running")
}

func TestManyReapersCountEachLeaseOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for range 200 {
		b.byHand("leased", "-1 minute")
	}
	var (
		mu    sync.Mutex
		total int
		wg    sync.WaitGroup
	)
	for range 4 {
		wg.Go(func() {
			got, err := queue.ReclaimExpiredLeases(t.Context(), b.Pool, 30)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			total += got.Total()
			mu.Unlock()
		})
	}
	wg.Wait()
	for got := b.reclaim(); got.Total() > 0; got = b.reclaim() {
		total += got.Total()
	}
	var twice int
	b.Scan(t, `SELECT count(*) FROM chronos.job_runs WHERE spent <> 1 OR status <> 'pending'`, nil, &twice)
	if total != 200 || twice != 0 {
		t.Errorf("%d leases were counted, %d rows reclaimed other than once", total, twice)
	}
}

func TestPitfall32OnePoisonRowDoesntStopTheReaper(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var poison []uuid.UUID
	for range 3 {
		poison = append(poison, b.byHand("leased", "-1 minute"))
	}
	b.Exec(t, `CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'poison'; END $$`)
	b.Exec(t, `ALTER TABLE chronos.job_runs ADD COLUMN bad boolean`)
	b.Exec(t, `UPDATE chronos.job_runs SET bad = true, due_at = (SELECT min(due_at) FROM chronos.job_runs)`)
	b.Exec(t, `CREATE TRIGGER poison BEFORE UPDATE ON chronos.job_runs FOR EACH ROW WHEN (OLD.bad) EXECUTE FUNCTION poison()`)
	var good []uuid.UUID
	for range 20 {
		good = append(good, b.byHand("running", "-1 minute"))
	}
	// Pages of two: the bad rows fill one wherever they stand in the order, also among those that came due with them.
	b.Exec(t, `UPDATE chronos.job_runs SET due_at = (SELECT min(due_at) FROM chronos.job_runs) WHERE NOT coalesce(bad, false)`)
	got, err := queue.ReclaimExpiredLeases(t.Context(), b.Pool, 2)
	for got.Total() > 0 {
		got, err = queue.ReclaimExpiredLeases(t.Context(), b.Pool, 2)
	}
	for _, id := range good {
		b.wantStatus(id, "pending")
	}
	for _, id := range poison {
		b.wantStatus(id, "leased")
	}
	if err == nil || !strings.Contains(err.Error(), poison[0].String()) {
		t.Errorf("the error is %v, want one that names the rows", err)
	}
}

// Wherever an ended lease stands, in whichever queue and however it is paged, it is found; what is to come, or live, is not.
func TestEndedLeasesAreFoundInEveryLane(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 3, 1000} {
		b := newBench(t)
		var ended, other int
		b.Scan(t, `
			WITH made AS (
				INSERT INTO chronos.job_runs (job_id, queue, priority, scheduled_for, due_at, status, lease_token, leased_until)
				SELECT 999, q, p, now(), now() + d * interval '1 minute',
				       CASE WHEN d > 0 OR n = 0 THEN 'pending' ELSE 'leased' END, CASE WHEN d <= 0 AND n > 0 THEN gen_random_uuid() END,
				       CASE WHEN d <= 0 AND n > 0 THEN now() + (2 * n - 3) * interval '1 hour' END
				  FROM unnest(ARRAY['', 'default/a', 'other/b']) q, generate_series(-1, 9, 5) p, unnest(ARRAY[-60, -60, -1, 0, 60]) d, generate_series(0, 2) n
				RETURNING leased_until < now() AS ended)
			SELECT count(*) FILTER (WHERE ended), count(*) FILTER (WHERE ended IS NOT TRUE) FROM made`, nil, &ended, &other)
		total := 0
		for {
			got, err := queue.ReclaimExpiredLeases(t.Context(), b.Pool, limit)
			if err != nil {
				t.Fatal(err)
			}
			if got.Total() == 0 {
				break
			}
			total += got.Total()
		}
		var taken, left int
		b.Scan(t, `SELECT count(*) FILTER (WHERE spent = 1 AND status = 'pending'), count(*) FILTER (WHERE spent = 0) FROM chronos.job_runs`, nil, &taken, &left)
		if total != ended || taken != ended || left != other {
			t.Errorf("in pages of %d: %d of %d ended leases were reclaimed, %d taken back; %d of %d others left alone", limit, total, ended, taken, left, other)
		}
	}
}
