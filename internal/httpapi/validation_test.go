package httpapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

const orders = "/v1/shops/main/orders"

func body(line string) string { return `{"lines":[` + line + `]}` }

// TestBadRequests is the contract's list of what is refused, and how.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	const good = `{"sku":"mug","quantity":1}`
	for _, tc := range []struct {
		name, method, path, body string
		header                   []string
		status                   int
		code, location           string // a regular expression
	}{
		// Not JSON, or nothing.
		{"no body", "POST", orders, "", nil, 400, "body_required", ""},
		{"blank body", "POST", orders, " \n", nil, 400, "body_required", ""},
		{"no import", "POST", "/v1/imports", "", nil, 400, "body_required", ""},
		{"half a body", "POST", orders, `{"lines":`, nil, 400, "malformed_json", ""},
		{"two bodies", "POST", orders, body(good) + body(good), nil, 400, "malformed_json", ""},
		{"not JSON", "POST", orders, `sku=mug`, nil, 400, "malformed_json", ""},
		{"single quotes", "POST", orders, `{'lines':[]}`, nil, 400, "malformed_json", ""},
		{"NUL outside a string", "POST", orders, "{\x00}", nil, 400, "malformed_json", ""},
		{"not UTF-8", "POST", orders, body("{\"sku\":\"m\xffg\",\"quantity\":1}"), nil, 400, "malformed_json", ""},
		{"malformed optional body", "POST", "/v1/orders/7/confirm", `{`, nil, 400, "malformed_json", ""},
		{"malformed body that isn't taken", "POST", "/v1/orders/7/resume", `{`, nil, 400, "malformed_json", ""},
		// Fields.
		{"unknown field", "POST", orders, `{"lines":[` + good + `],"colour":"red"}`, nil, 422, "validation_failed", `body\.colour`},
		{"unknown nested field", "POST", orders, body(`{"sku":"mug","quantity":1,"x":1}`), nil, 422, "validation_failed", `body\.lines\[0\]\.x`},
		{"field in capitals", "POST", orders, body(`{"SKU":"mug","sku":"mug","quantity":1}`), nil, 422, "validation_failed", `body\.lines\[0\]\.SKU`},
		{"unknown field of an optional body", "POST", "/v1/orders/7/confirm", `{"x":1}`, nil, 422, "validation_failed", `body\.x`},
		{"a body where none is taken", "POST", "/v1/orders/7/resume", `{"x":1}`, nil, 422, "validation_failed", `body`},
		{"a body on DELETE", "DELETE", "/v1/things/7", `{"x":1}`, nil, 422, "validation_failed", `body`},
		{"missing field", "POST", orders, `{}`, nil, 422, "validation_failed", `body`},
		{"member given twice", "POST", orders, body(`{"sku":"mug","quantity":1,"quantity":2}`), nil, 422, "validation_failed", `body\.lines\[0\]\.quantity`},
		{"null for a list", "POST", orders, `{"lines":null}`, nil, 422, "validation_failed", `body\.lines`},
		{"null in a list", "POST", orders, body(`null`), nil, 422, "validation_failed", `body\.lines\[0\]`},
		{"null for a field", "POST", orders, body(`{"sku":null,"quantity":1}`), nil, 422, "validation_failed", `body\.lines\[0\]\.sku`},
		{"null for a body", "POST", orders, `null`, nil, 422, "validation_failed", `body`},
		{"a list for a body", "POST", orders, `[]`, nil, 422, "validation_failed", `body`},
		{"too few items", "POST", orders, `{"lines":[]}`, nil, 422, "validation_failed", `body\.lines`},
		{"too many items", "POST", orders, body(good + "," + good + "," + good + "," + good), nil, 422, "validation_failed", `body\.lines`},
		{"nested too deeply", "POST", orders, `{"lines":[` + good + `],"note":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}`, nil, 422, "validation_failed", `body`},
		// Numbers.
		{"a string for a number", "POST", orders, body(`{"sku":"mug","quantity":"1"}`), nil, 422, "validation_failed", `body\.lines\[0\]\.quantity`},
		{"a number for a string", "POST", orders, body(`{"sku":5,"quantity":1}`), nil, 422, "validation_failed", `body\.lines\[0\]\.sku`},
		{"a fraction", "POST", orders, body(`{"sku":"mug","quantity":1.5}`), nil, 422, "validation_failed", `body\.lines\[0\]\.quantity`},
		{"a fraction of nothing", "POST", orders, body(`{"sku":"mug","quantity":1.0}`), nil, 422, "validation_failed", `body\.lines(\[0\])?\.quantity`}, // Go 1.26 doesn't know the index
		{"an exponent", "POST", orders, body(`{"sku":"mug","quantity":1e3}`), nil, 422, "validation_failed", `body\.lines(\[0\])?\.quantity`},
		{"a hidden fraction", "POST", orders, body(`{"sku":"mug","quantity":1.00000000000000000001}`), nil, 422, "validation_failed", `body\.lines(\[0\])?\.quantity`},
		{"zero", "POST", orders, body(`{"sku":"mug","quantity":0}`), nil, 422, "validation_failed", `body\.lines\[0\]\.quantity`},
		{"negative", "POST", orders, body(`{"sku":"mug","quantity":-1}`), nil, 422, "validation_failed", `body\.lines\[0\]\.quantity`},
		{"too many", "POST", orders, body(`{"sku":"mug","quantity":1000000001}`), nil, 422, "validation_failed", `body\.lines\[0\]\.quantity`},
		{"beyond int64", "POST", orders, body(`{"sku":"mug","quantity":9223372036854775808}`), nil, 422, "validation_failed", `body\.lines\[0\]\.quantity`},
		{"beyond float64", "POST", orders, body(`{"sku":"mug","quantity":1e400}`), nil, 422, "validation_failed", `body\.lines\[0\]\.quantity`},
		{"beyond float64, unread", "POST", orders, `{"lines":[` + good + `],"note":{"x":[-1e999]}}`, nil, 422, "validation_failed", `body\.note\.x\[0\]`},
		// Words.
		{"empty string", "POST", orders, body(`{"sku":"","quantity":1}`), nil, 422, "validation_failed", `body\.lines\[0\]\.sku`},
		{"too long", "POST", orders, `{"lines":[` + good + `],"customer":"äöüßéè"}`, nil, 422, "validation_failed", `body\.customer`},
		{"not one of them", "POST", orders, `{"lines":[` + good + `],"prefer":"both"}`, nil, 422, "validation_failed", `body\.prefer`},
		{"escaped NUL", "POST", orders, body(`{"sku":"m\u0000g","quantity":1}`), nil, 422, "validation_failed", `body\.lines\[0\]\.sku`},
		{"escaped NUL in a name", "POST", orders, `{"note":{"a\u0000":1}}`, nil, 422, "validation_failed", `body\.note`},
		{"escaped NUL, unread", "POST", orders, `{"lines":[` + good + `],"note":["\u0000"]}`, nil, 422, "validation_failed", `body\.note\[0\]`},
		{"bare NUL in a string", "POST", orders, body("{\"sku\":\"m\x00g\",\"quantity\":1}"), nil, 422, "validation_failed", `body`},
		{"half a surrogate pair", "POST", orders, body(`{"sku":"\ud83d","quantity":1}`), nil, 422, "validation_failed", `body\.lines\[0\]\.sku`},
		{"halves in the wrong order", "POST", orders, body(`{"sku":"\ude00\ud83d","quantity":1}`), nil, 422, "validation_failed", `body\.lines\[0\]\.sku`},
		// Durations and times.
		{"duration without unit", "POST", orders, `{"lines":[` + good + `],"ttl":"10"}`, nil, 422, "validation_failed", `body\.ttl`},
		{"duration as number", "POST", orders, `{"lines":[` + good + `],"ttl":10}`, nil, 422, "validation_failed", `body\.ttl`},
		{"empty duration", "POST", orders, `{"lines":[` + good + `],"ttl":""}`, nil, 422, "validation_failed", `body\.ttl`},
		{"a mere sign", "POST", orders, `{"lines":[` + good + `],"ttl":"-"}`, nil, 422, "validation_failed", `body\.ttl`},
		{"duration of days", "POST", orders, `{"lines":[` + good + `],"ttl":"1d"}`, nil, 422, "validation_failed", `body\.ttl`},
		{"endless duration", "POST", orders, `{"lines":[` + good + `],"ttl":"9999999999999h"}`, nil, 422, "validation_failed", `body\.ttl`},
		{"not a time", "POST", orders, `{"lines":[` + good + `],"from":"tomorrow"}`, nil, 422, "validation_failed", `body\.from`},
		{"time without offset", "POST", orders, `{"lines":[` + good + `],"from":"2026-01-01T00:00:00"}`, nil, 422, "validation_failed", `body\.from`},
		{"no such day", "POST", orders, `{"lines":[` + good + `],"from":"2026-02-30T00:00:00Z"}`, nil, 422, "validation_failed", `body\.from`},
		// Paths and queries.
		{"NUL in the path", "GET", "/v1/things/a%00b", "", nil, 422, "validation_failed", `path\.id`},
		{"path isn't UTF-8", "GET", "/v1/things/a%ffb", "", nil, 422, "validation_failed", `path\.id`},
		{"NUL in the query", "GET", "/v1/things?cursor=a%00", "", nil, 422, "validation_failed", `query\.cursor`},
		{"NUL in a list in the query", "GET", "/v1/things?label=a&label=%00", "", nil, 422, "validation_failed", `query\.label`},
		{"query isn't UTF-8", "GET", "/v1/things?label=%ff", "", nil, 422, "validation_failed", `query\.label`},
		{"query can't be read", "GET", "/v1/things?limit=%zz", "", nil, 422, "validation_failed", `query`},
		{"semicolon in the query", "GET", "/v1/things?limit=1;open=true", "", nil, 422, "validation_failed", `query`},
		{"unknown parameter", "GET", "/v1/things?colour=red", "", nil, 422, "validation_failed", `query\.colour`},
		{"parameter in capitals", "GET", "/v1/things?Limit=1", "", nil, 422, "validation_failed", `query\.Limit`},
		{"a query where none is taken", "GET", "/v1/things/7?limit=1", "", nil, 422, "validation_failed", `query\.limit`},
		{"a query with a POST", "POST", orders + "?dry_run=true", body(good), nil, 422, "validation_failed", `query\.dry_run`},
		{"repeated parameter", "GET", "/v1/things?limit=1&limit=2", "", nil, 422, "validation_failed", `query\.limit`},
		{"empty parameter", "GET", "/v1/things?limit=", "", nil, 422, "validation_failed", `query\.limit`},
		{"bare parameter", "GET", "/v1/things?open&limit=1", "", nil, 422, "validation_failed", `query\.open`},
		{"limit of nothing", "GET", "/v1/things?limit=0", "", nil, 422, "validation_failed", `query\.limit`},
		{"limit of too much", "GET", "/v1/things?limit=501", "", nil, 422, "validation_failed", `query\.limit`},
		{"limit of a fraction", "GET", "/v1/things?limit=1.5", "", nil, 422, "validation_failed", `query\.limit`},
		{"limit of a word", "GET", "/v1/things?limit=all", "", nil, 422, "validation_failed", `query\.limit`},
		{"limit beyond int64", "GET", "/v1/things?limit=99999999999999999999", "", nil, 422, "validation_failed", `query\.limit`},
		{"neither true nor false", "GET", "/v1/things?open=maybe", "", nil, 422, "validation_failed", `query\.open`},
		{"not a time in the query", "GET", "/v1/things?from=today", "", nil, 422, "validation_failed", `query\.from`},
		{"garbage for a cursor", "GET", "/v1/things?cursor=garbage", "", nil, 422, "invalid_cursor", `query\.cursor`},
		{"more garbage for a cursor", "GET", "/v1/things?cursor=%21%21", "", nil, 422, "invalid_cursor", `query\.cursor`},
		// Idempotency keys.
		{"key given twice", "POST", orders, body(good), []string{"Idempotency-Key", "a", "Idempotency-Key", "a"}, 422, "invalid_idempotency_key", `header\.Idempotency-Key`},
		{"empty key", "POST", orders, body(good), []string{"Idempotency-Key", ""}, 422, "invalid_idempotency_key", `header\.Idempotency-Key`},
		{"key with a space", "POST", orders, body(good), []string{"Idempotency-Key", "a b"}, 422, "invalid_idempotency_key", `header\.Idempotency-Key`},
		{"key with a tab", "POST", orders, body(good), []string{"Idempotency-Key", "a\tb"}, 422, "invalid_idempotency_key", `header\.Idempotency-Key`},
		{"key beyond ASCII", "POST", orders, body(good), []string{"Idempotency-Key", "schlüssel"}, 422, "invalid_idempotency_key", `header\.Idempotency-Key`},
		{"key too long", "POST", orders, body(good), []string{"Idempotency-Key", strings.Repeat("k", 256)}, 422, "invalid_idempotency_key", `header\.Idempotency-Key`},
		// Routes and sizes.
		{"unknown route", "GET", "/v1/nothing", "", nil, 404, "route_not_found", ""},
		{"unknown route for POST", "POST", "/v1/nothing", "{}", nil, 404, "route_not_found", ""},
		{"route with a slash too many", "GET", "/v1/things/", "", nil, 404, "route_not_found", ""},
		{"route with an empty segment", "GET", "/v1//things", "", nil, 404, "route_not_found", ""},
		{"wrong method", "PATCH", "/v1/things/7", "", nil, 405, "method_not_allowed", ""},
		{"wrong method on a page", "DELETE", "/", "", nil, 405, "method_not_allowed", ""},
		{"wrong method on an operational route", "POST", "/readyz", "", nil, 405, "method_not_allowed", ""},
		{"made up method", "FROB", orders, "", nil, 405, "method_not_allowed", ""},
		{"body too large", "POST", orders, `{"note":"` + strings.Repeat("x", 1<<20) + `"}`, nil, 413, "body_too_large", ""},
		{"import too large", "POST", "/v1/imports", strings.Repeat("x", 4<<20+1), nil, 413, "body_too_large", ""},
		// Other sites.
		{"from another site's page", "POST", orders, body(good), []string{"Sec-Fetch-Site", "cross-site"}, 403, "cross_origin", ""},
		{"from another site's page, to ours", "POST", "/page", "", []string{"Origin", "https://evil.example"}, 403, "cross_origin", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := s.ask(tc.method, tc.path, tc.body, tc.header...)
			p := r.problem(t)
			if r.Status != tc.status || p.Code != tc.code {
				t.Errorf("got %d %s, want %d %s: %s", r.Status, p.Code, tc.status, tc.code, r.Body)
			}
			if tc.location == "" {
				return
			}
			if len(p.Errors) == 0 {
				t.Fatalf("no errors in %s", r.Body)
			}
			if first := p.Errors[0]; !regexp.MustCompile("^"+tc.location+"$").MatchString(first.Location) || first.Message == "" {
				t.Errorf("location %q, want %s: %s", first.Location, tc.location, r.Body)
			}
		})
	}
}

