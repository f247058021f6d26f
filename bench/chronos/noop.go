package main

import (
	"context"
	"errors"
	"fmt"
)

// queued is a system that works what is in a queue.
type queued interface {
	// fill puts n runs into the queue that do nothing, and tidies up.
	fill(ctx context.Context, n int) error
	// drain works them and says how many seconds that took, until the last end was durable.
	drain(ctx context.Context, n int) (seconds float64, err error)
	database() string // its name
	close() error
}

// contestant is one who works queues.
type contestant struct {
	row  *Row
	open func(context.Context) (queued, error)
	part int // it works so small a part of the runs, since it takes long; 0: all
}

// share is how many of the runs it works.
func (c contestant) share(runs int) int { return max(1000, runs/max(1, c.part)) }

const (
	nameOurs     = "Holdfast, in process"
	nameOursHTTP = "Holdfast, workers over HTTP, two replicas"
)

func (b *bench) contestants(http bool) []contestant {
	all := []contestant{
		{newRow(nameOurs, familyHoldfast, fmt.Sprintf("%d workers, batches of %d", ourWorkers, ourBatch)), b.newOurQueue(false), 0},
		{newRow("River, 2,000 workers", familyRiver, "settings of its benchmark command, 50 connections"), b.newRiverQueue(2000), 0},
		{newRow("River, 1,000 workers", familyRiver, "the same, with the number its comment calls best"), b.newRiverQueue(1000), 0},
	}
	if http {
		all = append(all, contestant{newRow(nameOursHTTP, familyHoldfast, fmt.Sprintf("%d at once for each replica, each ended by a request of its own; a tenth of the runs", httpWorkers)), b.newOurQueue(true), 10})
	}
	if b.graphile != "" {
		all = append(all, contestant{newRow("graphile-worker", familyGraphile, "settings of its page on performance: 24 at once, local queue 500, batched completion"), b.newGraphileQueue, 0})
	}
	return all
}

func runNoop(ctx context.Context, b *bench) ([]Row, error) {
	all := b.contestants(true)
	bar := progress(b.rounds*len(all), "runs that do nothing")
	for range b.rounds {
		for _, c := range all {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			took, err := b.noopTurn(ctx, c)
			if err != nil {
				c.row.fault("%v", err)
			} else {
				c.row.add(seconds, took)
				c.row.add(perSecond, float64(c.share(b.runs))/took)
			}
			_ = bar.Add(1)
		}
	}
	return rowsOf(rowPointers(all))
}

func (b *bench) noopTurn(ctx context.Context, c contestant) (took float64, err error) {
	q, err := c.open(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, q.close()) }()
	if err := q.fill(ctx, c.share(b.runs)); err != nil {
		return 0, err
	}
	return q.drain(ctx, c.share(b.runs))
}

func rowPointers(all []contestant) []*Row {
	rows := make([]*Row, len(all))
	for i, c := range all {
		rows[i] = c.row
	}
	return rows
}
