package httpapi

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"
)

// checkAddress refuses in path and query what huma would let through or mend.
func (rt *route) checkAddress(r *http.Request) (faults []FieldError) {
	fault := func(where, name, message string) { faults = append(faults, FieldError{where + name, message}) }
	for _, name := range rt.wildcard {
		if message := textFault(r.PathValue(name)); message != "" {
			fault("path.", name, message)
		}
	}
	if r.URL.RawQuery == "" {
		return faults
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return append(faults, FieldError{"query", "can't be read: " + err.Error()})
	}
	for name, values := range query {
		repeatable, known := rt.repeated[name]
		switch {
		case !known:
			fault("query.", strings.ToValidUTF8(name, "�"), "unknown query parameter")
			continue
		case len(values) > 1 && !repeatable:
			fault("query.", name, "given more than once")
			continue
		}
		for _, value := range values {
			if value == "" {
				fault("query.", name, "is empty")
			} else if message := textFault(value); message != "" {
				fault("query.", name, message)
			}
		}
	}
	return faults
}

// textFault says why PostgreSQL couldn't take s as text.
func textFault(s string) string {
	switch {
	case strings.IndexByte(s, 0) >= 0:
		return "holds a NUL character"
	case !utf8.ValidString(s):
		return "isn't UTF-8"
	}
	return ""
}

// idempotencyValue reads the key's header, which may be missing.
func idempotencyValue(h http.Header) (string, error) {
	values := h.Values(idempotencyHeader)
	if len(values) == 0 {
		return "", nil
	}
	refuse := func(why string) (string, error) {
		return "", &Problem{
			Status: http.StatusUnprocessableEntity, Code: CodeInvalidIdemKey,
			Detail: "The header Idempotency-Key " + why + ".",
			Errors: []FieldError{{"header." + idempotencyHeader, why}},
		}
	}
	if len(values) > 1 {
		return refuse("is given more than once")
	}
	value := values[0]
	if len(value) == 0 || len(value) > 255 {
		return refuse("must have 1 to 255 characters")
	}
	for i := range len(value) {
		if value[i] <= ' ' || value[i] > '~' {
			return refuse("must consist of visible ASCII characters")
		}
	}
	return value, nil
}

// readBody reads, checks and hashes the body, and puts it back for huma.
func (rt *route) readBody(rq *request, w *recorder, r *http.Request, timeout time.Duration) (hash [32]byte, err error) {
	body, err := receive(w.ResponseWriter, r, rt.op.MaxBody, timeout)
	if err != nil {
		return hash, err
	}
	if len(bytes.TrimSpace(body)) == 0 {
		body = nil
	}
	canonical, err := rt.checkBody(body)
	if err != nil {
		return hash, err
	}
	rq.body, rq.bodyType = body, rt.bodyType
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	h := sha256.New()
	h.Write(canonical)
	if r.URL.RawQuery != "" {
		// The query says what is asked for as the body does: a dry run isn't the run.
		h.Write([]byte{'\n'})
		h.Write([]byte(r.URL.Query().Encode()))
	}
	return [32]byte(h.Sum(nil)), nil
}

// checkBody gives what the hash is taken of: the canonical form of JSON, and {} where
// there is nothing, which says the same.
func (rt *route) checkBody(body []byte) ([]byte, error) {
	switch {
	case len(body) == 0 && (rt.body == requiredBody || rt.body == rawBody):
		return nil, &Problem{Status: http.StatusBadRequest, Code: CodeBodyRequired, Detail: "This needs a body."}
	case len(body) == 0:
		return []byte("{}"), nil
	case rt.body == rawBody:
		return body, nil
	}
	canonical, p := checkJSON(body)
	if p != nil {
		return nil, p
	}
	if rt.body == noBody && string(canonical) != "{}" {
		return nil, Invalid("body", "this takes no body, or {}")
	}
	return canonical, nil
}

// drainBody is how much of a body that is too large is read and dropped, so that
// most clients have sent theirs and read the answer instead of a broken connection.
const drainBody = 4 << 20

// receive reads a whole body of at most limit bytes.
func receive(w http.ResponseWriter, r *http.Request, limit int64, timeout time.Duration) ([]byte, error) {
	if r.ContentLength == 0 {
		return nil, nil
	}
	// It ends with the body: net/http lifts it when it begins to watch for the client's leaving.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(timeout))
	var body []byte
	var err error
	if r.ContentLength <= limit {
		if body, err = io.ReadAll(io.LimitReader(r.Body, limit+1)); err == nil && int64(len(body)) <= limit {
			return body, nil
		}
	}
	if err == nil {
		if r.Header.Get("Expect") == "" {
			_, _ = io.CopyN(io.Discard, r.Body, drainBody)
		}
		return nil, &Problem{
			Status: http.StatusRequestEntityTooLarge, Code: CodeBodyTooLarge,
			Detail: fmt.Sprintf("The body may have at most %d bytes.", limit), Members: map[string]any{"limit_bytes": limit},
		}
	}
	var netErr net.Error
	if errors.As(err, &netErr) && netErr.Timeout() {
		return nil, &Problem{Status: http.StatusRequestTimeout, Code: CodeBodyTimeout, Detail: "The body came too slowly. Nothing was done."}
	}
	return nil, &Problem{Status: http.StatusBadRequest, Code: CodeBodyIncomplete, Detail: "The body ended before it was complete. Nothing was done."}
}
