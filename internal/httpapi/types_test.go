package httpapi_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"holdfast/internal/httpapi"
)

func TestDurationSpelling(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", 90 * time.Second: "90s", 5 * time.Minute: "5m", 150 * time.Minute: "2h30m", time.Hour: "1h", 24 * time.Hour: "24h",
		time.Minute: "1m", time.Second: "1s", 61 * time.Minute: "1h1m", time.Hour + 5*time.Second: "1h0m5s", 3599 * time.Second: "3599s",
		1500 * time.Millisecond: "1.5s", 20 * time.Millisecond: "20ms", -90 * time.Second: "-90s", 90*time.Second + time.Millisecond: "1m30.001s",
	} {
		if got := httpapi.Duration(d).String(); got != want {
			t.Errorf("%v is spelled %q, want %q", d, got, want)
		}
	}
}

// TestDurationSurvivesJSON reads back what it has written, up to a century.
func TestDurationSurvivesJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const century = math.MaxInt64 / 3
		d := httpapi.Duration(rapid.Int64Range(-century, century).Draw(t, "d"))
		if rapid.Bool().Draw(t, "round") {
			d -= d % httpapi.Duration(time.Second)
		}
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var back httpapi.Duration
		if err := json.Unmarshal(text, &back); err != nil || back != d {
			t.Errorf("%d is written %s, read %d, %v", d, text, back, err)
		}
	})
}

func TestDurationSyntax(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "1.5h": 90 * time.Minute, "1h0m5s": time.Hour + 5*time.Second, "0s": 0, "-1s": -time.Second, "250ms": 250 * time.Millisecond,
		"999999h9999999m999999999s": 999999*time.Hour + 9999999*time.Minute + 999999999*time.Second,
	} {
		var d httpapi.Duration
		if err := d.UnmarshalText([]byte(text)); err != nil || time.Duration(d) != want {
			t.Errorf("%q: %v, %v", text, time.Duration(d), err)
		}
	}
	for _, text := range []string{"", "0", "10", "-", "+1s", "1d", "1h1h", "5m1h", " 1s", "1s ", "1S", "1,5s", "1000000h", ".5s", "1e3s", "PT5M", "forever"} {
		var d httpapi.Duration
		if err := d.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is taken for %v", text, time.Duration(d))
		}
	}
}

func TestTimeIsUTC(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 1, 1, 0, 0, 250_000_000, time.FixedZone("", 7200))
	text, err := json.Marshal([]any{httpapi.At(at), httpapi.AtOrNull(&at), httpapi.AtOrNull(nil)})
	if want := `["2025-12-31T23:00:00.25Z","2025-12-31T23:00:00.25Z",null]`; err != nil || string(text) != want {
		t.Errorf("got %s %v, want %s", text, err, want)
	}
	var back httpapi.Time
	if err := json.Unmarshal([]byte(`"2026-01-01T01:00:00.25+02:00"`), &back); err != nil || !back.Equal(at) || back.Location() != time.UTC {
		t.Errorf("got %v %v", back, err)
	}
}
