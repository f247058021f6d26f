package chronos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"holdfast/chronos/alert"
	"holdfast/internal/pg"
)

// MonitorSpec is what the owner of a monitor says about it. Its JSON is what is stored.
type MonitorSpec struct {
	Schedule Timing        `json:"schedule"`
	Timezone string        `json:"timezone"`
	Grace    time.Duration `json:"grace_ns"` // how long after an instant, or a start, is still in time
	Alerts   []alert.Rule  `json:"alerts,omitempty"`
}

// Bounds of a monitor's settings.
const (
	minGrace = time.Second
	maxGrace = 366 * 24 * time.Hour
)

// compile reads the timing; an interval counts from anchor. It fails with a [FieldError].
func (s *MonitorSpec) compile(name string, anchor time.Time) (timetable, error) {
	spec := DefaultSpec()
	spec.Schedule, spec.Timezone = s.Schedule, s.Timezone
	return spec.compile(name, anchor, nil)
}

// MonitorState is how it is with a monitored job.
type MonitorState string

const (
	MonitorNew     MonitorState = "new"     // it hasn't checked in yet
	MonitorUp      MonitorState = "up"      // the last check-in said that all is well, and no other is due
	MonitorRunning MonitorState = "running" // it has started and not ended yet
	MonitorLate    MonitorState = "late"    // a check-in is due and there is grace left, or a run hasn't ended in time
	MonitorDown    MonitorState = "down"    // it has failed, or no check-in came
	// MonitorUnknownState is that a check-in may have come while no replica could receive it.
	MonitorUnknownState MonitorState = "unknown"
)

// Monitor is a job that runs elsewhere, as it stands.
type Monitor struct {
	ID          int64
	Tenant      string
	Name        string
	Spec        MonitorSpec
	State       MonitorState  // by the database's clock
	ExpectedAt  *time.Time    // the next instant for which a check-in is awaited
	Deadline    *time.Time    // when its absence is told; nil: nothing is awaited, or it was told
	StartedAt   *time.Time    // of a run that goes on
	LastAt      *time.Time    // the last check-in
	Took        time.Duration // from the last start to its end; zero: unknown
	Since       *time.Time    // the first failure in a row
	Failures    int           // in a row
	CreatedAt   time.Time
	UpdatedAt   time.Time
	incident    alert.Incident
	stored      MonitorState
	anchor      time.Time
	now         time.Time // when it was read
	eventsSoFar int64
}

// next is the first instant after a time; nil: there is none.
func (m *Monitor) next(after time.Time) *time.Time {
	tt, err := m.Spec.compile(m.Name, m.anchor)
	if err != nil {
		return nil // its zone is gone: nobody can say what is expected
	}
	at, ok := tt.Next(after)
	if !ok {
		return nil
	}
	return &at
}

// Describe puts the schedule into words.
func (m *Monitor) Describe() (string, error) {
	tt, err := m.Spec.compile(m.Name, m.anchor)
	if err != nil {
		return "", err
	}
	return tt.Schedule.Describe(), nil
}

const monitorColumns = `m.id, m.tenant, m.name, m.spec, m.state, m.anchor, m.expected_at, m.deadline, m.started_at, m.last_at, m.took,
	coalesce(m.incident, '{}'), m.events, m.created_at, m.updated_at, clock_timestamp()`

func scanMonitor(row pgx.CollectableRow) (m Monitor, err error) {
	var (
		spec, incident []byte
		took           *time.Duration
	)
	err = row.Scan(&m.ID, &m.Tenant, &m.Name, &spec, &m.stored, &m.anchor, &m.ExpectedAt, &m.Deadline, &m.StartedAt, &m.LastAt, &took,
		&incident, &m.eventsSoFar, &m.CreatedAt, &m.UpdatedAt, &m.now)
	if err != nil {
		return m, err
	}
	if took != nil {
		m.Took = *took
	}
	if err := json.Unmarshal(spec, &m.Spec); err != nil {
		return m, fmt.Errorf("spec of monitor %d: %w", m.ID, err)
	}
	if err := json.Unmarshal(incident, &m.incident); err != nil {
		return m, fmt.Errorf("incident of monitor %d: %w", m.ID, err)
	}
	m.shown()
	return m, nil
}

