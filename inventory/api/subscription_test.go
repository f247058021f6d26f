package api_test

import (
	"fmt"
	"testing"
)

const someSubscription = `{"url": "https://example.com/hook", "events": ["stock.low", "reservation.held", "stock.low"], "skus": ["mug"]}`

func TestASubscriptionsLife(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	u, _ := s.call(0, 201, "POST", "/v1/subscriptions", someSubscription, "Idempotency-Key", "k")
	again, header := s.call(1, 201, "POST", "/v1/subscriptions", someSubscription, "Idempotency-Key", "k")
	if fmt.Sprint(u) != fmt.Sprint(again) || header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%v and then %v", u, again)
	}
	s.want(u, "events", "[reservation.held stock.low]")
	s.want(u, "paused", false)
	path := "/v1/subscriptions/" + u["id"].(string)
	paused, _ := s.call(1, 200, "POST", path+"/pause", `{"reason": "maintenance"}`)
	s.want(paused, "paused", true)
	s.want(paused, "pause_reason", "maintenance")
	resumed, _ := s.call(0, 200, "POST", path+"/resume", "")
	s.want(resumed, "paused", false)
	changed, _ := s.call(0, 200, "PATCH", path, `{"skus": null, "paused": true}`)
	s.want(changed, "paused", true)
	s.want(changed, "skus", nil)
	s.want(changed, "url", "https://example.com/hook")
	list, _ := s.call(0, 200, "GET", "/v1/subscriptions", "")
	if items := list["items"].([]any); len(items) != 1 {
		t.Errorf("%v", list)
	}
	none, _ := s.call(0, 200, "GET", path+"/deliveries?status=dead", "")
	if items := none["items"].([]any); len(items) != 0 {
		t.Errorf("%v", none)
	}
	out, _ := s.call(0, 202, "POST", path+"/redeliver", "")
	s.want(out, "redelivered", 0)
	s.call(1, 204, "DELETE", path, "")
	s.call(0, 404, "GET", path, "")
}

func TestSubscriptionsRefuse(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	u, _ := s.call(0, 201, "POST", "/v1/subscriptions", someSubscription)
	path := "/v1/subscriptions/" + u["id"].(string)
	const nobody = "/v1/subscriptions/019400c0-0000-7000-8000-000000000000"
	for _, c := range []struct {
		status             int
		code, method, path string
		body               string
	}{
		{422, "validation_failed", "POST", "/v1/subscriptions", `{"url": "ftp://example.com", "events": ["stock.low"]}`},
		{422, "validation_failed", "POST", "/v1/subscriptions", `{"url": "https://u:p@example.com", "events": ["stock.low"]}`},
		{422, "validation_failed", "POST", "/v1/subscriptions", `{"url": "https://example.com", "events": ["stock.lost"]}`},
		{422, "validation_failed", "POST", "/v1/subscriptions", `{"url": "https://example.com", "events": []}`},
		{422, "validation_failed", "POST", "/v1/subscriptions", `{"url": "https://example.com"}`},
		{422, "validation_failed", "POST", "/v1/subscriptions", `{"url": "https://example.com", "events": ["stock.low"], "skus": ["a mug"]}`},
		{422, "validation_failed", "POST", "/v1/subscriptions", `{"url": "https://example.com", "events": ["stock.low"], "skus": []}`},
		{422, "target_forbidden", "POST", "/v1/subscriptions", `{"url": "http://127.0.0.1/", "events": ["stock.low"]}`},
		{422, "target_forbidden", "PATCH", path, `{"url": "http://169.254.169.254/"}`},
		{422, "validation_failed", "PATCH", path, `{"events": null}`},
		{422, "validation_failed", "PATCH", path, `{"url": null}`},
		{422, "validation_failed", "PATCH", path, `{"paused": null}`},
		{422, "validation_failed", "GET", path + "/deliveries?status=lost", ``},
		{422, "validation_failed", "POST", path + "/redeliver", `{"delivery_id": "019400c0-0000-7000-8000-000000000000", "from": "2026-01-01T00:00:00Z"}`},
		{404, "delivery_not_found", "POST", path + "/redeliver", `{"delivery_id": "019400c0-0000-7000-8000-000000000000"}`},
		{404, "delivery_not_found", "POST", path + "/redeliver", `{"delivery_id": "42"}`},
		{404, "subscription_not_found", "POST", nobody + "/redeliver", `{}`},
		{404, "subscription_not_found", "POST", nobody + "/pause", ``},
		{404, "subscription_not_found", "GET", nobody + "/deliveries", ``},
		{404, "subscription_not_found", "GET", "/v1/subscriptions/42", ``},
		{404, "subscription_not_found", "DELETE", nobody, ``},
		{404, "sku_not_found", "GET", "/v1/stream?sku=none", ``},
	} {
		problem, _ := s.call(0, c.status, c.method, c.path, c.body)
		if problem["code"] != c.code {
			t.Errorf("%s %s %s: %v, want %s", c.method, c.path, c.body, problem, c.code)
		}
	}
	after, _ := s.call(0, 200, "GET", path, "")
	if fmt.Sprint(after) != fmt.Sprint(u) {
		t.Errorf("refusals changed it: %v, was %v", after, u)
	}
}

func TestSigningSecret(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	first, _ := s.call(0, 200, "GET", "/v1/signing-secret", "")
	second, _ := s.call(1, 200, "POST", "/v1/signing-secret/rotate", "", "Idempotency-Key", "k")
	same, _ := s.call(0, 200, "POST", "/v1/signing-secret/rotate", "", "Idempotency-Key", "k")
	current, _ := s.call(0, 200, "GET", "/v1/signing-secret", "")
	previous := second["previous"].(object)
	if second["secret"] != same["secret"] || second["secret"] != current["secret"] || previous["secret"] != first["secret"] || first["secret"] == second["secret"] {
		t.Errorf("%v, %v, %v, %v", first, second, same, current)
	}
}

func TestLowStockIsASetting(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	k, _ := s.call(0, 201, "PUT", "/v1/skus/mug", `{"low_stock": 5}`)
	s.want(k, "low_stock", 5)
	k, _ = s.call(1, 200, "PUT", "/v1/skus/mug", `{"name": "Mug"}`)
	s.want(k, "low_stock", 5)
	k, _ = s.call(1, 200, "PUT", "/v1/skus/mug", `{"low_stock": null}`)
	s.want(k, "low_stock", nil)
	s.call(1, 422, "PUT", "/v1/skus/mug", `{"low_stock": -1}`)
}
