package web

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
	"holdfast/internal/pg"
)

const (
	// pageTimeout bounds the making of one page, the wait for its turn included.
	pageTimeout = 5 * time.Second
	// pagesAtOnce is how many pages a replica makes at a time; others wait their turn.
	pagesAtOnce = 4
	retryAfter  = "2" // seconds
)

// policy lets a page load its own files, ask for itself, and nothing else.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// site is the pages of one service on one replica.
type site struct {
	service string // as people call it
	nav     []link
	keys    *apikey.Store // nil: no authentication
	now     func() time.Time
	absent  []error // what a handler may fail with because there is no such thing
	slots   chan struct{}
}

type link struct {
	Path, Text string
}

// visit is one request for a page.
type visit struct {
	*http.Request
	tenant string
	now    time.Time // the database's
}

// page is what a handler shows: a template, and what it is made of.
type page struct {
	name  string // of the template
	title string
	body  any
	still bool // doesn't ask for itself again, since making it may be much work
}

// view is what the layout shows. Body is the page's.
type view struct {
	Service string
	Title   string
	Path    string // of the entry of Nav that is shown as the current one
	Nav     []link
	Tenant  string // empty: unknown
	Now     time.Time
	Live    bool // asks for itself again
	Host    string
	Keys    bool // whether the API asks for a key
	Body    any
}

// failure is a page that can't be shown.
type failure struct {
	status int
	Title  string
	Text   string
	SignIn bool // a key would help
}

func (f *failure) Error() string { return f.Text }

func newSite(service string, keys *apikey.Store, now func() time.Time, nav []link, absent ...error) *site {
	return &site{service: service, keys: keys, now: now, nav: nav, absent: absent, slots: make(chan struct{}, pagesAtOnce)}
}

// mount adds the service's pages, by their patterns, and what belongs to them. What is asked for by one
// of the missing patterns gets a page that says so.
func (s *site) mount(face *httpapi.API, pages map[string]func(context.Context, visit) (page, error), missing ...string) {
	for pattern, show := range pages {
		face.Handle(pattern, s.handler(show))
	}
	for _, pattern := range missing {
		face.Handle(pattern, s.handler(func(context.Context, visit) (page, error) { return page{}, notFound }))
	}
	face.Handle("GET /assets/{name}", http.HandlerFunc(serveAsset))
}

var notFound = &failure{
	status: http.StatusNotFound, Title: "Not found",
	Text: "There is nothing here: it may have been deleted, belong to another tenant, or never have been.",
}

func (s *site) handler(show func(context.Context, visit) (page, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), pageTimeout)
		defer cancel()
		v := visit{Request: r, now: s.now().UTC()}
		p, err := s.answer(ctx, &v, show)
		status := http.StatusOK
		if err != nil {
			f := s.failureOf(r.Context(), err)
			status = f.status
			switch status {
			case http.StatusUnauthorized:
				w.Header().Set("WWW-Authenticate", `Basic realm="Holdfast `+s.service+`", charset="UTF-8"`)
			case http.StatusServiceUnavailable:
				w.Header().Set("Retry-After", retryAfter)
			}
			p = page{name: "failure", title: f.Title, body: f}
		}
		s.write(w, status, v, p)
	})
}

// answer lets the visit in, waits for a turn and makes the page's content.
func (s *site) answer(ctx context.Context, v *visit, show func(context.Context, visit) (page, error)) (page, error) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return page{}, ctx.Err()
	}
	who, err := s.identify(ctx, v.Request)
	if err != nil {
		return page{}, err
	}
	v.tenant = who.Tenant
	for _, values := range v.URL.Query() {
		for _, value := range values {
			if !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
				return page{}, unusable("The address has characters that can’t be in any name.")
			}
		}
	}
	return show(ctx, *v)
}

// identify finds out who looks, by the key that came as the password.
func (s *site) identify(ctx context.Context, r *http.Request) (apikey.Principal, error) {
	if s.keys == nil {
		return apikey.Anyone, nil
	}
	refusal := &failure{
		status: http.StatusUnauthorized, Title: "An API key is needed", SignIn: true,
		Text: "This dashboard shows what an API key may read. Reload the page, leave the user name as you like, and give the key as the password.",
	}
	_, secret, ok := r.BasicAuth()
	if !ok {
		return apikey.Principal{}, refusal
	}
	who, err := s.keys.Find(ctx, strings.TrimSpace(secret))
	switch {
	case errors.Is(err, apikey.ErrUnknown):
		refusal.Title = "The API key isn’t known"
		return apikey.Principal{}, refusal
	case err != nil:
		return apikey.Principal{}, err
	case !who.May(apikey.Read):
		return apikey.Principal{}, &failure{status: http.StatusForbidden, Title: "The API key may not read", Text: "This dashboard needs a key with the scope read."}
	}
	return who, nil
}

func unusable(text string) *failure {
	return &failure{status: http.StatusUnprocessableEntity, Title: "This address can’t be right", Text: text}
}

// failureOf says what people are told of an error; what nobody has foreseen is logged.
func (s *site) failureOf(ctx context.Context, err error) *failure {
	var told *failure
	if errors.As(err, &told) {
		return told
	}
	for _, absent := range s.absent {
		if errors.Is(err, absent) {
			return notFound
		}
	}
	var problem *httpapi.Problem
	if errors.As(err, &problem) {
		return &failure{status: problem.Status, Title: "This address can’t be right", Text: problem.Detail}
	}
	slog.WarnContext(ctx, "a page failed", "request_id", httpapi.RequestID(ctx), "error", err)
	switch {
	case pg.Unavailable(err), errors.Is(err, context.DeadlineExceeded):
		return &failure{
			status: http.StatusServiceUnavailable, Title: "Not available at the moment",
			Text: "The database can’t be reached, or is too busy to answer. Nothing that was acknowledged is lost.",
		}
	case errors.Is(err, context.Canceled):
		return &failure{status: http.StatusServiceUnavailable, Title: "Cut short", Text: "The request ended before the page was made."}
	}
	return &failure{
		status: http.StatusInternalServerError, Title: "Something went wrong here",
		Text: "The operator finds it in the log as request " + httpapi.RequestID(ctx) + ".",
	}
}

func (s *site) write(w http.ResponseWriter, status int, v visit, p page) {
	content := view{
		Service: s.service, Title: p.title, Path: v.URL.Path, Nav: s.nav, Tenant: v.tenant, Now: v.now,
		Live: status == http.StatusOK && !p.still || status == http.StatusServiceUnavailable, Host: v.Host, Keys: s.keys != nil, Body: p.body,
	}
	var buffer bytes.Buffer
	if err := templates[p.name].ExecuteTemplate(&buffer, "layout", content); err != nil {
		panic(err) // becomes a 500 problem: nothing has been sent yet
	}
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Cache-Control", "no-store")
	protect(header)
	w.WriteHeader(status)
	_, _ = w.Write(buffer.Bytes())
}

func protect(header http.Header) {
	header.Set("Content-Security-Policy", policy)
	header.Set("Referrer-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
}
