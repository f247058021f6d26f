package webhook_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"holdfast/webhook"
)

func TestStatusDecides(t *testing.T) {
	t.Parallel()
	s := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		var status int
		fmt.Sscan(r.URL.Path[1:], &status)
		w.WriteHeader(status)
	})
	c := loopback(t, webhook.Options{})
	check := func(outcome webhook.Outcome, class webhook.Class, statuses ...int) {
		for _, status := range statuses {
			want(t, send(t, c, request(fmt.Sprint(s.URL, "/", status))), outcome, class, status)
		}
	}
	check(webhook.Succeeded, webhook.ClassSuccess, 200, 201, 202, 204, 206, 299)
	check(webhook.Redirected, webhook.ClassFinal, 300, 301, 302, 303, 304, 307, 308, 399)
	check(webhook.Gone, webhook.ClassGone, 410)
	check(webhook.HTTPError, webhook.ClassRetry, 408, 425, 429, 500, 501, 502, 503, 504, 599)
	check(webhook.HTTPError, webhook.ClassFinal, 400, 401, 403, 404, 405, 409, 411, 413, 422, 426, 428, 431, 451, 499, 600, 999)
}

func TestUpgradeIsAFinalFailure(t *testing.T) {
	t.Parallel()
	target, _ := rawReceiver(t, func(_ *http.Request, conn net.Conn) {
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
		hungUp(conn)
	})
	want(t, send(t, loopback(t, webhook.Options{}), request(target)), webhook.HTTPError, webhook.ClassFinal, 101)
}

func TestAcceptedNeeds202AndItsHeader(t *testing.T) {
	t.Parallel()
	s := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("chronos-async", r.URL.Query().Get("async"))
		var status int
		fmt.Sscan(r.URL.Path[1:], &status)
		w.WriteHeader(status)
	})
	c := loopback(t, webhook.Options{})
	want(t, send(t, c, request(s.URL+"/202?async=accepted")), webhook.AcceptedAsync, webhook.ClassAccepted, 202)
	want(t, send(t, c, request(s.URL+"/202?async=Accepted")), webhook.AcceptedAsync, webhook.ClassAccepted, 202)
	want(t, send(t, c, request(s.URL+"/202?async=no")), webhook.Succeeded, webhook.ClassSuccess, 202)
	want(t, send(t, c, request(s.URL+"/200?async=accepted")), webhook.Succeeded, webhook.ClassSuccess, 200)
	want(t, send(t, c, request(s.URL+"/503?async=accepted")), webhook.HTTPError, webhook.ClassRetry, 503)
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	// The receiver's clock is a year behind: a date counts from its own.
	theirs := time.Now().AddDate(-1, 0, 0).UTC().Truncate(time.Second)
	var status atomic.Int64
	s := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Date"] = []string{theirs.Format(http.TimeFormat)}
		w.Header().Set("Retry-After", r.URL.Query().Get("v"))
		w.WriteHeader(int(status.Load()))
	})
	c := loopback(t, webhook.Options{})
	ask := func(code int64, value string) time.Duration {
		status.Store(code)
		return send(t, c, request(s.URL+"/?v="+url.QueryEscape(value))).RetryAfter
	}
	for value, want := range map[string]time.Duration{
		"120": 2 * time.Minute, "0": 0, "": 0, "86400": webhook.MaxRetryAfter, "86401": webhook.MaxRetryAfter,
		"99999999999999999999999999": webhook.MaxRetryAfter,
		"-5":                         0, "1.5": 0, "soon": 0, "+5": 0,
		theirs.Add(90 * time.Second).Format(http.TimeFormat): 90 * time.Second,
		theirs.Add(-time.Hour).Format(http.TimeFormat):       0,
		theirs.AddDate(5, 0, 0).Format(http.TimeFormat):      webhook.MaxRetryAfter,
		theirs.Add(time.Minute).Format(time.RFC850):          time.Minute,
	} {
		if got := ask(503, value); got != want {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
	for code, want := range map[int64]time.Duration{429: time.Minute, 408: time.Minute, 200: 0, 404: 0, 410: 0} {
		if got := ask(code, "60"); got != want {
			t.Errorf("on %d: %s, want %s", code, got, want)
		}
	}
}

func TestPitfall41RedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	s := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	url, arrived := collector(t)
	c := loopback(t, webhook.Options{})
	for _, to := range []string{"http://169.254.169.254/latest/meta-data/", url} {
		got := send(t, c, request(s.URL+"/?to="+to))
		want(t, got, webhook.Redirected, webhook.ClassFinal, 307)
		wantError(t, got, to)
	}
	if len(arrived) != 0 {
		t.Error("the redirect was followed")
	}
}

// TestTrickledBodySucceeds: a byte, and the next in a minute. The status is in,
// so the deadline ends the reading, not the delivery.
func TestTrickledBodySucceeds(t *testing.T) {
	t.Parallel()
	left := make(chan struct{})
	target, _ := rawReceiver(t, func(_ *http.Request, conn net.Conn) {
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nx")
		hungUp(conn)
		close(left)
	})
	r := request(target)
	r.Timeout = 2 * time.Second // the headers take less, surely
	got := send(t, loopback(t, webhook.Options{}), r)
	want(t, got, webhook.Succeeded, webhook.ClassSuccess, 200)
	if got.Response != "x" {
		t.Errorf("kept %q of the body", got.Response)
	}
	<-left
}

