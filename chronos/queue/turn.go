package queue

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"holdfast/internal/pg"
)

const (
	// waitStep is how long a run is put off that has to try again soon.
	waitStep = 200 * time.Millisecond
	// pauseStep is how long a run is put off that waits for the end of a pause, if that has no
	// end of its own. Who resumes the job wakes it.
	pauseStep = time.Minute
	// parkStep is how long a run is put off that waits for its turn behind another that waits. Whoever
	// ends a run of the job wakes the next; this is the backstop.
	parkStep = 10 * time.Minute
	// headLeast and headMost bound how long the first of those that wait is put off: a quarter of what
	// it has waited. It may have been parked while the run that it waits for was just ending.
	headLeast, headMost = time.Second, time.Minute
	// MaxWaiting is how many runs of a job with overlap queue may wait for their turn.
	MaxWaiting = 100
	// parkBatch bounds the late runs of one job that are parked at once.
	parkBatch = 5000
)

// situation is what a claim's candidates are judged by, as it is once their jobs are locked.
type situation struct {
	jobs    map[int64]*job
	going   map[int64][]goingRun // of jobs that don't allow overlap, by start
	waiting map[int64][]waitingRun
}

type goingRun struct {
	ID        uuid.UUID
	StartedAt time.Time
	Trigger   Trigger
}

type waitingRun struct {
	ID          uuid.UUID
	EffectiveAt time.Time
	Trigger     Trigger
	Parked      bool
	done        bool // has been judged already, and doesn't wait any more
}

// goingSQL finds, after the jobs are locked, the runs that are going of those that don't allow
// overlap, as many as may matter. A lease that has ended doesn't count, reaped or not. As with isPending, what is asked of
// each run is hidden from statistics that may be old, so that the runs of a job always are found by its index.
const goingSQL = `
SELECT g.job_id, g.id, g.started_at, g.trigger FROM chronos.jobs j CROSS JOIN LATERAL (
	SELECT r.job_id, r.id, coalesce(r.started_at, 'epoch') AS started_at, r.trigger FROM chronos.job_runs r
	 WHERE r.job_id = j.id AND NOT r.parked AND CASE WHEN r.status IN ('leased', 'running') AND r.leased_until > clock_timestamp() THEN true END
	 ORDER BY r.priority DESC, r.effective_at LIMIT 2000) g
 WHERE j.id = ANY($1) AND j.overlap <> 'allow'
 ORDER BY g.started_at, g.id`

// waitingSQL finds the first runs that wait for their turn, in their order, so many as matter: $2 for
// each job. The jobs are locked.
const waitingSQL = `
SELECT w.job_id, w.id, w.effective_at, w.trigger, w.parked FROM chronos.jobs j CROSS JOIN LATERAL (
	SELECT * FROM (
		(SELECT r.job_id, r.id, r.priority, r.effective_at, r.trigger, r.parked FROM chronos.job_runs r
		  WHERE r.job_id = j.id AND NOT r.parked AND ` + isPending + ` AND r.attempt = 0 AND NOT r.asked AND r.effective_at <= (SELECT clock_timestamp())
		  ORDER BY r.priority DESC, r.effective_at LIMIT $2)
		UNION ALL
		(SELECT r.job_id, r.id, r.priority, r.effective_at, r.trigger, r.parked FROM chronos.job_runs r
		  WHERE r.job_id = j.id AND r.parked AND ` + isPending + ` AND r.attempt = 0 AND NOT r.asked
		  ORDER BY r.priority DESC, r.effective_at LIMIT $2)) u
	 ORDER BY u.priority DESC, u.effective_at, u.id LIMIT $2) w
 WHERE j.id = ANY($1) AND j.overlap <> 'allow'
 ORDER BY w.job_id, w.priority DESC, w.effective_at, w.id`

