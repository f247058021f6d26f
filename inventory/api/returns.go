package api

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
	"holdfast/inventory"
)

type returnInput struct {
	ReservationPath
	Body struct {
		Lines   []wantedLine `json:"lines" minItems:"1" maxItems:"100" nullable:"false" doc:"Never more than was sold and hasn't come back yet"`
		Restock bool         `json:"restock" doc:"Put them back on hand; else they count as written off"`
		Reason  string       `json:"reason" minLength:"1" maxLength:"500"`
	}
}

func registerReturns(a *httpapi.API, store *inventory.Store) {
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPost, Path: "/v1/reservations/{id}/returns", Scope: apikey.Write, Tag: reservationsTag,
		Summary: "Take back what was sold",
		Codes:   []string{"reservation_not_found", "over_returned", "held", "expired", "released", "sku_not_found", "location_not_found"},
	},
		func(ctx context.Context, in *returnInput) (inventory.Reservation, error) {
			return change(ctx, in.ReservationPath, func(id uuid.UUID) (inventory.Reservation, bool, error) {
				b := in.Body
				return store.Return(ctx, callerOf(ctx), inventory.Return{ID: id, Lines: linesOf(b.Lines), Restock: b.Restock, Reason: b.Reason})
			})
		})
}
