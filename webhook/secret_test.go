package webhook_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"holdfast/webhook"
)

func TestNewSecretsDifferAndReadBack(t *testing.T) {
	t.Parallel()
	a, b := webhook.NewSecret(), webhook.NewSecret()
	if a == b {
		t.Error("two new secrets are the same")
	}
	read, err := webhook.ParseSecret(a.Reveal())
	if err != nil || read != a {
		t.Errorf("a new secret doesn't read back: %v", err)
	}
	if a.IsZero() || !(webhook.Secret{}).IsZero() {
		t.Error("IsZero is wrong")
	}
}

func TestSecretNeverPrintsItsKey(t *testing.T) {
	t.Parallel()
	raw := strings.Repeat("raw key ", 4)
	key := base64.StdEncoding.EncodeToString([]byte(raw))
	s := mustSecret(t, "whsec_"+key)
	holder := struct{ S webhook.Secret }{s}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		if out := fmt.Sprintf(format+" "+format, s, holder); strings.Contains(out, key[:8]) || strings.Contains(out, raw) {
			t.Errorf("%s prints the key: %s", format, out)
		}
	}
}

func TestParseSecret(t *testing.T) {
	t.Parallel()
	sized := func(n int) string {
		return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("\xfb", n)))
	}
	for _, text := range []string{sized(24), sized(32), sized(64), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"} {
		if s, err := webhook.ParseSecret(text); err != nil || s.Reveal() != text {
			t.Errorf("%s: %v", text, err)
		}
	}
	bad := []struct{ text, reason string }{
		{"", "begin with whsec_"},
		{"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "begin with whsec_"},
		{"whsec_", "0 bytes"},
		{sized(23), "23 bytes"},
		{sized(65), "65 bytes"},
		{sized(32) + "\n", "base64"},
		{sized(24)[:20] + "\r\n" + sized(24)[20:], "base64"},
		{strings.TrimRight(sized(32), "="), "base64"},                          // no padding
		{strings.NewReplacer("+", "-", "/", "_").Replace(sized(24)), "base64"}, // the URL alphabet
		{"whsec_" + strings.Repeat("A", 42) + "B=", "base64"},                  // stray bits at the end
		{"whsec_!!!!", "base64"},
	}
	for _, c := range bad {
		_, err := webhook.ParseSecret(c.text)
		if !errors.Is(err, webhook.ErrSecret) || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%q: got %v, want %q", c.text, err, c.reason)
		}
		if rest := strings.TrimPrefix(c.text, "whsec_"); len(rest) > 8 && err != nil && strings.Contains(err.Error(), rest) {
			t.Errorf("the error repeats the text: %v", err)
		}
	}
}
