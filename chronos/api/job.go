package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"holdfast/chronos"
	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
)

// job is a job as clients see it.
type job struct {
	Name          string            `json:"name"`
	Schedule      any               `json:"schedule" doc:"A cron expression, {\"every\": …} or {\"at\": …}"`
	Timezone      string            `json:"timezone"`
	Target        target            `json:"target"`
	Retry         retry             `json:"retry"`
	Overlap       chronos.Overlap   `json:"overlap"`
	CatchUp       catchUp           `json:"catch_up"`
	Jitter        httpapi.Duration  `json:"jitter"`
	StartAt       *httpapi.Time     `json:"start_at"`
	EndAt         *httpapi.Time     `json:"end_at"`
	MaxRuns       *int64            `json:"max_runs"`
	Exclude       []string          `json:"exclude" nullable:"false"`
	Priority      int               `json:"priority"`
	MaxConcurrent int               `json:"max_concurrent"`
	DSTGap        string            `json:"dst_gap"`
	DSTOverlap    string            `json:"dst_overlap"`
	DayMatch      string            `json:"day_match"`
	Labels        map[string]string `json:"labels"`
	Alerts        []shownRule       `json:"alerts" nullable:"false"`
	Paused        bool              `json:"paused"`

	PauseReason string         `json:"pause_reason,omitempty"`
	PausedAt    *httpapi.Time  `json:"paused_at,omitempty"`
	PausedUntil *httpapi.Time  `json:"paused_until,omitempty" doc:"When the pause ends by itself"`
	Unreadable  bool           `json:"unreadable,omitempty" doc:"This version can't read what is stored of the job: what is shown may lack something, and nothing is planned until it is put anew"`
	Skips       []httpapi.Time `json:"skips,omitempty" doc:"Instants to come that somebody asked to have skipped"`
	NextAt      *httpapi.Time  `json:"next_at" doc:"The next instant that hasn't been planned yet; runs are planned some seconds ahead"`
	Revision    int64          `json:"revision" doc:"Grows with every change"`
	CreatedAt   httpapi.Time   `json:"created_at"`
	UpdatedAt   httpapi.Time   `json:"updated_at"`
}

type target struct {
	Webhook *webhookTarget `json:"webhook,omitempty"`
	Pull    *pullTarget    `json:"pull,omitempty"`
}

type webhookTarget struct {
	URL     string            `json:"url"`
	Method  string            `json:"method"`
	Headers map[string]string `json:"headers"`
	Body    any               `json:"body"`
	Timeout httpapi.Duration  `json:"timeout"`
}

type pullTarget struct {
	Queue   string `json:"queue"`
	Payload any    `json:"payload,omitempty"`
}

type retry struct {
	MaxAttempts int              `json:"max_attempts"`
	Backoff     httpapi.Duration `json:"backoff"`
	MaxBackoff  httpapi.Duration `json:"max_backoff"`
}

type catchUp struct {
	Policy chronos.CatchUpPolicy `json:"policy"`
	Window httpapi.Duration      `json:"window"`
	Max    int                   `json:"max"`
}

func jobOf(j chronos.Job) job {
	s := j.Spec
	out := job{
		Name: j.Name, Schedule: timingOf(s.Schedule), Timezone: s.Timezone, Target: targetOf(s.Target),
		Retry:   retry{s.Retry.MaxAttempts, httpapi.Duration(s.Retry.Backoff), httpapi.Duration(s.Retry.MaxBackoff)},
		Overlap: s.Overlap, CatchUp: catchUp{s.CatchUp.Policy, httpapi.Duration(s.CatchUp.Window), s.CatchUp.Max},
		StartAt: httpapi.AtOrNull(s.StartAt), EndAt: httpapi.AtOrNull(s.EndAt), MaxRuns: s.MaxRuns,
		Jitter:  httpapi.Duration(s.Jitter),
		Exclude: orNone(s.Exclude), Priority: s.Priority, MaxConcurrent: s.MaxConcurrent, DSTGap: s.DSTGap, DSTOverlap: s.DSTOverlap, DayMatch: s.DayMatch,
		Labels: orEmpty(s.Labels), Alerts: showRules(s.Alerts),
		NextAt: httpapi.AtOrNull(j.NextAt), Revision: j.Revision, CreatedAt: httpapi.At(j.CreatedAt), UpdatedAt: httpapi.At(j.UpdatedAt),
	}
	out.PauseReason, out.Paused = j.Withheld()
	out.Unreadable = j.Unreadable()
	switch {
	case j.FaultyAt != nil:
		out.PausedAt = httpapi.AtOrNull(j.FaultyAt)
	case j.Paused:
		out.PausedAt, out.PausedUntil = httpapi.AtOrNull(j.PausedAt), httpapi.AtOrNull(j.PausedUntil)
	default:
		out.PauseReason = ""
	}
	for _, at := range j.Skips {
		out.Skips = append(out.Skips, httpapi.At(at))
	}
	return out
}

