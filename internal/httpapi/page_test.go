package httpapi_test

import (
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"testing"

	"holdfast/internal/httpapi"
)

// TestPagesJoinUp reads the list to its end with several limits.
func TestPagesJoinUp(t *testing.T) {
	t.Parallel()
	s := newSample(t)
	for _, limit := range []int{0, 1, 7, 40, 60, 119, 120, 121, 500} {
		path, per := "/v1/things?", 50
		if limit > 0 {
			path, per = "/v1/things?limit="+strconv.Itoa(limit), limit
		}
		var all []int
		cursor := ""
		for {
			r := s.ask("GET", path+cursor, "")
			var page httpapi.Page[int]
			if err := json.Unmarshal([]byte(r.Body), &page); err != nil || r.Status != 200 {
				t.Fatalf("%d %s: %v", r.Status, r.Body, err)
			}
			if len(page.Items) > per || len(page.Items) == 0 {
				t.Fatalf("limit %d: a page of %d", limit, len(page.Items))
			}
			all = append(all, page.Items...)
			if page.NextCursor == nil {
				break
			}
			cursor = "&cursor=" + url.QueryEscape(*page.NextCursor)
		}
		if len(all) != 120 || !slices.IsSorted(all) || all[0] != 1 {
			t.Errorf("limit %d: %v", limit, all)
		}
	}
}

func TestEmptyPage(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(httpapi.NewPage(nil, 50, "things", func(n int) int { return n }))
	if want := `{"items":[],"next_cursor":null}`; err != nil || string(text) != want {
		t.Errorf("got %s %v, want %s", text, err, want)
	}
}

// TestForeignCursors tries cursors that were right once, somewhere.
func TestForeignCursors(t *testing.T) {
	t.Parallel()
	type position struct{ SKU string }
	cursor := *httpapi.NewPage([]string{"a", "b"}, 1, "skus", func(s string) position { return position{s} }).NextCursor
	var p position
	if ok, err := (httpapi.ListParams{Cursor: cursor}).After("skus", &p); !ok || err != nil || p.SKU != "a" {
		t.Fatalf("its own list: %t %v %+v", ok, err, p)
	}
	if ok, err := (httpapi.ListParams{}).After("skus", &p); ok || err != nil {
		t.Errorf("no cursor: %t %v", ok, err)
	}
	for i := range cursor {
		changed := []byte(cursor)
		changed[i] ^= 1
		if ok, err := (httpapi.ListParams{Cursor: string(changed)}).After("skus", &p); ok || err == nil {
			t.Errorf("with its byte %d changed it is taken", i)
		}
	}
	var renamed struct{ Name string }
	for name, after := range map[string]func() (bool, error){
		"another list":    func() (bool, error) { return httpapi.ListParams{Cursor: cursor}.After("jobs", &p) },
		"another version": func() (bool, error) { return httpapi.ListParams{Cursor: cursor}.After("skus", &renamed) },
		"half of it":      func() (bool, error) { return httpapi.ListParams{Cursor: cursor[:8]}.After("skus", &p) },
		"padded":          func() (bool, error) { return httpapi.ListParams{Cursor: cursor + "="}.After("skus", &p) },
	} {
		if ok, err := after(); ok || err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
