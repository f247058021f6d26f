package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// The codes that the kernel itself answers with. Services add theirs by their [Rule]s.
const (
	CodeMalformedJSON     = "malformed_json"
	CodeBodyRequired      = "body_required"
	CodeBodyIncomplete    = "body_incomplete"
	CodeMissingKey        = "missing_api_key"
	CodeInvalidKey        = "invalid_api_key"
	CodeInsufficientScope = "insufficient_scope"
	CodeCrossOrigin       = "cross_origin"
	CodeForeignHost       = "foreign_host"
	CodeRouteNotFound     = "route_not_found"
	CodeMethodNotAllowed  = "method_not_allowed"
	CodeBodyTimeout       = "body_timeout"
	CodeBodyTooLarge      = "body_too_large"
	CodeUnsupportedType   = "unsupported_content_type"
	CodeValidationFailed  = "validation_failed"
	CodeInvalidCursor     = "invalid_cursor"
	CodeInvalidIdemKey    = "invalid_idempotency_key"
	CodeReusedIdemKey     = "idempotency_key_reused"
	CodeRateLimited       = "rate_limited"
	CodeInternal          = "internal"
	CodeOverloaded        = "overloaded"
	CodeUnavailable       = "database_unavailable"
	CodeCommitUnknown     = "commit_unknown"
	CodeRequestTimeout    = "request_timeout"
	CodeNotReady          = "not_ready"
)

// codeMeaning is a line of the docs page.
type codeMeaning struct {
	Status  int
	Code    string
	Meaning string
}

var kernelCodes = []codeMeaning{
	{400, CodeMalformedJSON, "The body isn't JSON."},
	{400, CodeBodyRequired, "There is no body where one is needed."},
	{400, CodeBodyIncomplete, "The body ended before it was complete."},
	{401, CodeMissingKey, "There is no usable Authorization header."},
	{401, CodeInvalidKey, "The API key is unknown or has been revoked."},
	{403, CodeInsufficientScope, "The API key may not do this; required_scope says what it lacks."},
	{403, CodeCrossOrigin, "A browser sent this for a page of another site."},
	{403, CodeForeignHost, "Without authentication, only loopback names are answered to."},
	{404, CodeRouteNotFound, "There is nothing at this path."},
	{405, CodeMethodNotAllowed, "The path has other methods; Allow lists them."},
	{408, CodeBodyTimeout, "The body came too slowly."},
	{413, CodeBodyTooLarge, "The body is longer than limit_bytes."},
	{415, CodeUnsupportedType, "Only from imports: the body's Content-Type isn't one that the operation takes."},
	{422, CodeValidationFailed, "The request is understood but can't be right; errors says where."},
	{422, CodeInvalidCursor, "The cursor isn't one that this list has given."},
	{422, CodeInvalidIdemKey, "The Idempotency-Key header is given more than once, or isn't 1 to 255 visible ASCII characters."},
	{422, CodeReusedIdemKey, "The Idempotency-Key came with another body before."},
	{429, CodeRateLimited, "The API key asks too often; come back after Retry-After."},
	{500, CodeInternal, "A fault of this service; its log has it under the request's id."},
	{503, CodeOverloaded, "Too much is asked at once, and nothing was done; come back after Retry-After."},
	{503, CodeUnavailable, "The database can't be reached; come back after Retry-After."},
	{503, CodeCommitUnknown, "It isn't known whether this was carried out: ask again with the same Idempotency-Key."},
	{503, CodeRequestTimeout, "The request's time was over before it could be carried out."},
	{503, CodeNotReady, "Only from /readyz: this replica can't do its work now."},
}

const problemContentType = "application/problem+json"

// FieldError says what is wrong with one part of a request.
type FieldError struct {
	Location string `json:"location" doc:"Where: body, query, path or header, and the way to it" example:"body.lines[0].quantity"`
	Message  string `json:"message" doc:"What is wrong there"`
}

// Problem is an answer that refuses, as RFC 9457 has it. It is an error, so a handler
// can return one; most return an error of the domain, which a [Rule] turns into one.
type Problem struct {
	Status int
	Code   string // stable, snake_case
	Detail string // for people; may change
	Errors []FieldError
	// Members stand beside the standard ones, such as shortages. Those that are a
	// [json.RawMessage] are taken as they are.
	Members map[string]any
	// RetryAfter tells the client when to come back; zero says nothing.
	RetryAfter time.Duration
}

// Invalid is a 422 for one part of a request, such as "body.ttl" or "query.from".
func Invalid(location, format string, args ...any) *Problem {
	return invalid(FieldError{location, fmt.Sprintf(format, args...)})
}

// maxFaults bounds how many faults of one request are told: a body of nothing but
// unknown fields is answered shortly.
const maxFaults = 20

