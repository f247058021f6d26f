package inventory

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"holdfast/internal/pg"
)

// DeliveryStatus is where a delivery stands.
type DeliveryStatus string

// A delivery waits until it has arrived or is given up. Either can be delivered again.
const (
	DeliveryWaiting DeliveryStatus = "waiting"
	DeliveryDone    DeliveryStatus = "delivered"
	DeliveryDead    DeliveryStatus = "dead"
)

// Delivery is one event on its way to one subscription.
type Delivery struct {
	ID            uuid.UUID       `json:"id" doc:"webhook-id, the same on every attempt"`
	Event         string          `json:"event"`
	Topic         string          `json:"topic" doc:"The reservation or SKU whose deliveries arrive in their order"`
	Status        DeliveryStatus  `json:"status" enum:"waiting,delivered,dead"`
	Attempts      int             `json:"attempts"`
	StatusCode    *int            `json:"status_code,omitempty" doc:"Of the last answer"`
	Error         string          `json:"error,omitempty" doc:"Why the last attempt failed"`
	CreatedAt     time.Time       `json:"created_at"`
	NextAttemptAt *time.Time      `json:"next_attempt_at,omitempty" doc:"While it waits and is the next of its topic"`
	FinishedAt    *time.Time      `json:"finished_at,omitempty"`
	Payload       json.RawMessage `json:"payload"`

	n int64
}

// Position is where a list goes on after the delivery.
func (d Delivery) Position() int64 { return d.n }

const (
	// deliveryAge is how long an event is tried to be delivered.
	deliveryAge = 72 * time.Hour
	// deliveryKeep is how long a delivery is kept after it has ended.
	deliveryKeep = 7 * 24 * time.Hour
	// maxWaiting is how many deliveries may wait for a subscription; while there are more, new events
	// aren't taken on.
	maxWaiting = 100_000
	// maxRedelivered is how many deliveries one request can have again.
	maxRedelivered = 10_000
)

var deliveryHistory = pg.Partitioned{Schema: schemaName, Table: "delivery_history", Span: pg.Day}

// listDeliveriesSQL reads a subscription's deliveries, newest first, from before a number: the one or the other
// half is empty where the status says so.
const listDeliveriesSQL = `
(SELECT d.n, d.id, d.event, d.topic, 'waiting', d.attempts, d.status_code, coalesce(d.error, ''), d.created_at,
        (SELECT t.due_at FROM inventory.delivery_topics t WHERE t.subscription_id = d.subscription_id AND t.topic = d.topic AND NOT EXISTS (
            SELECT 1 FROM inventory.deliveries e WHERE e.subscription_id = d.subscription_id AND e.topic = d.topic AND e.n < d.n)),
        NULL::timestamptz, d.payload
   FROM inventory.deliveries d WHERE d.subscription_id = $1 AND d.n < $2 AND $3 IN ('', 'waiting') ORDER BY d.n DESC LIMIT $4)
UNION ALL
(SELECT n, id, event, topic, status, attempts, status_code, coalesce(error, ''), created_at, NULL, finished_at, payload
   FROM inventory.delivery_history WHERE subscription_id = $1 AND n < $2 AND $3 IN ('', status) ORDER BY n DESC LIMIT $4)
ORDER BY 1 DESC LIMIT $4`

// ListDeliveries reads up to limit deliveries of a subscription, newest first, from before the given position; 0: from
// the newest. An empty status is any. It fails with [ErrSubscriptionNotFound].
func (s *Store) ListDeliveries(ctx context.Context, tenant string, subscription uuid.UUID, status DeliveryStatus, before int64, limit int) ([]Delivery, error) {
	if _, err := s.GetSubscription(ctx, tenant, subscription); err != nil {
		return nil, err
	}
	if before == 0 {
		before = math.MaxInt64
	}
	rows, err := s.pool.Query(ctx, listDeliveriesSQL, subscription, before, string(status), limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Delivery, error) {
		var d Delivery
		var payload string
		err := row.Scan(&d.n, &d.ID, &d.Event, &d.Topic, &d.Status, &d.Attempts, &d.StatusCode, &d.Error, &d.CreatedAt, &d.NextAttemptAt, &d.FinishedAt, &payload)
		d.CreatedAt, d.Payload = d.CreatedAt.UTC(), json.RawMessage(payload)
		for _, at := range []*time.Time{d.NextAttemptAt, d.FinishedAt} {
			if at != nil {
				*at = at.UTC()
			}
		}
		return d, err
	})
}

// Redelivery says what is to be delivered again: one delivery, or those that have ended of events from an instant on.
type Redelivery struct {
	Delivery *uuid.UUID
	From     *time.Time     // nil: as long as they are kept
	Status   DeliveryStatus // [DeliveryDone] or [DeliveryDead]; "": both
}

// Redelivered says how many deliveries will be made again, and whether there are more that should be.
type Redelivered struct {
	Redelivered int  `json:"redelivered"`
	More        bool `json:"more" doc:"Ask again for the rest"`
}

// againSQL takes ended deliveries out of the history, to be delivered again. They keep their order, so they come before what waits
// of the same topic.
const againSQL = `
WITH picked AS MATERIALIZED (
	SELECT id, finished_at FROM inventory.delivery_history
	 WHERE subscription_id = $1 AND id >= $2 AND id <= $3 AND $4 IN ('', status) ORDER BY n LIMIT $5 FOR UPDATE
), gone AS (
	DELETE FROM inventory.delivery_history h USING picked p
	 WHERE h.subscription_id = $1 AND h.id = p.id AND h.finished_at = p.finished_at RETURNING h.*
), made AS (
	INSERT INTO inventory.deliveries (id, subscription_id, topic, n, event, payload, attempts, created_at, status_code, error)
	SELECT id, subscription_id, topic, n, event, payload, attempts, created_at, status_code, error FROM gone
	RETURNING topic
)
SELECT array_agg(topic) FROM made`

