package api_test

import (
	"fmt"
	"testing"
)

func TestAPlaceInTheLine(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("mug", 1)
	held, _ := s.call(0, 201, "POST", "/v1/reservations", `{"lines": [{"sku": "mug", "quantity": 1}]}`)
	const ann = `{"sku": "mug", "quantity": 1, "customer": "ann", "ttl": "48h", "hold_ttl": "15m"}`
	place, header := s.call(0, 201, "POST", "/v1/waitlist", ann, "Idempotency-Key", "k1")
	s.want(place, "status", "waiting")
	s.want(place, "position", 1)
	if place["reservation_id"] != nil || header.Get("Idempotency-Replayed") != "" {
		t.Errorf("%v", place)
	}
	again, header := s.call(1, 201, "POST", "/v1/waitlist", ann, "Idempotency-Key", "k1")
	if fmt.Sprint(again) != fmt.Sprint(place) || header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("repeated: %v, first: %v", again, place)
	}
	problem, _ := s.call(1, 409, "POST", "/v1/waitlist", ann)
	s.want(problem, "code", "already_waiting")
	s.want(problem, "place_id", place["id"])
	bob, _ := s.call(1, 201, "POST", "/v1/waitlist", `{"sku": "mug", "quantity": 1, "customer": "bob", "ttl": "30m"}`)
	list, _ := s.call(0, 200, "GET", "/v1/waitlist?sku=mug&limit=1", "")
	s.want(list["items"].([]any)[0].(object), "customer", "ann")
	list, _ = s.call(0, 200, "GET", "/v1/waitlist?sku=mug&limit=1&cursor="+list["next_cursor"].(string), "")
	s.want(list["items"].([]any)[0].(object), "position", 2)
	list, _ = s.call(0, 200, "GET", "/v1/waitlist?sku=mug&customer=bob", "")
	s.want(list["items"].([]any)[0].(object), "id", bob["id"])

	s.call(0, 200, "POST", "/v1/reservations/"+held["id"].(string)+"/release", "")
	offer, _ := s.call(1, 200, "GET", "/v1/waitlist/"+place["id"].(string), "")
	s.want(offer, "status", "offered")
	s.want(offer, "position", 0)
	s.want(offer, "reservation_status", "held")
	offers, _ := s.call(1, 200, "GET", "/v1/reservations?reference=waitlist:"+place["id"].(string), "")
	s.want(offers["items"].([]any)[0].(object), "id", offer["reservation_id"])
	for range 2 {
		s.call(1, 204, "DELETE", "/v1/waitlist/"+place["id"].(string), "")
	}
	left, _ := s.call(0, 200, "GET", "/v1/waitlist/"+place["id"].(string), "")
	s.want(left, "status", "left")
	next, _ := s.call(0, 200, "GET", "/v1/waitlist/"+bob["id"].(string), "")
	s.want(next, "status", "offered")
	s.call(0, 200, "POST", "/v1/reservations/"+next["reservation_id"].(string)+"/confirm", "")
	problem, _ = s.call(0, 409, "DELETE", "/v1/waitlist/"+bob["id"].(string), "")
	s.want(problem, "code", "confirmed")
	ledger, _ := s.call(0, 200, "GET", "/v1/skus/mug/ledger", "")
	kinds := ""
	for _, e := range ledger["items"].([]any) {
		kinds += " " + e.(object)["kind"].(string)
	}
	if kinds != " receive hold release hold offer release hold offer confirm" {
		t.Errorf("the ledger has%s", kinds)
	}
}

func TestRefusalsOfTheLine(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("mug", 5)
	s.call(0, 200, "PUT", "/v1/skus/mug", `{"max_per_customer": 2}`)
	for _, c := range []struct {
		status             int
		code               string
		method, path, body string
	}{
		{422, "validation_failed", "POST", "/v1/waitlist", `{"sku": "mug", "quantity": 1, "customer": "ann"}`},
		{422, "validation_failed", "POST", "/v1/waitlist", `{"sku": "mug", "quantity": 1, "ttl": "1h"}`},
		{422, "validation_failed", "POST", "/v1/waitlist", `{"sku": "mug", "quantity": 1, "customer": "", "ttl": "1h"}`},
		{422, "validation_failed", "POST", "/v1/waitlist", `{"sku": "mug", "quantity": 0, "customer": "ann", "ttl": "1h"}`},
		{422, "validation_failed", "POST", "/v1/waitlist", `{"sku": "mug", "quantity": 1.5, "customer": "ann", "ttl": "1h"}`},
		{422, "validation_failed", "POST", "/v1/waitlist", `{"sku": "mug", "quantity": 1000000001, "customer": "ann", "ttl": "1h"}`},
		{422, "validation_failed", "POST", "/v1/waitlist", `{"sku": "mug", "quantity": 1, "customer": "ann", "ttl": "0s"}`},
		{422, "validation_failed", "POST", "/v1/waitlist", `{"sku": "mug", "quantity": 1, "customer": "ann", "ttl": "721h"}`},
		{422, "validation_failed", "POST", "/v1/waitlist", `{"sku": "mug", "quantity": 1, "customer": "ann", "ttl": "1h", "hold_ttl": "0s"}`},
		{422, "validation_failed", "POST", "/v1/waitlist", `{"sku": "mug", "quantity": 1, "customer": "ann", "ttl": "1h", "hold_ttl": "25h"}`},
		{422, "validation_failed", "POST", "/v1/waitlist", `{"sku": "a mug", "quantity": 1, "customer": "ann", "ttl": "1h"}`},
		{422, "validation_failed", "POST", "/v1/waitlist", `{"sku": "mug", "quantity": 1, "customer": "ann", "ttl": "1h", "colour": "red"}`},
		{404, "sku_not_found", "POST", "/v1/waitlist", `{"sku": "cup", "quantity": 1, "customer": "ann", "ttl": "1h"}`},
		{409, "customer_limit", "POST", "/v1/waitlist", `{"sku": "mug", "quantity": 3, "customer": "ann", "ttl": "1h"}`},
		{404, "place_not_found", "GET", "/v1/waitlist/42", ""},
		{404, "place_not_found", "DELETE", "/v1/waitlist/019400c0-0000-7000-8000-000000000000", ""},
		{422, "validation_failed", "GET", "/v1/waitlist", ""},
		{422, "invalid_cursor", "GET", "/v1/waitlist?sku=mug&cursor=x", ""},
		{405, "method_not_allowed", "PUT", "/v1/waitlist", ""},
	} {
		problem, _ := s.call(0, c.status, c.method, c.path, c.body)
		if problem["code"] != c.code {
			t.Errorf("%s %s %s: %v, want code %s", c.method, c.path, c.body, problem, c.code)
		}
	}
	list, _ := s.call(0, 200, "GET", "/v1/waitlist?sku=mug", "")
	if len(list["items"].([]any)) != 0 {
		t.Errorf("%v", list)
	}
}
