package chronos

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"holdfast/chronos/cron"
	"holdfast/internal/pg"
)

const (
	// selfCheckAfter is how long after its start a replica looks first: the planner has made up by then for what came due
	// while nobody planned.
	selfCheckAfter = time.Minute
	// selfCheckPatience is how much longer it waits while the planner is still at that.
	selfCheckPatience = 10 * time.Minute
	selfCheckEvery    = time.Hour
	// selfCheckSoon is the pause after something was found missing, or couldn't be looked at.
	selfCheckSoon = 5 * time.Minute

	// selfCheckSpan is how far back is looked, and not more than a job's newest instants: a job that runs daily is
	// looked at as well as one that runs every second.
	selfCheckSpan     = 24 * time.Hour
	selfCheckInstants = 50
	// selfCheckJobs is how many jobs are looked at, from a random one on.
	selfCheckJobs = 1000
	// selfCheckSlack is kept from now and from a job's last change: what is nearer may be being planned.
	selfCheckSlack = time.Minute
	// selfCheckNamed is how many of the missing instants are logged.
	selfCheckNamed = 10
)

// SelfCheck is what should have fired against what has, found from the jobs' schedules alone: not from the
// planner's watermark, which may itself be what is wrong.
type SelfCheck struct {
	At       time.Time // by the database's clock
	Span     time.Duration
	Jobs     int  // looked at
	All      bool // these are all there are
	SetAside int  // of them, because the planner can't make sense of them
	Expected int  // instants
	Fired    int  // of these, that have a run
	Recorded int  // that were skipped or missed, with the reason
	Missing  int  // that have neither
	Behind   bool // the planner hadn't caught up yet

	named []string // some of the missing
}

// selfChecks keeps the last one, for those who ask whether all is well.
type selfChecks struct {
	mu   sync.Mutex
	last *SelfCheck
}

// LastSelfCheck is the replica's last [SelfCheck]; false: it hasn't been long enough since its start.
func (s *Service) LastSelfCheck() (SelfCheck, bool) {
	s.checks.mu.Lock()
	defer s.checks.mu.Unlock()
	if s.checks.last == nil {
		return SelfCheck{}, false
	}
	return *s.checks.last, true
}

// watchSchedules checks after every start, and from time to time after that, until ctx ends.
func (s *Service) watchSchedules(ctx context.Context) error {
	for pause, waited := selfCheckAfter, time.Duration(0); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		check, err := s.store.selfCheck(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			s.log.Error("can't compare what should have fired with what has", "error", err)
			pause = selfCheckSoon
			continue
		case check.Behind && waited < selfCheckPatience:
			pause, waited = selfCheckAfter, waited+selfCheckAfter
			continue
		}
		s.noteSelfCheck(check)
		if pause = selfCheckEvery; check.Missing > 0 || check.SetAside > 0 {
			pause = selfCheckSoon
		}
	}
}

// noteSelfCheck logs what is wrong when it begins to be, and when it is over.
func (s *Service) noteSelfCheck(c SelfCheck) {
	s.store.metrics.checked(c)
	s.checks.mu.Lock()
	before := s.checks.last
	s.checks.last = &c
	s.checks.mu.Unlock()
	was, is := before != nil && before.Missing > 0, c.Missing > 0
	facts := []any{"expected", c.Expected, "fired", c.Fired, "recorded", c.Recorded, "missing", c.Missing, "jobs", c.Jobs, "all", c.All, "span", c.Span, "set_aside", c.SetAside}
	switch {
	case is && !was:
		s.log.Error("instants have neither a run nor a record of why not: does the planner work?", append(facts, "some", strings.Join(c.named, ", "))...)
	case was && !is:
		s.log.Info("every instant has its run or record again", facts...)
	case before == nil:
		s.log.Log(context.Background(), slog.LevelInfo, "compared what should have fired with what has", facts...)
	}
}

// sampleSQL takes jobs from a random one on, with the last change of the calendars that they exclude. Those that are planned with other
// zone data, by a replica of another version, have other instants than are known here.
const sampleSQL = `
SELECT (SELECT max(c.updated_at) FROM chronos.calendars c WHERE c.tenant = j.tenant AND c.name = ANY(j.calendars)), ` + jobColumns + `
  FROM chronos.jobs j
 WHERE j.id >= $1 AND j.id < $2 AND j.deleted_at IS NULL AND j.zone_data = $3
 ORDER BY j.id LIMIT $4`

// accountedSQL lists, for each job from an instant on, what has a run or a record: single instants and stretches of them, in one
// snapshot, since a run that ends moves from one table to the other. A stretch may begin before the instant; what covers that was stored no
// sooner, up to how far ahead is planned.
const accountedSQL = `
SELECT w.id, a.scheduled_for, coalesce((a.missed->>'to')::timestamptz, a.scheduled_for), a.ran
  FROM unnest($1::bigint[], $2::timestamptz[]) AS w(id, first) CROSS JOIN LATERAL (
	SELECT r.scheduled_for, r.missed, true AS ran FROM chronos.job_runs r
	 WHERE r.job_id = w.id AND r.trigger <> 'manual'
	UNION ALL
	SELECT h.scheduled_for, h.missed, h.status NOT IN ('skipped', 'missed') FROM chronos.run_history h
	 WHERE h.job_id = w.id AND h.scheduled_for >= w.first AND h.scheduled_for <= $4 AND h.finished_at >= $3 AND h.trigger <> 'manual'
	UNION ALL
	(SELECT h.scheduled_for, h.missed, h.status NOT IN ('skipped', 'missed') FROM chronos.run_history h
	 WHERE h.job_id = w.id AND h.scheduled_for < w.first AND h.finished_at >= $3 AND h.missed IS NOT NULL
	 ORDER BY h.scheduled_for DESC LIMIT 3)) a`

