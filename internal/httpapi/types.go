package httpapi

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// Duration is a time.Duration that JSON spells "90s", "5m" or "2h30m". It may be negative
// where it is read: whether that makes sense is for its reader to say. It doesn't work as a
// query parameter, which huma would take for a number.
type Duration time.Duration

// Every number has its unit, so "10" isn't ten nanoseconds. Units come once, the larger
// before the smaller, with so few digits that no sum overflows: what the pattern lets
// through is a duration. (It lets through "" and "-" too, which a least length forbids.)
const durationPattern = `^-?([0-9]{1,6}(\.[0-9]{1,9})?h)?([0-9]{1,7}(\.[0-9]{1,9})?m)?([0-9]{1,9}(\.[0-9]{1,9})?s)?` +
	`([0-9]{1,12}(\.[0-9]{1,9})?ms)?([0-9]{1,12}(\.[0-9]{1,9})?(us|µs))?([0-9]{1,12}ns)?$`

var durationSyntax = regexp.MustCompile(durationPattern)

// String is the shortest usual spelling: "90s", "5m", "2h30m", "1h0m5s", "1.5s".
func (d Duration) String() string {
	v := time.Duration(d)
	if rest := v % time.Minute; rest != 0 && rest%time.Second == 0 && v.Abs() < time.Hour {
		return strconv.FormatInt(int64(v/time.Second), 10) + "s"
	}
	s := v.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// MarshalText writes [Duration.String].
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what time.ParseDuration reads, except numbers without a unit.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := parseDuration(string(text))
	if err != nil {
		return err
	}
	*d = v
	return nil
}

func parseDuration(s string) (Duration, error) {
	v, err := time.ParseDuration(s)
	if err != nil || !durationSyntax.MatchString(s) {
		return 0, fmt.Errorf("%q isn't a duration such as \"90s\", \"5m\" or \"2h30m\"", s)
	}
	return Duration(v), nil
}

// Schema describes a duration in the OpenAPI document.
func (Duration) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Type: huma.TypeString, Description: "A duration of hours, minutes and seconds",
		Pattern: durationPattern, PatternDescription: `a duration such as "90s", "5m" or "2h30m"`, MinLength: new(2),
		Examples: []any{"90s", "5m", "2h30m"},
	}
}

// Time is an instant, written in UTC as RFC 3339 has it.
type Time struct{ time.Time }

// At is t as a [Time].
func At(t time.Time) Time { return Time{t} }

// AtOrNull is t as a [Time], or null if there is none.
func AtOrNull(t *time.Time) *Time {
	if t == nil {
		return nil
	}
	return &Time{*t}
}

// MarshalJSON writes UTC, with as many digits of the second as there are.
func (t Time) MarshalJSON() ([]byte, error) { return t.UTC().MarshalJSON() }

// MarshalText writes what MarshalJSON writes, without quotes.
func (t Time) MarshalText() ([]byte, error) { return t.UTC().MarshalText() }

// UnmarshalJSON reads what UnmarshalText reads; null leaves t as it is.
func (t *Time) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	return t.UnmarshalText([]byte(s))
}

// UnmarshalText reads an RFC 3339 time of any offset.
func (t *Time) UnmarshalText(text []byte) error {
	v, err := time.Parse(time.RFC3339Nano, string(text))
	if err != nil {
		return fmt.Errorf("%q isn't an RFC 3339 time such as \"2026-12-24T18:00:00Z\"", text)
	}
	t.Time = v.UTC()
	return nil
}

// Schema describes an instant in the OpenAPI document.
func (Time) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "date-time", Examples: []any{"2026-12-24T18:00:00Z"}}
}
