package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"holdfast/bench/figure"
)

// cronDatabase is where pg_cron keeps its jobs: one for the whole server.
const cronDatabase = "cron"

// hasPgCron reports whether pg_cron's extension is installed for a server on this machine.
func hasPgCron(ctx context.Context) bool {
	patterns := []string{"/usr/share/postgresql/*/extension/pg_cron.control"}
	if out, err := exec.CommandContext(ctx, "pg_config", "--sharedir").Output(); err == nil {
		patterns = append(patterns, filepath.Join(strings.TrimSpace(string(out)), "extension", "pg_cron.control"))
	}
	for _, p := range patterns {
		if found, _ := filepath.Glob(p); len(found) > 0 {
			return true
		}
	}
	return false
}

// runCron measures pg_cron's lateness, as far as it goes: each turn waits for a whole minute.
func runCron(ctx context.Context, b *bench) ([]Row, error) {
	if !hasPgCron(ctx) {
		return nil, errors.New("pg_cron isn't installed (postgresql-15-cron on Debian)")
	}
	var turns []turn
	for _, jobs := range b.rates {
		turns = append(turns, turn{
			newRow(fmt.Sprintf("pg_cron, %s at one minute", jobsText(jobs)), familyPgCron, "to the statement, in the database"),
			func(ctx context.Context, row *Row) error { return b.cronLateness(ctx, row, jobs) },
		})
	}
	return b.takeTurns(ctx, "pg_cron", turns)
}

// cronPatience is how long after the minute the last statement may run.
const cronPatience = 45 * time.Second

// cronLateness has jobs due at the next whole minute, each of which notes when it ran.
func (b *bench) cronLateness(ctx context.Context, row *Row, jobs int) (err error) {
	// One database for all turns: the scheduler doesn't find its way to a new one in good time.
	if err := b.cluster.EnsureDatabase(ctx, cronDatabase, cronDatabase, cronDatabase); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, b.cluster.SuperuserURL(cronDatabase))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	defer func() {
		_, cleared := conn.Exec(context.WithoutCancel(ctx), "SELECT cron.unschedule(jobid) FROM cron.job")
		err = errors.Join(err, cleared)
	}()
	for _, sql := range []string{
		"CREATE EXTENSION IF NOT EXISTS pg_cron",
		"DROP TABLE IF EXISTS ticks",
		"CREATE TABLE ticks (late interval)",
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	if err := conn.QueryRow(ctx, "SELECT extversion FROM pg_extension WHERE extname = 'pg_cron'").Scan(&b.version.PgCron); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `SELECT cron.schedule('tick-' || n, '* * * * *', 'INSERT INTO ticks SELECT clock_timestamp() - date_trunc(''minute'', clock_timestamp())')
		FROM generate_series(1, $1::int) n`, jobs)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, " waiting for a whole minute")
	due := time.Now().Add(5 * time.Second).Truncate(time.Minute).Add(time.Minute)
	if err := pause(ctx, time.Until(due)); err != nil {
		return err
	}
	var ran int
	for ran < jobs && time.Since(due) < cronPatience {
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
		if err := conn.QueryRow(ctx, "SELECT count(*) FROM ticks").Scan(&ran); err != nil {
			return err
		}
	}
	if ran == 0 {
		return errors.New("nothing ran at the minute")
	}
	var half, most, all float64
	err = conn.QueryRow(ctx, `SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY us), percentile_disc(0.99) WITHIN GROUP (ORDER BY us), max(us)
		FROM (SELECT extract(epoch FROM late)::float8 * 1e6 AS us FROM ticks) t`).Scan(&half, &most, &all)
	if err != nil {
		return err
	}
	row.add(p50, half)
	row.add(p99, most)
	row.add(highest, all)
	row.add(samples, float64(ran))
	if ran < jobs {
		row.Note = fmt.Sprintf("%s; %s of %s had run %v after the minute", row.Note, figure.Thousands(int64(ran)), figure.Thousands(int64(jobs)), cronPatience)
	}
	return nil
}
