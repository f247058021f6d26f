package api

import (
	"context"
	"net/http"

	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
	"holdfast/inventory"
)

// LocationPath names a location; exported for the same reason as [SKUPath].
type LocationPath struct {
	Location string `path:"location" minLength:"1" maxLength:"128"`
}

type putLocationInput struct {
	LocationPath
	Body struct {
		Name setting[string] `json:"name,omitempty" maxLength:"255"`
		Rank setting[int32]  `json:"rank,omitempty" minimum:"0" maximum:"1000000" doc:"Lower is preferred when a reservation doesn't say from where; default 0"`
	}
}

func registerLocations(a *httpapi.API, store *inventory.Store) {
	const tag = "Locations"
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPut, Path: "/v1/locations/{location}", Scope: apikey.Write, Tag: tag,
		Summary: "Create or change a location", Description: "A setting that is left out stays as it is; null gives its default back.",
		Status: http.StatusOK, Also: []int{http.StatusCreated},
	},
		func(ctx context.Context, in *putLocationInput) (inventory.Location, error) {
			l, created, err := store.PutLocation(ctx, callerOf(ctx), inventory.LocationSettings{
				Location: in.Location, Name: in.Body.Name.Change, Rank: in.Body.Rank.Change,
			})
			if created {
				httpapi.SetStatus(ctx, http.StatusCreated)
			}
			return l, err
		})
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodGet, Path: "/v1/locations/{location}", Scope: apikey.Read, Tag: tag,
		Summary: "Read a location", Codes: []string{"location_not_found"},
	},
		func(ctx context.Context, in *LocationPath) (inventory.Location, error) {
			return store.GetLocation(ctx, httpapi.Tenant(ctx), in.Location)
		})
	httpapi.Register(a, httpapi.Op{Method: http.MethodGet, Path: "/v1/locations", Scope: apikey.Read, Tag: tag, Summary: "List locations"},
		func(ctx context.Context, in *httpapi.ListParams) (httpapi.Page[inventory.Location], error) {
			var after string
			if _, err := in.After("locations", &after); err != nil {
				return httpapi.Page[inventory.Location]{}, err
			}
			rows, err := store.ListLocations(ctx, httpapi.Tenant(ctx), after, in.Limit+1)
			return httpapi.NewPage(rows, in.Limit, "locations", func(last inventory.Location) string { return last.Location }), err
		})
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodDelete, Path: "/v1/locations/{location}", Scope: apikey.Write, Tag: tag,
		Summary: "Delete a location", Description: "Only one with no stock and no holds, and never the location default.",
		Codes: []string{"location_not_found", "location_in_use"},
	},
		func(ctx context.Context, in *LocationPath) (httpapi.None, error) {
			return httpapi.None{}, store.DeleteLocation(ctx, callerOf(ctx), in.Location)
		})
}
