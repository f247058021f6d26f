package api

import (
	"context"
	"net/http"

	"holdfast/chronos"
	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
)

type instant struct {
	At    httpapi.Time `json:"at"`
	Local string       `json:"local" doc:"In the schedule's timezone, with its offset"`
	Note  string       `json:"note,omitempty" doc:"Why this isn't an ordinary instant"`
}

type upcomingInstant struct {
	At          httpapi.Time `json:"at" doc:"The nominal instant"`
	EffectiveAt httpapi.Time `json:"effective_at" doc:"The instant with jitter"`
	Local       string       `json:"local" doc:"In the job's timezone, with its offset"`
	Note        string       `json:"note,omitempty" doc:"Why this isn't an ordinary instant, beginning with a stable word: gap, overlap, excluded, paused, skip_next"`
}

type previewInput struct {
	Body struct {
		Schedule   timing        `json:"schedule"`
		Timezone   string        `json:"timezone,omitempty" minLength:"1"`
		From       *httpapi.Time `json:"from,omitempty" doc:"Excluded, and what every is counted from; now if left out"`
		Count      int           `json:"count,omitempty" minimum:"1" maximum:"1000" default:"10"`
		Seed       string        `json:"seed,omitempty" maxLength:"128" doc:"Stands for the job's name in H"`
		DayMatch   string        `json:"day_match,omitempty" enum:"any,all"`
		DSTGap     string        `json:"dst_gap,omitempty" enum:"run,skip"`
		DSTOverlap string        `json:"dst_overlap,omitempty" enum:"once,twice"`
	}
}

type preview struct {
	Times       []instant `json:"times" nullable:"false"`
	Description string    `json:"description" doc:"The schedule in words"`
	Warnings    []string  `json:"warnings" nullable:"false" doc:"What may not be meant"`
}

type upcomingInput struct {
	JobPath
	Count int `query:"count" minimum:"1" maximum:"1000" default:"10"`
}

type upcoming struct {
	Items []upcomingInstant `json:"items" nullable:"false"`
}

func (s *server) registerSchedules(a *httpapi.API) {
	const tag = "Schedules"
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPost, Path: "/v1/schedules/preview", Scope: apikey.Read, Summary: "Preview a schedule", Tag: tag,
		Description: "Computed by what plans runs. It changes nothing.", Codes: []string{"invalid_schedule", "invalid_timezone"},
	}, s.preview)
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodGet, Path: "/v1/jobs/{name}/upcoming", Scope: apikey.Read, Summary: "List a job's next instants", Tag: tag,
		Codes: []string{"job_not_found", "unreadable"},
	}, s.upcoming)
}

func (s *server) preview(_ context.Context, in *previewInput) (preview, error) {
	b := in.Body
	timing, err := b.Schedule.parse()
	if err != nil {
		return preview{}, err
	}
	spec := chronos.DefaultSpec()
	spec.Schedule = timing
	for _, given := range []struct {
		value string
		into  *string
	}{{b.Timezone, &spec.Timezone}, {b.DayMatch, &spec.DayMatch}, {b.DSTGap, &spec.DSTGap}, {b.DSTOverlap, &spec.DSTOverlap}} {
		if given.value != "" {
			*given.into = given.value
		}
	}
	from := s.store.Now()
	if b.From != nil {
		from = b.From.Time
	}
	if b.Count == 0 {
		b.Count = 10
	}
	p, err := chronos.PreviewSpec(spec, b.Seed, from, b.Count)
	if err != nil {
		return preview{}, err
	}
	out := preview{Times: make([]instant, len(p.Times)), Description: p.Description, Warnings: p.Warnings}
	for i, t := range p.Times {
		out.Times[i] = instant{httpapi.At(t.At), t.Local, t.Note}
	}
	if out.Warnings == nil {
		out.Warnings = []string{}
	}
	return out, nil
}

func (s *server) upcoming(ctx context.Context, in *upcomingInput) (upcoming, error) {
	found, err := s.store.Upcoming(ctx, httpapi.Tenant(ctx), in.Name, in.Count)
	out := upcoming{Items: make([]upcomingInstant, len(found))}
	for i, t := range found {
		out.Items[i] = upcomingInstant{httpapi.At(t.At), httpapi.At(t.EffectiveAt), t.Local, t.Note}
	}
	return out, err
}
