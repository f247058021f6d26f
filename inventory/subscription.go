package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"holdfast/internal/pg"
	"holdfast/webhook"
)

// Subscription is an address that events are delivered to.
type Subscription struct {
	ID          uuid.UUID  `json:"id"`
	URL         string     `json:"url"`
	Events      []string   `json:"events" nullable:"false"`
	SKUs        []string   `json:"skus" doc:"Only what is about one of these; null: about any"`
	Description string     `json:"description,omitempty"`
	Paused      bool       `json:"paused"`
	PausedAt    *time.Time `json:"paused_at,omitempty"`
	PauseReason string     `json:"pause_reason,omitempty"`
	Failures    int        `json:"failures" doc:"Attempts that have failed since the last one that succeeded"`
	RetryAt     *time.Time `json:"retry_at,omitempty" doc:"Until then nothing is attempted, after many failures or because the receiver asked for it"`
	FullSince   *time.Time `json:"full_since,omitempty" doc:"Since when so much waits that new events aren't taken on"`
	LastSuccess *time.Time `json:"last_success_at,omitempty"`
	LastError   string     `json:"last_error,omitempty"`
	LastErrorAt *time.Time `json:"last_error_at,omitempty"`
	WaitsSince  *time.Time `json:"waits_since,omitempty" doc:"When the oldest delivery that waits was made"`
	CreatedAt   time.Time  `json:"created_at"`
	UpdatedAt   time.Time  `json:"updated_at"`
}

// What a subscription's commands may be refused for.
var (
	ErrSubscriptionNotFound = errors.New("no such subscription")
	ErrSubscriptionLimit    = errors.New("the tenant has as many subscriptions as it may have")
	ErrDeliveryNotFound     = errors.New("no such delivery; finished ones are kept for 7 days")
)

const (
	// maxSubscriptions is how many a tenant may have.
	maxSubscriptions = 100
	// maxFilter is how many SKUs a subscription may name.
	maxFilter = 1000
	// reasonAsked stands for a pause without a reason.
	reasonAsked = "paused on request"
	// reasonGone is why a subscription is paused whose receiver answered 410.
	reasonGone = "the receiver answered 410 Gone"
)

// subscriptionColumns is read by scanSubscription.
const subscriptionColumns = `id, url, events, skus, description, paused_at, coalesce(pause_reason, ''), failures,
	CASE WHEN retry_at > clock_timestamp() THEN retry_at END, full_since, last_success_at, coalesce(last_error, ''), last_error_at,
	(SELECT d.created_at FROM inventory.deliveries d WHERE d.subscription_id = s.id ORDER BY d.n LIMIT 1), created_at, updated_at`

func scanSubscription(row pgx.CollectableRow) (Subscription, error) {
	var u Subscription
	err := row.Scan(&u.ID, &u.URL, &u.Events, &u.SKUs, &u.Description, &u.PausedAt, &u.PauseReason, &u.Failures,
		&u.RetryAt, &u.FullSince, &u.LastSuccess, &u.LastError, &u.LastErrorAt, &u.WaitsSince, &u.CreatedAt, &u.UpdatedAt)
	u.Paused = u.PausedAt != nil
	u.CreatedAt, u.UpdatedAt = u.CreatedAt.UTC(), u.UpdatedAt.UTC()
	for _, at := range []*time.Time{u.PausedAt, u.RetryAt, u.FullSince, u.LastSuccess, u.LastErrorAt, u.WaitsSince} {
		if at != nil {
			*at = at.UTC()
		}
	}
	return u, err
}

// SubscriptionSettings are what a subscription is made with, or what of it changes.
type SubscriptionSettings struct {
	URL         Change[string]
	Events      Change[[]string]
	SKUs        Change[[]string] // nil: about any
	Description Change[string]
	Paused      Change[bool]
	PauseReason string // with Paused
}

