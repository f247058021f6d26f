package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"holdfast/internal/httpapi"
	"holdfast/inventory"
)

// echo is an inventory without stock, which answers with what it was asked for: the hot routes,
// by their codecs or by huma's way alone.
func echo(codecs bool) *httpapi.API {
	a := httpapi.New(httpapi.Config{Title: "Echo", Version: "1", Errors: rules, Log: slog.New(slog.DiscardHandler)})
	if codecs {
		httpapi.RegisterWithCodec(a, reserveOp, reserveCodec, echoReserve)
		httpapi.RegisterWithCodec(a, confirmOp, confirmCodec, echoConfirm)
		httpapi.RegisterWithCodec(a, releaseOp, releaseCodec, echoRelease)
		httpapi.RegisterWithCodec(a, extendOp, extendCodec, echoExtend)
	} else {
		httpapi.Register(a, reserveOp, echoReserve)
		httpapi.Register(a, confirmOp, echoConfirm)
		httpapi.Register(a, releaseOp, echoRelease)
		httpapi.Register(a, extendOp, echoExtend)
	}
	return a
}

var echoTime = time.Date(2026, 12, 24, 18, 0, 0, 123456000, time.UTC)

func echoReserve(ctx context.Context, in *reserveInput) (inventory.Reservation, error) {
	b := in.Body
	if b.TTL != nil && *b.TTL <= 0 {
		return inventory.Reservation{}, httpapi.Invalid("body.ttl", "must be positive")
	}
	r := inventory.Reservation{ID: uuid.Max, Status: inventory.Held, Lines: linesOf(b.Lines), Customer: b.Customer, Reference: b.Reference, CreatedAt: echoTime}
	if b.TTL != nil {
		r.ExpiresAt = echoTime.Add(time.Duration(*b.TTL))
	}
	switch key := httpapi.IdempotencyKey(ctx); b.Lines[0].SKU {
	case "key":
		r.Reference = fmt.Sprintf("%s %s %s %x", key.Tenant, key.Path, key.Value, key.Body)
	case "replay":
		httpapi.SetReplayed(ctx, true)
	case "gone":
		short := inventory.Shortage{SKU: "gone", Location: "default", Wanted: b.Lines[0].Quantity, Available: 1}
		if !b.AllowPartial {
			return r, &inventory.ShortageError{Kind: inventory.ErrSoldOut, Shortages: []inventory.Shortage{short}}
		}
		r.Shortages = []inventory.Shortage{short}
	case "broken":
		return r, io.ErrUnexpectedEOF
	}
	return r, nil
}

func echoConfirm(ctx context.Context, in *confirmInput) (inventory.Reservation, error) {
	return change(ctx, in.ReservationPath, func(id uuid.UUID) (inventory.Reservation, bool, error) {
		r := inventory.Reservation{ID: id, Status: inventory.Confirmed, CreatedAt: echoTime, ExpiresAt: echoTime, SettledAt: &echoTime}
		if in.Body != nil {
			r.Customer, r.Lines = fmt.Sprint(in.Body.Retake), linesOf(in.Body.Lines)
		}
		return r, false, nil
	})
}

func echoRelease(ctx context.Context, in *releaseInput) (inventory.Reservation, error) {
	return change(ctx, in.ReservationPath, func(id uuid.UUID) (inventory.Reservation, bool, error) {
		return inventory.Reservation{ID: id, Status: inventory.Released, CreatedAt: echoTime, Reference: fmt.Sprint(in.Body != nil)}, false, nil
	})
}

func echoExtend(ctx context.Context, in *extendInput) (inventory.Reservation, error) {
	return change(ctx, in.ReservationPath, func(id uuid.UUID) (inventory.Reservation, bool, error) {
		return inventory.Reservation{ID: id, Status: inventory.Held, ExpiresAt: echoTime.Add(time.Duration(in.Body.TTL))}, false, nil
	})
}

const (
	oneLine = `{"lines":[{"sku":"FLASH-10","quantity":1}],"customer":"ann","ttl":"5m"}`
	someID  = "/v1/reservations/019400c0-0000-7000-8000-000000000000"
)

