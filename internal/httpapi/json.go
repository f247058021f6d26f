package httpapi

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// checkJSON decides whether a body is JSON that can be taken at its word, and gives
// its canonical form: members sorted, no white space, strings spelled in one way, numbers
// as they were written. What encoding/json would silently mend is a fault here:
// members given twice, halves of surrogate pairs, text that isn't UTF-8; so are
// NULs, which PostgreSQL can't store, and numbers beyond a float64.
// The form is appended to out.
func checkJSON(out, body []byte) (canonical []byte, problem *Problem) {
	if form, ok := plainForm(out, body); ok {
		return form, nil
	}
	return checkJSONSlowly(out, body)
}

// checkJSONSlowly knows all of JSON, and says what is wrong.
func checkJSONSlowly(out, body []byte) (canonical []byte, problem *Problem) {
	if !json.Valid(body) {
		// A NUL inside a string is an error of content, which has a code of its own;
		// anywhere else this just isn't JSON.
		if bytes.IndexByte(body, 0) >= 0 && json.Valid(bytes.ReplaceAll(body, []byte{0}, []byte{'x'})) {
			return nil, Invalid("body", "holds a NUL character")
		}
		return nil, malformed(body)
	}
	if !utf8.Valid(body) {
		return nil, &Problem{Status: 400, Code: CodeMalformedJSON, Detail: "The body isn't UTF-8."}
	}
	if depthOf(body) > maxDepth {
		return nil, Invalid("body", "is nested more than %d deep", maxDepth)
	}
	c := canonicalizer{in: body, path: []byte("body")}
	canonical = c.value(out)
	if c.fault != nil {
		return nil, invalid(*c.fault)
	}
	return canonical, nil
}

func malformed(body []byte) *Problem {
	var ignored json.RawMessage
	detail := "The body isn't JSON."
	if err := json.Unmarshal(body, &ignored); err != nil {
		detail = "The body isn't JSON: " + err.Error() + "."
	}
	return &Problem{Status: 400, Code: CodeMalformedJSON, Detail: detail}
}

// maxDepth bounds the nesting of objects and arrays, and so what sorting their members costs.
const maxDepth = 200

// depthOf is how deep valid JSON nests.
func depthOf(body []byte) (deepest int) {
	depth, quoted := 0, false
	for i := 0; i < len(body); i++ {
		switch b := body[i]; {
		case quoted && b == '\\':
			i++
		case b == '"':
			quoted = !quoted
		case quoted:
		case b == '{' || b == '[':
			depth++
			deepest = max(deepest, depth)
		case b == '}' || b == ']':
			depth--
		}
	}
	return deepest
}

// canonicalizer walks a body that json.Valid has passed, so it meets no syntax error.
type canonicalizer struct {
	in    []byte
	pos   int
	path  []byte // where pos is, as in body.lines[0].sku
	fault *FieldError
}

func (c *canonicalizer) fail(message string) {
	if c.fault == nil {
		c.fault = &FieldError{string(c.path), message}
	}
}

// next skips white space and gives the byte after it.
func (c *canonicalizer) next() byte {
	for c.in[c.pos] == ' ' || c.in[c.pos] == '\t' || c.in[c.pos] == '\n' || c.in[c.pos] == '\r' {
		c.pos++
	}
	return c.in[c.pos]
}

func (c *canonicalizer) value(out []byte) []byte {
	switch c.next() {
	case '{':
		return c.object(out)
	case '[':
		return c.array(out)
	case '"':
		return appendString(out, c.text())
	default:
		return c.scalar(out)
	}
}

// member is where a member of an object lies in the output.
type member struct {
	name       string
	start, end int
}

