package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/bench/figure"
)

// What is written by hand must be what net/http reads.
func TestRequestsAreWellFormed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		command
		path, body string
	}{
		{command{kind: reserve, lines: []line{{"hot", 1}}, key: "k1"}, "/v1/reservations", `{"lines":[{"sku":"hot","quantity":1}]}`},
		{command{kind: reserve, lines: []line{{"a", 10}, {"b", 200}}}, "/v1/reservations", `{"lines":[{"sku":"a","quantity":10},{"sku":"b","quantity":200}]}`},
		{command{kind: confirm, id: "x", key: "k2"}, "/v1/reservations/x/confirm", ""},
		{command{kind: release, id: "y"}, "/v1/reservations/y/release", ""},
	} {
		// A second request behind it shows that the length is right.
		wire := appendRequest(appendRequest(nil, "127.0.0.1:1", c.command), "127.0.0.1:1", c.command)
		in := bufio.NewReader(bytes.NewReader(wire))
		for range 2 {
			r, err := http.ReadRequest(in)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Fatal(err)
			}
			if r.URL.Path != c.path || string(body) != c.body || r.Header.Get("Idempotency-Key") != c.key {
				t.Errorf("%v becomes %s with key %q and body %s", c.command, r.URL.Path, r.Header.Get("Idempotency-Key"), body)
			}
		}
	}
}

func TestAnswersAreUnderstood(t *testing.T) {
	t.Parallel()
	const id = "01a22e50-4ee8-7050-a8d0-854f110b9f43"
	const content = `{"id":"` + id + `","status":"held"}`
	answer := fmt.Sprintf("HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: %d\r\nDate: now\r\n\r\n%s", len(content), content)
	for n := range len(answer) {
		if _, _, whole, err := parseAnswer([]byte(answer[:n])); whole || err != nil {
			t.Fatalf("after %d of %d bytes: whole %t, %v", n, len(answer), whole, err)
		}
	}
	status, body, whole, err := parseAnswer([]byte(answer))
	if !whole || err != nil {
		t.Fatalf("whole %t, %v", whole, err)
	}
	held := command{kind: reserve}
	if got, o, err := understand(held, status, body); got != id || o != done || err != nil {
		t.Errorf("held: %q, %v, %v", got, o, err)
	}
	if _, o, err := understand(held, 409, []byte(`{"code":"sold_out"}`)); o != soldOut || err != nil {
		t.Errorf("sold out: %v, %v", o, err)
	}
	for _, wrong := range []int{200, 409, 500, 503} {
		if _, _, err := understand(held, wrong, []byte(`{"code":"overloaded"}`)); err == nil {
			t.Errorf("%d is taken for success", wrong)
		}
	}
	if _, _, _, err := parseAnswer([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")); err == nil {
		t.Error("an answer without a length is taken")
	}
}

// What buyers were told adds up, and a system that has something else is found out.
func TestBooks(t *testing.T) {
	t.Parallel()
	b := &buyer{random: rand.New(rand.NewPCG(1, 2)), cart: oneOf("hot"), mixed: true}
	for range 1000 {
		b.answered(b.next(), "id", done)
	}
	if held := int64(len(b.holds)); b.books.held() != held || b.books.Confirmed < 100 || b.books.Released < 50 {
		t.Errorf("%+v, and %d holds are left", b.books, held)
	}
	if err := b.books.compare(b.books.held(), b.books.Confirmed); err != nil {
		t.Error(err)
	}
	if b.books.compare(b.books.held()+1, b.books.Confirmed) == nil || b.books.compare(b.books.held(), b.books.Confirmed-1) == nil {
		t.Error("a lost unit isn't noticed")
	}
}

func TestOppositeCartsHaveThreeNeighbours(t *testing.T) {
	t.Parallel()
	cart, random, orders := opposite(), rand.New(rand.NewPCG(1, 2)), map[string]bool{}
	for range 1000 {
		lines := cart(random)
		orders[lines[0].sku+" "+lines[1].sku+" "+lines[2].sku] = true
	}
	if len(orders) != 2*len(cartSKUs) || !orders["cart-1 cart-2 cart-3"] || !orders["cart-3 cart-2 cart-1"] {
		t.Errorf("carts are %v", orders)
	}
}

// What isn't begun when the turn is over counts for nothing; an error counts as one.
func TestInProcessCountsWhatWasDone(t *testing.T) {
	t.Parallel()
	calls := 0
	do := func(context.Context, command) (string, outcome, error) {
		calls++
		switch calls {
		case 3:
			return "", done, errors.New("broken")
		case 5:
			return "", done, errStopped
		}
		return "", done, nil
	}
	b := &buyer{cart: oneOf("hot")}
	timings := inProcess(do)(t.Context(), []*buyer{b}, pace{length: time.Hour}.start())
	if h := histogram(timings); h.TotalCount() != 3 || b.books.Reserved != 3 || timings[0].errors["broken"] != 1 {
		t.Errorf("%d measured, %d reserved, errors %v", h.TotalCount(), b.books.Reserved, timings[0].errors)
	}
}

func TestRatiosAreTakenRoundByRound(t *testing.T) {
	t.Parallel()
	row := func(rates ...float64) (r Row) {
		for _, rate := range rates {
			r.Turns = append(r.Turns, Turn{PerSecond: rate})
		}
		return r
	}
	// A machine that was half as fast in the second round changes no ratio.
	if s := ratio(row(100, 50, 100), row(200, 100, 200), perSecond); s != (spread{Low: 0.5, Median: 0.5, High: 0.5}) {
		t.Errorf("%+v", s)
	}
}

func TestReplaceBlock(t *testing.T) {
	t.Parallel()
	page := "a\n<!-- inventory: hot -->\nold\n<!-- inventory: end -->\nb\n<!-- inventory: mix -->\n<!-- inventory: end -->\n"
	once, err := figure.Place(page, "inventory", "hot", "new\n")
	if err != nil || strings.Contains(once, "old") || !strings.Contains(once, "\nnew\n") || !strings.HasPrefix(once, "a\n") {
		t.Fatalf("%q, %v", once, err)
	}
	if twice, err := figure.Place(once, "inventory", "hot", "new\n"); err != nil || twice != once {
		t.Errorf("again: %q, %v", twice, err)
	}
	if _, err := figure.Place(page, "inventory", "zipf", ""); err == nil {
		t.Error("a place that isn't there is found")
	}
}
