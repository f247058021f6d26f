package api_test

import "testing"

func TestLocations(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	made, _ := s.call(0, 201, "PUT", "/v1/locations/shop", `{"name": "The shop", "rank": 2}`)
	s.want(made, "location", "shop")
	s.want(made, "rank", 2)
	changed, _ := s.call(1, 200, "PUT", "/v1/locations/shop", `{"rank": 1}`)
	s.want(changed, "name", "The shop")
	s.call(0, 201, "PUT", "/v1/locations/depot", `{"rank": 5}`)
	home, _ := s.call(0, 200, "GET", "/v1/locations/default", "")
	s.want(home, "location", "default")
	first, _ := s.call(0, 200, "GET", "/v1/locations?limit=2", "")
	if items := first["items"].([]any); len(items) != 2 || items[0].(object)["location"] != "default" {
		t.Errorf("the first page: %v", first)
	}
	second, _ := s.call(0, 200, "GET", "/v1/locations?limit=2&cursor="+first["next_cursor"].(string), "")
	if items := second["items"].([]any); len(items) != 1 || items[0].(object)["location"] != "shop" || second["next_cursor"] != nil {
		t.Errorf("the second page: %v", second)
	}

	s.call(0, 201, "PUT", "/v1/skus/MUG", "{}")
	s.call(0, 200, "POST", "/v1/skus/MUG/adjustments", `{"delta": 2, "reason": "delivery", "location": "shop"}`)
	k, _ := s.call(1, 200, "POST", "/v1/skus/MUG/counts", `{"counted": 4, "reason": "count", "location": "depot"}`)
	s.want(k, "on_hand", 6)
	s.want(k, "locations", "[map[available:0 held:0 location:default on_hand:0] map[available:4 held:0 location:depot on_hand:4] map[available:2 held:0 location:shop on_hand:2]]")
	held, _ := s.call(0, 201, "POST", "/v1/reservations", `{"lines": [{"sku": "MUG", "quantity": 3}]}`)
	s.want(held, "lines", "[map[location:shop quantity:2 sku:MUG] map[location:depot quantity:1 sku:MUG]]")
	short, _ := s.call(0, 409, "POST", "/v1/reservations", `{"lines": [{"sku": "MUG", "quantity": 1, "location": "shop"}]}`)
	s.want(short, "code", "sold_out")
	s.want(short, "shortages", "[map[available:0 location:shop sku:MUG wanted:1]]")
	fewest, _ := s.call(0, 201, "POST", "/v1/reservations", `{"lines": [{"sku": "MUG", "quantity": 2}], "allocate": "fewest"}`)
	s.want(fewest, "lines", "[map[location:depot quantity:2 sku:MUG]]")

	for path, code := range map[string]string{"/v1/locations/shop": "location_in_use", "/v1/locations/default": "location_in_use"} {
		problem, _ := s.call(0, 409, "DELETE", path, "")
		s.want(problem, "code", code)
	}
	s.call(0, 404, "DELETE", "/v1/locations/cellar", "")
	s.call(0, 404, "GET", "/v1/locations/cellar", "")
	for _, bad := range []struct{ method, path, body, location string }{
		{"PUT", "/v1/locations/a%20b", "{}", "path.location"},
		{"PUT", "/v1/locations/shop", `{"rank": -1}`, "body.rank"},
		{"PUT", "/v1/locations/shop", `{"rank": 1.5}`, "body.rank"},
		{"POST", "/v1/reservations", `{"lines": [{"sku": "MUG", "quantity": 1}], "allocate": "nearest"}`, "body.allocate"},
	} {
		problem, _ := s.call(0, 422, bad.method, bad.path, bad.body)
		if errs, _ := problem["errors"].([]any); len(errs) != 1 || errs[0].(object)["location"] != bad.location {
			t.Errorf("%s %s: %v, want an error at %s", bad.path, bad.body, problem, bad.location)
		}
	}
	missing, _ := s.call(0, 404, "POST", "/v1/skus/MUG/adjustments", `{"delta": 2, "reason": "delivery", "location": "cellar"}`)
	s.want(missing, "code", "location_not_found")
}

func TestReturns(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("MUG", 5)
	held, _ := s.call(0, 201, "POST", "/v1/reservations", `{"lines": [{"sku": "MUG", "quantity": 3}]}`)
	path := "/v1/reservations/" + held["id"].(string)
	problem, _ := s.call(0, 409, "POST", path+"/returns", `{"lines": [{"sku": "MUG", "quantity": 1}], "restock": true, "reason": "broken"}`)
	s.want(problem, "code", "held")
	s.call(0, 200, "POST", path+"/confirm", "")
	back, _ := s.call(1, 200, "POST", path+"/returns", `{"lines": [{"sku": "MUG", "quantity": 2}], "restock": true, "reason": "wrong size"}`, "Idempotency-Key", "r1")
	s.want(back, "lines", "[map[confirmed:3 location:default quantity:3 returned:2 sku:MUG]]")
	again, header := s.call(0, 200, "POST", path+"/returns", `{"lines": [{"sku": "MUG", "quantity": 2}], "restock": true, "reason": "wrong size"}`, "Idempotency-Key", "r1")
	s.want(again, "lines", back["lines"])
	if header.Get("Idempotency-Replayed") != "true" {
		t.Error("a repeated return isn't said to be one")
	}
	over, _ := s.call(0, 409, "POST", path+"/returns", `{"lines": [{"sku": "MUG", "quantity": 2}], "restock": false, "reason": "broken"}`)
	s.want(over, "code", "over_returned")
	s.call(0, 200, "POST", path+"/returns", `{"lines": [{"sku": "MUG", "quantity": 1}], "restock": false, "reason": "broken"}`)
	k, _ := s.call(0, 200, "GET", "/v1/skus/MUG", "")
	s.want(k, "on_hand", 4)
	s.want(k, "sold", 0)
	s.want(k, "written_off", 1)
	s.call(0, 422, "POST", path+"/returns", `{"lines": [], "restock": false, "reason": "broken"}`)
	s.call(0, 422, "POST", path+"/returns", `{"lines": [{"sku": "MUG", "quantity": 1}], "restock": true, "reason": ""}`)
	s.call(0, 422, "POST", path+"/returns", `{"lines": [{"sku": "MUG", "quantity": 1}], "reason": "no word on restock"}`)
	s.call(0, 404, "POST", "/v1/reservations/nothing/returns", `{"lines": [{"sku": "MUG", "quantity": 1}], "restock": true, "reason": "r"}`)
}
