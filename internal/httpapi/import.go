package httpapi

import (
	"context"
	"crypto/sha256"
	"hash"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// RegisterImport adds an operation whose body is read bit by bit, however long it is, and may be answered
// while it still comes. Its context has no deadline; what bounds it is that each reading
// and each writing must get on within Config.BodyTimeout. It has a slot like a stream ([Op.Long]),
// goes on during a drain, and should watch [Draining]. Op.MaxBody bounds the body; zero means no bound.
//
// The content types that it takes are told to the handler by [Import.ContentType]; others are 415. The
// input's fields are those of path, query and headers. The handler's answer is what it
// writes to the Import; an error before its first byte becomes a problem, one after it ends the
// connection, so that half an answer doesn't look whole: what a client should learn goes into the answer.
//
// [IdempotencyKey] has no Body here, since nobody knows it before it has come: see [Import.Sum].
func RegisterImport[I any](a *API, op Op, takes []string, answers string, handle func(context.Context, *I, *Import) error) {
	unbounded := op.MaxBody == 0
	op.Long, op.Timeout = true, -1
	if op.Status == 0 {
		op.Status = http.StatusOK
	}
	rt := newRoute(op, reflect.TypeFor[I]())
	if rt.body != noBody {
		panic("httpapi: " + op.Method + " " + op.Path + " is an import, whose input has no body")
	}
	if rt.body = streamedBody; unbounded {
		rt.op.MaxBody = -1
	}
	ho := a.describe(rt)
	ho.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{}}
	for _, contentType := range takes {
		ho.RequestBody.Content[contentType] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
	}
	schema := &huma.Schema{Type: huma.TypeString}
	if op.Answer != nil {
		schema = a.huma.OpenAPI().Components.Schemas.Schema(op.Answer, true, ho.OperationID+"-answer")
	}
	for _, status := range append([]int{op.Status}, op.Also...) {
		ho.Responses[strconv.Itoa(status)].Content = map[string]*huma.MediaType{answers: {Schema: schema}}
	}
	type body struct{ Body func(huma.Context) }
	huma.Register(a.huma, ho, func(ctx context.Context, in *I) (*body, error) {
		return &body{func(hc huma.Context) {
			r, w := humago.Unwrap(hc)
			rec := w.(*recorder)
			im, err := a.newImport(rt, rec, r, takes, answers)
			if err == nil {
				err = handle(ctx, in, im)
			}
			defer im.discard(r)
			switch {
			case err != nil && !rec.begun():
				a.problemOf(ctx, err).write(rec)
			case err != nil:
				a.logFailure(ctx, slog.LevelWarn, CodeBodyIncomplete, err)
				im.ended = true
				panic(http.ErrAbortHandler)
			case !rec.begun():
				rec.WriteHeader(op.Status)
			}
		}}, nil
	})
}

// Import is a body on its way in, and the answer to it on its way out. One goroutine
// at a time may use it.
type Import struct {
	// ContentType is the body's, one of those that the operation takes.
	ContentType string

	rec     *recorder
	rc      *http.ResponseController
	body    io.Reader
	query   string
	status  int
	timeout time.Duration
	limit   int64 // less than 0: none
	read    int64
	ended   bool // there is nothing more to read
	sum     hash.Hash
}

func (a *API) newImport(rt *route, rec *recorder, r *http.Request, takes []string, answers string) (*Import, error) {
	contentType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	im := &Import{
		ContentType: contentType, rec: rec, rc: http.NewResponseController(rec.ResponseWriter), body: r.Body, query: r.URL.RawQuery,
		status: rt.op.Status, timeout: a.cfg.BodyTimeout, limit: rt.op.MaxBody, sum: sha256.New(),
	}
	// Otherwise net/http throws the rest of the body away at the answer's first byte.
	_ = im.rc.EnableFullDuplex() // HTTP/2 always is
	switch {
	case err != nil || !slices.Contains(takes, contentType):
		return im, &Problem{
			Status: http.StatusUnsupportedMediaType, Code: CodeUnsupportedType,
			Detail: "The Content-Type of the body must be " + strings.Join(takes, " or ") + ".",
		}
	case r.ContentLength == 0:
		return im, bodyRequired
	case im.limit >= 0 && r.ContentLength > im.limit:
		return im, bodyTooLarge(im.limit)
	}
	rec.Header().Set("Content-Type", answers)
	return im, nil
}

// What is read of a body after it has been answered, so that most clients have sent theirs and read the answer
// instead of a broken connection.
const (
	discardBody = 64 << 20
	discardTime = 5 * time.Second
)

func (im *Import) discard(r *http.Request) {
	if im.ended || im.read == 0 && r.Header.Get("Expect") != "" {
		return
	}
	_ = im.Flush()
	_ = im.rc.SetReadDeadline(time.Now().Add(discardTime))
	_, _ = io.CopyN(io.Discard, im.body, discardBody)
}

// Read reads on in the body. It fails with io.EOF at its end, and with a [Problem] when no byte has come
// for Config.BodyTimeout, when the body is cut short, or when it is too long.
func (im *Import) Read(p []byte) (int, error) {
	_ = im.rc.SetReadDeadline(time.Now().Add(im.timeout))
	n, err := im.body.Read(p)
	im.sum.Write(p[:n])
	im.read += int64(n)
	im.ended = err != nil
	switch {
	case im.limit >= 0 && im.read > im.limit:
		return n, bodyTooLarge(im.limit)
	case err != nil && err != io.EOF:
		return n, bodyFault(err)
	}
	return n, err
}

// Sum is the hash of all that has been read, as an [idempotency.Key] has it: of the body
// and the query.
func (im *Import) Sum() [sha256.Size]byte {
	h := im.sum
	if im.query != "" {
		clone, err := h.(hash.Cloner).Clone()
		if err != nil {
			panic(err) // SHA-256 can be cloned
		}
		h = clone
		h.Write([]byte{'\n'})
		h.Write([]byte(canonicalQuery(im.query)))
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Write writes on in the answer, which begins with the first call. A client that reads
// nothing for Config.BodyTimeout loses its connection. Some clients don't read until they have sent
// everything: as much as fits into the connection's buffers, at least some 100 KiB, may be written until then.
func (im *Import) Write(p []byte) (int, error) {
	_ = im.rc.SetWriteDeadline(time.Now().Add(im.timeout))
	if !im.rec.begun() {
		if im.rec.rq.replayed {
			im.rec.Header().Set(replayedHeader, "true")
		}
		im.rec.WriteHeader(im.status)
	}
	return im.rec.Write(p)
}

// Flush sends what has been written.
func (im *Import) Flush() error {
	_ = im.rc.SetWriteDeadline(time.Now().Add(im.timeout))
	return im.rc.Flush()
}

// ProblemOf is what a client would be told of err. It is for answers that have begun, and have to tell
// of it in their own way.
func (a *API) ProblemOf(ctx context.Context, err error) *Problem { return a.problemOf(ctx, err) }