func orNone(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

func targetOf(t chronos.Target) target {
	if t.Pull != nil {
		return target{Pull: &pullTarget{t.Pull.Queue, orNothing(t.Pull.Payload)}}
	}
	if t.Webhook == nil {
		return target{}
	}
	w := &webhookTarget{t.Webhook.URL, t.Webhook.Method, orEmpty(t.Webhook.Headers), json.RawMessage("{}"), httpapi.Duration(t.Webhook.Timeout)}
	if t.Webhook.Body != nil {
		w.Body = t.Webhook.Body
	}
	return target{Webhook: w}
}

func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// JobPath names a job; it is exported because only then are its fields found where it is embedded.
type JobPath struct {
	Name string `path:"name"`
}

type putJobInput struct {
	JobPath
	Body jobBody
}

type postJobInput struct {
	Body jobBody
}

type listJobsInput struct {
	httpapi.ListParams
	Label  string `query:"label" maxLength:"400" doc:"key:value"`
	Paused string `query:"paused" enum:"true,false"`
	Text   string `query:"q" maxLength:"128" doc:"Part of the name"`
}

type pauseInput struct {
	JobPath
	Body *struct {
		Reason string        `json:"reason,omitempty" minLength:"1" maxLength:"500"`
		Until  *httpapi.Time `json:"until,omitempty" doc:"When the pause ends by itself"`
	}
}

type triggerInput struct {
	JobPath
	Body *struct {
		Payload setting[anyJSON] `json:"payload,omitempty" doc:"Delivered instead of the job's body"`
	}
}

func (s *server) registerJobs(a *httpapi.API) {
	const tag = "Jobs"
	refusals := []string{"invalid_schedule", "invalid_timezone", "schedule_in_past", "target_forbidden"}
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPut, Path: "/v1/jobs/{name}", Scope: apikey.Write, Summary: "Create or replace a job", Tag: tag,
		Description: "Members that are left out get their defaults, except `paused`, which stays as it is. The same job again changes nothing.",
		Also:        []int{http.StatusCreated}, Codes: refusals,
	}, s.putJob)
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPost, Path: "/v1/jobs", Scope: apikey.Write, Summary: "Create or replace a job by the name in the body", Tag: tag,
		Also: []int{http.StatusCreated}, Codes: refusals,
	}, s.postJob)
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPatch, Path: "/v1/jobs/{name}", Scope: apikey.Write, Summary: "Change a job in part", Tag: tag,
		Description: "Members that are left out stay as they are; null gives the default back.",
		Codes:       append([]string{"job_not_found", "unreadable"}, refusals...),
	}, s.patchJob)
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodGet, Path: "/v1/jobs/{name}", Scope: apikey.Read, Summary: "Get a job", Tag: tag, Codes: []string{"job_not_found"},
	}, func(ctx context.Context, in *JobPath) (job, error) {
		j, err := s.store.GetJob(ctx, httpapi.Tenant(ctx), in.Name)
		return answer(ctx, j, false, err, jobOf)
	})
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodDelete, Path: "/v1/jobs/{name}", Scope: apikey.Write, Summary: "Delete a job", Tag: tag,
		Description: "Its pending runs are cancelled, those in flight end; its history stays.", Codes: []string{"job_not_found"},
	}, func(ctx context.Context, in *JobPath) (httpapi.None, error) {
		return httpapi.None{}, s.store.DeleteJob(ctx, callerOf(ctx), in.Name)
	})
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodGet, Path: "/v1/jobs", Scope: apikey.Read, Summary: "List jobs", Tag: tag,
	}, s.listJobs)
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPost, Path: "/v1/jobs/{name}/pause", Scope: apikey.Write, Summary: "Pause a job", Tag: tag,
		Description: "Instants that come meanwhile are skipped. Runs that have begun go on, and triggers still run.", Codes: []string{"job_not_found", "unreadable"},
	}, s.pauseJob)
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPost, Path: "/v1/jobs/{name}/resume", Scope: apikey.Write, Summary: "Resume a job", Tag: tag, Codes: []string{"job_not_found", "unreadable"},
	}, func(ctx context.Context, in *JobPath) (job, error) {
		j, replayed, err := s.store.ResumeJob(ctx, callerOf(ctx), in.Name)
		return answer(ctx, j, replayed, err, jobOf)
	})
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPost, Path: "/v1/jobs/{name}/trigger", Scope: apikey.Write, Summary: "Run a job now", Tag: tag,
		Description: "It starts at once, paused or not and whatever else is going.",
		Status:      http.StatusAccepted, Codes: []string{"job_not_found", "unreadable"},
	}, s.triggerJob)
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPost, Path: "/v1/jobs/{name}/skip-next", Scope: apikey.Write, Summary: "Skip a job's next instant", Tag: tag,
		Description: "The next that would run is skipped; asked again, the one after it too.", Codes: []string{"job_not_found", "unreadable", "no_next_instant"},
	}, func(ctx context.Context, in *JobPath) (job, error) {
		j, replayed, err := s.store.SkipNext(ctx, callerOf(ctx), in.Name)
		return answer(ctx, j, replayed, err, jobOf)
	})
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPost, Path: "/v1/jobs/{name}/backfill", Scope: apikey.Write, Summary: "Run a job for a stretch of the past", Tag: tag,
		Description: "Each instant from `from` until before `to`, by the schedule as it is now, gets a run unless it had one, at most 10,000 at a time. " +
			"They wait behind everything that comes due. Asked again, only what is missing is made up for.",
		Status: http.StatusAccepted, Codes: []string{"job_not_found", "unreadable"},
	}, s.backfillJob)
}

