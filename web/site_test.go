package web_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

func TestPagesAskForAKey(t *testing.T) {
	t.Parallel()
	s := newShop(t, true)
	ours, theirs := newKey(s.desk, "ours"), newKey(s.desk, "theirs")
	s.caller.Tenant = "ours"
	s.put("MUG", "", 5, "delivery")
	r := s.hold("MUG", 1, time.Hour, "ann")
	paths := []string{"/", "/skus/MUG", "/reservations", "/reservations/" + r.ID.String()}

	for _, key := range []string{"", "hf_wrong", "hf_" + strings.Repeat("a", 52)} {
		s.key = key
		for _, path := range append(paths, "/skus/none") {
			page, header := s.get(http.StatusUnauthorized, path)
			if got := header.Get("WWW-Authenticate"); got != `Basic realm="Holdfast Inventory", charset="UTF-8"` {
				t.Errorf("%s asks with %q", path, got)
			}
			if strings.Contains(page, "MUG") || strings.Contains(page, "ours") {
				t.Errorf("%s tells something without a key: %s", path, page)
			}
		}
	}
	s.key = ours
	for _, path := range paths {
		if page, _ := s.get(http.StatusOK, path); !strings.Contains(page, "MUG") || !strings.Contains(page, "ours") {
			t.Errorf("%s doesn't show the tenant what it has: %s", path, text(page))
		}
	}
	s.key = theirs
	for _, path := range []string{"/", "/reservations"} {
		if page, _ := s.get(http.StatusOK, path); strings.Contains(text(page), "ann") {
			t.Errorf("%s shows what belongs to another tenant: %s", path, text(page))
		}
	}
	s.says("/", "No SKU yet", `Authorization: Bearer $KEY`)
	s.get(http.StatusNotFound, paths[1])
	s.get(http.StatusNotFound, paths[3])
	s.key = ""
	s.get(http.StatusOK, asset(t, s.desk, "css"))
}

func TestChronosPagesAskForAKey(t *testing.T) {
	t.Parallel()
	y := newYard(t, true)
	ours, theirs := newKey(y.desk, "ours"), newKey(y.desk, "theirs")
	y.caller.Tenant = "ours"
	y.put("leap", nil)
	id := y.run("leap", "disk full")
	paths := []string{"/", "/jobs/leap", "/runs", "/runs/" + id.String()}
	for _, path := range paths {
		y.key = ""
		if _, header := y.get(http.StatusUnauthorized, path); !strings.HasPrefix(header.Get("WWW-Authenticate"), "Basic ") {
			t.Errorf("%s asks with %q", path, header.Get("WWW-Authenticate"))
		}
		y.key = ours
		y.says(path, "leap")
	}
	y.key = theirs
	for _, path := range []string{"/", "/runs"} {
		if page, _ := y.get(http.StatusOK, path); strings.Contains(page, "leap") || strings.Contains(page, "disk full") {
			t.Errorf("%s shows what belongs to another tenant", path)
		}
	}
	y.get(http.StatusNotFound, paths[1])
	y.get(http.StatusNotFound, paths[3])
}

// asset is the address of the file that pages load.
func asset(t *testing.T, d *desk, kind string) string {
	t.Helper()
	page, _ := d.get(http.StatusUnauthorized, "/")
	found := regexp.MustCompile(`/assets/[a-z]+\.` + kind + `\?v=[0-9a-f]+`).FindString(page)
	if found == "" {
		t.Fatalf("no %s in %s", kind, page)
	}
	return found
}

func TestAssetsAreKept(t *testing.T) {
	t.Parallel()
	s := newShop(t, false)
	page, _ := s.get(http.StatusOK, "/")
	for _, kind := range []string{"css", "js", "svg"} {
		path := regexp.MustCompile(`/assets/[a-z]+\.` + kind + `\?v=[0-9a-f]+`).FindString(page)
		body, header := s.get(http.StatusOK, path)
		if body == "" || !strings.Contains(header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d bytes, %q", path, len(body), header.Get("Cache-Control"))
		}
		// Of another version, as a replica may have: the file is here all the same, and isn't kept.
		old, _, _ := strings.Cut(path, "?")
		if _, header := s.get(http.StatusOK, old+"?v=0"); header.Get("Cache-Control") != "no-cache" {
			t.Errorf("%s of another version: %q", old, header.Get("Cache-Control"))
		}
	}
	s.get(http.StatusNotFound, "/assets/none.css")
	s.get(http.StatusNotFound, "/assets/..%2Fpages%2Flayout.html")
}

