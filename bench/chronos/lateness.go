package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/riverqueue/river"

	"holdfast/bench/figure"
)

// latenessLead is how long before its measurement a load runs already.
const latenessLead = 5 * time.Second

// runLateness measures from the instant to the arrival.
func runLateness(ctx context.Context, b *bench) ([]Row, error) {
	var turns []turn
	for _, spread := range []bool{true, false} {
		for _, rate := range b.rates {
			if spread && rate == 1 {
				continue // one at an instant either way
			}
			for _, jobs := range b.jobs {
				c := cohort{jobs: max(jobs, rate), rate: rate, spread: spread, lead: latenessLead}
				turns = append(turns, turn{
					newRow(latenessName(string(familyHoldfast), c), familyHoldfast, "to the receiver of the webhook"),
					func(ctx context.Context, row *Row) error { return b.ourLateness(ctx, row, c) },
				})
			}
			c := cohort{jobs: 1000, rate: rate, spread: spread}
			turns = append(turns, turn{
				newRow(latenessName(string(familyRiver), c), familyRiver, "periodic jobs, to the first line of the worker, in process"),
				func(ctx context.Context, row *Row) error { return b.riverLateness(ctx, row, c) },
			})
		}
	}
	return b.takeTurns(ctx, "lateness", turns)
}

// turn is one row's part of a round.
type turn struct {
	row *Row
	run func(context.Context, *Row) error
}

func (b *bench) takeTurns(ctx context.Context, what string, turns []turn) ([]Row, error) {
	bar := progress(b.rounds*len(turns), what)
	var rows []*Row
	for round := range b.rounds {
		for _, t := range turns {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := t.run(ctx, t.row); err != nil {
				t.row.fault("%v", err)
			}
			if round == 0 {
				rows = append(rows, t.row)
			}
			_ = bar.Add(1)
		}
	}
	return rowsOf(rows)
}

func jobsText(n int) string {
	if n == 1 {
		return "1 job"
	}
	return figure.Thousands(int64(n)) + " jobs"
}

func latenessName(who string, c cohort) string {
	how := " at once"
	switch {
	case c.rate == 1:
		how = ""
	case c.spread:
		how = " spread"
	}
	return fmt.Sprintf("%s, %s/s%s, %s", who, figure.Thousands(int64(c.rate)), how, jobsText(c.jobs))
}

func (b *bench) ourLateness(ctx context.Context, row *Row, c cohort) (err error) {
	r, err := newReceiver(0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	url, pool, end, err := b.chronosDatabase(ctx, "chronos_lateness", 4)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	first, err := b.schedule(ctx, pool, url, r.url, c)
	if err != nil {
		return err
	}
	_, stop, err := b.startReplicas(ctx, "lateness", url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	// The first second warms up, whenever that is: it took a while until the jobs were there.
	from := first.Add(time.Second - time.Millisecond)
	if now := time.Now(); now.After(from) {
		from = now.Truncate(time.Second).Add(2*time.Second - time.Millisecond)
	}
	if err := pause(ctx, time.Until(from)); err != nil {
		return err
	}
	r.reset()
	if err := pause(ctx, b.length); err != nil {
		return err
	}
	r.measured(row)
	seconds := int(b.length / time.Second)
	if n := int(row.Figures[samples][len(row.Figures[samples])-1]); n < (seconds-1)*c.rate {
		return fmt.Errorf("%d of %d have arrived", n, seconds*c.rate)
	}
	if n := r.twice(); n > 0 {
		return fmt.Errorf("%d arrived twice", n)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// each is a schedule of River's: every second, at a part of it.
type each struct{ phase time.Duration }

// Next is the first such instant after t.
func (e each) Next(t time.Time) time.Time {
	at := t.Truncate(time.Second).Add(e.phase)
	if !at.After(t) {
		at = at.Add(time.Second)
	}
	return at
}

func (b *bench) riverLateness(ctx context.Context, row *Row, c cohort) (err error) {
	q, err := b.openRiver(ctx, 1000)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.close()) }()
	var periodic []*river.PeriodicJob
	for i := range c.jobs {
		var schedule river.PeriodicSchedule = river.NeverSchedule()
		if i < c.rate {
			phase := time.Duration(0)
			if c.spread {
				phase = time.Duration(i) * time.Second / time.Duration(c.rate)
			}
			schedule = each{phase}
		}
		periodic = append(periodic, river.NewPeriodicJob(schedule, func() (river.JobArgs, *river.InsertOpts) { return riverArgs{i}, nil }, nil))
	}
	var (
		mu   sync.Mutex
		late = hdrhistogram.New(1, int64(time.Hour/time.Microsecond), 3)
	)
	client, err := q.client(func(job *river.Job[riverArgs]) {
		now := time.Now()
		mu.Lock()
		defer mu.Unlock()
		_ = late.RecordValue(max(1, now.Sub(job.ScheduledAt).Microseconds()))
	}, periodic)
	if err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Stop(context.WithoutCancel(ctx))) }()
	if err := pause(ctx, latenessLead); err != nil {
		return err
	}
	mu.Lock()
	late.Reset()
	mu.Unlock()
	if err := pause(ctx, b.length); err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	row.add(p50, float64(late.ValueAtQuantile(50)))
	row.add(p99, float64(late.ValueAtQuantile(99)))
	row.add(highest, float64(late.Max()))
	row.add(samples, float64(late.TotalCount()))
	if n := int(late.TotalCount()); n < int(b.length/time.Second-2)*c.rate {
		return fmt.Errorf("%d of %d have run", n, int(b.length/time.Second)*c.rate)
	}
	return nil
}
