package inventory

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"holdfast/internal/pg"
	"holdfast/webhook"
)

const (
	// deliverTimeout bounds one attempt.
	deliverTimeout = 10 * time.Second
	// deliverLease is how long a topic is leased for one attempt and the storing of its result; after a
	// crash it is attempted again so much later.
	deliverLease = 30 * time.Second
	// deliverEvery is how often a replica looks for deliveries that are due; it is woken when it makes some.
	deliverEvery = 200 * time.Millisecond
	// deliverAtOnce bounds the attempts that a replica has under way, deliverShare those of one subscription:
	// receivers that don't answer can't keep the others' deliveries waiting.
	deliverAtOnce = 512
	deliverShare  = 16
	// breakAfter is how many attempts fail in a row before a subscription as a whole is held back. From
	// then on one attempt at a time finds out whether its receiver is there again.
	breakAfter = 5
)

// deliverBackoff parts the attempts of one delivery.
var deliverBackoff = webhook.Backoff{Base: 5 * time.Second, Max: time.Hour}

// attempt is a topic that is leased, with its first delivery.
type attempt struct {
	subscription uuid.UUID
	topic        string
	token        uuid.UUID
	tenant, url  string
	delivery     uuid.UUID
	event        string
	payload      string
	attempts     int // before this one
	secrets      []webhook.Secret
	result       webhook.Result
}

// courier delivers what is due, on one replica.
type courier struct {
	store *Store
	log   *slog.Logger
	wake  chan struct{} // something may be due
	done  chan *attempt // attempts that have a result

	mu    sync.Mutex
	going map[uuid.UUID]int // attempts under way, by subscription

	secrets map[string]knownSecrets // by tenant; claim's alone
}

// knownSecrets are a tenant's, as they were a moment ago: one that was replaced since signs on for a day anyway.
type knownSecrets struct {
	secrets []webhook.Secret
	until   time.Time
}

// secretsLast is how long secrets are taken as known.
const secretsLast = 5 * time.Second

func newCourier(s *Store, log *slog.Logger) *courier {
	return &courier{
		store: s, log: log, wake: make(chan struct{}, 1), done: make(chan *attempt, deliverAtOnce),
		going: map[uuid.UUID]int{}, secrets: map[string]knownSecrets{},
	}
}

func (c *courier) ring() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run delivers until ctx ends. Attempts that are under way then have their time, or what the drain leaves of it.
func (c *courier) run(ctx context.Context, drain time.Duration) error {
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		c.settleAll(context.WithoutCancel(ctx))
	}()
	var attempts sync.WaitGroup
	c.lead(ctx, func(a *attempt) { attempts.Go(func() { c.send(sending, a) }) })
	timer := time.AfterFunc(drain, stop)
	attempts.Wait()
	timer.Stop()
	close(c.done)
	<-settled
	return nil
}

