package httpapi

import "unicode/utf8"

// What plainForm takes on. The least that an ordinary body needs, several times over.
const (
	plainDepth   = 8
	plainMembers = 16
)

// plainForm appends to out the canonical form of a body, in one pass and without more memory. It knows
// ordinary JSON and gives up on the rest, which [checkJSON] then looks at slowly: escapes,
// fractions and exponents, members given twice, much nesting, and whatever isn't JSON or isn't UTF-8.
func plainForm(out, body []byte) (form []byte, ok bool) {
	p := plain{in: body, out: out}
	ok = p.value(plainDepth) && p.next() == 0 && p.pos == len(body) && (!p.wide || utf8.Valid(body))
	return p.out, ok
}

type plain struct {
	in   []byte
	pos  int
	out  []byte
	wide bool // there are characters beyond ASCII
}

// next skips white space and gives the byte after it, or 0 at the end.
func (p *plain) next() byte {
	for ; p.pos < len(p.in); p.pos++ {
		if b := p.in[p.pos]; b != ' ' && b != '\n' && b != '\t' && b != '\r' {
			return b
		}
	}
	return 0
}

// mark takes b if it comes next, and writes it.
func (p *plain) mark(b byte) bool {
	if p.next() != b || b == 0 {
		return false
	}
	p.pos++
	p.out = append(p.out, b)
	return true
}

func (p *plain) value(depth int) bool {
	if depth == 0 {
		return false
	}
	switch b := p.next(); {
	case b == '"':
		return p.text()
	case b == '{':
		return p.object(depth)
	case b == '[':
		return p.array(depth)
	case b == '-' || b >= '0' && b <= '9':
		return p.number()
	}
	return p.word("true") || p.word("false") || p.word("null")
}

func (p *plain) text() bool {
	start := p.pos
	for i := start + 1; i < len(p.in); i++ {
		switch b := p.in[i]; {
		case b == '"':
			p.pos = i + 1
			p.out = append(p.out, p.in[start:p.pos]...)
			return true
		case b == '\\' || b < ' ':
			return false
		case b >= utf8.RuneSelf:
			p.wide = true
		}
	}
	return false
}

// number takes a whole number. What may not follow one is found by who reads on.
func (p *plain) number() bool {
	start := p.pos
	if p.in[start] == '-' {
		p.pos++
	}
	_, length := digits(p.in[p.pos:])
	if length == 0 || length > 1 && p.in[p.pos] == '0' {
		return false
	}
	p.pos += length
	p.out = append(p.out, p.in[start:p.pos]...)
	return true
}

func (p *plain) word(w string) bool {
	if end := p.pos + len(w); end <= len(p.in) && string(p.in[p.pos:end]) == w {
		p.pos = end
		p.out = append(p.out, w...)
		return true
	}
	return false
}

func (p *plain) array(depth int) bool {
	p.mark('[')
	if p.mark(']') {
		return true
	}
	for p.value(depth - 1) {
		if p.mark(']') {
			return true
		}
		if !p.mark(',') {
			return false
		}
	}
	return false
}

// plainMember is where a member lies in the output: its name without the quotes, and all of
// it with the comma that follows.
type plainMember struct{ start, size, name int }

func (p *plain) object(depth int) bool {
	p.mark('{')
	if p.mark('}') {
		return true
	}
	var members [plainMembers]plainMember
	for n := range members {
		start := len(p.out)
		if p.next() != '"' || !p.text() {
			return false
		}
		name := len(p.out) - start - 2
		if !p.mark(':') || !p.value(depth-1) {
			return false
		}
		p.out = append(p.out, ',')
		if !p.insert(members[:n+1], plainMember{start, len(p.out) - start, name}) {
			return false
		}
		switch p.next() {
		case ',':
			p.pos++
		case '}':
			p.pos++
			p.out[len(p.out)-1] = '}'
			return true
		default:
			return false
		}
	}
	return false
}

// insert moves the member last written to its place among those before it, which
// are sorted. It reports false if one of them has its name.
func (p *plain) insert(members []plainMember, m plainMember) bool {
	n := len(members) - 1
	name := string(p.out[m.start+1 : m.start+1+m.name])
	at := n
	for ; at > 0; at-- {
		before := members[at-1]
		other := string(p.out[before.start+1 : before.start+1+before.name])
		if other == name {
			return false
		}
		if other < name {
			break
		}
	}
	if at < n {
		to, end := members[at].start, len(p.out)
		p.out = append(p.out, p.out[m.start:]...)
		copy(p.out[to+m.size:end], p.out[to:m.start])
		copy(p.out[to:], p.out[end:])
		p.out = p.out[:end]
		copy(members[at+1:], members[at:n])
		for i := at + 1; i <= n; i++ {
			members[i].start += m.size
		}
		m.start = to
	}
	members[at] = m
	return true
}
