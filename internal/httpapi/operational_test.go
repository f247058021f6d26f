package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
)

func TestReadiness(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		detail any
		err    error
		status int
		want   string // in the body
	}{
		{"ready", map[string]string{"database": "reachable"}, nil, 200, `"checks":{"database":"reachable"},"status":"ready"`},
		{"ready, without detail", nil, nil, 200, `{"status":"ready"}`},
		{"not migrated", map[string]int{"version": 3}, errors.New("database not migrated: run holdfast migrate"), 503, `run holdfast migrate`},
		{"with what there is of detail", map[string]int{"version": 3}, errors.New("no"), 503, `"checks":{"version":3}`},
		{"no database", nil, fmt.Errorf("host=db.internal: %w", &pgconn.ConnectError{}), 503, `The database can't be reached.`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, newAPI(httpapi.Config{Ready: func(context.Context) (any, error) { return tc.detail, tc.err }}))
			r := s.ask("GET", "/readyz", "")
			if r.Status != tc.status || !strings.Contains(r.Body, tc.want) || strings.Contains(r.Body, "db.internal") {
				t.Errorf("got %d %s", r.Status, r.Body)
			}
			if r.Status == 503 {
				if p := r.problem(t); p.Code != "not_ready" {
					t.Errorf("code %s", p.Code)
				}
			}
			if r := s.ask("GET", "/livez", ""); r.Status != 200 {
				t.Errorf("/livez: %d", r.Status)
			}
		})
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	s.ask("GET", "/v1/things/1", "")
	s.ask("GET", "/v1/things/2", "")
	s.ask("GET", "/v1/nothing/3", "")
	s.ask("FROB", "/v1/things/4", "")
	s.ask("POST", orders, "{")
	text := s.ask("GET", "/metrics", "").Body
	for _, want := range []string{
		`holdfast_http_requests_total{method="GET",route="/v1/things/{id}",status="200"} 2`,
		`holdfast_http_requests_total{method="GET",route="none",status="404"} 1`,
		`holdfast_http_requests_total{method="other",route="none",status="405"} 1`,
		`holdfast_http_requests_total{method="POST",route="/v1/shops/{shop}/orders",status="400"} 1`,
		`holdfast_http_request_duration_seconds_count{method="GET",route="/v1/things/{id}"} 2`,
		"holdfast_http_requests_in_flight 1",
		"go_goroutines", "process_start_time_seconds",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
}

// TestOpenAPI reads the document as a code generator would.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	r := newSample(t).ask("GET", "/openapi.json", "")
	var spec struct {
		OpenAPI    string
		Info       struct{ Title, Version string }
		Paths      map[string]map[string]map[string]any
		Components struct {
			Schemas         map[string]map[string]any
			SecuritySchemes map[string]any
		}
	}
	if err := json.Unmarshal([]byte(r.Body), &spec); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(spec.OpenAPI, "3.1.") || spec.Info.Title != "Sample" || spec.Info.Version != "1.2.3" {
		t.Errorf("openapi %s, info %+v", spec.OpenAPI, spec.Info)
	}
	ids := map[any]bool{}
	for path, item := range spec.Paths {
		for method, op := range item {
			if id := op["operationId"]; id == "" || ids[id] {
				t.Errorf("%s %s: operationId %v isn't its own", method, path, id)
			} else {
				ids[id] = true
			}
			if op["x-scope"] == nil || op["security"] == nil {
				t.Errorf("%s %s: no scope or no security", method, path)
			}
			if op["responses"].(map[string]any)["default"] == nil {
				t.Errorf("%s %s: no problem", method, path)
			}
		}
	}
	post := spec.Paths["/v1/shops/{shop}/orders"]["post"]
	for _, want := range []string{"Idempotency-Key", "Idempotency-Replayed", "sold_out", `"201"`} {
		if text, _ := json.Marshal(post); !strings.Contains(string(text), want) {
			t.Errorf("placing an order: no %s", want)
		}
	}
	confirm, _ := json.Marshal(spec.Paths["/v1/orders/{id}/confirm"]["post"]["requestBody"])
	if strings.Contains(string(confirm), `"required":true`) {
		t.Errorf("an optional body is required: %s", confirm)
	}
	if spec.Components.Schemas["Problem"] == nil || spec.Components.SecuritySchemes["key"] == nil {
		t.Error("no Problem, or no key")
	}
	for _, ref := range regexp.MustCompile(`"#/components/schemas/([^"]+)"`).FindAllStringSubmatch(r.Body, -1) {
		if spec.Components.Schemas[ref[1]] == nil {
			t.Errorf("%s leads nowhere", ref[0])
		}
	}
}