// TestCodecsChangeNothing asks for everything by both ways and compares the answers to the byte.
func TestCodecsChangeNothing(t *testing.T) {
	t.Parallel()
	quick, slow := echo(true), echo(false)
	line := func(rest string) string { return `{"lines":[{"sku":"mug",` + rest + `}]}` }
	with := func(rest string) string { return `{"lines":[{"sku":"mug","quantity":1}],` + rest + `}` }
	manyLines := strings.TrimSuffix(strings.Repeat(`{"sku":"mug","quantity":1},`, 100), ",")
	type request struct {
		method, path, body string
		header             []string
	}
	var requests []request
	for _, body := range []string{
		oneLine, " { \"lines\" :\n[ {\t\"quantity\": 2, \"sku\": \"mug\"} ] }\r\n", line(`"quantity":1000000000,"location":"east"`),
		`{"lines":[{"sku":"a","quantity":1},{"sku":"b","quantity":2,"location":"x"}],"allow_partial":true,"reference":"order-1","customer":"ann","ttl":"24h"}`,
		`{"lines":[{"sku":"gone","quantity":3}]}`, `{"lines":[{"sku":"gone","quantity":3}],"allow_partial":true}`, `{"lines":[{"sku":"replay","quantity":3}]}`,
		`{"lines":[{"sku":"key","quantity":3}],"ttl":"1s"}`, `{"lines":[{"sku":"broken","quantity":3}]}`, `{"lines":[` + manyLines + `]}`, `{"lines":[` + manyLines + `,{"sku":"cup","quantity":1}]}`,
		with(`"ttl":"90s"`), with(`"ttl":"1h30m"`), with(`"ttl":"1.5h"`), with(`"ttl":"0s"`), with(`"ttl":"-1s"`), with(`"ttl":"1500ms"`), with(`"ttl":"10"`), with(`"ttl":"s"`), with(`"ttl":""`), with(`"ttl":null`), with(`"ttl":5`),
		with(`"ttl":"999999999h"`), with(`"ttl":"9999999m"`), with(`"ttl":"007m"`), with(`"ttl":"5M"`),
		with(`"customer":""`), with(`"customer":"` + strings.Repeat("x", 255) + `"`), with(`"customer":"` + strings.Repeat("x", 256) + `"`), with(`"customer":"` + strings.Repeat("ü", 255) + `"`), with(`"customer":"` + strings.Repeat("ü", 256) + `"`),
		with(`"customer":"a\"b\\c\/d\n"`), with(`"customer":"\u00fc\ud83d\ude00"`), with(`"customer":"<&>\u2028"`), with("\"customer\":\"<&>\u2028\x7f\""), with(`"customer":"a\u0000b"`), with(`"customer":"\ud83d"`), with("\"customer\":\"a\x00b\""), with("\"customer\":\"a\tb\""), with("\"customer\":\"\xff\""),
		with(`"customer":null`), with(`"customer":7`), with(`"customer":["ann"]`), with(`"allow_partial":false`), with(`"allow_partial":"true"`), with(`"allow_partial":1`), with(`"allow_partial":null`), with(`"colour":"red"`), with(`"Customer":"ann"`), with(`"customer":"a","customer":"b"`), with(`"":1`),
		with(`"allocate":"fewest"`), with(`"reference":"r"`), with(`"reference":""`),
		line(`"quantity":0`), line(`"quantity":-1`), line(`"quantity":-0`), line(`"quantity":01`), line(`"quantity":+1`), line(`"quantity":1.0`), line(`"quantity":1.5`), line(`"quantity":1e3`), line(`"quantity":1E0`), line(`"quantity":1000000001`), line(`"quantity":9223372036854775808`), line(`"quantity":1e400`), line(`"quantity":"1"`), line(`"quantity":null`), line(`"quantity":true`), line(`"quantity":1,"quantity":2`), line(`"quantity":1,"x":{}`), line(`"quantity":1,"location":""`), line(`"quantity":1,"location":null`), line(`"location":"x"`), line(`"quantity":1 2`), line(`"quantity":`),
		`{"lines":[{"sku":"","quantity":1}]}`, `{"lines":[{"sku":"` + strings.Repeat("s", 129) + `","quantity":1}]}`, `{"lines":[{"sku":"a b","quantity":1}]}`, `{"lines":[{"quantity":1}]}`, `{"lines":[{}]}`, `{"lines":[]}`, `{"lines":[null]}`, `{"lines":null}`, `{"lines":{}}`, `{"lines":[[]]}`, `{}`, `[]`, `null`, `true`, `7`, `"x"`,
		``, ` `, `{`, `}`, `{"lines":[{"sku":"mug","quantity":1}]`, `{"lines":[{"sku":"mug","quantity":1}]}}`, `{"lines":[{"sku":"mug","quantity":1},]}`, `{"lines":[{"sku":"mug","quantity":1}],}`, `{'lines':[]}`, `{"lines" [{"sku":"mug","quantity":1}]}`, `{"lines":[{"sku":"mug" "quantity":1}]}`, oneLine + oneLine, oneLine + "x", oneLine + "\x00", "\xef\xbb\xbf" + oneLine, `tru`, `nul`, `{"lines":tru}`,
		`{"lines":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}`, strings.Repeat(" ", 1<<20-len(oneLine)) + oneLine, strings.Repeat(" ", 1<<20-len(oneLine)+1) + oneLine,
	} {
		requests = append(requests, request{"POST", "/v1/reservations", body, nil}, request{"POST", someID + "/confirm", body, nil})
	}
	for _, body := range []string{``, ` `, `{}`, ` { } `, `{"retake":true}`, `{"retake":false}`, `{"retake":1}`, `{"retake":null}`, `{"ttl":"5m"}`, `{"ttl":"5m","x":1}`, `{"ttl":null}`, `{"ttl":"0s"}`, `{"ttl":"1m1s"}`, `null`, `[]`, `{`, `{"lines":null,"retake":true}`} {
		for _, act := range []string{"/confirm", "/release", "/extend"} {
			for _, id := range []string{someID, "/v1/reservations/42", "/v1/reservations/%00", "/v1/reservations/a%2Fb", "/v1/reservations/{019400c0-0000-7000-8000-000000000000}", "/v1/reservations/%ff"} {
				requests = append(requests, request{"POST", id + act, body, nil})
			}
		}
	}
	for _, header := range [][]string{
		{"Idempotency-Key", "k-1"},
		{"Idempotency-Key", ""},
		{"Idempotency-Key", "a b"},
		{"Idempotency-Key", "a", "Idempotency-Key", "b"},
		{"Idempotency-Key", strings.Repeat("k", 256)},
		{"Content-Type", "text/plain"},
		{"Content-Type", "application/json; charset=latin1"},
		{"Accept", "text/html"},
		{"Accept-Encoding", "gzip"},
		{"Content-Encoding", "gzip"},
		{"Sec-Fetch-Site", "cross-site"},
		{"Origin", "https://evil.example"},
		{"Host", "evil.example"},
		{"Prefer", "return=minimal"},
		{"If-Match", "*"},
		{"X-Http-Method-Override", "GET"},
		{"Authorization", "Bearer x"},
	} {
		for _, body := range []string{oneLine, `{"lines":[{"sku":"key","quantity":3}],"ttl":"1s"}`, `{"lines":[{"quantity":3,"sku":"\u006bey"}],"ttl":"1s"}`, `{}`, ``} {
			requests = append(requests, request{"POST", "/v1/reservations", body, header}, request{"POST", "/v1/reservations?", body, header}, request{"POST", "/v1/reservations?&", body, header})
		}
	}
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "FROB", "CONNECT", "post"} {
		requests = append(requests, request{method, "/v1/reservations", oneLine, nil}, request{method, someID + "/confirm", "", nil})
	}
	for _, path := range []string{
		"/v1/reservations?dry_run=true", "/v1/reservations?%zz", "/v1/reservations/", "/v1//reservations", "/v1/./reservations", "/v1/reservations/x/../confirm", "/v1/reservations//confirm", someID + "/confirm/", someID + "/Confirm", someID + "/confirm?x=1", someID, "/v1/%72eservations",
	} {
		requests = append(requests, request{"POST", path, oneLine, nil})
	}
	for _, q := range requests {
		var answers [2]*httptest.ResponseRecorder
		for i, a := range []*httpapi.API{quick, slow} {
			r := httptest.NewRequest("POST", "http://localhost"+q.path, strings.NewReader(q.body))
			r.Method = q.method
			r.Header.Set("X-Request-Id", "same")
			for j := 0; j < len(q.header); j += 2 {
				if r.Header.Add(q.header[j], q.header[j+1]); q.header[j] == "Host" {
					r.Host = q.header[j+1]
				}
			}
			answers[i] = httptest.NewRecorder()
			a.ServeHTTP(answers[i], r)
		}
		if diff := cmp.Diff(answers[1].Body.String(), answers[0].Body.String()); diff != "" || answers[0].Code != answers[1].Code {
			t.Errorf("%s %s %.200s %q: status %d, without a codec %d; body %s", q.method, q.path, q.body, q.header, answers[0].Code, answers[1].Code, diff)
		}
		if diff := cmp.Diff(answers[1].Header(), answers[0].Header()); diff != "" {
			t.Errorf("%s %s %.200s %q: headers %s", q.method, q.path, q.body, q.header, diff)
		}
	}
}

