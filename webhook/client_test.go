package webhook_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"holdfast/webhook"
)

// received is a request as it arrived.
type received struct {
	*http.Request
	body []byte
}

func collector(t testing.TB) (url string, arrived chan received) {
	arrived = make(chan received, 100)
	s := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		arrived <- received{r, body}
	})
	return s.URL, arrived
}

func TestSendDeliversWhatWasAsked(t *testing.T) {
	t.Parallel()
	url, arrived := collector(t)
	c := loopback(t, webhook.Options{})
	for _, method := range webhook.Methods {
		r := request(url + "/hook?a=b%20c#part")
		r.Method = method
		r.Headers = map[string]string{"authorization": "Bearer x", "X-Shop": "1"}
		r.Own = map[string]string{"chronos-job": "nightly", "x-shop": "2"}
		want(t, send(t, c, r), webhook.Succeeded, webhook.ClassSuccess, 200)
		got := <-arrived
		if got.Method != method || string(got.body) != `{"a":1}` || got.RequestURI != "/hook?a=b%20c" || got.Host != url[len("http://"):] {
			t.Errorf("arrived as %s %s to %s with %q", got.Method, got.RequestURI, got.Host, got.body)
		}
		for name, value := range map[string]string{
			"Authorization": "Bearer x", "Chronos-Job": "nightly", "Content-Type": "application/json", "User-Agent": "Holdfast",
			"X-Shop": "2", // ours wins
		} {
			if have := got.Header.Values(name); len(have) != 1 || have[0] != value {
				t.Errorf("%s %s: %q, want %q", method, name, have, value)
			}
		}
		if enc := got.Header.Get("Accept-Encoding"); enc != "" {
			t.Errorf("asked for %s: the excerpt would be compressed", enc)
		}
	}
}

func TestSendLetsTheTenantDescribeTheBody(t *testing.T) {
	t.Parallel()
	url, arrived := collector(t)
	r := request(url)
	r.Headers = map[string]string{"content-type": "text/csv", "user-agent": "shop/1"}
	send(t, loopback(t, webhook.Options{}), r)
	got := <-arrived
	if got.Header.Get("Content-Type") != "text/csv" || got.Header.Get("User-Agent") != "shop/1" {
		t.Errorf("arrived with %v", got.Header)
	}
	r.Headers, r.Body = nil, nil
	send(t, loopback(t, webhook.Options{UserAgent: "ours"}), r)
	got = <-arrived
	if _, typed := got.Header["Content-Type"]; typed || got.Header.Get("User-Agent") != "ours" || got.ContentLength != 0 {
		t.Errorf("no body: arrived with %v", got.Header)
	}
}

func TestSendSigns(t *testing.T) {
	t.Parallel()
	url, arrived := collector(t)
	current, previous := webhook.NewSecret(), webhook.NewSecret()
	at := time.Now().Add(-2 * time.Minute) // the database's clock, which isn't ours
	r := request(url)
	r.Timestamp, r.Secrets = at, []webhook.Secret{current, previous}
	c := loopback(t, webhook.Options{})
	send(t, c, r)
	got := <-arrived
	if got.Header.Get("webhook-id") != "run-1" || got.Header.Get("webhook-timestamp") != fmt.Sprint(at.Unix()) {
		t.Errorf("arrived with %v", got.Header)
	}
	for _, s := range r.Secrets {
		if err := webhook.Verify(got.Header, got.body, at, 0, s); err != nil {
			t.Error(err)
		}
		theirs, err := standardwebhooks.NewWebhook(s.Reveal())
		if err != nil {
			t.Fatal(err)
		}
		if err := theirs.Verify(got.body, got.Header); err != nil {
			t.Errorf("the reference library refuses it: %v", err)
		}
	}
	r.Timestamp = time.Time{}
	send(t, c, r)
	got = <-arrived
	if err := webhook.Verify(got.Header, got.body, time.Now(), webhook.DefaultTolerance, current); err != nil {
		t.Errorf("without a timestamp: %v", err)
	}
}