// look locks the candidates' jobs and then, in statements of their own, whose snapshots show what
// every earlier holder of those locks has committed, looks at their other runs. Those of plain jobs needn't be looked at; one that isn't plain
// any more since it was read makes the transaction begin anew.
func look(ctx context.Context, tx pgx.Tx, candidates []candidate, plain bool) (situation, error) {
	s := situation{jobs: map[int64]*job{}, going: map[int64][]goingRun{}, waiting: map[int64][]waitingRun{}}
	var ids []int64
	for _, c := range candidates {
		if _, ok := s.jobs[c.JobID]; !ok {
			s.jobs[c.JobID] = nil
			ids = append(ids, c.JobID)
		}
	}
	var batch pgx.Batch
	strength := " FOR UPDATE"
	if plain {
		strength = " FOR SHARE"
	}
	batch.Queue(lockJobsSQL+strength, ids).Query(func(rows pgx.Rows) error {
		found, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByPos[job])
		for _, j := range found {
			s.jobs[j.ID] = j
			if plain && !j.Plain && err == nil {
				err = pg.ErrRepeat
			}
		}
		return err
	})
	if plain {
		return s, tx.SendBatch(ctx, &batch).Close()
	}
	batch.Queue(goingSQL, ids).Query(func(rows pgx.Rows) error {
		var (
			id  int64
			run goingRun
		)
		_, err := pgx.ForEachRow(rows, []any{&id, &run.ID, &run.StartedAt, &run.Trigger}, func() error {
			s.going[id] = append(s.going[id], run)
			return nil
		})
		return err
	})
	batch.Queue(waitingSQL, ids, MaxWaiting+1).Query(func(rows pgx.Rows) error {
		var (
			id  int64
			run waitingRun
		)
		_, err := pgx.ForEachRow(rows, []any{&id, &run.ID, &run.EffectiveAt, &run.Trigger, &run.Parked}, func() error {
			s.waiting[id] = append(s.waiting[id], run)
			return nil
		})
		return err
	})
	return s, tx.SendBatch(ctx, &batch).Close()
}

// verdict is what becomes of the candidates.
type verdict struct {
	take    []candidate
	ends    map[End][]uuid.UUID
	wait    []waiting
	astray  []uuid.UUID           // they belong into another queue
	replace map[int64][]uuid.UUID // by job: runs that are to make room for the one that is taken
	late    map[int64]time.Time   // jobs that have a row of late runs: those from before that time can be parked at once
	crowded []int64               // targets that may have no more runs than they have
	unused  map[int64]int         // by job: skipped instants, which don't count towards max_runs
}

// waiting is a run that is put off.
type waiting struct {
	id    uuid.UUID
	step  time.Duration // zero: as the first of those that wait for their turn
	until *time.Time    // at most; nil: that long
	park  bool
}

// judge decides in the order of the candidates. What is beyond the claim's bound of a job or a target is left as it is.
//
// Runs that were asked for always start, and count as going. Of a job that doesn't allow overlap, others
// start while fewer than max_concurrent are going, in their turn: by priority, then by when they were
// to start. One that can't start is dealt with as overlap says if it comes from the schedule and
// has just come: skip ends it if as many were going when it came; queue ends it if 100 wait
// before it; replace cancels what is going; and whether anything is or not, it ends one after which others have come. Else it waits. A run
// that is late meets another only because of that, so it waits; so does a retry.
func judge(candidates []candidate, s situation, claim Claim) verdict {
	v := verdict{ends: map[End][]uuid.UUID{}, replace: map[int64][]uuid.UUID{}, late: map[int64]time.Time{}, unused: map[int64]int{}}
	taken, received := map[int64]int{}, map[int64]int{} // by job, and by target
	for _, c := range candidates {
		j := s.jobs[c.JobID]
		fresh := c.Attempt == 0 && !c.Asked
		limited := j != nil && j.Overlap != "allow" && !c.Asked
		bound := claim.perJobOf(c.Trigger)
		switch {
		case j == nil || j.Deleted:
			v.end(&s, c, Cancelled, ReasonJobDeleted)
		case j.Queue != claim.Queue:
			v.astray = append(v.astray, c.ID)
		case fresh && c.Trigger != Backfill && j.held(c.EffectiveAt):
			v.end(&s, c, Skipped, ReasonPaused)
		case fresh && j.Paused:
			v.wait = append(v.wait, waiting{c.ID, pauseStep, j.PausedUntil, false})
		case limited && fresh && j.Overlap == "replace" && c.Trigger == Schedule && s.outdone(j, c):
			v.end(&s, c, Skipped, ReasonReplaced)
		case limited && !v.mayStart(&s, j, c):
			v.hold(&s, j, c)
		case claim.Crowded(j.Target, received[j.Target], len(v.take)):
			if !slices.Contains(v.crowded, j.Target) {
				v.crowded = append(v.crowded, j.Target)
			}
		case bound > 0 && claim.Going[c.JobID]+taken[c.JobID] >= bound:
		default:
			taken[c.JobID]++
			received[j.Target]++
			v.take = append(v.take, c)
			s.start(c)
		}
	}
	v.promote(&s)
	return v
}