// decoderCheck makes a function that decodes a body by the codec and by huma's way, fails if the
// codec takes what huma refuses or reads it differently, and says whether the codec took it.
func decoderCheck[I any](codec httpapi.Codec[I, inventory.Reservation], op httpapi.Op, path string) func(t *testing.T, body string) bool {
	var (
		taken, accepted bool
		got, want       I
	)
	a := httpapi.New(httpapi.Config{Title: "T", Version: "1", Errors: rules, Log: slog.New(slog.DiscardHandler)})
	watched := codec
	watched.Decode = func(in *I, wildcard string, body []byte) bool {
		taken = codec.Decode(in, wildcard, body)
		got = *in
		*in = *new(I)
		return false
	}
	httpapi.RegisterWithCodec(a, op, watched, func(_ context.Context, in *I) (inventory.Reservation, error) {
		accepted, want = true, *in
		return inventory.Reservation{}, nil
	})
	return func(t *testing.T, body string) bool {
		t.Helper()
		taken, accepted = false, false
		a.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "http://localhost"+path, strings.NewReader(body)))
		if taken && !accepted {
			t.Errorf("%s: the codec takes %q, which huma refuses", op.Path, body)
		} else if diff := cmp.Diff(want, got); taken && diff != "" {
			t.Errorf("%s: the codec reads %q differently: %s", op.Path, body, diff)
		}
		return taken
	}
}

