package httpapi_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
)

type rowsInput struct {
	DryRun bool `query:"dry_run"`
}

// addRows is an import that says ok for each row, as soon as it has come, and in the end what the sum was.
// A row "stop" fails, a row "silent" ends it without an answer.
func addRows(a *httpapi.API, maxBody int64) {
	httpapi.RegisterImport(a, httpapi.Op{Method: "POST", Path: "/v1/rows", Scope: apikey.Write, Summary: "Import rows", MaxBody: maxBody},
		[]string{"text/csv", "application/x-ndjson"}, "application/x-ndjson",
		func(ctx context.Context, in *rowsInput, im *httpapi.Import) error {
			if _, bounded := ctx.Deadline(); bounded {
				return errors.New("an import has a deadline")
			}
			rows := bufio.NewScanner(im)
			n := 0
			for rows.Scan() {
				switch n++; rows.Text() {
				case "stop":
					return errSoldOut
				case "silent":
					return nil
				case "wait":
					continue
				}
				if _, err := fmt.Fprintf(im, "ok %d\n", n); err != nil {
					return err
				}
				if err := im.Flush(); err != nil {
					return err
				}
			}
			if err := rows.Err(); err != nil {
				return err
			}
			_, err := fmt.Fprintf(im, "%s %t %x\n", im.ContentType, in.DryRun, im.Sum())
			return err
		})
}

func TestImport(t *testing.T) {
	t.Parallel()
	a := newAPI(httpapi.Config{})
	addRows(a, 0)
	s := serve(t, a)
	csv := []string{"Content-Type", "text/csv; charset=utf-8"}
	r := s.ask("POST", "/v1/rows?dry_run=true", "a\nb\n", csv...)
	want := fmt.Sprintf("ok 1\nok 2\ntext/csv true %x\n", sha256.Sum256([]byte("a\nb\n\ndry_run=true")))
	if r.Status != 200 || r.Body != want || r.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Errorf("got %d %v %q, want %q", r.Status, r.Header, r.Body, want)
	}
	if r := s.ask("POST", "/v1/rows", "silent", csv...); r.Status != 200 || r.Body != "" {
		t.Errorf("an import that says nothing: %d %q", r.Status, r.Body)
	}
	for body, want := range map[string]string{"": "body_required", "stop": "sold_out"} {
		if p := s.ask("POST", "/v1/rows", body, csv...).problem(t); p.Code != want {
			t.Errorf("%q: %d %s, want %s", body, p.Status, p.Code, want)
		}
	}
	for _, contentType := range []string{"", "application/json", "text/csv;;"} {
		if p := s.ask("POST", "/v1/rows", "a", "Content-Type", contentType).problem(t); p.Status != 415 || p.Code != "unsupported_content_type" {
			t.Errorf("%q: %d %s", contentType, p.Status, p.Code)
		}
	}
	if p := s.ask("POST", "/v1/rows?colour=red", "a", csv...).problem(t); p.Status != 422 {
		t.Errorf("an unknown parameter: %d %s", p.Status, p.Code)
	}
	if p := s.ask("POST", "/v1/rows", "a", append(csv, "Idempotency-Key", "a b")...).problem(t); p.Code != "invalid_idempotency_key" {
		t.Errorf("a bad key: %d %s", p.Status, p.Code)
	}
	if spec := s.ask("GET", "/openapi.json", "").Body; !strings.Contains(spec, `"text/csv"`) {
		t.Error("the document doesn't know what is taken")
	}
}

