package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/internal/relay"
)

const (
	// leaderJobs tick each second while a leader is lost.
	leaderJobs = 20
	// steady is how long they tick before, and after another leads.
	steady = 4 * time.Second
	// leaderPatience bounds the wait for another leader, and for what is due to be done.
	leaderPatience = 60 * time.Second
)

// loss is a way to lose a leader.
type loss struct {
	name string
	lose func(leader *replica, cable *relay.Relay) error
	back func(leader *replica) error // after another leads; nil: it doesn't come back
}

var losses = []loss{
	{"killed (SIGKILL)", func(r *replica, _ *relay.Relay) error { return syscall.Kill(r.PID(), syscall.SIGKILL) }, nil},
	{
		"frozen (SIGSTOP), goes on later (SIGCONT)",
		func(r *replica, _ *relay.Relay) error { return syscall.Kill(r.PID(), syscall.SIGSTOP) },
		func(r *replica) error { return syscall.Kill(r.PID(), syscall.SIGCONT) },
	},
	{"cut off silently", func(_ *replica, cable *relay.Relay) error { cable.Cut(); return nil }, nil},
}

func runLeader(ctx context.Context, b *bench) ([]Row, error) {
	var rows []*Row
	for _, l := range losses {
		rows = append(rows, newRow("Leader "+l.name, familyHoldfast, ""))
	}
	bar := progress(b.rounds*len(losses), "leaders lost")
	for range b.rounds {
		for i, l := range losses {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := b.leaderTurn(ctx, rows[i], l); err != nil {
				rows[i].fault("%v", err)
			}
			_ = bar.Add(1)
		}
	}
	return rowsOf(rows)
}

func (b *bench) leaderTurn(ctx context.Context, row *Row, l loss) (err error) {
	r, err := newReceiver(0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	direct, pool, end, err := b.chronosDatabase(ctx, "chronos_leader", 4)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	first, err := b.schedule(ctx, pool, direct, r.url, cohort{jobs: leaderJobs, rate: leaderJobs, lead: 2 * time.Second})
	if err != nil {
		return err
	}
	// The first replica leads: it is alone at first. Its database is behind a cable.
	at, err := url.Parse(direct)
	if err != nil {
		return err
	}
	cable, err := relay.New(at.Host)
	if err != nil {
		return err
	}
	defer cable.Close()
	at.Host = cable.Address()
	leader, err := b.startReplica(ctx, "leader-1", at.String())
	if err != nil {
		return err
	}
	defer func() { // one that is cut off or frozen doesn't end by itself
		_ = syscall.Kill(leader.PID(), syscall.SIGKILL)
		<-leader.Exited()
	}()
	epoch, err := leads(ctx, pool, 0)
	if err != nil {
		return err
	}
	other, err := b.startReplica(ctx, "leader-2", direct)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, other.Stop()) }()
	if err := pause(ctx, time.Until(first.Add(steady))); err != nil {
		return err
	}
	lostAt := time.Now()
	if err := l.lose(leader, cable); err != nil {
		return err
	}
	if _, err := leads(ctx, pool, epoch); err != nil {
		return err
	}
	row.add(gap, float64(time.Since(lostAt).Microseconds())/1e3)
	if l.back != nil {
		if err := l.back(leader); err != nil {
			return err
		}
	}
	if err := pause(ctx, steady); err != nil {
		return err
	}
	return b.leaderBooks(ctx, row, pool, r, first)
}

// leads waits for a leader that comes after an epoch, and returns its own.
func leads(ctx context.Context, pool *pgxpool.Pool, after int64) (epoch int64, err error) {
	for began := time.Now(); time.Since(began) < leaderPatience; {
		err := pool.QueryRow(ctx, "SELECT coalesce(max(epoch), 0) FROM chronos.leaderships").Scan(&epoch)
		if err != nil || epoch > after {
			return epoch, err
		}
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("nobody leads after %v", leaderPatience)
}

// leaderBooks compares the instants that there were with what was planned and what arrived.
func (b *bench) leaderBooks(ctx context.Context, row *Row, pool *pgxpool.Pool, r *receiver, first time.Time) error {
	last := time.Now().Add(-time.Second).Truncate(time.Second)
	// What the lost leader had in hand is delivered again when its leases have ended.
	for began := time.Now(); ; {
		var left int
		if err := pool.QueryRow(ctx, "SELECT count(*) FROM chronos.job_runs WHERE scheduled_for <= $1", last).Scan(&left); err != nil {
			return err
		}
		if left == 0 {
			break
		}
		if time.Since(began) > leaderPatience {
			return fmt.Errorf("%d runs are still going", left)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	var planned, distinct int
	err := pool.QueryRow(ctx, `SELECT count(*), count(DISTINCT (job_id, scheduled_for)) FROM chronos.run_history WHERE scheduled_for BETWEEN $1 AND $2`, first, last).
		Scan(&planned, &distinct)
	if err != nil {
		return err
	}
	r.mu.Lock()
	missing, arrived := 0, 0
	for at := first; !at.After(last); at = at.Add(time.Second) {
		missing += leaderJobs - min(leaderJobs, r.instants[at.UTC()])
		arrived += leaderJobs
	}
	r.mu.Unlock()
	row.add(lost, float64(missing))
	row.add(doubled, float64(r.twice()))
	r.measured(row)
	switch {
	case missing > 0:
		return fmt.Errorf("%d of %d never arrived", missing, arrived)
	case planned != distinct || planned != arrived:
		return fmt.Errorf("%d runs of %d instants are in the history, want %d", planned, distinct, arrived)
	}
	return nil
}
