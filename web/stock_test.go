package web_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/inventory"
)

func TestStockPages(t *testing.T) {
	t.Parallel()
	s := newShop(t, false)
	s.put("MUG", "Mug, blue", 1500, "delivery")
	s.put("PLATE", "", 0, "")
	held := s.hold("MUG", 300, 2*time.Hour, "ann")
	sold := s.hold("MUG", 200, time.Hour, "bob")
	s.confirm(sold.ID)
	gone := s.hold("MUG", 77, time.Hour, "cy")
	s.db.Exec(t, "UPDATE inventory.reservations SET expires_at = clock_timestamp() - interval '1 s' WHERE id = $1", gone.ID)

	s.says("/", "MUG", "Mug, blue", "1,300", "300", "1,000", "200", "PLATE", "0",
		"Latest reservations", "expired", "77 ×", "cy", "confirmed", "200 ×", "bob", "held", "300 ×", "ann", "in 1h 59m")
	page, _ := s.get(http.StatusOK, "/")
	// 1,000 of 1,500 are available: two thirds of the bar, from its left end.
	if !strings.Contains(page, `data-kind="available" x="0.00" width="666.67"`) || !strings.Contains(page, `aria-label="1,000 available, 300 held, 200 sold"`) {
		t.Errorf("the bar isn't right: %s", page)
	}
	s.says("/skus/MUG", "MUG", "Available", "1,000", "Held", "300", "On hand", "1,300", "Sold", "200", "Received", "1,500",
		"Live holds", "ann", "Ledger", "hold", "+77", "confirm", "−200", "1,300", "receive", "+1,500", "delivery", "test")
	live, _ := s.get(http.StatusOK, "/skus/MUG")
	if _, holds, _ := strings.Cut(text(live), "Live holds"); strings.Contains(holds[:strings.Index(holds, "Ledger")], "cy") {
		t.Error("an expired hold is shown as live")
	}
	s.says("/reservations/"+held.ID.String(), "held", held.ID.String(), "ann", "MUG", "300")
	s.says("/reservations/"+gone.ID.String(), "expired", "Was held until")
	s.says("/reservations?status=held", "ann")
	s.says("/reservations?customer=bob&sku=MUG", "bob")
	if page, _ := s.get(http.StatusOK, "/reservations?customer=bob"); strings.Contains(text(page), "ann") {
		t.Error("the filter lets others through")
	}
	for query, live := range map[string]bool{"": true, "?status=held&sku=MUG": true, "?customer=bob": true, "?status=expired": false, "?sku=MUG": true} {
		if page, _ := s.get(http.StatusOK, "/reservations"+query); strings.Contains(page, "live.js") != live {
			t.Errorf("/reservations%s asks for itself again: %t", query, !live)
		}
	}
}

func TestStockIsPaged(t *testing.T) {
	t.Parallel()
	s := newShop(t, false)
	for i := range 30 {
		s.put(fmt.Sprintf("SKU-%02d", i), "", 0, "")
	}
	for i := range 60 {
		if _, _, err := s.store.Adjust(t.Context(), s.caller, inventory.Adjustment{SKU: "SKU-00", Delta: 1, Reason: fmt.Sprintf("parcel-%02d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	for range 55 {
		s.hold("SKU-00", 1, time.Hour, "ann")
	}
	first, _ := s.get(http.StatusOK, "/")
	if strings.Contains(first, "SKU-25") || !strings.Contains(first, "SKU-24") {
		t.Error("the first page doesn't end with the 25th SKU")
	}
	s.says(next(t, first, "Next SKUs"), "SKU-25", "SKU-29", "First page")
	ledger, _ := s.get(http.StatusOK, "/skus/SKU-00")
	if n := strings.Count(ledger, `<tr id="e-`); n != 50 {
		t.Errorf("%d ledger entries on a page, want 50", n)
	}
	s.says("/skus/SKU-00"+next(t, ledger, "Older"), "parcel-59", "parcel-15", "Newest")
	list, _ := s.get(http.StatusOK, "/reservations?status=held&sku=SKU-00")
	rest, _ := s.get(http.StatusOK, next(t, list, "Older"))
	if n := strings.Count(rest, `<tr id="r-`); n != 5 {
		t.Errorf("%d reservations on the second page, want 5", n)
	}
	// A cursor of the API continues here as well.
	page, _ := s.get(http.StatusOK, "/v1/skus?limit=29")
	_, cursor, _ := strings.Cut(page, `"next_cursor":"`)
	cursor, _, _ = strings.Cut(cursor, `"`)
	if got, _ := s.get(http.StatusOK, "/?cursor="+cursor); !strings.Contains(got, "SKU-29") || strings.Contains(got, `id="s-SKU-28"`) {
		t.Error("the API's cursor leads elsewhere")
	}
}

func TestEmptyStockSaysWhatToDo(t *testing.T) {
	t.Parallel()
	s := newShop(t, false)
	host := strings.TrimPrefix(s.url, "http://")
	s.says("/", "No SKU yet", "curl -X PUT http://"+host+"/v1/skus/MUG", "Nothing has been reserved", "curl http://"+host+"/v1/reservations")
	s.put("MUG", "", 0, "")
	s.says("/skus/MUG", "Nothing is held", "curl", "Nothing has ever changed", "/v1/skus/MUG/adjustments")
	s.says("/reservations?customer=nobody", "No reservation is like this")
}

func TestAWaitingListIsShown(t *testing.T) {
	t.Parallel()
	s := newShop(t, false)
	s.put("MUG", "", 0, "")
	s.says("/skus/MUG", "Waiting list", "Nobody waits", "/v1/waitlist")
	for i := range 12 {
		customer := fmt.Sprintf("customer-%02d", i)
		if i == 1 {
			customer = evil
		}
		if _, _, err := s.store.Join(t.Context(), s.caller, inventory.Join{SKU: "MUG", Quantity: 3, Customer: customer, TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	s.says("/skus/MUG", "Waiting list", "the first 10 of 12", "1", "customer-00", "3", "in 59m", "customer-09")
	s.escaped("/skus/MUG")
	if page, _ := s.get(http.StatusOK, "/skus/MUG"); strings.Contains(page, "customer-10") {
		t.Error("more than the head of the line is shown")
	}
	s.put("MUG", "", 3, "delivery")
	s.says("/skus/MUG", "Live holds", "customer-00", "waitlist:", "the first 10 of 11", "Ledger", "offer")
}

func TestStockTextIsEscaped(t *testing.T) {
	t.Parallel()
	s := newShop(t, false)
	s.put("MUG", evil, 5, evil)
	r := s.hold("MUG", 1, time.Hour, evil)
	for _, path := range []string{"/", "/skus/MUG", "/reservations", "/reservations/" + r.ID.String(), "/reservations?customer=%3Cscript%3Ealert(1)%3C/script%3E%22%27%3E%3Cimg%20src=x%20onerror=alert(2)%3E"} {
		s.escaped(path)
	}
}

// escaped checks that a page shows evil text, and as text.
func (d *desk) escaped(path string) {
	d.Helper()
	page, _ := d.get(http.StatusOK, path)
	if !strings.Contains(page, "&lt;script&gt;alert(1)") {
		d.Errorf("%s doesn't show the text at all", path)
	}
	for _, raw := range []string{"<script>alert", "<img src=x", `"'>`} {
		if strings.Contains(page, raw) {
			d.Errorf("%s has %q as markup", path, raw)
		}
	}
}
