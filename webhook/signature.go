package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of a signed delivery.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
)

// DefaultTolerance is how far a receiver should let a timestamp be off.
const DefaultTolerance = 5 * time.Minute

const (
	signatureVersion = "v1,"
	maxID            = 255
)

var (
	// ErrUnverified means that a delivery isn't signed by any of the secrets, or
	// lacks or garbles a header.
	ErrUnverified = errors.New("webhook signature not verified")
	// ErrStale means that a delivery is signed, but its timestamp is too far
	// from now: it may be a replay.
	ErrStale = errors.New("webhook timestamp outside the tolerance")
)

// Signature gives the value of webhook-signature: one signature per secret, in
// order, separated by spaces.
func Signature(id string, at time.Time, body []byte, secrets ...Secret) string {
	unix := strconv.FormatInt(at.Unix(), 10)
	signatures := make([]string, len(secrets))
	for i, s := range secrets {
		signatures[i] = signatureVersion + s.sign(id, unix, body)
	}
	return strings.Join(signatures, " ")
}

func (s Secret) sign(id, unix string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(s.key))
	mac.Write([]byte(id + "." + unix + "."))
	mac.Write(body)
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// Verify is a receiver's check: the delivery was signed with one of the secrets,
// and its timestamp is at most tolerance from now, either way (zero or less: the
// time isn't checked). It fails with [ErrUnverified] or [ErrStale]. A verified
// delivery can still be a repeat: drop those by webhook-id.
func Verify(h http.Header, body []byte, now time.Time, tolerance time.Duration, secrets ...Secret) error {
	id, unix, signatures := h.Get(HeaderID), h.Get(HeaderTimestamp), h.Get(HeaderSignature)
	if id == "" || unix == "" || signatures == "" {
		return fmt.Errorf("%w: webhook-id, webhook-timestamp or webhook-signature is missing", ErrUnverified)
	}
	if err := checkID(id); err != nil {
		return fmt.Errorf("%w: webhook-%w", ErrUnverified, err)
	}
	seconds, err := strconv.ParseInt(unix, 10, 64)
	if err != nil || strconv.FormatInt(seconds, 10) != unix {
		return fmt.Errorf("%w: webhook-timestamp isn't Unix seconds", ErrUnverified)
	}
	if !signedByAny(id, unix, signatures, body, secrets) {
		return fmt.Errorf("%w: no signature matches", ErrUnverified)
	}
	// The signature comes first: only then is the timestamp anybody's word.
	if off := now.Sub(time.Unix(seconds, 0)).Abs(); tolerance > 0 && off > tolerance {
		return fmt.Errorf("%w: %s off, at most %s allowed", ErrStale, off.Round(time.Second), tolerance)
	}
	return nil
}

func signedByAny(id, unix, signatures string, body []byte, secrets []Secret) bool {
	for _, s := range secrets {
		if s.IsZero() {
			continue // an empty key would let anyone sign
		}
		want := []byte(signatureVersion + s.sign(id, unix, body))
		for got := range strings.FieldsSeq(signatures) {
			if hmac.Equal([]byte(got), want) {
				return true
			}
		}
	}
	return false
}

func checkID(id string) error {
	if id == "" || len(id) > maxID {
		return invalid("id", fmt.Sprintf("must have 1 to %d bytes", maxID))
	}
	for _, c := range []byte(id) {
		if c <= ' ' || c >= 0x7f || c == '.' {
			return invalid("id", "must be visible ASCII without a dot")
		}
	}
	return nil
}
