package chronos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/chronos/alert"
	"holdfast/chronos/queue"
	"holdfast/webhook"
)

// checkAlerts fails with a [FieldError].
func checkAlerts(rules []alert.Rule, monitor bool, guard *webhook.Guard) error {
	err := alert.Check(rules, monitor, func(field, url string) error {
		err := guard.CheckURL(url)
		if refused := (*webhook.FieldError)(nil); errors.As(err, &refused) {
			kind := ErrInvalid
			if errors.Is(err, webhook.ErrTargetForbidden) {
				kind = webhook.ErrTargetForbidden
			}
			return &FieldError{field, refused.Reason, kind}
		}
		return err
	})
	if refused := (*alert.RuleError)(nil); errors.As(err, &refused) {
		return &FieldError{refused.Field, refused.Reason, ErrInvalid}
	}
	return err
}

// missedOf are the records that the job's alerts are told of.
func (j *Job) missedOf(records []queue.Record) (missed []alert.MissedInstants) {
	if len(j.Spec.Alerts) == 0 {
		return nil
	}
	for _, r := range records {
		if r.Status == queue.Missed {
			missed = append(missed, alert.MissedInstants{
				JobID: r.JobID, Run: queue.ScheduledID(r.JobID, r.From), Reason: r.Reason, From: r.From, To: r.To, Count: r.Count,
			})
		}
	}
	return missed
}

// AlertStatus is where an alert stands.
type AlertStatus string

// An alert is pending until it has arrived or is given up. Either can be delivered again.
const (
	AlertPending   AlertStatus = "pending"
	AlertDelivered AlertStatus = "delivered"
	AlertFailed    AlertStatus = "failed"
)

// Alert is one piece of news on its way to one URL.
type Alert struct {
	ID            uuid.UUID // webhook-id, the same on every attempt
	Job, Monitor  string    // whose it is: one of them
	Kind          alert.Kind
	URL           string
	Status        AlertStatus
	Attempts      int
	StatusCode    *int   // of the last answer
	Error         string // why the last attempt failed
	CreatedAt     time.Time
	NextAttemptAt *time.Time // while it is pending
	FinishedAt    *time.Time
	Payload       json.RawMessage

	N int64 // its place in lists
}

// AlertFilter says which alerts a list has. A zero field doesn't restrict it.
type AlertFilter struct {
	Job, Monitor string
	Status       AlertStatus
	Before       int64 // the N after whose alert the list goes on
	Limit        int   // at least 1
}

const alertColumns = `a.n, a.id, CASE WHEN a.job_id IS NOT NULL THEN a.source ELSE '' END, CASE WHEN a.monitor_id IS NOT NULL THEN a.source ELSE '' END,
	a.kind, a.url, a.status, a.attempts, a.status_code, coalesce(a.error, ''), a.created_at, CASE WHEN a.status = 'pending' THEN a.due_at END, a.finished_at, a.payload`

func scanAlert(row pgx.CollectableRow) (a Alert, err error) {
	var payload string
	err = row.Scan(&a.N, &a.ID, &a.Job, &a.Monitor, &a.Kind, &a.URL, &a.Status, &a.Attempts, &a.StatusCode, &a.Error, &a.CreatedAt,
		&a.NextAttemptAt, &a.FinishedAt, &payload)
	a.Payload = json.RawMessage(payload)
	return a, err
}

// ListAlerts gives alerts of the tenant, newest first. A job or monitor that was deleted keeps its alerts.
func (s *Store) ListAlerts(ctx context.Context, tenant string, f AlertFilter) ([]Alert, error) {
	if f.Before == 0 {
		f.Before = math.MaxInt64
	}
	where, args := []string{`a.tenant = $1`, `a.n < $2`}, []any{tenant, f.Before, f.Limit}
	add := func(condition, value string) {
		if value != "" {
			args = append(args, value)
			where = append(where, fmt.Sprintf(condition, len(args)))
		}
	}
	add(`a.job_id = ANY(ARRAY(SELECT id FROM chronos.jobs WHERE tenant = $1 AND name = $%d))`, f.Job)
	add(`a.monitor_id IS NOT NULL AND a.source = $%d`, f.Monitor)
	add(`a.status = $%d`, string(f.Status))
	rows, err := s.pool.Query(ctx, `SELECT `+alertColumns+` FROM chronos.alerts a WHERE `+strings.Join(where, " AND ")+` ORDER BY a.n DESC LIMIT $3`, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanAlert)
}

// RedeliverAlert has an alert delivered again, with its id; one that is pending is attempted at once. An attempt
// that is under way has its time first. It fails with [ErrAlertNotFound].
func (s *Store) RedeliverAlert(ctx context.Context, c Caller, id uuid.UUID) (Alert, bool, error) {
	a, replayed, err := command(ctx, s, c, func(tx pgx.Tx) (Alert, error) {
		rows, err := tx.Query(ctx, `
			UPDATE chronos.alerts a
			   SET status = 'pending', finished_at = NULL, queued_at = clock_timestamp(),
			       due_at = CASE WHEN a.token IS NOT NULL THEN a.due_at ELSE clock_timestamp() END
			 WHERE a.tenant = $1 AND a.id = $2
			RETURNING `+alertColumns, c.Tenant, id)
		if err != nil {
			return Alert{}, err
		}
		a, err := pgx.CollectExactlyOneRow(rows, scanAlert)
		return a, noRows(err, ErrAlertNotFound)
	})
	return a, replayed, err
}

// alertsAtOnce bounds the alerts that are dropped by one statement.
const alertsAtOnce = 5000

// dropAlerts drops alerts that ended more than keep ago, and says whether there are more.
func dropAlerts(ctx context.Context, pool *pgxpool.Pool, keep time.Duration) (more bool, err error) {
	tag, err := pool.Exec(ctx, `
		DELETE FROM chronos.alerts WHERE n = ANY(ARRAY(
			SELECT n FROM chronos.alerts WHERE finished_at < (SELECT clock_timestamp()) - $1::interval ORDER BY finished_at LIMIT $2 FOR UPDATE SKIP LOCKED))
		   AND finished_at < clock_timestamp() - $1::interval`, keep, alertsAtOnce)
	return tag.RowsAffected() == alertsAtOnce, err
}
