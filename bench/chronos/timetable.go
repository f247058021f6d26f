package main

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/chronos"
	"holdfast/chronos/queue"
)

// cohort is jobs that all come round in the same time, spread evenly over it or so many at one instant.
type cohort struct {
	jobs   int
	rate   int           // due each second, in the mean
	spread bool          // over the second; else all of a second's at one instant
	lead   time.Duration // until the first
}

// period is how long each job waits between its runs.
func (c cohort) period() time.Duration {
	return time.Duration(max(1, c.jobs/c.rate)) * time.Second
}

// timeSQL makes jobs of a template, each with its own start, as a PUT of each would: the n-th begins in its second, and at its
// part of that. Those that would begin later than they would come round aren't due yet.
const timeSQL = `
INSERT INTO chronos.jobs (tenant, name, spec, labels, queue, overlap, priority, max_attempts, max_concurrent, anchor, zone_data, next_at, target)
SELECT t.tenant, 'job-' || n, jsonb_set(t.spec::jsonb, '{start_at}', to_jsonb(to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')))::json,
       t.labels, t.queue, t.overlap, t.priority, t.max_attempts, t.max_concurrent, t.anchor, t.zone_data, at, t.target
  FROM chronos.jobs t, generate_series(0, $2::int - 1) n,
       LATERAL (SELECT $3::timestamptz + make_interval(secs => n / $4::int + CASE WHEN $5 THEN round((n % $4::int)::numeric / $4::int, 3) ELSE 0 END::float8) AS at) a
 WHERE t.id = $1`

// schedule makes a cohort's jobs, which call url, and tells when the first is due.
func (s *stage) schedule(ctx context.Context, pool *pgxpool.Pool, sessionURL, url string, c cohort) (first time.Time, err error) {
	if err := queue.EnsurePartitions(ctx, pool); err != nil {
		return first, err
	}
	service, err := chronos.New(ctx, chronos.Config{
		Pool: pool, SessionURL: sessionURL, Log: slog.New(slog.DiscardHandler), Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	})
	if err != nil {
		return first, err
	}
	spec := chronos.DefaultSpec()
	spec.Schedule.Every = c.period()
	spec.Overlap = chronos.OverlapAllow
	spec.Target.Webhook = &chronos.Webhook{URL: url, Method: "POST", Timeout: 10 * time.Second}
	start := time.Now().Add(365 * 24 * time.Hour)
	spec.StartAt = &start // the template itself isn't due
	put, _, err := service.Store().PutJob(ctx, chronos.Caller{Tenant: tenant}, "template", spec, nil)
	if err != nil {
		return first, err
	}
	// A million take a while: the first is due so long after they are all there.
	began := time.Now()
	first = began.Add(c.lead + time.Duration(c.jobs)*25*time.Microsecond).Truncate(time.Second).Add(time.Second)
	if _, err := pool.Exec(ctx, timeSQL, put.Job.ID, c.jobs, first, c.rate, c.spread); err != nil {
		return first, err
	}
	return first, s.settle(ctx, pool, "chronos.jobs")
}
