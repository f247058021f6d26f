package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverArgs are those of a job that does nothing.
type riverArgs struct {
	N int `json:"n"`
}

// Kind names the job.
func (riverArgs) Kind() string { return "noop" }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	began func(job *river.Job[riverArgs]) // nil: nobody asks
}

// Work does nothing.
func (w *riverWorker) Work(_ context.Context, job *river.Job[riverArgs]) error {
	if w.began != nil {
		w.began(job)
	}
	return nil
}

// The settings of River's own benchmark command.
const (
	riverCooldown = 2 * time.Millisecond
	riverPoll     = 20 * time.Millisecond
	riverConns    = 50
	riverBatch    = 5000
	riverDatabase = "river"
)

// riverQueue is River's, in this process.
type riverQueue struct {
	stage   *stage
	pool    *pgxpool.Pool
	drop    func() error
	workers int
}

func (s *stage) newRiverQueue(workers int) func(context.Context) (queued, error) {
	return func(ctx context.Context) (queued, error) { return s.openRiver(ctx, workers) }
}

func (s *stage) openRiver(ctx context.Context, workers int) (*riverQueue, error) {
	url, drop, err := s.database(ctx, riverDatabase)
	if err != nil {
		return nil, err
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = riverConns
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	return &riverQueue{s, pool, drop, workers}, err
}

func (q *riverQueue) client(began func(*river.Job[riverArgs]), periodic []*river.PeriodicJob) (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{began: began})
	return river.NewClient(riverpgxv5.New(q.pool), &river.Config{
		FetchCooldown: riverCooldown, FetchPollInterval: riverPoll, Workers: workers, PeriodicJobs: periodic,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: q.workers}},
		Logger: slog.New(slog.DiscardHandler),
	})
}

func (q *riverQueue) fill(ctx context.Context, n int) error {
	client, err := q.client(nil, nil)
	if err != nil {
		return err
	}
	for from := 0; from < n; from += riverBatch {
		batch := make([]river.InsertManyParams, min(riverBatch, n-from))
		for i := range batch {
			batch[i].Args = riverArgs{from + i}
		}
		if _, err := client.InsertManyFast(ctx, batch); err != nil {
			return err
		}
	}
	return q.stage.settle(ctx, q.pool, "river_job")
}

func (q *riverQueue) drain(ctx context.Context, n int) (float64, error) {
	client, err := q.client(nil, nil)
	if err != nil {
		return 0, err
	}
	events, enough := client.SubscribeConfig(&river.SubscribeConfig{ChanSize: n, Kinds: []river.EventKind{river.EventKindJobCompleted, river.EventKindJobFailed}})
	defer enough()
	began := time.Now()
	if err := client.Start(ctx); err != nil {
		return 0, err
	}
	for done := range n {
		select {
		case event := <-events: // it comes when the end is stored
			if event.Kind != river.EventKindJobCompleted {
				return 0, fmt.Errorf("a job of River ended as %s", event.Kind)
			}
		case <-time.After(time.Minute):
			return 0, fmt.Errorf("River did %d of %d", done, n)
		}
	}
	took := time.Since(began).Seconds()
	return took, client.Stop(ctx)
}

func (q *riverQueue) close() error { q.pool.Close(); return q.drop() }

func (q *riverQueue) database() string { return riverDatabase }
