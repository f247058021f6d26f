package api

import (
	"encoding/json"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"holdfast/inventory"
)

// setting is a member of a body that may be left out, which keeps what is set, or null,
// which gives the default back.
type setting[T any] struct{ inventory.Change[T] }

func (s *setting[T]) UnmarshalJSON(data []byte) error {
	s.Set = true
	if string(data) == "null" {
		return nil
	}
	s.Value = new(T)
	return json.Unmarshal(data, s.Value)
}

// Schema describes T or null.
func (setting[T]) Schema(r huma.Registry) *huma.Schema {
	schema := *huma.SchemaFromType(r, reflect.TypeFor[T]())
	schema.Nullable = true
	return &schema
}
