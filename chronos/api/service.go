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

// readiness is what /readyz tells beside the verdict. It is open to all, so it names no job.
type readiness struct {
	Schema    string     `json:"schema"`
	Schedules *schedules `json:"schedules,omitempty"`
}

// schedules is what should have fired against what has. It never makes a replica unready: no other would do better.
type schedules struct {
	OK        bool             `json:"ok"`
	Detail    string           `json:"detail"`
	CheckedAt httpapi.Time     `json:"checked_at"`
	Span      httpapi.Duration `json:"span"`
	Jobs      int              `json:"jobs"`
	All       bool             `json:"all"`
	SetAside  int              `json:"set_aside"`
	Expected  int              `json:"expected"`
	Fired     int              `json:"fired"`
	Recorded  int              `json:"recorded"`
	Missing   int              `json:"missing"`
}

func schedulesOf(service *chronos.Service) *schedules {
	c, ok := service.LastSelfCheck()
	if !ok {
		return nil
	}
	out := &schedules{
		c.Missing == 0 && c.SetAside == 0, "Every instant has its run, or a record of why not.", httpapi.At(c.At), httpapi.Duration(c.Span),
		c.Jobs, c.All, c.SetAside, c.Expected, c.Fired, c.Recorded, c.Missing,
	}
	switch {
	case c.Missing > 0:
		out.Detail = "Some instants have neither a run nor a record of why not: the log names them."
	case c.SetAside > 0:
		out.Detail = "Some jobs are set aside, because their schedules can't be made sense of: each says why in its pause_reason."
	}
	return out
}
