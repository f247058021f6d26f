package httpapi_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
)

// running is an API that serves until it is told to stop.
type running struct {
	*sample
	stop    context.CancelFunc
	stopped chan error
}

func run(t *testing.T, a *httpapi.API, drain time.Duration) *running {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	r := &running{&sample{t: t, API: a, URL: "http://" + ln.Addr().String(), client: &http.Client{Transport: &http.Transport{}}}, stop, make(chan error, 1)}
	go func() { r.stopped <- a.Serve(ctx, ln, drain) }()
	t.Cleanup(func() {
		stop()
		r.client.CloseIdleConnections()
	})
	return r
}

func TestServeEndsRequestsInHand(t *testing.T) {
	t.Parallel()
	a := newAPI(httpapi.Config{})
	work := addGate(a, "/work", false)
	s := run(t, a, time.Minute)
	answer := s.asks("POST", "/work")
	<-work.in
	s.stop()
	if r := awaitDrain(a); r.Status != 503 || r.problem(t).Code != "not_ready" {
		t.Errorf("/readyz while draining: %d %s", r.Status, r.Body)
	}
	select {
	case err := <-s.stopped:
		t.Errorf("stopped with a request in hand: %v", err)
	default:
	}
	close(work.out)
	if r := <-answer; r.Status != 204 {
		t.Errorf("the request in hand: %d %s", r.Status, r.Body)
	}
	if err := <-s.stopped; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestServeCutsOffAfterTheDrain(t *testing.T) {
	t.Parallel()
	a := newAPI(httpapi.Config{RequestTimeout: time.Hour})
	ended := make(chan struct{})
	in := make(chan struct{})
	httpapi.Register(a, httpapi.Op{Method: "POST", Path: "/work", Scope: apikey.Write, Summary: "Work"},
		func(ctx context.Context, _ *struct{}) (httpapi.None, error) {
			close(in)
			<-ctx.Done()
			close(ended)
			return httpapi.None{}, ctx.Err()
		})
	s := run(t, a, time.Millisecond)
	answer := s.asks("POST", "/work")
	<-in
	s.stop()
	if err := <-s.stopped; err != nil {
		t.Errorf("Serve: %v", err)
	}
	<-ended
	if p := (<-answer).problem(t); p.Status != 503 || p.Code != "request_timeout" {
		t.Errorf("what was cut off is told %d %s", p.Status, p.Code)
	}
}

// TestServeEndsWhatWaits drains with a stream and a long poll open, and hours of time.
func TestServeEndsWhatWaits(t *testing.T) {
	t.Parallel()
	a := newAPI(httpapi.Config{})
	httpapi.RegisterStream(a, httpapi.Op{Method: "GET", Path: "/stream", Scope: apikey.Read, Summary: "Stream"}, "text/event-stream",
		func(ctx context.Context, _ *struct{}, w http.ResponseWriter) error {
			if _, bounded := ctx.Deadline(); bounded {
				t.Error("a stream has a deadline")
			}
			_, _ = io.WriteString(w, "event: stock\n\n")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return ctx.Err()
		})
	polling := make(chan struct{})
	httpapi.Register(a, httpapi.Op{Method: "POST", Path: "/poll", Scope: apikey.Write, Summary: "Poll", Long: true, Timeout: time.Hour},
		func(ctx context.Context, _ *struct{}) (string, error) {
			close(polling)
			select {
			case <-httpapi.Draining(ctx):
				return "nothing came", nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		})
	s := run(t, a, time.Hour)
	res, err := s.client.Get(s.URL + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	events := bufio.NewReader(res.Body)
	if line, err := events.ReadString('\n'); err != nil || line != "event: stock\n" || res.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("the stream begins with %q, %v, %v", line, err, res.Header)
	}
	answer := s.asks("POST", "/poll")
	<-polling
	s.stop()
	if rest, err := io.ReadAll(events); err != nil || string(rest) != "\n" {
		t.Errorf("the stream ends with %q, %v", rest, err)
	}
	if r := <-answer; r.Status != 200 || !strings.Contains(r.Body, "nothing came") {
		t.Errorf("the long poll: %d %s", r.Status, r.Body)
	}
	if err := <-s.stopped; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestStreamThatCantBegin(t *testing.T) {
	t.Parallel()
	a := newAPI(httpapi.Config{})
	httpapi.RegisterStream(a, httpapi.Op{Method: "GET", Path: "/stream", Scope: apikey.Read, Summary: "Stream"}, "text/event-stream",
		func(context.Context, *struct{}, http.ResponseWriter) error { return errSoldOut })
	s := serve(t, a)
	if p := s.ask("GET", "/stream", "").problem(t); p.Status != 409 || p.Code != "sold_out" {
		t.Errorf("got %d %s", p.Status, p.Code)
	}
	if r := s.ask("HEAD", "/stream", ""); r.Status != 200 || r.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("HEAD: %d %v", r.Status, r.Header)
	}
}

// TestBothProtocols asks over HTTP/1.1 and over HTTP/2 without TLS, and drains both.
func TestBothProtocols(t *testing.T) {
	t.Parallel()
	a := newAPI(httpapi.Config{})
	work := addGate(a, "/work", false)
	s := run(t, a, time.Minute)
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	h2 := &http.Client{Transport: &http.Transport{Protocols: &protocols}}
	defer h2.CloseIdleConnections()
	for major, client := range map[int]*http.Client{1: s.client, 2: h2} {
		res, err := client.Post(s.URL+orders, "application/json", strings.NewReader(body(`{"sku":"mug","quantity":1}`)))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if res.StatusCode != 201 || res.ProtoMajor != major {
			t.Errorf("HTTP/%d: %s %s", major, res.Proto, res.Status)
		}
		res, err = client.Post(s.URL+orders, "application/json", strings.NewReader(strings.Repeat(" ", 1<<20+1)))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if res.StatusCode != 413 {
			t.Errorf("HTTP/%d: %s for a body too large", major, res.Status)
		}
	}
	over2 := &sample{t: t, URL: s.URL, client: h2}
	answer := over2.asks("POST", "/work")
	<-work.in
	s.stop()
	awaitDrain(a)
	close(work.out)
	if r := <-answer; r.Status != 204 {
		t.Errorf("the request in hand over HTTP/2: %d", r.Status)
	}
	if err := <-s.stopped; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// awaitDrain returns when the replica says that it isn't ready any more.
func awaitDrain(a *httpapi.API) reply {
	for {
		rec := httptest.NewRecorder()
		a.ServeHTTP(rec, httptest.NewRequest("GET", "http://localhost/readyz", http.NoBody))
		if rec.Code != http.StatusOK {
			return reply{rec.Code, rec.Header(), rec.Body.String()}
		}
	}
}
