package webhook_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"pgregory.net/rapid"

	"holdfast/webhook"
)

func mustSecret(t testing.TB, text string) webhook.Secret {
	t.Helper()
	s, err := webhook.ParseSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSignaturePublishedVector is the example that the Standard Webhooks
// libraries share; the second value is the same text under `openssl dgst`.
func TestSignaturePublishedVector(t *testing.T) {
	t.Parallel()
	s := mustSecret(t, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	got := webhook.Signature("msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`), s)
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestSignatureAgreesWithTheReferenceLibrary(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := webhook.NewSecret()
		theirs, err := standardwebhooks.NewWebhook(s.Reveal())
		if err != nil {
			t.Fatal(err)
		}
		id := rapid.StringMatching(`[!-\-/-~]{1,60}`).Draw(t, "id")
		at := time.Unix(rapid.Int64Range(0, 1<<40).Draw(t, "unix"), 999_999_999)
		body := rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		want, err := theirs.Sign(id, at, body)
		if err != nil {
			t.Fatal(err)
		}
		if got := webhook.Signature(id, at, body, s); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if err := webhook.Verify(signed(id, at, want), body, at, time.Minute, s); err != nil {
			t.Errorf("their signature doesn't verify: %v", err)
		}
	})
}

func TestEitherSecretVerifiesWhileBothSign(t *testing.T) {
	t.Parallel()
	current, previous, other := webhook.NewSecret(), webhook.NewSecret(), webhook.NewSecret()
	now, body := time.Now(), []byte(`{}`)
	h := signed("run-1", now, webhook.Signature("run-1", now, body, current, previous))
	for _, s := range []webhook.Secret{current, previous} {
		if err := webhook.Verify(h, body, now, time.Minute, s); err != nil {
			t.Error(err)
		}
		theirs, err := standardwebhooks.NewWebhook(s.Reveal())
		if err != nil {
			t.Fatal(err)
		}
		if err := theirs.Verify(body, h); err != nil {
			t.Errorf("the reference library refuses it: %v", err)
		}
	}
	if err := webhook.Verify(h, body, now, time.Minute, other); !errors.Is(err, webhook.ErrUnverified) {
		t.Errorf("another secret: %v", err)
	}
}

func TestVerifyRefuses(t *testing.T) {
	t.Parallel()
	s := webhook.NewSecret()
	now, body := time.Unix(1_800_000_000, 0), []byte(`{"a":1}`)
	good := webhook.Signature("id", now, body, s)
	with := func(name, value string) http.Header {
		h := signed("id", now, good)
		h.Set(name, value)
		return h
	}
	nobody := webhook.Secret{}
	cases := []struct {
		name   string
		header http.Header
		body   string
		now    time.Time
		secret webhook.Secret
		want   error
	}{
		{"as sent", signed("id", now, good), `{"a":1}`, now, s, nil},
		{"just old enough", signed("id", now, good), `{"a":1}`, now.Add(5 * time.Minute), s, nil},
		{"just new enough", signed("id", now, good), `{"a":1}`, now.Add(-5 * time.Minute), s, nil},
		{"among others", with("webhook-signature", "v2,x v1,eA== "+good), `{"a":1}`, now, s, nil},
		{"too old", signed("id", now, good), `{"a":1}`, now.Add(5*time.Minute + time.Second), s, webhook.ErrStale},
		{"too new", signed("id", now, good), `{"a":1}`, now.Add(-5*time.Minute - time.Second), s, webhook.ErrStale},
		{"other body", signed("id", now, good), `{"a":2}`, now, s, webhook.ErrUnverified},
		{"other id", with("webhook-id", "id2"), `{"a":1}`, now, s, webhook.ErrUnverified},
		{"other time", with("webhook-timestamp", "1800000001"), `{"a":1}`, now, s, webhook.ErrUnverified},
		{"same time, spelled otherwise", with("webhook-timestamp", "+1800000000"), `{"a":1}`, now, s, webhook.ErrUnverified},
		{"not a time", with("webhook-timestamp", "now"), `{"a":1}`, now, s, webhook.ErrUnverified},
		{"no id", with("webhook-id", ""), `{"a":1}`, now, s, webhook.ErrUnverified},
		{"no time", with("webhook-timestamp", ""), `{"a":1}`, now, s, webhook.ErrUnverified},
		{"no signature", with("webhook-signature", ""), `{"a":1}`, now, s, webhook.ErrUnverified},
		{"half a signature", with("webhook-signature", "v1,"), `{"a":1}`, now, s, webhook.ErrUnverified},
		{"another version", with("webhook-signature", "v2"+good[2:]), `{"a":1}`, now, s, webhook.ErrUnverified},
		{"an empty key", signed("id", now, webhook.Signature("id", now, body, nobody)), `{"a":1}`, now, nobody, webhook.ErrUnverified},
		// The dot in the id moves the boundary: the signed text is the same.
		{"moved boundary", signed("id.1800000000", time.Unix(5, 0), webhook.Signature("id", now, []byte("5.x"), s)), "x", time.Unix(5, 0), s, webhook.ErrUnverified},
	}
	for _, c := range cases {
		err := webhook.Verify(c.header, []byte(c.body), c.now, webhook.DefaultTolerance, c.secret)
		if !errors.Is(err, c.want) || (c.want == nil) != (err == nil) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
	}
	if err := webhook.Verify(signed("id", now, good), body, now.Add(1000*time.Hour), 0, s); err != nil {
		t.Errorf("no tolerance given, yet the time was checked: %v", err)
	}
}

func signed(id string, at time.Time, signature string) http.Header {
	h := http.Header{}
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", fmt.Sprint(at.Unix()))
	h.Set("webhook-signature", strings.TrimSpace(signature))
	return h
}
