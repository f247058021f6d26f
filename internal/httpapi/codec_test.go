package httpapi_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"holdfast/internal/httpapi"
)

// The sample's codecs. They know less than huma does, as codecs may: no times, no notes.

func decodeOrder(in *orderInput, shop string, body []byte) bool {
	in.Shop = shop
	c := httpapi.NewCursor(body)
	c.Open()
	if c.Member("customer") {
		in.Body.Customer = c.String(1, 5)
	}
	if !c.Member("lines") {
		return false
	}
	for c.List(); c.Item(); {
		var l line
		c.Open()
		if !c.Member("quantity") {
			c.Fail()
		}
		l.Quantity = c.Int(1, 1000000000)
		if !c.Member("sku") {
			c.Fail()
		}
		l.SKU = c.String(1, 1<<20)
		c.Close()
		in.Body.Lines = append(in.Body.Lines, l)
	}
	if n := len(in.Body.Lines); n < 1 || n > 3 {
		return false
	}
	if c.Member("ttl") {
		ttl := c.Duration()
		in.Body.TTL = &ttl
	}
	c.Close()
	return c.Done()
}

func decodeConfirm(in *confirmInput, id string, body []byte) bool {
	in.ID = id
	if body == nil {
		return true
	}
	in.Body = new(struct {
		Retake bool `json:"retake,omitempty"`
	})
	c := httpapi.NewCursor(body)
	c.Open()
	if c.Member("retake") {
		in.Body.Retake = c.Bool()
	}
	c.Close()
	return c.Done()
}

func appendSeen(out []byte, s *seen) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return append(out, text...)
}

// TestQuickAndSlowAgree asks both shops for the same and compares the answers to the byte.
func TestQuickAndSlowAgree(t *testing.T) {
	t.Parallel()
	slow, quick := newAPI(httpapi.Config{}), newQuickAPI(httpapi.Config{})
	ask := func(a *httpapi.API, path, body string) reply {
		r := httptest.NewRequest("POST", "http://localhost"+path, strings.NewReader(body))
		r.Header.Set("X-Request-Id", "same")
		r.Header.Set("Idempotency-Key", "k")
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		return reply{w.Code, w.Header(), w.Body.String()}
	}
	const good = `{"sku":"mug","quantity":1}`
	for _, text := range []string{
		body(good), body(good + "," + good), body(`{"sku":"gone","quantity":1}`), body(`{"sku":"again","quantity":1}`), " " + body(` { "quantity" : 3 , "sku" : "\u00fc" } `) + "\n",
		`{"lines":[` + good + `],"ttl":"5m","customer":"äöüßé"}`, `{"lines":[` + good + `],"customer":"äöüßéè"}`, `{"lines":[` + good + `],"ttl":"1h30m"}`,
		`{"lines":[` + good + `],"from":"2026-01-01T00:00:00Z"}`, `{"lines":[` + good + `],"note":{"a":[1.5]}}`, `{"lines":[` + good + `],"prefer":"spread"}`,
		``, `{}`, `{`, `null`, `{"lines":null}`, body(`{"sku":"mug","quantity":1.0}`), body(`{"sku":"mug"}`), body(good) + `x`, `{"retake":true}`, `{"retake":"yes"}`, `{"retake":null}`,
	} {
		for _, path := range []string{orders, "/v1/shops/a%2Fb/orders", "/v1/shops/%00/orders", orders + "?x=1", "/v1/orders/7/confirm"} {
			if diff := cmp.Diff(ask(slow, path, text), ask(quick, path, text)); diff != "" {
				t.Errorf("%s %s: with a codec the answer differs: %s", path, text, diff)
			}
		}
	}
}

func TestRegisterWithCodecRefuses(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("an operation without a body has a codec")
		}
	}()
	httpapi.RegisterWithCodec(newAPI(httpapi.Config{}), httpapi.Op{Method: "GET", Path: "/x", Scope: "read", Summary: "X"}, httpapi.Codec[idInput, seen]{},
		func(context.Context, *idInput) (seen, error) { return seen{}, nil })
}

