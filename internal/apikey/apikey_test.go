package apikey_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"holdfast/internal/apikey"
	"holdfast/internal/pg"
	"holdfast/internal/pg/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var schema = pg.Schema{Name: "service", Sources: []pg.Source{apikey.Migrations()}}

func newStore(t *testing.T) (*apikey.Store, *pgtest.DB) {
	t.Helper()
	db := pgtest.New(t, schema)
	return apikey.NewStore(db.Pool, schema.Name), db
}

func create(t *testing.T, s *apikey.Store, tenant string, scopes ...apikey.Scope) (apikey.Key, string) {
	t.Helper()
	key, secret, err := s.Create(t.Context(), tenant, "", scopes)
	if err != nil {
		t.Fatal(err)
	}
	return key, secret
}

func TestCreateFindRevoke(t *testing.T) {
	t.Parallel()
	s, db := newStore(t)
	key, secret, err := s.Create(t.Context(), "acme", "till 7", []apikey.Scope{apikey.Write, apikey.Read, apikey.Write})
	if err != nil {
		t.Fatal(err)
	}
	if len(secret) != 55 || !strings.HasPrefix(secret, "hf_") {
		t.Errorf("the key is %q", secret)
	}
	p, err := s.Find(t.Context(), secret)
	if err != nil || p.Tenant != "acme" || p.Name != "till 7" || p.KeyID != key.ID.String() || !slices.Equal(p.Scopes, []apikey.Scope{apikey.Read, apikey.Write}) {
		t.Errorf("found %+v, %v", p, err)
	}

	var stored string
	db.Scan(t, "SELECT api_keys::text FROM service.api_keys", nil, &stored)
	if strings.Contains(stored, secret[3:]) || !strings.Contains(stored, fmt.Sprintf("%x", sha256.Sum256([]byte(secret)))) {
		t.Errorf("the row is %s", stored)
	}

	first, err := s.Revoke(t.Context(), key.ID)
	if err != nil || first.RevokedAt == nil || first.Tenant != "acme" {
		t.Fatalf("revoked %+v, %v", first, err)
	}
	again, err := s.Revoke(t.Context(), key.ID)
	if err != nil || !again.RevokedAt.Equal(*first.RevokedAt) {
		t.Errorf("revoked again %+v, %v", again, err)
	}
	if _, err := apikey.NewStore(db.Pool, schema.Name).Find(t.Context(), secret); !errors.Is(err, apikey.ErrUnknown) {
		t.Errorf("a replica that hasn't seen the key: %v", err)
	}
	if _, err := s.Revoke(t.Context(), uuid.New()); !errors.Is(err, apikey.ErrNotFound) {
		t.Errorf("revoking nothing: %v", err)
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	a, _ := create(t, s, "acme", apikey.Read)
	b, _ := create(t, s, "acme", apikey.Admin)
	c, _ := create(t, s, "beta", apikey.Read)
	if _, err := s.Revoke(t.Context(), a.ID); err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[string][]uuid.UUID{"acme": {a.ID, b.ID}, "beta": {c.ID}, "": {a.ID, b.ID, c.ID}, "nobody": nil} {
		keys, err := s.List(t.Context(), tenant)
		if err != nil {
			t.Fatal(err)
		}
		var got []uuid.UUID
		for _, key := range keys {
			got = append(got, key.ID)
			if key.Name != key.ID.String() || (key.RevokedAt != nil) != (key.ID == a.ID) {
				t.Errorf("listed %+v", key)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", tenant, got, want)
		}
	}
}

func TestBadKeysAreNotCreated(t *testing.T) {
	t.Parallel()
	s, db := newStore(t)
	read := []apikey.Scope{apikey.Read}
	for _, tc := range []struct {
		tenant, name string
		scopes       []apikey.Scope
		want         error
	}{
		{"", "n", read, apikey.ErrTenant},
		{"Acme", "n", read, apikey.ErrTenant},
		{"-acme", "n", read, apikey.ErrTenant},
		{"a b", "n", read, apikey.ErrTenant},
		{strings.Repeat("a", 65), "n", read, apikey.ErrTenant},
		{"acme", strings.Repeat("ä", 256), read, apikey.ErrName},
		{"acme", "a\x00b", read, apikey.ErrName},
		{"acme", "a\xffb", read, apikey.ErrName},
		{"acme", "n", nil, apikey.ErrScope},
		{"acme", "n", []apikey.Scope{"root"}, apikey.ErrScope},
		{"acme", "n", []apikey.Scope{apikey.Read, ""}, nil}, // an empty word says nothing
	} {
		if _, _, err := s.Create(t.Context(), tc.tenant, tc.name, tc.scopes); !errors.Is(err, tc.want) {
			t.Errorf("%q %q %v: %v, want %v", tc.tenant, tc.name, tc.scopes, err, tc.want)
		}
	}
	var n int
	if db.Scan(t, "SELECT count(*) FROM service.api_keys", nil, &n); n != 1 {
		t.Errorf("%d keys were created, want 1", n)
	}
}

func TestScopes(t *testing.T) {
	t.Parallel()
	got, err := apikey.ParseScopes("write,read", "admin", "read")
	if err != nil || !slices.Equal(got, []apikey.Scope{apikey.Read, apikey.Write, apikey.Admin}) {
		t.Errorf("parsed %v, %v", got, err)
	}
	for has, may := range map[apikey.Scope][]apikey.Scope{
		apikey.Read: {apikey.Read}, apikey.Write: {apikey.Read, apikey.Write}, apikey.Admin: {apikey.Read, apikey.Write, apikey.Admin},
	} {
		for _, scope := range []apikey.Scope{apikey.Read, apikey.Write, apikey.Admin} {
			p := apikey.Principal{Scopes: []apikey.Scope{has}}
			if p.May(scope) != slices.Contains(may, scope) {
				t.Errorf("a key with %s may %s: %t", has, scope, p.May(scope))
			}
		}
	}
}

// TestFindAsksOnce wants a known key to cost the database nothing, and an unknown one to be asked for again.
func TestFindAsksOnce(t *testing.T) {
	t.Parallel()
	s, db := newStore(t)
	_, secret := create(t, s, "acme", apikey.Read)
	if _, err := s.Find(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	db.SetAllowConnections(t, false)
	if _, err := s.Find(t.Context(), secret); err != nil {
		t.Errorf("a known key without the database: %v", err)
	}
	other := "hf_" + strings.Repeat("a", 52)
	if _, err := s.Find(t.Context(), other); err == nil || errors.Is(err, apikey.ErrUnknown) || !pg.Unavailable(err) {
		t.Errorf("an unknown key without the database: %v", err)
	}
	if _, err := s.Find(t.Context(), "hf_short"); !errors.Is(err, apikey.ErrUnknown) {
		t.Errorf("what can't be a key is asked for: %v", err)
	}
	db.SetAllowConnections(t, true)
	if _, err := s.Find(t.Context(), other); !errors.Is(err, apikey.ErrUnknown) {
		t.Errorf("an unknown key: %v", err)
	}
}

func TestFindByMany(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	_, secret := create(t, s, "acme", apikey.Read)
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			if p, err := s.Find(t.Context(), secret); err != nil || p.Tenant != "acme" {
				t.Errorf("found %+v, %v", p, err)
			}
		})
	}
	wg.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Find(ctx, "hf_"+strings.Repeat("b", 52)); err == nil {
		t.Error("found for nobody")
	}
}
