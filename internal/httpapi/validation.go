package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"regexp"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// huma keeps these in package variables. Nothing else in the program uses huma.
func init() {
	huma.NewErrorWithContext = refusal
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
		return refusal(nil, status, msg, errs...)
	}
	huma.ValidateStrictCasing = true // {"SKU": …} is an unknown field, not a sku
	huma.DefaultArrayNullable = false
}

// refusal makes a problem of what huma found. Before a handler runs that is always a
// matter of validation; what a handler returns is a problem already.
func refusal(hc huma.Context, status int, msg string, errs ...error) huma.StatusError {
	if status != http.StatusUnprocessableEntity && status != http.StatusBadRequest || len(errs) == 0 {
		return &Problem{Status: status, Code: CodeInternal, Detail: msg}
	}
	faults := make([]FieldError, 0, len(errs))
	for _, err := range errs {
		var detail *huma.ErrorDetail
		if !errors.As(err, &detail) {
			faults = append(faults, FieldError{"body", err.Error()})
			continue
		}
		// The detail's own text is of no use: it spells out the whole value, each time.
		fault := FieldError{detail.Location, detail.Message}
		if rq := requestOf(hc.Context()); detail.Location == "body" && rq.bodyType != nil && isWhole(detail.Value, rq.body) {
			fault = decodeFault(rq.body, rq.bodyType)
		}
		faults = append(faults, fault)
	}
	return invalid(faults...)
}

// isWhole reports whether huma names the whole body as what is wrong, as it does when the
// schema was content but decoding failed.
func isWhole(value any, body []byte) bool {
	text, ok := value.(string)
	return ok && text == string(body)
}

var index = regexp.MustCompile(`\.(\d+)`)

// decodeFault decodes once more, to find what the schema lets through, such as 1.0 for a
// whole number.
func decodeFault(body []byte, into reflect.Type) FieldError {
	err := json.Unmarshal(body, reflect.New(into).Interface())
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return FieldError{"body", "can't be used as it is"}
	}
	location := "body"
	if wrong.Field != "" {
		location += "." + index.ReplaceAllString(wrong.Field, "[$1]")
	}
	if strings.HasPrefix(wrong.Value, "number") {
		return FieldError{location, "expected a whole number, without fraction or exponent, that fits its range"}
	}
	return FieldError{location, "expected " + wrong.Type.Kind().String() + ", not " + wrong.Value}
}