func TestTrickledHeadersTimeOut(t *testing.T) {
	t.Parallel()
	left := make(chan struct{})
	target, _ := rawReceiver(t, func(_ *http.Request, conn net.Conn) {
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nX-Slow: ")
		hungUp(conn)
		close(left)
	})
	r := request(target)
	r.Timeout = 200 * time.Millisecond
	got := send(t, loopback(t, webhook.Options{}), r)
	want(t, got, webhook.Timeout, webhook.ClassRetry, 0)
	wantError(t, got, "waiting for the answer's headers")
	<-left
}

func TestCallersDeadlineIsATimeoutToo(t *testing.T) {
	t.Parallel()
	target, _ := rawReceiver(t, func(_ *http.Request, conn net.Conn) { hungUp(conn) })
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	want(t, loopback(t, webhook.Options{}).Send(ctx, request(target)), webhook.Timeout, webhook.ClassRetry, 0)
}

func TestCancelledBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	target, _ := rawReceiver(t, func(_ *http.Request, conn net.Conn) {
		cancel()
		hungUp(conn)
	})
	want(t, loopback(t, webhook.Options{}).Send(ctx, request(target)), webhook.Cancelled, webhook.ClassRetry, 0)
}

// TestEndlessBodyIsCutShort offers a gigabyte. What the receiver gets rid of is
// what the kernel buffers and the transport discards, not the body.
func TestEndlessBodyIsCutShort(t *testing.T) {
	t.Parallel()
	const offered, tolerated = 1 << 30, 64 << 20
	for name, head := range map[string]string{
		"with a length": fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", offered),
		"without":       "HTTP/1.1 500 Oops\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			written := make(chan int64, 1)
			target, _ := rawReceiver(t, func(_ *http.Request, conn net.Conn) {
				io.WriteString(conn, head)
				n, _ := io.Copy(conn, io.LimitReader(endless{}, offered))
				written <- n
			})
			got := send(t, loopback(t, webhook.Options{}), request(target))
			if got.Response != strings.Repeat("x", webhook.MaxResponse) {
				t.Errorf("kept %d bytes of the body", len(got.Response))
			}
			if got.StatusCode == 200 {
				want(t, got, webhook.Succeeded, webhook.ClassSuccess, 200)
			} else {
				want(t, got, webhook.HTTPError, webhook.ClassRetry, 500)
			}
			if n := <-written; n > tolerated {
				t.Errorf("%d bytes were taken", n)
			}
		})
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestBrokenBodyStillSucceeds(t *testing.T) {
	t.Parallel()
	target, _ := rawReceiver(t, func(_ *http.Request, conn net.Conn) {
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
	})
	got := send(t, loopback(t, webhook.Options{}), request(target))
	want(t, got, webhook.Succeeded, webhook.ClassSuccess, 200)
	if got.Response != "half" {
		t.Errorf("kept %q", got.Response)
	}
}

func TestHugeHeadersFailTheAttempt(t *testing.T) {
	t.Parallel()
	s := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		var n int
		fmt.Sscan(r.URL.Path[1:], &n)
		for i := range n {
			w.Header().Set(fmt.Sprint("x-", i), strings.Repeat("v", 1000))
		}
	})
	c := loopback(t, webhook.Options{})
	want(t, send(t, c, request(s.URL+"/50")), webhook.Succeeded, webhook.ClassSuccess, 200)
	got := send(t, c, request(s.URL+"/1000"))
	want(t, got, webhook.HeadersTooLarge, webhook.ClassRetry, 0)
	wantError(t, got, "65536")

	never, _ := rawReceiver(t, func(_ *http.Request, conn net.Conn) {
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nX-Endless: ")
		io.Copy(conn, endless{})
	})
	want(t, send(t, c, request(never)), webhook.HeadersTooLarge, webhook.ClassRetry, 0)

	hints, _ := rawReceiver(t, func(_ *http.Request, conn net.Conn) {
		for err := error(nil); err == nil; {
			_, err = io.WriteString(conn, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
		}
	})
	want(t, send(t, c, request(hints)), webhook.HeadersTooLarge, webhook.ClassRetry, 0)
}

