package httpapi

import (
	"context"
	"reflect"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"
)

// Codec reads and writes by hand what an operation's clients usually send and get. huma's way
// goes through reflection and several decoded copies of the body, which costs a small
// request more than net/http and the handler together; a hot operation goes round that with a
// codec, and keeps everything else: its guard, its problems, its place in the OpenAPI document.
//
// There is no second set of rules in it. Decode sees a body that is valid JSON in canonical form
// (members sorted, no white space, see [Cursor]), takes only what it knows to be right, and
// reports false for everything else; then huma's way decides, from the same bytes, and words the refusal.
type Codec[I, O any] struct {
	// Decode fills in from the value of the path's wildcard ("" if it has none) and the body (nil
	// if there was none). What it accepts, huma's way must accept too, with the same result.
	// It may keep nothing of body.
	Decode func(in *I, wildcard string, body []byte) bool
	// Append adds to out what encoding/json writes for the answer, without HTML escapes.
	Append func(out []byte, answer *O) []byte
}

// RegisterWithCodec is [Register] for a hot operation: one with a JSON body and a JSON
// answer, at most one wildcard in its path and no other parameters.
func RegisterWithCodec[I, O any](a *API, op Op, codec Codec[I, O], handle func(context.Context, *I) (O, error)) {
	rt := newRoute(op, reflect.TypeFor[I]())
	if rt.body != requiredBody && rt.body != optionalBody || len(rt.wildcard) > 1 || len(rt.repeated) > 0 || reflect.TypeFor[O]() == reflect.TypeFor[None]() {
		panic("httpapi: " + op.Method + " " + op.Path + " can't have a codec")
	}
	rt.quick = func(ctx context.Context, rec *recorder, wildcard string, s *scratch) bool {
		in := new(I)
		if !codec.Decode(in, wildcard, s.canonicalBody()) {
			return false
		}
		out, err := handle(ctx, in)
		if err != nil {
			a.problemOf(ctx, err).write(rec)
			return true
		}
		status, replayed := success(ctx, &rt.op)
		s.answer = append(codec.Append(s.answer[:0], &out), '\n')
		header := rec.Header()
		header["Content-Type"] = jsonHeader
		if replayed != "" {
			header[replayedHeader] = []string{replayed}
		}
		rec.WriteHeader(status)
		_, _ = rec.Write(s.answer)
		return true
	}
	register(a, rt, handle)
}

// Values of headers that all answers share. Nobody writes into them.
var (
	jsonHeader    = []string{"application/json"}
	problemHeader = []string{problemContentType}
	noSniffHeader = []string{"nosniff"}
)

// scratch is memory that requests hand on to each other. What a request has read and
// written lies there until its handler returns.
type scratch struct {
	body      []byte // as it came; empty if it was blank
	canonical []byte
	answer    []byte
}