// lead claims what is due and hands it out.
func (c *courier) lead(ctx context.Context, start func(*attempt)) {
	failing := false
	for ctx.Err() == nil {
		claimed, err := c.claim(ctx)
		for _, a := range claimed {
			start(a)
		}
		if err != nil && ctx.Err() == nil && !failing {
			c.log.Error("can't take up deliveries, trying again", "error", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
		case <-c.wake:
		case <-time.After(deliverEvery):
		}
	}
}

// leaseTopicsSQL leases topics that are due, the longest due first, for each subscription as many as it may still have
// under way here. Topics that another replica is just leasing are passed over.
const leaseTopicsSQL = `
WITH free AS MATERIALIZED (
	SELECT t.subscription_id, t.topic
	  FROM inventory.subscriptions s
	  LEFT JOIN unnest($1::uuid[], $2::bigint[]) AS g(id, going) ON g.id = s.id
	 CROSS JOIN LATERAL (
		SELECT t.subscription_id, t.topic, t.due_at FROM inventory.delivery_topics t
		 WHERE t.subscription_id = s.id AND t.due_at <= (SELECT clock_timestamp())
		 ORDER BY t.due_at LIMIT greatest(CASE WHEN s.failures < $5 THEN $3::bigint ELSE 1 END - coalesce(g.going, 0), 0)
		   FOR UPDATE SKIP LOCKED
	 ) t
	 WHERE s.paused_at IS NULL AND s.retry_at <= clock_timestamp()
	 ORDER BY t.due_at LIMIT $4
)
UPDATE inventory.delivery_topics t SET due_at = clock_timestamp() + $6::interval, token = $7
  FROM free f WHERE t.subscription_id = f.subscription_id AND t.topic = f.topic
RETURNING t.subscription_id, t.topic`

// firstDeliveriesSQL reads the first delivery of each topic. It comes after the lease, since a lease that
// waited for nobody may still be of a topic whose first delivery has just ended.
const firstDeliveriesSQL = `
SELECT w.subscription_id, w.topic, s.tenant, s.url, d.id, coalesce(d.event, ''), coalesce(d.payload, ''), coalesce(d.attempts, 0)
  FROM unnest($1::uuid[], $2::text[]) AS w(subscription_id, topic)
  JOIN inventory.subscriptions s ON s.id = w.subscription_id
  LEFT JOIN LATERAL (SELECT * FROM inventory.deliveries d WHERE d.subscription_id = w.subscription_id AND d.topic = w.topic ORDER BY d.n LIMIT 1) d ON true`

// dropTopicsSQL drops topics that have nothing left. The caller has locked them, so nobody can be adding to them.
const dropTopicsSQL = `
DELETE FROM inventory.delivery_topics t USING unnest($1::uuid[], $2::text[]) AS w(subscription_id, topic)
 WHERE t.subscription_id = w.subscription_id AND t.topic = w.topic
   AND NOT EXISTS (SELECT 1 FROM inventory.deliveries d WHERE d.subscription_id = t.subscription_id AND d.topic = t.topic)`

// claim leases what is due, as much as there is room for.
func (c *courier) claim(ctx context.Context) ([]*attempt, error) {
	c.mu.Lock()
	room := deliverAtOnce
	subscriptions, going := slices.Collect(maps.Keys(c.going)), []int64{}
	for _, id := range subscriptions {
		room -= c.going[id]
		going = append(going, int64(c.going[id]))
	}
	c.mu.Unlock()
	if room <= 0 {
		return nil, nil
	}
	token := uuid.New()
	var claimed []*attempt
	err := pg.InTx(ctx, c.store.pool, pg.TxOptions{}, func(tx pgx.Tx) error {
		claimed = nil
		rows, err := tx.Query(ctx, leaseTopicsSQL, subscriptions, going, deliverShare, room, breakAfter, deliverLease, token)
		if err != nil {
			return err
		}
		var ids []uuid.UUID
		var topics []string
		var id uuid.UUID
		var topic string
		_, err = pgx.ForEachRow(rows, []any{&id, &topic}, func() error {
			ids, topics = append(ids, id), append(topics, topic)
			return nil
		})
		if err != nil || len(ids) == 0 {
			return err
		}
		claimed, err = c.read(ctx, tx, ids, topics, token)
		return err
	})
	if err != nil {
		return nil, err // a lease of unknown fate ends by itself
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range claimed {
		c.going[a.subscription]++
	}
	return claimed, nil
}

// read finds what is to be sent of leased topics, and with which secrets.
func (c *courier) read(ctx context.Context, tx pgx.Tx, ids []uuid.UUID, topics []string, token uuid.UUID) ([]*attempt, error) {
	rows, err := tx.Query(ctx, firstDeliveriesSQL, ids, topics)
	if err != nil {
		return nil, err
	}
	var claimed []*attempt
	a := attempt{token: token}
	var delivery *uuid.UUID
	_, err = pgx.ForEachRow(rows, []any{&a.subscription, &a.topic, &a.tenant, &a.url, &delivery, &a.event, &a.payload, &a.attempts}, func() error {
		if delivery != nil {
			one := a
			one.delivery = *delivery
			claimed = append(claimed, &one)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(claimed) < len(ids) {
		if _, err := tx.Exec(ctx, dropTopicsSQL, ids, topics); err != nil {
			return nil, err
		}
	}
	if len(c.secrets) > 1000 {
		clear(c.secrets)
	}
	for _, a := range claimed {
		if known, ok := c.secrets[a.tenant]; ok && time.Now().Before(known.until) {
			continue
		}
		secrets, err := signingSecrets(ctx, tx, a.tenant)
		if err != nil {
			return nil, err
		}
		c.secrets[a.tenant] = knownSecrets{secrets, time.Now().Add(secretsLast)}
	}
	for _, a := range claimed {
		a.secrets = c.secrets[a.tenant].secrets
	}
	return claimed, nil
}

// send makes the attempt; its result goes to who settles it.
func (c *courier) send(ctx context.Context, a *attempt) {
	defer func() {
		if p := recover(); p != nil {
			c.log.Error("a delivery panicked", "delivery", a.delivery, "panic", p, "stack", string(debug.Stack()))
			a.result = webhook.Result{Outcome: webhook.InvalidRequest, Class: webhook.ClassRetry, Error: fmt.Sprint(p)}
		}
		c.done <- a
	}()
	a.result = c.store.client.Send(ctx, webhook.Request{
		URL: a.url, Method: "POST", Body: []byte(a.payload), Timeout: deliverTimeout,
		ID: a.delivery.String(), Timestamp: c.store.Now(), Secrets: a.secrets,
		Own: map[string]string{"Holdfast-Event": a.event, "Holdfast-Attempt": strconv.Itoa(a.attempts + 1), "Holdfast-Subscription": a.subscription.String()},
	})
}

// landed makes room for another attempt of the subscription.
func (c *courier) landed(a *attempt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.going[a.subscription]--; c.going[a.subscription] == 0 {
		delete(c.going, a.subscription)
	}
}
