package inventory

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"holdfast/internal/pg"
	"holdfast/webhook"
)

const (
	// settleBatch bounds the results that one transaction stores.
	settleBatch = 200
	// settleFor is how long storing them is tried, within the leases; what isn't stored is delivered again.
	settleFor = 15 * time.Second
	// settlePause is the pause between two tries.
	settlePause = 100 * time.Millisecond
)

// settleAll stores results until there are no more: those that came in meanwhile together.
func (c *courier) settleAll(ctx context.Context) {
	for a := range c.done {
		batch := []*attempt{a}
	more:
		for len(batch) < settleBatch {
			select {
			case a, ok := <-c.done:
				if !ok {
					break more
				}
				batch = append(batch, a)
			default:
				break more
			}
		}
		c.trySettle(ctx, batch)
		for _, a := range batch {
			c.store.attempted.WithLabelValues(string(a.result.Outcome)).Inc()
			c.landed(a)
		}
		c.ring()
	}
}

func (c *courier) trySettle(ctx context.Context, batch []*attempt) {
	ctx, cancel := context.WithTimeout(ctx, settleFor)
	defer cancel()
	for first := true; ; first = false {
		err := c.store.settleAttempts(ctx, batch)
		if err == nil {
			return
		}
		if first {
			c.log.Error("can't store what came of deliveries, trying again", "deliveries", len(batch), "error", err)
		}
		select {
		case <-ctx.Done():
			c.log.Error("what came of deliveries wasn't stored: they will be made again", "deliveries", len(batch))
			return
		case <-time.After(settlePause):
		}
	}
}

// lockLeasesSQL finds, and locks, the topics whose lease is still the attempt's.
const lockLeasesSQL = `
SELECT w.i
  FROM inventory.delivery_topics t
  JOIN unnest($1::uuid[], $2::text[], $3::uuid[]) WITH ORDINALITY AS w(subscription_id, topic, token, i)
    ON t.subscription_id = w.subscription_id AND t.topic = w.topic AND t.token = w.token
 ORDER BY t.subscription_id, t.topic FOR UPDATE OF t`

// finishDeliveriesSQL moves what has arrived, or can't, to the history, and of the rest what has been tried for long enough.
const finishDeliveriesSQL = `
WITH gone AS (
	DELETE FROM inventory.deliveries d USING unnest($1::uuid[], $2::text[], $3::int[], $4::text[]) AS w(id, status, code, error)
	 WHERE d.id = w.id AND (w.status <> 'waiting' OR d.queued_at <= clock_timestamp() - $5::interval)
	RETURNING d.*, w.status, w.code AS new_code, w.error AS new_error
)
INSERT INTO inventory.delivery_history (id, subscription_id, topic, n, event, payload, status, attempts, created_at, status_code, error)
SELECT id, subscription_id, topic, n, event, payload, CASE WHEN status = 'waiting' THEN 'dead' ELSE status END,
       attempts + 1, created_at, nullif(new_code, 0), nullif(new_error, '')
  FROM gone`

const retryDeliveriesSQL = `
UPDATE inventory.deliveries d SET attempts = d.attempts + 1, status_code = nullif(w.code, 0), error = nullif(w.error, '')
  FROM unnest($1::uuid[], $2::text[], $3::int[], $4::text[]) AS w(id, status, code, error)
 WHERE d.id = w.id AND w.status = 'waiting'`

// freeTopicsSQL ends the leases. What failed is due again after its delay, if it is still there.
const freeTopicsSQL = `
UPDATE inventory.delivery_topics t
   SET token = NULL,
       due_at = clock_timestamp() + CASE WHEN EXISTS (SELECT 1 FROM inventory.deliveries d WHERE d.id = w.delivery)
                                         THEN make_interval(secs => w.delay) ELSE interval '0' END
  FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::float8[]) AS w(subscription_id, topic, delivery, delay)
 WHERE t.subscription_id = w.subscription_id AND t.topic = w.topic`

// judgeSQL keeps account of the receivers. Successes that follow one another are noted once a second.
const judgeSQL = `
UPDATE inventory.subscriptions s
   SET failures        = w.failures,
       retry_at        = greatest(CASE WHEN NOT w.ok THEN s.retry_at ELSE '-infinity' END,
                                  clock_timestamp() + make_interval(secs => w.asked),
                                  CASE WHEN w.failures >= $7 THEN clock_timestamp() + make_interval(secs => least(300, 5 * power(2, least(w.failures - $7, 10)))) END),
       last_success_at = CASE WHEN w.ok THEN clock_timestamp() ELSE s.last_success_at END,
       last_error      = coalesce(nullif(w.error, ''), s.last_error),
       last_error_at   = CASE WHEN w.error <> '' THEN clock_timestamp() ELSE s.last_error_at END,
       paused_at       = CASE WHEN w.gone THEN coalesce(s.paused_at, clock_timestamp()) ELSE s.paused_at END,
       pause_reason    = CASE WHEN w.gone THEN coalesce(s.pause_reason, '` + reasonGone + `') ELSE s.pause_reason END
  FROM (SELECT u.id, w.ok, w.asked, w.error, w.gone, CASE WHEN w.ok THEN 0 ELSE u.failures + w.failed END AS failures
          FROM unnest($1::uuid[], $2::bool[], $3::int[], $4::float8[], $5::text[], $6::bool[]) AS w(id, ok, failed, asked, error, gone)
          JOIN inventory.subscriptions u ON u.id = w.id ORDER BY u.id FOR UPDATE OF u) w
 WHERE s.id = w.id AND (w.error <> '' OR s.failures > 0 OR s.last_success_at IS NULL OR s.last_success_at < clock_timestamp() - interval '1 s')`