// check refuses what can't be, and puts lists into their order.
func (u *SubscriptionSettings) check(guard *webhook.Guard) error {
	if u.URL.Set {
		if u.URL.Value == nil {
			return invalid("url", "can't be null")
		}
		if err := guard.CheckURL(*u.URL.Value); err != nil {
			var bad *webhook.FieldError
			if errors.As(err, &bad) && errors.Is(err, webhook.ErrInvalid) {
				return invalid("url", "%s", bad.Reason)
			}
			return err
		}
	}
	if u.Events.Set {
		if u.Events.Value == nil || len(*u.Events.Value) == 0 {
			return invalid("events", "must name at least one")
		}
		for i, e := range *u.Events.Value {
			if !slices.Contains(Events, e) {
				return invalid(fmt.Sprintf("events"+"[%d]", i), "must be one of %v", Events)
			}
		}
		u.Events.Value = sorted(*u.Events.Value)
	}
	if u.SKUs.Value != nil {
		if n := len(*u.SKUs.Value); n == 0 || n > maxFilter {
			return invalid("skus", "must name 1 to %d, or be left out for all", maxFilter)
		}
		for i, sku := range *u.SKUs.Value {
			if err := checkSKU(fmt.Sprintf("skus"+"[%d]", i), sku); err != nil {
				return err
			}
		}
		u.SKUs.Value = sorted(*u.SKUs.Value)
	}
	if u.Description.Value != nil {
		if err := checkText("description", *u.Description.Value, 255); err != nil {
			return err
		}
	}
	if u.Paused.Set && u.Paused.Value == nil {
		return invalid("paused", "can't be null")
	}
	return checkText("reason", u.PauseReason, 500)
}

func sorted(list []string) *[]string {
	list = slices.Clone(list)
	slices.Sort(list)
	list = slices.Compact(list)
	return &list
}

// Subscribe makes a subscription, to what is written to the ledger from now on. It fails with
// [ErrInvalid], [webhook.ErrTargetForbidden] or [ErrSubscriptionLimit].
func (s *Store) Subscribe(ctx context.Context, c Caller, u SubscriptionSettings) (Subscription, bool, error) {
	u.URL.Set, u.Events.Set = true, true
	if err := u.check(s.guard); err != nil {
		return Subscription{}, false, err
	}
	return command(ctx, s, c, func(tx pgx.Tx) (Subscription, error) {
		since, err := beginSubscription(ctx, tx, c.Tenant)
		if err != nil {
			return Subscription{}, err
		}
		id, err := pg.NewID(s.Now())
		if err != nil {
			return Subscription{}, err
		}
		_, err = tx.Exec(ctx, `INSERT INTO inventory.subscriptions (id, tenant, url, events, skus, description, since_seq) VALUES ($1, $2, $3, $4, $5, coalesce($6, ''), $7)`,
			id, c.Tenant, u.URL.Value, u.Events.Value, u.SKUs.Value, u.Description.Value, since)
		if err == nil {
			err = signer.Ensure(ctx, tx, c.Tenant)
		}
		if err == nil {
			err = s.clock.InTime(ctx, tx, c.Deadline)
		}
		if err != nil {
			return Subscription{}, err
		}
		return subscriptionByID(ctx, tx, c.Tenant, id)
	})
}

// beginSubscription finds out where the ledger stands. Whatever gets its number after that, and so
// every change that is asked for once the subscription has been answered, is for it.
//
// The first subscription of all starts the position anew, and the first of a tenant forgets what was
// announced long ago. Holding the position's row keeps deliveries from being made meanwhile.
func beginSubscription(ctx context.Context, tx pgx.Tx, tenant string) (since int64, err error) {
	if _, err := tx.Exec(ctx, `SELECT 1 FROM inventory.event_position FOR UPDATE`); err != nil {
		return 0, err
	}
	var all bool
	var own int
	err = tx.QueryRow(ctx, `SELECT CASE WHEN is_called THEN last_value ELSE 0 END, EXISTS (SELECT 1 FROM inventory.subscriptions),
		(SELECT count(*) FROM inventory.subscriptions WHERE tenant = $1) FROM inventory.ledger_seq`, tenant).Scan(&since, &all, &own)
	switch {
	case err != nil:
		return 0, err
	case own >= maxSubscriptions:
		return 0, ErrSubscriptionLimit
	case !all:
		_, err = tx.Exec(ctx, `UPDATE inventory.event_position SET seq = $1, gaps_from = '{}', gaps_to = '{}', gaps_before = '{}'`, since)
	}
	if err == nil && own == 0 {
		_, err = tx.Exec(ctx, `DELETE FROM inventory.stock_levels WHERE tenant = $1`, tenant)
	}
	return since, err
}

// GetSubscription reads one. It fails with [ErrSubscriptionNotFound].
func (s *Store) GetSubscription(ctx context.Context, tenant string, id uuid.UUID) (Subscription, error) {
	return subscriptionByID(ctx, s.pool, tenant, id)
}

func subscriptionByID(ctx context.Context, db executor, tenant string, id uuid.UUID) (Subscription, error) {
	rows, err := db.Query(ctx, `SELECT `+subscriptionColumns+` FROM inventory.subscriptions s WHERE tenant = $1 AND id = $2`, tenant, id)
	if err != nil {
		return Subscription{}, err
	}
	u, err := pgx.CollectExactlyOneRow(rows, scanSubscription)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrSubscriptionNotFound
	}
	return u, err
}

