package chronos

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/chronos/queue"
)

// Pitfall 23: a new leader begins at the stored watermark, however long nobody led.
func TestPitfall23ANewLeaderLooksBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := pulled("q", time.Second)
	spec.CatchUp = CatchUp{CatchUpAll, time.Hour, 5}
	w.put("job", spec)
	w.Exec(t, `DELETE FROM chronos.job_runs`)
	w.Exec(t, `UPDATE chronos.jobs SET next_at = next_at - interval '5 minutes', last_at = NULL, anchor = anchor - interval '1 hour'`)
	var watermark time.Time
	w.Scan(t, `SELECT next_at FROM chronos.jobs`, nil, &watermark)
	ctx, cancel := context.WithCancel(t.Context())
	p := w.planner(w.term())
	done := make(chan error, 1)
	go func() { done <- p.run(ctx) }()
	w.await(`SELECT next_at > clock_timestamp() + interval '10 s' FROM chronos.jobs`)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	var first time.Time
	w.Scan(t, `SELECT min(scheduled_for) FROM (SELECT scheduled_for FROM chronos.job_runs UNION ALL SELECT scheduled_for FROM chronos.run_history) r`, nil, &first)
	if !first.Equal(watermark) {
		t.Errorf("the first instant with a fate is %v, the watermark was %v", first, watermark)
	}
	if n := w.count(`SELECT count(*) FROM chronos.job_runs WHERE trigger = 'catch_up'`); n != 5 {
		t.Errorf("%d are made up for, want the newest 5", n)
	}
	w.noHoles()
}

// Pitfall 29: a worker that can't renew stops its work before its lease ends, by its own clock.
func TestPitfall29AWorkerThatCannotRenewStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stopped := make(chan time.Time, 1)
	r := newReceiver(t, func(_ http.ResponseWriter, req *http.Request) {
		<-req.Context().Done()
		stopped <- time.Now()
	})
	w.start(Config{Lease: 3 * time.Second})
	spec := to(r.URL, time.Hour)
	spec.Target.Webhook.Timeout = 15 * time.Minute
	w.put("job", spec)
	run, _, err := w.store.TriggerJob(t.Context(), me, "job", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.wait(1)
	var left time.Duration
	w.Scan(t, `SELECT leased_until - clock_timestamp() FROM chronos.job_runs WHERE id = $1`, []any{run.ID}, &left)
	w.SetAllowConnections(t, false)
	end := time.Now().Add(left + time.Second) // it may have renewed once more meanwhile
	if at := <-stopped; at.After(end) {
		t.Errorf("the delivery was stopped %v after its lease had ended", at.Sub(end))
	}
	w.SetAllowConnections(t, true)
	w.await(`SELECT coalesce(attempts->0->>'outcome' = 'lease_expired', false) FROM chronos.job_runs WHERE id = $1`, run.ID)
	if _, _, err := w.store.CancelRun(t.Context(), me, run.ID); err != nil {
		t.Error(err)
	}
}

