package httpapi

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"net/http"
	"reflect"
	"time"

	"holdfast/internal/apikey"
	"holdfast/internal/idempotency"
)

// request is what is known of the request in hand. One goroutine at a time touches
// it: the one that serves the request. It is that request's context too, since a context that only
// leads here would be one more for each.
type request struct {
	context.Context // net/http's: it ends when the client leaves

	id        string
	arrival   time.Time // with its monotonic reading
	deadline  time.Time // zero: none
	principal apikey.Principal
	key       idempotency.Key
	draining  <-chan struct{}

	body     []byte       // JSON, checked; empty where there is none
	bodyType reflect.Type // what it is decoded into

	status   int // what the handler chose; zero is the operation's own
	replayed bool
}

type requestKey struct{}

// Value finds the request itself, and whatever net/http has put there.
func (rq *request) Value(key any) any {
	if _, ok := key.(requestKey); ok {
		return rq
	}
	return rq.Context.Value(key)
}

// Deadline is when the request's time is over.
func (rq *request) Deadline() (time.Time, bool) {
	if rq.deadline.IsZero() {
		return rq.Context.Deadline()
	}
	return rq.deadline, true
}

// Err tells the end of its time from the client's leaving, as a context of its own would.
func (rq *request) Err() error {
	err := rq.Context.Err()
	if err != nil && errors.Is(context.Cause(rq.Context), context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return err
}

// requestOf finds the request. Contexts that no request made, such as a test's, get one
// that answers for them.
func requestOf(ctx context.Context) *request {
	if rq, ok := ctx.Value(requestKey{}).(*request); ok {
		return rq
	}
	return &request{principal: apikey.Anyone, arrival: time.Now()}
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

// IdempotencyKey is the request's key. If it came without one, Value is empty and Body zero.
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

// requestID takes over the caller's id, so that one id follows a request through
// several services, or makes one, which is no secret.
func requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); usableRequestID(id) {
		return id
	}
	var bits [12]byte
	binary.BigEndian.PutUint64(bits[:], rand.Uint64())
	binary.BigEndian.PutUint32(bits[8:], rand.Uint32())
	var text [2 * len(bits)]byte
	hex.Encode(text[:], bits[:])
	return string(text[:])
}

// usableRequestID reports whether id is 1 to 64 characters of A-Z a-z 0-9 . _ -
func usableRequestID(id string) bool {
	for i := range len(id) {
		switch b := id[i]; {
		case b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z', b >= '0' && b <= '9', b == '.', b == '_', b == '-':
		default:
			return false
		}
	}
	return len(id) >= 1 && len(id) <= 64
}
