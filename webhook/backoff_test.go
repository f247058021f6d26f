package webhook_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"holdfast/webhook"
)

func TestBackoffDoublesUpToItsMax(t *testing.T) {
	t.Parallel()
	b := webhook.Backoff{Base: 10 * time.Second, Max: time.Minute}
	for i, want := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, time.Minute, time.Minute} {
		if got := b.Delay(i+1, 0, 0); got != want {
			t.Errorf("after attempt %d: %s, want %s", i+1, got, want)
		}
	}
	if got := b.Delay(math.MaxInt, 0, 0); got != time.Minute {
		t.Errorf("after very many: %s", got)
	}
}

func TestPitfall40BackoffHonoursRetryAfter(t *testing.T) {
	t.Parallel()
	b := webhook.Backoff{Base: 10 * time.Second, Max: time.Minute}
	for asked, want := range map[time.Duration]time.Duration{
		0:                         10 * time.Second,
		5 * time.Second:           10 * time.Second, // the later of the two
		10 * time.Minute:          10 * time.Minute, // above Max as well
		-time.Second:              10 * time.Second,
		webhook.MaxRetryAfter * 9: webhook.MaxRetryAfter,
	} {
		if got := b.Delay(1, asked, 0); got != want {
			t.Errorf("asked for %s: %s, want %s", asked, got, want)
		}
	}
	if got := (webhook.Backoff{}).Delay(3, 0, 0.9); got != 0 {
		t.Errorf("the zero Backoff waits %s", got)
	}
}

// TestPitfall40JitterOnlyDelays: between the exact wait and a fifth more, the
// same for the same number, and never shorter after a later attempt.
func TestPitfall40JitterOnlyDelays(t *testing.T) {
	t.Parallel()
	duration := rapid.Int64Range(0, int64(1000*24*time.Hour))
	rapid.Check(t, func(t *rapid.T) {
		b := webhook.Backoff{Base: time.Duration(duration.Draw(t, "base")), Max: time.Duration(duration.Draw(t, "max"))}
		attempt := rapid.IntRange(1, 100).Draw(t, "attempt")
		asked := time.Duration(duration.Draw(t, "asked"))
		random := rapid.Float64Range(0, math.Nextafter(1, 0)).Draw(t, "random")
		exact, got := b.Delay(attempt, asked, 0), b.Delay(attempt, asked, random)
		if got < exact || got > exact+exact/5 {
			t.Errorf("%s isn't within a fifth after %s", got, exact)
		}
		if got < min(asked, webhook.MaxRetryAfter) || got < b.Base {
			t.Errorf("%s comes before what was asked for", got)
		}
		if again := b.Delay(attempt, asked, random); again != got {
			t.Errorf("the same number gave %s and %s", got, again)
		}
		if next := b.Delay(attempt+1, asked, 0); next < exact {
			t.Errorf("a later attempt waits %s, less than %s", next, exact)
		}
	})
}