// TestGoodRequests keeps the refusals from becoming too many.
func TestGoodRequests(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	const good = `{"sku":"mug","quantity":1}`
	full := `{"lines":[{"sku":"\ud83d\ude00","quantity":1000000000}],"customer":"äöüßé","ttl":"2h30m","from":"2026-01-01T01:00:00+02:00","note":{"deep":[1.5e3,null,"\\u0000"]},"prefer":"spread"}`
	for _, tc := range []struct {
		name, method, path, body string
		header                   []string
		status                   int
	}{
		{"order", "POST", orders, body(good), nil, 201},
		{"order with everything", "POST", orders, full, nil, 201},
		{"nulls where things may be left out", "POST", orders, `{"lines":[` + good + `],"ttl":null,"from":null,"customer":null,"note":null}`, nil, 201},
		{"curl's content type", "POST", orders, body(good), []string{"Content-Type", "application/x-www-form-urlencoded"}, 201},
		{"an Accept of something else", "POST", orders, body(good), []string{"Accept", "text/html"}, 201},
		{"exactly 1 MiB", "POST", orders, body(good) + strings.Repeat(" ", 1<<20-len(body(good))), nil, 201},
		{"no body where it is optional", "POST", "/v1/orders/7/confirm", "", nil, 200},
		{"blank body where it is optional", "POST", "/v1/orders/7/confirm", "\n", nil, 200},
		{"a body where it is optional", "POST", "/v1/orders/7/confirm", `{"retake":true}`, nil, 200},
		{"no body where none is taken", "POST", "/v1/orders/7/resume", "", nil, 200},
		{"{} where none is taken", "POST", "/v1/orders/7/resume", ` { } `, nil, 200},
		{"status and headers of the handler", "PUT", "/v1/things/7", good, nil, 201},
		{"nothing to say", "DELETE", "/v1/things/7", "", nil, 204},
		{"list", "GET", "/v1/things?limit=500&open=false&from=2026-01-01T00:00:00.5%2B02:00&label=a:b&label=c:d", "", nil, 200},
		{"HEAD", "HEAD", "/v1/things", "", nil, 200},
		{"escaped slash", "GET", "/v1/things/a%2Fb", "", nil, 200},
		{"longest key", "POST", orders, body(good), []string{"Idempotency-Key", strings.Repeat("~", 255)}, 201},
		{"a key on GET is nobody's business", "GET", "/v1/things", "", []string{"Idempotency-Key", "a b"}, 200},
		{"import of more than 1 MiB", "POST", "/v1/imports?dry_run=true", strings.Repeat("a,b\n", 1<<19), []string{"Content-Type", "text/csv"}, 200},
		{"from our own page", "POST", orders, body(good), []string{"Sec-Fetch-Site", "same-origin"}, 201},
		{"page", "GET", "/", "", nil, 200},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := s.ask(tc.method, tc.path, tc.body, tc.header...)
			if r.Status != tc.status {
				t.Errorf("got %d, want %d: %s", r.Status, tc.status, r.Body)
			}
			if strings.Contains(r.Body, "$schema") {
				t.Errorf("huma's $schema in %s", r.Body)
			}
			if ct := r.Header.Get("Content-Type"); strings.HasPrefix(tc.path, "/v1") && r.Status != 204 && ct != "application/json" {
				t.Errorf("Content-Type is %q", ct)
			}
		})
	}
}