// expectation is a job's instants that must have a run or a record.
type expectation struct {
	job      *Job
	instants []time.Time // the newest first
}

func (s *Store) selfCheck(ctx context.Context) (SelfCheck, error) {
	check := SelfCheck{Span: selfCheckSpan}
	err := pg.InTx(ctx, s.pool, pg.TxOptions{}, func(tx pgx.Tx) error {
		check = SelfCheck{Span: selfCheckSpan}
		var last int64
		err := tx.QueryRow(ctx, `SELECT clock_timestamp(), coalesce((SELECT max(id) FROM chronos.jobs), 0),
			EXISTS (SELECT 1 FROM chronos.jobs j WHERE j.next_at < (SELECT clock_timestamp()) - make_interval(secs => $1) AND j.deleted_at IS NULL)`,
			selfCheckSlack.Seconds()).Scan(&check.At, &last, &check.Behind)
		if err != nil || last == 0 {
			check.All = true
			return err
		}
		wanted, err := expected(ctx, tx, &check, 1+rand.N(last))
		if err != nil || len(wanted) == 0 {
			return err
		}
		return account(ctx, tx, &check, wanted)
	})
	return check, err
}

// expected works out the instants of jobs from start on, and then from the first.
func expected(ctx context.Context, tx pgx.Tx, check *SelfCheck, start int64) ([]expectation, error) {
	var (
		jobs    []*Job
		changed []time.Time // the instants since then follow from the job as it is
	)
	const everything = int64(1)<<62 - 1
	for _, part := range [][2]int64{{start, everything}, {0, start}} {
		rows, err := tx.Query(ctx, sampleSQL, part[0], part[1], cron.ZoneDataVersion(), selfCheckJobs+1-len(jobs))
		if err != nil {
			return nil, err
		}
		for rows.Next() {
			var calendars *time.Time
			j, err := scanJob(withFirst{rows, &calendars})
			if errors.Is(err, ErrUnreadable) {
				err = nil
				j.FaultyAt = &check.At // or will be soon
			}
			if err != nil {
				rows.Close()
				return nil, err
			}
			since := j.UpdatedAt
			if calendars != nil && calendars.After(since) {
				since = *calendars
			}
			jobs, changed = append(jobs, &j), append(changed, since)
		}
		if err := rows.Err(); err != nil {
			return nil, err
		}
	}
	check.All = len(jobs) <= selfCheckJobs
	jobs = jobs[:min(len(jobs), selfCheckJobs)]
	check.Jobs = len(jobs)
	if err := loadCalendars(ctx, tx, jobs); err != nil {
		return nil, err
	}
	var wanted []expectation
	for i, j := range jobs {
		if j.FaultyAt != nil {
			check.SetAside++
			continue
		}
		from := check.At.Add(-check.Span)
		if since := changed[i].Add(selfCheckSlack); since.After(from) {
			from = since
		}
		if instants := j.instantsBetween(from, check.At.Add(-selfCheckSlack)); len(instants) > 0 {
			wanted = append(wanted, expectation{j, instants})
		}
	}
	return wanted, nil
}

// instantsBetween gives the newest instants after from and before to that the job's schedule has, unless max_runs ended it
// before: what is due is said by the schedule alone.
func (j *Job) instantsBetween(from, to time.Time) (newest []time.Time) {
	tt, err := j.timetable()
	if err != nil {
		return nil // it is about to be set aside
	}
	if j.Spec.MaxRuns != nil && j.Used >= *j.Spec.MaxRuns {
		if j.LastAt == nil {
			return nil
		}
		if end := j.LastAt.Add(time.Microsecond); end.Before(to) {
			to = end
		}
	}
	at, ok := tt.Prev(to)
	for ok && at.After(from) && len(newest) < selfCheckInstants {
		newest = append(newest, at)
		at, ok = tt.Prev(at)
	}
	return newest
}

// account finds for each instant its run or record.
func account(ctx context.Context, tx pgx.Tx, check *SelfCheck, wanted []expectation) error {
	type stretch struct {
		from, to int64 // milliseconds, as ids have them
		ran      bool
	}
	ids, first := make([]int64, len(wanted)), make([]time.Time, len(wanted))
	for i, w := range wanted {
		ids[i], first[i] = w.job.ID, w.instants[len(w.instants)-1]
	}
	rows, err := tx.Query(ctx, accountedSQL, ids, first, check.At.Add(-check.Span-time.Hour), check.At)
	if err != nil {
		return err
	}
	var (
		id       int64
		from, to time.Time
		ran      bool
		found    = map[int64][]stretch{}
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &from, &to, &ran}, func() error {
		found[id] = append(found[id], stretch{from.UnixMilli(), to.UnixMilli(), ran})
		return nil
	})
	if err != nil {
		return err
	}
	for _, w := range wanted {
		for _, at := range w.instants {
			ms := at.UnixMilli()
			covers := func(s stretch) bool { return s.from <= ms && ms <= s.to }
			check.Expected++
			switch {
			case slices.ContainsFunc(found[w.job.ID], func(s stretch) bool { return s.ran && covers(s) }):
				check.Fired++
			case slices.ContainsFunc(found[w.job.ID], covers):
				check.Recorded++
			default:
				check.Missing++
				if len(check.named) < selfCheckNamed {
					check.named = append(check.named, w.job.Tenant+"/"+w.job.Name+" at "+at.UTC().Format(time.RFC3339Nano))
				}
			}
		}
	}
	return nil
}
