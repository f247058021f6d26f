package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const (
	without = ", nothing open"
	with    = ", a transaction open"
)

// runDeadRows compares everybody with themselves: the queue after a great many runs have passed through it, with and without a
// transaction that began before the first of them.
func runDeadRows(ctx context.Context, b *bench) ([]Row, error) {
	var all []contestant
	for _, c := range b.contestants(false) {
		for _, suffix := range []string{without, with} {
			all = append(all, contestant{newRow(c.row.Name+suffix, c.row.Family, c.row.Note), c.open, c.part})
		}
	}
	bar := progress(b.rounds*len(all), "dead rows")
	for range b.rounds {
		for i, c := range all {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			took, err := b.deadTurn(ctx, c, i%2 == 1)
			if err != nil {
				c.row.fault("%v", err)
			} else {
				c.row.add(seconds, took)
				c.row.add(perSecond, float64(b.runs)/took)
			}
			_ = bar.Add(1)
		}
	}
	return rowsOf(rowPointers(all))
}

// churnBatch is how many of the runs that pass through are in the queue at once.
const churnBatch = 20_000

func (b *bench) deadTurn(ctx context.Context, c contestant, open bool) (took float64, err error) {
	q, err := c.open(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, q.close()) }()
	if open {
		end, err := b.leaveOpen(ctx, q.database())
		if err != nil {
			return 0, err
		}
		defer end()
	}
	for left := b.churn; left > 0; left -= churnBatch {
		n := min(left, churnBatch)
		if err := q.fill(ctx, n); err != nil {
			return 0, err
		}
		if _, err := q.drain(ctx, n); err != nil {
			return 0, err
		}
	}
	if err := q.fill(ctx, b.runs); err != nil {
		return 0, err
	}
	return q.drain(ctx, b.runs)
}

// leaveOpen begins a transaction in a database that sees everything as it is now, and does nothing more.
func (b *bench) leaveOpen(ctx context.Context, database string) (end func(), err error) {
	conn, err := pgx.Connect(ctx, b.cluster.SuperuserURL(database))
	if err != nil {
		return nil, err
	}
	for _, sql := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM pg_class"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return nil, fmt.Errorf("leave a transaction open: %w", err)
		}
	}
	return func() { _ = conn.Close(context.WithoutCancel(ctx)) }, nil
}
