package api_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/internal/httpapi"
	"holdfast/internal/pg"
	"holdfast/inventory"
	"holdfast/inventory/api"
)

var csv = []string{"Content-Type", "text/csv"}

func TestImport(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("MUG", 10)
	answer, header := s.call(0, 200, "POST", "/v1/imports", "sku,name,delta,counted\nMUG,Mug,5,\nCUP,Cup,,3\nMUG,,-16,\nMUG,,x,\n",
		"Content-Type", "text/csv; charset=utf-8")
	if header.Get("Content-Type") != "application/json" {
		t.Errorf("Content-Type %q", header.Get("Content-Type"))
	}
	for field, want := range map[string]any{"rows": 4, "applied": 2, "failed": 2, "created": 1, "unchanged": 0, "complete": true, "dry_run": false} {
		s.want(answer, field, want)
	}
	errors := answer["errors"].([]any)
	if len(errors) != 2 {
		t.Fatalf("errors: %v", errors)
	}
	s.want(errors[0].(object), "line", 4)
	s.want(errors[0].(object), "sku", "MUG")
	s.want(errors[0].(object), "code", "below_held")
	s.want(errors[1].(object), "field", "delta")
	s.want(errors[1].(object), "code", "validation_failed")
	s.want(errors[1].(object), "reason", `must be a whole number of at most 18 digits, not "x"`)
	k, _ := s.call(1, 200, "GET", "/v1/skus/MUG", "")
	s.want(k, "on_hand", 15)
	s.want(k, "name", "Mug")

	answer, _ = s.call(1, 200, "POST", "/v1/imports?results=all&reason=inventory&location=default",
		`{"sku": "MUG", "counted": 12, "expected": 15}`+"\n"+`{"sku": "MUG", "counted": 12, "expected": 15}`+"\n", "Content-Type", "application/x-ndjson")
	results := answer["results"].([]any)
	if len(results) != 2 || answer["errors"] != nil {
		t.Fatalf("results: %v", answer)
	}
	s.want(results[0].(object), "on_hand", 12)
	s.want(results[1].(object), "code", "count_changed")
	ledger, _ := s.call(0, 200, "GET", "/v1/skus/MUG/ledger", "")
	items := ledger["items"].([]any)
	s.want(items[len(items)-1].(object), "reason", "inventory")

	answer, _ = s.call(0, 200, "POST", "/v1/imports?dry_run=true", "sku,delta\nTIN,1\n", csv...)
	s.want(answer, "applied", 1)
	s.want(answer, "dry_run", true)
	s.call(0, 404, "GET", "/v1/skus/TIN", "")
	answer, _ = s.call(0, 200, "POST", "/v1/imports", "sku,delta\n", csv...)
	s.want(answer, "rows", 0)
	s.want(answer, "errors", "[]")
}

func TestImportRefused(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, c := range []struct {
		status      int
		query, body string
		contentType string
		code        string
	}{
		{422, "", "sku;delta\nA;1\n", "text/csv", "validation_failed"},
		{422, "", "A,1\n", "text/csv", "validation_failed"},
		{422, "", " \n", "text/csv", "validation_failed"},
		{400, "", "", "text/csv", "body_required"},
		{415, "", "[]", "application/json", "unsupported_content_type"},
		{422, "?results=none", "sku,delta\n", "text/csv", "validation_failed"},
		{422, "?dry_run=perhaps", "sku,delta\n", "text/csv", "validation_failed"},
		{422, "?location=here+and+there", "sku,delta\n", "text/csv", "validation_failed"},
		{422, "?sku=A", "sku,delta\n", "text/csv", "validation_failed"},
	} {
		p, _ := s.call(0, c.status, "POST", "/v1/imports"+c.query, c.body, "Content-Type", c.contentType)
		s.want(p, "code", c.code)
	}
	p, _ := s.call(0, 422, "POST", "/v1/imports", "sku,amount\nA,1\n", csv...)
	if fault := p["errors"].([]any)[0].(object); fault["location"] != "body.header" || !strings.Contains(fault["message"].(string), `line 1: unknown column "amount"`) {
		t.Errorf("a bad header: %v", p)
	}
	if list, _ := s.call(0, 200, "GET", "/v1/skus", ""); len(list["items"].([]any)) != 0 {
		t.Errorf("made by an import that was refused: %v", list)
	}
}

// TestImportOnceByItsKey cuts the connection in the middle of an import, and sends all of it again.
func TestImportOnceByItsKey(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	const rows = 1100
	text := "sku,delta\n" + strings.Repeat("MUG,1\nCUP,-1\n", rows/2)
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.replicas[0], "http://"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /v1/imports HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/csv\r\nIdempotency-Key: k\r\nContent-Length: %d\r\n\r\n%s",
		len(text), text[:len(text)/2+3])
	var begun int64
	for deadline := time.Now().Add(20 * time.Second); begun < 250 && time.Now().Before(deadline); {
		s.db.Scan(t, "SELECT coalesce(sum(on_hand), 0)::bigint FROM inventory.stock", nil, &begun)
	}
	_ = conn.Close()
	key := append(csv, "Idempotency-Key", "k")
	first, header := s.call(1, 200, "POST", "/v1/imports", text, key...)
	if header.Get("Idempotency-Replayed") != "" {
		t.Error("what was gone on with is told as a repetition")
	}
	s.want(first, "rows", rows)
	s.want(first, "applied", rows/2)
	k, _ := s.call(0, 200, "GET", "/v1/skus/MUG", "")
	s.want(k, "on_hand", rows/2)
	again, header := s.call(0, 200, "POST", "/v1/imports", text, key...)
	if header.Get("Idempotency-Replayed") != "true" || fmt.Sprint(again) != fmt.Sprint(first) {
		t.Errorf("again: %v", header)
	}
	for _, c := range []struct{ query, text string }{{"", text + "MUG,1\n"}, {"", "sku,delta\nMUG,2\n"}, {"?reason=other", text}} {
		p, _ := s.call(1, 422, "POST", "/v1/imports"+c.query, c.text, key...)
		s.want(p, "code", "idempotency_key_reused")
	}
	k, _ = s.call(0, 200, "GET", "/v1/skus/MUG", "")
	s.want(k, "on_hand", rows/2)
}

