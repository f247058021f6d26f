package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"holdfast/chronos"
	"holdfast/chronos/alert"
	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
)

// alertRule is one of a job's or monitor's alerts as clients write it.
type alertRule struct {
	On    []string                  `json:"on" nullable:"false" minItems:"1" maxItems:"4" doc:"Any of failed, missed, late and recovered"`
	URL   string                    `json:"url" doc:"Where the news is POSTed to, signed as deliveries are"`
	After setting[httpapi.Duration] `json:"after,omitempty" doc:"Of a job's late: how long after its instant a run that hasn't begun is late, 1m if left out. Of a job's failed: how long its runs must have been failing, from the first failed one in a row to the one that is told; if left out, the first is told. 1s to 168h. Monitors have none"`
}

// shownRule is one as clients see it.
type shownRule struct {
	On    []alert.Kind      `json:"on" nullable:"false"`
	URL   string            `json:"url"`
	After *httpapi.Duration `json:"after,omitempty"`
}

func rulesOf(given *[]alertRule) ([]alert.Rule, error) {
	if given == nil || len(*given) == 0 {
		return nil, nil
	}
	rules := make([]alert.Rule, len(*given))
	for i, r := range *given {
		rules[i].URL = r.URL
		for _, word := range r.On {
			rules[i].On = append(rules[i].On, alert.Kind(word))
		}
		if r.After.is() {
			if rules[i].After = time.Duration(*r.After.value); rules[i].After <= 0 {
				return nil, httpapi.Invalid(fmt.Sprintf("body.alerts[%d].after", i), "must be 1s to 168h")
			}
		}
	}
	return rules, nil
}

func showRules(rules []alert.Rule) []shownRule {
	out := make([]shownRule, len(rules))
	for i, r := range rules {
		out[i] = shownRule{On: r.On, URL: r.URL}
		if r.After > 0 {
			after := httpapi.Duration(r.After)
			out[i].After = &after
		}
	}
	return out
}

// news is an alert as clients see it.
type news struct {
	ID            uuid.UUID           `json:"id" doc:"webhook-id, the same on every attempt"`
	Job           string              `json:"job,omitempty"`
	Monitor       string              `json:"monitor,omitempty"`
	Kind          alert.Kind          `json:"kind" enum:"failed,missed,late,recovered"`
	URL           string              `json:"url"`
	Status        chronos.AlertStatus `json:"status" enum:"pending,delivered,failed"`
	Attempts      int                 `json:"attempts"`
	StatusCode    *int                `json:"status_code,omitempty" doc:"Of the last answer"`
	Error         string              `json:"error,omitempty" doc:"Why the last attempt failed"`
	CreatedAt     httpapi.Time        `json:"created_at"`
	NextAttemptAt *httpapi.Time       `json:"next_attempt_at,omitempty" doc:"While it is pending"`
	FinishedAt    *httpapi.Time       `json:"finished_at,omitempty"`
	Payload       json.RawMessage     `json:"payload" doc:"What is delivered: {type, timestamp, data}"`

	n int64
}

func newsOf(a chronos.Alert) news {
	return news{
		ID: a.ID, Job: a.Job, Monitor: a.Monitor, Kind: a.Kind, URL: a.URL, Status: a.Status, Attempts: a.Attempts, StatusCode: a.StatusCode,
		Error: a.Error, CreatedAt: httpapi.At(a.CreatedAt), NextAttemptAt: httpapi.AtOrNull(a.NextAttemptAt), FinishedAt: httpapi.AtOrNull(a.FinishedAt),
		Payload: a.Payload, n: a.N,
	}
}

type listAlertsInput struct {
	httpapi.ListParams
	Job     string `query:"job" maxLength:"128"`
	Monitor string `query:"monitor" maxLength:"128"`
	Status  string `query:"status" enum:"pending,delivered,failed"`
}

const alertsAre = "A job's `alerts` say which news goes where. `failed`: a run has failed for good. `missed`: instants passed while nobody could run them. " +
	"`late`: a run hasn't begun by `after` past its instant, whether or not anybody polls for it. `recovered`: the first success after a failure or a miss that was told. " +
	"News is told on the change: until a run succeeds, each URL is told once that runs fail and once that instants were missed, however many there are; " +
	"and once that runs are late, until one begins in time. An alert is delivered at least once, for up to 72 hours; " +
	"an answer of 410, or a target that isn't allowed, ends it at once as `failed`."

func (s *server) registerAlerts(a *httpapi.API) {
	const tag = "Alerts"
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodGet, Path: "/v1/alerts", Scope: apikey.Read, Summary: "List alerts", Tag: tag, Description: "Newest first. " + alertsAre,
	}, s.listAlerts)
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPost, Path: "/v1/alerts/{id}/redeliver", Scope: apikey.Write, Summary: "Deliver an alert again", Tag: tag,
		Description: "With its id, whether it has arrived, failed, or waits for its next attempt.", Status: http.StatusAccepted, Codes: []string{"alert_not_found"},
	}, func(ctx context.Context, in *RunPath) (news, error) {
		id, err := in.id()
		if err != nil {
			return news{}, chronos.ErrAlertNotFound
		}
		again, replayed, err := s.store.RedeliverAlert(ctx, callerOf(ctx), id)
		return answer(ctx, again, replayed, err, newsOf)
	})
}

func (s *server) listAlerts(ctx context.Context, in *listAlertsInput) (httpapi.Page[news], error) {
	const kind = "alerts"
	filter := chronos.AlertFilter{Job: in.Job, Monitor: in.Monitor, Status: chronos.AlertStatus(in.Status), Limit: in.Limit + 1}
	if _, err := in.After(kind, &filter.Before); err != nil {
		return httpapi.Page[news]{}, err
	}
	found, err := s.store.ListAlerts(ctx, httpapi.Tenant(ctx), filter)
	if err != nil {
		return httpapi.Page[news]{}, err
	}
	items := make([]news, len(found))
	for i, a := range found {
		items[i] = newsOf(a)
	}
	return httpapi.NewPage(items, in.Limit, kind, func(last news) int64 { return last.n }), nil
}