// shown works out what people see of the state: within the grace a monitor that was up is late.
func (m *Monitor) shown() {
	m.State, m.Since, m.Failures = m.stored, m.incident.Since, m.incident.Failures
	if (m.stored == MonitorUp || m.stored == MonitorNew || m.stored == MonitorUnknownState) && m.ExpectedAt != nil && !m.now.Before(*m.ExpectedAt) {
		m.State = MonitorLate
	}
}

// lockMonitor locks a monitor; [ErrMonitorNotFound] if there is none. Its clock is read again by who waited for the lock.
func lockMonitor(ctx context.Context, tx pgx.Tx, tenant, name string) (Monitor, error) {
	rows, err := tx.Query(ctx, `SELECT `+monitorColumns+` FROM chronos.monitors m WHERE m.tenant = $1 AND m.name = $2 FOR UPDATE`, tenant, name)
	if err != nil {
		return Monitor{}, err
	}
	m, err := pgx.CollectExactlyOneRow(rows, scanMonitor)
	if err != nil {
		return m, noRows(err, ErrMonitorNotFound)
	}
	m.now, err = dbNow(ctx, tx)
	return m, err
}

// write stores what changes of a monitor, which the caller has locked.
func (m *Monitor) write(ctx context.Context, tx pgx.Tx) error {
	spec, err := json.Marshal(m.Spec)
	if err != nil {
		return err
	}
	var took *time.Duration
	if m.Took > 0 {
		took = &m.Took
	}
	m.shown()
	return tx.QueryRow(ctx, `
		UPDATE chronos.monitors
		   SET spec = $2::text::json, state = $3, anchor = $4, expected_at = $5, deadline = $6, started_at = $7, last_at = $8, took = $9,
		       incident = $10::jsonb, events = $11, updated_at = CASE WHEN $12 THEN clock_timestamp() ELSE updated_at END
		 WHERE id = $1 RETURNING updated_at`,
		m.ID, string(spec), m.stored, m.anchor, m.ExpectedAt, m.Deadline, m.StartedAt, m.LastAt, took, m.incident.Text(), m.eventsSoFar,
		m.UpdatedAt.IsZero()).Scan(&m.UpdatedAt)
}

// await sets what is awaited after an instant, and when its absence is told.
func (m *Monitor) await(after time.Time) {
	m.ExpectedAt, m.Deadline = m.next(after), nil
	if m.ExpectedAt != nil {
		at := m.ExpectedAt.Add(m.Spec.Grace)
		m.Deadline = &at
	}
}

// PutMonitorResult is the answer to a monitor that was put.
type PutMonitorResult struct {
	Monitor Monitor
	Created bool
}

func (s *Store) checkMonitor(name string, spec *MonitorSpec, now time.Time) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if spec.Grace < minGrace || spec.Grace > maxGrace {
		return invalid("grace", "must be 1s to 8784h")
	}
	if _, err := spec.compile(name, now); err != nil {
		return err
	}
	return checkAlerts(spec.Alerts, true, s.guard)
}

// PutMonitor creates a monitor or replaces it. The same again changes nothing. What is awaited counts from now if
// schedule or grace changed; what has gone wrong stays as it is. It fails with a [FieldError].
func (s *Store) PutMonitor(ctx context.Context, c Caller, name string, spec MonitorSpec) (PutMonitorResult, bool, error) {
	return command(ctx, s, c, func(tx pgx.Tx) (PutMonitorResult, error) { return s.putMonitor(ctx, tx, c.Tenant, name, spec) })
}