func TestWhatTheHandlerSees(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	got := s.ask("POST", "/v1/shops/a%2Fb/orders", `{"lines":[{"sku":"\ud83d\ude00","quantity":2}],"ttl":"150s","from":"2026-01-01T01:00:00+02:00"}`,
		"Idempotency-Key", "k-1").seen(t)
	if got.Tenant != "default" || got.Actor != "anonymous" || got.Key != "k-1" || got.Path != "/v1/shops/a/b/orders" {
		t.Errorf("seen %+v", got)
	}
	const want = "map[from:2025-12-31T23:00:00Z lines:[map[quantity:2 sku:😀]] ttl:150s]"
	if fmt.Sprint(got.Body) != want {
		t.Errorf("body %v, want %s", got.Body, want)
	}
	if r := s.ask("PUT", "/v1/things/7", `{"sku":"mug","quantity":1}`); r.Header.Get("Idempotency-Replayed") != "true" || r.Body != `{"sku":"mug","quantity":1}`+"\n" {
		t.Errorf("headers %v, body %s", r.Header, r.Body)
	}
	if r := s.ask("POST", orders, body(`{"sku":"mug","quantity":1}`)); r.Header.Get("Idempotency-Replayed") != "" {
		t.Error("a first answer is marked as replayed")
	}
}