// start notes that a candidate is going now. A run of this very batch began after every candidate came.
func (s *situation) start(c candidate) {
	s.going[c.JobID] = append(s.going[c.JobID], goingRun{c.ID, time.Time{}, c.Trigger})
	s.leave(c)
}

// leave notes that a candidate doesn't wait any more.
func (s *situation) leave(c candidate) {
	row := s.waiting[c.JobID]
	if i := slices.IndexFunc(row, func(w waitingRun) bool { return w.ID == c.ID }); i >= 0 {
		row[i].done = true
	}
}

// turn is how many wait before the candidate.
func (s *situation) turn(c candidate) int {
	n := 0
	for _, w := range s.waiting[c.JobID] {
		if w.ID == c.ID {
			break
		}
		if !w.done {
			n++
		}
	}
	return n
}

// mayStart reports whether the job has room for the run, and it is the run's turn. A retry has
// had its turn.
func (v *verdict) mayStart(s *situation, j *job, c candidate) bool {
	free := j.MaxConcurrent - len(s.going[j.ID])
	if c.Attempt > 0 {
		return free > 0
	}
	return s.turn(c) < free
}

// hold decides on a run that can't start now.
func (v *verdict) hold(s *situation, j *job, c candidate) {
	switch {
	case c.Attempt > 0:
		v.wait = append(v.wait, waiting{c.ID, headLeast, nil, false})
		return
	case c.Trigger != Schedule:
	case j.Overlap == "skip":
		if s.goingWhen(c) >= j.MaxConcurrent {
			v.end(s, c, Skipped, ReasonOverlap)
			return
		}
		if going := s.going[j.ID]; len(going) > 0 && !going[0].StartedAt.IsZero() {
			v.late[j.ID] = going[0].StartedAt
		}
	case j.Overlap == "queue":
		if s.turn(c) >= MaxWaiting {
			v.end(s, c, Skipped, ReasonQueueFull)
			return
		}
	case j.Overlap == "replace":
		v.makeRoom(s, j, c)
		return
	}
	v.wait = append(v.wait, waiting{c.ID, s.patience(c), nil, true})
}

// goingWhen counts the runs that were going when the candidate came, but for those of a backfill: an
// instant isn't skipped because of them, it waits until one ends.
func (s *situation) goingWhen(c candidate) int {
	n := 0
	for _, g := range s.going[c.JobID] {
		if g.Trigger != Backfill && !g.StartedAt.IsZero() && !g.StartedAt.After(c.EffectiveAt) {
			n++
		}
	}
	return n
}

// outdone reports whether as many later instants of the schedule have come as may be going.
func (s *situation) outdone(j *job, c candidate) bool {
	later := 0
	for _, w := range s.waiting[j.ID] {
		if w.Trigger == Schedule && !w.done && w.EffectiveAt.After(c.EffectiveAt) {
			later++
		}
	}
	return later >= j.MaxConcurrent
}

