package chronos

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"holdfast/chronos/queue"
)

// GetJob gives a job that isn't deleted; [ErrJobNotFound] if there is none. One that this version can't read is set aside, with
// what is known of it.
func (s *Store) GetJob(ctx context.Context, tenant, name string) (Job, error) {
	rows, err := s.pool.Query(ctx, `SELECT `+jobColumns+` FROM chronos.jobs j
		WHERE j.tenant = $1 AND j.name = $2 AND j.deleted_at IS NULL`, tenant, name)
	if err != nil {
		return Job{}, err
	}
	j, err := pgx.CollectExactlyOneRow(rows, scanShown)
	if err != nil {
		return j, noRows(err, ErrJobNotFound)
	}
	return j, loadCalendars(ctx, s.pool, []*Job{&j})
}

// JobFilter says which jobs a list has. A zero field doesn't restrict it.
type JobFilter struct {
	LabelKey, LabelValue string
	Paused               *bool
	Text                 string // part of the name, in any case
	After                string // continue after this name
	Limit                int    // at least 1
}

// ListJobs gives the tenant's jobs by name, as [Store.GetJob] does each.
func (s *Store) ListJobs(ctx context.Context, tenant string, f JobFilter) ([]Job, error) {
	where, args := `j.tenant = $1 AND j.deleted_at IS NULL AND j.name > $2`, []any{tenant, f.After, f.Limit}
	add := func(condition string, value any) {
		args = append(args, value)
		where += " AND " + fmt.Sprintf(condition, len(args))
	}
	if f.LabelKey != "" {
		add(`j.labels @> $%d`, map[string]string{f.LabelKey: f.LabelValue})
	}
	if f.Paused != nil {
		add(`(j.faulty_at IS NOT NULL OR j.paused_at IS NOT NULL AND (j.paused_until IS NULL OR j.paused_until > clock_timestamp())) = $%d`, *f.Paused)
	}
	if f.Text != "" {
		add(`strpos(lower(j.name), lower($%d)) > 0`, f.Text)
	}
	rows, err := s.pool.Query(ctx, `SELECT `+jobColumns+` FROM chronos.jobs j WHERE `+where+` ORDER BY j.name LIMIT $3`, args...)
	if err != nil {
		return nil, err
	}
	jobs, err := pgx.CollectRows(rows, scanShown)
	if err != nil {
		return nil, err
	}
	all := make([]*Job, len(jobs))
	for i := range jobs {
		all[i] = &jobs[i]
	}
	return jobs, loadCalendars(ctx, s.pool, all)
}

// Upcoming gives the job's next instants, at most count, as the planner will find them. It fails with
// [ErrJobNotFound] or [ErrUnreadable].
func (s *Store) Upcoming(ctx context.Context, tenant, name string, count int) ([]Instant, error) {
	j, err := s.GetJob(ctx, tenant, name)
	if err != nil {
		return nil, err
	}
	return j.Upcoming(s.clock.Now(), count)
}

// notes say why an instant that is to come won't run.
var notes = map[string]string{
	queue.ReasonPaused:   "paused: the job is paused, this will be skipped",
	queue.ReasonSkipNext: "skip_next: somebody asked to have this one skipped",
}

// Upcoming gives the job's first instants after now, the database's time, as [Store.Upcoming] does. One that will be
// skipped is among them, with a note.
func (j *Job) Upcoming(now time.Time, count int) ([]Instant, error) {
	tt, err := j.timetable()
	if err != nil {
		return nil, err
	}
	at := now
	left := int64(count)
	if j.Spec.MaxRuns != nil {
		left = *j.Spec.MaxRuns - j.Used
	}
	items := []Instant{}
	for len(items) < count {
		var ok bool
		if at, ok = tt.Next(at); !ok {
			break
		}
		reason := j.withheld(tt, at)
		planned := j.LastAt != nil && !at.After(*j.LastAt) // has its run, and counts already
		if !planned {
			if j.Spec.MaxRuns != nil && left <= 0 {
				break
			}
			if reason == "" {
				left--
			}
		}
		in := tt.instant(at)
		if note, ok := notes[reason]; ok {
			in.Note = note
		}
		items = append(items, in)
	}
	return items, nil
}

// Describe puts the job's schedule into words.
func (j *Job) Describe() (string, error) {
	tt, err := j.timetable()
	if err != nil {
		return "", err
	}
	return tt.Schedule.Describe(), nil
}

// Replica is a process that serves.
type Replica struct {
	ID        uuid.UUID
	StartedAt time.Time
	LastSeen  time.Time
	Leader    bool
	Epoch     int64 // of its leadership; 0 if it doesn't lead
	InFlight  int   // deliveries
}

// replicaGone is when a replica that isn't seen any more is left out of the list.
const replicaGone = 15 * time.Second

// ListReplicas gives the replicas that were seen within the last 15 s, the oldest first.
func (s *Store) ListReplicas(ctx context.Context) ([]Replica, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT r.id, r.started_at, r.last_seen, l.epoch IS NOT NULL, coalesce(l.epoch, 0), r.in_flight
		  FROM chronos.replicas r
		  LEFT JOIN chronos.leaderships l ON l.name = $1 AND l.holder = r.id::text
		 WHERE r.last_seen > clock_timestamp() - make_interval(secs => $2)
		 ORDER BY r.started_at, r.id`, plannerName, replicaGone.Seconds())
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Replica])
}

// plannerName is what the planner's leadership is called.
const plannerName = "planner"