// TestAllow reads the methods that a 405 offers.
func TestAllow(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	for path, want := range map[string]string{
		"/v1/things/7": "DELETE, GET, HEAD, PUT", "/v1/imports": "POST", "/livez": "GET, HEAD", "/": "GET, HEAD", "/docs": "GET, HEAD",
	} {
		if got := s.ask("PATCH", path, "").Header.Get("Allow"); got != want {
			t.Errorf("%s: Allow is %q, want %q", path, got, want)
		}
	}
}

// raw sends bytes that no HTTP client would, and reads the answer.
func (s *sample) raw(t *testing.T, request string) *http.Response {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestBodyThatEndsEarly(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	for name, request := range map[string]string{
		"shorter than announced": "POST " + orders + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{\"lines\":[]}",
		"half a chunk":           "POST " + orders + " HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n{\"lines\":[]}",
	} {
		res := s.raw(t, request)
		text, _ := io.ReadAll(res.Body)
		if p := (reply{res.StatusCode, res.Header, string(text)}).problem(t); p.Status != 400 || p.Code != "body_incomplete" {
			t.Errorf("%s: %d %s", name, p.Status, p.Code)
		}
	}
}

func TestChunkedBodyTooLarge(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	chunk := fmt.Sprintf("%x\r\n%s\r\n", 1<<19, strings.Repeat(" ", 1<<19))
	res := s.raw(t, "POST "+orders+" HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"+chunk+chunk+"1\r\n \r\n0\r\n\r\n")
	if res.StatusCode != 413 {
		t.Errorf("status %d, want 413", res.StatusCode)
	}
}

// TestManyFaults keeps the answer to nothing but faults short.
func TestManyFaults(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	var b strings.Builder
	b.WriteString(`{"z":1`)
	for i := range 20000 {
		fmt.Fprintf(&b, `,"f%d":1`, i)
	}
	r := s.ask("POST", orders, b.String()+"}")
	if p := r.problem(t); len(p.Errors) != 20 || len(r.Body) > 4096 {
		t.Errorf("%d errors in %d bytes", len(p.Errors), len(r.Body))
	}
}
