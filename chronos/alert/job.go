package alert

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// job is one that has alerts, locked.
type job struct {
	Source
	paused   bool
	rules    []Rule
	incident Incident
	before   string // the incident as it is stored
}

// lockWatchedSQL makes those queue up that tell of the same job, in the order of ids. It is compatible with the
// share that a finisher already has of the row.
const lockWatchedSQL = `
SELECT id, tenant, name, spec->'alerts', coalesce(incident, '{}'), clock_timestamp(),
       faulty_at IS NOT NULL OR coalesce(paused_at IS NOT NULL AND (paused_until IS NULL OR paused_until > clock_timestamp()), false)
  FROM chronos.jobs WHERE id = ANY($1) AND watched AND deleted_at IS NULL ORDER BY id FOR NO KEY UPDATE`

// lockWatched gives those of the jobs that have alerts, locked; with lockWatchedSQL and " SKIP LOCKED", those that nobody
// else has at hand.
func lockWatched(ctx context.Context, tx pgx.Tx, sql string, ids []int64) (jobs map[int64]*job, now time.Time, err error) {
	jobs = map[int64]*job{}
	rows, err := tx.Query(ctx, sql, ids)
	if err != nil {
		return nil, now, err
	}
	var (
		j               Source
		paused          bool
		rules, incident []byte
	)
	_, err = pgx.ForEachRow(rows, []any{&j.JobID, &j.Tenant, &j.Name, &rules, &incident, &now, &paused}, func() error {
		one := &job{Source: j, paused: paused}
		if err := json.Unmarshal(rules, &one.rules); err != nil {
			return nil // a spec that can't be read has nobody to tell
		}
		if err := json.Unmarshal(incident, &one.incident); err != nil {
			return fmt.Errorf("incident of job %d: %w", j.JobID, err)
		}
		one.before = one.incident.text()
		jobs[j.JobID] = one
		return nil
	})
	return jobs, now, err
}

func (n *Incident) text() string {
	text, err := json.Marshal(n)
	if err != nil {
		panic(err) // words, numbers and a time always are JSON
	}
	return string(text)
}

// Text is how an incident is stored; nil: as nothing.
func (n *Incident) Text() *string {
	if n.Zero() {
		return nil
	}
	text := n.text()
	return &text
}

// keep stores the incidents that have changed and raises the news.
func keep(ctx context.Context, tx pgx.Tx, jobs map[int64]*job, news []News) error {
	var (
		ids       []int64
		incidents []*string
	)
	for id, j := range jobs {
		if j.incident.text() != j.before {
			ids, incidents = append(ids, id), append(incidents, j.incident.Text())
		}
	}
	if len(ids) > 0 {
		if _, err := tx.Exec(ctx, `
			UPDATE chronos.jobs j SET incident = n.incident::jsonb FROM unnest($1::bigint[], $2::text[]) AS n(id, incident)
			 WHERE j.id = n.id AND j.watched`, ids, incidents); err != nil {
			return err
		}
	}
	return Raise(ctx, tx, news)
}

// endedSQL reads what has just been moved to history.
const endedSQL = `
SELECT id, job_id, status, coalesce(reason, ''), trigger, scheduled_for, effective_at, finished_at, attempt,
       coalesce(CASE WHEN outcome IS NULL THEN attempts->-1->>'error' ELSE outcome->>'error' END, ''),
       coalesce((attempts->0->>'started_at')::timestamptz, started_at)
  FROM chronos.run_history WHERE id = ANY($1) AND finished_at > now() - interval '1 hour' AND status IN ('succeeded', 'failed')
 ORDER BY finished_at, id`

// Ended is a run that has been moved to history, of a job that has alerts.
type Ended struct {
	Run   uuid.UUID
	JobID int64
	Look  bool // whether it began in time hasn't been judged yet
}