// Redeliver delivers again; the deliveries keep their ids. One that waits still is attempted at once. It fails with
// [ErrSubscriptionNotFound], [ErrDeliveryNotFound] or [ErrInvalid].
func (s *Store) Redeliver(ctx context.Context, c Caller, subscription uuid.UUID, r Redelivery) (Redelivered, bool, error) {
	if r.Delivery != nil && (r.From != nil || r.Status != "") {
		return Redelivered{}, false, invalid("delivery_id", "can't be combined with from or status")
	}
	first, last := uuid.Nil, uuid.Max
	switch {
	case r.Delivery != nil:
		first, last = *r.Delivery, *r.Delivery
	case r.From != nil:
		first = pg.FirstID(*r.From)
	}
	return command(ctx, s, c, func(tx pgx.Tx) (out Redelivered, err error) {
		if err := lockSubscription(ctx, tx, c.Tenant, subscription); err != nil {
			return out, err
		}
		var topics []string
		if err := tx.QueryRow(ctx, againSQL, subscription, first, last, string(r.Status), maxRedelivered).Scan(&topics); err != nil {
			return out, err
		}
		out = Redelivered{len(topics), len(topics) == maxRedelivered}
		if r.Delivery != nil && len(topics) == 0 {
			var topic string
			err := tx.QueryRow(ctx, `SELECT topic FROM inventory.deliveries WHERE subscription_id = $1 AND id = $2`, subscription, *r.Delivery).Scan(&topic)
			if errors.Is(err, pgx.ErrNoRows) {
				err = ErrDeliveryNotFound
			}
			if err != nil {
				return out, err
			}
			topics, out.Redelivered = []string{topic}, 1
		}
		if _, err := tx.Exec(ctx, hurrySQL, subscription, topics); err != nil {
			return out, err
		}
		return out, s.clock.InTime(ctx, tx, c.Deadline)
	})
}

// hurrySQL makes topics due, unless an attempt is under way, and the subscription ready for them.
const hurrySQL = `
WITH ready AS (UPDATE inventory.subscriptions SET retry_at = '-infinity' WHERE id = $1 AND retry_at > clock_timestamp())
INSERT INTO inventory.delivery_topics AS t (subscription_id, topic)
SELECT DISTINCT $1::uuid, topic FROM unnest($2::text[]) AS topic ORDER BY 2
ON CONFLICT (subscription_id, topic) DO UPDATE SET due_at = clock_timestamp() WHERE t.token IS NULL AND t.due_at > clock_timestamp()`

// lockSubscription keeps the subscription from being deleted.
func lockSubscription(ctx context.Context, tx pgx.Tx, tenant string, id uuid.UUID) error {
	tag, err := tx.Exec(ctx, `SELECT 1 FROM inventory.subscriptions WHERE tenant = $1 AND id = $2 FOR KEY SHARE`, tenant, id)
	if err == nil && tag.RowsAffected() == 0 {
		err = ErrSubscriptionNotFound
	}
	return err
}

// giveUpSQL ends deliveries that have been tried for long enough, unless an attempt is under way.
const giveUpSQL = `
WITH old AS MATERIALIZED (
	SELECT id FROM inventory.deliveries d
	 WHERE queued_at <= (SELECT clock_timestamp()) - $1::interval
	   AND NOT EXISTS (SELECT 1 FROM inventory.delivery_topics t
	                    WHERE t.subscription_id = d.subscription_id AND t.topic = d.topic AND t.token IS NOT NULL AND t.due_at > clock_timestamp())
	 ORDER BY queued_at LIMIT 1000 FOR UPDATE SKIP LOCKED
), gone AS (
	DELETE FROM inventory.deliveries d USING old WHERE d.id = old.id RETURNING d.*
)
INSERT INTO inventory.delivery_history (id, subscription_id, topic, n, event, payload, status, attempts, created_at, status_code, error)
SELECT id, subscription_id, topic, n, event, payload, 'dead', attempts, created_at, status_code, coalesce(error, 'never attempted: the subscription was paused, or its receiver kept failing')
  FROM gone`

// GiveUpDeliveries ends up to a thousand deliveries that have waited for three days, and says how many. Replicas may
// call it at once.
func (s *Store) GiveUpDeliveries(ctx context.Context) (gone int64, err error) {
	tag, err := s.pool.Exec(ctx, giveUpSQL, deliveryAge)
	return tag.RowsAffected(), err
}

// fillSQL marks the subscriptions for which too much waits, and unmarks those for which it no longer does.
const fillSQL = `
UPDATE inventory.subscriptions s SET full_since = CASE WHEN c.over THEN clock_timestamp() END
  FROM (SELECT id, EXISTS (SELECT 1 FROM inventory.deliveries d WHERE d.subscription_id = u.id OFFSET $1) AS over FROM inventory.subscriptions u) c
 WHERE s.id = c.id AND c.over <> (s.full_since IS NOT NULL)`

// boundDeliveries stops the collecting of events for subscriptions that have more waiting than they may, and takes it up again.
func (s *Store) boundDeliveries(ctx context.Context, most int) error {
	_, err := s.pool.Exec(ctx, fillSQL, most)
	return err
}