func (c *canonicalizer) object(out []byte) []byte {
	c.pos++
	out = append(out, '{')
	first := len(out)
	var members []member
	depth := len(c.path)
	for c.next() != '}' {
		if c.in[c.pos] == ',' {
			c.pos++
			c.next()
		}
		name := c.text()
		c.path = append(append(c.path, '.'), name...)
		c.next()
		c.pos++ // the colon
		start := len(out)
		out = append(appendString(out, name), ':')
		out = append(c.value(out), ',')
		members = append(members, member{name, start, len(out)})
		c.path = c.path[:depth]
	}
	c.pos++
	byName := func(a, b member) int { return strings.Compare(a.name, b.name) }
	if !slices.IsSortedFunc(members, byName) {
		unsorted := bytes.Clone(out[first:])
		out = out[:first]
		slices.SortFunc(members, byName)
		for _, m := range members {
			out = append(out, unsorted[m.start-first:m.end-first]...)
		}
	}
	for i := range len(members) - 1 {
		if name := members[i].name; name == members[i+1].name {
			c.path = append(append(c.path, '.'), name...)
			c.fail("given twice")
			c.path = c.path[:depth]
		}
	}
	if len(members) > 0 {
		out = out[:len(out)-1] // the last comma
	}
	return append(out, '}')
}

func (c *canonicalizer) array(out []byte) []byte {
	c.pos++
	out = append(out, '[')
	depth := len(c.path)
	for i := 0; c.next() != ']'; i++ {
		if c.in[c.pos] == ',' {
			c.pos++
			out = append(out, ',')
		}
		c.path = append(strconv.AppendInt(append(c.path, '['), int64(i), 10), ']')
		out = c.value(out)
		c.path = c.path[:depth]
	}
	c.pos++
	return append(out, ']')
}

// scalar copies a number, true, false or null.
func (c *canonicalizer) scalar(out []byte) []byte {
	start := c.pos
	for c.pos < len(c.in) && bytes.IndexByte([]byte(",]} \t\r\n"), c.in[c.pos]) < 0 {
		c.pos++
	}
	word := c.in[start:c.pos]
	if word[0] == '-' || word[0] >= '0' && word[0] <= '9' {
		if _, err := strconv.ParseFloat(string(word), 64); err != nil {
			c.fail("number out of range")
		}
	}
	return append(out, word...)
}

// text reads a string, and notes what it may not hold.
func (c *canonicalizer) text() string {
	c.pos++
	start := c.pos
	for c.in[c.pos] != '"' && c.in[c.pos] != '\\' {
		c.pos++
	}
	if c.in[c.pos] == '"' {
		s := string(c.in[start:c.pos])
		c.pos++
		return s
	}
	s := bytes.Clone(c.in[start:c.pos])
	for c.in[c.pos] != '"' {
		if c.in[c.pos] != '\\' {
			s = append(s, c.in[c.pos])
			c.pos++
			continue
		}
		c.pos += 2
		switch letter := c.in[c.pos-1]; letter {
		case 'b':
			s = append(s, '\b')
		case 'f':
			s = append(s, '\f')
		case 'n':
			s = append(s, '\n')
		case 'r':
			s = append(s, '\r')
		case 't':
			s = append(s, '\t')
		case 'u':
			s = utf8.AppendRune(s, c.escaped())
		default: // a quotation mark or a slash of either kind
			s = append(s, letter)
		}
	}
	c.pos++
	return string(s)
}

// escaped reads what follows \u, both halves if it is a pair.
func (c *canonicalizer) escaped() rune {
	r := c.hex()
	switch {
	case r == 0:
		c.fail("holds a NUL character")
	case utf16.IsSurrogate(r):
		if c.in[c.pos] != '\\' || c.in[c.pos+1] != 'u' {
			c.fail("holds half of a surrogate pair")
			return utf8.RuneError
		}
		c.pos += 2
		if r = utf16.DecodeRune(r, c.hex()); r == utf8.RuneError {
			c.fail("holds half of a surrogate pair")
		}
	}
	return r
}

func (c *canonicalizer) hex() rune {
	r, _ := strconv.ParseUint(string(c.in[c.pos:c.pos+4]), 16, 16)
	c.pos += 4
	return rune(r)
}

// appendString spells s with no more escapes than JSON demands.
func appendString(out []byte, s string) []byte {
	out = append(out, '"')
	for i := range len(s) {
		switch b := s[i]; {
		case b == '"' || b == '\\':
			out = append(out, '\\', b)
		case b < 0x20:
			out = append(out, `\u00`...)
			out = append(out, "0123456789abcdef"[b>>4], "0123456789abcdef"[b&15])
		default:
			out = append(out, b)
		}
	}
	return append(out, '"')
}