// decoderChecks are those of the hot routes, by what they do.
func decoderChecks() map[string]func(*testing.T, string) bool {
	return map[string]func(*testing.T, string) bool{
		"reserve": decoderCheck(reserveCodec, reserveOp, "/v1/reservations"),
		"confirm": decoderCheck(confirmCodec, confirmOp, someID+"/confirm"),
		"release": decoderCheck(releaseCodec, releaseOp, someID+"/release"),
		"extend":  decoderCheck(extendCodec, extendOp, someID+"/extend"),
	}
}

// FuzzDecoders wants what a codec accepts to be what huma accepts.
func FuzzDecoders(f *testing.F) {
	for _, body := range []string{
		oneLine, ``, `{}`, `{"ttl":"5m"}`, `{"retake":true}`, `{"lines":[{"sku":"a","quantity":1,"location":"x"}],"retake":true}`,
		`{"lines":[{"sku":"a","quantity":1},{"sku":"b","quantity":2}],"allow_partial":true,"reference":"r","customer":"ü"}`, `{"lines":[{"sku":"a","quantity":1.0}]}`,
	} {
		f.Add(body)
	}
	checks := decoderChecks()
	f.Fuzz(func(t *testing.T, body string) {
		for _, check := range checks {
			check(t, body)
		}
	})
}

