package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"holdfast/chronos"
	"holdfast/chronos/cron"
	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
)

// calendar is a calendar as clients see it.
type calendar struct {
	Name      string       `json:"name"`
	Timezone  string       `json:"timezone"`
	Dates     []date       `json:"dates" nullable:"false"`
	CreatedAt httpapi.Time `json:"created_at"`
	UpdatedAt httpapi.Time `json:"updated_at"`
}

// date is one date, "2026-12-25", or {"from": …, "to": …}, both included.
type date struct{ cron.DateRange }

// Schema lets anything through, so that the calendar can say what is wrong in words.
func (date) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Description: `A date, or {"from": …, "to": …} with both included`,
		Examples:    []any{"2026-12-25", map[string]any{"from": "2026-12-24", "to": "2026-12-31"}},
	}
}

func (d date) MarshalJSON() ([]byte, error) {
	if d.To == "" {
		return json.Marshal(d.From)
	}
	return json.Marshal(map[string]string{"from": d.From, "to": d.To})
}

func calendarOf(c chronos.Calendar) calendar {
	out := calendar{c.Name, c.Timezone, make([]date, len(c.Dates)), httpapi.At(c.CreatedAt), httpapi.At(c.UpdatedAt)}
	for i, d := range c.Dates {
		out.Dates[i] = date{d}
	}
	return out
}

// CalendarPath names a calendar; it is exported because only then are its fields found where it is embedded.
type CalendarPath struct {
	Name string `path:"name"`
}

type putCalendarInput struct {
	CalendarPath
	Body calendarBody
}

// calendarBody is a calendar as clients write it.
type calendarBody struct {
	Name     string    `json:"name,omitempty" doc:"May be left out where the path has it"`
	Timezone string    `json:"timezone,omitempty" minLength:"1" doc:"Whose dates they are: a name of the zone database; UTC if left out"`
	Dates    []anyDate `json:"dates" nullable:"false" maxItems:"10000"`
}

// anyDate is a date as it comes.
type anyDate struct{ anyJSON }

// Schema describes a date.
func (anyDate) Schema(r huma.Registry) *huma.Schema { return date{}.Schema(r) }

func (d anyDate) parse(i int) (cron.DateRange, error) {
	var out cron.DateRange
	field := fmt.Sprintf("body.dates[%d]", i)
	if len(d.RawMessage) > 0 && d.RawMessage[0] == '"' {
		err := json.Unmarshal(d.RawMessage, &out.From)
		return out, err
	}
	var object map[string]any
	if err := json.Unmarshal(d.RawMessage, &object); err != nil || object == nil {
		return out, httpapi.Invalid(field, `must be a date such as "2026-12-25", or {"from": "2026-12-24", "to": "2026-12-31"}`)
	}
	for name, value := range object {
		text, ok := value.(string)
		switch {
		case ok && name == "from":
			out.From = text
		case ok && name == "to" && text != "":
			out.To = text
		case name == "from" || name == "to":
			return out, httpapi.Invalid(field+"."+name, "must be a date such as \"2026-12-25\"")
		default:
			return out, httpapi.Invalid(field+"."+name, "is unknown")
		}
	}
	if len(object) != 2 {
		return out, httpapi.Invalid(field, "must have both from and to")
	}
	return out, nil
}

func (s *server) registerCalendars(a *httpapi.API) {
	const tag = "Calendars"
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPut, Path: "/v1/calendars/{name}", Scope: apikey.Write, Summary: "Create or replace a calendar", Tag: tag,
		Description: "Days without runs, shared by the jobs that name it in `exclude`. What is planned of those is planned anew.",
		Also:        []int{http.StatusCreated}, Codes: []string{"invalid_calendar", "invalid_timezone"},
	}, s.putCalendar)
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodGet, Path: "/v1/calendars/{name}", Scope: apikey.Read, Summary: "Get a calendar", Tag: tag, Codes: []string{"calendar_not_found"},
	}, func(ctx context.Context, in *CalendarPath) (calendar, error) {
		c, err := s.store.GetCalendar(ctx, httpapi.Tenant(ctx), in.Name)
		return answer(ctx, c, false, err, calendarOf)
	})
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodDelete, Path: "/v1/calendars/{name}", Scope: apikey.Write, Summary: "Delete a calendar", Tag: tag,
		Description: "Refused while a job names it.", Codes: []string{"calendar_not_found", "calendar_in_use"},
	}, func(ctx context.Context, in *CalendarPath) (httpapi.None, error) {
		return httpapi.None{}, s.store.DeleteCalendar(ctx, callerOf(ctx), in.Name)
	})
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodGet, Path: "/v1/calendars", Scope: apikey.Read, Summary: "List calendars", Tag: tag,
	}, s.listCalendars)
}

func (s *server) putCalendar(ctx context.Context, in *putCalendarInput) (calendar, error) {
	if chronos.CheckName(in.Name) != nil {
		return calendar{}, httpapi.Invalid("path.name", "must be 1 to 128 characters of A-Z a-z 0-9 . _ : -")
	}
	if in.Body.Name != "" && in.Body.Name != in.Name {
		return calendar{}, httpapi.Invalid("body.name", "differs from the name in the path")
	}
	in.Body.Name = in.Name
	c, err := in.Body.calendar()
	if err != nil {
		return calendar{}, err
	}
	put, replayed, err := s.store.PutCalendar(ctx, callerOf(ctx), c)
	if err == nil && put.Created {
		httpapi.SetStatus(ctx, http.StatusCreated)
	}
	return answer(ctx, put.Calendar, replayed, err, calendarOf)
}

// calendar reads a calendar, unless something is wrong.
func (b *calendarBody) calendar() (chronos.Calendar, error) {
	c := chronos.Calendar{Name: b.Name, Timezone: b.Timezone, Dates: make([]cron.DateRange, len(b.Dates))}
	if c.Name == "" {
		return c, httpapi.Invalid("body.name", "is required")
	}
	if c.Timezone == "" {
		c.Timezone = chronos.DefaultTimezone
	}
	for i, d := range b.Dates {
		var err error
		if c.Dates[i], err = d.parse(i); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (s *server) listCalendars(ctx context.Context, in *httpapi.ListParams) (httpapi.Page[calendar], error) {
	const kind = "calendars"
	var after string
	if _, err := in.After(kind, &after); err != nil {
		return httpapi.Page[calendar]{}, err
	}
	found, err := s.store.ListCalendars(ctx, httpapi.Tenant(ctx), after, in.Limit+1)
	if err != nil {
		return httpapi.Page[calendar]{}, err
	}
	items := make([]calendar, len(found))
	for i, c := range found {
		items[i] = calendarOf(c)
	}
	return httpapi.NewPage(items, in.Limit, kind, func(last calendar) string { return last.Name }), nil
}
