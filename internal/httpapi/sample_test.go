package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
	"holdfast/internal/pg/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// The sample is a small shop, with one operation of each shape that the services have.
type (
	orderInput struct {
		Shop string `path:"shop"`
		Body order
	}
	order struct {
		Lines    []line            `json:"lines" minItems:"1" maxItems:"3"`
		Customer string            `json:"customer,omitempty" minLength:"1" maxLength:"5"`
		TTL      *httpapi.Duration `json:"ttl,omitempty"`
		From     *httpapi.Time     `json:"from,omitempty"`
		Note     json.RawMessage   `json:"note,omitempty"`
		Prefer   string            `json:"prefer,omitempty" enum:"fewest,spread"`
	}
	line struct {
		SKU      string `json:"sku" minLength:"1"`
		Quantity int64  `json:"quantity" minimum:"1" maximum:"1000000000"`
	}
	confirmInput struct {
		ID   string `path:"id"`
		Body *struct {
			Retake bool `json:"retake,omitempty"`
		}
	}
	idInput struct {
		ID string `path:"id"`
	}
	listInput struct {
		httpapi.ListParams
		From  httpapi.Time `query:"from"`
		Open  bool         `query:"open"`
		Label []string     `query:"label,explode"`
	}
	importInput struct {
		ContentType string `header:"Content-Type"`
		DryRun      bool   `query:"dry_run"`
		RawBody     []byte
	}
)

// seen is what a handler was given, so that tests can look at it from outside.
type seen struct {
	Tenant string `json:"tenant"`
	Actor  string `json:"actor"`
	Path   string `json:"path"`
	Key    string `json:"key"`
	Hash   []byte `json:"hash"`
	Body   any    `json:"body,omitempty"`
}

func whatIsSeen(ctx context.Context, body any) seen {
	key := httpapi.IdempotencyKey(ctx)
	return seen{httpapi.Tenant(ctx), httpapi.PrincipalOf(ctx).Name, key.Path, key.Value, key.Body[:], body}
}

var errSoldOut = errors.New("not enough units are free")

type shortage struct {
	SKU       string `json:"sku"`
	Available int64  `json:"available"`
}

func (s *shortage) Error() string        { return "shortage of " + s.SKU + " in row 17 of table stock" }
func (s *shortage) Is(target error) bool { return target == errSoldOut }

var sampleRules = []httpapi.Rule{{
	Err: errSoldOut, Status: http.StatusConflict, Code: "sold_out",
	Tell: func(err error, p *httpapi.Problem) {
		var facts *shortage
		if errors.As(err, &facts) {
			p.Members = map[string]any{"shortages": []*shortage{facts}}
		}
	},
}}

// sample is a running shop, and a client of it.
type sample struct {
	t      testing.TB
	API    *httpapi.API
	URL    string
	client *http.Client
}

// newAPI is the shop as huma serves it, newQuickAPI the same with codecs where there can be one.
func newAPI(cfg httpapi.Config) *httpapi.API {
	return sampleAPI(cfg, httpapi.Register[orderInput, seen], httpapi.Register[confirmInput, seen])
}

func newQuickAPI(cfg httpapi.Config) *httpapi.API {
	return sampleAPI(cfg,
		func(a *httpapi.API, op httpapi.Op, handle func(context.Context, *orderInput) (seen, error)) {
			httpapi.RegisterWithCodec(a, op, httpapi.Codec[orderInput, seen]{Decode: decodeOrder, Append: appendSeen}, handle)
		},
		func(a *httpapi.API, op httpapi.Op, handle func(context.Context, *confirmInput) (seen, error)) {
			httpapi.RegisterWithCodec(a, op, httpapi.Codec[confirmInput, seen]{Decode: decodeConfirm, Append: appendSeen}, handle)
		})
}

type register[I any] func(*httpapi.API, httpapi.Op, func(context.Context, *I) (seen, error))