// sendAllThenRead is a client that reads nothing until it has sent everything.
func (s *shop) sendAllThenRead(contentType, body string) (*http.Response, []byte) {
	s.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.replicas[0], "http://"))
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.(*net.TCPConn).SetReadBuffer(16 << 10)
	_, err = fmt.Fprintf(conn, "POST /v1/imports HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", contentType, len(body), body)
	if err != nil {
		s.Fatalf("it couldn't send everything: %v", err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		s.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.Errorf("read the answer: %v", err)
	}
	return res, text
}

func TestImportForClientsThatDontReadMeanwhile(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	const rows = 45_000 // an answer, and a body, of more than a connection takes in by itself
	res, text := s.sendAllThenRead("text/csv", "sku,delta,name\n"+strings.Repeat("MUG,x,"+strings.Repeat("n", 500)+"\n", rows))
	var answer struct {
		Errors   []struct{ Line int }
		Failed   int
		Complete bool
	}
	if err := json.Unmarshal(text, &answer); err != nil || res.StatusCode != 200 || len(answer.Errors) != rows || answer.Failed != rows || !answer.Complete {
		t.Errorf("%d, %d errors, %v", res.StatusCode, len(answer.Errors), err)
	}
	// One that is refused at its first line is told so, too.
	long := strings.Repeat("MUG,1\n", 3_000_000)
	for contentType, want := range map[string]int{"text/csv": 422, "text/plain": 415} {
		if res, text := s.sendAllThenRead(contentType, "sku,amount\n"+long); res.StatusCode != want {
			t.Errorf("%d, want %d: %s", res.StatusCode, want, text)
		}
	}
}

// TestImportWithALongAnswer gets more than is kept for it.
func TestImportWithALongAnswer(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	const rows = 90_000
	answer, _ := s.call(0, 200, "POST", "/v1/imports", "sku,delta\n"+strings.Repeat("MUG,1000000001\n", rows), csv...)
	s.want(answer, "failed", rows)
	if errors := answer["errors"].([]any); len(errors) != rows || fmt.Sprint(errors[rows-1].(object)["line"]) != fmt.Sprint(rows+1) {
		t.Errorf("%d errors", len(errors))
	}
}

// TestImportEndsAtADrain ends an import after the batch in hand, and says where to go on.
func TestImportEndsAtADrain(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	clock, err := pg.NewClock(t.Context(), s.db.Pool)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	served := make(chan error, 1)
	face := api.New(inventory.NewStore(s.db.Pool, clock, inventory.Options{}), s.db.Pool, httpapi.Config{Log: slog.New(slog.DiscardHandler)})
	go func() { served <- face.Serve(ctx, ln, time.Minute) }()
	body, in := io.Pipe()
	go func() {
		_, _ = in.Write([]byte("sku,delta\n" + strings.Repeat("MUG,1\n", 250)))
		var applied int
		for applied < 250 && t.Context().Err() == nil {
			if err := s.db.Pool.QueryRow(t.Context(), "SELECT coalesce(sum(on_hand), 0) FROM inventory.stock").Scan(&applied); err != nil {
				return
			}
		}
		stop()
		for more := []byte(strings.Repeat("MUG,1\n", 250)); ; {
			if _, err := in.Write(more); err != nil {
				return
			}
		}
	}()
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+ln.Addr().String()+"/v1/imports", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "text/csv")
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	_ = in.Close()
	var answer struct {
		Rows       int
		Complete   bool
		Incomplete struct {
			Code     string
			NextLine int `json:"next_line"`
		}
	}
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err != nil || res.StatusCode != 200 || answer.Complete || answer.Rows < 250 || answer.Incomplete.Code != "import_stopped" || answer.Incomplete.NextLine != answer.Rows+2 {
		t.Errorf("%d %s, %v", res.StatusCode, text, err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	var onHand int
	s.db.Scan(t, "SELECT sum(on_hand) FROM inventory.stock", nil, &onHand)
	if onHand != answer.Rows {
		t.Errorf("%d on hand, %d rows told", onHand, answer.Rows)
	}
}

// TestImportHasAnAnswerInTheDocument checks that a generated client knows what it gets.
func TestImportHasAnAnswerInTheDocument(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	document, _ := s.call(0, 200, "GET", "/openapi.json", "")
	text, err := json.Marshal(document["paths"].(object)["/v1/imports"])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"text/csv", "application/x-ndjson", `"$ref":"#/components/schemas/Imported"`, "import_stopped"} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("%s isn't in the document: %s", want, text)
		}
	}
}
