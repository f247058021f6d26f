package jobfile_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"holdfast/chronos/jobfile"
)

func TestYAMLBecomesJSON(t *testing.T) {
	t.Parallel()
	docs, faults := jobfile.Parse("jobs.yml", []byte(`# a comment
name: a
schedule: "*/5 * * * *"
retry: &retry
  max_attempts: 3
target:
  webhook: {url: "https://example.com/?a=1&b=2", body: {z: 1.50, a: 0x10, when: 2026-12-25, yes: no, big: 123456789012345678901}}
again: *retry
---
---
- {name: b, paused: true, end_at: null}
- kind: calendar
  name: c
  dates: [2026-12-25, {from: 2026-12-30, to: 2026-12-31}]
- {name: m, schedule: "@daily", grace: 1h}
`))
	if len(faults) > 0 || len(docs) != 4 || docs[3].Kind != jobfile.Monitor {
		t.Fatalf("%v, %d documents", faults, len(docs))
	}
	for i, want := range []string{
		`{"name":"a","schedule":"*/5 * * * *","retry":{"max_attempts":3},"target":{"webhook":{"url":"https://example.com/?a=1&b=2","body":{"z":1.50,"a":16,` +
			`"when":"2026-12-25","yes":"no","big":123456789012345678901}}},"again":{"max_attempts":3}}`,
		`{"name":"b","paused":true,"end_at":null}`,
		`{"name":"c","dates":["2026-12-25",{"from":"2026-12-30","to":"2026-12-31"}]}`,
	} {
		if string(docs[i].JSON) != want {
			t.Errorf("%d is %s, want %s", i, docs[i].JSON, want)
		}
	}
	if docs[2].Kind != jobfile.Calendar || docs[2].Name != "c" || docs[1].Kind != jobfile.Job || docs[2].Line != 12 {
		t.Errorf("the last is %+v", docs[2])
	}
	for path, line := range map[string]int{"schedule": 3, "retry.max_attempts": 5, "target.webhook.url": 7, "retry.backoff": 4, "labels.x": 2, "": 2} {
		if got := docs[0].Place(path); got != line {
			t.Errorf("%s stands on line %d, want %d", path, got, line)
		}
	}
	if got := docs[2].Place("dates[1].from"); got != 14 {
		t.Errorf("the range stands on line %d, want 14", got)
	}
}

func TestJSONFiles(t *testing.T) {
	t.Parallel()
	docs, faults := jobfile.Parse("jobs.json", []byte("{\n\t\"name\": \"a\",\n\t\"retry\": {\n\t\t\"max_attempts\": 1}}\n[{\"name\": \"b\"},\n{\"name\": \"c\"}]"))
	if len(faults) > 0 || len(docs) != 3 || docs[0].Place("retry.max_attempts") != 4 || docs[2].Line != 6 {
		t.Fatalf("%v, %+v", faults, docs)
	}
	for text, want := range map[string]string{
		"{\n\"name\": }":           "jobs.json:2: invalid character '}'",
		"{\"name\": \"a\"}\nx":     "jobs.json:2: invalid character 'x'",
		"{\"name\": \"a\",\n":      "jobs.json:2: unexpected EOF",
		"name: a":                  "jobs.json:1: invalid character",
		"{}\n{\"a\": 1, \"a\": 2}": "jobs.json:2: a: is there twice",
	} {
		if _, faults := jobfile.Parse("jobs.json", []byte(text)); len(faults) != 1 || !strings.HasPrefix(faults[0].Error(), want) {
			t.Errorf("%q: %v, want %s", text, faults, want)
		}
	}
}

