package inventory_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"holdfast/inventory"
)

const header = "sku,name,delta,counted,location,reason\n"

// TestImportCSVRows imports what files look like in practice, each into a SKU that nobody has.
func TestImportCSVRows(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	long := strings.Repeat("x", inventory.MaxImportRow+1)
	for _, c := range []struct {
		name, text string
		applied    int64
		bad        []string
	}{
		{"nothing but a header", header, 0, nil},
		{"a header without a line break", "sku,delta", 0, nil},
		{"no line break at the end", header + "a,,1,,,", 1, nil},
		{"carriage returns", "sku,delta\r\na,1\r\nb,2\r\n", 2, nil},
		{"a byte order mark", "\ufeffsku,delta\na,1\n", 1, nil},
		{"a byte order mark and a quote", "\ufeff\"sku\",delta\na,1\n", 1, nil},
		{"capitals and spaces in the header", "SKU, Delta\na,1\n", 1, nil},
		{"empty lines", "\n\nsku,delta\n\n  \na,1\n\r\nb,x\n\n", 1, []string{"8 validation_failed delta"}},
		{"quotes", header + `a,"A ""big"", red thing",1,,,` + "\n" + `"b","",2,"","",""` + "\n", 2, nil},
		{"a line break between quotes", header + "a,\"two\nlines\",1,,,\nb,,x,,,\n", 1, []string{"4 validation_failed delta"}},
		{"a quote that isn't closed", header + "a,\"A,1,,,\nb,,1,,,\nc,,x,,,\n", 1, []string{"2 malformed_row", "4 validation_failed delta"}},
		{"one that another closes", header + "a,\"A,1,,,\nb,\"B\",1,,,\nc,,1,,,\n", 2, []string{"2 malformed_row"}},
		{"one at the end", header + "a,,1,,,\nb,\"B,1,,,", 1, []string{"3 malformed_row"}},
		{"a quote in a cell", header + "a,3\" pipe,1,,,\nb,\"B\"x,1,,,\nc,,1,,,\n", 1, []string{"2 malformed_row", "3 malformed_row"}},
		{"too few and too many cells", header + "a,A,1\nb,,1,,,,\nc\n", 0, []string{"2 malformed_row", "3 malformed_row", "4 malformed_row"}},
		{"NUL", header + "a,A\x00,1,,,\nb,,1,,,\n", 1, []string{"2 malformed_row"}},
		{"not UTF-8", header + "a,A\xff,1,,,\nb,,1,,,\n", 1, []string{"2 malformed_row"}},
		{"too long", header + "a," + long + ",1,,,\nb,,1,,,\n" + long, 1, []string{"2 malformed_row", "4 malformed_row"}},
		{"too long between quotes", header + "a,\"" + strings.Repeat("x\n", inventory.MaxImportRow) + "\",1,,,\nb,,1,,,\n", -1, nil},
		{"both and neither", header + "a,,1,1,,\nb,,,,,\n", 0, []string{"2 validation_failed counted", "3 validation_failed delta"}},
		{"no SKU", header + ",A,1,,,\n", 0, []string{"2 validation_failed sku"}},
		{"a bad SKU", header + "ä,A,1,,,\n" + strings.Repeat("x", 129) + ",A,1,,,\n", 0, []string{"2 validation_failed sku", "3 validation_failed sku"}},
		{"a long name", header + "a," + strings.Repeat("ä", 256) + ",1,,,\n", 0, []string{"2 validation_failed name"}},
		{"a long reason", header + "a,,1,,," + strings.Repeat("ä", 501) + "\n", 0, []string{"2 validation_failed reason"}},
		{"a bad location", header + "a,,1,,here and there,\n", 0, []string{"2 validation_failed location"}},
		{"the same SKU twice", header + "a,,5,,,\na,,-3,,,\na,,-3,,,\n", 2, []string{"4 below_held"}},
		{"a plus", header + "a,,+5,,,\n", 1, nil},
	} {
		check := func(how string, from io.Reader) {
			d, err := w.importFrom(0, caller, "csv", from, func(im *inventory.Import) { im.DryRun = true })
			if err != nil {
				t.Errorf("%s, %s: %v", c.name, how, err)
				return
			}
			if diff := cmp.Diff(c.bad, d.failures()); (diff != "" || d.Applied != c.applied) && c.applied >= 0 {
				t.Errorf("%s, %s: %d applied, want %d; %s", c.name, how, d.Applied, c.applied, diff)
			}
			for _, r := range d.results {
				if r.Reason == "" {
					t.Errorf("%s: no reason: %+v", c.name, r)
				}
			}
		}
		check("at once", strings.NewReader(c.text))
		check("in halves", iotest.HalfReader(strings.NewReader(c.text)))
		if len(c.text) < 1000 {
			check("byte by byte", iotest.OneByteReader(strings.NewReader(c.text)))
		}
	}
	for _, number := range []string{"1.0", "1e3", "1,000", " 1", "0x1", "1_000", "٣", "--1", "+-1", "0", "1000000001", "-1000000001", "99999999999999999999", "NaN"} {
		d := w.csv(fmt.Sprintf("sku,delta\na,\"%s\"\n", number))
		w.wantFailures(d, "2 validation_failed delta")
	}
	for _, number := range []string{"-1", "1000000001", "1.5"} {
		w.wantFailures(w.csv("sku,counted\na,"+number+"\n"), "2 validation_failed counted")
	}
	w.wantFailures(w.csv("sku,delta,expected\na,1,1\n"), "2 validation_failed expected")
}

