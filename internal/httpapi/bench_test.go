package httpapi_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"holdfast/internal/httpapi"
)

// page is a ResponseWriter that costs next to nothing.
type page struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (p *page) Header() http.Header         { return p.header }
func (p *page) WriteHeader(status int)      { p.status = status }
func (p *page) Write(b []byte) (int, error) { return p.body.Write(b) }

// BenchmarkRequest is everything that stands around a handler, without net/http's part, by
// huma's way and by a codec's.
func BenchmarkRequest(b *testing.B) {
	const body = `{"lines":[{"sku":"FLASH-10","quantity":1}],"customer":"ann","ttl":"5m"}`
	for name, api := range map[string]*httpapi.API{"huma": newAPI(httpapi.Config{}), "codec": newQuickAPI(httpapi.Config{})} {
		for _, key := range []string{"", "k"} {
			b.Run(name+"/key="+key, func(b *testing.B) {
				r, err := http.NewRequest("POST", "http://localhost"+orders, http.NoBody)
				if err != nil {
					b.Fatal(err)
				}
				if key != "" {
					r.Header.Set("Idempotency-Key", key)
				}
				w := &page{header: http.Header{}}
				b.ReportAllocs()
				for b.Loop() {
					r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
					clear(w.header)
					w.body.Reset()
					if api.ServeHTTP(w, r); w.status != http.StatusCreated {
						b.Fatal(w.body.String())
					}
				}
			})
		}
	}
}