func TestResponseFitsPostgreSQL(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", webhook.MaxResponse-1)
	for body, kept := range map[string]string{
		"plain":          "plain",
		"a\x00\x00b":     "a\uFFFDb",
		"a\xff\xfe\x00b": "a\uFFFDb",
		"grün":           "grün",
		long + "ü":       long, // cut between characters
		long + "\xff":    long,
		// A run of bad bytes shrinks; the half character at the cut still goes.
		strings.Repeat("\x00", 96) + strings.Repeat("a", webhook.MaxResponse-97) + "ü": "\uFFFD" + strings.Repeat("a", webhook.MaxResponse-97),
		strings.Repeat("\x00a", webhook.MaxResponse/2):                                 strings.Repeat("\uFFFDa", webhook.MaxResponse/4),
		strings.Repeat("\x00", webhook.MaxResponse):                                    "\uFFFD",
	} {
		s := receiver(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, body) })
		got := send(t, loopback(t, webhook.Options{}), request(s.URL)).Response
		if got != kept {
			t.Errorf("%.20q (%d bytes) became %.20q (%d bytes), want %.20q (%d)", body, len(body), got, len(got), kept, len(kept))
		}
		if len(got) > webhook.MaxResponse || !utf8.ValidString(got) || strings.Contains(got, "\x00") {
			t.Errorf("%.20q: not storable", got)
		}
	}
}

func TestPitfall41AddressesAreJudgedAtTheDial(t *testing.T) {
	t.Parallel()
	target, connections := rawReceiver(t, func(_ *http.Request, conn net.Conn) {
		io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
	})
	_, port, err := net.SplitHostPort(target[len("http://"):])
	if err != nil {
		t.Fatal(err)
	}
	dns := webhook.Options{Resolver: names(t, map[string][]string{
		"v4.example": {"127.0.0.1"}, "both.example": {"127.0.0.1", "::1"}, "mapped.example": {"::ffff:127.0.0.1"}, "zero.example": {"0.0.0.0"},
	})}
	refuse := newClient(t, dns)
	for _, host := range []string{"v4.example", "both.example", "mapped.example", "zero.example"} {
		if err := webhook.NewGuard().CheckURL("http://" + host); err != nil {
			t.Errorf("%s can't be known to be forbidden before it is resolved: %v", host, err)
		}
		got := send(t, refuse, request("http://"+host+":"+port))
		want(t, got, webhook.TargetForbidden, webhook.ClassFinal, 0)
		if strings.Contains(got.Error, "127.0.0.1") {
			t.Errorf("%s: %q tells what DNS said", host, got.Error)
		}
	}
	got := send(t, refuse, request(target)) // seen before the dial
	want(t, got, webhook.TargetForbidden, webhook.ClassFinal, 0)
	wantError(t, got, "loopback")
	if n := connections.Load(); n != 0 {
		t.Fatalf("%d connections were made", n)
	}
	allow := loopback(t, dns)
	want(t, send(t, allow, request("http://v4.example:"+port)), webhook.Succeeded, webhook.ClassSuccess, 204)
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections when allowed", n)
	}
	want(t, send(t, allow, request("http://zero.example:"+port)), webhook.TargetForbidden, webhook.ClassFinal, 0)
}

func TestNoSuchHost(t *testing.T) {
	t.Parallel()
	c := loopback(t, webhook.Options{Resolver: names(t, nil)})
	got := send(t, c, request("http://nowhere.example/"))
	want(t, got, webhook.DNSError, webhook.ClassRetry, 0)
	if got.Error != "nowhere.example: no such host" {
		t.Errorf("error %q", got.Error)
	}
}

func TestConnectionRefused(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	want(t, send(t, loopback(t, webhook.Options{}), request("http://"+l.Addr().String())), webhook.ConnectionRefused, webhook.ClassRetry, 0)
}

func TestBrokenConnection(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(net.Conn){
		"closed":          func(net.Conn) {},
		"reset":           func(conn net.Conn) { conn.(*net.TCPConn).SetLinger(0) },
		"closed half way": func(conn net.Conn) { io.WriteString(conn, "HTTP/1.1 200 OK\r\nX-A: b") },
		"not HTTP":        func(conn net.Conn) { io.WriteString(conn, "220 mail.example ESMTP\r\n") },
	} {
		target, _ := rawReceiver(t, func(_ *http.Request, conn net.Conn) { answer(conn) })
		got := send(t, loopback(t, webhook.Options{}), request(target))
		want(t, got, webhook.ConnectionError, webhook.ClassRetry, 0)
		if strings.Contains(got.Error, "127.0.0.1") {
			t.Errorf("%s: %q names our own address", name, got.Error)
		}
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // it complains of clients that don't trust it
	s.StartTLS()
	t.Cleanup(s.Close)
	got := send(t, loopback(t, webhook.Options{}), request(s.URL))
	want(t, got, webhook.TLSError, webhook.ClassRetry, 0)
	wantError(t, got, "certificate")

	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	trusting := webhook.Options{RootCAs: pool, Resolver: names(t, map[string][]string{"other.test": {"127.0.0.1"}})}
	c := loopback(t, trusting)
	want(t, send(t, c, request(s.URL)), webhook.Succeeded, webhook.ClassSuccess, 200)

	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	got = send(t, c, request("https://other.test:"+port)) // not in the certificate
	want(t, got, webhook.TLSError, webhook.ClassRetry, 0)

	plain := receiver(t, func(http.ResponseWriter, *http.Request) {})
	plain.Config.ErrorLog = s.Config.ErrorLog
	got = send(t, c, request("https"+plain.URL[len("http"):]))
	want(t, got, webhook.TLSError, webhook.ClassRetry, 0)
}