func TestImportCSVHeader(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                            "there is none",
		"\n\n":                        "there is none",
		"a,5\n":                       `line 1: unknown column "a"`,
		"sku;delta\na;5\n":            `line 1: unknown column "sku;delta"; there may be, with commas between them, sku, name, delta`,
		"\nsku,delta,sku\n":           "line 2: the column sku is there twice",
		"delta\n":                     "the column sku is missing",
		"sku,name\n":                  "the column delta is missing",
		"sku,delta,\n":                `unknown column ""`,
		"sku,\"delta\n":               "the quote of cell 2 is never closed",
		"sku,delta\x00\n":             "NUL",
		"\xff\xfes\x00k\x00":          "NUL",
		"sku,d\xe9lta\n":              "isn't UTF-8",
		strings.Repeat("x", 70_000):   "at most 65536 bytes",
		`{"sku": "a", "delta": 1}`:    "a quote in it",
		"sku,delta,on_hand,available": `unknown column "on_hand"`,
	} {
		_, err := inventory.NewImportCSV(strings.NewReader(text))
		var bad *inventory.InvalidError
		if !errors.As(err, &bad) || bad.Field != "header" || !strings.Contains(bad.Reason, want) {
			t.Errorf("%.30q: %v, want %q", text, err, want)
		}
	}
	broken := errors.New("broken")
	if _, err := inventory.NewImportCSV(io.MultiReader(strings.NewReader("sku,del"), failing{broken})); !errors.Is(err, broken) {
		t.Errorf("a header that breaks off: %v", err)
	}
}

