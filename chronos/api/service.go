package api

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"holdfast/chronos"
	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
)

type replica struct {
	ID        uuid.UUID    `json:"id" doc:"Of one start of a process"`
	StartedAt httpapi.Time `json:"started_at"`
	LastSeen  httpapi.Time `json:"last_seen"`
	Leader    bool         `json:"leader" doc:"Whether it plans"`
	Epoch     int64        `json:"epoch" doc:"Which leadership this is, counted over all replicas; 0 if it doesn't lead"`
	InFlight  int          `json:"in_flight" doc:"Deliveries it has in hand"`
}

type replicas struct {
	Items []replica `json:"items" nullable:"false"`
}

type signingSecret struct {
	Secret   string          `json:"secret"`
	Previous *previousSecret `json:"previous,omitempty" doc:"Signs too, until it ends"`
}

type previousSecret struct {
	Secret     string       `json:"secret"`
	ValidUntil httpapi.Time `json:"valid_until"`
}

type noInput struct{}

func (s *server) registerService(a *httpapi.API) {
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodGet, Path: "/v1/replicas", Scope: apikey.Read, Summary: "List replicas", Tag: "Service",
		Description: "Those that were seen within the last 15 seconds.",
	}, s.replicas)
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodGet, Path: "/v1/signing-secret", Scope: apikey.Admin, Summary: "Get the signing secret", Tag: "Service",
	}, s.signingSecret)
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPost, Path: "/v1/signing-secret/rotate", Scope: apikey.Admin, Summary: "Replace the signing secret", Tag: "Service",
		Description: "The one until now signs too for 24 hours.",
	}, s.rotateSecret)
}

func (s *server) replicas(ctx context.Context, _ *noInput) (replicas, error) {
	found, err := s.store.ListReplicas(ctx)
	out := replicas{make([]replica, len(found))}
	for i, r := range found {
		out.Items[i] = replica{r.ID, httpapi.At(r.StartedAt), httpapi.At(r.LastSeen), r.Leader, r.Epoch, r.InFlight}
	}
	return out, err
}

func (s *server) signingSecret(ctx context.Context, _ *noInput) (signingSecret, error) {
	found, err := s.store.SigningSecret(ctx, httpapi.Tenant(ctx))
	if err != nil {
		return signingSecret{}, err
	}
	out := signingSecret{Secret: found.Secret.Reveal()}
	if p := found.Previous; p != nil {
		out.Previous = &previousSecret{p.Secret.Reveal(), httpapi.At(p.ValidUntil)}
	}
	return out, nil
}

func (s *server) rotateSecret(ctx context.Context, _ *noInput) (signingSecret, error) {
	rotated, replayed, err := s.store.RotateSecret(ctx, callerOf(ctx))
	return answer(ctx, rotated, replayed, err, func(r chronos.RotatedSecret) signingSecret {
		return signingSecret{r.Secret, &previousSecret{r.Previous, httpapi.At(r.ValidUntil)}}
	})
}
