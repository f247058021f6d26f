package httpapi_test

import (
	"net/http"
	"testing"
)

// A page whose name was made to resolve to loopback must not be served, whatever it asks for; with
// authentication, any name will do.
func TestWithoutAuthenticationOnlyLoopbackNamesAreServed(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	for host, want := range map[string]int{
		"127.0.0.1:8080": 200, "localhost": 200, "localhost:8080": 200, "[::1]:8080": 200, "shop.localhost": 200,
		"evil.example": 403, "evil.example:8080": 403, "10.0.0.1": 403, "127.0.0.1.evil.example": 403, "localhost.evil.example:80": 403,
	} {
		for _, path := range []string{"/v1/things", "/", "/metrics"} {
			req, err := http.NewRequest("GET", s.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = host
			res, err := s.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode != want {
				t.Errorf("Host %s, %s: status %d, want %d", host, path, res.StatusCode, want)
			}
		}
	}
}