// RunsEnded tells of runs that this transaction has moved to history.
func RunsEnded(ctx context.Context, tx pgx.Tx, runs []Ended) error {
	if len(runs) == 0 {
		return nil
	}
	ids, of, look := make([][16]byte, len(runs)), make([]int64, len(runs)), map[uuid.UUID]bool{}
	for i, r := range runs {
		ids[i], of[i], look[r.Run] = r.Run, r.JobID, r.Look
	}
	jobs, _, err := lockWatched(ctx, tx, lockWatchedSQL, of)
	if err != nil || len(jobs) == 0 {
		return err
	}
	rows, err := tx.Query(ctx, endedSQL, ids)
	if err != nil {
		return err
	}
	var (
		r        ended
		started  *time.Time
		news     []News
		fromRun  = []any{&r.id, &r.job, &r.status, &r.reason, &r.trigger, &r.scheduled, &r.effective, &r.finished, &r.attempt, &r.err, &started}
		identify = func(k Kind, j *job, rules []Rule) News {
			return News{Source: j.Source, Kind: k, Cause: fmt.Sprintf("%s/%d", r.id, r.attempt), At: r.finished, Rules: rules, Data: map[string]any{"run": r.facts()}}
		}
	)
	_, err = pgx.ForEachRow(rows, fromRun, func() error {
		j := jobs[r.job]
		if j == nil {
			return nil
		}
		if started != nil && look[r.id] {
			by := started.Sub(r.effective)
			j.incident.InTime(by, j.rules)
			news = append(news, late(j, r.id, r.scheduled, r.effective, r.finished, started, j.incident.Late(by, j.rules)))
		}
		if r.status == "succeeded" {
			failures, since := j.incident.Failures, j.incident.Since
			n := identify(Recovered, j, j.incident.Succeed(j.rules, false))
			n.Data["failures"] = failures
			if since != nil {
				n.Data["since"] = since.UTC()
			}
			news = append(news, n)
			return nil
		}
		n := identify(Failed, j, j.incident.Fail(r.finished, j.rules))
		n.Data["failures"], n.Data["since"] = j.incident.Failures, j.incident.Since.UTC()
		news = append(news, n)
		return nil
	})
	if err != nil {
		return err
	}
	return keep(ctx, tx, jobs, news)
}

type ended struct {
	id                             uuid.UUID
	job                            int64
	status, reason, trigger, err   string
	scheduled, effective, finished time.Time
	attempt                        int
}

func (r *ended) facts() map[string]any {
	facts := map[string]any{
		"id": r.id, "status": r.status, "trigger": r.trigger, "scheduled_for": r.scheduled.UTC(), "finished_at": r.finished.UTC(), "attempt": r.attempt,
	}
	if r.reason != "" {
		facts["reason"] = r.reason
	}
	if r.err != "" {
		facts["error"] = r.err
	}
	return facts
}

func late(j *job, run uuid.UUID, scheduled, effective, now time.Time, started *time.Time, rules []Rule) News {
	facts := map[string]any{"id": run, "scheduled_for": scheduled.UTC(), "effective_at": effective.UTC()}
	if started != nil {
		facts["started_at"] = started.UTC()
	}
	return News{Source: j.Source, Kind: Late, Cause: run.String(), At: now, Rules: rules, Data: map[string]any{"run": facts}}
}

// MissedInstants is one record of instants of a job that nobody could run.
type MissedInstants struct {
	JobID    int64
	Run      uuid.UUID // the record's
	Reason   string
	From, To time.Time
	Count    int
}

// InstantsMissed tells of records that this transaction has made, of jobs that have alerts. The caller holds
// their rows.
func InstantsMissed(ctx context.Context, tx pgx.Tx, records []MissedInstants) error {
	if len(records) == 0 {
		return nil
	}
	ids := make([]int64, len(records))
	for i, r := range records {
		ids[i] = r.JobID
	}
	jobs, now, err := lockWatched(ctx, tx, lockWatchedSQL, ids)
	if err != nil {
		return err
	}
	var news []News
	for _, r := range records {
		j := jobs[r.JobID]
		if j == nil {
			continue
		}
		news = append(news, News{
			Source: j.Source, Kind: Missed, Cause: r.Run.String(), At: now, Rules: j.incident.Miss(j.rules),
			Data: map[string]any{
				"run":    map[string]any{"id": r.Run, "status": "missed", "reason": r.Reason, "scheduled_for": r.From.UTC()},
				"missed": map[string]any{"from": r.From.UTC(), "to": r.To.UTC(), "count": r.Count},
			},
		})
	}
	return keep(ctx, tx, jobs, news)
}
