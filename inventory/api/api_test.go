package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"holdfast/internal/httpapi"
	"holdfast/internal/pg"
	"holdfast/internal/pg/pgtest"
	"holdfast/inventory"
	"holdfast/inventory/api"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// shop is two replicas on one database, spoken to over HTTP as a client does.
type shop struct {
	*testing.T
	db       *pgtest.DB
	replicas [2]string
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{T: t, db: pgtest.New(t, inventory.Schema())}
	for i := range s.replicas {
		clock, err := pg.NewClock(t.Context(), s.db.Pool)
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(api.New(inventory.NewStore(s.db.Pool, clock, inventory.Options{}), s.db.Pool,
			httpapi.Config{Log: slog.New(slog.DiscardHandler)}))
		t.Cleanup(server.Close)
		s.replicas[i] = server.URL
	}
	return s
}

type object = map[string]any

// call sends a request to a replica and checks the status; header lists names and values.
func (s *shop) call(replica int, want int, method, path, body string, header ...string) (object, http.Header) {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), method, s.replicas[replica]+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
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
	if len(text) > 0 {
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		if err := dec.Decode(&answer); err != nil {
			s.Errorf("%s %s: %v in %s", method, path, err, text)
		}
	}
	return answer, res.Header
}

func (s *shop) stock(sku string, units int) {
	s.Helper()
	s.call(0, 201, "PUT", "/v1/skus/"+sku, `{"name": "Thing"}`)
	s.call(0, 200, "POST", "/v1/skus/"+sku+"/adjustments", fmt.Sprintf(`{"delta": %d, "reason": "delivery"}`, units))
}

func (s *shop) want(answer object, field string, want any) {
	s.Helper()
	if got := fmt.Sprint(answer[field]); got != fmt.Sprint(want) {
		s.Errorf("%s is %s, want %v, in %v", field, got, want, answer)
	}
}

func TestAReservationsLife(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("FLASH-10", 10)
	held, _ := s.call(0, 201, "POST", "/v1/reservations", `{"lines": [{"sku": "FLASH-10", "quantity": 3}], "customer": "ann", "reference": "order-1"}`)
	s.want(held, "status", "held")
	k, _ := s.call(1, 200, "GET", "/v1/skus/FLASH-10", "")
	s.want(k, "available", 7)
	s.want(k, "held", 3)
	path := "/v1/reservations/" + held["id"].(string)
	s.call(1, 200, "POST", path+"/extend", `{"ttl": "30m"}`)
	sold, _ := s.call(1, 200, "POST", path+"/confirm", "")
	s.want(sold, "status", "confirmed")
	again, _ := s.call(0, 200, "POST", path+"/confirm", "{}")
	if fmt.Sprint(again) != fmt.Sprint(sold) {
		t.Errorf("repeated: %v, first: %v", again, sold)
	}
	problem, _ := s.call(0, 409, "POST", path+"/release", "")
	s.want(problem, "code", "confirmed")
	s.want(problem, "reservation_status", "confirmed")
	ledger, _ := s.call(0, 200, "GET", "/v1/skus/FLASH-10/ledger", "")
	if items := ledger["items"].([]any); len(items) != 3 || items[2].(object)["kind"] != "confirm" {
		t.Errorf("ledger: %v", ledger)
	}
	list, _ := s.call(0, 200, "GET", "/v1/reservations?sku=FLASH-10&status=confirmed&customer=ann&reference=order-1", "")
	if items := list["items"].([]any); len(items) != 1 {
		t.Errorf("list: %v", list)
	}
}

