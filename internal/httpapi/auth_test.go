package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"

	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
	"holdfast/internal/pg"
	"holdfast/internal/pg/pgtest"
)

var keySchema = pg.Schema{Name: "sample", Sources: []pg.Source{apikey.Migrations()}}

// locked is a shop with authentication, and its keys.
func locked(t *testing.T, cfg httpapi.Config) (*sample, *apikey.Store, *pgtest.DB) {
	t.Helper()
	db := pgtest.New(t, keySchema)
	cfg.Keys = apikey.NewStore(db.Pool, keySchema.Name)
	return serve(t, newAPI(cfg)), cfg.Keys, db
}

func newKey(t *testing.T, keys *apikey.Store, tenant string, scopes ...apikey.Scope) (apikey.Key, string) {
	t.Helper()
	key, secret, err := keys.Create(t.Context(), tenant, tenant+" key", scopes)
	if err != nil {
		t.Fatal(err)
	}
	return key, secret
}

func TestAuthentication(t *testing.T) {
	t.Parallel()
	s, keys, _ := locked(t, httpapi.Config{})
	_, reader := newKey(t, keys, "acme", apikey.Read)
	_, writer := newKey(t, keys, "acme", apikey.Write)
	_, admin := newKey(t, keys, "other", apikey.Admin)
	gone, revoked := newKey(t, keys, "acme", apikey.Admin)
	if _, err := keys.Revoke(t.Context(), gone.ID); err != nil {
		t.Fatal(err)
	}
	get, post, resume := []string{"GET", "/v1/things", ""}, []string{"POST", "/v1/orders/7/confirm", ""}, []string{"POST", "/v1/orders/7/resume", ""}
	for _, tc := range []struct {
		name   string
		ask    []string
		header []string
		status int
		code   string
	}{
		{"no key", get, nil, 401, "missing_api_key"},
		{"another scheme", get, []string{"Authorization", "Basic " + reader}, 401, "missing_api_key"},
		{"no scheme", get, []string{"Authorization", reader}, 401, "missing_api_key"},
		{"an empty key", get, []string{"Authorization", "Bearer "}, 401, "missing_api_key"},
		{"two keys", get, []string{"Authorization", "Bearer " + reader, "Authorization", "Bearer " + reader}, 401, "missing_api_key"},
		{"key in the query", []string{"GET", "/v1/things?key=" + reader, ""}, nil, 401, "missing_api_key"},
		{"nonsense", get, []string{"Authorization", "Bearer hf_nonsense"}, 401, "invalid_api_key"},
		{"well formed, unknown", get, []string{"Authorization", "Bearer hf_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}, 401, "invalid_api_key"},
		{"key in capitals", get, []string{"Authorization", "Bearer HF_" + reader[3:]}, 401, "invalid_api_key"},
		{"revoked", get, []string{"Authorization", "Bearer " + revoked}, 401, "invalid_api_key"},
		{"reader reads", get, []string{"Authorization", "Bearer " + reader}, 200, ""},
		{"scheme in small letters", get, []string{"Authorization", "bearer " + reader}, 200, ""},
		{"reader writes", post, []string{"Authorization", "Bearer " + reader}, 403, "insufficient_scope"},
		{"writer reads", get, []string{"Authorization", "Bearer " + writer}, 200, ""},
		{"writer writes", post, []string{"Authorization", "Bearer " + writer}, 200, ""},
		{"writer administers", resume, []string{"Authorization", "Bearer " + writer}, 403, "insufficient_scope"},
		{"admin administers", resume, []string{"Authorization", "Bearer " + admin}, 200, ""},
		{"admin reads", get, []string{"Authorization", "Bearer " + admin}, 200, ""},
		{"the key comes before the body", []string{"POST", orders, "{"}, nil, 401, "missing_api_key"},
		{"routes come before the key", []string{"GET", "/v1/nothing", ""}, nil, 404, "route_not_found"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := s.ask(tc.ask[0], tc.ask[1], tc.ask[2], tc.header...)
			if r.Status != tc.status {
				t.Fatalf("got %d, want %d: %s", r.Status, tc.status, r.Body)
			}
			if tc.status < 400 {
				return
			}
			if p := r.problem(t); p.Code != tc.code {
				t.Errorf("code %s, want %s", p.Code, tc.code)
			} else if p.Status == 403 && p.RequiredScope == "" {
				t.Error("required_scope is missing")
			}
			if challenge := r.Header.Get("WWW-Authenticate"); (r.Status == 401 || r.Status == 403) && challenge == "" {
				t.Error("WWW-Authenticate is missing")
			}
		})
	}
	if got := s.ask("GET", "/v1/things/7", "", "Authorization", "Bearer "+admin).seen(t); got.Tenant != "other" || got.Actor != "other key" {
		t.Errorf("the handler saw %+v", got)
	}
}

// TestOpenRoutes asks without a key for what must stay open to probes and scrapers.
func TestOpenRoutes(t *testing.T) {
	t.Parallel()
	s, _, _ := locked(t, httpapi.Config{})
	for _, path := range []string{"/livez", "/readyz", "/metrics", "/openapi.json", "/docs", "/"} {
		if r := s.ask("GET", path, ""); r.Status != 200 {
			t.Errorf("%s: %d", path, r.Status)
		}
	}
}

// TestLostDatabase takes the database away before a key was known.
func TestLostDatabase(t *testing.T) {
	t.Parallel()
	s, keys, db := locked(t, httpapi.Config{})
	_, secret := newKey(t, keys, "acme", apikey.Read)
	db.SetAllowConnections(t, false)
	r := s.ask("GET", "/v1/things", "", "Authorization", "Bearer "+secret)
	if p := r.problem(t); p.Status != 503 || p.Code != "database_unavailable" || r.Header.Get("Retry-After") == "" {
		t.Errorf("got %d %s, Retry-After %q", p.Status, p.Code, r.Header.Get("Retry-After"))
	}
	db.SetAllowConnections(t, true)
	if r := s.ask("GET", "/v1/things", "", "Authorization", "Bearer "+secret); r.Status != 200 {
		t.Errorf("afterwards: %d %s", r.Status, r.Body)
	}
}

func TestCheckOpen(t *testing.T) {
	t.Parallel()
	for _, listen := range []string{"127.0.0.1:8080", "127.8.0.1:0", "[::1]:8080", "localhost:8080"} {
		if err := httpapi.CheckOpen(listen); err != nil {
			t.Errorf("%s: %v", listen, err)
		}
	}
	for _, listen := range []string{":8080", "0.0.0.0:8080", "[::]:8080", "10.0.0.1:8080", "example.com:8080", "localhost.example.com:80"} {
		if err := httpapi.CheckOpen(listen); !errors.Is(err, httpapi.ErrOpen) {
			t.Errorf("%s: %v, want ErrOpen", listen, err)
		}
	}
	if err := httpapi.CheckOpen("8080"); err == nil || errors.Is(err, httpapi.ErrOpen) {
		t.Errorf("a port alone: %v", err)
	}
}

// failing is a shop whose one route fails with err.
func failing(t *testing.T, err error, log io.Writer) *sample {
	t.Helper()
	a := newAPI(httpapi.Config{Log: slog.New(slog.NewTextHandler(log, nil))})
	httpapi.Register(a, httpapi.Op{Method: "POST", Path: "/fail", Scope: apikey.Write, Summary: "Fail"},
		func(context.Context, *struct{}) (httpapi.None, error) { return httpapi.None{}, err })
	return serve(t, a)
}

func wrapped(err error) error { return fmt.Errorf("in transaction 4711: %w", err) }