// canonicalBody is nil where there was no body.
func (s *scratch) canonicalBody() []byte {
	if len(s.body) == 0 {
		return nil
	}
	return s.canonical
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func newScratch() *scratch {
	s := scratches.Get().(*scratch)
	s.body, s.canonical = s.body[:0], s.canonical[:0]
	return s
}

// maxScratch bounds the memory that outlives a request.
const maxScratch = 64 << 10

func (s *scratch) release() {
	if cap(s.body)+cap(s.canonical)+cap(s.answer) <= maxScratch {
		scratches.Put(s)
	}
}

// AppendString adds s as encoding/json spells it, without HTML escapes.
func AppendString(out []byte, s string) []byte {
	for i := range len(s) {
		if b := s[i]; b < 0x20 || b >= utf8.RuneSelf || b == '"' || b == '\\' {
			text, _ := marshal(s) // a string always can be
			return append(out, text...)
		}
	}
	out = append(out, '"')
	out = append(out, s...)
	return append(out, '"')
}

// AppendTime adds t as encoding/json writes a UTC time of a four-digit year.
func AppendTime(out []byte, t time.Time) []byte {
	out = append(out, '"')
	out = t.AppendFormat(out, time.RFC3339Nano)
	return append(out, '"')
}

// Cursor reads the canonical form of a body from its beginning to its end. Ask for
// members in the order of their names, which is the order that they stand in: one that isn't
// asked for fails the reading, as does every value that isn't plainly what was asked for. After
// a failure all reading gives zero values, and [Cursor.Done] is false.
type Cursor struct {
	rest   []byte
	failed bool
}

// NewCursor reads body.
func NewCursor(body []byte) Cursor { return Cursor{rest: body} }

// Fail makes the reading fail, as when a member is missing.
func (c *Cursor) Fail() { c.failed, c.rest = true, nil }

func (c *Cursor) take(b byte) bool {
	if len(c.rest) == 0 || c.rest[0] != b {
		return false
	}
	c.rest = c.rest[1:]
	return true
}

func (c *Cursor) must(b byte) {
	if !c.take(b) {
		c.Fail()
	}
}

// Open enters an object, Close leaves it after its last member.
func (c *Cursor) Open() { c.must('{') }

// Close leaves an object.
func (c *Cursor) Close() { c.must('}') }

// Member reports whether the next member has this name; its value is then read next.
func (c *Cursor) Member(name string) bool {
	rest := c.rest
	if len(rest) > 0 && rest[0] == ',' {
		rest = rest[1:]
	}
	if n := len(name); len(rest) > n+3 && rest[0] == '"' && string(rest[1:n+1]) == name && rest[n+1] == '"' && rest[n+2] == ':' {
		c.rest = rest[n+3:]
		return true
	}
	return false
}

// List enters a list; then [Cursor.Item] says before each item whether there is one.
func (c *Cursor) List() { c.must('[') }

// Item reports whether there is another item, and leaves the list after the last.
func (c *Cursor) Item() bool {
	if c.failed || c.take(']') {
		return false
	}
	c.take(',')
	return !c.failed
}

// Done reports whether the whole body has been read and was as expected.
func (c *Cursor) Done() bool { return !c.failed && len(c.rest) == 0 }

// String reads a string of shortest to longest characters.
func (c *Cursor) String(shortest, longest int) string {
	text := c.text()
	n := len(text)
	if n > longest || shortest > 1 { // else there are as many characters as bytes, or enough
		n = utf8.RuneCount(text)
	}
	if n < shortest || n > longest {
		c.Fail()
		return ""
	}
	return string(text)
}

// text reads a string without escapes, and leaves it where it is.
func (c *Cursor) text() []byte {
	if c.take('"') {
		for i, b := range c.rest {
			if b == '"' {
				text := c.rest[:i]
				c.rest = c.rest[i+1:]
				return text
			}
			if b == '\\' {
				break
			}
		}
	}
	c.Fail()
	return nil
}

// Int reads a whole number from least to most, which have at most 18 digits.
func (c *Cursor) Int(least, most int64) int64 {
	n, length := digits(c.rest)
	if length == 0 || n < least || n > most {
		c.Fail()
		return 0
	}
	// A fraction or an exponent that follows is no member's and no list's end, and so fails.
	c.rest = c.rest[length:]
	return n
}

// digits reads a number that text begins with; length is 0 if it doesn't or if it is too long.
func digits(text []byte) (n int64, length int) {
	for length < len(text) && text[length] >= '0' && text[length] <= '9' {
		n = n*10 + int64(text[length]-'0')
		if length++; length > 18 {
			return 0, 0
		}
	}
	return n, length
}

// Bool reads true or false.
func (c *Cursor) Bool() bool {
	if len(c.rest) >= 4 && string(c.rest[:4]) == "true" {
		c.rest = c.rest[4:]
		return true
	}
	if len(c.rest) >= 5 && string(c.rest[:5]) == "false" {
		c.rest = c.rest[5:]
		return false
	}
	c.Fail()
	return false
}

// Duration reads a duration of one unit, seconds, minutes or hours, such as "90s".
func (c *Cursor) Duration() Duration {
	text := c.text()
	n, length := digits(text)
	if length > 0 && length <= 6 && length == len(text)-1 {
		switch text[length] {
		case 's':
			return Duration(time.Duration(n) * time.Second)
		case 'm':
			return Duration(time.Duration(n) * time.Minute)
		case 'h':
			return Duration(time.Duration(n) * time.Hour)
		}
	}
	c.Fail()
	return 0
}

// AppendInt adds n.
func AppendInt(out []byte, n int64) []byte { return strconv.AppendInt(out, n, 10) }

// AppendList adds a list of what each adds; no list at all is null.
func AppendList[T any](out []byte, items []T, each func([]byte, *T) []byte) []byte {
	if items == nil {
		return append(out, "null"...)
	}
	out = append(out, '[')
	for i := range items {
		if i > 0 {
			out = append(out, ',')
		}
		out = each(out, &items[i])
	}
	return append(out, ']')
}