// Pitfall 31: the leader's lock is on a session of its own, and its end ends the planning.
func TestPitfall31LosingTheLocksSessionEndsTheTerm(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(Config{})
	w.await(`SELECT count(*) = 1 FROM chronos.leaderships l JOIN chronos.replicas r ON l.holder = r.id::text`)
	w.await(`SELECT count(pg_terminate_backend(pid)) = 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid <> pg_backend_pid()
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	w.await(`SELECT max(epoch) >= 2 FROM chronos.leaderships`)
	w.put("job", pulled("q", time.Second))
	w.await(`SELECT count(*) > 22 FROM chronos.job_runs`) // planned by the new term: what the command had planned is 20 or 21
}

// Pitfall 33: a run that failed, and waits to be tried again, doesn't hold up the next instant.
func TestPitfall33AFailedRunBlocksNoOther(t *testing.T) {
	t.Parallel()
	for _, overlap := range []Overlap{OverlapSkip, OverlapQueue, OverlapReplace} {
		t.Run(string(overlap), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			spec := pulled("q", time.Hour)
			spec.Overlap, spec.Retry = overlap, Retry{MaxAttempts: 3, Backoff: time.Hour, MaxBackoff: time.Hour}
			j := w.put("job", spec)
			w.late(j, "q", 10)
			first := w.lease("q")
			if len(first) != 1 {
				t.Fatalf("leased %+v", first)
			}
			if f, _, err := w.store.FailRun(t.Context(), me, first[0].Holding(), "no", true); err != nil || f.Status != queue.Pending {
				t.Fatal(f, err)
			}
			w.late(j, "q", 0)
			if next := w.lease("q"); len(next) != 1 || next[0].ID == first[0].ID {
				t.Errorf("leased %+v, want the next instant's run", next)
			}
		})
	}
}

// Pitfall 34: what is done leaves the hot table, and history goes by whole days.
func TestPitfall34HistoryGoesByPartition(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("job", pulled("q", time.Hour))
	if _, _, err := w.store.TriggerJob(t.Context(), me, "job", nil); err != nil {
		t.Fatal(err)
	}
	run := w.lease("q")[0]
	if _, _, err := w.store.CompleteRun(t.Context(), me, run.Holding(), nil); err != nil {
		t.Fatal(err)
	}
	if n := w.count(`SELECT count(*) FROM chronos.job_runs`); n != 0 {
		t.Errorf("%d rows are left in the hot table", n)
	}
	w.Exec(t, `CREATE TABLE chronos.run_history_20200101 PARTITION OF chronos.run_history FOR VALUES FROM ('2020-01-01T00:00:00Z') TO ('2020-01-02T00:00:00Z')`)
	if _, err := w.service(Config{Keep: 24 * time.Hour}).upkeep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := w.count(`SELECT count(*) FROM pg_class WHERE relname = 'run_history_20200101'`); n != 0 {
		t.Error("the old day's partition is still there")
	}
	if _, err := w.store.GetRun(t.Context(), "default", run.ID); err != nil {
		t.Errorf("the run of today: %v", err)
	}
}

// Pitfall 37: everything but the sessions works through a transaction pooler, in each of the modes that it allows.
func TestPitfall37TransactionPoolersWork(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]pgx.QueryExecMode{
		"cache_describe": pgx.QueryExecModeCacheDescribe,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			cfg, err := pgxpool.ParseConfig(w.URL)
			if err != nil {
				t.Fatal(err)
			}
			cfg.ConnConfig.DefaultQueryExecMode = mode
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			w.store = w.service(Config{Pool: pool}).store
			w.calendar("days", w.around())
			spec := excluding(pulled("q", time.Second), "days")
			spec.Overlap = OverlapReplace
			w.put("job", spec)
			w.put("job", excluding(spec))
			if _, _, err := w.store.SkipNext(t.Context(), me, "job"); err != nil {
				t.Fatal(err)
			}
			now := w.store.Now()
			w.backfill("job", now.Add(-10*time.Second), now)
			w.pause("job", "", nil)
			if _, _, err := w.store.ResumeJob(t.Context(), me, "job"); err != nil {
				t.Fatal(err)
			}
			if err := w.store.DeleteCalendar(t.Context(), me, "days"); err != nil {
				t.Fatal(err)
			}
			w.Exec(t, `UPDATE chronos.jobs SET next_at = clock_timestamp()`)
			if _, err := w.planner(w.term()).round(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, _, err := w.store.TriggerJob(t.Context(), me, "job", nil); err != nil {
				t.Fatal(err)
			}
			runs := w.lease("q")
			if len(runs) == 0 {
				t.Fatal("nothing was leased")
			}
			if _, err := queue.Renew(t.Context(), pool, []queue.Holding{runs[0].Holding()}, time.Minute); err != nil {
				t.Fatal(err)
			}
			if f, _, err := w.store.FailRun(t.Context(), me, runs[0].Holding(), "no", true); err != nil || f.Status != queue.Pending {
				t.Fatal(f, err)
			}
			w.Exec(t, `UPDATE chronos.job_runs SET due_at = clock_timestamp() WHERE id = $1`, runs[0].ID)
			again := w.lease("q")
			w.Exec(t, `UPDATE chronos.job_runs SET leased_until = clock_timestamp() - interval '1 s' WHERE status <> 'pending'`)
			if got, err := queue.ReclaimExpiredLeases(t.Context(), pool, 10); err != nil || got.Total() < len(again) {
				t.Errorf("reclaimed %+v, %v", got, err)
			}
			again = w.lease("q")
			if len(again) == 0 {
				t.Fatal("nothing was leased after the reaper")
			}
			if _, _, err := w.store.CompleteRun(t.Context(), me, again[0].Holding(), []byte(`{"rows": 3}`)); err != nil {
				t.Error(err)
			}
			if err := w.store.DeleteJob(t.Context(), me, "job"); err != nil {
				t.Error(err)
			}
		})
	}
}

// Pitfall 38: nothing counts rows, be it for a metric.
func TestPitfall38NothingCountsRows(t *testing.T) {
	t.Parallel()
	counting := regexp.MustCompile(`(?i)count\s*\(\s*\*\s*\)`)
	for _, dir := range []string{".", "queue", "api"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if at := counting.FindIndex(text); at != nil {
				t.Errorf("%s counts rows", file)
			}
		}
	}
}
