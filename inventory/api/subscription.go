package api

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
	"holdfast/inventory"
)

const subscriptionsTag = "Subscriptions"

const subscribeText = `Events that are written from now on are delivered as signed POSTs of ` + "`{type, timestamp, data}`" + `, at least once: drop repeats by ` + "`webhook-id`" + `, which is
the same on every attempt. Deliveries about one reservation arrive in their order, and so do those about one SKU; the next comes when the one before it has arrived or was given up.

| events | when | data |
|---|---|---|
| ` + "`reservation.held`, `.confirmed`, `.released`, `.expired`" + ` | it has become that | the reservation |
| ` + "`waitlist.offered`" + ` | units are held for a place in a waiting list | the reservation |
| ` + "`stock.changed`" + ` | stock has changed; changes that follow each other closely make one event | the newest state |
| ` + "`stock.low`, `stock.out`" + ` | what is available falls to the SKU's ` + "`low_stock`" + ` or below, or to nothing | the newest state |

Any 2xx within 10 seconds is success. 410 pauses the subscription. Everything else is tried again, from 5 seconds after to once an hour, for 3 days (` + "`Retry-After`" + ` is honoured); then
the delivery is dead, and can be asked for again for 7 days. Redirects aren't followed. After 5 failures in a row one attempt at a time finds out whether the receiver is there again. Of one subscription
at most 100,000 deliveries wait; beyond that, new events aren't taken on (` + "`full_since`" + `).`

type subscribeInput struct {
	Body struct {
		URL         string   `json:"url" minLength:"1" maxLength:"2048" doc:"http or https"`
		Events      []string `json:"events" minItems:"1" maxItems:"50" nullable:"false"`
		SKUs        []string `json:"skus,omitempty" minItems:"1" maxItems:"1000" nullable:"false" doc:"Only what is about one of these; without: about any"`
		Description string   `json:"description,omitempty" maxLength:"255"`
	}
}

type patchSubscriptionInput struct {
	SubscriptionPath
	Body struct {
		URL         setting[string]   `json:"url,omitempty" maxLength:"2048"`
		Events      setting[[]string] `json:"events,omitempty" maxItems:"50"`
		SKUs        setting[[]string] `json:"skus,omitempty" maxItems:"1000" doc:"null: about any"`
		Description setting[string]   `json:"description,omitempty" maxLength:"255"`
		Paused      setting[bool]     `json:"paused,omitempty"`
	}
}

// SubscriptionPath names a subscription; exported for the same reason as [SKUPath].
type SubscriptionPath struct {
	ID string `path:"id"`
}

func (p SubscriptionPath) id() (uuid.UUID, error) {
	id, err := uuid.Parse(p.ID)
	if err != nil || len(p.ID) != 36 {
		return uuid.Nil, inventory.ErrSubscriptionNotFound
	}
	return id, nil
}

type pauseSubscriptionInput struct {
	SubscriptionPath
	Body *struct {
		Reason string `json:"reason,omitempty" minLength:"1" maxLength:"500"`
	}
}

type resumeSubscriptionInput struct {
	SubscriptionPath
	Body *struct{}
}

type listDeliveriesInput struct {
	SubscriptionPath
	httpapi.ListParams
	Status string `query:"status" enum:"waiting,delivered,dead"`
}

type redeliverInput struct {
	SubscriptionPath
	Body *struct {
		DeliveryID *string       `json:"delivery_id,omitempty" doc:"This one; if it still waits, now"`
		From       *httpapi.Time `json:"from,omitempty" doc:"Those of events from then on that have ended"`
		Status     string        `json:"status,omitempty" enum:"delivered,dead" doc:"Of those, only these"`
	}
}

// changeSubscription carries out a change of the subscription that the path names.
func changeSubscription(ctx context.Context, store *inventory.Store, path SubscriptionPath, u inventory.SubscriptionSettings) (inventory.Subscription, error) {
	id, err := path.id()
	if err != nil {
		return inventory.Subscription{}, err
	}
	out, replayed, err := store.ChangeSubscription(ctx, callerOf(ctx), id, u)
	httpapi.SetReplayed(ctx, replayed)
	return out, err
}

func to[T any](value T) inventory.Change[T] { return inventory.Change[T]{Set: true, Value: &value} }

