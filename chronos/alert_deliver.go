package chronos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"holdfast/chronos/alert"
	"holdfast/internal/pg"
	"holdfast/webhook"
)

const (
	// alertTimeout bounds one attempt to deliver an alert.
	alertTimeout = 10 * time.Second
	// alertLease is how long an alert is leased for an attempt and the storing of its result; after a crash it is
	// attempted again so much later.
	alertLease = 30 * time.Second
	// alertEvery is how often a replica looks for alerts that are due.
	alertEvery = 500 * time.Millisecond
	// alertsInFlight bounds the attempts that a replica has under way, alertShare those to one URL.
	alertsInFlight = 64
	alertShare     = 4
	// alertAge is how long an alert is tried to be delivered.
	alertAge = 72 * time.Hour
)

// alertBackoff parts the attempts of one alert.
var alertBackoff = webhook.Backoff{Base: 5 * time.Second, Max: time.Hour}

// herald delivers the alerts that are due, on one replica.
type herald struct {
	store  *Store
	client *webhook.Client
	log    *slog.Logger
	landed chan struct{} // there is room again

	mu    sync.Mutex
	going map[string]int // attempts under way, by URL
	total int
}

func newHerald(s *Store, client *webhook.Client, log *slog.Logger) *herald {
	return &herald{store: s, client: client, log: log, landed: make(chan struct{}, 1), going: map[string]int{}}
}

// telling is an alert that is leased.
type telling struct {
	id, token    uuid.UUID
	tenant, url  string
	source, kind string
	monitor      bool
	payload      string
	attempts     int // before this one
	secrets      []webhook.Secret
}

