package api

import (
	"bytes"
	"encoding/json"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"holdfast/chronos"
	"holdfast/chronos/cron"
	"holdfast/internal/httpapi"
)

// setting is a member of a body that may be left out, which keeps what is there, or null,
// which gives the default back.
type setting[T any] struct {
	set   bool
	value *T // nil: null
}

func (s *setting[T]) UnmarshalJSON(data []byte) error {
	s.set = true
	if string(data) == "null" {
		return nil
	}
	s.value = new(T)
	return json.Unmarshal(data, s.value)
}

// Schema describes T or null.
func (setting[T]) Schema(r huma.Registry) *huma.Schema {
	schema := *huma.SchemaFromType(r, reflect.TypeFor[T]())
	schema.Nullable = true
	return &schema
}

// into changes target as the body says; def is its default.
func (s setting[T]) into(target *T, def T) {
	switch {
	case !s.set:
	case s.value == nil:
		*target = def
	default:
		*target = *s.value
	}
}

// is reports whether a value was given that isn't null.
func (s setting[T]) is() bool { return s.value != nil }

// anyJSON is a member of a body that may be anything JSON can say.
type anyJSON struct{ json.RawMessage }

func (a *anyJSON) UnmarshalJSON(data []byte) error { return a.RawMessage.UnmarshalJSON(data) }

// Schema describes anything.
func (anyJSON) Schema(huma.Registry) *huma.Schema { return &huma.Schema{} }

// timing is a schedule: an expression, {"every": "90s"} or {"at": "2026-12-24T18:00:00"}. Its
// schema lets anything through, so that parse can say what is wrong in words.
type timing struct{ json.RawMessage }

func (t *timing) UnmarshalJSON(data []byte) error { return t.RawMessage.UnmarshalJSON(data) }

// Schema describes a timing.
func (timing) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Description: `A cron expression, {"every": "90s"}, or {"at": "2026-12-24T18:00:00"} in the job's timezone`,
		Examples:    []any{"30 2 * * *", map[string]any{"every": "90s"}, map[string]any{"at": "2026-12-24T18:00:00"}},
	}
}

func (t timing) parse() (chronos.Timing, error) {
	var out chronos.Timing
	if len(t.RawMessage) > 0 && t.RawMessage[0] == '"' {
		if err := json.Unmarshal(t.RawMessage, &out.Expression); err != nil || out.Expression == "" {
			return out, httpapi.Invalid("body.schedule", "is empty")
		}
		return out, nil
	}
	var object struct {
		Every *httpapi.Duration `json:"every"`
		At    *string           `json:"at"`
	}
	dec := json.NewDecoder(bytes.NewReader(t.RawMessage))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&object); err != nil || (object.Every == nil) == (object.At == nil) {
		return out, httpapi.Invalid("body.schedule", `must be an expression such as "30 2 * * *", {"every": "90s"} or {"at": "2026-12-24T18:00:00"}`)
	}
	if object.At != nil {
		out.At = *object.At
		if out.At == "" {
			return out, httpapi.Invalid("body.schedule.at", "is empty")
		}
		return out, nil
	}
	out.Every = time.Duration(*object.Every)
	if out.Every <= 0 {
		return out, &chronos.FieldError{Field: "schedule.every", Reason: "must be at least 1s", Kind: cron.ErrInvalidSchedule}
	}
	return out, nil
}

// timingOf is a schedule as clients write it.
func timingOf(t chronos.Timing) any {
	switch {
	case t.At != "":
		return map[string]string{"at": t.At}
	case t.Every != 0:
		return map[string]httpapi.Duration{"every": httpapi.Duration(t.Every)}
	}
	return t.Expression
}
