package webhook

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

const (
	secretPrefix = "whsec_"
	minSecret    = 24 // bytes, as Standard Webhooks asks
	maxSecret    = 64
	newSecret    = 32 // as long as the digest; more adds nothing
)

// ErrSecret means that a text isn't a signing secret.
var ErrSecret = errors.New("invalid signing secret")

// Secret is a signing key. It prints as "whsec_…" without the key, alone or in an
// exported field, so that it doesn't slip into a log; [Secret.Reveal] gives the
// text. The zero Secret signs nothing and is refused. Two of the same key are
// equal under ==. A Secret never changes and is safe for concurrent use.
type Secret struct{ key string }

// NewSecret makes a secret of 32 random bytes.
func NewSecret() Secret {
	key := make([]byte, newSecret)
	rand.Read(key) // never fails: the runtime stops the process instead
	return Secret{string(key)}
}

// ParseSecret reads "whsec_" and the standard base64, padded, of 24 to 64 bytes.
// It fails with [ErrSecret]; the error never repeats the text.
func ParseSecret(text string) (Secret, error) {
	encoded, ok := strings.CutPrefix(text, secretPrefix)
	if !ok {
		return Secret{}, fmt.Errorf("%w: it must begin with %s", ErrSecret, secretPrefix)
	}
	key, err := base64.StdEncoding.DecodeString(encoded)
	// The decoder passes over line breaks and stray bits; one key has one text.
	if err != nil || base64.StdEncoding.EncodeToString(key) != encoded {
		return Secret{}, fmt.Errorf("%w: what follows %s must be standard base64 with padding", ErrSecret, secretPrefix)
	}
	if len(key) < minSecret || len(key) > maxSecret {
		return Secret{}, fmt.Errorf("%w: it has %d bytes, must have %d to %d", ErrSecret, len(key), minSecret, maxSecret)
	}
	return Secret{string(key)}, nil
}

// Reveal gives the text that [ParseSecret] reads.
func (s Secret) Reveal() string {
	return secretPrefix + base64.StdEncoding.EncodeToString([]byte(s.key))
}

// IsZero tells whether s holds no key.
func (s Secret) IsZero() bool { return s.key == "" }

func (s Secret) String() string { return secretPrefix + "…" }

// GoString keeps the key out of %#v.
func (s Secret) GoString() string { return s.String() }