// run delivers until ctx ends. Attempts that are under way then have their time, or what the drain leaves of it.
func (h *herald) run(ctx context.Context, drain time.Duration) error {
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var attempts sync.WaitGroup
	failing := false
	for ctx.Err() == nil {
		claimed, err := h.claim(ctx)
		for _, t := range claimed {
			attempts.Go(func() { h.tell(sending, t) })
		}
		if err != nil && ctx.Err() == nil && !failing {
			h.log.Error("can't take up alerts, trying again", "error", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
		case <-h.landed:
		case <-time.After(alertEvery):
		}
	}
	timer := time.AfterFunc(drain, stop)
	defer timer.Stop()
	attempts.Wait()
	return nil
}

// leaseAlertsSQL leases alerts that are due, the longest due first, for each URL as many as it may still have under way
// here. What another replica is just leasing is passed over; that an alert is due stands in the UPDATE too.
const leaseAlertsSQL = `
WITH due AS MATERIALIZED (
	SELECT a.n, row_number() OVER (PARTITION BY a.url ORDER BY a.due_at) + coalesce(g.going, 0) AS nth FROM (
		SELECT n, url, due_at FROM chronos.alerts
		 WHERE status = 'pending' AND due_at <= (SELECT clock_timestamp()) AND url <> ALL($5)
		 ORDER BY due_at LIMIT 500 FOR UPDATE SKIP LOCKED) a
	  LEFT JOIN unnest($1::text[], $2::bigint[]) AS g(url, going) ON g.url = a.url),
picked AS MATERIALIZED (SELECT n FROM due WHERE nth <= $3 LIMIT $4)
UPDATE chronos.alerts a SET due_at = clock_timestamp() + $6::interval, token = gen_random_uuid()
  FROM picked p WHERE a.n = p.n AND a.status = 'pending' AND a.due_at <= clock_timestamp()
RETURNING a.id, a.token, a.tenant, a.url, a.source, a.kind, a.monitor_id IS NOT NULL, a.payload, a.attempts`

// claim leases what is due, as much as there is room for.
func (h *herald) claim(ctx context.Context) (claimed []*telling, err error) {
	h.mu.Lock()
	room, urls, going, full := alertsInFlight-h.total, []string{}, []int64{}, []string{}
	for url, n := range h.going {
		urls, going = append(urls, url), append(going, int64(n))
		if n >= alertShare {
			full = append(full, url)
		}
	}
	h.mu.Unlock()
	if room <= 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	err = pg.InTx(ctx, h.store.pool, pg.TxOptions{}, func(tx pgx.Tx) error {
		claimed = nil
		rows, err := tx.Query(ctx, leaseAlertsSQL, urls, going, alertShare, room, full, alertLease)
		if err != nil {
			return err
		}
		claimed, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (*telling, error) {
			t := &telling{}
			return t, row.Scan(&t.id, &t.token, &t.tenant, &t.url, &t.source, &t.kind, &t.monitor, &t.payload, &t.attempts)
		})
		if err != nil || len(claimed) == 0 {
			return err
		}
		var tenants []string
		for _, t := range claimed {
			tenants = append(tenants, t.tenant)
		}
		secrets, err := signingSecrets(ctx, tx, tenants)
		for _, t := range claimed {
			t.secrets = secrets[t.tenant]
		}
		return err
	})
	if err != nil {
		return nil, err // a lease of unknown fate ends by itself
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range claimed {
		h.going[t.url]++
		h.total++
	}
	return claimed, nil
}

// tell makes one attempt and stores what came of it.
func (h *herald) tell(ctx context.Context, t *telling) {
	defer func() {
		if p := recover(); p != nil {
			h.log.Error("an alert panicked", "alert", t.id, "panic", p, "stack", string(debug.Stack()))
		}
		h.mu.Lock()
		if h.going[t.url]--; h.going[t.url] == 0 {
			delete(h.going, t.url)
		}
		h.total--
		h.mu.Unlock()
		select {
		case h.landed <- struct{}{}:
		default:
		}
	}()
	own := map[string]string{"Chronos-Alert": t.kind, "Chronos-Attempt": strconv.Itoa(t.attempts + 1)}
	if t.monitor {
		own["Chronos-Monitor"] = t.source
	} else {
		own["Chronos-Job"] = t.source
	}
	result := h.client.Send(ctx, webhook.Request{
		URL: t.url, Method: "POST", Body: []byte(t.payload), Timeout: alertTimeout,
		ID: t.id.String(), Timestamp: h.store.Now(), Secrets: t.secrets, Own: own,
	})
	h.store.metrics.alertAttempts.WithLabelValues(string(result.Outcome)).Inc()
	h.settle(context.WithoutCancel(ctx), t, result)
}

// settle stores the result, again and again until it is stored or the lease is nearly over; then the alert is sent again.
func (h *herald) settle(ctx context.Context, t *telling, r webhook.Result) {
	ctx, cancel := context.WithTimeout(ctx, alertLease-alertTimeout)
	defer cancel()
	for pause := settlePause; ; pause = min(2*pause, time.Second) {
		status, err := h.store.settleAlert(ctx, t, r)
		if err == nil {
			if status != "" && status != AlertPending {
				h.store.metrics.alerts.WithLabelValues(string(status)).Inc()
			}
			if status == AlertFailed {
				h.log.Warn("an alert could not be delivered", "alert", t.id, "source", t.source, "kind", t.kind, "outcome", r.Outcome)
			}
			return
		}
		if !pg.Unavailable(err) && ctx.Err() == nil {
			h.log.Error("can't store what came of an alert", "alert", t.id, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// settleAlertSQL is fenced by the token and the lease. What has been tried for too long is given up; an attempt that a
// drain stopped doesn't count, and is due at once.
const settleAlertSQL = `
UPDATE chronos.alerts a
   SET status = f.status, token = NULL, attempts = a.attempts + CASE WHEN $3 THEN 0 ELSE 1 END,
       due_at = clock_timestamp() + CASE WHEN f.status = 'pending' THEN $6::interval ELSE interval '0' END,
       finished_at = CASE WHEN f.status <> 'pending' THEN clock_timestamp() END,
       status_code = CASE WHEN $3 THEN a.status_code ELSE nullif($5, 0) END, error = CASE WHEN $3 THEN a.error ELSE nullif($7, '') END
  FROM (SELECT id, CASE WHEN $4 = 'pending' AND queued_at <= clock_timestamp() - $8::interval THEN 'failed' ELSE $4 END AS status
          FROM chronos.alerts WHERE id = $1) f
 WHERE a.id = f.id AND a.id = $1 AND a.token = $2 AND a.status = 'pending' AND a.due_at > clock_timestamp()
RETURNING a.status`

// settleAlert says what has become of the alert; "" if the lease was over, and nothing changed.
func (s *Store) settleAlert(ctx context.Context, t *telling, r webhook.Result) (status AlertStatus, err error) {
	var delay time.Duration
	text, stopped := fmt.Sprintf("%s: %s", r.Outcome, r.Error), r.Outcome == webhook.Cancelled
	switch {
	case r.Class == webhook.ClassSuccess, r.Class == webhook.ClassAccepted:
		status, text = AlertDelivered, ""
	case r.Class == webhook.ClassGone, r.Outcome == webhook.TargetForbidden, r.Outcome == webhook.InvalidRequest:
		status = AlertFailed // asking again would be of no use
	default:
		// Whatever else a receiver answers may be a fault that it is about to mend.
		status = AlertPending
		if !stopped {
			delay = alertBackoff.Delay(t.attempts+1, r.RetryAfter, rand.Float64())
		}
	}
	err = pg.InTx(ctx, s.pool, pg.TxOptions{RepeatUnknown: true}, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, settleAlertSQL, t.id, t.token, stopped, string(status), r.StatusCode, delay, text, alertAge).Scan(&status)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return status, err
}

// dropAlerts forgets old alerts, and outages that no monitor can have been waiting in any more.
func (s *Service) dropAlerts(ctx context.Context) (more bool, err error) {
	if err := dropOutages(ctx, s.cfg.Pool); err != nil {
		return false, err
	}
	return dropAlerts(ctx, s.cfg.Pool, s.cfg.Keep)
}

const (
	// lateEvery is how often a replica looks for runs that haven't begun in time.
	lateEvery = time.Second
	lateBatch = 500
)

// watchLate tells of runs that haven't begun in time, whether anybody polls for them or not.
func (s *Service) watchLate(ctx context.Context) (more bool, err error) {
	looked := 0
	err = pg.InTx(ctx, s.cfg.Pool, pg.TxOptions{}, func(tx pgx.Tx) (err error) {
		looked, err = alert.FindLate(ctx, tx, lateBatch)
		return err
	})
	return looked == lateBatch, err
}

// pendingShown bounds what is looked at of the alerts that wait.
const pendingShown = 1000

// watchAlerts measures the alerts that wait to be delivered.
func (s *Service) watchAlerts(ctx context.Context) (more bool, err error) {
	rows, err := s.cfg.Pool.Query(ctx, `SELECT clock_timestamp() - queued_at FROM chronos.alerts WHERE status = 'pending' ORDER BY due_at LIMIT $1`, pendingShown)
	if err != nil {
		return false, err
	}
	ages, err := pgx.CollectRows(rows, pgx.RowTo[time.Duration])
	if err != nil {
		return false, err
	}
	oldest := time.Duration(0)
	for _, age := range ages {
		oldest = max(oldest, age)
	}
	s.store.metrics.alertsPending.Set(float64(len(ages)))
	s.store.metrics.alertsOldest.Set(oldest.Seconds())
	return false, nil
}
