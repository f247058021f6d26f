package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/google/uuid"

	"holdfast/chronos"
	"holdfast/chronos/queue"
	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
)

// run is a run as clients see it.
type run struct {
	ID           uuid.UUID     `json:"id"`
	Job          string        `json:"job"`
	Status       queue.Status  `json:"status" enum:"pending,leased,running,succeeded,failed,cancelled,skipped,missed"`
	Trigger      queue.Trigger `json:"trigger" enum:"schedule,manual,backfill,catch_up"`
	ScheduledFor httpapi.Time  `json:"scheduled_for"`
	EffectiveAt  httpapi.Time  `json:"effective_at"`
	CreatedAt    httpapi.Time  `json:"created_at"`
	FinishedAt   *httpapi.Time `json:"finished_at"`
	Reason       string        `json:"reason,omitempty" doc:"Why it ended so, as a stable word"`
	Missed       *stretch      `json:"missed,omitempty" doc:"The instants that this one record stands for"`
	Payload      any           `json:"payload,omitempty"`
	Result       any           `json:"result,omitempty"`
	Attempts     []attempt     `json:"attempts" nullable:"false"`
}

type stretch struct {
	From  httpapi.Time `json:"from"`
	To    httpapi.Time `json:"to"`
	Count int          `json:"count"`
}

type attempt struct {
	Number     int           `json:"number"`
	Worker     string        `json:"worker"`
	StartedAt  *httpapi.Time `json:"started_at"`
	FinishedAt *httpapi.Time `json:"finished_at" doc:"null while it goes on"`
	Outcome    string        `json:"outcome" doc:"A stable word; leased or running while it goes on"`
	StatusCode int           `json:"status_code,omitempty"`
	LatencyMS  *int64        `json:"latency_ms,omitempty"`
	Response   string        `json:"response,omitempty" doc:"The first 4 KiB"`
	Error      string        `json:"error,omitempty"`
}

func runOf(r chronos.Run) run {
	out := run{
		ID: r.ID, Job: r.Job, Status: r.Status, Trigger: r.Trigger, ScheduledFor: httpapi.At(r.ScheduledFor),
		EffectiveAt: httpapi.At(r.EffectiveAt), CreatedAt: httpapi.At(r.CreatedAt), FinishedAt: httpapi.AtOrNull(r.FinishedAt),
		Reason: r.Reason, Payload: orNothing(r.Payload), Result: orNothing(r.Result), Attempts: make([]attempt, len(r.Attempts)),
	}
	if m := r.Missed; m != nil {
		out.Missed = &stretch{httpapi.At(m.From), httpapi.At(m.To), m.Count}
	}
	for i, a := range r.Attempts {
		out.Attempts[i] = attempt{
			a.Number, a.Worker, httpapi.AtOrNull(a.StartedAt), httpapi.AtOrNull(a.FinishedAt), a.Outcome,
			a.StatusCode, a.LatencyMS, a.Response, a.Error,
		}
	}
	return out
}

// orNothing is JSON that is left out if there is none.
func orNothing(text json.RawMessage) any {
	if text == nil {
		return nil
	}
	return text
}

// RunPath names a run; it is exported because only then are its fields found where it is embedded.
type RunPath struct {
	ID string `path:"id"`
}

// id is the run's; what isn't an id names no run.
func (p RunPath) id() (uuid.UUID, error) {
	id, err := uuid.Parse(p.ID)
	if err != nil || len(p.ID) != 36 {
		return id, queue.ErrNotFound
	}
	return id, nil
}

type listRunsInput struct {
	httpapi.ListParams
	Job    string       `query:"job" maxLength:"128"`
	Status string       `query:"status" enum:"pending,leased,running,succeeded,failed,cancelled,skipped,missed"`
	From   httpapi.Time `query:"from" doc:"The first scheduled_for that counts"`
	To     httpapi.Time `query:"to" doc:"The first that doesn't any more; else all up to now, without what is planned a moment ahead"`
}

func (s *server) registerRuns(a *httpapi.API) {
	const tag = "Runs"
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodGet, Path: "/v1/runs", Scope: apikey.Read, Summary: "List runs", Tag: tag,
		Description: "The latest scheduled_for first.",
	}, s.listRuns)
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodGet, Path: "/v1/runs/{id}", Scope: apikey.Read, Summary: "Get a run", Tag: tag, Codes: []string{"run_not_found"},
	}, func(ctx context.Context, in *RunPath) (run, error) {
		id, err := in.id()
		if err != nil {
			return run{}, err
		}
		r, err := s.store.GetRun(ctx, httpapi.Tenant(ctx), id)
		return answer(ctx, r, false, err, runOf)
	})
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPost, Path: "/v1/runs/{id}/cancel", Scope: apikey.Write, Summary: "Cancel a run", Tag: tag,
		Description: "Final at once: the lease token of whoever works on it is dead.", Codes: []string{"run_not_found", "run_state"},
	}, func(ctx context.Context, in *RunPath) (run, error) {
		id, err := in.id()
		if err != nil {
			return run{}, err
		}
		r, replayed, err := s.store.CancelRun(ctx, callerOf(ctx), id)
		return answer(ctx, r, replayed, err, runOf)
	})
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPost, Path: "/v1/runs/{id}/retry", Scope: apikey.Write, Summary: "Retry a run", Tag: tag,
		Description: "A failed, cancelled or missed run runs again, with its id and further attempts.",
		Status:      http.StatusAccepted, Codes: []string{"run_not_found", "run_state"},
	}, func(ctx context.Context, in *RunPath) (run, error) {
		id, err := in.id()
		if err != nil {
			return run{}, err
		}
		r, replayed, err := s.store.RetryRun(ctx, callerOf(ctx), id)
		return answer(ctx, r, replayed, err, runOf)
	})
}

func (s *server) listRuns(ctx context.Context, in *listRunsInput) (httpapi.Page[run], error) {
	const kind = "runs"
	filter := chronos.RunFilter{Job: in.Job, Status: queue.Status(in.Status), From: in.From.Time, To: in.To.Time, Limit: in.Limit + 1}
	var after chronos.RunPosition
	if given, err := in.After(kind, &after); err != nil {
		return httpapi.Page[run]{}, err
	} else if given {
		filter.After = &after
	}
	found, err := s.store.ListRuns(ctx, httpapi.Tenant(ctx), filter)
	if err != nil {
		return httpapi.Page[run]{}, err
	}
	runs := make([]run, len(found))
	for i, r := range found {
		runs[i] = runOf(r)
	}
	return httpapi.NewPage(runs, in.Limit, kind, func(last run) chronos.RunPosition {
		return chronos.RunPosition{ScheduledFor: last.ScheduledFor.Time, ID: last.ID}
	}), nil
}
