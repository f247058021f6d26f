package api

import (
	"bytes"
	"encoding/json"
	"time"

	"holdfast/chronos"
	"holdfast/internal/httpapi"
	"holdfast/webhook"
)

// jobBody is a job as clients write it, whole or in part.
type jobBody struct {
	Name          setting[string]             `json:"name,omitempty" pattern:"^[A-Za-z0-9._:-]{1,128}$" patternDescription:"1 to 128 characters of A-Z a-z 0-9 . _ : -"`
	Schedule      setting[timing]             `json:"schedule,omitempty"`
	Timezone      setting[string]             `json:"timezone,omitempty" doc:"A name of the zone database; UTC if left out"`
	Target        setting[targetBody]         `json:"target,omitempty"`
	Retry         setting[retryBody]          `json:"retry,omitempty"`
	Overlap       setting[string]             `json:"overlap,omitempty" enum:"allow,skip,queue,replace"`
	CatchUp       setting[catchUpBody]        `json:"catch_up,omitempty"`
	Jitter        setting[httpapi.Duration]   `json:"jitter,omitempty" doc:"Each instant starts later by less than this, always by as much"`
	StartAt       setting[httpapi.Time]       `json:"start_at,omitempty" doc:"The first instant that counts"`
	EndAt         setting[httpapi.Time]       `json:"end_at,omitempty" doc:"The first instant that doesn't count any more"`
	MaxRuns       setting[int64]              `json:"max_runs,omitempty" minimum:"1" maximum:"1000000000"`
	Exclude       setting[[]string]           `json:"exclude,omitempty" maxItems:"16" doc:"Names of calendars: on their days it doesn't run"`
	Priority      setting[int]                `json:"priority,omitempty" minimum:"0" maximum:"9" doc:"Higher first"`
	MaxConcurrent setting[int]                `json:"max_concurrent,omitempty" minimum:"1" maximum:"1000" doc:"How many runs may be going before overlap has a say"`
	DSTGap        setting[string]             `json:"dst_gap,omitempty" enum:"run,skip"`
	DSTOverlap    setting[string]             `json:"dst_overlap,omitempty" enum:"once,twice"`
	DayMatch      setting[string]             `json:"day_match,omitempty" enum:"any,all"`
	Labels        setting[map[string]*string] `json:"labels,omitempty"`
	Alerts        setting[[]alertRule]        `json:"alerts,omitempty" maxItems:"10" doc:"Whom to tell when it goes wrong, or right again"`
	Paused        setting[bool]               `json:"paused,omitempty"`
}

type targetBody struct {
	Webhook setting[webhookBody] `json:"webhook,omitempty"`
	Pull    setting[pullBody]    `json:"pull,omitempty"`
}

type webhookBody struct {
	URL     setting[string]             `json:"url,omitempty"`
	Method  setting[string]             `json:"method,omitempty" enum:"GET,POST,PUT,PATCH,DELETE"`
	Headers setting[map[string]*string] `json:"headers,omitempty"`
	Body    setting[anyJSON]            `json:"body,omitempty" doc:"Delivered as it is; if left out, null or {}: {id, job, attempt, scheduled_for}"`
	Timeout setting[httpapi.Duration]   `json:"timeout,omitempty"`
}

type pullBody struct {
	Queue   string           `json:"queue,omitempty" doc:"default if left out"`
	Payload setting[anyJSON] `json:"payload,omitempty" doc:"What a worker gets with each run; if left out or null, nothing"`
}

type retryBody struct {
	MaxAttempts setting[int]              `json:"max_attempts,omitempty" minimum:"1" maximum:"100"`
	Backoff     setting[httpapi.Duration] `json:"backoff,omitempty"`
	MaxBackoff  setting[httpapi.Duration] `json:"max_backoff,omitempty"`
}

type catchUpBody struct {
	Policy setting[string]           `json:"policy,omitempty" enum:"none,latest,all"`
	Window setting[httpapi.Duration] `json:"window,omitempty"`
	Max    setting[int]              `json:"max,omitempty" minimum:"1" maximum:"10000"`
}

// defaultQueue is the queue of who doesn't name one.
const defaultQueue = "default"

