package api

import (
	"context"
	"net/http"
	"time"

	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
	"holdfast/inventory"
)

// sku is a SKU as clients see it.
type sku struct {
	SKU            string            `json:"sku"`
	Name           string            `json:"name,omitempty"`
	OnHand         int64             `json:"on_hand" doc:"Units in stock, held ones included"`
	Held           int64             `json:"held" doc:"Units of live holds; expired holds aren't counted"`
	Available      int64             `json:"available" doc:"Units that can be held now"`
	Sold           int64             `json:"sold"`
	WrittenOff     int64             `json:"written_off"`
	Received       int64             `json:"received" doc:"on_hand + sold + written_off"`
	MaxPerCustomer *int64            `json:"max_per_customer"`
	SafetyStock    int64             `json:"safety_stock"`
	BackorderLimit int64             `json:"backorder_limit"`
	LowStock       *int64            `json:"low_stock" doc:"With so many units available, or fewer, stock.low is announced"`
	DefaultTTL     *httpapi.Duration `json:"default_ttl"`
	Locations      []inventory.Stock `json:"locations" nullable:"false"`
	CreatedAt      time.Time         `json:"created_at"`
	UpdatedAt      time.Time         `json:"updated_at" doc:"When the settings were last changed"`
}

func skuOf(k inventory.SKU) sku {
	return sku{
		SKU: k.SKU, Name: k.Name, OnHand: k.OnHand, Held: k.Held, Available: k.Available, Sold: k.Sold,
		WrittenOff: k.WrittenOff, Received: k.Received, MaxPerCustomer: k.MaxPerCustomer, SafetyStock: k.SafetyStock,
		BackorderLimit: k.BackorderLimit, LowStock: k.LowStock, DefaultTTL: (*httpapi.Duration)(k.DefaultTTL), Locations: k.Locations,
		CreatedAt: k.CreatedAt, UpdatedAt: k.UpdatedAt,
	}
}

// SKUPath names a SKU; it is exported because only then are its fields found where it is embedded.
type SKUPath struct {
	SKU string `path:"sku"`
}

type putSKUInput struct {
	SKUPath
	Body struct {
		Name           setting[string]           `json:"name,omitempty" maxLength:"255"`
		MaxPerCustomer setting[int64]            `json:"max_per_customer,omitempty" minimum:"1" maximum:"1000000000" doc:"Units that one customer may hold and have bought"`
		SafetyStock    setting[int64]            `json:"safety_stock,omitempty" minimum:"0" maximum:"1000000000" doc:"Units that are never offered"`
		BackorderLimit setting[int64]            `json:"backorder_limit,omitempty" minimum:"0" maximum:"1000000000" doc:"Units that may be held beyond what is on hand"`
		LowStock       setting[int64]            `json:"low_stock,omitempty" minimum:"0" maximum:"1000000000" doc:"With so many units available, or fewer, stock.low is announced"`
		DefaultTTL     setting[httpapi.Duration] `json:"default_ttl,omitempty" doc:"How long a reservation lives that names no ttl, 1s to 24h"`
	}
}

type adjustInput struct {
	SKUPath
	Body struct {
		Delta     int64  `json:"delta" minimum:"-1000000000" maximum:"1000000000" doc:"Units received, or, if negative, written off"`
		Reason    string `json:"reason" minLength:"1" maxLength:"500"`
		Location  string `json:"location,omitempty" minLength:"1" maxLength:"128"`
		Reference string `json:"reference,omitempty" minLength:"1" maxLength:"255"`
	}
}

type countInput struct {
	SKUPath
	Body struct {
		Counted  int64  `json:"counted" minimum:"0" maximum:"1000000000"`
		Reason   string `json:"reason" minLength:"1" maxLength:"500"`
		Location string `json:"location,omitempty" minLength:"1" maxLength:"128"`
		Expected *int64 `json:"expected,omitempty" doc:"Refuse if something else is on hand"`
	}
}

type ledgerInput struct {
	SKUPath
	httpapi.ListParams
}