// ListSubscriptions reads up to limit, oldest first, from after the given one.
func (s *Store) ListSubscriptions(ctx context.Context, tenant string, after uuid.UUID, limit int) ([]Subscription, error) {
	rows, err := s.pool.Query(ctx, `SELECT `+subscriptionColumns+` FROM inventory.subscriptions s WHERE tenant = $1 AND id > $2 ORDER BY id LIMIT $3`,
		tenant, after, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanSubscription)
}

// changeSubscriptionSQL changes what was named. A pause keeps its first instant and reason; its end, and a new
// address, make a new beginning with the receiver.
const changeSubscriptionSQL = `
UPDATE inventory.subscriptions
   SET url          = CASE WHEN $3 THEN $4  ELSE url END,
       events       = CASE WHEN $5 THEN $6  ELSE events END,
       skus         = CASE WHEN $7 THEN $8  ELSE skus END,
       description  = CASE WHEN $9 THEN coalesce($10, '') ELSE description END,
       paused_at    = CASE WHEN NOT $11 THEN paused_at    WHEN $12 THEN coalesce(paused_at, clock_timestamp()) END,
       pause_reason = CASE WHEN NOT $11 THEN pause_reason WHEN $12 THEN coalesce(pause_reason, $13) END,
       failures     = CASE WHEN $3 OR $11 AND NOT $12 THEN 0 ELSE failures END,
       retry_at     = CASE WHEN $3 OR $11 AND NOT $12 THEN '-infinity' ELSE retry_at END,
       updated_at   = clock_timestamp()
 WHERE tenant = $1 AND id = $2`

// ChangeSubscription changes what is named of a subscription. While it is paused its events go on being
// collected. It fails with [ErrInvalid], [webhook.ErrTargetForbidden] or [ErrSubscriptionNotFound].
func (s *Store) ChangeSubscription(ctx context.Context, c Caller, id uuid.UUID, u SubscriptionSettings) (Subscription, bool, error) {
	if err := u.check(s.guard); err != nil {
		return Subscription{}, false, err
	}
	reason := u.PauseReason
	if reason == "" {
		reason = reasonAsked
	}
	pause := u.Paused.Value != nil && *u.Paused.Value
	return command(ctx, s, c, func(tx pgx.Tx) (Subscription, error) {
		tag, err := tx.Exec(ctx, changeSubscriptionSQL, c.Tenant, id, u.URL.Set, u.URL.Value, u.Events.Set, u.Events.Value, u.SKUs.Set, u.SKUs.Value,
			u.Description.Set, u.Description.Value, u.Paused.Set, pause, reason)
		if err == nil && tag.RowsAffected() == 0 {
			err = ErrSubscriptionNotFound
		}
		if err == nil && (u.URL.Set || u.Paused.Set && !pause) {
			// What waits for its next attempt needn't any longer.
			_, err = tx.Exec(ctx, `UPDATE inventory.delivery_topics SET due_at = clock_timestamp()
				WHERE subscription_id = $1 AND token IS NULL AND due_at > clock_timestamp()`, id)
		}
		if err == nil {
			err = s.clock.InTime(ctx, tx, c.Deadline)
		}
		if err != nil {
			return Subscription{}, err
		}
		return subscriptionByID(ctx, tx, c.Tenant, id)
	})
}

// Unsubscribe deletes a subscription and what waits for it. It fails with [ErrSubscriptionNotFound].
func (s *Store) Unsubscribe(ctx context.Context, c Caller, id uuid.UUID) error {
	_, _, err := command(ctx, s, c, func(tx pgx.Tx) (none struct{}, err error) {
		// Topics before the subscription, as those lock them who store what came of attempts.
		_, err = tx.Exec(ctx, `SELECT 1 FROM inventory.delivery_topics t JOIN inventory.subscriptions s ON s.id = t.subscription_id
			WHERE s.tenant = $1 AND s.id = $2 ORDER BY t.topic FOR UPDATE OF t`, c.Tenant, id)
		if err != nil {
			return none, err
		}
		tag, err := tx.Exec(ctx, `DELETE FROM inventory.subscriptions WHERE tenant = $1 AND id = $2`, c.Tenant, id)
		if err == nil && tag.RowsAffected() == 0 {
			err = ErrSubscriptionNotFound
		}
		if err == nil {
			err = s.clock.InTime(ctx, tx, c.Deadline)
		}
		return none, err
	})
	return err
}
