package api

import (
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"

	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
	"holdfast/inventory"
)

type joinInput struct {
	Body struct {
		SKU      string            `json:"sku" minLength:"1" maxLength:"128" pattern:"^[A-Za-z0-9._:-]+$" patternDescription:"A-Z a-z 0-9 . _ : -"`
		Quantity int64             `json:"quantity" minimum:"1" maximum:"1000000000" doc:"All of them or none"`
		Customer string            `json:"customer" minLength:"1" maxLength:"255" doc:"Has one place in a line at a time"`
		TTL      httpapi.Duration  `json:"ttl" doc:"How long to wait, 1s to 720h"`
		HoldTTL  *httpapi.Duration `json:"hold_ttl,omitempty" doc:"How long units are held when the turn comes, 1s to 24h; else ttl, or 24h if that is longer"`
	}
}

// PlacePath names a place; exported for the same reason as [SKUPath].
type PlacePath struct {
	ID string `path:"id"`
}

func (p PlacePath) id() (uuid.UUID, error) {
	id, err := uuid.Parse(p.ID)
	if err != nil || len(p.ID) != 36 {
		return uuid.Nil, inventory.ErrPlaceNotFound
	}
	return id, nil
}

type listPlacesInput struct {
	httpapi.ListParams
	SKU      string `query:"sku" required:"true" maxLength:"128"`
	Customer string `query:"customer" maxLength:"255"`
}

func registerWaitlist(a *httpapi.API, store *inventory.Store) {
	const tag = "Waiting lists"
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPost, Path: "/v1/waitlist", Scope: apikey.Write, Tag: tag, Summary: "Wait for units", Status: http.StatusCreated,
		Description: "Units that come back are held for the first in the line that they can serve, before anybody else can have them. " +
			"That offer is a reservation, with the reference `waitlist:` and the place's id: confirm or release it as any other. If what is wanted is free, it is offered at once.",
		Codes: []string{"sku_not_found", "already_waiting", "customer_limit"},
	},
		func(ctx context.Context, in *joinInput) (inventory.Place, error) {
			b := in.Body
			cmd := inventory.Join{SKU: b.SKU, Quantity: b.Quantity, Customer: b.Customer, TTL: time.Duration(b.TTL)}
			if b.HoldTTL != nil {
				if cmd.HoldTTL = time.Duration(*b.HoldTTL); cmd.HoldTTL <= 0 {
					return inventory.Place{}, httpapi.Invalid("body.hold_ttl", "must be positive")
				}
			}
			p, replayed, err := store.Join(ctx, callerOf(ctx), cmd)
			httpapi.SetReplayed(ctx, replayed)
			return p, err
		})
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodGet, Path: "/v1/waitlist/{id}", Scope: apikey.Read, Tag: tag,
		Summary: "Read a place in a waiting list", Codes: []string{"place_not_found"},
	},
		func(ctx context.Context, in *PlacePath) (inventory.Place, error) {
			id, err := in.id()
			if err != nil {
				return inventory.Place{}, err
			}
			return store.GetPlace(ctx, httpapi.Tenant(ctx), id)
		})
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodGet, Path: "/v1/waitlist", Scope: apikey.Read, Tag: tag,
		Summary: "List who waits for a SKU", Description: "In the order of the line; with a customer, that customer's place.",
	},
		func(ctx context.Context, in *listPlacesInput) (httpapi.Page[inventory.Place], error) {
			var after int64
			if _, err := in.After("waitlist", &after); err != nil {
				return httpapi.Page[inventory.Place]{}, err
			}
			rows, err := store.ListPlaces(ctx, httpapi.Tenant(ctx), in.SKU, in.Customer, after, in.Limit+1)
			return httpapi.NewPage(rows, in.Limit, "waitlist", func(last inventory.Place) int64 { return last.Seq }), err
		})
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodDelete, Path: "/v1/waitlist/{id}", Scope: apikey.Write, Tag: tag,
		Summary: "Leave a waiting list", Description: "An offer is released, for the next in the line. Repeated, or when the place has lapsed, it changes nothing.",
		Codes: []string{"place_not_found", "confirmed"},
	},
		func(ctx context.Context, in *PlacePath) (httpapi.None, error) {
			id, err := in.id()
			if err != nil {
				return httpapi.None{}, err
			}
			return httpapi.None{}, store.Leave(ctx, callerOf(ctx), id)
		})
}
