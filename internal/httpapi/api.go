package httpapi

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/go-chi/httprate"
	"github.com/prometheus/client_golang/prometheus"

	"holdfast/internal/apikey"
)

// Config is what a service says about its API.
type Config struct {
	Title       string
	Version     string
	Description string // CommonMark, for the OpenAPI document

	// Keys finds who a request comes from. Nil means that authentication is off:
	// everyone is [apikey.Anyone], so serve loopback only, see [CheckOpen].
	Keys *apikey.Store
	// Errors tell the service's errors to clients, first match first.
	Errors []Rule
	// Ready says whether the service can do its work now, for /readyz. Detail is shown
	// as JSON either way, and err's text with it. Nil means always.
	Ready func(ctx context.Context) (detail any, err error)

	// RequestTimeout bounds each request from its arrival. Zero means 10 s.
	RequestTimeout time.Duration
	// BodyTimeout bounds the coming in of a body: of its first MiB, and of each further
	// one that the operation allows. Zero means 10 s.
	BodyTimeout time.Duration
	// MaxInFlight bounds the requests worked on at once, and, apart from those, the long ones.
	// More are told to come back. Zero means 4096.
	MaxInFlight int
	// RatePerSecond bounds the requests of one API key (without authentication: of all
	// callers together) on this replica. Zero means no limit.
	RatePerSecond int

	// Log gets failures, and every request at debug level. Nil means slog.Default().
	Log *slog.Logger
	// Metrics is the registry behind /metrics, which the API adds its own to. Nil means a new one.
	Metrics *prometheus.Registry
}

const (
	defaultRequestTimeout = 10 * time.Second
	defaultBodyTimeout    = 10 * time.Second
	defaultMaxInFlight    = 4096
)

// API is one service's HTTP face. Make it with [New], fill it with [Register] and
// [API.Handle], then serve it; the filling isn't safe for concurrent use, serving is.
type API struct {
	cfg     Config
	log     *slog.Logger
	mux     *http.ServeMux
	huma    huma.API
	metrics *metrics
	limiter *httprate.RateLimiter // nil: off
	origin  *http.CrossOriginProtection

	working chan struct{} // a slot for each request in hand
	waiting chan struct{} // a slot for each long one

	drain      context.Context // ends when the drain begins
	startDrain context.CancelFunc

	ops  []Op // as registered
	docs documents
}

// New makes an API with its operational routes: /livez, /readyz, /metrics, /openapi.json and /docs.
func New(cfg Config) *API {
	cfg.RequestTimeout = cmp.Or(cfg.RequestTimeout, defaultRequestTimeout)
	cfg.BodyTimeout = cmp.Or(cfg.BodyTimeout, defaultBodyTimeout)
	cfg.MaxInFlight = cmp.Or(cfg.MaxInFlight, defaultMaxInFlight)
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	a := &API{
		cfg:     cfg,
		log:     cfg.Log,
		mux:     http.NewServeMux(),
		metrics: newMetrics(cfg.Metrics),
		origin:  http.NewCrossOriginProtection(),
		working: make(chan struct{}, cfg.MaxInFlight),
		waiting: make(chan struct{}, cfg.MaxInFlight),
	}
	a.drain, a.startDrain = context.WithCancel(context.Background())
	if cfg.RatePerSecond > 0 {
		a.limiter = newLimiter(cfg.RatePerSecond)
	}
	a.huma = humago.New(a.mux, humaConfig(cfg))
	schemas := a.huma.OpenAPI().Components.Schemas
	schemas.Map()[problemSchema] = (*Problem)(nil).Schema(schemas)
	a.handleOperational()
	return a
}

// Metrics is the registry behind /metrics, for the service's own collectors.
func (a *API) Metrics() *prometheus.Registry { return a.metrics.registry }

// Handle adds a route outside the OpenAPI document, such as a page of the dashboard. It
// is open to everyone and unlimited unless h sees to it; only what a browser sends to change
// something for another site's page is refused. The pattern is
// [http.ServeMux]'s and must begin with a method, and a page at the root is "GET /{$}":
// a pattern that catches everything would take unknown routes their 404, so Handle panics.
func (a *API) Handle(pattern string, h http.Handler) {
	if _, path, ok := strings.Cut(pattern, " "); !ok || path == "/" {
		panic("httpapi: the pattern " + pattern + " catches too much")
	}
	a.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		rq := &w.(*recorder).rq
		if err := a.sameSite(r); err != nil {
			a.problemOf(rq, err).write(w)
			return
		}
		h.ServeHTTP(w, r.WithContext(rq))
	})
}

// humaConfig turns off what huma brings along: its own documents, its pages with
// scripts from elsewhere, and the $schema links.
func humaConfig(cfg Config) huma.Config {
	jsonFormat := huma.DefaultJSONFormat
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info:    &huma.Info{Title: cfg.Title, Version: cfg.Version, Description: cfg.Description},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"key": {Type: "http", Scheme: "bearer", BearerFormat: "hf_…", Description: "An API key. Not asked for when the server runs with --auth off."},
				},
			},
		},
		Formats:                      map[string]huma.Format{"application/json": jsonFormat, "json": jsonFormat},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
	}
}
