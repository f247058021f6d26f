package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// BenchmarkRequest is everything that stands around a handler, without the network.
func BenchmarkRequest(b *testing.B) {
	s := newSample(b)
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest("POST", "http://localhost"+orders, strings.NewReader(`{"lines":[{"sku":"FLASH-10","quantity":1}],"customer":"ann","ttl":"5m"}`))
		r.Header.Set("Idempotency-Key", "k")
		w := httptest.NewRecorder()
		if s.API.ServeHTTP(w, r); w.Code != http.StatusCreated {
			b.Fatal(w.Body)
		}
	}
}
