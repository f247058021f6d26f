package httpapi

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"reflect"
	"regexp"
	"time"

	"holdfast/internal/apikey"
	"holdfast/internal/idempotency"
)

// request is what is known of the request in hand. One goroutine at a time touches
// it: the one that serves the request.
type request struct {
	id        string
	arrival   time.Time // with its monotonic reading
	deadline  time.Time // zero: none
	principal apikey.Principal
	key       idempotency.Key
	draining  <-chan struct{}

	body     []byte       // JSON, checked; nil where the route takes none
	bodyType reflect.Type // what it is decoded into

	status   int // what the handler chose; zero is the operation's own
	replayed bool
}

type requestKey struct{}

// noRequest answers for contexts that no request made, such as a test's.
var noRequest = request{principal: apikey.Anyone}

func requestOf(ctx context.Context) *request {
	if rq, ok := ctx.Value(requestKey{}).(*request); ok {
		return rq
	}
	none := noRequest
	none.arrival = time.Now()
	return &none
}

// RequestID names the request in logs and in X-Request-Id.
func RequestID(ctx context.Context) string { return requestOf(ctx).id }

// PrincipalOf is who the request comes from.
func PrincipalOf(ctx context.Context) apikey.Principal { return requestOf(ctx).principal }

// Tenant is whose things the request may see and change.
func Tenant(ctx context.Context) string { return requestOf(ctx).principal.Tenant }

// Arrival is when the request came in, on the monotonic clock of this process.
func Arrival(ctx context.Context) time.Time { return requestOf(ctx).arrival }

// Deadline is the instant, on the same clock as [Arrival], after which the request must
// not be carried out any more; the database is to judge it, since this process may have
// been frozen meanwhile. The context ends then too. It is zero for requests without one.
func Deadline(ctx context.Context) time.Time { return requestOf(ctx).deadline }

// IdempotencyKey is the request's key, with its Value empty if it came without one.
func IdempotencyKey(ctx context.Context) idempotency.Key { return requestOf(ctx).key }

// Draining is closed when the server begins to drain: who waits for something to
// happen, as a long poll does, should answer now.
func Draining(ctx context.Context) <-chan struct{} { return requestOf(ctx).draining }

// SetStatus answers a success with status instead of the operation's own, as in 200
// where something was replaced and 201 where it was created.
func SetStatus(ctx context.Context, status int) { requestOf(ctx).status = status }

// SetReplayed marks the answer as the repetition of an earlier one, with the header
// Idempotency-Replayed: true, if replayed is set.
func SetReplayed(ctx context.Context, replayed bool) { requestOf(ctx).replayed = replayed }

var usableRequestID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// requestID takes over the caller's id, so that one id follows a request through
// several services, or makes one.
func requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); usableRequestID.MatchString(id) {
		return id
	}
	var bits [12]byte
	_, _ = rand.Read(bits[:]) // never fails: it ends the process instead
	return hex.EncodeToString(bits[:])
}
