package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"holdfast/chronos"
	"holdfast/chronos/api"
	"holdfast/chronos/queue"
	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
	"holdfast/internal/pg/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// site is two replicas on one database, spoken to over HTTP as a client does. They serve, and
// only what a test starts runs in the background.
type site struct {
	*testing.T
	db       *pgtest.DB
	services [2]*chronos.Service
	replicas [2]string
	key      string // Authorization, if not empty
}

func newSite(t *testing.T, keys bool) *site {
	t.Helper()
	s := &site{T: t, db: pgtest.New(t, chronos.Schema())}
	if err := queue.EnsurePartitions(t.Context(), s.db.Pool); err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	for i := range s.replicas {
		service, err := chronos.New(t.Context(), chronos.Config{
			Pool: s.db.Pool, SessionURL: s.db.URL, Log: quiet, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		})
		if err != nil {
			t.Fatal(err)
		}
		cfg := httpapi.Config{Log: quiet}
		if keys {
			cfg.Keys = apikey.NewStore(s.db.Pool, "chronos")
		}
		server := httptest.NewServer(api.New(service, cfg))
		t.Cleanup(server.Close)
		s.services[i], s.replicas[i] = service, server.URL
	}
	return s
}

// run lets a replica work in the background until the test ends.
func (s *site) run(replica int) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.services[replica].Run(ctx) }()
	s.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.Error(err)
		}
	})
}

type object = map[string]any

// call sends a request to a replica and checks the status; header lists names and values.
func (s *site) call(replica, want int, method, path, body string, header ...string) (object, http.Header) {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), method, s.replicas[replica]+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	if s.key != "" {
		req.Header.Set("Authorization", "Bearer "+s.key)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.Fatal(err)
	}
	if res.StatusCode != want {
		s.Errorf("%s %s %s: status %d, want %d: %s", method, path, body, res.StatusCode, want, text)
	}
	var answer object
	if len(bytes.TrimSpace(text)) > 0 {
		if err := json.Unmarshal(text, &answer); err != nil {
			s.Errorf("%s %s: %v in %s", method, path, err, text)
		}
	}
	return answer, res.Header
}

// refused checks the code and, unless it is empty, the location of a refusal.
func (s *site) refused(want int, code, location, method, path, body string, header ...string) {
	s.Helper()
	answer, _ := s.call(0, want, method, path, body, header...)
	got := ""
	if faults, _ := answer["errors"].([]any); len(faults) > 0 {
		got, _ = faults[0].(object)["location"].(string)
	}
	if answer["code"] != code || location != "" && got != location {
		s.Errorf("%s %s %s: refused with %v at %q, want %s at %q", method, path, body, answer["code"], got, code, location)
	}
}

const pullJob = `{"schedule": {"every": "1h"}, "target": {"pull": {"queue": "q"}}}`
