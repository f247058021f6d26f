package api

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"time"

	"github.com/google/uuid"

	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
	"holdfast/inventory"
)

type wantedLine struct {
	SKU      string `json:"sku" minLength:"1" maxLength:"128"`
	Quantity int64  `json:"quantity" minimum:"1" maximum:"1000000000"`
	Location string `json:"location,omitempty" minLength:"1" maxLength:"128"`
}

// linesToSell is a part of a reservation. Null isn't left out: a client that lost its list must
// not sell everything.
type linesToSell []wantedLine

func (l *linesToSell) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return &json.UnmarshalTypeError{Value: "null", Type: reflect.TypeFor[linesToSell]()}
	}
	return json.Unmarshal(data, (*[]wantedLine)(l))
}

func linesOf(lines []wantedLine) []inventory.Line {
	out := make([]inventory.Line, len(lines))
	for i, l := range lines {
		out[i] = inventory.Line{SKU: l.SKU, Location: l.Location, Quantity: l.Quantity}
	}
	return out
}

type reserveInput struct {
	Body struct {
		Lines        []wantedLine      `json:"lines" minItems:"1" maxItems:"100" nullable:"false" doc:"All are held, or none; lines of the same SKU add up"`
		TTL          *httpapi.Duration `json:"ttl,omitempty" doc:"How long to hold, 1s to 24h; else the shortest of the SKUs' defaults, or 10m"`
		Customer     string            `json:"customer,omitempty" minLength:"1" maxLength:"255"`
		Reference    string            `json:"reference,omitempty" minLength:"1" maxLength:"255"`
		AllowPartial bool              `json:"allow_partial,omitempty" doc:"Hold what is free if it is less"`
		Allocate     string            `json:"allocate,omitempty" enum:"prefer,fewest,spread" doc:"From where lines that name no location are taken: by rank (the default), from as few as can serve all, or in proportion to what is free"`
	}
}

// ReservationPath names a reservation; exported for the same reason as [SKUPath].
type ReservationPath struct {
	ID string `path:"id"`
}

// id is the path's, or the refusal that an unknown one gets: what isn't an id isn't known.
func (p ReservationPath) id() (uuid.UUID, error) {
	id, err := uuid.Parse(p.ID)
	if err != nil || len(p.ID) != 36 {
		return uuid.Nil, inventory.ErrReservationNotFound
	}
	return id, nil
}

type confirmInput struct {
	ReservationPath
	Body *confirmBody
}

type confirmBody struct {
	Lines  linesToSell `json:"lines,omitempty" minItems:"1" maxItems:"100" nullable:"false" doc:"Sell this part and release the rest"`
	Retake bool        `json:"retake,omitempty" doc:"If it has expired, take the stock again if it is free"`
}

type releaseInput struct {
	ReservationPath
	Body *struct{}
}

type extendInput struct {
	ReservationPath
	Body struct {
		TTL httpapi.Duration `json:"ttl" doc:"How long to hold from now, 1s to 24h"`
	}
}

type listReservationsInput struct {
	httpapi.ListParams
	SKU       string `query:"sku" maxLength:"128"`
	Status    string `query:"status" enum:"held,confirmed,released,expired"`
	Customer  string `query:"customer" maxLength:"255"`
	Reference string `query:"reference" maxLength:"255"`
}

// change carries out a command on the reservation that the path names.
func change(ctx context.Context, path ReservationPath, act func(uuid.UUID) (inventory.Reservation, bool, error)) (inventory.Reservation, error) {
	id, err := path.id()
	if err != nil {
		return inventory.Reservation{}, err
	}
	r, replayed, err := act(id)
	httpapi.SetReplayed(ctx, replayed)
	return r, err
}