// TestPagesObeyTheirPolicy: the browser is told to run and apply served files alone, and
// no page has anything else.
func TestPagesObeyTheirPolicy(t *testing.T) {
	t.Parallel()
	s, y := newShop(t, false), newYard(t, false)
	s.put("MUG", "", 5, "delivery")
	r := s.hold("MUG", 1, time.Hour, "ann")
	y.put("leap", nil)
	id := y.run("leap", "disk full")
	type visit struct {
		d      *desk
		status int
		path   string
	}
	visits := []visit{{s.desk, 404, "/skus/none"}, {y.desk, 404, "/runs/none"}, {s.desk, 422, "/?cursor=none"}}
	for _, path := range []string{"/", "/skus/MUG", "/reservations", "/reservations/" + r.ID.String()} {
		visits = append(visits, visit{s.desk, 200, path})
	}
	for _, path := range []string{"/", "/jobs/leap", "/runs", "/runs/" + id.String()} {
		visits = append(visits, visit{y.desk, 200, path})
	}
	inline := regexp.MustCompile(`(?i)<style|<script>|\sstyle=|\son[a-z]+=|javascript:|https?://[a-z.]*cdn|<script[^>]+src="(?:[^/]|//)`)
	for _, v := range visits {
		page, header := v.d.get(v.status, v.path)
		policy := header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: policy %q", v.path, policy)
		}
		if header.Get("Cache-Control") != "no-store" || header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", v.path, header)
		}
		if found := inline.FindString(page); found != "" {
			t.Errorf("%s has %q", v.path, found)
		}
		for _, want := range []string{`<html lang="en">`, `<main id="main"`, `<nav aria-label="Pages">`, `<header`, `<footer>`, `<h1`} {
			if !strings.Contains(page, want) {
				t.Errorf("%s has no %s", v.path, want)
			}
		}
	}
}

func TestWhatIsNotThere(t *testing.T) {
	t.Parallel()
	s, y := newShop(t, false), newYard(t, false)
	for _, v := range []struct {
		d    *desk
		path string
	}{
		{s.desk, "/skus/none"},
		{s.desk, "/skus/a%00b"},
		{s.desk, "/skus/ä"},
		{s.desk, "/skus/a/b"},
		{s.desk, "/skus"},
		{s.desk, "/reservations/none"},
		{s.desk, "/reservations/" + uuid.NewString()},
		{y.desk, "/jobs/none"},
		{y.desk, "/jobs/a%00b"},
		{y.desk, "/jobs/%ff"},
		{y.desk, "/jobs"},
		{y.desk, "/jobs/a/b/c"},
		{y.desk, "/runs/none"},
		{y.desk, "/runs/" + uuid.NewString()},
	} {
		page, header := v.d.get(http.StatusNotFound, v.path)
		if !strings.HasPrefix(header.Get("Content-Type"), "text/html") || !strings.Contains(page, "Not found") || strings.Contains(page, "live.js") {
			t.Errorf("%s: %s %s", v.path, header.Get("Content-Type"), page)
		}
	}
	// The API's own answers stay as they are.
	if _, header := s.get(http.StatusNotFound, "/none"); header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("an unknown route answers with %s", header.Get("Content-Type"))
	}
}

func TestAddressesThatCannotBeRight(t *testing.T) {
	t.Parallel()
	s, y := newShop(t, false), newYard(t, false)
	s.put("MUG", "", 0, "")
	y.put("leap", nil)
	for _, v := range []struct {
		d    *desk
		path string
	}{
		{s.desk, "/?cursor=none"},
		{s.desk, "/skus/MUG?cursor=none"},
		{s.desk, "/reservations?cursor=none"},
		{s.desk, "/reservations?status=lost"},
		{s.desk, "/reservations?customer=a%00b"},
		{s.desk, "/reservations?customer=%ff"},
		{y.desk, "/?cursor=none"},
		{y.desk, "/jobs/leap?cursor=none"},
		{y.desk, "/runs?cursor=none"},
		{y.desk, "/?x=%00"},
	} {
		if page, _ := v.d.get(http.StatusUnprocessableEntity, v.path); !strings.Contains(text(page), "This address can’t be right") {
			t.Errorf("%s: %s", v.path, page)
		}
	}
}

func TestPagesWithoutADatabase(t *testing.T) {
	t.Parallel()
	s, y := newShop(t, false), newYard(t, false)
	for _, d := range []*desk{s.desk, y.desk} {
		d.db.SetAllowConnections(t, false)
		page, header := d.get(http.StatusServiceUnavailable, "/")
		if header.Get("Retry-After") == "" || !strings.Contains(page, "Not available at the moment") || !strings.Contains(page, "live.js") {
			t.Errorf("without a database: %v %s", header, page)
		}
		d.db.SetAllowConnections(t, true)
		d.get(http.StatusOK, "/")
	}
}
