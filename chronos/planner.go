package chronos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"holdfast/chronos/cron"
	"holdfast/chronos/queue"
	"holdfast/internal/elect"
	"holdfast/internal/pg"
)

const (
	// planSlice is the longest that the planner sleeps: if the database's clock jumps, or a
	// job is changed by hand, it is noticed by then.
	planSlice = time.Second
	// planRetry is the pause after jobs that somebody else had locked.
	planRetry = 20 * time.Millisecond
	// jobsPerRound and rowsPerRound bound one planning transaction.
	jobsPerRound = 500
	rowsPerRound = 5000
	// putOff is how long a job is left alone that the database refuses to plan: short enough
	// that what comes due meanwhile still is punctual, if that was a passing trouble.
	putOff = 30 * time.Second
	// faultsAtOnce bounds the jobs that a new leader looks at because they were set aside.
	faultsAtOnce = 10_000
)

// planner makes the runs of all jobs that are near, while it leads.
type planner struct {
	store *Store
	term  elect.Term
	log   *slog.Logger

	failing map[int64]time.Time // jobs that couldn't be planned, until when each is put off
}

// run plans until ctx ends or the term does.
func (p *planner) run(ctx context.Context) error {
	if err := p.mendFaults(ctx); err != nil {
		return err
	}
	if err := p.refreshZones(ctx); err != nil {
		return err
	}
	for {
		wait, err := p.round(ctx)
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// waits means that j's next instant is in a pause, which may end before it does: it is decided on when it comes.
// The CASE hides from the planner of queries how few jobs are paused: it would rather read the whole table than walk
// the index that begins with those that are near.
const waits = `CASE WHEN j.paused_at IS NOT NULL AND (j.paused_until IS NULL OR j.paused_until > j.next_at) THEN true ELSE false END`

// nearSQL lists the jobs whose watermark comes within the horizon, with the time.
const nearSQL = `SELECT clock_timestamp(), ` + jobColumns + ` FROM chronos.jobs j
 WHERE j.next_at <= (SELECT clock_timestamp()) + make_interval(secs => $1) AND j.deleted_at IS NULL
   AND j.id <> ALL($3) AND (NOT ` + waits + ` OR j.next_at <= (SELECT clock_timestamp()))
 ORDER BY j.next_at LIMIT $2`

// round plans once and says how long to sleep.
func (p *planner) round(ctx context.Context) (time.Duration, error) {
	jobs, broken, now, err := p.near(ctx)
	if err != nil {
		return 0, err
	}
	lag := time.Duration(0)
	if len(jobs) > 0 {
		lag = max(0, now.Sub(*jobs[0].NextAt))
	}
	p.store.metrics.plannerLag.Set(lag.Seconds())
	for _, b := range broken {
		if err := p.disable(ctx, b.job, b.err); err != nil {
			return 0, err
		}
	}
	if len(jobs) == 0 {
		return p.untilNext(ctx)
	}
	var (
		plans = make([]plan, 0, len(jobs))
		rows  = 0
	)
	for _, j := range jobs {
		pl, err := j.tryPlan(now, planAhead)
		if err != nil {
			return 0, p.disable(ctx, j, err)
		}
		plans = append(plans, pl)
		if rows += len(pl.runs) + len(pl.records); rows > rowsPerRound {
			break
		}
	}
	planned, err := p.apply(ctx, jobs[:len(plans)], plans)
	if err != nil && !errors.Is(err, elect.ErrDeposed) && !pg.Unavailable(err) && ctx.Err() == nil {
		planned, err = p.applySingly(ctx, jobs[:len(plans)], plans)
	}
	if err != nil {
		return 0, err
	}
	if planned > 0 {
		p.store.bell.ringHere("") // others look often enough for what is planned ahead
		return 0, nil
	}
	return planRetry, nil
}

// tryPlan is plan, with a panic made an error: one job must not stop all others.
func (j *Job) tryPlan(now time.Time, ahead time.Duration) (p plan, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("planning panicked: %v", r)
		}
	}()
	return j.plan(now, ahead)
}

type brokenJob struct {
	job *Job
	err error
}

func (p *planner) near(ctx context.Context) (jobs []*Job, broken []brokenJob, now time.Time, err error) {
	rows, err := p.store.pool.Query(ctx, nearSQL, planAhead.Seconds(), jobsPerRound, p.leftAlone())
	if err != nil {
		return nil, nil, now, err
	}
	defer rows.Close()
	for rows.Next() {
		j, err := scanJob(withFirst{rows, &now})
		if errors.Is(err, ErrUnreadable) {
			broken = append(broken, brokenJob{&j, err})
			continue
		}
		if err != nil {
			return nil, nil, now, err
		}
		jobs = append(jobs, &j)
	}
	if err := rows.Err(); err != nil {
		return nil, nil, now, err
	}
	return jobs, broken, now, loadCalendars(ctx, p.store.pool, jobs)
}