// TestUsualBodiesTakeTheCodec keeps the hot routes hot: every member that there is may be given.
func TestUsualBodiesTakeTheCodec(t *testing.T) {
	t.Parallel()
	full := reserveInput{}
	full.Body.TTL = new(httpapi.Duration(90 * time.Second))
	fill(reflect.ValueOf(&full.Body).Elem())
	body, err := json.Marshal(full.Body)
	if err != nil {
		t.Fatal(err)
	}
	checks := decoderChecks()
	for act, bodies := range map[string][]string{
		"reserve": {oneLine, `{"lines":[{"quantity":1,"sku":"a"}]}`, string(body)},
		"confirm": {``, `{}`, `{"retake":true,"lines":[{"sku":"a","quantity":1}]}`},
		"release": {``, `{}`},
		"extend":  {`{"ttl":"30m"}`},
	} {
		for _, body := range bodies {
			if !checks[act](t, body) {
				t.Errorf("%s goes by huma with %s", act, body)
			}
		}
	}
}

// fill gives every field of v that is zero a value that isn't, so that a field that somebody adds takes part.
func fill(v reflect.Value) {
	switch {
	case !v.IsZero() && v.Kind() != reflect.Struct:
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(echoTime))
	case v.Type() == reflect.TypeFor[uuid.UUID]():
		v.Set(reflect.ValueOf(uuid.MustParse("019400c0-1234-7abc-8def-0123456789ab")))
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i))
			}
		}
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0))
		fill(v.Index(1))
	case v.Kind() == reflect.String:
		v.SetString("prefer")
	case v.CanInt():
		v.SetInt(7)
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	}
}

// TestAppendReservation compares with encoding/json, field by field.
func TestAppendReservation(t *testing.T) {
	t.Parallel()
	var full inventory.Reservation
	fill(reflect.ValueOf(&full).Elem())
	answers := []inventory.Reservation{full, {}, {Lines: []inventory.Line{}}, {ID: uuid.Max, Customer: "\"<ü>\\\u2028\n\xff\x7f"}}
	for i := range reflect.TypeFor[inventory.Reservation]().NumField() {
		one := full
		reflect.ValueOf(&one).Elem().Field(i).SetZero()
		answers = append(answers, one)
	}
	for _, r := range answers {
		var want bytes.Buffer
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(r); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.String(), string(appendReservation(nil, &r))+"\n"); diff != "" {
			t.Error(diff)
		}
	}
}

// BenchmarkReserve is what the HTTP layer costs a reservation, without net/http and without the
// store: by its codec, by huma's way, and when it is sold out.
func BenchmarkReserve(b *testing.B) {
	for _, c := range []struct {
		name, body string
		codecs     bool
		key        string
		status     int
	}{
		{"codec", oneLine, true, "", 201},
		{"codec with key", oneLine, true, "k", 201},
		{"huma", oneLine, false, "", 201},
		{"huma with key", oneLine, false, "k", 201},
		{"codec sold out", `{"lines":[{"sku":"gone","quantity":1}],"customer":"ann"}`, true, "", 409},
	} {
		b.Run(c.name, func(b *testing.B) {
			a := echo(c.codecs)
			r, err := http.NewRequest("POST", "http://localhost/v1/reservations", http.NoBody)
			if err != nil {
				b.Fatal(err)
			}
			if c.key != "" {
				r.Header.Set("Idempotency-Key", c.key)
			}
			w := &answer{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader(c.body)), int64(len(c.body))
				clear(w.header)
				w.body.Reset()
				if a.ServeHTTP(w, r); w.status != c.status {
					b.Fatal(w.body.String())
				}
			}
		})
	}
}

// answer is a ResponseWriter that costs next to nothing.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }
