package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
	"holdfast/internal/idempotency"
	"holdfast/internal/pg"
)

// notes is a log that several goroutines write.
type notes struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.buf.Write(p)
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.buf.String()
}

// TestErrorsToldToClients walks through what handlers come to.
func TestErrorsToldToClients(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		err    error
		status int
		code   string
		retry  bool
		logged bool
	}{
		{"a rule", wrapped(errSoldOut), 409, "sold_out", false, false},
		{"a problem", wrapped(httpapi.Invalid("body.ttl", "must be positive")), 422, "validation_failed", false, false},
		{"a reused key", wrapped(idempotency.ErrReused), 422, "idempotency_key_reused", false, false},
		{"an unknown commit", wrapped(errors.Join(pg.ErrCommitUnknown, io.ErrUnexpectedEOF)), 503, "commit_unknown", true, true},
		{"too late", wrapped(pg.ErrDeadline), 503, "request_timeout", true, true},
		{"no connection", wrapped(&pgconn.ConnectError{}), 503, "database_unavailable", true, true},
		{"a broken connection", wrapped(io.ErrUnexpectedEOF), 503, "database_unavailable", true, true},
		{"an exhausted pool", wrapped(context.DeadlineExceeded), 503, "database_unavailable", true, true},
		{"a shutdown", wrapped(&pgconn.PgError{Code: "57P01"}), 503, "database_unavailable", true, true},
		{"too many connections", wrapped(&pgconn.PgError{Code: "53300"}), 503, "database_unavailable", true, true},
		{"a deadlock to the last", wrapped(&pgconn.PgError{Code: "40P01"}), 503, "overloaded", true, true},
		{"a lock not to be had", wrapped(&pgconn.PgError{Code: "55P03"}), 503, "overloaded", true, true},
		{"a fault of ours", wrapped(errors.New("secret of row 17")), 500, "internal", false, true},
		{"SQL gone wrong", wrapped(&pgconn.PgError{Code: "42P01", Message: "secret table"}), 500, "internal", false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			log := &notes{}
			r := failing(t, tc.err, log).ask("POST", "/fail", "", "X-Request-Id", "req-4711")
			p := r.problem(t)
			if p.Status != tc.status || p.Code != tc.code {
				t.Errorf("got %d %s, want %d %s", p.Status, p.Code, tc.status, tc.code)
			}
			if (r.Header.Get("Retry-After") != "") != tc.retry {
				t.Errorf("Retry-After is %q", r.Header.Get("Retry-After"))
			}
			if strings.Contains(r.Body, "4711:") || strings.Contains(r.Body, "secret") {
				t.Errorf("the client is told the operator's text: %s", r.Body)
			}
			if logged := strings.Contains(log.String(), "in transaction 4711") && strings.Contains(log.String(), "request_id=req-4711"); logged != tc.logged {
				t.Errorf("logged: %t, want %t: %s", logged, tc.logged, log.String())
			}
		})
	}
}

func TestProblemMembers(t *testing.T) {
	t.Parallel()
	r := failing(t, &shortage{"mug", 2}, io.Discard).ask("POST", "/fail", "")
	if p := r.problem(t); len(p.Shortages) != 1 || p.Shortages[0] != (shortage{"mug", 2}) || p.Detail != errSoldOut.Error() || p.Title != "Sold out" {
		t.Errorf("got %s", r.Body)
	}
	var members []string
	dec := json.NewDecoder(strings.NewReader(r.Body))
	for depth := 0; ; {
		token, err := dec.Token()
		if err != nil {
			break
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		default:
			if word, ok := token.(string); ok && depth == 1 {
				members = append(members, word)
			}
		}
	}
	if got := strings.Join(members, " "); !strings.HasPrefix(got, "type /docs#sold_out title Sold out status detail") {
		t.Errorf("members in the order %s", got)
	}
}

// TestPanic wants a 500 where nothing has been sent, and a broken connection where half has.
func TestPanic(t *testing.T) {
	t.Parallel()
	log := &notes{}
	s := failing(t, nil, log)
	httpapi.Register(s.API, httpapi.Op{Method: "POST", Path: "/panic", Scope: apikey.Write, Summary: "Panic"},
		func(context.Context, *struct{}) (httpapi.None, error) { panic("secret") })
	s.API.Handle("GET /half", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		w.(http.Flusher).Flush()
		panic("secret")
	}))
	r := s.ask("POST", "/panic", "")
	if p := r.problem(t); p.Status != 500 || p.Code != "internal" || strings.Contains(r.Body, "secret") {
		t.Errorf("got %s", r.Body)
	}
	if !strings.Contains(log.String(), "secret") || !strings.Contains(log.String(), r.Header.Get("X-Request-Id")) {
		t.Errorf("logged %s", log.String())
	}
	res, err := s.client.Get(s.URL + "/half")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if text, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("half an answer looks whole: %q", text)
	}
	if r := s.ask("GET", "/livez", ""); r.Status != 200 {
		t.Errorf("afterwards /livez says %d", r.Status)
	}
}
