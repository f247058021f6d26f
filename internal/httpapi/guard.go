package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/go-chi/httprate"

	"holdfast/internal/apikey"
)

const (
	idempotencyHeader = "Idempotency-Key"
	replayedHeader    = "Idempotency-Replayed"
)

// guard is the way into an operation: it refuses what can't be let in, and gives the rest
// its context, its checked body and one of two ways on.
func (a *API) guard(rt *route) func(huma.Context, func(huma.Context)) {
	slots := a.working
	if rt.op.Long {
		slots = a.waiting
	}
	return func(hc huma.Context, next func(huma.Context)) {
		r, w := humago.Unwrap(hc)
		rec := w.(*recorder)
		rec.rt = rt
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			tooBusy.write(rec)
			return
		}
		ctx, unbind := a.bound(rt, rec)
		defer unbind()
		s := newScratch()
		defer s.release()
		if err := a.check(ctx, rt, rec, r, s); err != nil {
			a.problemOf(ctx, err).write(rec)
			return
		}
		if rt.quick != nil {
			wildcard := ""
			if len(rt.wildcard) > 0 {
				wildcard = r.PathValue(rt.wildcard[0])
			}
			if rt.quick(ctx, rec, wildcard, s) {
				return
			}
		}
		if rt.body != streamedBody { // huma reads it once more
			rec.rq.body, rec.rq.bodyType = s.body, rt.bodyType
			r.Body = io.NopCloser(bytes.NewReader(s.body))
			r.ContentLength = int64(len(s.body))
		}
		// Bodies go in and out as JSON, whatever a client's tool calls them by default.
		r.Header.Set("Accept", "application/json")
		if rt.body != rawBody && rt.body != streamedBody {
			r.Header.Set("Content-Type", "application/json")
		}
		next(huma.WithContext(hc, ctx))
	}
}

var tooBusy = &Problem{
	Status: http.StatusServiceUnavailable, Code: CodeOverloaded, RetryAfter: retryOverload,
	Detail: "Too many requests are in hand here. Nothing was done; ask again.",
}

// check stands its questions in the order of their cost, and reads the body into s.
func (a *API) check(ctx context.Context, rt *route, rec *recorder, r *http.Request, s *scratch) (err error) {
	rq := &rec.rq
	if err := a.sameSite(r); err != nil {
		return err
	}
	if rq.principal, err = a.identify(ctx, rec, r, rt.op.Scope); err != nil {
		return err
	}
	if a.limiter != nil && a.limiter.OnLimit(rec, r, rq.principal.KeyID) {
		return &Problem{
			Status: http.StatusTooManyRequests, Code: CodeRateLimited, RetryAfter: rateWindow,
			Detail: fmt.Sprintf("This API key may ask %d times a second.", a.cfg.RatePerSecond),
		}
	}
	if faults := rt.checkAddress(r); len(faults) > 0 {
		return invalid(faults...)
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	rq.key.Tenant, rq.key.Path = rq.principal.Tenant, r.URL.Path
	if rq.key.Value, err = idempotencyValue(r.Header); err != nil {
		return err
	}
	if rt.body == streamedBody {
		return nil
	}
	var timeout time.Duration // that of the request's arrival goes on
	if rt.op.MaxBody > MaxBody {
		timeout = a.cfg.BodyTimeout * time.Duration((rt.op.MaxBody+MaxBody-1)/MaxBody)
	}
	if err = rt.readBody(s, rec, r, timeout); err == nil && rq.key.Value != "" {
		rq.key.Body = rt.hashOf(s, r)
	}
	return err
}

// sameSite refuses what a browser sends for a page of another site, which without
// authentication could change things here merely by being looked at.
func (a *API) sameSite(r *http.Request) error {
	if a.origin.Check(r) != nil {
		return &Problem{Status: http.StatusForbidden, Code: CodeCrossOrigin, Detail: "A page of another site may not change anything here."}
	}
	return nil
}

// ownHost refuses, without authentication, a Host that isn't a name of loopback: a page whose
// name was made to resolve to loopback is of the same site to its browser, and everybody here is an
// administrator.
func (a *API) ownHost(r *http.Request) error {
	if a.cfg.Keys != nil {
		return nil
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	if host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return nil
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Zone() == "" && ip.Unmap().IsLoopback() {
		return nil
	}
	return &Problem{
		Status: http.StatusForbidden, Code: CodeForeignHost,
		Detail: "Authentication is off here, so only requests to localhost or a loopback address are answered.",
	}
}

// bound gives the request its deadline, and its answer the time to be written in.
func (a *API) bound(rt *route, rec *recorder) (_ context.Context, unbind func()) {
	rq := &rec.rq
	if rt.op.Timeout < 0 {
		_ = http.NewResponseController(rec.ResponseWriter).SetWriteDeadline(time.Time{})
		return context.WithCancel(rq)
	}
	rq.deadline = rq.arrival.Add(cmp.Or(rt.op.Timeout, a.cfg.RequestTimeout))
	if rt.op.Timeout != 0 { // else it has been set already
		_ = http.NewResponseController(rec.ResponseWriter).SetWriteDeadline(rq.deadline.Add(writeTimeout))
	}
	if c := connectionOf(rec.r); c != nil {
		c.begin(rq.deadline)
		return rq, c.finish
	}
	return context.WithDeadline(rq, rq.deadline)
}

// identify finds out who asks, and whether they may.
func (a *API) identify(ctx context.Context, w http.ResponseWriter, r *http.Request, scope apikey.Scope) (apikey.Principal, error) {
	if a.cfg.Keys == nil {
		return apikey.Anyone, nil
	}
	header := r.Header.Values("Authorization")
	scheme, secret, _ := strings.Cut(strings.Join(header, ", "), " ")
	if len(header) != 1 || !strings.EqualFold(scheme, "Bearer") || secret == "" {
		w.Header().Set("WWW-Authenticate", "Bearer")
		return apikey.Principal{}, &Problem{
			Status: http.StatusUnauthorized, Code: CodeMissingKey,
			Detail: "This needs an API key, in one header: Authorization: Bearer hf_…",
		}
	}
	principal, err := a.cfg.Keys.Find(ctx, strings.TrimSpace(secret))
	if errors.Is(err, apikey.ErrUnknown) {
		w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
		return principal, &Problem{Status: http.StatusUnauthorized, Code: CodeInvalidKey, Detail: "The API key is unknown or has been revoked."}
	}
	if err == nil && !principal.May(scope) {
		w.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="`+string(scope)+`"`)
		return principal, &Problem{
			Status: http.StatusForbidden, Code: CodeInsufficientScope,
			Detail: fmt.Sprintf("This needs a key with the scope %s.", scope), Members: map[string]any{"required_scope": scope},
		}
	}
	return principal, err
}

// ErrOpen means that a server without authentication would be reachable from elsewhere.
var ErrOpen = errors.New("without authentication only a loopback address can be served")

// CheckOpen fails with [ErrOpen] unless the listen address, host:port, is loopback only.
// Call it before listening when authentication is off.
func CheckOpen(listen string) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("listen address %q: %w", listen, err)
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("%w, such as 127.0.0.1:8080, not %q: turn authentication on or listen on loopback", ErrOpen, listen)
}

const rateWindow = time.Second

func newLimiter(perSecond int) *httprate.RateLimiter {
	return httprate.NewRateLimiter(perSecond, rateWindow)
}
