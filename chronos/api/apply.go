package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"holdfast/chronos"
	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
)

const (
	// maxSet is how long a set's body may be, in bytes.
	maxSet = 16 << 20
	// applyTimeout is enough for as many jobs as a set may have.
	applyTimeout = 60 * time.Second
)

const applyDescription = "Jobs, calendars that they exclude, and monitors become what the body says: all of it, or nothing if anything can't be as it is to be. Members that are left " +
	"out have their defaults, and `paused` stays as it is, as in `PUT /v1/jobs/{name}`. The same again changes nothing.\n\n" +
	"Each job gets the label `" + chronos.SetLabel + "` with the name of the set. `prune` deletes the jobs that have it and aren't among `jobs`; without it they are listed as `left`. A job that " +
	"has another set's label is refused. Calendars and monitors belong to no set and are never deleted.\n\n" +
	"With `dry_run=true` the same is done and taken back. Its `plan`, given as `expect`, makes sure that the same is done then: otherwise the answer is 409 `plan_changed`."

type applyInput struct {
	DryRun string `query:"dry_run" enum:"true,false"`
	Body   struct {
		Set       string         `json:"set" pattern:"^[A-Za-z0-9._:-]{1,128}$" patternDescription:"1 to 128 characters of A-Z a-z 0-9 . _ : -"`
		Prune     bool           `json:"prune,omitempty"`
		Expect    string         `json:"expect,omitempty" maxLength:"64"`
		Calendars []calendarBody `json:"calendars,omitempty" maxItems:"1000"`
		Monitors  []monitorBody  `json:"monitors,omitempty" maxItems:"1000"`
		Jobs      []jobBody      `json:"jobs,omitempty" maxItems:"10000"`
	}
}

type applied struct {
	DryRun    bool              `json:"dry_run"`
	Plan      string            `json:"plan" doc:"Stands for what is to be done, and what that follows from"`
	Calendars []appliedCalendar `json:"calendars" nullable:"false"`
	Monitors  []appliedMonitor  `json:"monitors" nullable:"false"`
	Jobs      []appliedJob      `json:"jobs" nullable:"false"`
	Summary   map[string]int    `json:"summary" doc:"How many have which action"`
}

type appliedJob struct {
	Name   string         `json:"name"`
	Action chronos.Action `json:"action" enum:"create,change,unchanged,prune,left"`
	Before *job           `json:"before,omitempty"`
	After  *job           `json:"after,omitempty"`
}

type appliedMonitor struct {
	Name   string         `json:"name"`
	Action chronos.Action `json:"action" enum:"create,change,unchanged"`
	Before *monitor       `json:"before,omitempty"`
	After  *monitor       `json:"after,omitempty"`
}

type appliedCalendar struct {
	Name   string         `json:"name"`
	Action chronos.Action `json:"action" enum:"create,change,unchanged"`
	Before *calendar      `json:"before,omitempty"`
	After  *calendar      `json:"after,omitempty"`
}

func (s *server) registerApply(a *httpapi.API) {
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPost, Path: "/v1/apply", Scope: apikey.Write, Summary: "Make jobs what a set says", Tag: "Jobs",
		Description: applyDescription, MaxBody: maxSet, Timeout: applyTimeout, Codes: []string{"plan_changed"},
	}, s.apply)
}

func (s *server) apply(ctx context.Context, in *applyInput) (applied, error) {
	set, err := setOf(in)
	if err != nil {
		return applied{}, err
	}
	dryRun := in.DryRun == "true"
	done, replayed, err := s.store.Apply(ctx, callerOf(ctx), set, dryRun)
	var refused *chronos.SetError
	if errors.As(err, &refused) {
		return applied{}, setProblem(refused)
	}
	return answer(ctx, done, replayed, err, func(d chronos.Applied) applied { return appliedOf(d, dryRun) })
}

