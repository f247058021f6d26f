package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"holdfast/chronos"
	"holdfast/chronos/queue"
	"holdfast/chronos/worker"
	"holdfast/internal/pg"
)

const (
	// ourWorkers work in process, each with a connection.
	ourWorkers = 3
	// ourBatch is how many runs each leases, and ends, at once.
	ourBatch = 2000
	// fillBatch is how many runs are planned at once, as many as the planner does.
	fillBatch = 5000
	// noopJobs is how many jobs the runs belong to.
	noopJobs    = 100
	noopName    = "noop"
	ourDatabase = "chronos_noop"
)

// tenant is whom replicas without authentication serve.
const tenant = "default"

// ourQueue is Chronos's.
type ourQueue struct {
	stage *stage
	url   string
	pool  *pgxpool.Pool
	end   func() error
	jobs  []int64
	base  time.Time // of the next runs' instants
	http  bool
}

func (s *stage) newOurQueue(http bool) func(context.Context) (queued, error) {
	return func(ctx context.Context) (queued, error) {
		url, pool, end, err := s.chronosDatabase(ctx, ourDatabase, 8)
		if err != nil {
			return nil, err
		}
		if err := queue.EnsurePartitions(ctx, pool); err != nil {
			return nil, err
		}
		service, err := chronos.New(ctx, chronos.Config{Pool: pool, SessionURL: url, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return nil, err
		}
		q := &ourQueue{stage: s, url: url, pool: pool, end: end, base: time.Now().Truncate(time.Second).Add(-time.Hour), http: http}
		for i := range noopJobs {
			spec := chronos.DefaultSpec()
			spec.Schedule.Expression = "0 0 1 1 *"
			spec.Overlap = chronos.OverlapAllow
			spec.Target.Pull = &chronos.Pull{Queue: noopName}
			put, _, err := service.Store().PutJob(ctx, chronos.Caller{Tenant: tenant}, fmt.Sprintf("noop-%d", i), spec, nil)
			if err != nil {
				return nil, err
			}
			q.jobs = append(q.jobs, put.Job.ID)
		}
		return q, nil
	}
}

func (q *ourQueue) fill(ctx context.Context, n int) error {
	for from := 0; from < n; from += fillBatch {
		runs := make([]queue.NewRun, min(fillBatch, n-from))
		for i := range runs {
			job := q.jobs[i%len(q.jobs)]
			q.base = q.base.Add(time.Millisecond)
			runs[i] = queue.NewRun{
				ID: queue.ScheduledID(job, q.base), JobID: job, Tenant: tenant, Queue: chronos.QueueName(tenant, noopName), MaxAttempts: 5,
				Trigger: queue.Schedule, ScheduledFor: q.base, DueAt: q.base,
			}
		}
		err := queue.InTx(ctx, q.pool, pg.TxOptions{}, func(tx pgx.Tx) error {
			_, err := queue.Insert(ctx, tx, runs)
			return err
		})
		if err != nil {
			return err
		}
	}
	return q.stage.settle(ctx, q.pool, "chronos.job_runs")
}

func (q *ourQueue) drain(ctx context.Context, n int) (float64, error) {
	if q.http {
		return q.drainHTTP(ctx, n)
	}
	began := time.Now()
	var done atomic.Int64
	front := &queue.Front{}
	group, ctx := errgroup.WithContext(ctx)
	for i := range ourWorkers {
		group.Go(func() error {
			for done.Load() < int64(n) {
				ended, err := q.batch(ctx, front, fmt.Sprint(i))
				if err != nil {
					return err
				}
				done.Add(int64(ended))
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	return time.Since(began).Seconds(), q.check(ctx, n)
}

// batch leases runs, does nothing, and ends them.
func (q *ourQueue) batch(ctx context.Context, front *queue.Front, name string) (ended int, err error) {
	claim := queue.Claim{Queue: chronos.QueueName(tenant, noopName), Worker: name, Max: ourBatch, For: time.Minute, Front: front}
	if front.Stale() {
		if _, _, err := queue.NextDue(ctx, q.pool, claim); err != nil {
			return 0, err
		}
	}
	var claimed queue.Claimed
	err = queue.InTx(ctx, q.pool, pg.TxOptions{}, func(tx pgx.Tx) (err error) {
		claimed, err = queue.Lease(ctx, tx, claim)
		return err
	})
	if err != nil || len(claimed.Runs) == 0 {
		return 0, err
	}
	finishes := make([]queue.Finish, len(claimed.Runs))
	for i, r := range claimed.Runs {
		finishes[i] = queue.Finish{Holding: r.Holding(), Kind: queue.Complete, Attempt: queue.Attempt{Outcome: "succeeded"}}
	}
	err = queue.InTx(ctx, q.pool, pg.TxOptions{}, func(tx pgx.Tx) error {
		_, errs, err := queue.EndAll(ctx, tx, finishes)
		ended = 0
		for _, refused := range errs {
			if refused == nil {
				ended++
			}
		}
		return err
	})
	return ended, err
}

// httpWorkers is how many runs a worker over HTTP works at once: each run is ended by a request of its own.
const httpWorkers = 64

// drainHTTP works the runs with the worker package, over both replicas.
func (q *ourQueue) drainHTTP(ctx context.Context, n int) (float64, error) {
	both, stop, err := q.stage.startReplicas(ctx, "noop", q.url)
	if err != nil {
		return 0, err
	}
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	var begun atomic.Int64
	all := make(chan struct{})
	handle := func(context.Context, *worker.Run) (any, error) {
		if begun.Add(1) == int64(n) {
			close(all)
		}
		return nil, nil
	}
	group, working := errgroup.WithContext(ctx)
	began := time.Now()
	for _, r := range both {
		w, err := worker.New(worker.Config{Servers: []string{r.url}, Log: slog.New(slog.DiscardHandler), Queues: []worker.Queue{{Name: noopName, Concurrency: httpWorkers, Handle: handle}}})
		if err != nil {
			return 0, err
		}
		group.Go(func() error { return w.Run(working) })
	}
	select {
	case <-all:
	case <-working.Done():
	}
	took := time.Since(began).Seconds() // the last handful are being reported
	enough()
	if err := group.Wait(); err != nil {
		return 0, err
	}
	if err := q.check(context.WithoutCancel(ctx), n); err != nil {
		return 0, err
	}
	return took, stop()
}

// check fails unless each of the last n runs has ended well, once.
func (q *ourQueue) check(ctx context.Context, n int) error {
	var left, succeeded, ids int
	err := q.pool.QueryRow(context.WithoutCancel(ctx), `SELECT (SELECT count(*) FROM chronos.job_runs),
		count(*) FILTER (WHERE status = 'succeeded' AND attempt = 1), count(DISTINCT id) FROM chronos.run_history`).Scan(&left, &succeeded, &ids)
	if err == nil && (left > 0 || succeeded != ids || succeeded < n) {
		err = fmt.Errorf("%d runs are left, %d of %d have succeeded at the first attempt", left, succeeded, ids)
	}
	return err
}

func (q *ourQueue) close() error { return q.end() }

func (q *ourQueue) database() string { return ourDatabase }