func sampleAPI(cfg httpapi.Config, registerOrder register[orderInput], registerConfirm register[confirmInput]) *httpapi.API {
	cfg.Title, cfg.Version = "Sample", "1.2.3"
	cfg.Errors = sampleRules
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	a := httpapi.New(cfg)
	registerOrder(a, httpapi.Op{Method: "POST", Path: "/v1/shops/{shop}/orders", Scope: apikey.Write, Summary: "Place an order", Status: 201, Codes: []string{"sold_out"}},
		func(ctx context.Context, in *orderInput) (seen, error) {
			if in.Body.Lines[0].SKU == "gone" {
				return seen{}, &shortage{SKU: in.Body.Lines[0].SKU}
			}
			httpapi.SetReplayed(ctx, in.Body.Lines[0].SKU == "again")
			return whatIsSeen(ctx, in.Body), nil
		})
	httpapi.Register(a, httpapi.Op{Method: "PUT", Path: "/v1/things/{id}", Scope: apikey.Write, Summary: "Set a thing", Status: 200, Also: []int{201}},
		func(ctx context.Context, in *struct {
			ID   string `path:"id"`
			Body line
		},
		) (*line, error) {
			httpapi.SetStatus(ctx, 201)
			httpapi.SetReplayed(ctx, true)
			return &in.Body, nil
		})
	registerConfirm(a, httpapi.Op{Method: "POST", Path: "/v1/orders/{id}/confirm", Scope: apikey.Write, Summary: "Confirm an order"},
		func(ctx context.Context, in *confirmInput) (seen, error) { return whatIsSeen(ctx, in.Body != nil), nil })
	httpapi.Register(a, httpapi.Op{Method: "POST", Path: "/v1/orders/{id}/resume", Scope: apikey.Admin, Summary: "Resume an order"},
		func(ctx context.Context, _ *idInput) (seen, error) { return whatIsSeen(ctx, nil), nil })
	httpapi.Register(a, httpapi.Op{Method: "GET", Path: "/v1/things", Scope: apikey.Read, Summary: "List things"}, listThings)
	httpapi.Register(a, httpapi.Op{Method: "GET", Path: "/v1/things/{id}", Scope: apikey.Read, Summary: "Get a thing"},
		func(ctx context.Context, in *idInput) (seen, error) { return whatIsSeen(ctx, in.ID), nil })
	httpapi.Register(a, httpapi.Op{Method: "DELETE", Path: "/v1/things/{id}", Scope: apikey.Write, Summary: "Delete a thing"},
		func(context.Context, *idInput) (httpapi.None, error) { return httpapi.None{}, nil })
	httpapi.Register(a, httpapi.Op{Method: "POST", Path: "/v1/imports", Scope: apikey.Write, Summary: "Import things", MaxBody: 4 << 20},
		func(ctx context.Context, in *importInput) (seen, error) {
			return whatIsSeen(ctx, in.ContentType+" "+string(in.RawBody[:min(len(in.RawBody), 20)])), nil
		})
	a.Handle("GET /{$}", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "a page") }))
	a.Handle("POST /page", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") }))
	return a
}

// listThings has the numbers from 1 to 120 as its things.
func listThings(_ context.Context, in *listInput) (httpapi.Page[int], error) {
	var after int
	if _, err := in.After("things", &after); err != nil {
		return httpapi.Page[int]{}, err
	}
	var rows []int
	for n := after + 1; n <= 120 && len(rows) <= in.Limit; n++ {
		rows = append(rows, n)
	}
	return httpapi.NewPage(rows, in.Limit, "things", func(last int) int { return last }), nil
}

func serve(t testing.TB, a *httpapi.API) *sample {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	return &sample{t: t, API: a, URL: server.URL, client: server.Client()}
}

// newSample is a shop without authentication.
func newSample(t testing.TB) *sample {
	t.Helper()
	return serve(t, newAPI(httpapi.Config{}))
}

// reply is an answer, read to its end.
type reply struct {
	Status int
	Header http.Header
	Body   string
}

type problem struct {
	Type, Title, Detail, Code string
	Status                    int
	Errors                    []httpapi.FieldError
	Shortages                 []shortage
	RequiredScope             string `json:"required_scope"`
}

func (s *sample) ask(method, path, body string, header ...string) reply {
	s.t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, s.URL+path, reader)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	res, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return reply{res.StatusCode, res.Header, string(text)}
}

// problem reads the reply as a problem, and checks what all problems have in common.
func (r reply) problem(t testing.TB) (p problem) {
	t.Helper()
	if ct := r.Header.Get("Content-Type"); ct != "application/problem+json" {
		t.Errorf("Content-Type is %q, want application/problem+json; body %s", ct, r.Body)
	}
	if err := json.Unmarshal([]byte(r.Body), &p); err != nil {
		t.Fatalf("%v in %s", err, r.Body)
	}
	if p.Status != r.Status || p.Code == "" || p.Title == "" || p.Detail == "" || p.Type != "/docs#"+p.Code {
		t.Errorf("incomplete problem for status %d: %s", r.Status, r.Body)
	}
	if r.Header.Get("X-Request-Id") == "" {
		t.Error("no X-Request-Id")
	}
	return p
}

// seen reads the reply as what the handler has seen.
func (r reply) seen(t testing.TB) (v seen) {
	t.Helper()
	if r.Status >= 300 {
		t.Fatalf("status %d: %s", r.Status, r.Body)
	}
	if err := json.Unmarshal([]byte(r.Body), &v); err != nil {
		t.Fatalf("%v in %s", err, r.Body)
	}
	return v
}