func TestImportNDJSONRows(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	for _, c := range []struct {
		text string
		want string // "": it is a good row
	}{
		{`{"sku": "a", "name": "A \"big\" \u00e4 \ud83d\ude00, {thing}", "delta": 5}`, ""},
		{`{"sku":"a","counted":0,"location":null,"expected":null,"name":""}`, ""},
		{` { "delta" : 1 , "sku" : "a" , "default_ttl": "90s", "safety_stock": 0 } ` + "\r", ""},
		{"\ufeff" + `{"sku": "a", "delta": 5}`, ""},
		{`{"sku": "a", "delta": 5, "counted": 5}`, "1 validation_failed counted"},
		{`{"sku": "a"}`, "1 validation_failed delta"},
		{`{"delta": 1}`, "1 validation_failed sku"},
		{`{}`, "1 validation_failed sku"},
		{`{"sku": "a", "delta": "5"}`, "1 validation_failed delta"},
		{`{"sku": "a", "delta": 5.0}`, "1 validation_failed delta"},
		{`{"sku": "a", "delta": 5e2}`, "1 validation_failed delta"},
		{`{"sku": "a", "delta": true}`, "1 validation_failed delta"},
		{`{"sku": "a", "delta": [1, {"b": "]}"}]}`, "1 validation_failed delta"},
		{`{"sku": 5, "delta": 5}`, "1 validation_failed sku"},
		{`{"sku": "", "delta": 5}`, "1 validation_failed sku"},
		{`{"sku": "a", "delta": 5, "location": ""}`, "1 validation_failed location"},
		{`{"sku": "a", "delta": 5, "colour": {"b": ["\"}"]}}`, "1 validation_failed colour"},
		{`{"sku": "a", "delta": 5, "delta": 6}`, "1 validation_failed delta"},
		{`{"sku": "a", "Delta": 5}`, "1 validation_failed Delta"},
		{`{"sku": "a", "delta": 5, "\u0000": 1}`, "1 validation_failed"},
		{`{"sku": "a\u0000", "delta": 5}`, "1 validation_failed sku"},
		{`{"sku": "a", "name": "\u0000", "delta": 5}`, "1 validation_failed name"},
		{`{"sku": "a", "name": "\ud800", "delta": 5}`, "1 validation_failed name"},
		{`{"sku": "a", "name": "\ufffd", "delta": 5}`, ""},
		{`{"sku": "a", "delta": 5} {"sku": "b", "delta": 5}`, "1 malformed_row"},
		{`{"sku": "a", "delta": 5},`, "1 malformed_row"},
		{`{"sku": "a", "delta": 05}`, "1 malformed_row"},
		{`{'sku': 'a'}`, "1 malformed_row"},
		{`[{"sku": "a", "delta": 5}]`, "1 malformed_row"},
		{`["a", 5]`, "1 malformed_row"},
		{`"a"`, "1 malformed_row"},
		{`5`, "1 malformed_row"},
		{`null`, "1 malformed_row"},
		{`{"sku": "a`, "1 malformed_row"},
		{`sku,delta`, "1 malformed_row"},
		{"{\"sku\": \"a\", \"delta\": 5, \"name\": \"\xff\"}", "1 malformed_row"},
		{"{\"sku\": \"a\", \"delta\": 5, \"name\": \"\x00\"}", "1 malformed_row"},
	} {
		d, err := w.importFrom(0, caller, "ndjson", strings.NewReader(c.text), func(im *inventory.Import) { im.DryRun = true })
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got := strings.Join(d.failures(), "; "); got != c.want || d.Rows != 1 {
			t.Errorf("%s: %q, want %q: %v", c.text, got, c.want, d.results)
		}
	}
	// What is empty, and what comes after a bad row.
	d, err := w.importFrom(0, caller, "ndjson", strings.NewReader("\n\n{\"sku\": \"a\", \"delta\": 5}\n\nnot\n{\"sku\": \"b\", \"counted\": 5}"))
	if err != nil || d.Applied != 2 {
		t.Errorf("%+v, %v", d, err)
	}
	w.wantFailures(d, "5 malformed_row")
	if d, err := w.importFrom(0, caller, "ndjson", strings.NewReader("")); err != nil || d.Rows != 0 {
		t.Errorf("nothing: %+v, %v", d, err)
	}
}

// FuzzImportRows reads anything without failing, and gives every row a line of its own and a sense.
func FuzzImportRows(f *testing.F) {
	f.Add(header+"a,\"A\n\",1,,,\n\"", true)
	f.Add(`{"sku": "a", "delta": [1, "\""]}`+"\n{\"\\ud800\":1}", false)
	f.Fuzz(func(t *testing.T, text string, csv bool) {
		rows := inventory.NewImportNDJSON(strings.NewReader(text))
		if csv {
			var err error
			if rows, err = inventory.NewImportCSV(strings.NewReader(text)); err != nil {
				return
			}
		}
		if err := rows.Check(); err != nil {
			t.Error(err)
		}
	})
}
