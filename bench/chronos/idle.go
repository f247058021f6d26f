package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast/bench/machine"
)

const (
	// idleJobs have their next instant in an hour.
	idleJobs = 1_000_000
	idleLead = time.Hour
	// idleSettle is left for what a replica does once after its start, the self-check for one.
	idleSettle = 15 * time.Second
	idleLength = 30 * time.Second
)

const nameIdle = "Two replicas, a million jobs of which none is due"

// runIdle measures what waiting costs: the processor time of both replicas, one of which leads, and of their PostgreSQL.
func runIdle(ctx context.Context, b *bench) ([]Row, error) {
	return b.takeTurns(ctx, "idle", []turn{{newRow(nameIdle, familyHoldfast, "all that they do, not the planner alone"), b.idleTurn}})
}

func (b *bench) idleTurn(ctx context.Context, row *Row) (err error) {
	url, pool, end, err := b.chronosDatabase(ctx, "chronos_idle", 4)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	if _, err := b.schedule(ctx, pool, url, "http://127.0.0.1:9", cohort{jobs: idleJobs, rate: 1000, spread: true, lead: idleLead}); err != nil {
		return err
	}
	var server int
	if err := pool.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&server); err != nil {
		return err
	}
	server = machine.Parent(server)
	both, stop, err := b.startReplicas(ctx, "idle", url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := pause(ctx, idleSettle); err != nil {
		return err
	}
	var leads int
	if err := pool.QueryRow(ctx, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())").Scan(&leads); err != nil {
		return err
	}
	if leads == 0 {
		return errors.New("nobody leads")
	}
	before, began := machine.Look(), time.Now()
	if err := pause(ctx, idleLength); err != nil {
		return err
	}
	after, took := machine.Look(), time.Since(began)
	share := func(pids ...int) float64 {
		return 100 * (after.Of(pids...) - before.Of(pids...)).Seconds() / took.Seconds()
	}
	one, other := share(both[0].PID()), share(both[1].PID())
	row.add(coreReplica, max(one, other))
	row.add(coreServer, share(server))
	return nil
}

func idleTable(r Result) string {
	return table(r, "| | the busier replica | PostgreSQL, for both | |", func(row Row) string {
		return fmt.Sprintf("%s | %s", percent(row.spread(coreReplica).Median), percent(row.spread(coreServer).Median))
	})
}

func percent(x float64) string { return fmt.Sprintf("%.2f %% of a core", x) }