func TestARepeatedKeyReplaysOnAnyReplica(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("mug", 5)
	const body = `{"lines": [{"sku": "mug", "quantity": 2}]}`
	first, header := s.call(0, 201, "POST", "/v1/reservations", body, "Idempotency-Key", "k1")
	if header.Get("Idempotency-Replayed") != "" {
		t.Error("the first answer says that it is a replay")
	}
	again, header := s.call(1, 201, "POST", "/v1/reservations", `{"lines":[{"quantity":2,"sku":"mug"}]}`, "Idempotency-Key", "k1")
	if header.Get("Idempotency-Replayed") != "true" || fmt.Sprint(again) != fmt.Sprint(first) {
		t.Errorf("replayed=%q: %v, first: %v", header.Get("Idempotency-Replayed"), again, first)
	}
	problem, _ := s.call(1, 422, "POST", "/v1/reservations", `{"lines": [{"sku": "mug", "quantity": 1}]}`, "Idempotency-Key", "k1")
	s.want(problem, "code", "idempotency_key_reused")
	problem, _ = s.call(0, 409, "POST", "/v1/reservations", `{"lines": [{"sku": "mug", "quantity": 9}]}`, "Idempotency-Key", "k2")
	s.want(problem, "code", "sold_out")
	s.call(0, 200, "POST", "/v1/skus/mug/adjustments", `{"delta": 9, "reason": "delivery"}`)
	s.call(0, 201, "POST", "/v1/reservations", `{"lines": [{"sku": "mug", "quantity": 9}]}`, "Idempotency-Key", "k2")
}

func TestRefusalsAreProblemsWithStableCodes(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("mug", 5)
	s.call(0, 200, "PUT", "/v1/skus/mug", `{"max_per_customer": 4}`)
	held, _ := s.call(0, 201, "POST", "/v1/reservations", `{"lines": [{"sku": "mug", "quantity": 3}], "customer": "ann"}`)
	path := "/v1/reservations/" + held["id"].(string)
	for _, c := range []struct {
		status       int
		code         string
		method, path string
		body         string
	}{
		{409, "sold_out", "POST", "/v1/reservations", `{"lines": [{"sku": "mug", "quantity": 3}], "customer": "bob"}`},
		{409, "customer_limit", "POST", "/v1/reservations", `{"lines": [{"sku": "mug", "quantity": 2}], "customer": "ann"}`},
		{422, "customer_required", "POST", "/v1/reservations", `{"lines": [{"sku": "mug", "quantity": 1}]}`},
		{404, "sku_not_found", "POST", "/v1/reservations", `{"lines": [{"sku": "cup", "quantity": 1}]}`},
		{404, "location_not_found", "POST", "/v1/reservations", `{"lines": [{"sku": "mug", "location": "moon", "quantity": 1}], "customer": "bob"}`},
		{422, "validation_failed", "POST", "/v1/reservations", `{"lines": [{"sku": "mug", "quantity": 1.5}]}`},
		{422, "validation_failed", "POST", "/v1/reservations", `{"lines": [{"sku": "mug", "quantity": 1}], "ttl": "0s"}`},
		{422, "validation_failed", "POST", "/v1/reservations", `{"lines": [{"sku": "mug", "quantity": 1}], "ttl": "25h"}`},
		{422, "validation_failed", "POST", "/v1/reservations", `{"lines": [{"sku": "a mug", "quantity": 1}]}`},
		{422, "validation_failed", "POST", "/v1/reservations", `{"lines": [], "customer": ""}`},
		{422, "validation_failed", "POST", "/v1/reservations", `{"lines": [{"sku": "mug", "quantity": 1}], "colour": "red"}`},
		{400, "body_required", "POST", "/v1/reservations", ``},
		{400, "malformed_json", "POST", "/v1/reservations", `{`},
		{404, "reservation_not_found", "GET", "/v1/reservations/42", ``},
		{404, "reservation_not_found", "POST", "/v1/reservations/019400c0-0000-7000-8000-000000000000/confirm", ``},
		{404, "sku_not_found", "GET", "/v1/skus/cup", ``},
		{404, "sku_not_found", "GET", "/v1/skus/cup/ledger", ``},
		{404, "sku_not_found", "POST", "/v1/skus/cup/adjustments", `{"delta": 1, "reason": "r"}`},
		{422, "validation_failed", "POST", "/v1/skus/mug/adjustments", `{"delta": 0, "reason": "r"}`},
		{422, "validation_failed", "POST", "/v1/skus/mug/adjustments", `{"delta": 1}`},
		{409, "below_held", "POST", "/v1/skus/mug/adjustments", `{"delta": -3, "reason": "r"}`},
		{409, "below_held", "POST", "/v1/skus/mug/counts", `{"counted": 2, "reason": "r"}`},
		{409, "count_changed", "POST", "/v1/skus/mug/counts", `{"counted": 5, "expected": 4, "reason": "r"}`},
		{409, "sku_in_use", "DELETE", "/v1/skus/mug", ``},
		{422, "validation_failed", "PUT", "/v1/skus/a%20mug", `{}`},
		{422, "validation_failed", "PUT", "/v1/skus/mug", `{"max_per_customer": 0}`},
		{422, "validation_failed", "PUT", "/v1/skus/mug", `{"default_ttl": "1ms"}`},
		{409, "extension_limit", "POST", path + "/extend", `{"ttl": "24h"}`},
		{422, "validation_failed", "POST", path + "/extend", `{"ttl": "-1s"}`},
		{422, "over_confirmed", "POST", path + "/confirm", `{"lines": [{"sku": "mug", "quantity": 4}]}`},
		{422, "validation_failed", "POST", path + "/confirm", `{"lines": []}`},
		{422, "validation_failed", "POST", path + "/confirm", `{"lines": null}`},
		{422, "validation_failed", "GET", "/v1/reservations?status=lost", ``},
		{422, "invalid_cursor", "GET", "/v1/skus?cursor=x", ``},
		{405, "method_not_allowed", "PATCH", "/v1/skus/mug", ``},
		{404, "route_not_found", "GET", "/v2/skus", ``},
	} {
		problem, header := s.call(0, c.status, c.method, c.path, c.body)
		if problem["code"] != c.code || header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s %s: %v, want code %s", c.method, c.path, c.body, problem, c.code)
		}
	}
	k, _ := s.call(1, 200, "GET", "/v1/skus/mug", "")
	s.want(k, "on_hand", 5)
	s.want(k, "held", 3)
	short, _ := s.call(0, 409, "POST", "/v1/reservations", `{"lines": [{"sku": "mug", "quantity": 3}], "customer": "bob"}`)
	s.want(object{"it": short["shortages"].([]any)[0].(object)["available"]}, "it", 2)
}

