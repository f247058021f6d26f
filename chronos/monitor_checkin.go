package chronos

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"holdfast/chronos/alert"
)

// MonitorEventKind is what happened to a monitor.
type MonitorEventKind string

const (
	CheckInStart   MonitorEventKind = "start"   // a run has begun
	CheckInPing    MonitorEventKind = "ping"    // a run has succeeded
	CheckInFail    MonitorEventKind = "fail"    // a run has failed
	MonitorMissed  MonitorEventKind = "missed"  // no check-in came in time
	MonitorOverrun MonitorEventKind = "late"    // a run hasn't ended in time
	MonitorUnknown MonitorEventKind = "unknown" // a check-in may have come while nobody could receive it
)

// MonitorEvent is one of the last things that happened to a monitor.
type MonitorEvent struct {
	N       int64 // counts from 1
	At      time.Time
	Kind    MonitorEventKind
	Message string        // what came with it, or why
	Took    time.Duration // from the start to this end; zero: unknown
}

const (
	// eventsKept is how many events of a monitor are kept.
	eventsKept = 100
	// MaxMessage is how many characters a failure's message may have.
	MaxMessage = 1000
)

// CheckIn notes that a monitored job has started, succeeded or failed, now. The next check-in is then awaited
// for the first instant after this; an interval counts from here. It fails with [ErrMonitorNotFound].
func (s *Store) CheckIn(ctx context.Context, c Caller, name string, kind MonitorEventKind, message string) (Monitor, bool, error) {
	return command(ctx, s, c, func(tx pgx.Tx) (Monitor, error) {
		m, err := lockMonitor(ctx, tx, c.Tenant, name)
		if err != nil {
			return m, err
		}
		return m, m.checkIn(ctx, tx, kind, message)
	})
}

func (m *Monitor) checkIn(ctx context.Context, tx pgx.Tx, kind MonitorEventKind, message string) error {
	e := MonitorEvent{Kind: kind, Message: message}
	if kind != CheckInStart && m.StartedAt != nil {
		e.Took = max(m.now.Sub(*m.StartedAt), time.Microsecond)
		m.Took = e.Took
	}
	at := m.now
	m.anchor, m.LastAt, m.StartedAt = at, &at, nil
	m.await(at)
	if err := m.happened(ctx, tx, e); err != nil {
		return err
	}
	news := alert.News{Source: m.source(), Cause: strconv.FormatInt(m.eventsSoFar, 10), At: at, Data: map[string]any{}}
	switch kind {
	case CheckInStart:
		end := at.Add(m.Spec.Grace)
		m.stored, m.StartedAt, m.Deadline = MonitorRunning, &at, &end
	case CheckInFail:
		m.stored, news.Kind = MonitorDown, alert.Failed
		news.Rules = m.incident.Fail(at, m.Spec.Alerts)
		news.Data["failures"], news.Data["since"] = m.incident.Failures, m.incident.Since.UTC()
		if message != "" {
			news.Data["message"] = message
		}
	default:
		m.stored, news.Kind = MonitorUp, alert.Recovered
		news.Data["failures"] = m.incident.Failures
		if m.incident.Since != nil {
			news.Data["since"] = m.incident.Since.UTC()
		}
		news.Rules = m.incident.Succeed(m.Spec.Alerts, true)
	}
	if err := m.write(ctx, tx); err != nil {
		return err
	}
	return alert.Raise(ctx, tx, []alert.News{news})
}

func (m *Monitor) source() alert.Source {
	return alert.Source{Tenant: m.Tenant, MonitorID: m.ID, Name: m.Name}
}

// happenedSQL overwrites the oldest event once there are as many as are kept.
const happenedSQL = `
INSERT INTO chronos.monitor_events AS e (monitor_id, slot, n, at, kind, message, took) VALUES ($1, $2, $3, $4, $5, nullif($6, ''), $7)
ON CONFLICT (monitor_id, slot) DO UPDATE SET n = excluded.n, at = excluded.at, kind = excluded.kind, message = excluded.message, took = excluded.took
 WHERE e.n < excluded.n`

// happened adds an event to those of a monitor that the caller has locked, and writes.
func (m *Monitor) happened(ctx context.Context, tx pgx.Tx, e MonitorEvent) error {
	m.eventsSoFar++
	var took *time.Duration
	if e.Took > 0 {
		took = &e.Took
	}
	_, err := tx.Exec(ctx, happenedSQL, m.ID, m.eventsSoFar%eventsKept, m.eventsSoFar, m.now, e.Kind, e.Message, took)
	return err
}

// ListMonitorEvents gives the last events of a monitor, newest first, those before the one of a number; 0: from the newest. It
// fails with [ErrMonitorNotFound].
func (s *Store) ListMonitorEvents(ctx context.Context, tenant, name string, before int64, limit int) ([]MonitorEvent, error) {
	m, err := s.GetMonitor(ctx, tenant, name)
	if err != nil {
		return nil, err
	}
	rows, err := s.pool.Query(ctx, `
		SELECT n, at, kind, coalesce(message, ''), coalesce(took, interval '0') FROM chronos.monitor_events
		 WHERE monitor_id = $1 AND ($2 = 0 OR n < $2) ORDER BY n DESC LIMIT $3`, m.ID, before, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[MonitorEvent])
}