func registerSubscriptions(a *httpapi.API, store *inventory.Store) {
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPost, Path: "/v1/subscriptions", Scope: apikey.Write, Tag: subscriptionsTag,
		Summary: "Subscribe to events", Description: subscribeText, Status: http.StatusCreated, Codes: []string{"target_forbidden", "subscription_limit"},
	},
		func(ctx context.Context, in *subscribeInput) (inventory.Subscription, error) {
			u := inventory.SubscriptionSettings{URL: to(in.Body.URL), Events: to(in.Body.Events), Description: to(in.Body.Description)}
			if in.Body.SKUs != nil {
				u.SKUs = to(in.Body.SKUs)
			}
			out, replayed, err := store.Subscribe(ctx, callerOf(ctx), u)
			httpapi.SetReplayed(ctx, replayed)
			return out, err
		})
	httpapi.Register(a, httpapi.Op{Method: http.MethodGet, Path: "/v1/subscriptions", Scope: apikey.Read, Tag: subscriptionsTag, Summary: "List subscriptions"},
		func(ctx context.Context, in *httpapi.ListParams) (httpapi.Page[inventory.Subscription], error) {
			var after uuid.UUID
			if _, err := in.After("subscriptions", &after); err != nil {
				return httpapi.Page[inventory.Subscription]{}, err
			}
			rows, err := store.ListSubscriptions(ctx, httpapi.Tenant(ctx), after, in.Limit+1)
			return httpapi.NewPage(rows, in.Limit, "subscriptions", func(last inventory.Subscription) uuid.UUID { return last.ID }), err
		})
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodGet, Path: "/v1/subscriptions/{id}", Scope: apikey.Read, Tag: subscriptionsTag,
		Summary: "Read a subscription", Codes: []string{"subscription_not_found"},
	},
		func(ctx context.Context, in *SubscriptionPath) (inventory.Subscription, error) {
			id, err := in.id()
			if err != nil {
				return inventory.Subscription{}, err
			}
			return store.GetSubscription(ctx, httpapi.Tenant(ctx), id)
		})
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPatch, Path: "/v1/subscriptions/{id}", Scope: apikey.Write, Tag: subscriptionsTag,
		Summary: "Change a subscription", Description: "What is left out stays as it is.", Codes: []string{"subscription_not_found", "target_forbidden"},
	},
		func(ctx context.Context, in *patchSubscriptionInput) (inventory.Subscription, error) {
			b := in.Body
			return changeSubscription(ctx, store, in.SubscriptionPath, inventory.SubscriptionSettings{
				URL: b.URL.Change, Events: b.Events.Change, SKUs: b.SKUs.Change, Description: b.Description.Change, Paused: b.Paused.Change,
			})
		})
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPost, Path: "/v1/subscriptions/{id}/pause", Scope: apikey.Write, Tag: subscriptionsTag,
		Summary: "Pause a subscription", Description: "Events go on being collected, for up to 3 days each.", Codes: []string{"subscription_not_found"},
	},
		func(ctx context.Context, in *pauseSubscriptionInput) (inventory.Subscription, error) {
			u := inventory.SubscriptionSettings{Paused: to(true)}
			if in.Body != nil {
				u.PauseReason = in.Body.Reason
			}
			return changeSubscription(ctx, store, in.SubscriptionPath, u)
		})
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPost, Path: "/v1/subscriptions/{id}/resume", Scope: apikey.Write, Tag: subscriptionsTag,
		Summary: "Resume a subscription", Description: "What has been collected is delivered, in its order.", Codes: []string{"subscription_not_found"},
	},
		func(ctx context.Context, in *resumeSubscriptionInput) (inventory.Subscription, error) {
			return changeSubscription(ctx, store, in.SubscriptionPath, inventory.SubscriptionSettings{Paused: to(false)})
		})
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodDelete, Path: "/v1/subscriptions/{id}", Scope: apikey.Write, Tag: subscriptionsTag,
		Summary: "Delete a subscription", Description: "What waits for it is deleted too.", Codes: []string{"subscription_not_found"},
	},
		func(ctx context.Context, in *SubscriptionPath) (httpapi.None, error) {
			id, err := in.id()
			if err == nil {
				err = store.Unsubscribe(ctx, callerOf(ctx), id)
			}
			return httpapi.None{}, err
		})
	registerDeliveries(a, store)
}

func registerDeliveries(a *httpapi.API, store *inventory.Store) {
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodGet, Path: "/v1/subscriptions/{id}/deliveries", Scope: apikey.Read, Tag: subscriptionsTag,
		Summary: "List deliveries", Description: "Newest first. Those that have ended are kept for 7 days.", Codes: []string{"subscription_not_found"},
	},
		func(ctx context.Context, in *listDeliveriesInput) (httpapi.Page[inventory.Delivery], error) {
			var before int64
			id, err := in.id()
			if err == nil {
				_, err = in.After("deliveries", &before)
			}
			if err != nil {
				return httpapi.Page[inventory.Delivery]{}, err
			}
			rows, err := store.ListDeliveries(ctx, httpapi.Tenant(ctx), id, inventory.DeliveryStatus(in.Status), before, in.Limit+1)
			return httpapi.NewPage(rows, in.Limit, "deliveries", inventory.Delivery.Position), err
		})
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPost, Path: "/v1/subscriptions/{id}/redeliver", Scope: apikey.Write, Tag: subscriptionsTag,
		Summary: "Deliver again", Status: http.StatusAccepted, Codes: []string{"subscription_not_found", "delivery_not_found"},
		Description: "One delivery by its `delivery_id`, or all that have ended of events since `from`, or, without either, all that are dead; at most 10,000 at once. " +
			"They keep their `webhook-id`, so a receiver that drops repeats may drop them, and their order: they come before what waits of the same reservation or SKU.",
	},
		func(ctx context.Context, in *redeliverInput) (inventory.Redelivered, error) {
			id, err := in.id()
			if err != nil {
				return inventory.Redelivered{}, err
			}
			var r inventory.Redelivery
			if b := in.Body; b != nil {
				r.Status = inventory.DeliveryStatus(b.Status)
				if b.From != nil {
					r.From = &b.From.Time
				}
				if b.DeliveryID != nil {
					delivery, err := uuid.Parse(*b.DeliveryID)
					if err != nil || len(*b.DeliveryID) != 36 {
						return inventory.Redelivered{}, inventory.ErrDeliveryNotFound
					}
					r.Delivery = &delivery
				}
			}
			if r.Delivery == nil && r.From == nil && r.Status == "" {
				r.Status = inventory.DeliveryDead
			}
			out, replayed, err := store.Redeliver(ctx, callerOf(ctx), id, r)
			httpapi.SetReplayed(ctx, replayed)
			return out, err
		})
}
