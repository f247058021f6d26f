package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"holdfast/internal/apikey"
)

// Op is what an operation is, beside its handler.
type Op struct {
	Method string
	Path   string // with {wildcards}, as in /v1/skus/{sku}
	Scope  apikey.Scope
	// Summary is one line; it also names the operation for code generators, so each
	// service has it once. Description is CommonMark and optional, as is Tag.
	Summary     string
	Description string
	Tag         string
	// Status is that of a success. Zero is 200, or 204 where the handler's output is [None].
	// Also lists others that the handler may set with [SetStatus].
	Status int
	Also   []int
	// Codes lists the problems that this operation may answer with and others may
	// not, by their codes in [Config.Errors]; for documentation.
	Codes []string

	// Timeout replaces Config.RequestTimeout. Zero keeps it.
	Timeout time.Duration
	// Long is for what waits, such as a long poll: it doesn't use up the slots of the
	// requests that work, and should watch [Draining].
	Long bool
	// MaxBody bounds the body in bytes. Zero means 1 MiB.
	MaxBody int64
	// Answer is what an import writes bit by bit, for documentation. Nil means text.
	Answer reflect.Type
}

// None is the output of a handler that has nothing to say but that it is done.
type None struct{}

// MaxBody is how long a body may be, in bytes, unless the operation says otherwise.
const MaxBody = 1 << 20

// route is what the guard has to know of an operation.
type route struct {
	op       Op
	wildcard []string        // the names in the path
	repeated map[string]bool // query parameters that may come more than once
	body     bodyKind
	bodyType reflect.Type
	tally    tally
	// quick answers by the operation's codec; false leaves it to huma. Nil: there is none.
	quick func(ctx context.Context, rec *recorder, wildcard string, s *scratch) bool
}

type bodyKind int

const (
	noBody bodyKind = iota
	optionalBody
	requiredBody
	rawBody
	streamedBody // read by the handler, see [RegisterImport]
)

// done is what huma writes of an answer without a body, answer of one with a body.
type done struct {
	Status   int
	Replayed string `header:"Idempotency-Replayed" hidden:"true"`
}

type answer struct {
	Status   int
	Replayed string `header:"Idempotency-Replayed" hidden:"true"`
	Body     any
}

// Register adds an operation. The handler's input is a struct whose fields carry huma's tags:
// path, query and header parameters, and Body, which is optional if it is a pointer. What
// isn't declared there is refused. (A RawBody of []byte takes any content, and may be used
// until the handler returns.) The output is the answer's body. The handler is called when the
// request is known to be well formed, allowed and in time; errors become problems by
// [Config.Errors].
//
// Register panics on an operation that contradicts itself.
func Register[I, O any](a *API, op Op, handle func(context.Context, *I) (O, error)) {
	register(a, newRoute(op, reflect.TypeFor[I]()), handle)
}

func register[I, O any](a *API, rt *route, handle func(context.Context, *I) (O, error)) {
	output := reflect.TypeFor[O]()
	op := &rt.op
	if op.Status == 0 {
		op.Status = http.StatusOK
		if output == reflect.TypeFor[None]() {
			op.Status = http.StatusNoContent
		}
	}
	ho := a.describe(rt)
	if output == reflect.TypeFor[None]() {
		huma.Register(a.huma, ho, func(ctx context.Context, in *I) (*done, error) {
			if _, err := handle(ctx, in); err != nil {
				return nil, a.problemOf(ctx, err)
			}
			status, replayed := success(ctx, op)
			return &done{status, replayed}, nil
		})
		return
	}
	schema := a.huma.OpenAPI().Components.Schemas.Schema(output, true, ho.OperationID+"-answer")
	for _, status := range append([]int{op.Status}, op.Also...) {
		ho.Responses[strconv.Itoa(status)].Content = map[string]*huma.MediaType{"application/json": {Schema: schema}}
	}
	huma.Register(a.huma, ho, func(ctx context.Context, in *I) (*answer, error) {
		out, err := handle(ctx, in)
		if err != nil {
			return nil, a.problemOf(ctx, err)
		}
		status, replayed := success(ctx, op)
		return &answer{status, replayed, out}, nil
	})
}

// success is what the handler has said beside the body.
func success(ctx context.Context, op *Op) (status int, replayed string) {
	rq := requestOf(ctx)
	if rq.replayed {
		replayed = "true"
	}
	return cmp.Or(rq.status, op.Status), replayed
}