// The operations that have codecs.
var (
	reserveOp = httpapi.Op{
		Method: http.MethodPost, Path: "/v1/reservations", Scope: apikey.Write, Tag: reservationsTag,
		Summary: "Hold units", Status: http.StatusCreated,
		Codes: []string{"sku_not_found", "location_not_found", "sold_out", "customer_limit", "customer_required"},
	}
	confirmOp = httpapi.Op{
		Method: http.MethodPost, Path: "/v1/reservations/{id}/confirm", Scope: apikey.Write, Tag: reservationsTag,
		Summary: "Sell what is held", Codes: []string{"reservation_not_found", "expired", "released", "confirmed", "expired_sold_out", "customer_limit", "over_confirmed"},
	}
	releaseOp = httpapi.Op{
		Method: http.MethodPost, Path: "/v1/reservations/{id}/release", Scope: apikey.Write, Tag: reservationsTag,
		Summary: "Give a hold back", Codes: []string{"reservation_not_found", "confirmed"},
	}
	extendOp = httpapi.Op{
		Method: http.MethodPost, Path: "/v1/reservations/{id}/extend", Scope: apikey.Write, Tag: reservationsTag,
		Summary: "Hold on for longer", Codes: []string{"reservation_not_found", "expired", "released", "confirmed", "extension_limit"},
	}
)

const reservationsTag = "Reservations"

func registerReservations(a *httpapi.API, store *inventory.Store) {
	httpapi.RegisterWithCodec(a, reserveOp, reserveCodec,
		func(ctx context.Context, in *reserveInput) (inventory.Reservation, error) {
			b := in.Body
			cmd := inventory.Reserve{Lines: linesOf(b.Lines), Customer: b.Customer, Reference: b.Reference, AllowPartial: b.AllowPartial, Allocate: inventory.Allocation(b.Allocate)}
			if b.TTL != nil {
				if cmd.TTL = time.Duration(*b.TTL); cmd.TTL <= 0 {
					return inventory.Reservation{}, httpapi.Invalid("body.ttl", "must be positive")
				}
			}
			r, replayed, err := store.Reserve(ctx, callerOf(ctx), cmd)
			httpapi.SetReplayed(ctx, replayed)
			return r, err
		})
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodGet, Path: "/v1/reservations/{id}", Scope: apikey.Read, Tag: reservationsTag,
		Summary: "Read a reservation", Codes: []string{"reservation_not_found"},
	},
		func(ctx context.Context, in *ReservationPath) (inventory.Reservation, error) {
			id, err := in.id()
			if err != nil {
				return inventory.Reservation{}, err
			}
			return store.GetReservation(ctx, httpapi.Tenant(ctx), id)
		})
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodGet, Path: "/v1/reservations", Scope: apikey.Read, Tag: reservationsTag,
		Summary: "List reservations", Description: "Newest first.",
	},
		func(ctx context.Context, in *listReservationsInput) (httpapi.Page[inventory.Reservation], error) {
			var before inventory.Position
			if _, err := in.After("reservations", &before); err != nil {
				return httpapi.Page[inventory.Reservation]{}, err
			}
			filter := inventory.ReservationFilter{SKU: in.SKU, Status: inventory.Status(in.Status), Customer: in.Customer, Reference: in.Reference}
			rows, err := store.ListReservations(ctx, httpapi.Tenant(ctx), filter, before, in.Limit+1)
			return httpapi.NewPage(rows, in.Limit, "reservations", inventory.Reservation.Position), err
		})
	httpapi.RegisterWithCodec(a, confirmOp, confirmCodec,
		func(ctx context.Context, in *confirmInput) (inventory.Reservation, error) {
			return change(ctx, in.ReservationPath, func(id uuid.UUID) (inventory.Reservation, bool, error) {
				cmd := inventory.Confirmation{ID: id}
				if in.Body != nil {
					cmd.Retake = in.Body.Retake
					if in.Body.Lines != nil {
						cmd.Lines = linesOf(in.Body.Lines)
					}
				}
				return store.Confirm(ctx, callerOf(ctx), cmd)
			})
		})
	httpapi.RegisterWithCodec(a, releaseOp, releaseCodec,
		func(ctx context.Context, in *releaseInput) (inventory.Reservation, error) {
			return change(ctx, in.ReservationPath, func(id uuid.UUID) (inventory.Reservation, bool, error) {
				return store.Release(ctx, callerOf(ctx), inventory.Release{ID: id})
			})
		})
	httpapi.RegisterWithCodec(a, extendOp, extendCodec,
		func(ctx context.Context, in *extendInput) (inventory.Reservation, error) {
			return change(ctx, in.ReservationPath, func(id uuid.UUID) (inventory.Reservation, bool, error) {
				return store.Extend(ctx, callerOf(ctx), inventory.Extension{ID: id, TTL: time.Duration(in.Body.TTL)})
			})
		})
}