func (s *Store) putMonitor(ctx context.Context, tx pgx.Tx, tenant, name string, spec MonitorSpec) (PutMonitorResult, error) {
	none := PutMonitorResult{}
	now, err := dbNow(ctx, tx)
	if err != nil {
		return none, err
	}
	if err := s.checkMonitor(name, &spec, now); err != nil {
		return none, err
	}
	m, err := lockMonitor(ctx, tx, tenant, name)
	created := errors.Is(err, ErrMonitorNotFound)
	if err != nil && !created {
		return none, err
	}
	before, after := "", ""
	if created {
		m = Monitor{Tenant: tenant, Name: name, stored: MonitorNew, now: now}
		if err := s.insertMonitor(ctx, tx, &m, spec); err != nil {
			return none, err
		}
	} else {
		before, after = text(m.Spec), text(spec)
	}
	if !created && before == after {
		return PutMonitorResult{m, false}, nil
	}
	retimed := created || m.Spec.Schedule != spec.Schedule || m.Spec.Timezone != spec.Timezone || m.Spec.Grace != spec.Grace
	m.Spec, m.UpdatedAt = spec, time.Time{}
	if retimed {
		m.anchor = m.now
		m.await(m.now)
		if spec.Schedule.At != "" && m.ExpectedAt == nil {
			return none, &FieldError{"schedule.at", "is past", ErrScheduleInPast}
		}
		if m.StartedAt != nil && m.stored == MonitorRunning {
			at := m.StartedAt.Add(spec.Grace)
			m.Deadline = &at
		}
	}
	if len(spec.Alerts) == 0 {
		m.incident.Told = nil
	}
	return PutMonitorResult{m, created}, m.write(ctx, tx)
}

func text(s MonitorSpec) string {
	out, err := json.Marshal(s)
	if err != nil {
		panic(err) // words, numbers and durations always are JSON
	}
	return string(out)
}

func (s *Store) insertMonitor(ctx context.Context, tx pgx.Tx, m *Monitor, spec MonitorSpec) error {
	err := tx.QueryRow(ctx, `INSERT INTO chronos.monitors (tenant, name, spec, anchor) VALUES ($1, $2, $3::text::json, $4)
		ON CONFLICT (tenant, name) DO NOTHING RETURNING id, created_at`, m.Tenant, m.Name, text(spec), m.now).Scan(&m.ID, &m.CreatedAt)
	if err != nil {
		return noRows(err, pg.ErrRepeat) // a rival has just created it: replace that
	}
	return ensureSecret(ctx, tx, m.Tenant)
}

// GetMonitor gives a monitor; [ErrMonitorNotFound] if there is none.
func (s *Store) GetMonitor(ctx context.Context, tenant, name string) (Monitor, error) {
	rows, err := s.pool.Query(ctx, `SELECT `+monitorColumns+` FROM chronos.monitors m WHERE m.tenant = $1 AND m.name = $2`, tenant, name)
	if err != nil {
		return Monitor{}, err
	}
	m, err := pgx.CollectExactlyOneRow(rows, scanMonitor)
	return m, noRows(err, ErrMonitorNotFound)
}

// ListMonitors gives the tenant's monitors by name, at most limit, those after a name.
func (s *Store) ListMonitors(ctx context.Context, tenant, after string, limit int) ([]Monitor, error) {
	rows, err := s.pool.Query(ctx, `SELECT `+monitorColumns+` FROM chronos.monitors m
		WHERE m.tenant = $1 AND m.name > $2 ORDER BY m.name LIMIT $3`, tenant, after, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanMonitor)
}

// DeleteMonitor deletes a monitor with its check-ins; its alerts stay. It fails with [ErrMonitorNotFound].
func (s *Store) DeleteMonitor(ctx context.Context, c Caller, name string) error {
	_, _, err := command(ctx, s, c, func(tx pgx.Tx) (struct{}, error) {
		tag, err := tx.Exec(ctx, `DELETE FROM chronos.monitors WHERE tenant = $1 AND name = $2`, c.Tenant, name)
		if err == nil && tag.RowsAffected() == 0 {
			err = ErrMonitorNotFound
		}
		return struct{}{}, err
	})
	return err
}
