package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"holdfast/chronos"
	"holdfast/chronos/cron"
	"holdfast/chronos/crontab"
	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
)

const (
	// maxCrontab is how long a crontab may be, in bytes.
	maxCrontab = 4 << 20
	// importTimeout is enough for as many jobs as a crontab may have.
	importTimeout = 45 * time.Second
	// maxLineText is how much of a line is repeated in the answer, in bytes.
	maxLineText = 1 << 10
	// crontabQueue is where imported jobs wait for their workers unless the importer says otherwise.
	crontabQueue = "crontab"
)

const crontabDescription = "The body is a user's crontab, or with `system=true` the system's, in which a user stands before each command. The answer says " +
	"line by line what became of it; a refused line keeps none of the others back. Jobs are named after their commands, so that the same crontab again changes " +
	"nothing and an edited line changes its job. A line that has gone is left as a job.\n\n" +
	"Nothing here runs shell commands: a line becomes a job that workers pull from `queue`, with the payload `{command, stdin, user?, env}`. New jobs keep cron's " +
	"habits: runs may overlap, and nothing is repeated or made up for. An existing job gets the line's schedule, timezone and target, and keeps all else.\n\n" +
	"With `dry_run=true` the same is done and taken back."

type crontabInput struct {
	RawBody  []byte `contentType:"text/plain"`
	DryRun   string `query:"dry_run" enum:"true,false"`
	System   string `query:"system" enum:"true,false" doc:"A user stands before each command"`
	Timezone string `query:"timezone" doc:"Of lines that no CRON_TZ or TZ stands above; UTC if left out"`
	Queue    string `query:"queue" pattern:"^[A-Za-z0-9._:-]{1,128}$" patternDescription:"1 to 128 characters of A-Z a-z 0-9 . _ : -" doc:"Where workers pull from; crontab if left out"`
}

type crontabImport struct {
	DryRun  bool           `json:"dry_run"`
	Items   []crontabLine  `json:"items" nullable:"false" doc:"The lines that say something, in order"`
	Summary map[string]int `json:"summary" doc:"How many lines have which result"`
}

type crontabLine struct {
	Line        int           `json:"line"`
	Text        string        `json:"text" doc:"The first 1,024 bytes of it"`
	Name        string        `json:"name,omitempty"`
	Schedule    string        `json:"schedule,omitempty"`
	Timezone    string        `json:"timezone,omitempty"`
	Description string        `json:"description,omitempty"`
	Next        *httpapi.Time `json:"next,omitempty"`
	User        string        `json:"user,omitempty"`
	Command     string        `json:"command,omitempty"`
	Warnings    []string      `json:"warnings,omitempty"`
	Result      string        `json:"result" enum:"would_create,would_update,created,updated,unchanged,applied,ignored,refused" doc:"applied: a variable, for the lines below"`
	Field       string        `json:"field,omitempty" doc:"What was refused"`
	Reason      string        `json:"reason,omitempty"`
}

// shellCommand is what a worker gets.
type shellCommand struct {
	Command string            `json:"command"`
	Stdin   string            `json:"stdin"`
	User    string            `json:"user,omitempty"`
	Env     map[string]string `json:"env"`
}

func (s *server) registerCrontab(a *httpapi.API) {
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPost, Path: "/v1/imports/crontab", Scope: apikey.Write, Summary: "Import a crontab", Tag: "Jobs",
		Description: crontabDescription, MaxBody: maxCrontab, Timeout: importTimeout, Codes: []string{"invalid_timezone"},
	}, s.importCrontab)
}

func (s *server) importCrontab(ctx context.Context, in *crontabInput) (crontabImport, error) {
	lines, err := crontab.Parse(string(in.RawBody), crontab.Options{System: in.System == "true", Timezone: in.Timezone})
	if err != nil {
		return crontabImport{}, crontabProblem(err)
	}
	if in.Queue == "" {
		in.Queue = crontabQueue
	}
	out := crontabImport{DryRun: in.DryRun == "true", Items: make([]crontabLine, len(lines)), Summary: map[string]int{}}
	var (
		jobs []chronos.NewJob
		at   []int // which line each is
	)
	for i, l := range lines {
		out.Items[i] = lineOf(&l)
		if l.Kind != crontab.Entry {
			continue
		}
		payload, err := json.Marshal(shellCommand{l.Job.Command, l.Job.Stdin, l.Job.User, l.Job.Env})
		if err != nil {
			return crontabImport{}, err
		}
		jobs, at = append(jobs, newJob(l.Job, in.Queue, payload)), append(at, i)
	}
	done, replayed, err := s.store.ImportJobs(ctx, callerOf(ctx), jobs, out.DryRun)
	if err != nil {
		return crontabImport{}, err
	}
	for i, d := range done {
		out.Items[at[i]].become(d, out.DryRun)
	}
	for _, item := range out.Items {
		out.Summary[item.Result]++
	}
	httpapi.SetReplayed(ctx, replayed)
	return out, nil
}

// crontabProblem places what is wrong with a crontab as a whole.
func crontabProblem(err error) error {
	var zone *cron.Error
	if !errors.As(err, &zone) {
		return httpapi.Invalid("body", "%v", err)
	}
	p := httpapi.Invalid("query.timezone", "%q %s", zone.Value, zone.Reason)
	p.Code = "invalid_timezone"
	return p
}

func lineOf(l *crontab.Line) crontabLine {
	text := l.Text
	if len(text) > maxLineText {
		text = text[:maxLineText]
	}
	out := crontabLine{Line: l.Number, Text: strings.ToValidUTF8(text, "�"), Field: l.Field, Reason: l.Reason}
	switch l.Kind {
	case crontab.Entry:
		out.Name, out.Schedule, out.Timezone = l.Job.Name, l.Job.Schedule, l.Job.Timezone
		out.User, out.Command, out.Warnings = l.Job.User, l.Job.Command, l.Job.Warnings
	case crontab.Variable:
		out.Result = "applied"
	case crontab.Ignored:
		out.Result = "ignored"
	case crontab.Refused:
		out.Result = "refused"
	}
	return out
}

// newJob is a line as a job. What cron does and the defaults of a job don't is set once, when
// the job is made: its owner may have other plans with it.
func newJob(j *crontab.Job, queue string, payload json.RawMessage) chronos.NewJob {
	return chronos.NewJob{Name: j.Name, Edit: func(spec *chronos.Spec, exists bool) {
		spec.Schedule = chronos.Timing{Expression: j.Schedule}
		spec.Timezone = j.Timezone
		spec.Target = chronos.Target{Pull: &chronos.Pull{Queue: queue, Payload: payload}}
		if exists {
			return
		}
		spec.Overlap = chronos.OverlapAllow
		spec.CatchUp.Policy = chronos.CatchUpNone
		spec.Retry.MaxAttempts = 1
		spec.Labels = map[string]string{"source": "crontab"}
	}}
}

func (l *crontabLine) become(d chronos.Imported, dryRun bool) {
	switch {
	case d.Refused != "":
		l.Result, l.Field, l.Reason = "refused", d.Field, d.Refused
		return
	case d.Created && dryRun:
		l.Result = "would_create"
	case d.Created:
		l.Result = "created"
	case d.Changed && dryRun:
		l.Result = "would_update"
	case d.Changed:
		l.Result = "updated"
	default:
		l.Result = "unchanged"
	}
	l.Description, l.Warnings = d.Description, append(l.Warnings, d.Warnings...)
	if d.Next != nil {
		at := httpapi.At(d.Next.At)
		l.Next = &at
	}
}
