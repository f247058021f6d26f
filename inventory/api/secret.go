package api

import (
	"context"
	"net/http"

	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
	"holdfast/internal/signing"
	"holdfast/inventory"
)

type signingSecret struct {
	Secret   string          `json:"secret"`
	Previous *previousSecret `json:"previous,omitempty" doc:"Signs too, until it ends"`
}

type previousSecret struct {
	Secret     string       `json:"secret"`
	ValidUntil httpapi.Time `json:"valid_until"`
}

func secretOf(p signing.Pair) signingSecret {
	out := signingSecret{Secret: p.Secret}
	if p.Previous != nil {
		out.Previous = &previousSecret{p.Previous.Secret, httpapi.At(p.Previous.ValidUntil)}
	}
	return out
}

func registerSecret(a *httpapi.API, store *inventory.Store) {
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodGet, Path: "/v1/signing-secret", Scope: apikey.Admin, Summary: "Get the signing secret", Tag: subscriptionsTag,
		Description: "Deliveries carry [Standard Webhooks](https://www.standardwebhooks.com) signatures made with it.",
	},
		func(ctx context.Context, _ *struct{}) (signingSecret, error) {
			pair, err := store.SigningSecret(ctx, httpapi.Tenant(ctx))
			return secretOf(pair), err
		})
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPost, Path: "/v1/signing-secret/rotate", Scope: apikey.Admin, Summary: "Replace the signing secret", Tag: subscriptionsTag,
		Description: "The one until now signs too for 24 hours.",
	},
		func(ctx context.Context, _ *struct{}) (signingSecret, error) {
			pair, replayed, err := store.RotateSecret(ctx, callerOf(ctx))
			httpapi.SetReplayed(ctx, replayed)
			return secretOf(pair), err
		})
}
