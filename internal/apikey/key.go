package apikey

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Scope is what a key may do. Each scope includes the ones before it: admin may also
// write, and write may also read.
type Scope string

// The scopes, from the least to the most.
const (
	Read  Scope = "read"  // look, change nothing
	Write Scope = "write" // and change what the service holds
	Admin Scope = "admin" // and handle the tenant's secrets
)

var ranks = map[Scope]int{Read: 1, Write: 2, Admin: 3}

// ErrScope means that a word names no scope.
var ErrScope = errors.New("scope must be read, write or admin")

// ParseScopes reads scopes as an operator writes them, repeated or separated by commas.
// It fails with [ErrScope] if there is none or one isn't known.
func ParseScopes(words ...string) ([]Scope, error) {
	var scopes []Scope
	for _, word := range strings.FieldsFunc(strings.Join(words, ","), func(r rune) bool { return r == ',' || r == ' ' }) {
		scope := Scope(word)
		if ranks[scope] == 0 {
			return nil, fmt.Errorf("%w, not %q", ErrScope, word)
		}
		if !slices.Contains(scopes, scope) {
			scopes = append(scopes, scope)
		}
	}
	if len(scopes) == 0 {
		return nil, ErrScope
	}
	slices.SortFunc(scopes, func(a, b Scope) int { return ranks[a] - ranks[b] })
	return scopes, nil
}

// Principal is who a request comes from.
type Principal struct {
	Tenant string
	KeyID  string // empty when authentication is off
	Name   string // the key's name, for ledgers and logs
	Scopes []Scope
}

// Anyone is the principal of every request while authentication is off.
var Anyone = Principal{Tenant: "default", Name: "anonymous", Scopes: []Scope{Read, Write, Admin}}

// May reports whether p has scope, or one that includes it.
func (p Principal) May(scope Scope) bool {
	return slices.ContainsFunc(p.Scopes, func(has Scope) bool { return ranks[has] >= ranks[scope] })
}

// Key is what is known of a key. The secret itself isn't.
type Key struct {
	ID        uuid.UUID  `json:"id"`
	Tenant    string     `json:"tenant"`
	Name      string     `json:"name"`
	Scopes    []Scope    `json:"scopes"`
	CreatedAt time.Time  `json:"created_at"`
	RevokedAt *time.Time `json:"revoked_at,omitempty"`
}

const prefix = "hf_"

var spelling = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

var wellFormed = regexp.MustCompile(`^hf_[a-z2-7]{52}$`)

// newSecret makes a key of 256 random bits.
func newSecret() string {
	var bits [32]byte
	_, _ = rand.Read(bits[:]) // never fails: it ends the process instead
	return prefix + spelling.EncodeToString(bits[:])
}

func hashOf(secret string) [sha256.Size]byte { return sha256.Sum256([]byte(secret)) }