// untilNextSQL finds the first watermark that enters the horizon, and the first in a pause that comes within a slice.
const untilNextSQL = `
SELECT least((SELECT j.next_at - make_interval(secs => $1) FROM chronos.jobs j
               WHERE j.next_at IS NOT NULL AND j.deleted_at IS NULL AND j.id <> ALL($3) AND NOT ` + waits + `
                 AND j.next_at <= (SELECT clock_timestamp()) + make_interval(secs => $1 + $2)
               ORDER BY j.next_at LIMIT 1),
             (SELECT j.next_at FROM chronos.jobs j
               WHERE j.next_at <= (SELECT clock_timestamp()) + make_interval(secs => $2) AND j.deleted_at IS NULL AND j.id <> ALL($3) AND ` + waits + `
               ORDER BY j.next_at LIMIT 1)) - clock_timestamp()`

// untilNext is how long the planner may sleep.
func (p *planner) untilNext(ctx context.Context) (time.Duration, error) {
	var in *time.Duration
	err := p.store.pool.QueryRow(ctx, untilNextSQL, planAhead.Seconds(), planSlice.Seconds(), p.leftAlone()).Scan(&in)
	if err != nil || in == nil {
		return planSlice, err
	}
	return min(max(*in, planRetry), planSlice), nil
}

// lockPlannedSQL takes the rows of jobs that still are as they were when they were planned. One
// that is locked is being changed or leased for: it is planned in the next round.
const lockPlannedSQL = `
SELECT j.id FROM chronos.jobs j
  JOIN unnest($1::bigint[], $2::bigint[], $3::timestamptz[], $4::bigint[]) AS p(id, revision, next_at, used)
    ON j.id = p.id AND j.revision = p.revision AND j.next_at = p.next_at AND j.used = p.used
   FOR UPDATE OF j SKIP LOCKED`

// apply carries out those plans whose jobs are as they were, and says how many. It fails with
// [elect.ErrDeposed] if a later leader has won.
func (p *planner) apply(ctx context.Context, jobs []*Job, plans []plan) (planned int, err error) {
	ids, revisions, next, used := make([]int64, len(jobs)), make([]int64, len(jobs)), make([]time.Time, len(jobs)), make([]int64, len(jobs))
	index := make(map[int64]int, len(jobs))
	for i, j := range jobs {
		ids[i], revisions[i], next[i], used[i] = j.ID, j.Revision, *j.NextAt, j.Used
		index[j.ID] = i
	}
	err = queue.InTx(ctx, p.store.pool, pg.TxOptions{}, func(tx pgx.Tx) error {
		planned = 0
		if err := p.term.Fence(ctx, tx); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, lockPlannedSQL, ids, revisions, next, used)
		if err != nil {
			return err
		}
		locked, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil || len(locked) == 0 {
			return err
		}
		mine, theirs := make([]*Job, len(locked)), make([]plan, len(locked))
		for i, id := range locked {
			mine[i], theirs[i] = jobs[index[id]], plans[index[id]]
		}
		planned = len(locked)
		return carryOut(ctx, tx, mine, theirs)
	})
	return planned, err
}

// applySingly finds out which job it was that spoiled a round, so that it holds up no other.
func (p *planner) applySingly(ctx context.Context, jobs []*Job, plans []plan) (planned int, err error) {
	for i := range jobs {
		n, err := p.apply(ctx, jobs[i:i+1], plans[i:i+1])
		if errors.Is(err, elect.ErrDeposed) || pg.Unavailable(err) || ctx.Err() != nil {
			return planned, err
		}
		if err != nil {
			p.leaveAlone(jobs[i].ID, err)
		}
		planned += n
	}
	return planned, nil
}

// leaveAlone puts a job off, so that it neither keeps the planner busy nor takes others' places.
func (p *planner) leaveAlone(id int64, cause error) {
	p.log.Error("can't plan a job, leaving it alone for a while", "job", id, "for", putOff, "error", cause)
	if p.failing == nil {
		p.failing = map[int64]time.Time{}
	}
	p.failing[id] = time.Now().Add(putOff)
}

// leftAlone lists the jobs that are put off.
func (p *planner) leftAlone() []int64 {
	ids := []int64{}
	for id, until := range p.failing {
		if !time.Now().Before(until) {
			delete(p.failing, id)
			continue
		}
		ids = append(ids, id)
	}
	return ids
}