func invalid(faults ...FieldError) *Problem {
	// A list of faults in one order, whichever order maps were walked in.
	slices.SortStableFunc(faults, func(a, b FieldError) int { return strings.Compare(a.Location, b.Location) })
	p := &Problem{Status: http.StatusUnprocessableEntity, Code: CodeValidationFailed, Errors: faults[:min(len(faults), maxFaults)]}
	p.Detail = faults[0].Location + ": " + faults[0].Message
	if more := len(faults) - 1; more > 0 {
		p.Detail += fmt.Sprintf(" (and %d more)", more)
	}
	return p
}

func (p *Problem) Error() string { return p.Code + ": " + p.Detail }

// GetStatus, GetHeaders and ContentType are what huma asks of an error.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders gives Retry-After in whole seconds, rounded up.
func (p *Problem) GetHeaders() http.Header {
	if p.RetryAfter <= 0 {
		return nil
	}
	seconds := int64((p.RetryAfter + time.Second - 1) / time.Second)
	return http.Header{"Retry-After": {strconv.FormatInt(seconds, 10)}}
}

// ContentType is always application/problem+json.
func (p *Problem) ContentType(string) string { return problemContentType }

var titleWords = strings.NewReplacer("_", " ", "json", "JSON", "api", "API")

// title is the code in words, so that it never varies between occurrences.
func title(code string) string {
	words := titleWords.Replace(code)
	return strings.ToUpper(words[:1]) + words[1:]
}

// problemType leads to the code's line on the docs page.
func problemType(code string) string { return "/docs#" + code }

// MarshalJSON writes the standard members first, then the problem's own.
func (p *Problem) MarshalJSON() ([]byte, error) { return p.append(nil) }

// append is what MarshalJSON does. It is written by hand because a flash sale consists of refusals.
func (p *Problem) append(out []byte) ([]byte, error) {
	out = AppendString(append(out, `{"type":`...), problemType(p.Code))
	out = AppendString(append(out, `,"title":`...), title(p.Code))
	out = AppendInt(append(out, `,"status":`...), int64(p.Status))
	out = AppendString(append(out, `,"detail":`...), p.Detail)
	out = AppendString(append(out, `,"code":`...), p.Code)
	if len(p.Errors) > 0 {
		out = AppendList(append(out, `,"errors":`...), p.Errors, func(out []byte, e *FieldError) []byte {
			out = AppendString(append(out, `{"location":`...), e.Location)
			return append(AppendString(append(out, `,"message":`...), e.Message), '}')
		})
	}
	for _, name := range slices.Sorted(maps.Keys(p.Members)) {
		out = append(AppendString(append(out, ','), name), ':')
		value, written := p.Members[name].(json.RawMessage)
		if !written {
			var err error
			if value, err = marshal(p.Members[name]); err != nil {
				return nil, fmt.Errorf("problem member %s: %w", name, err)
			}
		}
		out = append(out, value...)
	}
	return append(out, '}'), nil
}

// marshal is json.Marshal without the escapes that only HTML needs.
func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// problemSchema names the schema in the OpenAPI document.
const problemSchema = "Problem"

// Schema describes a problem in the OpenAPI document.
func (*Problem) Schema(r huma.Registry) *huma.Schema {
	str := func(doc, example string) *huma.Schema {
		return &huma.Schema{Type: huma.TypeString, Description: doc, Examples: []any{example}}
	}
	return &huma.Schema{
		Type:        huma.TypeObject,
		Description: "A refusal, as RFC 9457 has it. code is stable; some codes bring members of their own.",
		Properties: map[string]*huma.Schema{
			"type":   str("Leads to the code's description", problemType("sold_out")),
			"title":  str("The code in words", "Sold out"),
			"status": {Type: huma.TypeInteger, Description: "The HTTP status", Examples: []any{409}},
			"detail": str("What happened this time, for people", "not enough units are free"),
			"code":   str("Stable and machine-readable", "sold_out"),
			"errors": {Type: huma.TypeArray, Description: "What is wrong with which part of the request", Items: &huma.Schema{
				Type: huma.TypeObject,
				Properties: map[string]*huma.Schema{
					"location": str("The part of the request", "body.lines[0].quantity"),
					"message":  str("What is wrong there", "expected number >= 1"),
				},
				Required: []string{"location", "message"},
			}},
		},
		Required:             []string{"type", "title", "status", "detail", "code"},
		AdditionalProperties: true,
	}
}

// write sends p as the whole answer.
func (p *Problem) write(w http.ResponseWriter) {
	s := newScratch()
	defer s.release()
	body, err := p.append(s.answer[:0])
	if err != nil { // only a member that can't be JSON: the rest still can
		body, _ = (&Problem{Status: p.Status, Code: p.Code, Detail: p.Detail}).append(s.answer[:0])
	}
	s.answer = append(body, '\n')
	for name, values := range p.GetHeaders() {
		w.Header()[name] = values
	}
	w.Header()["Content-Type"] = problemHeader
	w.WriteHeader(p.Status)
	_, _ = w.Write(s.answer) // a client that is gone can't be told
}