// RegisterStream adds an operation that writes its answer bit by bit, such as
// server-sent events. Its context has no deadline and ends when the client leaves or the server
// drains. An error before the first byte becomes a problem; one after it ends the stream.
// Each write should set its own deadline, by [http.ResponseController.SetWriteDeadline].
func RegisterStream[I any](a *API, op Op, contentType string, stream func(context.Context, *I, http.ResponseWriter) error) {
	op.Status, op.Long, op.Timeout = http.StatusOK, true, -1
	ho := a.describe(newRoute(op, reflect.TypeFor[I]()))
	ho.Responses["200"].Content = map[string]*huma.MediaType{contentType: {Schema: &huma.Schema{Type: huma.TypeString}}}
	type body struct{ Body func(huma.Context) }
	huma.Register(a.huma, ho, func(ctx context.Context, in *I) (*body, error) {
		return &body{func(hc huma.Context) {
			_, w := humago.Unwrap(hc)
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(a.drain, cancel)()
			w.Header().Set("Content-Type", contentType)
			if hc.Method() == http.MethodHead {
				return // a stream would go on for nobody
			}
			if err := stream(ctx, in, w); err != nil && ctx.Err() == nil {
				if p := a.problemOf(ctx, err); !w.(*recorder).begun() {
					p.write(w)
				}
			}
		}}, nil
	})
}

var wildcards = regexp.MustCompile(`\{([^}.]+)(\.\.\.)?\}`)

func newRoute(op Op, input reflect.Type) *route {
	if op.Scope == "" || op.Summary == "" {
		panic("httpapi: " + op.Method + " " + op.Path + " needs a scope and a summary")
	}
	rt := &route{op: op, repeated: map[string]bool{}}
	if rt.op.MaxBody == 0 {
		rt.op.MaxBody = MaxBody
	}
	for _, found := range wildcards.FindAllStringSubmatch(op.Path, -1) {
		rt.wildcard = append(rt.wildcard, found[1])
	}
	for _, field := range reflect.VisibleFields(input) {
		if query := field.Tag.Get("query"); query != "" {
			name, options, _ := strings.Cut(query, ",")
			rt.repeated[name] = strings.Contains(options, "explode")
		}
	}
	if _, ok := input.FieldByName("RawBody"); ok {
		rt.body = rawBody
	} else if body, ok := input.FieldByName("Body"); ok {
		rt.body, rt.bodyType = requiredBody, body.Type
		if body.Type.Kind() == reflect.Pointer {
			rt.body, rt.bodyType = optionalBody, body.Type.Elem()
		}
	}
	return rt
}

var notWord = regexp.MustCompile(`[^a-z0-9]+`)

// describe is the operation as huma documents and guards it.
func (a *API) describe(rt *route) huma.Operation {
	op := rt.op
	a.ops = append(a.ops, op)
	ho := huma.Operation{
		OperationID: strings.Trim(notWord.ReplaceAllString(strings.ToLower(op.Summary), "-"), "-"),
		Method:      op.Method,
		Path:        op.Path,
		Summary:     op.Summary,
		Description: op.Description,
		Security:    []map[string][]string{{"key": {}}},
		Extensions:  map[string]any{"x-scope": op.Scope},
		Responses:   map[string]*huma.Response{},
		// The guard has read and bounded the body before huma sees it.
		MaxBodyBytes:    -1,
		BodyReadTimeout: -1,
		DefaultStatus:   op.Status,
		Middlewares:     huma.Middlewares{a.guard(rt)},
	}
	if op.Tag != "" {
		ho.Tags = []string{op.Tag}
	}
	for _, status := range append([]int{op.Status}, op.Also...) {
		ho.Responses[strconv.Itoa(status)] = &huma.Response{Description: http.StatusText(status)}
	}
	if op.Method == http.MethodPost {
		ho.Parameters = append(ho.Parameters, &huma.Param{
			Name: idempotencyHeader, In: "header", Schema: &huma.Schema{Type: huma.TypeString, Pattern: `^[!-~]{1,255}$`},
			Description: "Makes the request safe to repeat: the same key and body give the first success again.",
		})
		for _, status := range append([]int{op.Status}, op.Also...) {
			ho.Responses[strconv.Itoa(status)].Headers = map[string]*huma.Header{replayedHeader: {
				Schema:      &huma.Schema{Type: huma.TypeString, Enum: []any{"true"}},
				Description: "The answer is that of an earlier request with this key",
			}}
		}
	}
	a.describeProblems(&ho, op.Codes)
	return ho
}

// describeProblems documents every problem as the default answer, and those of the
// operation's own by their status.
func (a *API) describeProblems(ho *huma.Operation, codes []string) {
	content := map[string]*huma.MediaType{problemContentType: {Schema: &huma.Schema{Ref: "#/components/schemas/" + problemSchema}}}
	ho.Responses["default"] = &huma.Response{Description: "A problem", Content: content}
	for _, code := range codes {
		status := a.statusOf(code)
		key := strconv.Itoa(status)
		if known := ho.Responses[key]; known != nil {
			known.Description += ", " + code
			continue
		}
		ho.Responses[key] = &huma.Response{Description: code, Content: content}
	}
}

func (a *API) statusOf(code string) int {
	for _, rule := range a.cfg.Errors {
		if rule.Code == code {
			return rule.Status
		}
	}
	for _, known := range kernelCodes {
		if known.Code == code {
			return known.Status
		}
	}
	panic("httpapi: no rule has the code " + code)
}