// disable takes a job out of planning that can't be planned by this binary, visibly: it is
// set aside with the reason, and changing it puts it right, or a binary that understands it. A pause that it may
// have is left as it is. One that was changed since it was read is left alone.
func (p *planner) disable(ctx context.Context, j *Job, cause error) error {
	return pg.InTx(ctx, p.store.pool, pg.TxOptions{}, func(tx pgx.Tx) error {
		if err := p.term.Fence(ctx, tx); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `
			UPDATE chronos.jobs SET next_at = NULL, faulty_at = coalesce(faulty_at, clock_timestamp()), fault = $3, revision = revision + 1
			 WHERE id = $1 AND revision = $2 AND deleted_at IS NULL`, j.ID, j.Revision, faultOf(cause))
		if err == nil && tag.RowsAffected() > 0 {
			p.log.Error("a job can't be planned, setting it aside", "job", j.ID, "name", j.Name, "error", cause)
		}
		return err
	})
}

// mendFaults takes up jobs again that were set aside and that this binary makes sense of: that happens
// when replicas of two versions have worked side by side.
func (p *planner) mendFaults(ctx context.Context) error {
	rows, err := p.store.pool.Query(ctx, `SELECT `+jobColumns+` FROM chronos.jobs j
		WHERE j.faulty_at IS NOT NULL AND j.deleted_at IS NULL ORDER BY j.id LIMIT $1`, faultsAtOnce)
	if err != nil {
		return err
	}
	var found []*Job
	for rows.Next() {
		if j, err := scanJob(rows); err == nil {
			found = append(found, &j)
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if err := loadCalendars(ctx, p.store.pool, found); err != nil {
		return err
	}
	for _, j := range found {
		if _, err := j.timetable(); err != nil {
			continue
		}
		err := queue.InTx(ctx, p.store.pool, pg.TxOptions{}, func(tx pgx.Tx) error {
			if err := p.term.Fence(ctx, tx); err != nil {
				return err
			}
			j, err := lockJob(ctx, tx, j.Tenant, j.Name)
			if errors.Is(err, ErrJobNotFound) || err == nil && j.FaultyAt == nil {
				return nil
			}
			if err != nil {
				return err
			}
			now, err := dbNow(ctx, tx)
			if err != nil {
				return err
			}
			if err := j.mend(ctx, tx, now); err != nil {
				return err
			}
			return j.replan(ctx, tx, now)
		})
		if errors.Is(err, elect.ErrDeposed) || pg.Unavailable(err) || ctx.Err() != nil {
			return err
		}
		if err != nil {
			p.log.Error("can't take up a job again that was set aside", "job", j.ID, "error", err)
		}
	}
	return nil
}

// refreshZones computes anew what is next for jobs that were planned with other zone data.
func (p *planner) refreshZones(ctx context.Context) error {
	for {
		rows, err := p.store.pool.Query(ctx, `SELECT id, tenant, name FROM chronos.jobs
			WHERE next_at IS NOT NULL AND deleted_at IS NULL AND zone_data <> $1 AND id <> ALL($3) LIMIT $2`,
			cron.ZoneDataVersion(), jobsPerRound, p.leftAlone())
		if err != nil {
			return err
		}
		type key struct {
			ID           int64
			Tenant, Name string
		}
		stale, err := pgx.CollectRows(rows, pgx.RowToStructByPos[key])
		if err != nil || len(stale) == 0 {
			return err
		}
		for _, k := range stale {
			err := p.refreshZone(ctx, k.Tenant, k.Name)
			if errors.Is(err, elect.ErrDeposed) || pg.Unavailable(err) || ctx.Err() != nil {
				return err
			}
			if err != nil {
				p.leaveAlone(k.ID, err)
			}
		}
	}
}

func (p *planner) refreshZone(ctx context.Context, tenant, name string) error {
	var (
		j      Job
		broken error
	)
	err := queue.InTx(ctx, p.store.pool, pg.TxOptions{}, func(tx pgx.Tx) (err error) {
		broken = nil
		if err := p.term.Fence(ctx, tx); err != nil {
			return err
		}
		j, err = lockJob(ctx, tx, tenant, name)
		if errors.Is(err, ErrJobNotFound) {
			return nil
		}
		if err == nil {
			_, err = j.timetable()
			broken = err
		} else if errors.Is(err, ErrUnreadable) {
			broken = err
		}
		if err != nil {
			return err
		}
		now, err := dbNow(ctx, tx)
		if err != nil {
			return err
		}
		if err := j.settle(ctx, tx, now, 0); err != nil {
			return err
		}
		return j.replan(ctx, tx, now)
	})
	if broken != nil {
		return p.disable(ctx, &j, broken)
	}
	return err
}