func (s *server) putJob(ctx context.Context, in *putJobInput) (job, error) {
	if in.Body.Name.is() && *in.Body.Name.value != in.Name {
		return job{}, httpapi.Invalid("body.name", "differs from the name in the path")
	}
	return s.put(ctx, in.Name, &in.Body)
}

func (s *server) postJob(ctx context.Context, in *postJobInput) (job, error) {
	if !in.Body.Name.is() {
		return job{}, httpapi.Invalid("body.name", "is required")
	}
	return s.put(ctx, *in.Body.Name.value, &in.Body)
}

func (s *server) put(ctx context.Context, name string, body *jobBody) (job, error) {
	if err := chronos.CheckName(name); err != nil {
		return job{}, httpapi.Invalid("path.name", "must be 1 to 128 characters of A-Z a-z 0-9 . _ : -")
	}
	for member, missing := range map[string]bool{"schedule": !body.Schedule.is(), "target": !body.Target.is()} {
		if missing {
			return job{}, httpapi.Invalid("body."+member, "is required")
		}
	}
	spec := chronos.DefaultSpec()
	if err := body.apply(&spec); err != nil {
		return job{}, err
	}
	put, replayed, err := s.store.PutJob(ctx, callerOf(ctx), name, spec, body.Paused.value)
	if err == nil && put.Created {
		httpapi.SetStatus(ctx, http.StatusCreated)
	}
	return answer(ctx, put.Job, replayed, err, jobOf)
}

