package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
)

// gate is an operation that reports its arrival and waits to be let go.
type gate struct {
	in  chan struct{}
	out chan struct{}
}

func addGate(a *httpapi.API, path string, long bool) gate {
	g := gate{make(chan struct{}, 100), make(chan struct{})}
	httpapi.Register(a, httpapi.Op{Method: "POST", Path: path, Scope: apikey.Write, Summary: "Wait at " + path, Long: long},
		func(ctx context.Context, _ *struct{}) (httpapi.None, error) {
			g.in <- struct{}{}
			select {
			case <-g.out:
				return httpapi.None{}, nil
			case <-ctx.Done():
				return httpapi.None{}, ctx.Err()
			}
		})
	return g
}

// asks sends a request in the background and gives its answer in time.
func (s *sample) asks(method, path string) <-chan reply {
	answer := make(chan reply, 1)
	go func() { answer <- s.ask(method, path, "") }()
	return answer
}

func TestOverload(t *testing.T) {
	t.Parallel()
	a := newAPI(httpapi.Config{MaxInFlight: 2})
	working, waiting := addGate(a, "/work", false), addGate(a, "/wait", true)
	s := serve(t, a)
	first, second := s.asks("POST", "/work"), s.asks("POST", "/work")
	<-working.in
	<-working.in
	r := s.ask("GET", "/v1/things", "")
	if p := r.problem(t); p.Status != 503 || p.Code != "overloaded" || r.Header.Get("Retry-After") != "1" {
		t.Errorf("a third request: %d %s", p.Status, p.Code)
	}
	third := s.asks("POST", "/wait")
	<-waiting.in // has a slot of its own
	for _, path := range []string{"/livez", "/readyz", "/metrics"} {
		if r := s.ask("GET", path, ""); r.Status != 200 {
			t.Errorf("%s: %d while overloaded", path, r.Status)
		}
	}
	close(working.out)
	close(waiting.out)
	for _, answer := range []<-chan reply{first, second, third} {
		if r := <-answer; r.Status != 204 {
			t.Errorf("a request that was let in: %d", r.Status)
		}
	}
	if r := s.ask("GET", "/v1/things", ""); r.Status != 200 {
		t.Errorf("afterwards: %d", r.Status)
	}
}

// TestSlotsComeBack refuses more requests than there are slots, in every way there is.
func TestSlotsComeBack(t *testing.T) {
	t.Parallel()
	s := serve(t, newAPI(httpapi.Config{MaxInFlight: 1}))
	httpapi.Register(s.API, httpapi.Op{Method: "POST", Path: "/panic", Scope: apikey.Write, Summary: "Panic"},
		func(context.Context, *struct{}) (httpapi.None, error) { panic("") })
	for range 3 {
		s.ask("POST", "/panic", "")
		s.ask("POST", orders, "{")
		s.ask("POST", orders, "{}")
		s.ask("GET", "/v1/things?limit=0", "")
		s.ask("GET", "/v1/things", "")
	}
	if r := s.ask("GET", "/v1/things", ""); r.Status != 200 {
		t.Errorf("afterwards: %d %s", r.Status, r.Body)
	}
}

func TestRateLimit(t *testing.T) {
	t.Parallel()
	const limit = 20
	s, keys, _ := locked(t, httpapi.Config{RatePerSecond: limit})
	_, busy := newKey(t, keys, "acme", apikey.Read)
	_, calm := newKey(t, keys, "acme", apikey.Read)
	var refused reply
	for i := range 1000 {
		// Headers that a client makes up change nothing.
		r := s.ask("GET", "/v1/things", "", "Authorization", "Bearer "+busy, "X-Forwarded-For", "10.0.0."+string(rune('0'+i%10)))
		if r.Status != 200 {
			refused = r
			break
		}
	}
	if p := refused.problem(t); p.Status != 429 || p.Code != "rate_limited" || refused.Header.Get("Retry-After") != "1" {
		t.Errorf("got %d %s, Retry-After %q", p.Status, p.Code, refused.Header.Get("Retry-After"))
	}
	if r := s.ask("GET", "/v1/things", "", "Authorization", "Bearer "+calm); r.Status != 200 {
		t.Errorf("another key: %d", r.Status)
	}
}