// makeRoom takes the run in place of those that have been going longest.
func (v *verdict) makeRoom(s *situation, j *job, c candidate) {
	going := s.going[j.ID]
	surplus := max(0, len(going)-j.MaxConcurrent+1)
	if surplus > 0 && going[surplus-1].StartedAt.IsZero() { // taken in this very batch
		v.wait = append(v.wait, waiting{c.ID, waitStep, nil, false})
		return
	}
	for _, g := range going[:surplus] {
		v.replace[j.ID] = append(v.replace[j.ID], g.ID)
	}
	s.going[j.ID] = slices.Clone(going[surplus:])
	v.take = append(v.take, c)
	s.start(c)
}

// patience is how long a run waits before it asks again by itself: the first in the row not
// for long.
func (s *situation) patience(c candidate) time.Duration {
	if s.turn(c) > 0 {
		return parkStep
	}
	return 0
}

// promote has the first that waits of each job that starts something ask again before long.
func (v *verdict) promote(s *situation) {
	seen := map[int64]bool{}
	for _, c := range v.take {
		if seen[c.JobID] {
			continue
		}
		seen[c.JobID] = true
		row := s.waiting[c.JobID]
		first := slices.IndexFunc(row, func(w waitingRun) bool { return !w.done })
		if first < 0 || !row[first].Parked || slices.ContainsFunc(v.wait, func(w waiting) bool { return w.id == row[first].ID }) {
			continue
		}
		v.wait = append(v.wait, waiting{row[first].ID, 0, nil, true})
	}
}

func (v *verdict) end(s *situation, c candidate, status Status, reason string) {
	e := End{status, reason}
	v.ends[e] = append(v.ends[e], c.ID)
	if status == Skipped && c.Trigger != Backfill {
		v.unused[c.JobID]++
	}
	s.leave(c)
}

// replaceGoing cancels the runs that make room. One whose row is locked is just ending or being
// renewed: the run that would take its place then tries again in a moment.
func (v *verdict) replaceGoing(ctx context.Context, tx pgx.Tx, out *Claimed) error {
	for job, ids := range v.replace {
		rows, err := tx.Query(ctx, `SELECT id FROM chronos.job_runs WHERE id = ANY($1) AND status IN ('leased', 'running') FOR UPDATE SKIP LOCKED`, ids)
		if err != nil {
			return err
		}
		locked, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		if err != nil {
			return err
		}
		if len(locked) < len(ids) {
			v.take = slices.DeleteFunc(v.take, func(c candidate) bool {
				if c.JobID == job {
					v.wait = append(v.wait, waiting{c.ID, waitStep, nil, false})
				}
				return c.JobID == job
			})
			continue
		}
		attempt, err := Attempt{Outcome: OutcomeCancelled}.text()
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, moveHead+`r.id = ANY($5) AND r.status IN ('leased', 'running')`+moveTail,
			Cancelled, ReasonReplaced, attempt, nil, locked); err != nil {
			return err
		}
		out.Replaced = append(out.Replaced, locked...)
	}
	return nil
}

// putOffSQL never moves a run that somebody else has at hand: the one that is promoted isn't a candidate.
const putOffSQL = `
WITH put AS MATERIALIZED (
	SELECT r.id, w.step, w.until, w.park FROM chronos.job_runs r
	  JOIN unnest($1::uuid[], $2::float8[], $3::timestamptz[], $4::boolean[]) AS w(id, step, until, park) ON r.id = w.id
	 WHERE r.id = ANY($1) AND r.status = 'pending'
	   FOR UPDATE OF r SKIP LOCKED)
UPDATE chronos.job_runs r
   SET due_at = least(put.until, clock_timestamp() + CASE WHEN put.step > 0 THEN make_interval(secs => put.step)
                ELSE least(greatest((clock_timestamp() - greatest(r.effective_at, r.created_at)) / 4, make_interval(secs => $5)), make_interval(secs => $6)) END),
       parked = put.park
  FROM put WHERE r.id = put.id AND r.id = ANY($1)`

