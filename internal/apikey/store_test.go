package apikey

import (
	"errors"
	"testing"
	"time"

	"holdfast/internal/pg"
	"holdfast/internal/pg/pgtest"
)

// TestRevocationTakesEffect lets the time for which a key is remembered pass by backdating it.
func TestRevocationTakesEffect(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pg.Schema{Name: "service", Sources: []pg.Source{Migrations()}})
	s := NewStore(db.Pool, "service")
	key, secret, err := s.Create(t.Context(), "acme", "till", []Scope{Read})
	if err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	if _, err := s.Find(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	hash := hashOf(secret)
	known := s.known[hash]
	if latest := time.Now().Add(CacheFor); known.until.Before(before) || known.until.After(latest) {
		t.Errorf("remembered until %v, want at most %v", known.until, latest)
	}
	if _, err := s.Revoke(t.Context(), key.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Find(t.Context(), secret); err != nil {
		t.Errorf("while it is remembered: %v", err)
	}
	known.until = known.until.Add(-CacheFor - time.Second)
	s.known[hash] = known
	if _, err := s.Find(t.Context(), secret); !errors.Is(err, ErrUnknown) {
		t.Errorf("when it is no longer remembered: %v", err)
	}
	if _, ok := s.known[hash]; ok {
		t.Error("a revoked key is still remembered")
	}
}

// TestMemoryIsBounded finds one key when there is no room for it.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pg.Schema{Name: "service", Sources: []pg.Source{Migrations()}})
	s := NewStore(db.Pool, "service")
	_, secret, err := s.Create(t.Context(), "acme", "till", []Scope{Read})
	if err != nil {
		t.Fatal(err)
	}
	for i := range cacheSize {
		s.known[hashOf(time.Duration(i).String())] = remembered{}
	}
	if _, err := s.Find(t.Context(), secret); err != nil || len(s.known) > cacheSize {
		t.Errorf("%d keys are remembered, %v", len(s.known), err)
	}
}
