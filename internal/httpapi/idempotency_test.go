package httpapi_test

import (
	"bytes"
	"testing"
)

// TestBodyHash wants the hash to cover what is asked for and not how it is written.
func TestBodyHash(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	hash := func(path, body string) []byte {
		t.Helper()
		return s.ask("POST", path, body, "Idempotency-Key", "k").seen(t).Hash
	}
	const first = `{"lines":[{"sku":"mug","quantity":1}],"customer":"ann","note":{"a":1,"b":[1,2]}}`
	base := hash(orders, first)
	for _, same := range []string{
		"\n{ \"lines\" : [ {\"sku\":\"mug\",\t\"quantity\":1} ], \"customer\":\"ann\", \"note\":{\"a\":1,\"b\":[1,2]} }\r\n",
		`{"note":{"b":[1,2],"a":1},"customer":"ann","lines":[{"quantity":1,"sku":"mug"}]}`,
		`{"lines":[{"\u0073ku":"m\u0075g","quantity":1}],"customer":"\u0061nn","note":{"a":1,"b":[1,2]}}`,
	} {
		if !bytes.Equal(hash(orders, same), base) {
			t.Errorf("another hash for %s", same)
		}
	}
	for _, other := range []string{
		`{"lines":[{"sku":"mug","quantity":2}],"customer":"ann","note":{"a":1,"b":[1,2]}}`,
		`{"lines":[{"sku":"mug","quantity":1}],"customer":"bob","note":{"a":1,"b":[1,2]}}`,
		`{"lines":[{"sku":"mug","quantity":1}],"customer":"ann","note":{"a":1,"b":[2,1]}}`,
		`{"lines":[{"sku":"mug","quantity":1}],"customer":"ann","note":{"a":1.0,"b":[1,2]}}`,
		`{"lines":[{"sku":"mug","quantity":1}],"customer":"ann"}`,
		`{"lines":[{"sku":"mug","quantity":1}],"customer":"ann","note":null}`,
	} {
		if bytes.Equal(hash(orders, other), base) {
			t.Errorf("the same hash for %s", other)
		}
	}
	confirm := "/v1/orders/7/confirm"
	if !bytes.Equal(hash(confirm, ""), hash(confirm, " {} ")) {
		t.Error("no body and {} differ")
	}
	if bytes.Equal(hash(confirm, ""), hash(confirm, `{"retake":true}`)) {
		t.Error("no body and retake are the same")
	}
	if bytes.Equal(hash("/v1/imports", "a,b"), hash("/v1/imports?dry_run=true", "a,b")) {
		t.Error("the dry run and the run are the same")
	}
	if bytes.Equal(hash("/v1/imports", "a,b"), hash("/v1/imports", "a, b")) {
		t.Error("imports differ in bytes and are the same")
	}
}
