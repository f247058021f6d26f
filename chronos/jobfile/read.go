package jobfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Kind is what a document describes.
type Kind string

const (
	Job      Kind = "job"
	Calendar Kind = "calendar"
	Monitor  Kind = "monitor"
)

// Document is one object of a file.
type Document struct {
	Kind Kind
	Name string
	File string
	Line int // where it begins
	// JSON is the object, its members in their order, without its kind.
	JSON json.RawMessage

	lines map[string]int
}

// Place is the line on which a member stands, by its path, such as retry.max_attempts or dates[2]: its own, or that of what it
// would be in.
func (d *Document) Place(path string) int {
	for path != "" {
		if line, ok := d.lines[path]; ok {
			return line
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return d.Line
}

// Error says what is wrong with a file, and where.
type Error struct {
	File   string
	Line   int    // 0: with all of it
	Field  string // empty: with none in particular
	Reason string
}

func (e *Error) Error() string {
	text := e.File
	if e.Line > 0 {
		text += ":" + strconv.Itoa(e.Line)
	}
	if e.Field != "" {
		text += ": " + e.Field
	}
	return text + ": " + e.Reason
}

const (
	// maxFile is how long a file may be, in bytes.
	maxFile = 8 << 20
	// maxNodes bounds what a document may expand to, with its aliases.
	maxNodes = 200_000
	maxDepth = 100
)

// Read reads files, and the files that are named .yaml, .yml or .json in folders and the folders in those, in the order of their
// names. What begins with a dot is passed over. All that is wrong is told, each an [*Error], or there is none.
func Read(paths ...string) (docs []*Document, faults []*Error) {
	var files []string
	for _, path := range paths {
		err := filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case file != path && strings.HasPrefix(entry.Name(), "."):
				if entry.IsDir() {
					return fs.SkipDir
				}
			case !entry.IsDir() && (file == path || slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(file)))):
				files = append(files, file)
			}
			return nil
		})
		if err != nil {
			faults = append(faults, &Error{File: path, Reason: reasonOf(err)})
		}
	}
	for _, file := range files {
		found, wrong := readFile(file)
		docs, faults = append(docs, found...), append(faults, wrong...)
	}
	type key struct {
		kind Kind
		name string
	}
	first := map[key]*Document{}
	for _, d := range docs {
		k := key{d.Kind, d.Name}
		if d.Name == "" {
			continue // for the API to say
		}
		if other := first[k]; other != nil {
			faults = append(faults, &Error{d.File, d.Place("name"), "name", fmt.Sprintf("the %s %s is in %s:%d already", d.Kind, d.Name, other.File, other.Line)})
			continue
		}
		first[k] = d
	}
	return docs, faults
}

// reasonOf is an error of the file system without the path.
func reasonOf(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}

func readFile(file string) ([]*Document, []*Error) {
	info, err := os.Stat(file)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxFile) {
		err = fmt.Errorf("isn't a file of at most %d MiB", maxFile>>20)
	}
	if err != nil {
		return nil, []*Error{{File: file, Reason: reasonOf(err)}}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, []*Error{{File: file, Reason: reasonOf(err)}}
	}
	return Parse(file, text)
}

// Parse reads the text of a file. What is named .json has to be JSON, one document after another.
func Parse(file string, text []byte) (docs []*Document, faults []*Error) {
	if strings.ToLower(filepath.Ext(file)) == ".json" {
		return parseJSON(file, text)
	}
	return parseYAML(file, text, 0)
}