// parkLateSQL parks a row of late runs at once, but for the first, instead of one claim after another.
const parkLateSQL = `
WITH late AS MATERIALIZED (
	SELECT id FROM chronos.job_runs
	 WHERE job_id = $1 AND NOT parked AND status = 'pending' AND attempt = 0 AND NOT asked AND effective_at < $2 AND due_at <= clock_timestamp()
	 ORDER BY priority DESC, effective_at OFFSET 1 LIMIT $3
	   FOR UPDATE SKIP LOCKED)
UPDATE chronos.job_runs r SET parked = true, due_at = clock_timestamp() + make_interval(secs => $4) WHERE r.id = ANY(ARRAY(SELECT id FROM late))`

func (v *verdict) settle(ctx context.Context, tx pgx.Tx, out *Claimed) error {
	for e, ids := range v.ends {
		if err := end(ctx, tx, ids, e.Status, e.Reason); err != nil {
			return err
		}
		for range ids {
			out.Settled = append(out.Settled, e)
		}
	}
	for job, n := range v.unused {
		if err := Unuse(ctx, tx, job, n); err != nil {
			return err
		}
	}
	if err := follow(ctx, tx, v.astray); err != nil {
		return err
	}
	out.Waiting = len(v.wait) + len(v.astray)
	for job, before := range v.late {
		if _, err := tx.Exec(ctx, parkLateSQL, job, before, parkBatch, parkStep.Seconds()); err != nil {
			return err
		}
	}
	if len(v.wait) == 0 {
		return nil
	}
	var (
		ids   = make([]uuid.UUID, len(v.wait))
		steps = make([]float64, len(v.wait))
		until = make([]*time.Time, len(v.wait))
		park  = make([]bool, len(v.wait))
	)
	for i, w := range v.wait {
		ids[i], steps[i], until[i], park[i] = w.id, w.step.Seconds(), w.until, w.park
	}
	_, err := tx.Exec(ctx, putOffSQL, ids, steps, until, park, headLeast.Seconds(), headMost.Seconds())
	return err
}

// Unuse gives back n of a job's max_runs, which may be set later: instants that were skipped don't
// use them up. A job that had none left is planned on from where it stopped. The caller holds the job's row.
func Unuse(ctx context.Context, tx pgx.Tx, job int64, n int) error {
	if n == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `
		UPDATE chronos.jobs
		   SET used = used - $2,
		       next_at = CASE WHEN max_runs IS NULL THEN next_at ELSE coalesce(next_at, last_at + interval '1 microsecond') END
		 WHERE id = $1`, job, n)
	return err
}

// nextTurnSQL wakes the first runs that wait for their turn, so many as may be going. It needs no lock
// of the jobs: whether there is room is judged when one is leased. Most jobs have none, and that is asked first.
const nextTurnSQL = `
WITH next AS MATERIALIZED (
	SELECT w.id FROM unnest($1::bigint[]) AS n(job_id)
	 CROSS JOIN LATERAL (SELECT 1 FROM chronos.job_runs r WHERE r.job_id = n.job_id AND r.parked LIMIT 1) AS waits
	 CROSS JOIN LATERAL (SELECT j.max_concurrent FROM chronos.jobs j WHERE j.id = n.job_id OFFSET 0) j
	 CROSS JOIN LATERAL (
		SELECT r.id FROM chronos.job_runs r
		 WHERE r.job_id = n.job_id AND r.parked AND ` + isPending + `
		 ORDER BY r.priority DESC, r.effective_at LIMIT j.max_concurrent
		   FOR UPDATE SKIP LOCKED) w)
UPDATE chronos.job_runs r SET parked = false, due_at = clock_timestamp() WHERE r.id = ANY(ARRAY(SELECT id FROM next))`

// NextTurn lets the next runs of jobs ask, after runs of these have ended, and says how many do.
func NextTurn(ctx context.Context, tx pgx.Tx, jobs []int64) (int, error) {
	tag, err := tx.Exec(ctx, nextTurnSQL, jobs)
	return int(tag.RowsAffected()), err
}
