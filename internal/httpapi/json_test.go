package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// tree is a JSON value whose members have an order, so that it can be written in several.
type tree struct {
	scalar  string // as written
	items   []tree
	members []treeMember
}

type treeMember struct {
	name  string
	value tree
}

func genTree(depth int) *rapid.Generator[tree] {
	return rapid.Custom(func(t *rapid.T) tree {
		kind := rapid.IntRange(0, 5).Draw(t, "kind")
		if depth == 0 {
			kind = min(kind, 2)
		}
		switch kind {
		case 0:
			return tree{scalar: rapid.SampledFrom([]string{"null", "true", "false", "0", "-1", "1.0", "1e3", "12345678901234567890"}).Draw(t, "word")}
		case 1, 2:
			return tree{scalar: quote(t, rapid.StringOf(rapid.RuneFrom([]rune("aé😀\"\\/\n\t\u2028\x01 "))).Draw(t, "text"))}
		case 3:
			return tree{items: rapid.SliceOfN(genTree(depth-1), 0, 4).Draw(t, "items")}
		}
		names := rapid.SliceOfNDistinct(rapid.StringN(0, 4, 12), 0, 5, rapid.ID).Draw(t, "names")
		v := tree{members: []treeMember{}}
		for _, name := range names {
			v.members = append(v.members, treeMember{strings.ReplaceAll(name, "\x00", ""), genTree(depth-1).Draw(t, "value")})
		}
		slices.SortFunc(v.members, func(a, b treeMember) int { return strings.Compare(a.name, b.name) })
		v.members = slices.CompactFunc(v.members, func(a, b treeMember) bool { return a.name == b.name })
		return v
	})
}

// quote spells a string with escapes here and there.
func quote(t *rapid.T, s string) string {
	if !rapid.Bool().Draw(t, "escaped") {
		plain, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(plain)
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch high, low := utf16.EncodeRune(r); {
		case high != utf8.RuneError:
			fmt.Fprintf(&b, `\u%04x\u%04X`, high, low)
		case r == '/':
			b.WriteString(`\/`)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// write spells v with its members in any order and white space anywhere.
func (v tree) write(t *rapid.T, b *strings.Builder) {
	space := func() { b.WriteString(rapid.SampledFrom([]string{"", " ", "\n\t", "\r\n"}).Draw(t, "space")) }
	space()
	defer space()
	switch {
	case v.scalar != "":
		b.WriteString(v.scalar)
	case v.members != nil:
		b.WriteByte('{')
		for i, m := range rapid.Permutation(v.members).Draw(t, "order") {
			if i > 0 {
				b.WriteByte(',')
			}
			space()
			b.WriteString(quote(t, m.name))
			space()
			b.WriteByte(':')
			m.value.write(t, b)
		}
		space()
		b.WriteByte('}')
	default:
		b.WriteByte('[')
		for i, item := range v.items {
			if i > 0 {
				b.WriteByte(',')
			}
			item.write(t, b)
		}
		b.WriteByte(']')
	}
}

// TestCanonicalForm writes one value in two ways: they have one form, which means the same
// as they do and is its own.
func TestCanonicalForm(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := genTree(4).Draw(t, "value")
		var one, two strings.Builder
		v.write(t, &one)
		v.write(t, &two)
		form, p := checkJSON(nil, []byte(one.String()))
		if p != nil {
			t.Fatalf("%s: %v", one.String(), p)
		}
		other, p := checkJSON(nil, []byte(two.String()))
		if p != nil || !bytes.Equal(form, other) {
			t.Fatalf("%s\nand %s\nare %s\nand %s, %v", one.String(), two.String(), form, other, p)
		}
		again, p := checkJSON(nil, form)
		if p != nil || !bytes.Equal(form, again) {
			t.Fatalf("%s becomes %s, %v", form, again, p)
		}
		if decoded(t, one.String()) != decoded(t, string(form)) {
			t.Fatalf("%s doesn't mean %s", form, one.String())
		}
	})
}

func decoded(t *rapid.T, text string) string {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return fmt.Sprintf("%#v", v)
}

// FuzzCheckJSON holds checkJSON against encoding/json: it takes nothing that isn't JSON,
// and what it takes decodes without losses.
func FuzzCheckJSON(f *testing.F) {
	for _, seed := range []string{`{"a":[1,{"b":null}],"\u0061":2}`, `"\ud83d\ude00"`, `"\ud83d"`, `[]`, `-0.0e-10`, "\"\x00\"", `{"":{}}`, ` 1 `} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		form, p := checkJSON(nil, body)
		if !json.Valid(body) {
			if p == nil {
				t.Fatalf("%q is taken", body)
			}
			return
		}
		if p == nil && (!json.Valid(form) || bytes.Contains(form, []byte(`\u0000`)) && !bytes.Contains(form, []byte(`\\u0000`))) {
			t.Fatalf("%q becomes %q", body, form)
		}
	})
}

// BenchmarkCheckJSON is what each request pays for its hash.
func BenchmarkCheckJSON(b *testing.B) {
	body := []byte(`{"lines":[{"sku":"FLASH-10","quantity":1}],"customer":"customer-4711","ttl":"5m"}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, p := checkJSON(nil, body); p != nil {
			b.Fatal(p)
		}
	}
}

// FuzzPlainForm wants the quick way to the canonical form to be right wherever it doesn't give up.
func FuzzPlainForm(f *testing.F) {
	for _, body := range []string{
		`{"lines":[{"sku":"mug","quantity":1}],"customer":"ann"}`, ` { "b" : [ 1 , -0 , true ] , "a" : null } `, `{"a":1,"a":2}`, `{"b":1,"a!":2,"a":3}`, `{"":0}`,
		"\"a\tb\"", "\"\x00\"", `01`, `1.0`, `"\u0061"`, "\"\xff\"", `"ü"`, `[[[[[[[[[1]]]]]]]]]`, `{}x`, `[1,]`, `{"a":1,}`, "\x00", `-`, `1234567890123456789`,
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		form, ok := plainForm([]byte("kept"), []byte(body))
		if !ok {
			return
		}
		want, p := checkJSONSlowly(nil, []byte(body))
		if p != nil || string(form) != "kept"+string(want) {
			t.Errorf("%q has the form %q, want %q, %v", body, form, want, p)
		}
	})
}

// TestPlainForm sees that ordinary bodies take the quick way.
func TestPlainForm(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"lines":[{"sku":"mug","quantity":1}],"customer":"ann","ttl":"5m"}`:       `{"customer":"ann","lines":[{"quantity":1,"sku":"mug"}],"ttl":"5m"}`,
		" { \"b\" : [ -1 , 0 , true , null , { } , [ ] ] ,\n\t\"a\" : \"ü\" }\r\n": `{"a":"ü","b":[-1,0,true,null,{},[]]}`,
		`{"c":1,"b":2,"a":3,"aa":4,"d":5}`:                                         `{"a":3,"aa":4,"b":2,"c":1,"d":5}`,
	} {
		if form, ok := plainForm(nil, []byte(body)); !ok || string(form) != want {
			t.Errorf("%s has the form %s (%t), want %s", body, form, ok, want)
		}
	}
}
