package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
)

// hangUntilDone registers an operation that waits for its context to end, and says how it did.
func hangUntilDone(a *httpapi.API, timeout time.Duration) <-chan [2]error {
	ends := make(chan [2]error, 10)
	httpapi.Register(a, httpapi.Op{Method: "POST", Path: "/hang", Scope: apikey.Write, Summary: "Hang", Timeout: timeout},
		func(ctx context.Context, _ *struct{}) (httpapi.None, error) {
			<-ctx.Done()
			ends <- [2]error{ctx.Err(), context.Cause(ctx)}
			return httpapi.None{}, ctx.Err()
		})
	return ends
}

// TestDeadlinesOfOneConnection asks over one connection, with times that get shorter and longer: each
// request has its own, whatever the connection's timer was set to before.
func TestDeadlinesOfOneConnection(t *testing.T) {
	t.Parallel()
	a := newAPI(httpapi.Config{RequestTimeout: time.Hour})
	ends := hangUntilDone(a, 20*time.Millisecond)
	httpapi.Register(a, httpapi.Op{Method: "POST", Path: "/short", Scope: apikey.Write, Summary: "Short", Timeout: 10 * time.Millisecond},
		func(context.Context, *struct{}) (httpapi.None, error) { return httpapi.None{}, nil })
	httpapi.Register(a, httpapi.Op{Method: "POST", Path: "/longer", Scope: apikey.Write, Summary: "Longer"},
		func(ctx context.Context, _ *struct{}) (httpapi.None, error) {
			select {
			case <-ctx.Done(): // the timer of the short ones has gone off
				return httpapi.None{}, ctx.Err()
			case <-time.After(60 * time.Millisecond):
				return httpapi.None{}, nil
			}
		})
	s := run(t, a, time.Minute)
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	answers := bufio.NewReader(conn)
	ask := func(path string, want int) *http.Response {
		t.Helper()
		_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", path)
		res, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		if res.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, res.StatusCode, want)
		}
		return res
	}
	for _, path := range []string{"/longer", "/short", "/longer", "/short", "/short", "/longer", "/short"} {
		ask(path, 204)
	}
	s.ask("POST", "/longer", "") // elsewhere, while the time of the last one here goes by
	ask("/short", 204)
	if res := ask("/hang", 503); !res.Close {
		t.Error("a connection whose context has ended is kept")
	}
	if end := <-ends; !errors.Is(end[0], context.DeadlineExceeded) || !errors.Is(end[1], context.DeadlineExceeded) {
		t.Errorf("the context ended with %v, because of %v", end[0], end[1])
	}
	if _, err := answers.ReadByte(); err != io.EOF {
		t.Errorf("afterwards: %v", err)
	}
}

// TestTimeIsOverOnBothProtocols compares what clients are told.
func TestTimeIsOverOnBothProtocols(t *testing.T) {
	t.Parallel()
	a := newAPI(httpapi.Config{RequestTimeout: 20 * time.Millisecond})
	ends := hangUntilDone(a, 0)
	s := run(t, a, time.Minute)
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	h2 := &http.Client{Transport: &http.Transport{Protocols: &protocols}}
	defer h2.CloseIdleConnections()
	for _, client := range []*http.Client{s.client, h2, s.client, h2} {
		r := (&sample{t: t, URL: s.URL, client: client}).ask("POST", "/hang", "")
		if p := r.problem(t); p.Status != 503 || p.Code != "request_timeout" || !strings.Contains(p.Detail, "within its time") {
			t.Errorf("%d %s", r.Status, r.Body)
		}
		if end := <-ends; !errors.Is(end[0], context.DeadlineExceeded) {
			t.Errorf("the context ended with %v", end[0])
		}
	}
}

// TestClientLeavesAServer is [TestClientLeaves] with the connections of Serve: it isn't the deadline that ends it.
func TestClientLeavesAServer(t *testing.T) {
	t.Parallel()
	a := newAPI(httpapi.Config{RequestTimeout: time.Hour})
	ends := hangUntilDone(a, 0)
	s := run(t, a, time.Minute)
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, "POST /hang HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
	_ = conn.Close()
	if end := <-ends; !errors.Is(end[0], context.Canceled) {
		t.Errorf("the context ended with %v", end[0])
	}
}
