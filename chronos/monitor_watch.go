package chronos

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/chronos/alert"
	"holdfast/internal/pg"
)

const (
	// watchEvery is how often a replica says that check-ins can be received, and looks for those that didn't come.
	watchEvery = time.Second
	// watchFresh is how old the last such word may be to be good enough, whoever gave it.
	watchFresh = 800 * time.Millisecond
	// blind is after how long without one nobody could receive check-ins.
	blind = 10 * time.Second
	// overdueBatch bounds the monitors that are judged by one transaction.
	overdueBatch = 200
	// outagesKept is longer than any grace.
	outagesKept = maxGrace + 24*time.Hour
)

// seenSQL notes that somebody is there, and that nobody was, if so. Of rivals the second waits for the row, sees what the first has
// written, and does nothing.
const seenSQL = `
WITH before AS MATERIALIZED (
	SELECT seen_at FROM chronos.monitor_watch WHERE seen_at < clock_timestamp() - $1::interval FOR UPDATE),
gap AS (
	INSERT INTO chronos.monitor_outages (began_at, ended_at)
	SELECT seen_at, clock_timestamp() FROM before WHERE seen_at < clock_timestamp() - $2::interval
	ON CONFLICT (began_at) DO NOTHING)
UPDATE chronos.monitor_watch w SET seen_at = clock_timestamp() FROM before WHERE w.seen_at = before.seen_at`

// overdueSQL takes the monitors that are to be judged. A rival's are passed over, and nothing is judged by who has been asleep since it
// said that it was there: that may have been an outage which isn't noted yet.
const overdueSQL = `
SELECT ` + monitorColumns + ` FROM chronos.monitors m
 WHERE m.deadline <= (SELECT clock_timestamp())
   AND (SELECT seen_at FROM chronos.monitor_watch) > clock_timestamp() - $2::interval
 ORDER BY m.deadline LIMIT $1 FOR UPDATE SKIP LOCKED`

// WatchMonitors tells of check-ins that didn't come, of up to a few hundred monitors, and says whether there are more. One that
// was awaited while no replica could receive it isn't missed: its monitor is set right again, and an event says that nobody
// knows. Any number of replicas may call it at once.
func (s *Store) WatchMonitors(ctx context.Context) (more bool, err error) {
	if _, err := s.pool.Exec(ctx, seenSQL, watchFresh, blind); err != nil {
		return false, err
	}
	err = pg.InTx(ctx, s.pool, pg.TxOptions{}, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, overdueSQL, overdueBatch, blind)
		if err != nil {
			return err
		}
		overdue, err := pgx.CollectRows(rows, scanMonitor)
		if err != nil || len(overdue) == 0 {
			return err
		}
		more = len(overdue) == overdueBatch
		outages, err := outagesSince(ctx, tx, overdue)
		if err != nil {
			return err
		}
		for i := range overdue {
			if err := overdue[i].judge(ctx, tx, outages); err != nil {
				return fmt.Errorf("monitor %d: %w", overdue[i].ID, err)
			}
		}
		return nil
	})
	return more, err
}

type outage struct{ Began, Ended time.Time }

func outagesSince(ctx context.Context, tx pgx.Tx, overdue []Monitor) ([]outage, error) {
	first := overdue[0].awaitedFrom()
	for i := range overdue {
		if from := overdue[i].awaitedFrom(); from.Before(first) {
			first = from
		}
	}
	rows, err := tx.Query(ctx, `SELECT began_at, ended_at FROM chronos.monitor_outages WHERE ended_at > $1 ORDER BY ended_at DESC`, first)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[outage])
}

// awaitedFrom is when the check-in could come whose absence is told at the deadline.
func (m *Monitor) awaitedFrom() time.Time {
	if m.stored == MonitorRunning && m.StartedAt != nil {
		return *m.StartedAt
	}
	return *m.ExpectedAt
}

// judge says what it means that the deadline has passed, now. The caller has locked the monitor.
func (m *Monitor) judge(ctx context.Context, tx pgx.Tx, outages []outage) error {
	if m.ExpectedAt == nil && m.stored != MonitorRunning || m.Deadline == nil {
		m.Deadline = nil
		return m.write(ctx, tx)
	}
	for _, o := range outages {
		if o.Began.Before(*m.Deadline) && o.Ended.After(m.awaitedFrom()) {
			return m.unknown(ctx, tx, o)
		}
	}
	news := alert.News{Source: m.source(), At: m.now, Data: map[string]any{"deadline": m.Deadline.UTC()}}
	e := MonitorEvent{}
	if m.stored == MonitorRunning {
		news.Kind, news.Cause, news.Rules = alert.Late, strconv.FormatInt(m.StartedAt.UnixMicro(), 10), m.incident.Overrun(m.Spec.Alerts)
		news.Data["started_at"] = m.StartedAt.UTC()
		e.Kind, e.Message = MonitorOverrun, "started "+stamp(*m.StartedAt)+" and not ended since"
		m.stored, m.Deadline = MonitorLate, nil
		if m.ExpectedAt != nil {
			at := m.ExpectedAt.Add(m.Spec.Grace)
			m.Deadline = &at
		}
	} else {
		expected := *m.ExpectedAt
		news.Kind, news.Cause, news.Rules = alert.Missed, strconv.FormatInt(expected.UnixMicro(), 10), m.incident.Miss(m.Spec.Alerts)
		news.Data["expected_at"] = expected.UTC()
		e.Kind, e.Message = MonitorMissed, "expected "+stamp(expected)
		m.stored = MonitorDown
		m.await(m.now)
		m.Deadline = nil // until it checks in again its silence is known
	}
	if m.LastAt != nil {
		news.Data["last_check_in_at"] = m.LastAt.UTC()
	}
	if m.incident.Since == nil {
		m.incident.Since = &news.At
	}
	if err := m.happened(ctx, tx, e); err != nil {
		return err
	}
	if err := m.write(ctx, tx); err != nil {
		return err
	}
	return alert.Raise(ctx, tx, []alert.News{news})
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// unknown sets a monitor right of which nobody can say whether it has checked in: the next instant counts.
func (m *Monitor) unknown(ctx context.Context, tx pgx.Tx, o outage) error {
	e := MonitorEvent{Kind: MonitorUnknown, Message: fmt.Sprintf("no replica of Chronos could receive check-ins from %s to %s", stamp(o.Began), stamp(o.Ended))}
	if m.stored != MonitorDown {
		m.stored = MonitorUnknownState
	}
	m.StartedAt, m.anchor = nil, m.now
	m.await(m.now)
	if err := m.happened(ctx, tx, e); err != nil {
		return err
	}
	return m.write(ctx, tx)
}

// dropOutages forgets outages that no monitor can have been waiting in any more.
func dropOutages(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `DELETE FROM chronos.monitor_outages WHERE ended_at < clock_timestamp() - $1::interval`, outagesKept)
	return err
}