// parseJSON has each document checked as JSON and read as the YAML that it is too, for the lines.
func parseJSON(file string, text []byte) (docs []*Document, faults []*Error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	for {
		var document json.RawMessage
		err := dec.Decode(&document)
		if errors.Is(err, io.EOF) {
			return docs, faults
		}
		if err != nil {
			offset := int64(len(text)) // where it ends too early
			if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
				offset = syntax.Offset
			}
			offset = min(offset, int64(len(text)))
			return docs, append(faults, &Error{File: file, Line: 1 + bytes.Count(text[:offset], []byte("\n")), Reason: strings.TrimPrefix(err.Error(), "json: ")})
		}
		before := bytes.Count(text[:dec.InputOffset()-int64(len(document))], []byte("\n"))
		// In YAML a tab isn't any space; in JSON no other tabs can be.
		found, wrong := parseYAML(file, bytes.ReplaceAll(document, []byte("\t"), []byte(" ")), before)
		docs, faults = append(docs, found...), append(faults, wrong...)
	}
}

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): `)

func parseYAML(file string, text []byte, before int) (docs []*Document, faults []*Error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var root yaml.Node
		err := dec.Decode(&root)
		if errors.Is(err, io.EOF) {
			return docs, faults
		}
		if err != nil {
			return docs, append(faults, yamlFault(file, text, before, err))
		}
		if len(root.Content) == 0 || root.Content[0].ShortTag() == "!!null" {
			continue // an empty document
		}
		nodes := []*yaml.Node{root.Content[0]}
		if nodes[0].Kind == yaml.SequenceNode {
			nodes = nodes[0].Content
		}
		for _, n := range nodes {
			d, err := document(n)
			if err != nil {
				err.File, err.Line = file, err.Line+before
				faults = append(faults, err)
				continue
			}
			d.File, d.Line = file, d.Line+before
			for path := range d.lines {
				d.lines[path] += before
			}
			docs = append(docs, d)
		}
	}
}

func yamlFault(file string, text []byte, before int, err error) *Error {
	fault := &Error{File: file, Reason: strings.TrimPrefix(err.Error(), "yaml: ")}
	m := yamlLine.FindStringSubmatch(err.Error())
	if m == nil {
		return fault
	}
	line, _ := strconv.Atoi(m[1])
	fault.Line, fault.Reason = line+before, strings.TrimPrefix(err.Error(), m[0])
	if lines := bytes.Split(text, []byte("\n")); line <= len(lines) && bytes.Contains(lines[line-1], []byte(": *")) {
		fault.Reason += "; in YAML, what begins with * has to be in quotes"
	}
	return fault
}

// document reads an object of a file.
func document(n *yaml.Node) (*Document, *Error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.MappingNode {
		return nil, &Error{Line: n.Line, Reason: "isn't an object with a name, such as a job"}
	}
	d := &Document{Kind: Job, Line: n.Line, lines: map[string]int{}}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch key.Value {
		case "kind":
			if d.Kind = Kind(value.Value); !slices.Contains([]Kind{Job, Calendar, Monitor}, d.Kind) {
				return nil, &Error{Line: value.Line, Field: "kind", Reason: fmt.Sprintf("%q isn't job, calendar or monitor", value.Value)}
			}
			rest := *n
			rest.Content = slices.Concat(n.Content[:i], n.Content[i+2:])
			return d, d.fill(&rest)
		case "dates":
			d.Kind = Calendar
		case "grace":
			d.Kind = Monitor
		}
	}
	return d, d.fill(n)
}

func (d *Document) fill(n *yaml.Node) *Error {
	w := writer{lines: d.lines}
	if err := w.value(n, "", 0); err != nil {
		return err
	}
	d.JSON = w.out.Bytes()
	var named struct{ Name any }
	if err := json.Unmarshal(d.JSON, &named); err == nil {
		d.Name, _ = named.Name.(string)
	}
	return nil
}

// writer turns YAML into JSON, and notes where what stood.
type writer struct {
	out   bytes.Buffer
	lines map[string]int
	nodes int
}

func (w *writer) value(n *yaml.Node, path string, depth int) *Error {
	fault := func(reason string, args ...any) *Error {
		return &Error{Line: n.Line, Field: path, Reason: fmt.Sprintf(reason, args...)}
	}
	if w.nodes++; w.nodes > maxNodes || depth > maxDepth {
		return fault("is too large or too deep")
	}
	if path != "" {
		if _, ok := w.lines[path]; !ok {
			w.lines[path] = n.Line
		}
	}
	switch n.Kind {
	case yaml.AliasNode:
		return w.value(n.Alias, path, depth+1)
	case yaml.MappingNode:
		return w.object(n, path, depth)
	case yaml.SequenceNode:
		w.out.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				w.out.WriteByte(',')
			}
			if err := w.value(item, path+"["+strconv.Itoa(i)+"]", depth+1); err != nil {
				return err
			}
		}
		w.out.WriteByte(']')
		return nil
	}
	var value any = n.Value
	switch tag := n.ShortTag(); tag {
	case "!!str", "!!timestamp": // a date stays as it is written
	case "!!null":
		value = nil
	case "!!bool":
		value = strings.EqualFold(n.Value, "true")
	case "!!int", "!!float":
		if json.Valid([]byte(n.Value)) {
			value = json.Number(n.Value)
			break
		}
		var number any
		if err := n.Decode(&number); err != nil {
			return fault("%q can't be read as a number", n.Value)
		}
		text, err := json.Marshal(number)
		if err != nil {
			return fault("%q isn't a number that JSON knows", n.Value)
		}
		value = json.RawMessage(text)
	default:
		return fault("has the tag %s, which has no meaning here", tag)
	}
	return w.scalar(value)
}

func (w *writer) scalar(value any) *Error {
	enc := json.NewEncoder(&w.out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return &Error{Reason: err.Error()}
	}
	w.out.Truncate(w.out.Len() - 1) // the end of the line
	return nil
}

func (w *writer) object(n *yaml.Node, path string, depth int) *Error {
	w.out.WriteByte('{')
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		member := key.Value
		if path != "" {
			member = path + "." + key.Value
		}
		if key.Kind != yaml.ScalarNode || key.ShortTag() == "!!merge" {
			return &Error{Line: key.Line, Field: path, Reason: "has a name that isn't a string"}
		}
		if line, ok := seen[key.Value]; ok {
			return &Error{Line: key.Line, Field: member, Reason: fmt.Sprintf("is there twice, first on line %d", line)}
		}
		seen[key.Value] = key.Line
		if _, ok := w.lines[member]; !ok {
			w.lines[member] = key.Line
		}
		if i > 0 {
			w.out.WriteByte(',')
		}
		if err := w.scalar(key.Value); err != nil {
			return err
		}
		w.out.WriteByte(':')
		if err := w.value(value, member, depth+1); err != nil {
			return err
		}
	}
	w.out.WriteByte('}')
	return nil
}
