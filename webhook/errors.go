package webhook

import "errors"

var (
	// ErrInvalid means that a part of the request is malformed or not allowed.
	ErrInvalid = errors.New("invalid webhook request")
	// ErrTargetForbidden means that the target is, or resolves to, an address
	// that the guard refuses.
	ErrTargetForbidden = errors.New("target forbidden")
)

// FieldError says which part of a request is refused and why. It matches
// [ErrInvalid] or [ErrTargetForbidden] under errors.Is.
type FieldError struct {
	// Field is "url", "method", "timeout", "headers", "headers.<name>", "id",
	// "timestamp" or "secrets".
	Field string
	// Reason completes "<field> …" and can be shown to the tenant: it carries no
	// address that DNS gave and no user part of a URL.
	Reason string

	kind error
}

func (e *FieldError) Error() string { return e.Field + " " + e.Reason }

// Unwrap gives the sentinel.
func (e *FieldError) Unwrap() error { return e.kind }

func invalid(field, reason string) error {
	return &FieldError{Field: field, Reason: reason, kind: ErrInvalid}
}

// forbidden is for the one field that says where a request goes.
func forbidden(reason string) error {
	return &FieldError{Field: "url", Reason: reason, kind: ErrTargetForbidden}
}