func TestWhatIsNotMeantIsRefused(t *testing.T) {
	t.Parallel()
	bomb := "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c < 'i'; c++ {
		bomb += string(c) + ": &" + string(c) + " [" + strings.Repeat("*"+string(c-1)+", ", 10) + "]\n"
	}
	for text, want := range map[string]string{
		"name: a\nname: b":                   "f.yaml:2: name: is there twice, first on line 1",
		"name: a\nretry:\n  x: 1\n  x: 2":    "f.yaml:4: retry.x: is there twice",
		"name: a\nschedule: */5 * * * *":     "f.yaml:2: did not find expected alphabetic or numeric character; in YAML, what begins with * has to be in quotes",
		"name: a\n  b: c":                    "f.yaml:2: mapping values are not allowed",
		"just a text":                        "f.yaml:1: isn't an object",
		"- name: a\n- 5":                     "f.yaml:2: isn't an object",
		"kind: cron\nname: a":                `f.yaml:1: kind: "cron" isn't job, calendar or monitor`,
		"name: a\nbody: !!binary aGk=":       "f.yaml:2: body: has the tag !!binary",
		"name: a\nbody: !x y":                "f.yaml:2: body: has the tag !x",
		"name: a\nn: .inf":                   `f.yaml:2: n: ".inf" isn't a number that JSON knows`,
		"name: a\n? [1, 2]\n: x":             "f.yaml:2: has a name that isn't a string",
		"name: a\nx: &x {y: 1}\nz: {<<: *x}": "f.yaml:3: z: has a name that isn't a string",
		"name: a\nx: &x [*x]":                "f.yaml:",
		bomb:                                 "f.yaml:",
		"name: a\x00":                        "f.yaml",
	} {
		docs, faults := jobfile.Parse("f.yaml", []byte(text))
		if len(faults) != 1 || !strings.HasPrefix(faults[0].Error(), want) {
			t.Errorf("%.60q: %v and %d documents, want %s", text, faults, len(docs), want)
		}
	}
}

func TestFoldersAreReadInOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"b.yaml": "name: b", "a/x.json": `{"name": "x"}`, "README.md": "hello", ".hidden/y.yaml": "name: y", "a/.z.yaml": "name: z", "c.yml": "name: b",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	docs, faults := jobfile.Read(dir)
	if len(docs) != 3 || docs[0].Name != "x" || docs[1].Name != "b" {
		t.Errorf("read %+v", docs)
	}
	if want := filepath.Join(dir, "c.yml") + ":1: name: the job b is in " + filepath.Join(dir, "b.yaml") + ":1 already"; len(faults) != 1 || faults[0].Error() != want {
		t.Errorf("faults %v, want %s", faults, want)
	}
	if _, faults := jobfile.Read(filepath.Join(dir, "nowhere")); len(faults) != 1 || !strings.Contains(faults[0].Error(), "no such file") {
		t.Errorf("faults %v", faults)
	}
}

// What is written is read as the same, whatever a string looks like.
func TestWhatIsWrittenIsReadAsItIs(t *testing.T) {
	t.Parallel()
	texts := []string{
		"* * * * *", "yes", "no", "on", "null", "~", "true", "1", "1.5", "0x1", "1e3", "2026-12-25", "12:30:45", "", " ", "a: b", "# x", "- x", "multi\nline\n", "tab\t", "é😀",
		"'", `"`, "!x", "&x", "@x", "<<", "=", ".inf", "1_000", "0o7", "\u0085", "trailing ", "\x7f",
	}
	object := map[string]any{"name": "x", "numbers": []any{json.Number("1"), json.Number("1.0"), json.Number("-1e30")}, "empty": map[string]any{}, "none": []any{}, "nil": nil, "t": true}
	for _, s := range texts {
		object["v"+s] = s
	}
	want, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	text, err := jobfile.Encode([]json.RawMessage{want, []byte(`{"name":"y"}`)})
	if err != nil {
		t.Fatal(err)
	}
	docs, faults := jobfile.Parse("f.yaml", text)
	if len(faults) > 0 || len(docs) != 2 {
		t.Fatalf("%v in\n%s", faults, text)
	}
	var got, wanted any
	if err := json.Unmarshal(docs[0].JSON, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(want, &wanted); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Errorf("(-want +got):\n%s\n%s", diff, text)
	}
}

func TestDiffNamesTheMembers(t *testing.T) {
	t.Parallel()
	found := jobfile.Diff(
		json.RawMessage(`{"name": "a", "retry": {"max_attempts": 5, "backoff": "10s"}, "labels": {"x": "y"}, "target": {"pull": {"queue": "q", "payload": {"a": 1, "b": 2}}}, "revision": 1, "exclude": []}`),
		json.RawMessage(`{"name": "a", "retry": {"max_attempts": 3, "backoff": "10s"}, "labels": {"z": "y"}, "target": {"pull": {"queue": "q", "payload": {"a": 1, "b": 3}}}, "revision": 2, "exclude": []}`))
	var paths []string
	for _, f := range found {
		paths = append(paths, f.Path)
	}
	if diff := cmp.Diff([]string{"target.pull.payload", "retry.max_attempts", "labels.x", "labels.z"}, paths); diff != "" {
		t.Error(diff)
	}
}
