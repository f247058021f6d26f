package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/httprate"

	"holdfast/internal/apikey"
)

const (
	idempotencyHeader = "Idempotency-Key"
	replayedHeader    = "Idempotency-Replayed"
)

// enter lets a request into its operation, or says why not. leave, which is never nil,
// gives back what the request has taken.
func (a *API) enter(rt *route, w *recorder, r *http.Request) (_ context.Context, leave func(), err error) {
	slots := a.working
	if rt.op.Long {
		slots = a.waiting
	}
	select {
	case slots <- struct{}{}:
	default:
		return nil, func() {}, &Problem{
			Status: http.StatusServiceUnavailable, Code: CodeOverloaded, RetryAfter: retryOverload,
			Detail: "Too many requests are in hand here. Nothing was done; ask again.",
		}
	}
	rq := requestOf(r.Context())
	ctx, cancel := a.bound(rt, rq, w, r)
	leave = func() {
		cancel()
		<-slots
	}
	return ctx, leave, a.check(ctx, rt, rq, w, r)
}

// check stands its questions in the order of their cost.
func (a *API) check(ctx context.Context, rt *route, rq *request, w *recorder, r *http.Request) (err error) {
	if err := a.sameSite(r); err != nil {
		return err
	}
	if rq.principal, err = a.identify(ctx, w, r, rt.op.Scope); err != nil {
		return err
	}
	if a.limiter != nil && a.limiter.OnLimit(w, r, rq.principal.KeyID) {
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
	timeout := a.cfg.BodyTimeout * time.Duration((rt.op.MaxBody+MaxBody-1)/MaxBody)
	rq.key.Body, err = rt.readBody(rq, w, r, timeout)
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
	if ip := net.ParseIP(host); host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsLoopback() {
		return nil
	}
	return &Problem{
		Status: http.StatusForbidden, Code: CodeForeignHost,
		Detail: "Authentication is off here, so only requests to localhost or a loopback address are answered.",
	}
}

// bound gives the request its deadline, and its answer the time to be written in.
func (a *API) bound(rt *route, rq *request, w *recorder, r *http.Request) (context.Context, context.CancelFunc) {
	timeout := rt.op.Timeout
	if timeout == 0 {
		timeout = a.cfg.RequestTimeout
	}
	if timeout < 0 {
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Time{})
		return context.WithCancel(r.Context())
	}
	rq.deadline = rq.arrival.Add(timeout)
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(rq.deadline.Add(writeTimeout))
	return context.WithDeadline(r.Context(), rq.deadline)
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