// TestDocs wants every operation and problem on a page that loads nothing from elsewhere.
func TestDocs(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	r := s.ask("GET", "/docs", "")
	for _, want := range []string{
		"/v1/shops/{shop}/orders", "Place an order", "lines[].quantity", "1 to 1000000000", "query.limit", "default 50", "Body (optional)",
		`id="sold_out"`, `id="validation_failed"`, `id="commit_unknown"`, "without\nauthentication",
	} {
		if !strings.Contains(r.Body, want) {
			t.Errorf("no %s", want)
		}
	}
	if found := regexp.MustCompile(`(src=|<script|https?://)[^"'\s]*`).FindString(r.Body); found != "" {
		t.Errorf("the page asks for %s", found)
	}
	if csp := r.Header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'") {
		t.Errorf("Content-Security-Policy is %q", csp)
	}
	for _, path := range []string{"/openapi.yaml", "/openapi-3.0.json", "/schemas/Problem.json"} {
		if r := s.ask("GET", path, ""); r.Status != 404 {
			t.Errorf("huma's own %s is served: %d", path, r.Status)
		}
	}
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	log := &notes{}
	s := serve(t, newAPI(httpapi.Config{Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))}))
	made := s.ask("GET", "/v1/things/7", "").Header.Get("X-Request-Id")
	if other := s.ask("GET", "/v1/things/7", "").Header.Get("X-Request-Id"); made == "" || made == other {
		t.Errorf("ids %q and %q", made, other)
	}
	if got := s.ask("GET", "/v1/nothing", "", "X-Request-Id", "abc-1.2_3").Header.Get("X-Request-Id"); got != "abc-1.2_3" {
		t.Errorf("the caller's id became %q", got)
	}
	for _, bad := range []string{"a b", strings.Repeat("x", 65), "a\"b"} {
		if got := s.ask("GET", "/v1/nothing", "", "X-Request-Id", bad).Header.Get("X-Request-Id"); got == bad || got == "" {
			t.Errorf("the caller's %q became %q", bad, got)
		}
	}
	s.ask("GET", "/livez", "") // its line comes after the others' are complete
	if text := log.String(); !strings.Contains(text, "request_id="+made+" method=GET path=/v1/things/7 route=/v1/things/{id} status=200") {
		t.Errorf("the access log has %s", text)
	}
}

// TestRegisterRefuses wants contradictions to show at the start.
func TestRegisterRefuses(t *testing.T) {
	t.Parallel()
	for name, op := range map[string]httpapi.Op{
		"no scope":     {Method: "GET", Path: "/x", Summary: "X"},
		"no summary":   {Method: "GET", Path: "/x", Scope: apikey.Read},
		"unknown code": {Method: "GET", Path: "/x", Scope: apikey.Read, Summary: "X", Codes: []string{"nonsense"}},
		"taken route":  {Method: "GET", Path: "/v1/things", Scope: apikey.Read, Summary: "X"},
		"taken name":   {Method: "GET", Path: "/x", Scope: apikey.Read, Summary: "List things"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer func() {
				if recover() == nil {
					t.Error("registered")
				}
			}()
			httpapi.Register(newAPI(httpapi.Config{}), op, func(context.Context, *struct{}) (httpapi.None, error) { return httpapi.None{}, nil })
		})
	}
}

var _ http.Handler = (*httpapi.API)(nil)
