package worker_test

import (
	"context"
	"fmt"
	"log"
	"os/signal"
	"syscall"

	"holdfast/chronos/worker"
)

// replicas are both of Chronos's, as `make up` starts them.
var replicas = []string{"http://127.0.0.1:8090", "http://127.0.0.1:8091"}

// report is the payload of the job nightly-report.
type report struct {
	Month string
}

// A worker for the queue reports, with a handler for each of its jobs, until it is told to stop.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	nightly := func(ctx context.Context, run *worker.Run, r report) (any, error) {
		fmt.Printf("%s: the report of %s, attempt %d\n", run.Job, r.Month, run.Attempt)
		return map[string]int{"pages": 12}, ctx.Err()
	}
	last := func(context.Context, *worker.Run) (any, error) {
		stop() // what is in hand ends well
		return nil, nil
	}
	w, err := worker.New(worker.Config{
		Servers: replicas,
		Queues: []worker.Queue{{Name: "reports", Concurrency: 4, Handle: worker.ByJob(map[string]worker.Handler{
			"nightly-report": worker.Typed(nightly),
			"last":           last,
		})}},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := w.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