func TestSendRefusesABadRequestBeforeAnythingLeaves(t *testing.T) {
	t.Parallel()
	target, connections := rawReceiver(t, func(*http.Request, net.Conn) {})
	c := loopback(t, webhook.Options{})
	for part, spoil := range map[string]func(*webhook.Request){
		"url must begin":       func(r *webhook.Request) { r.URL = "gopher" + r.URL[4:] },
		"url has a user part":  func(r *webhook.Request) { r.URL = "http://a:b@" + r.URL[7:] },
		"method must be":       func(r *webhook.Request) { r.Method = "TRACE" },
		"timeout must be":      func(r *webhook.Request) { r.Timeout = webhook.MaxTimeout + 1 },
		"headers.host may not": func(r *webhook.Request) { r.Headers = map[string]string{"host": "x"} },
		"headers.x has a":      func(r *webhook.Request) { r.Own = map[string]string{"x": "a\nb"} },
		"id must have":         func(r *webhook.Request) { r.ID = "" },
		"id must be visible":   func(r *webhook.Request) { r.ID = "a.b" },
		"secrets must be":      func(r *webhook.Request) { r.Secrets = nil },
		"secrets must be one":  func(r *webhook.Request) { r.Secrets = append(r.Secrets, webhook.Secret{}) },
	} {
		r := request(target)
		spoil(&r)
		got := send(t, c, r)
		want(t, got, webhook.InvalidRequest, webhook.ClassFinal, 0)
		wantError(t, got, part)
	}
	if n := connections.Load(); n != 0 {
		t.Errorf("%d connections were made", n)
	}
}

func TestSendUsesNoProxy(t *testing.T) {
	proxied, arrived := collector(t)
	t.Setenv("HTTP_PROXY", proxied)
	t.Setenv("http_proxy", proxied)
	c := loopback(t, webhook.Options{Resolver: names(t, map[string][]string{"shop.example": {"127.0.0.1"}})})
	target, direct := collector(t)
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	want(t, send(t, c, request("http://shop.example:"+u.Port())), webhook.Succeeded, webhook.ClassSuccess, 200)
	if len(arrived) != 0 || len(direct) != 1 {
		t.Errorf("%d went by the proxy, %d direct", len(arrived), len(direct))
	}
}

func TestSendKeepsItsConnection(t *testing.T) {
	t.Parallel()
	var connections sync.Map // by the address that the receiver sees
	s := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		connections.Store(r.RemoteAddr, true)
		io.WriteString(w, strings.Repeat("x", 4000))
	})
	c := loopback(t, webhook.Options{})
	for range 100 {
		want(t, send(t, c, request(s.URL)), webhook.Succeeded, webhook.ClassSuccess, 200)
	}
	used := 0
	connections.Range(func(_, _ any) bool { used++; return true })
	if used != 1 {
		t.Errorf("100 deliveries in a row took %d connections", used)
	}
}

// TestPitfall39SlowReceiverStarvesNobody fills every connection that a host may have,
// with more waiting, and delivers to another meanwhile.
func TestPitfall39SlowReceiverStarvesNobody(t *testing.T) {
	t.Parallel()
	const perHost, sends = 512, 700
	full := make(chan struct{}, sends)
	slow, connections := rawReceiver(t, func(_ *http.Request, conn net.Conn) {
		full <- struct{}{}
		hungUp(conn)
	})
	c := loopback(t, webhook.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	var waiting sync.WaitGroup
	outcomes := make(chan webhook.Outcome, sends)
	for range sends {
		waiting.Go(func() { outcomes <- c.Send(ctx, request(slow)).Outcome })
	}
	for range perHost {
		<-full
	}
	url, _ := collector(t)
	want(t, send(t, c, request(url)), webhook.Succeeded, webhook.ClassSuccess, 200)
	if n := connections.Load(); n != perHost {
		t.Errorf("%d connections to one host, want the %d it may have", n, perHost)
	}
	cancel()
	waiting.Wait()
	for range sends {
		if o := <-outcomes; o != webhook.Cancelled {
			t.Errorf("a stopped attempt ended as %s", o)
		}
	}
}

// BenchmarkSend is deliveries to one host that answers at once.
func BenchmarkSend(b *testing.B) {
	s := receiver(b, func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	c := loopback(b, webhook.Options{})
	b.SetParallelism(32)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if got := send(b, c, request(s.URL)); got.Outcome != webhook.Succeeded {
				b.Error(got)
				return
			}
		}
	})
}
