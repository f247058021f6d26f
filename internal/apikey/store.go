package apikey

import (
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/singleflight"

	"holdfast/internal/pg"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrations makes the api_keys table; a service lists it in its schema.
func Migrations() pg.Source { return pg.Migrations("apikey", migrations) }

var (
	// ErrUnknown means that no key in force is spelled like this: it never was, or it has
	// been revoked. Which of the two isn't told.
	ErrUnknown = errors.New("unknown or revoked API key")
	// ErrNotFound means that no key has this id.
	ErrNotFound = errors.New("no such API key")
	// ErrTenant means that a tenant's name can't be used.
	ErrTenant = errors.New("tenant must be 1 to 64 characters of a-z, 0-9, - and _, beginning with a letter or digit")
	// ErrName means that a key's name can't be used.
	ErrName = errors.New("a key's name must be 1 to 255 characters")
)

// CacheFor is how long a replica may go on accepting a key after it has been revoked.
const CacheFor = 5 * time.Second

// cacheSize bounds the keys that a replica remembers.
const cacheSize = 10_000

// lookupTimeout bounds one question to the database, which is shared by all the
// requests that wait for it and so can't follow the context of any one of them.
const lookupTimeout = 5 * time.Second

var tenantName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// Store is one service's keys. Make it with [NewStore]; it is safe for concurrent use.
type Store struct {
	pool  *pgxpool.Pool
	table string
	asks  singleflight.Group // one question at a time for each key

	mu    sync.Mutex
	known map[[sha256.Size]byte]remembered
}

type remembered struct {
	principal Principal
	until     time.Time // on the monotonic clock
}

// NewStore gives the keys in the schema's api_keys table.
func NewStore(pool *pgxpool.Pool, schema string) *Store {
	return &Store{
		pool:  pool,
		table: pgx.Identifier{schema, "api_keys"}.Sanitize(),
		known: make(map[[sha256.Size]byte]remembered),
	}
}

// Create makes a key and returns it with its secret, which can't be had again. An empty
// name is replaced by the key's id. It fails with [ErrTenant], [ErrName] or [ErrScope].
func (s *Store) Create(ctx context.Context, tenant, name string, scopes []Scope) (key Key, secret string, err error) {
	if !tenantName.MatchString(tenant) {
		return Key{}, "", fmt.Errorf("%w, not %q", ErrTenant, tenant)
	}
	words := make([]string, len(scopes))
	for i, scope := range scopes {
		words[i] = string(scope)
	}
	if scopes, err = ParseScopes(words...); err != nil {
		return Key{}, "", err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Key{}, "", err
	}
	if name == "" {
		name = id.String()
	}
	if n := utf8.RuneCountInString(name); n > 255 || !utf8.ValidString(name) || containsNUL(name) {
		return Key{}, "", ErrName
	}
	secret = newSecret()
	hash := hashOf(secret)
	key = Key{ID: id, Tenant: tenant, Name: name, Scopes: scopes}
	err = s.pool.QueryRow(ctx, `INSERT INTO `+s.table+` (id, tenant, name, hash, scopes)
		VALUES ($1, $2, $3, $4, $5) RETURNING created_at`, id, tenant, name, hash[:], scopes).Scan(&key.CreatedAt)
	if err != nil {
		return Key{}, "", fmt.Errorf("create API key: %w", err)
	}
	return key, secret, nil
}

func containsNUL(s string) bool {
	for i := range len(s) {
		if s[i] == 0 {
			return true
		}
	}
	return false
}

// List gives a tenant's keys, oldest first, revoked ones too; an empty tenant means all tenants.
func (s *Store) List(ctx context.Context, tenant string) ([]Key, error) {
	rows, err := s.pool.Query(ctx, `SELECT id, tenant, name, scopes, created_at, revoked_at FROM `+s.table+`
		WHERE $1 = '' OR tenant = $1 ORDER BY tenant, created_at, id`, tenant)
	if err != nil {
		return nil, fmt.Errorf("list API keys: %w", err)
	}
	keys, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Key])
	if err != nil {
		return nil, fmt.Errorf("list API keys: %w", err)
	}
	return keys, nil
}

// Revoke ends a key, on every replica within [CacheFor]. Revoking it again changes
// nothing and succeeds. It fails with [ErrNotFound].
func (s *Store) Revoke(ctx context.Context, id uuid.UUID) (Key, error) {
	rows, err := s.pool.Query(ctx, `UPDATE `+s.table+` SET revoked_at = coalesce(revoked_at, clock_timestamp())
		WHERE id = $1 RETURNING id, tenant, name, scopes, created_at, revoked_at`, id)
	if err != nil {
		return Key{}, fmt.Errorf("revoke API key: %w", err)
	}
	key, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Key])
	if errors.Is(err, pgx.ErrNoRows) {
		return Key{}, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	if err != nil {
		return Key{}, fmt.Errorf("revoke API key: %w", err)
	}
	return key, nil
}

// Find gives the principal behind a secret. It fails with [ErrUnknown], or with what
// kept the database from answering. The answer may be up to [CacheFor] old.
func (s *Store) Find(ctx context.Context, secret string) (Principal, error) {
	if !wellFormed.MatchString(secret) {
		return Principal{}, ErrUnknown
	}
	hash := hashOf(secret)
	if p, ok := s.recall(hash); ok {
		return p, nil
	}
	answer := s.asks.DoChan(string(hash[:]), func() (any, error) {
		askCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
		defer cancel()
		return s.ask(askCtx, hash)
	})
	select {
	case got := <-answer:
		p, _ := got.Val.(Principal)
		return p, got.Err
	case <-ctx.Done():
		return Principal{}, ctx.Err()
	}
}

func (s *Store) recall(hash [sha256.Size]byte) (Principal, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.known[hash]
	return r.principal, ok && time.Now().Before(r.until)
}

func (s *Store) ask(ctx context.Context, hash [sha256.Size]byte) (Principal, error) {
	until := time.Now().Add(CacheFor) // counted from before the answer could have been read
	var (
		p  Principal
		id uuid.UUID
	)
	err := s.pool.QueryRow(ctx, `SELECT id, tenant, name, scopes FROM `+s.table+` WHERE hash = $1 AND revoked_at IS NULL`,
		hash[:]).Scan(&id, &p.Tenant, &p.Name, &p.Scopes)
	if errors.Is(err, pgx.ErrNoRows) {
		s.forget(hash)
		return Principal{}, ErrUnknown
	}
	if err != nil {
		return Principal{}, fmt.Errorf("look up API key: %w", err)
	}
	p.KeyID = id.String()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= cacheSize {
		clear(s.known) // rare, and costs each key one question
	}
	s.known[hash] = remembered{p, until}
	return p, nil
}

func (s *Store) forget(hash [sha256.Size]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, hash)
}
