package httpapi

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
)

// documents are made once, at the first request, when every operation has been registered.
type documents struct {
	once sync.Once
	spec []byte
	page []byte
}

//go:embed docs.html
var docsHTML string

var docsPage = template.Must(template.New("docs").Parse(docsHTML))

func (a *API) documents() *documents {
	a.docs.once.Do(func() {
		spec, err := json.Marshal(a.huma.OpenAPI())
		if err != nil {
			panic(err) // a schema that can't be written, which every test of the service sees
		}
		a.docs.spec = spec
		var page bytes.Buffer
		if err := docsPage.Execute(&page, a.docsView()); err != nil {
			panic(err)
		}
		a.docs.page = page.Bytes()
	})
	return &a.docs
}

func (a *API) serveSpec(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(a.documents().spec)
}

func (a *API) serveDocs(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	_, _ = w.Write(a.documents().page)
}

// docsView is the OpenAPI document as a page shows it: operations in the order of their
// registration, schemas as rows of fields.
type docsView struct {
	Title, Version, Description string
	Authenticated               bool
	Operations                  []docsOperation
	Codes                       []codeMeaning
}

type docsOperation struct {
	Anchor, Method, Path, Summary, Description string
	Scope                                      string
	Parameters, Body                           []docsField
	BodyOptional                               bool
	Answers                                    []docsAnswer
}

type docsField struct {
	Name, Type, Text string
	Required         bool
}

type docsAnswer struct {
	Status, Text string
	Fields       []docsField
}

func (a *API) docsView() docsView {
	spec := a.huma.OpenAPI()
	view := docsView{
		Title: a.cfg.Title, Version: a.cfg.Version, Description: a.cfg.Description,
		Authenticated: a.cfg.Keys != nil, Codes: slices.Clone(kernelCodes),
	}
	for _, op := range a.ops {
		view.Operations = append(view.Operations, describeOperation(spec, op))
	}
	for _, rule := range a.cfg.Errors {
		meaning := codeMeaning{rule.Status, rule.Code, rule.Err.Error()}
		if !slices.ContainsFunc(view.Codes, func(c codeMeaning) bool { return c.Code == rule.Code }) {
			view.Codes = append(view.Codes, meaning)
		}
	}
	slices.SortStableFunc(view.Codes, func(a, b codeMeaning) int { return a.Status - b.Status })
	return view
}

func describeOperation(spec *huma.OpenAPI, op Op) docsOperation {
	item := spec.Paths[op.Path]
	ho := map[string]*huma.Operation{
		http.MethodGet: item.Get, http.MethodPut: item.Put, http.MethodPost: item.Post,
		http.MethodDelete: item.Delete, http.MethodPatch: item.Patch,
	}[op.Method]
	d := docsOperation{
		Anchor: ho.OperationID, Method: op.Method, Path: op.Path,
		Summary: op.Summary, Description: op.Description, Scope: string(op.Scope),
	}
	for _, p := range ho.Parameters {
		d.Parameters = append(d.Parameters, docsField{
			Name: p.In + "." + p.Name, Required: p.Required,
			Type: typeOf(p.Schema), Text: sentences(p.Description, limitsOf(p.Schema)),
		})
	}
	fields := fieldLister{registry: spec.Components.Schemas}
	if ho.RequestBody != nil {
		d.BodyOptional = !ho.RequestBody.Required
		for _, media := range ho.RequestBody.Content {
			d.Body = fields.list("", media.Schema, nil)
		}
	}
	for _, status := range slices.Sorted(maps.Keys(ho.Responses)) {
		response := ho.Responses[status]
		answer := docsAnswer{Status: status, Text: response.Description}
		for kind, media := range response.Content {
			if kind != problemContentType {
				answer.Fields = fields.list("", media.Schema, nil)
			}
		}
		d.Answers = append(d.Answers, answer)
	}
	return d
}

// fieldLister lays a schema out as rows, each with the way to its field.
type fieldLister struct{ registry huma.Registry }

// list gives the rows below prefix. Within holds the references that led here, so that a
// schema which contains itself ends.
func (l fieldLister) list(prefix string, s *huma.Schema, within []string) (rows []docsField) {
	if s == nil {
		return nil
	}
	if s.Ref != "" {
		if slices.Contains(within, s.Ref) {
			return nil
		}
		return l.list(prefix, l.registry.SchemaFromRef(s.Ref), append(slices.Clone(within), s.Ref))
	}
	if s.Type == huma.TypeArray {
		return l.list(prefix+"[]", s.Items, within)
	}
	if values, ok := s.AdditionalProperties.(*huma.Schema); ok {
		return l.list(prefix+".*", values, within)
	}
	names := slices.SortedFunc(maps.Keys(s.Properties), func(a, b string) int {
		if ra, rb := slices.Contains(s.Required, a), slices.Contains(s.Required, b); ra != rb {
			if ra {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	for _, name := range names {
		field := s.Properties[name]
		way := strings.TrimPrefix(prefix+"."+name, ".")
		rows = append(rows, docsField{
			Name: way, Required: slices.Contains(s.Required, name),
			Type: typeOf(field), Text: sentences(field.Description, limitsOf(field)),
		})
		rows = append(rows, l.list(way, field, within)...)
	}
	return rows
}

func typeOf(s *huma.Schema) string {
	switch {
	case s == nil:
		return "any"
	case s.Ref != "":
		return huma.TypeObject
	case s.Type == huma.TypeArray:
		return "list of " + typeOf(s.Items)
	case s.PatternDescription != "":
		return s.PatternDescription
	case s.Format == "date-time":
		return "RFC 3339 time"
	case s.Type == "":
		return "any"
	}
	return s.Type
}

// limitsOf puts a schema's constraints into words.
func limitsOf(s *huma.Schema) string {
	if s == nil {
		return ""
	}
	var words []string
	bounds := func(what string, low, high any) {
		switch {
		case low != nil && high != nil:
			words = append(words, fmt.Sprintf("%s%v to %v", what, low, high))
		case low != nil:
			words = append(words, fmt.Sprintf("%sat least %v", what, low))
		case high != nil:
			words = append(words, fmt.Sprintf("%sat most %v", what, high))
		}
	}
	bounds("", number(s.Minimum), number(s.Maximum))
	bounds("items: ", given(s.MinItems), given(s.MaxItems))
	if s.PatternDescription == "" {
		bounds("characters: ", given(s.MinLength), given(s.MaxLength))
		if s.Pattern != "" {
			words = append(words, "like "+s.Pattern)
		}
	}
	if len(s.Enum) > 0 {
		options := make([]string, len(s.Enum))
		for i, option := range s.Enum {
			options[i] = fmt.Sprint(option)
		}
		words = append(words, "one of "+strings.Join(options, ", "))
	}
	if s.Default != nil {
		words = append(words, fmt.Sprintf("default %v", s.Default))
	}
	return strings.Join(words, "; ")
}

func given(p *int) any {
	if p == nil {
		return nil
	}
	return *p
}

// number spells large whole numbers without an exponent.
func number(p *float64) any {
	if p == nil {
		return nil
	}
	return json.Number(fmt.Sprintf("%.10g", *p))
}

// sentences joins what there is of a description and its limits.
func sentences(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ". ")
}