// TestDeadline reads the times that a handler is given.
func TestDeadline(t *testing.T) {
	t.Parallel()
	a := newAPI(httpapi.Config{RequestTimeout: time.Minute})
	type times struct{ before, arrival, deadline, ends time.Time }
	var got times
	register := func(path string, timeout time.Duration) {
		httpapi.Register(a, httpapi.Op{Method: "GET", Path: path, Scope: apikey.Read, Summary: "Look at " + path, Timeout: timeout},
			func(ctx context.Context, _ *struct{}) (httpapi.None, error) {
				got.arrival, got.deadline = httpapi.Arrival(ctx), httpapi.Deadline(ctx)
				got.ends, _ = ctx.Deadline()
				return httpapi.None{}, nil
			})
	}
	register("/usual", 0)
	register("/longer", time.Hour)
	register("/endless", -1)
	s := serve(t, a)
	for path, want := range map[string]time.Duration{"/usual": time.Minute, "/longer": time.Hour} {
		got = times{before: time.Now()}
		s.ask("GET", path, "")
		if got.arrival.Before(got.before) || got.arrival.After(time.Now()) || got.deadline.Sub(got.arrival) != want || !got.ends.Equal(got.deadline) {
			t.Errorf("%s: %+v", path, got)
		}
	}
	got = times{}
	if s.ask("GET", "/endless", ""); !got.deadline.IsZero() || !got.ends.IsZero() {
		t.Errorf("endless: %+v", got)
	}
}

func TestRequestTimeout(t *testing.T) {
	t.Parallel()
	a := newAPI(httpapi.Config{RequestTimeout: time.Millisecond})
	addGate(a, "/work", false)
	r := serve(t, a).ask("POST", "/work", "")
	if p := r.problem(t); p.Status != 503 || r.Header.Get("Retry-After") == "" {
		t.Errorf("got %d %s", p.Status, p.Code)
	}
}

// TestClientLeaves wants the handler's context to end with its client.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	a := newAPI(httpapi.Config{})
	ended := make(chan error, 1)
	in := make(chan struct{})
	httpapi.Register(a, httpapi.Op{Method: "POST", Path: "/work", Scope: apikey.Write, Summary: "Work"},
		func(ctx context.Context, _ *struct{}) (httpapi.None, error) {
			close(in)
			<-ctx.Done()
			ended <- ctx.Err()
			return httpapi.None{}, ctx.Err()
		})
	s := serve(t, a)
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-in
		leave()
	}()
	req, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/work", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := s.client.Do(req); err == nil {
		_ = res.Body.Close()
		t.Error("a request that was called off has been answered")
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the handler's context ended with %v", err)
	}
}

// TestSlowBody sends one byte of a body and no more, to who reads it and to who doesn't.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	s := serve(t, newAPI(httpapi.Config{BodyTimeout: time.Millisecond}))
	for request, want := range map[string]string{
		"POST " + orders:   "body_timeout",
		"POST /v1/nothing": "route_not_found",
		"POST /livez":      "method_not_allowed",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, request+" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		if p := (reply{res.StatusCode, res.Header, string(text)}).problem(t); p.Code != want {
			t.Errorf("%s: %d %s, want %s", request, p.Status, p.Code, want)
		}
	}
}

// TestBodyTimeoutEndsWithTheBody works for longer than the body had. That rests on
// net/http, which lifts the read deadline at the body's end; did it not, the handler's context would end.
func TestBodyTimeoutEndsWithTheBody(t *testing.T) {
	t.Parallel()
	const timeout = 200 * time.Millisecond
	a := newAPI(httpapi.Config{BodyTimeout: timeout})
	httpapi.Register(a, httpapi.Op{Method: "POST", Path: "/work", Scope: apikey.Write, Summary: "Work"},
		func(ctx context.Context, _ *struct{}) (httpapi.None, error) {
			select {
			case <-time.After(2 * timeout):
				return httpapi.None{}, nil
			case <-ctx.Done():
				return httpapi.None{}, ctx.Err()
			}
		})
	if r := serve(t, a).ask("POST", "/work", `{}`); r.Status != 204 {
		t.Errorf("got %d %s", r.Status, r.Body)
	}
}