// TestCursor reads what a codec may get wrong: everything that isn't as expected fails, for good.
func TestCursor(t *testing.T) {
	t.Parallel()
	for text, read := range map[string]func(*httpapi.Cursor){
		`{"a":1,"b":2}`:             func(c *httpapi.Cursor) { c.Open(); c.Member("a"); c.Int(0, 9); c.Close() },
		`{"b":2}`:                   func(c *httpapi.Cursor) { c.Open(); c.Member("a"); c.Close() },
		`{"a":10}`:                  func(c *httpapi.Cursor) { c.Open(); c.Member("a"); c.Int(0, 9); c.Close() },
		`{"a":-1}`:                  func(c *httpapi.Cursor) { c.Open(); c.Member("a"); c.Int(-5, 9); c.Close() },
		`{"a":1.0}`:                 func(c *httpapi.Cursor) { c.Open(); c.Member("a"); c.Int(0, 9); c.Close() },
		`{"a":1234567890123456789}`: func(c *httpapi.Cursor) { c.Open(); c.Member("a"); c.Int(0, 1<<62); c.Close() },
		`{"a":"x\"y"}`:              func(c *httpapi.Cursor) { c.Open(); c.Member("a"); _ = c.String(0, 9); c.Close() },
		`{"a":"üüü"}`:               func(c *httpapi.Cursor) { c.Open(); c.Member("a"); _ = c.String(4, 6); c.Close() },
		`{"a":"xxx"}`:               func(c *httpapi.Cursor) { c.Open(); c.Member("a"); _ = c.String(0, 2); c.Close() },
		`{"a":null}`:                func(c *httpapi.Cursor) { c.Open(); c.Member("a"); c.Bool(); c.Close() },
		`{"a":"1.5h"}`:              func(c *httpapi.Cursor) { c.Open(); c.Member("a"); c.Duration(); c.Close() },
		`{"a":"9999999s"}`:          func(c *httpapi.Cursor) { c.Open(); c.Member("a"); c.Duration(); c.Close() },
		`{"a":[1,"x"]}`: func(c *httpapi.Cursor) {
			c.Open()
			c.Member("a")
			for c.List(); c.Item(); {
				c.Int(0, 9)
			}
			c.Close()
		},
		`{"a":[1,2]} `: func(c *httpapi.Cursor) {
			c.Open()
			c.Member("a")
			for c.List(); c.Item(); {
				c.Int(0, 9)
			}
			c.Close()
		},
		`[]`: func(c *httpapi.Cursor) { c.Open(); c.Close() },
		``:   func(c *httpapi.Cursor) { c.Open(); c.Close() },
	} {
		c := httpapi.NewCursor([]byte(text))
		if read(&c); c.Done() {
			t.Errorf("%s is read", text)
		}
	}
	c := httpapi.NewCursor([]byte(`{"a":[true,false],"b":"90s","c":"üüü","d":[],"e":123456789012345678}`))
	c.Open()
	var flags []bool
	if c.Member("a") {
		for c.List(); c.Item(); {
			flags = append(flags, c.Bool())
		}
	}
	b, ttl := c.Member("b"), c.Duration()
	word := c.Member("c")
	text := c.String(3, 3)
	if c.Member("d") {
		for c.List(); c.Item(); {
			t.Error("an empty list has an item")
		}
	}
	e, n := c.Member("e"), c.Int(0, 1<<62)
	if c.Close(); !c.Done() || len(flags) != 2 || !flags[0] || flags[1] || !b || ttl.String() != "90s" || !word || text != "üüü" || !e || n != 123456789012345678 {
		t.Errorf("read %v %v %q %d, done %t", flags, ttl, text, n, c.Done())
	}
}

// TestAppendString compares with encoding/json.
func TestAppendString(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.RuneFrom([]rune("a<&>\"\\\n\t\x00\x7f\u2028ü😀"))), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "text")
		var want strings.Builder
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(s); err != nil {
			t.Fatal(err)
		}
		if got := string(httpapi.AppendString(nil, s)) + "\n"; got != want.String() {
			t.Errorf("%q is %s, want %s", s, got, want.String())
		}
	})
}
