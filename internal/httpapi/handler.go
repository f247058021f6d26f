package httpapi

import (
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"time"
)

// writeTimeout bounds the writing of an answer whose operation doesn't say otherwise,
// counted from the request's arrival.
const writeTimeout = time.Minute

// ServeHTTP serves every route: it names the request, counts and logs it, and makes
// what goes wrong a problem.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rec := &recorder{ResponseWriter: w, r: r, rq: request{
		Context: r.Context(), id: requestID(r), arrival: time.Now(), draining: a.drain.Done(),
	}}
	rq := &rec.rq
	header := w.Header()
	header["X-Request-Id"] = []string{rq.id}
	header["X-Content-Type-Options"] = noSniffHeader
	rc := http.NewResponseController(w)
	_ = rc.SetWriteDeadline(rq.arrival.Add(a.cfg.RequestTimeout + writeTimeout))
	if r.ContentLength != 0 {
		// Also for a body that nobody reads: net/http reads the rest of it before it answers.
		_ = rc.SetReadDeadline(rq.arrival.Add(a.cfg.BodyTimeout))
	}

	a.metrics.inFlight.Inc()
	defer func() {
		failure := recover()
		if failure != nil && failure != http.ErrAbortHandler {
			a.panicked(rec, failure)
		}
		if !rec.begun() {
			rec.status = http.StatusOK // what net/http says for a handler that said nothing
		}
		a.metrics.inFlight.Dec()
		a.metrics.observe(rec, time.Since(rq.arrival))
		a.logAccess(rec)
		if failure == http.ErrAbortHandler || failure != nil && rec.broken {
			panic(http.ErrAbortHandler) // ends the connection, so that half an answer doesn't look whole
		}
	}()
	if err := a.ownHost(r); err != nil {
		p := a.problemOf(rq, err)
		rec.status = p.Status
		p.write(w) // not to the recorder, which takes what has no route for ServeMux's own words
		return
	}
	if unclean(r.URL.EscapedPath()) {
		rec.status = http.StatusNotFound // ServeMux would redirect
	} else {
		a.mux.ServeHTTP(rec, r)
	}
	if r.Pattern == "" {
		rec.answerUnrouted()
	}
}

// unclean reports whether p has empty, . or .. segments.
func unclean(p string) bool {
	if strings.HasPrefix(p, "/") && !strings.Contains(p, "//") && !strings.Contains(p, "/.") {
		return false
	}
	return p != "/" && (len(p) == 0 || path.Clean(p) != strings.TrimSuffix(p, "/"))
}

func (a *API) panicked(rec *recorder, failure any) {
	a.log.LogAttrs(&rec.rq, slog.LevelError, "panic",
		slog.String("request_id", rec.rq.id), slog.String("code", CodeInternal),
		slog.Any("error", fmt.Sprint(failure)), slog.String("stack", string(debug.Stack())))
	if rec.begun() {
		rec.broken = true
		return
	}
	internalProblem(&rec.rq).write(rec)
}

func (a *API) logAccess(rec *recorder) {
	if !a.log.Enabled(&rec.rq, slog.LevelDebug) {
		return
	}
	rq := &rec.rq
	a.log.LogAttrs(rq, slog.LevelDebug, "request",
		slog.String("request_id", rq.id),
		slog.String("method", rec.r.Method), slog.String("path", rec.r.URL.Path), slog.String("route", rec.route()),
		slog.Int("status", rec.status), slog.Int64("bytes", rec.bytes), slog.Duration("took", time.Since(rq.arrival)),
		slog.String("tenant", rq.principal.Tenant), slog.String("key", rq.principal.Name))
}

// recorder remembers what was asked and what was answered. While ServeMux has no route for the request
// (Pattern is empty), it keeps back the text that ServeMux answers with.
type recorder struct {
	http.ResponseWriter
	r      *http.Request
	rq     request
	rt     *route // nil: no operation's
	status int    // zero: nothing has been answered yet
	bytes  int64
	broken bool // the answer ended in its middle
}

// Unwrap lets [http.ResponseController] reach the connection.
func (rec *recorder) Unwrap() http.ResponseWriter { return rec.ResponseWriter }

func (rec *recorder) begun() bool { return rec.status != 0 }

func (rec *recorder) WriteHeader(status int) {
	if rec.begun() {
		return
	}
	if status >= http.StatusOK {
		rec.status = status
	}
	if rec.r.Pattern != "" {
		if rec.r.ProtoMajor == 1 && rec.rq.Context.Err() != nil {
			rec.Header().Set("Connection", "close") // see connection: it takes no more requests
		}
		rec.ResponseWriter.WriteHeader(status)
	}
}

func (rec *recorder) Write(p []byte) (int, error) {
	if !rec.begun() {
		rec.WriteHeader(http.StatusOK)
	}
	if rec.r.Pattern == "" {
		return len(p), nil
	}
	n, err := rec.ResponseWriter.Write(p)
	rec.bytes += int64(n)
	return n, err
}

// Flush sends what has been written; streams need it.
func (rec *recorder) Flush() {
	if !rec.begun() {
		rec.WriteHeader(http.StatusOK)
	}
	_ = http.NewResponseController(rec.ResponseWriter).Flush()
}

// answerUnrouted says as a problem what ServeMux said as text. ServeMux has set Allow.
func (rec *recorder) answerUnrouted() {
	p := &Problem{Status: http.StatusNotFound, Code: CodeRouteNotFound, Detail: "There is nothing at this path. /docs lists what there is."}
	if rec.status == http.StatusMethodNotAllowed {
		p = &Problem{Status: rec.status, Code: CodeMethodNotAllowed}
		p.Detail = fmt.Sprintf("%s isn't possible here, but %s.", rec.r.Method, rec.Header().Get("Allow"))
	}
	p.write(rec.ResponseWriter)
	rec.status = p.Status
}

// route is the pattern that the request matched, without its method: a label with few values.
func (rec *recorder) route() string {
	if rec.r.Pattern == "" {
		return "none"
	}
	if _, route, found := strings.Cut(rec.r.Pattern, " "); found {
		return route
	}
	return rec.r.Pattern
}