// TestImportOfMoreThanMemory sends far more than any bound of an ordinary body, and reads while it sends.
func TestImportOfMoreThanMemory(t *testing.T) {
	t.Parallel()
	a := newAPI(httpapi.Config{})
	const size = 256 << 20
	var sum [sha256.Size]byte
	httpapi.RegisterImport(a, httpapi.Op{Method: "POST", Path: "/v1/rows", Scope: apikey.Write, Summary: "Import rows"}, []string{"text/csv"}, "text/plain",
		func(_ context.Context, _ *struct{}, im *httpapi.Import) error {
			n, err := io.Copy(io.Discard, struct{ io.Reader }{im})
			sum = im.Sum()
			if err == nil {
				_, err = fmt.Fprint(im, n)
			}
			return err
		})
	s := serve(t, a)
	h := sha256.New()
	body := io.TeeReader(io.LimitReader(zeros{}, size), h)
	res, err := s.client.Post(s.URL+"/v1/rows", "text/csv", body)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if string(text) != fmt.Sprint(size) || err != nil || sum != [sha256.Size]byte(h.Sum(nil)) {
		t.Errorf("%q, %v", text, err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestImportTooLarge(t *testing.T) {
	t.Parallel()
	a := newAPI(httpapi.Config{})
	addRows(a, 10)
	s := serve(t, a)
	if p := s.ask("POST", "/v1/rows", "wait\nwait\nwait", "Content-Type", "text/csv").problem(t); p.Code != "body_too_large" {
		t.Errorf("announced: %d %s", p.Status, p.Code)
	}
	res := s.raw(t, "POST /v1/rows HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/csv\r\nTransfer-Encoding: chunked\r\n\r\ne\r\nwait\nwait\nwait\r\n0\r\n\r\n")
	if res.StatusCode != 413 {
		t.Errorf("in chunks: %d", res.StatusCode)
	}
}

// TestImportAnswersWhileItReads sends a row only after the answer to the one before has come, for longer
// than a body may take in all, and then no more.
func TestImportAnswersWhileItReads(t *testing.T) {
	t.Parallel()
	a := newAPI(httpapi.Config{BodyTimeout: 100 * time.Millisecond, RequestTimeout: time.Millisecond})
	addRows(a, 0)
	s := serve(t, a)
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, "POST /v1/rows HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/csv\r\nContent-Length: 1000000\r\n\r\na\n")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || res.StatusCode != 200 {
		t.Fatal(res, err)
	}
	answers := bufio.NewReader(res.Body)
	for begin, n := time.Now(), 1; time.Since(begin) < 300*time.Millisecond; n++ {
		if line, err := answers.ReadString('\n'); err != nil || line != fmt.Sprintf("ok %d\n", n) {
			t.Fatalf("row %d: %q, %v", n, line, err)
		}
		_, _ = io.WriteString(conn, "a\n")
	}
	if rest, err := io.ReadAll(answers); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the answer to half an import ends with %q, %v", rest, err)
	}
}

// TestSlowImport is silent before anything has been answered.
func TestSlowImport(t *testing.T) {
	t.Parallel()
	a := newAPI(httpapi.Config{BodyTimeout: time.Millisecond})
	addRows(a, 0)
	s := serve(t, a)
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, "POST /v1/rows HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/csv\r\nContent-Length: 1000\r\n\r\nwait\n")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || res.StatusCode != 408 {
		t.Errorf("%v, %v", res, err)
	}
}

// TestImportGoesOnInADrain lets an import end that has begun.
func TestImportGoesOnInADrain(t *testing.T) {
	t.Parallel()
	a := newAPI(httpapi.Config{})
	addRows(a, 0)
	s := run(t, a, time.Minute)
	out, in := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/v1/rows", out)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "text/csv")
	go func() { _, _ = io.WriteString(in, "a\n") }()
	res, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	s.stop()
	awaitDrain(a)
	_, _ = io.WriteString(in, "b\n")
	_ = in.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || !strings.HasPrefix(string(text), "ok 1\nok 2\ntext/csv") {
		t.Errorf("%q, %v", text, err)
	}
	if err := <-s.stopped; err != nil {
		t.Error(err)
	}
}

// TestImportThatBreaksOff fails after its answer has begun: the client must not take it for whole.
func TestImportThatBreaksOff(t *testing.T) {
	t.Parallel()
	a := newAPI(httpapi.Config{})
	addRows(a, 0)
	s := serve(t, a)
	res, err := s.client.Post(s.URL+"/v1/rows", "text/csv", strings.NewReader("a\nstop\n"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if text, err := io.ReadAll(res.Body); err == nil || string(text) != "ok 1\n" {
		t.Errorf("%q, %v", text, err)
	}
}
