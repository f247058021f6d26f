package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
)

// addEvents is a stream that begins with one event and then does what it is told.
func addEvents(a *httpapi.API, patience time.Duration, then func(context.Context, *httpapi.Events) error) {
	httpapi.RegisterStream(a, httpapi.Op{Method: "GET", Path: "/stream", Scope: apikey.Read, Summary: "Stream"}, httpapi.EventStream,
		func(ctx context.Context, _ *struct{}, w http.ResponseWriter) error {
			events, err := httpapi.NewEvents(w, patience)
			if err != nil {
				return err
			}
			if err := events.Send("stock", "7", `{"sku":"mug"}`); err != nil {
				return err
			}
			return then(ctx, events)
		})
}

func TestEvents(t *testing.T) {
	t.Parallel()
	a := newAPI(httpapi.Config{})
	addEvents(a, 0, func(_ context.Context, events *httpapi.Events) error {
		if err := events.Send("", "", "x"); err != nil {
			return err
		}
		return events.Ping()
	})
	r := serve(t, a).ask("GET", "/stream", "")
	if want := "event: stock\nid: 7\ndata: {\"sku\":\"mug\"}\n\ndata: x\n\n:\n\n"; r.Body != want || r.Header.Get("Content-Type") != "text/event-stream" || r.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%v %q, want %q", r.Header, r.Body, want)
	}
}

// listen opens a stream without a goroutine on this side, and reads its first event.
func (s *sample) listen(t *testing.T) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_, _ = io.WriteString(conn, "GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	events := bufio.NewReader(res.Body)
	if line, err := events.ReadString('\n'); err != nil || line != "event: stock\n" {
		t.Fatalf("%q, %v", line, err)
	}
	return conn, events
}

// A listener costs the goroutines of net/http, of which there are two, and the drain ends all. It is
// not parallel, since it counts the goroutines of the whole process.
func TestAListenerHasNoGoroutineOfItsOwn(t *testing.T) {
	a := newAPI(httpapi.Config{})
	addEvents(a, 0, func(ctx context.Context, _ *httpapi.Events) error {
		<-ctx.Done()
		return nil
	})
	s := run(t, a, time.Minute)
	s.listen(t)
	before := runtime.NumGoroutine()
	const listeners = 200
	streams := make([]*bufio.Reader, listeners)
	for i := range streams {
		_, streams[i] = s.listen(t)
	}
	if more := runtime.NumGoroutine() - before; more > 2*listeners+10 {
		t.Errorf("%d listeners have %d goroutines", listeners, more)
	}
	s.stop()
	for _, stream := range streams {
		if _, err := io.ReadAll(stream); err != nil {
			t.Fatalf("a stream ends with %v", err)
		}
	}
	if err := <-s.stopped; err != nil {
		t.Error(err)
	}
}

// TestASlowListenerIsDropped sends to one that doesn't read, until that fails.
func TestASlowListenerIsDropped(t *testing.T) {
	t.Parallel()
	a := newAPI(httpapi.Config{})
	ended := make(chan error, 1)
	var sent atomic.Int64
	addEvents(a, 50*time.Millisecond, func(ctx context.Context, events *httpapi.Events) error {
		for ctx.Err() == nil {
			if err := events.Send("stock", fmt.Sprint(sent.Add(1)), strings.Repeat("x", 64<<10)); err != nil {
				ended <- err
				return err
			}
		}
		ended <- ctx.Err()
		return nil
	})
	serve(t, a).listen(t)
	if err := <-ended; !strings.Contains(err.Error(), "timeout") {
		t.Errorf("after %d events: %v", sent.Load(), err)
	}
}
