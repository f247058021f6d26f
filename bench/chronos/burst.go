package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"holdfast/bench/process"
)

const (
	nameBurst = "Holdfast, two replicas"
	nameBare  = "A loop that only sends"
	bareFlag  = "-bare"
	// bareConns is how many requests the loop has in flight: as many as both replicas may have.
	bareConns = 512
	// burstLead is until the runs are due: the planner makes them before.
	burstLead = 12 * time.Second
)

// runBurst has many webhooks due at one instant.
func runBurst(ctx context.Context, b *bench) ([]Row, error) {
	us := newRow(nameBurst, familyHoldfast, "from the instant to the last arrival; planned, leased, signed, sent, recorded")
	loop := newRow(nameBare, familyBare, fmt.Sprintf("the same requests, %d connections, a process of its own", bareConns))
	bar := progress(2*b.rounds, "webhooks")
	for range b.rounds {
		sample, err := b.burstTurn(ctx, us)
		if err != nil {
			us.fault("%v", err)
		}
		_ = bar.Add(1)
		if sample != nil {
			if err := b.bareTurn(ctx, loop, sample); err != nil {
				loop.fault("%v", err)
			}
		}
		_ = bar.Add(1)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return rowsOf([]*Row{us, loop})
}

func (b *bench) burstTurn(ctx context.Context, row *Row) (sample http.Header, err error) {
	r, err := newReceiver(b.due)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	url, pool, end, err := b.chronosDatabase(ctx, "chronos_burst", 4)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	due, err := b.schedule(ctx, pool, url, r.url, cohort{jobs: b.due, rate: b.due, lead: burstLead})
	if err != nil {
		return nil, err
	}
	// Each comes round in an hour: nothing but the burst is due.
	if _, err := pool.Exec(ctx, `UPDATE chronos.jobs SET spec = jsonb_set(spec::jsonb, '{schedule,every_ns}', '3600000000000')::json`); err != nil {
		return nil, err
	}
	if err := b.settle(ctx, pool, "chronos.jobs"); err != nil {
		return nil, err
	}
	if late := time.Since(due.Add(-3 * time.Second)); late > 0 {
		return nil, fmt.Errorf("the jobs were there %v too late", late)
	}
	_, stop, err := b.startReplicas(ctx, "burst", url)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	select {
	case <-r.all:
	case <-time.After(time.Until(due) + 2*time.Minute):
		r.mu.Lock()
		defer r.mu.Unlock()
		return nil, fmt.Errorf("%d of %d have arrived", len(r.arrivals), b.due)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	took := r.last.Sub(due).Seconds()
	row.add(seconds, took)
	row.add(perSecond, float64(b.due)/took)
	r.measured(row)
	row.add(doubled, float64(r.twice()))
	if r.twice() > 0 {
		row.fault("%d runs arrived twice", r.twice())
	}
	return r.sample, nil
}

// bareOrder is what the loop is told on its standard input.
type bareOrder struct {
	URL    string
	N      int
	Header http.Header
	Body   []byte
}

// bareTurn has the loop send the same requests, from a process of its own as replicas do.
func (b *bench) bareTurn(ctx context.Context, row *Row, sample http.Header) (err error) {
	r, err := newReceiver(b.due)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	body, err := json.Marshal(map[string]any{"id": sample.Get("webhook-id"), "job": sample.Get("chronos-job"), "attempt": 1, "scheduled_for": sample.Get("chronos-scheduled-for")})
	if err != nil {
		return err
	}
	order, err := json.Marshal(bareOrder{r.url, b.due, sample, body})
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, bareFlag)
	cmd.Stdin = bytes.NewReader(order)
	began := time.Now()
	p, err := process.Start(cmd, b.dir+"/bare.log")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	select {
	case <-r.all:
	case <-time.After(2 * time.Minute):
		return errors.New("the loop doesn't end")
	case <-ctx.Done():
		return ctx.Err()
	}
	took := r.last.Sub(r.first).Seconds()
	if took <= 0 {
		took = r.last.Sub(began).Seconds()
	}
	row.add(seconds, took)
	row.add(perSecond, float64(b.due)/took)
	return nil
}

// bareLoop is the process that only sends.
func bareLoop([]string) error {
	var order bareOrder
	if err := json.NewDecoder(os.Stdin).Decode(&order); err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: bareConns, DisableCompression: true}}
	var next atomic.Int64
	group, ctx := errgroup.WithContext(context.Background())
	for range bareConns {
		group.Go(func() error {
			for n := next.Add(1); n <= int64(order.N); n = next.Add(1) {
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, order.URL, bytes.NewReader(order.Body))
				if err != nil {
					return err
				}
				req.Header = order.Header.Clone()
				req.Header.Set("webhook-id", fmt.Sprintf("%036d", n))
				res, err := client.Do(req)
				if err != nil {
					return err
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
			}
			return nil
		})
	}
	return group.Wait()
}