func registerSKUs(a *httpapi.API, store *inventory.Store) {
	const tag = "Stock"
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPut, Path: "/v1/skus/{sku}", Scope: apikey.Write, Tag: tag,
		Summary: "Create or change a SKU", Description: "A setting that is left out stays as it is; null gives its default back.",
		Status: http.StatusOK, Also: []int{http.StatusCreated}, Codes: []string{"settings_conflict"},
	},
		func(ctx context.Context, in *putSKUInput) (sku, error) {
			b := in.Body
			k, created, err := store.PutSKU(ctx, callerOf(ctx), inventory.Settings{
				SKU: in.SKU, Name: b.Name.Change, MaxPerCustomer: b.MaxPerCustomer.Change, SafetyStock: b.SafetyStock.Change,
				BackorderLimit: b.BackorderLimit.Change, LowStock: b.LowStock.Change,
				DefaultTTL: inventory.Change[time.Duration]{Set: b.DefaultTTL.Set, Value: (*time.Duration)(b.DefaultTTL.Value)},
			})
			if created {
				httpapi.SetStatus(ctx, http.StatusCreated)
			}
			return skuOf(k), err
		})
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodGet, Path: "/v1/skus/{sku}", Scope: apikey.Read, Tag: tag,
		Summary: "Read a SKU", Codes: []string{"sku_not_found"},
	},
		func(ctx context.Context, in *SKUPath) (sku, error) {
			k, err := store.GetSKU(ctx, httpapi.Tenant(ctx), in.SKU)
			return skuOf(k), err
		})
	httpapi.Register(a, httpapi.Op{Method: http.MethodGet, Path: "/v1/skus", Scope: apikey.Read, Tag: tag, Summary: "List SKUs"},
		func(ctx context.Context, in *httpapi.ListParams) (httpapi.Page[sku], error) {
			var after string
			if _, err := in.After("skus", &after); err != nil {
				return httpapi.Page[sku]{}, err
			}
			rows, err := store.ListSKUs(ctx, httpapi.Tenant(ctx), after, in.Limit+1)
			skus := make([]sku, len(rows))
			for i, k := range rows {
				skus[i] = skuOf(k)
			}
			return httpapi.NewPage(skus, in.Limit, "skus", func(last sku) string { return last.SKU }), err
		})
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodDelete, Path: "/v1/skus/{sku}", Scope: apikey.Write, Tag: tag,
		Summary: "Delete a SKU", Description: "Only one with nothing on hand or held. Past reservations and the ledger stay readable.",
		Codes: []string{"sku_not_found", "sku_in_use"},
	},
		func(ctx context.Context, in *SKUPath) (httpapi.None, error) {
			return httpapi.None{}, store.DeleteSKU(ctx, callerOf(ctx), in.SKU)
		})
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPost, Path: "/v1/skus/{sku}/adjustments", Scope: apikey.Write, Tag: tag,
		Summary: "Receive or write off units", Codes: []string{"sku_not_found", "location_not_found", "below_held"},
	},
		func(ctx context.Context, in *adjustInput) (sku, error) {
			b := in.Body
			k, replayed, err := store.Adjust(ctx, callerOf(ctx), inventory.Adjustment{
				SKU: in.SKU, Location: b.Location, Delta: b.Delta, Reason: b.Reason, Reference: b.Reference,
			})
			httpapi.SetReplayed(ctx, replayed)
			return skuOf(k), err
		})
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPost, Path: "/v1/skus/{sku}/counts", Scope: apikey.Write, Tag: tag,
		Summary: "Set what is on hand to what was counted", Codes: []string{"sku_not_found", "location_not_found", "count_changed", "below_held"},
	},
		func(ctx context.Context, in *countInput) (sku, error) {
			b := in.Body
			k, replayed, err := store.Count(ctx, callerOf(ctx), inventory.Count{
				SKU: in.SKU, Location: b.Location, Counted: b.Counted, Expected: b.Expected, Reason: b.Reason,
			})
			httpapi.SetReplayed(ctx, replayed)
			return skuOf(k), err
		})
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodGet, Path: "/v1/skus/{sku}/ledger", Scope: apikey.Read, Tag: tag,
		Summary: "Read a SKU's ledger", Description: "Every change, oldest first.", Codes: []string{"sku_not_found"},
	},
		func(ctx context.Context, in *ledgerInput) (httpapi.Page[inventory.Entry], error) {
			var after int64
			if _, err := in.After("ledger", &after); err != nil {
				return httpapi.Page[inventory.Entry]{}, err
			}
			rows, err := store.Ledger(ctx, httpapi.Tenant(ctx), in.SKU, after, in.Limit+1)
			return httpapi.NewPage(rows, in.Limit, "ledger", func(last inventory.Entry) int64 { return last.Seq }), err
		})
}
