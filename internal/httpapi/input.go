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
	"slices"
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

// readBody reads and checks the body, into s.
func (rt *route) readBody(s *scratch, w *recorder, r *http.Request, timeout time.Duration) (err error) {
	if s.body, err = receive(s.body, w.ResponseWriter, r, rt.op.MaxBody, timeout); err != nil {
		return err
	}
	if len(bytes.TrimSpace(s.body)) == 0 {
		s.body = s.body[:0]
	}
	return rt.checkBody(s)
}

// checkBody gives s the canonical form of its body, which is what its hash is taken of: {} where
// there is nothing, which says the same.
func (rt *route) checkBody(s *scratch) error {
	switch {
	case len(s.body) == 0 && (rt.body == requiredBody || rt.body == rawBody):
		return bodyRequired
	case len(s.body) == 0:
		s.canonical = append(s.canonical, "{}"...)
		return nil
	case rt.body == rawBody:
		return nil
	}
	canonical, p := checkJSON(s.canonical, s.body)
	if p != nil {
		return p
	}
	s.canonical = canonical
	if rt.body == noBody && string(canonical) != "{}" {
		return Invalid("body", "this takes no body, or {}")
	}
	return nil
}

// hashOf is the hash of what is asked for: the body, and the query, since a dry run isn't the run.
func (rt *route) hashOf(s *scratch, r *http.Request) [sha256.Size]byte {
	text := s.canonical
	if rt.body == rawBody {
		text = s.body
	}
	if r.URL.RawQuery == "" {
		return sha256.Sum256(text)
	}
	h := sha256.New()
	h.Write(text)
	h.Write([]byte{'\n'})
	h.Write([]byte(canonicalQuery(r.URL.RawQuery)))
	return [sha256.Size]byte(h.Sum(nil))
}

// drainBody is how much of a body that is too large is read and dropped, so that
// most clients have sent theirs and read the answer instead of a broken connection.
const drainBody = 4 << 20

// receive appends a whole body of at most limit bytes to buf. A timeout of zero leaves the
// time for it as it is.
func receive(buf []byte, w http.ResponseWriter, r *http.Request, limit int64, timeout time.Duration) (body []byte, err error) {
	if r.ContentLength == 0 {
		return buf, nil
	}
	if timeout > 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(timeout))
	}
	if r.ContentLength <= limit {
		if body, err = appendAll(buf, r.Body, r.ContentLength, limit); err == nil && int64(len(body)-len(buf)) <= limit {
			return body, nil
		}
	}
	if err == nil {
		if r.Header.Get("Expect") == "" {
			_, _ = io.CopyN(io.Discard, r.Body, drainBody)
		}
		return buf, bodyTooLarge(limit)
	}
	p := bodyFault(err)
	p.Detail += " Nothing was done."
	return buf, p
}

var bodyRequired = &Problem{Status: http.StatusBadRequest, Code: CodeBodyRequired, Detail: "This needs a body."}

func bodyTooLarge(limit int64) *Problem {
	return &Problem{
		Status: http.StatusRequestEntityTooLarge, Code: CodeBodyTooLarge,
		Detail: fmt.Sprintf("The body may have at most %d bytes.", limit), Members: map[string]any{"limit_bytes": limit},
	}
}

// bodyFault says why a body couldn't be read to its end.
func bodyFault(err error) *Problem {
	var netErr net.Error
	if errors.As(err, &netErr) && netErr.Timeout() {
		return &Problem{Status: http.StatusRequestTimeout, Code: CodeBodyTimeout, Detail: "The body came too slowly."}
	}
	return &Problem{Status: http.StatusBadRequest, Code: CodeBodyIncomplete, Detail: "The body ended before it was complete."}
}

// canonicalQuery is a query that has been read without an error, in one spelling.
func canonicalQuery(raw string) string {
	query, _ := url.ParseQuery(raw)
	return query.Encode()
}

// appendAll reads from to its end, or to more than limit bytes. Expected is how many
// bytes there should be; less than 0 is unknown.
func appendAll(buf []byte, from io.Reader, expected, limit int64) ([]byte, error) {
	const least, most = 512, 64 << 10 // what is only announced takes no more memory than this
	start := len(buf)
	buf = slices.Grow(buf, int(min(max(expected, least), most)))
	for int64(len(buf)-start) <= limit {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, least)
		}
		n, err := from.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
	}
	return buf, nil
}
