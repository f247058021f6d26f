package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Outcome is one stable word for what came of an attempt. Words may be added,
// none changes its meaning.
type Outcome string

const (
	Succeeded         Outcome = "succeeded"          // a 2xx
	AcceptedAsync     Outcome = "accepted"           // a 202 that promises a report
	HTTPError         Outcome = "http_error"         // any other answer
	Redirected        Outcome = "redirect"           // a 3xx; it isn't followed
	Gone              Outcome = "gone"               // a 410
	Timeout           Outcome = "timeout"            // no answer before the deadline
	DNSError          Outcome = "dns_error"          // the name didn't resolve
	ConnectionRefused Outcome = "connection_refused" // nothing listens there
	ConnectionError   Outcome = "connection_error"   // the connection failed or broke, or what came wasn't HTTP
	TLSError          Outcome = "tls_error"          // no handshake, or a certificate that doesn't hold
	HeadersTooLarge   Outcome = "headers_too_large"  // the answer's headers passed 64 KiB
	TargetForbidden   Outcome = "target_forbidden"   // the guard refused the address
	InvalidRequest    Outcome = "invalid_request"    // nothing was sent: see FieldError
	Cancelled         Outcome = "cancelled"          // the caller's context ended first
)

// Class is what to do after an attempt.
type Class string

const (
	ClassSuccess  Class = "success"  // done
	ClassAccepted Class = "accepted" // still running at the receiver
	ClassRetry    Class = "retry"    // try again, after RetryAfter at the earliest
	ClassFinal    Class = "final"    // failed; another attempt would fare the same
	ClassGone     Class = "gone"     // failed, and the receiver wants no more
)

const (
	// MaxResponse is how much of an answer's body is read and kept, in bytes.
	MaxResponse = 4 << 10
	// MaxRetryAfter bounds what a receiver can ask for.
	MaxRetryAfter = 24 * time.Hour

	maxErrorText = 500 // bytes
)

// HeaderAsync on a 202, with the value "accepted", says that the work goes on
// and will be reported.
const HeaderAsync = "Chronos-Async"

// Result is what came of one attempt. All text is valid UTF-8 without NUL, as
// PostgreSQL needs it, and fit to be shown to the tenant.
type Result struct {
	Outcome    Outcome
	Class      Class
	StatusCode int           // 0: no answer
	Latency    time.Duration // until the answer's headers were in, or it failed
	Response   string        // the first [MaxResponse] bytes of the answer's body
	RetryAfter time.Duration // what the receiver asked for, up to [MaxRetryAfter]; only on ClassRetry
	Error      string        // why, for a person; empty on success
}

// TargetFailed reports whether the attempt shows that nobody could be served there now: no answer, or a proxy's word that
// there is nobody behind it. Other answers, also a 500, may be the trouble of this one request.
func (r Result) TargetFailed() bool {
	switch r.Outcome {
	case Timeout, DNSError, ConnectionRefused, ConnectionError, TLSError:
		return true
	}
	return r.StatusCode == http.StatusBadGateway || r.StatusCode == http.StatusServiceUnavailable || r.StatusCode == http.StatusGatewayTimeout
}

// answered reads an answer's status and headers.
func answered(status int, h http.Header) Result {
	r := Result{StatusCode: status, Outcome: HTTPError, Class: ClassFinal, Error: statusText(status)}
	switch {
	case status == http.StatusAccepted && strings.EqualFold(h.Get(HeaderAsync), "accepted"):
		r.Outcome, r.Class, r.Error = AcceptedAsync, ClassAccepted, ""
	case status >= 200 && status <= 299:
		r.Outcome, r.Class, r.Error = Succeeded, ClassSuccess, ""
	case status >= 300 && status <= 399:
		r.Outcome = Redirected
		r.Error += ": redirects aren't followed"
		if to := h.Get("Location"); to != "" {
			r.Error = clean(r.Error+", to "+to, maxErrorText)
		}
	case status == http.StatusGone:
		r.Outcome, r.Class = Gone, ClassGone
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly,
		status == http.StatusTooManyRequests, status >= 500 && status <= 599:
		r.Class = ClassRetry
		r.RetryAfter = retryAfter(h, time.Now())
	}
	return r
}

func statusText(status int) string {
	if text := http.StatusText(status); text != "" {
		return fmt.Sprintf("answered %d %s", status, text)
	}
	return fmt.Sprintf("answered %d", status)
}

// retryAfter reads seconds or a date. A date is taken against the answer's own
// Date where it has one: the two clocks may be hours apart.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if value == "" {
		return 0
	}
	if strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseUint(value, 10, 64)
		if err != nil || seconds > uint64(MaxRetryAfter/time.Second) {
			return MaxRetryAfter
		}
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	if theirs, err := http.ParseTime(h.Get("Date")); err == nil {
		now = theirs
	}
	return min(max(at.Sub(now), 0), MaxRetryAfter)
}

// unsendable is the result of a request that was refused before it was sent.
func unsendable(err error) Result {
	outcome := InvalidRequest
	if errors.Is(err, ErrTargetForbidden) {
		outcome = TargetForbidden
	}
	return Result{Outcome: outcome, Class: ClassFinal, Error: clean(err.Error(), maxErrorText)}
}

// unanswered names what kept an answer from coming. ctx is the caller's,
// attempt the one with the deadline.
func unanswered(ctx, attempt context.Context, err error, p *progress) Result {
	r := Result{Outcome: ConnectionError, Class: ClassRetry}
	var (
		field *FieldError
		dns   *net.DNSError
		timed net.Error
	)
	switch {
	case errors.As(err, &field):
		// The guard spoke: DNS is the tenant's to set right, and asking again
		// would only let it look for the answer that slips through.
		return unsendable(field)
	case errors.Is(ctx.Err(), context.Canceled):
		r.Outcome, r.Error = Cancelled, "stopped before the answer"
	case attempt.Err() != nil:
		r.Outcome, r.Error = Timeout, "timed out "+p.waitingFor()
	case errors.As(err, &dns):
		r.Outcome, r.Error = DNSError, lookupText(dns)
	case errors.As(err, &timed) && timed.Timeout():
		r.Outcome, r.Error = Timeout, "timed out "+p.waitingFor()
	case strings.Contains(err.Error(), "server response headers exceeded"):
		// net/http has no error value for it.
		r.Outcome, r.Error = HeadersTooLarge, fmt.Sprintf("the answer's headers are over %d bytes", maxResponseHeaders)
	case p.tlsFailed.Load():
		r.Outcome, r.Error = TLSError, connectionText(err)
	case errors.Is(err, syscall.ECONNREFUSED):
		r.Outcome, r.Error = ConnectionRefused, "connection refused"
	default:
		r.Error = connectionText(err)
	}
	return r
}

// lookupText leaves out what DNSError says of our resolver.
func lookupText(err *net.DNSError) string {
	reason := "the lookup failed"
	switch {
	case err.IsNotFound:
		reason = "no such host"
	case err.IsTimeout:
		reason = "the lookup timed out"
	}
	return clean(err.Name+": "+reason, maxErrorText)
}

// connectionText leaves out our own address and port, which OpError names.
func connectionText(err error) string {
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		err = op.Err
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "the connection was closed before the answer was whole"
	}
	return clean(err.Error(), maxErrorText)
}
