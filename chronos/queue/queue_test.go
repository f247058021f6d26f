package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"holdfast/chronos"
	"holdfast/chronos/queue"
	"holdfast/internal/pg"
	"holdfast/internal/pg/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const lease = time.Minute

// bench is one test's database with one job in it.
type bench struct {
	*pgtest.DB
	t   *testing.T
	job int64
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{DB: pgtest.New(t, chronos.Schema()), t: t}
	if err := queue.EnsurePartitions(t.Context(), b.Pool); err != nil {
		t.Fatal(err)
	}
	b.job = b.newJob("job", "skip")
	return b
}

func (b *bench) newJob(name, overlap string) (id int64) {
	b.t.Helper()
	b.Scan(b.t, `INSERT INTO chronos.jobs (tenant, name, spec, overlap, anchor, zone_data)
		VALUES ('default', $1, '{}', $2, now(), '') RETURNING id`, []any{name, overlap}, &id)
	return id
}

// put adds a run of a job that came due so many seconds ago.
func (b *bench) put(job int64, secondsAgo int) (id uuid.UUID) {
	b.t.Helper()
	b.Scan(b.t, `INSERT INTO chronos.job_runs (job_id, scheduled_for, due_at, effective_at)
		SELECT $1, at, at, at FROM (SELECT clock_timestamp() - make_interval(secs => $2) AS at) t RETURNING id`, []any{job, secondsAgo}, &id)
	return id
}

func (b *bench) inTx(fn func(tx pgx.Tx) error) error {
	return queue.InTx(context.Background(), b.Pool, pg.TxOptions{}, fn)
}

func (b *bench) lease(max int) []queue.Run {
	b.t.Helper()
	var got queue.Claimed
	err := b.inTx(func(tx pgx.Tx) (err error) {
		got, err = queue.Lease(b.t.Context(), tx, queue.Claim{Worker: "w", Max: max, For: lease})
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return got.Runs
}

func (b *bench) finish(f queue.Finish) (queue.Finished, error) {
	var out queue.Finished
	err := b.inTx(func(tx pgx.Tx) (err error) {
		out, err = f.End(b.t.Context(), tx)
		return err
	})
	return out, err
}

// status says where a run is and what became of it: "pending", or "skipped overlap".
func (b *bench) status(id uuid.UUID) (s string) {
	b.t.Helper()
	b.Scan(b.t, `SELECT status FROM chronos.job_runs WHERE id = $1
		UNION ALL SELECT status || coalesce(' ' || reason, '') FROM chronos.run_history WHERE id = $1`, []any{id}, &s)
	return s
}

func (b *bench) wantStatus(id uuid.UUID, want string) {
	b.t.Helper()
	if got := b.status(id); got != want {
		b.t.Errorf("run is %q, want %q", got, want)
	}
}

// expire moves the end of a run's lease into the past.
func (b *bench) expire(id uuid.UUID) {
	b.t.Helper()
	b.Exec(b.t, `UPDATE chronos.job_runs SET leased_until = clock_timestamp() - interval '1 second' WHERE id = $1`, id)
}

func success(r queue.Run) queue.Finish {
	return queue.Finish{Holding: r.Holding(), Kind: queue.Complete, Attempt: queue.Attempt{Outcome: "succeeded"}}
}

func failure(r queue.Run) queue.Finish {
	return queue.Finish{
		Holding: r.Holding(), Kind: queue.Fail, Attempt: queue.Attempt{Outcome: "timeout", Error: "no answer"},
		Delay: func(int) time.Duration { return time.Hour },
	}
}
