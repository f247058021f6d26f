package httpapi

import (
	"context"
	"net/http"
	"time"

	"holdfast/internal/pg"
)

// readyTimeout bounds the service's own check.
const readyTimeout = 2 * time.Second

// handleOperational adds what operators and their tools ask for. All of it is open, since
// none of it tells anything about a tenant.
func (a *API) handleOperational() {
	a.Handle("GET /livez", http.HandlerFunc(a.live))
	a.Handle("GET /readyz", http.HandlerFunc(a.ready))
	a.Handle("GET /metrics", a.metrics.handler())
	a.Handle("GET /openapi.json", http.HandlerFunc(a.serveSpec))
	a.Handle("GET /docs", http.HandlerFunc(a.serveDocs))
}

// live says that the process runs. It asks nothing else, so that a lost database
// doesn't get the process killed.
func (a *API) live(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, map[string]any{"status": "alive"})
}

func (a *API) ready(w http.ResponseWriter, r *http.Request) {
	notReady := &Problem{Status: http.StatusServiceUnavailable, Code: CodeNotReady, RetryAfter: retryDatabase}
	if a.drain.Err() != nil {
		notReady.Detail = "This replica is shutting down."
		notReady.write(w)
		return
	}
	var detail any
	if a.cfg.Ready != nil {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		var err error
		if detail, err = a.cfg.Ready(ctx); err != nil {
			notReady.Detail = err.Error()
			if pg.Unavailable(err) { // whose text names hosts and users
				notReady.Detail = "The database can't be reached."
			}
			if detail != nil {
				notReady.Members = map[string]any{"checks": detail}
			}
			notReady.write(w)
			return
		}
	}
	answer := map[string]any{"status": "ready"}
	if detail != nil {
		answer["checks"] = detail
	}
	writeJSON(w, answer)
}

func writeJSON(w http.ResponseWriter, v any) {
	body, err := marshal(v)
	if err != nil {
		panic(err) // becomes a 500 problem
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(append(body, '\n'))
}
