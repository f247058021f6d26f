package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync/atomic"
	"time"
)

const (
	maxResponseHeaders = 64 << 10 // bytes

	// connsPerHost bounds what one host can hold of our file descriptors; as
	// many are kept idle, so that a burst doesn't dial anew. At 50 ms an answer
	// it carries 10,000 deliveries a second.
	connsPerHost = 512
	idleConns    = 4096
	// idleTimeout is short: a receiver that drops an idle connection just as it
	// is used again costs an attempt.
	idleTimeout = 30 * time.Second
	// connectTimeout is within the attempt's deadline, which may be 15 minutes.
	connectTimeout = 10 * time.Second
)

// Options say how a [Client] reaches its targets.
type Options struct {
	// Guard decides which addresses may be dialled; nil is NewGuard(), which
	// allows no special range.
	Guard *Guard
	// Resolver turns names into addresses; nil is the system's.
	Resolver *net.Resolver
	// RootCAs are trusted for https; nil is the system's.
	RootCAs *x509.CertPool
	// UserAgent is sent unless a request has its own; "" is "Holdfast".
	UserAgent string
}

// Client sends. One client serves all targets; it is safe for concurrent use.
type Client struct {
	guard     *Guard
	transport *http.Transport
	userAgent string
}

// NewClient makes a client with a connection pool of its own.
func NewClient(o Options) *Client {
	c := &Client{guard: o.Guard, userAgent: o.UserAgent}
	if c.guard == nil {
		c.guard = NewGuard()
	}
	if c.userAgent == "" {
		c.userAgent = "Holdfast"
	}
	dialer := &net.Dialer{Timeout: connectTimeout, Control: c.guard.Control, Resolver: o.Resolver}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true) // HTTP/2 would put all deliveries to a host on one connection
	c.transport = &http.Transport{
		Proxy:                  nil, // a proxy would dial for us, past the guard
		DialContext:            dialer.DialContext,
		Protocols:              protocols,
		TLSClientConfig:        &tls.Config{RootCAs: o.RootCAs},
		TLSHandshakeTimeout:    connectTimeout,
		MaxConnsPerHost:        connsPerHost,
		MaxIdleConnsPerHost:    connsPerHost,
		MaxIdleConns:           idleConns,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxResponseHeaders,
		DisableCompression:     true, // the excerpt is what was sent, and 4 KiB stay 4 KiB
	}
	return c
}

// CloseIdle closes the connections that no attempt is using. Call it after the
// last Send has returned.
func (c *Client) CloseIdle() { c.transport.CloseIdleConnections() }

// Request is one attempt to be made. Send doesn't change it.
type Request struct {
	URL    string
	Method string // one of [Methods]
	Body   []byte // sent as it is, with GET too
	// Headers are the tenant's: see [CheckHeaders]. Without a content-type of
	// its own, a body goes as application/json.
	Headers map[string]string
	// Own are the sending service's headers; they win over the tenant's.
	Own map[string]string
	// Timeout is the whole attempt's, from waiting for a connection to the end of
	// the excerpt; 0 is [DefaultTimeout].
	Timeout time.Duration

	// ID is webhook-id, the same on every attempt: visible ASCII, no dot.
	ID string
	// Timestamp is webhook-timestamp; receivers refuse one that is minutes off, so
	// take it from the database's clock. Zero is this machine's.
	Timestamp time.Time
	// Secrets sign, each for itself; at least one, the current one first.
	Secrets []Secret
}

// Send makes one attempt and blocks until it has its result, at the latest when
// r.Timeout has passed or ctx ends. It doesn't fail otherwise: whatever went
// wrong is in the result. When ctx is cancelled before the answer's headers are
// in, the outcome is [Cancelled] and the receiver may or may not have acted.
func (c *Client) Send(ctx context.Context, r Request) Result {
	req, err := c.prepare(&r)
	if err != nil {
		return unsendable(err)
	}
	attempt, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	var p progress
	start := time.Now()
	resp, err := c.transport.RoundTrip(req.WithContext(httptrace.WithClientTrace(attempt, p.trace())))
	latency := time.Since(start)
	if err != nil {
		result := unanswered(ctx, attempt, err, &p)
		result.Latency = latency
		return result
	}
	defer resp.Body.Close()
	result := answered(resp.StatusCode, resp.Header)
	result.Latency = latency
	if resp.StatusCode != http.StatusSwitchingProtocols { // its body is another protocol
		result.Response = excerpt(resp.Body)
	}
	return result
}

// prepare checks and completes r, and builds the request that is sent.
func (c *Client) prepare(r *Request) (*http.Request, error) {
	if r.Timeout == 0 {
		r.Timeout = DefaultTimeout
	}
	if r.Timestamp.IsZero() {
		r.Timestamp = time.Now()
	}
	if err := CheckMethod(r.Method); err != nil {
		return nil, err
	}
	if err := CheckTimeout(r.Timeout); err != nil {
		return nil, err
	}
	if err := checkID(r.ID); err != nil {
		return nil, err
	}
	if len(r.Secrets) == 0 || slices.ContainsFunc(r.Secrets, Secret.IsZero) {
		return nil, invalid("secrets", "must be one or more, none of them empty")
	}
	// Again, although it passed when it was stored: the allow-list may have
	// changed since.
	u, err := c.guard.parse(r.URL)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequest(r.Method, u.String(), bytes.NewReader(r.Body))
	if err != nil {
		return nil, invalid("url", "can't be requested")
	}
	req.Header = make(http.Header, 16) // with room for all of them
	req.Header.Set("User-Agent", c.userAgent)
	if len(r.Body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	if err := r.setHeaders(req.Header); err != nil {
		return nil, err
	}
	return req, nil
}

// progress is how far an attempt has come, for the words of its failure. The
// transport may still report after the attempt has ended, hence the atomics.
type progress struct {
	connected atomic.Bool
	tlsFailed atomic.Bool
}

func (p *progress) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { p.connected.Store(true) },
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) {
			if err != nil {
				p.tlsFailed.Store(true)
			}
		},
	}
}

func (p *progress) waitingFor() string {
	if p.connected.Load() {
		return "waiting for the answer's headers"
	}
	return "waiting for a connection"
}