// apply changes spec as the body says: members that are left out stay, null gives the default back.
func (b *jobBody) apply(spec *chronos.Spec) error {
	def := chronos.DefaultSpec()
	if b.Schedule.set {
		if !b.Schedule.is() {
			return httpapi.Invalid("body.schedule", "can't be null")
		}
		var err error
		if spec.Schedule, err = b.Schedule.value.parse(); err != nil {
			return err
		}
	}
	if b.Target.set {
		if err := b.applyTarget(&spec.Target); err != nil {
			return err
		}
	}
	b.Timezone.into(&spec.Timezone, def.Timezone)
	b.DayMatch.into(&spec.DayMatch, def.DayMatch)
	b.DSTGap.into(&spec.DSTGap, def.DSTGap)
	b.DSTOverlap.into(&spec.DSTOverlap, def.DSTOverlap)
	b.Priority.into(&spec.Priority, def.Priority)
	b.MaxConcurrent.into(&spec.MaxConcurrent, def.MaxConcurrent)
	duration(b.Jitter, &spec.Jitter, def.Jitter)
	b.Exclude.into(&spec.Exclude, nil)
	if len(spec.Exclude) == 0 {
		spec.Exclude = nil
	}
	word(b.Overlap, &spec.Overlap, def.Overlap)
	optional(b.MaxRuns, &spec.MaxRuns, func(n int64) int64 { return n })
	optional(b.StartAt, &spec.StartAt, func(t httpapi.Time) time.Time { return t.Time })
	optional(b.EndAt, &spec.EndAt, func(t httpapi.Time) time.Time { return t.Time })
	spec.Labels = merged(b.Labels, spec.Labels)
	if b.Alerts.set {
		var err error
		if spec.Alerts, err = rulesOf(b.Alerts.value); err != nil {
			return err
		}
	}
	b.applyRetry(&spec.Retry, def.Retry)
	b.applyCatchUp(&spec.CatchUp, def.CatchUp)
	return nil
}

func (b *jobBody) applyRetry(r *chronos.Retry, def chronos.Retry) {
	if b.Retry.set && !b.Retry.is() {
		*r = def
	}
	if b.Retry.is() {
		b.Retry.value.MaxAttempts.into(&r.MaxAttempts, def.MaxAttempts)
		duration(b.Retry.value.Backoff, &r.Backoff, def.Backoff)
		duration(b.Retry.value.MaxBackoff, &r.MaxBackoff, def.MaxBackoff)
	}
}

func (b *jobBody) applyCatchUp(c *chronos.CatchUp, def chronos.CatchUp) {
	if b.CatchUp.set && !b.CatchUp.is() {
		*c = def
	}
	if b.CatchUp.is() {
		word(b.CatchUp.value.Policy, &c.Policy, def.Policy)
		duration(b.CatchUp.value.Window, &c.Window, def.Window)
		b.CatchUp.value.Max.into(&c.Max, def.Max)
	}
}

// applyTarget changes a webhook in part, or puts one kind of target in the place of the other.
func (b *jobBody) applyTarget(t *chronos.Target) error {
	if !b.Target.is() {
		return httpapi.Invalid("body.target", "can't be null")
	}
	hook, pull := b.Target.value.Webhook, b.Target.value.Pull
	if hook.is() == pull.is() {
		return httpapi.Invalid("body.target", "must have one of webhook and pull")
	}
	if pull.is() {
		p := chronos.Pull{Queue: defaultQueue}
		if t.Pull != nil {
			p = *t.Pull
		}
		if pull.value.Queue != "" {
			p.Queue = pull.value.Queue
		}
		if payload := pull.value.Payload; payload.set {
			p.Payload = nil
			if payload.is() {
				p.Payload = json.RawMessage(payload.value.RawMessage)
			}
		}
		*t = chronos.Target{Pull: &p}
		return nil
	}
	w := chronos.Webhook{Method: "POST", Timeout: webhook.DefaultTimeout}
	if t.Webhook != nil {
		w = *t.Webhook
	}
	*t = chronos.Target{Webhook: &w}
	hook.value.URL.into(&w.URL, "")
	hook.value.Method.into(&w.Method, "POST")
	duration(hook.value.Timeout, &w.Timeout, webhook.DefaultTimeout)
	w.Headers = merged(hook.value.Headers, w.Headers)
	if body := hook.value.Body; body.set {
		w.Body = nil
		if body.is() && !isEmptyObject(body.value.RawMessage) {
			w.Body = json.RawMessage(body.value.RawMessage)
		}
	}
	return nil
}

func isEmptyObject(text []byte) bool {
	var compact bytes.Buffer
	return json.Compact(&compact, text) == nil && compact.String() == "{}"
}

// word is a setting whose type in the spec is a word of its own.
func word[T ~string](s setting[string], target *T, def T) {
	text := string(*target)
	s.into(&text, string(def))
	*target = T(text)
}

func duration(s setting[httpapi.Duration], target *time.Duration, def time.Duration) {
	d := httpapi.Duration(*target)
	s.into(&d, httpapi.Duration(def))
	*target = time.Duration(d)
}

// optional is a setting whose default is that there is none.
func optional[T, V any](s setting[T], target **V, convert func(T) V) {
	switch {
	case !s.set:
	case s.value == nil:
		*target = nil
	default:
		v := convert(*s.value)
		*target = &v
	}
}

// merged is m with what the setting says: null for a name takes it away, null for all empties it.
func merged(s setting[map[string]*string], m map[string]string) map[string]string {
	if !s.set {
		return m
	}
	out := map[string]string{}
	if !s.is() {
		return nil
	}
	for name, value := range m {
		out[name] = value
	}
	for name, value := range *s.value {
		if value == nil {
			delete(out, name)
		} else {
			out[name] = *value
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}