// setOf reads a set, or finds all that is wrong with how it is written.
func setOf(in *applyInput) (chronos.Set, error) {
	set := chronos.Set{Name: in.Body.Set, Prune: in.Body.Prune, Expect: in.Body.Expect}
	faults := &chronos.SetError{}
	fault := func(list chronos.List, i int, err error) {
		if err != nil {
			faults.Faults = append(faults.Faults, chronos.Fault{List: list, Index: i, Err: err})
		}
	}
	seen := map[string]bool{}
	for i, body := range in.Body.Calendars {
		c, err := body.calendar()
		if err == nil && seen[c.Name] {
			err = httpapi.Invalid("body.name", "is there twice")
		}
		seen[c.Name] = true
		fault(chronos.Calendars, i, err)
		set.Calendars = append(set.Calendars, c)
	}
	clear(seen)
	for i := range in.Body.Monitors {
		body := &in.Body.Monitors[i]
		spec, err := body.spec()
		switch {
		case body.Name == "":
			err = httpapi.Invalid("body.name", "is required")
		case err == nil && seen[body.Name]:
			err = httpapi.Invalid("body.name", "is there twice")
		}
		seen[body.Name] = true
		fault(chronos.Monitors, i, err)
		set.Monitors = append(set.Monitors, chronos.SetMonitor{Name: body.Name, Spec: spec})
	}
	clear(seen)
	for i := range in.Body.Jobs {
		body := &in.Body.Jobs[i]
		j := chronos.SetJob{Spec: chronos.DefaultSpec(), Paused: body.Paused.value}
		switch {
		case !body.Name.is():
			fault(chronos.Jobs, i, httpapi.Invalid("body.name", "is required"))
		case !body.Schedule.is():
			fault(chronos.Jobs, i, httpapi.Invalid("body.schedule", "is required"))
		case !body.Target.is():
			fault(chronos.Jobs, i, httpapi.Invalid("body.target", "is required"))
		default:
			j.Name = *body.Name.value
			err := body.apply(&j.Spec)
			if err == nil && seen[j.Name] {
				err = httpapi.Invalid("body.name", "is there twice")
			}
			seen[j.Name] = true
			fault(chronos.Jobs, i, err)
		}
		set.Jobs = append(set.Jobs, j)
	}
	if len(faults.Faults) > 0 {
		return set, setProblem(faults)
	}
	return set, nil
}

// setProblem places what is wrong with parts of a set in its body.
func setProblem(refused *chronos.SetError) *httpapi.Problem {
	var found []httpapi.FieldError
	for _, f := range refused.Faults {
		at := fmt.Sprintf("body.%s[%d]", f.List, f.Index)
		var (
			bad  *chronos.FieldError
			told *httpapi.Problem
		)
		switch {
		case errors.As(f.Err, &told) && len(told.Errors) > 0:
			found = append(found, httpapi.FieldError{Location: at + strings.TrimPrefix(told.Errors[0].Location, "body"), Message: told.Errors[0].Message})
		case errors.As(f.Err, &bad):
			found = append(found, httpapi.FieldError{Location: at + "." + bad.Field, Message: bad.Reason})
		default:
			found = append(found, httpapi.FieldError{Location: at, Message: f.Err.Error()})
		}
	}
	p := httpapi.Invalid(found[0].Location, "%s", found[0].Message)
	if len(found) > 1 {
		p.Detail += fmt.Sprintf(" (and %d more)", len(found)-1)
	}
	p.Errors = found[:min(len(found), maxTold)]
	return p
}

// maxTold bounds the faults of a set that are told.
const maxTold = 200

func appliedOf(d chronos.Applied, dryRun bool) applied {
	out := applied{
		DryRun: dryRun, Plan: d.Plan, Summary: map[string]int{},
		Calendars: make([]appliedCalendar, len(d.Calendars)), Monitors: make([]appliedMonitor, len(d.Monitors)), Jobs: make([]appliedJob, len(d.Jobs)),
	}
	for i, c := range d.Calendars {
		out.Calendars[i] = appliedCalendar{c.Name, c.Action, shown(c.Before, calendarOf), shown(c.After, calendarOf)}
		out.Summary[string(c.Action)]++
	}
	for i, m := range d.Monitors {
		out.Monitors[i] = appliedMonitor{m.Name, m.Action, shown(m.Before, monitorOf), shown(m.After, monitorOf)}
		out.Summary[string(m.Action)]++
	}
	for i, j := range d.Jobs {
		out.Jobs[i] = appliedJob{j.Name, j.Action, shown(j.Before, jobOf), shown(j.After, jobOf)}
		out.Summary[string(j.Action)]++
	}
	return out
}

func shown[T, O any](value *T, show func(T) O) *O {
	if value == nil {
		return nil
	}
	out := show(*value)
	return &out
}