func (s *server) patchJob(ctx context.Context, in *putJobInput) (job, error) {
	if in.Body.Name.set && (!in.Body.Name.is() || *in.Body.Name.value != in.Name) {
		return job{}, httpapi.Invalid("body.name", "can't be changed")
	}
	j, replayed, err := s.store.EditJob(ctx, callerOf(ctx), in.Name, func(now chronos.Job) (chronos.Spec, *bool, error) {
		err := in.Body.apply(&now.Spec)
		return now.Spec, in.Body.Paused.value, err
	})
	return answer(ctx, j, replayed, err, jobOf)
}

func (s *server) listJobs(ctx context.Context, in *listJobsInput) (httpapi.Page[job], error) {
	const kind = "jobs"
	filter := chronos.JobFilter{Text: in.Text, Limit: in.Limit + 1}
	if _, err := in.After(kind, &filter.After); err != nil {
		return httpapi.Page[job]{}, err
	}
	if in.Label != "" {
		var ok bool
		if filter.LabelKey, filter.LabelValue, ok = cutLabel(in.Label); !ok {
			return httpapi.Page[job]{}, httpapi.Invalid("query.label", "must be key:value")
		}
	}
	if in.Paused != "" {
		paused := in.Paused == "true"
		filter.Paused = &paused
	}
	found, err := s.store.ListJobs(ctx, httpapi.Tenant(ctx), filter)
	if err != nil {
		return httpapi.Page[job]{}, err
	}
	jobs := make([]job, len(found))
	for i, j := range found {
		jobs[i] = jobOf(j)
	}
	return httpapi.NewPage(jobs, in.Limit, kind, func(last job) string { return last.Name }), nil
}

func cutLabel(label string) (key, value string, ok bool) {
	key, value, ok = strings.Cut(label, ":")
	return key, value, ok && key != ""
}

func (s *server) pauseJob(ctx context.Context, in *pauseInput) (job, error) {
	var (
		reason string
		until  *httpapi.Time
	)
	if in.Body != nil {
		reason, until = in.Body.Reason, in.Body.Until
	}
	caller := callerOf(ctx)
	if until == nil {
		j, replayed, err := s.store.PauseJob(ctx, caller, in.Name, reason, nil)
		return answer(ctx, j, replayed, err, jobOf)
	}
	j, replayed, err := s.store.PauseJob(ctx, caller, in.Name, reason, &until.Time)
	return answer(ctx, j, replayed, err, jobOf)
}

type backfillInput struct {
	JobPath
	Body struct {
		From httpapi.Time `json:"from" doc:"The first instant that counts"`
		To   httpapi.Time `json:"to" doc:"The first that doesn't any more; what is yet to come never does"`
	}
}

type backfill struct {
	Job      string       `json:"job"`
	From     httpapi.Time `json:"from"`
	To       httpapi.Time `json:"to"`
	Count    int          `json:"count" doc:"The instants of that time"`
	Created  int          `json:"created" doc:"The runs that were made for them"`
	Existing int          `json:"existing" doc:"The instants that had a run"`
	Excluded int          `json:"excluded" doc:"The instants that a calendar excludes"`
}

func (s *server) backfillJob(ctx context.Context, in *backfillInput) (backfill, error) {
	b, replayed, err := s.store.BackfillJob(ctx, callerOf(ctx), in.Name, in.Body.From.Time, in.Body.To.Time)
	return answer(ctx, b, replayed, err, func(b chronos.Backfill) backfill {
		return backfill{in.Name, httpapi.At(b.From), httpapi.At(b.To), b.Instants, b.Created, b.Existing, b.Excluded}
	})
}

func (s *server) triggerJob(ctx context.Context, in *triggerInput) (run, error) {
	var payload json.RawMessage
	if in.Body != nil && in.Body.Payload.is() {
		payload = json.RawMessage(in.Body.Payload.value.RawMessage)
	}
	r, replayed, err := s.store.TriggerJob(ctx, callerOf(ctx), in.Name, payload)
	return answer(ctx, r, replayed, err, runOf)
}