// settleAttempts stores what came of attempts whose leases still stand; of the others it changes nothing.
func (s *Store) settleAttempts(ctx context.Context, batch []*attempt) error {
	return pg.InTx(ctx, s.pool, pg.TxOptions{RepeatUnknown: true}, func(tx pgx.Tx) error {
		ours, err := stillLeased(ctx, tx, batch)
		if err != nil || len(ours) == 0 {
			return err
		}
		n := len(ours)
		subscriptions, topics, deliveries, delays := make([]uuid.UUID, n), make([]string, n), make([]uuid.UUID, n), make([]float64, n)
		var ended []uuid.UUID
		var statuses, errs []string
		var codes []int
		for i, a := range ours {
			subscriptions[i], topics[i], deliveries[i] = a.subscription, a.topic, a.delivery
			if a.result.Outcome == webhook.Cancelled {
				continue // stopped by a drain: it doesn't count
			}
			status := a.status()
			if status == DeliveryWaiting {
				delays[i] = a.delay().Seconds()
			}
			ended, statuses = append(ended, a.delivery), append(statuses, string(status))
			codes, errs = append(codes, a.result.StatusCode), append(errs, a.errorText())
		}
		var store pgx.Batch
		store.Queue(finishDeliveriesSQL, ended, statuses, codes, errs, deliveryAge)
		store.Queue(retryDeliveriesSQL, ended, statuses, codes, errs)
		store.Queue(dropTopicsSQL, subscriptions, topics)
		store.Queue(freeTopicsSQL, subscriptions, topics, deliveries, delays)
		queueJudgements(&store, ours)
		return tx.SendBatch(ctx, &store).Close()
	})
}

func stillLeased(ctx context.Context, tx pgx.Tx, batch []*attempt) ([]*attempt, error) {
	n := len(batch)
	subscriptions, topics, tokens := make([]uuid.UUID, n), make([]string, n), make([]uuid.UUID, n)
	for i, a := range batch {
		subscriptions[i], topics[i], tokens[i] = a.subscription, a.topic, a.token
	}
	rows, err := tx.Query(ctx, lockLeasesSQL, subscriptions, topics, tokens)
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	ours := make([]*attempt, len(found))
	for i, at := range found {
		ours[i] = batch[at-1]
	}
	return ours, err
}

// status is what becomes of the delivery. Whatever a receiver answers but success may be a fault that it is
// about to mend, so it is asked again; what can't be sent is not.
func (a *attempt) status() DeliveryStatus {
	switch {
	case a.result.Class == webhook.ClassSuccess, a.result.Class == webhook.ClassAccepted:
		return DeliveryDone
	case a.result.Outcome == webhook.TargetForbidden, a.result.Outcome == webhook.InvalidRequest && a.result.Class == webhook.ClassFinal:
		return DeliveryDead
	}
	return DeliveryWaiting
}

func (a *attempt) errorText() string {
	if a.status() == DeliveryDone {
		return ""
	}
	return string(a.result.Outcome) + ": " + a.result.Error
}

// delay is how long the delivery waits for its next attempt. One whose subscription is paused by the
// answer needn't wait when that ends.
func (a *attempt) delay() time.Duration {
	if a.result.Class == webhook.ClassGone {
		return 0
	}
	return deliverBackoff.Delay(a.attempts+1, a.result.RetryAfter, rand.Float64())
}

// judgement is what some attempts say of a receiver.
type judgement struct {
	ok, gone bool
	failed   int
	asked    time.Duration // to be left alone
	err      string
}

func queueJudgements(store *pgx.Batch, ours []*attempt) {
	of := map[uuid.UUID]*judgement{}
	for _, a := range ours {
		if a.result.Outcome == webhook.Cancelled {
			continue
		}
		j := of[a.subscription]
		if j == nil {
			j = &judgement{}
			of[a.subscription] = j
		}
		if a.status() == DeliveryDone {
			j.ok = true
			continue
		}
		j.failed++
		j.err = a.errorText()
		j.asked = max(j.asked, a.result.RetryAfter)
		j.gone = j.gone || a.result.Class == webhook.ClassGone
	}
	if len(of) == 0 {
		return
	}
	var ids []uuid.UUID
	var oks, gones []bool
	var failed []int
	var asked []float64
	var errs []string
	for _, id := range slices.SortedFunc(maps.Keys(of), compareIDs) {
		j := of[id]
		ids, oks, gones = append(ids, id), append(oks, j.ok), append(gones, j.gone)
		failed, asked, errs = append(failed, j.failed), append(asked, j.asked.Seconds()), append(errs, j.err)
	}
	store.Queue(judgeSQL, ids, oks, failed, asked, errs, gones, breakAfter)
}