func TestSettingsAreKeptUnlessNamed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.call(0, 201, "PUT", "/v1/skus/mug", `{"name": "Mug", "default_ttl": "90s", "safety_stock": 2}`)
	k, _ := s.call(1, 200, "PUT", "/v1/skus/mug", `{"max_per_customer": 4, "safety_stock": null}`)
	s.want(k, "name", "Mug")
	s.want(k, "default_ttl", "90s")
	s.want(k, "max_per_customer", 4)
	s.want(k, "safety_stock", 0)
	s.call(0, 204, "DELETE", "/v1/skus/mug", "")
	s.call(1, 404, "GET", "/v1/skus/mug", "")
}

func TestPages(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for i := range 5 {
		s.stock(fmt.Sprintf("sku-%d", i), 5)
	}
	for _, path := range []string{"/v1/skus?limit=2", "/v1/skus/sku-0/ledger?limit=1"} {
		seen, cursor := 0, ""
		for pages := 0; ; pages++ {
			page, _ := s.call(pages%2, 200, "GET", path+cursor, "")
			seen += len(page["items"].([]any))
			if page["next_cursor"] == nil {
				break
			}
			cursor = "&cursor=" + page["next_cursor"].(string)
		}
		want := map[string]int{"/v1/skus?limit=2": 5, "/v1/skus/sku-0/ledger?limit=1": 1}[path]
		if seen != want {
			t.Errorf("%s: %d items over all pages, want %d", path, seen, want)
		}
	}
}

// A database that goes away is told as such, and nothing acknowledged is lost.
func TestALostDatabaseIsA503AndComesBack(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("mug", 5)
	held, _ := s.call(0, 201, "POST", "/v1/reservations", `{"lines": [{"sku": "mug", "quantity": 1}]}`)
	s.db.SetAllowConnections(t, false)
	problem, header := s.call(0, 503, "POST", "/v1/reservations", `{"lines": [{"sku": "mug", "quantity": 1}]}`)
	s.want(problem, "code", "database_unavailable")
	if header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	s.call(0, 503, "GET", "/readyz", "")
	s.call(0, 200, "GET", "/livez", "")
	s.db.SetAllowConnections(t, true)
	got, _ := s.call(0, 200, "GET", "/v1/reservations/"+held["id"].(string), "")
	s.want(got, "status", "held")
}
