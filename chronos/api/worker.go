package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"holdfast/chronos"
	"holdfast/chronos/queue"
	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
)

// maxErrorText is how much of a worker's error is kept, in bytes.
const maxErrorText = 4 << 10

type leaseInput struct {
	Body struct {
		Queue  string            `json:"queue,omitempty" pattern:"^[A-Za-z0-9._:-]{1,128}$" patternDescription:"1 to 128 characters of A-Z a-z 0-9 . _ : -" doc:"default if left out"`
		Max    int               `json:"max" minimum:"1" maximum:"500"`
		Lease  *httpapi.Duration `json:"lease,omitempty" doc:"1s to 24h"`
		Wait   *httpapi.Duration `json:"wait,omitempty" doc:"How long to wait for a run to come due, up to 30s"`
		Worker string            `json:"worker,omitempty" maxLength:"255" doc:"Kept with the attempt; the API key's name if left out"`
	}
}

type leased struct {
	Runs   []leasedRun       `json:"runs" nullable:"false"`
	Waited *httpapi.Duration `json:"waited,omitempty" doc:"How long after the request had come the leases began, at the least: so a worker that noted when it sent it knows until when they last, whatever the time of day is here and there"`
}

type leasedRun struct {
	ID           uuid.UUID    `json:"id"`
	Job          string       `json:"job"`
	Attempt      int          `json:"attempt"`
	LeaseToken   uuid.UUID    `json:"lease_token"`
	LeasedUntil  httpapi.Time `json:"leased_until"`
	Payload      any          `json:"payload"`
	ScheduledFor httpapi.Time `json:"scheduled_for"`
}

func leasedOf(runs []queue.Run) leased {
	out := leased{Runs: make([]leasedRun, len(runs))}
	for i, r := range runs {
		out.Runs[i] = leasedRun{r.ID, r.Job, r.Attempt, r.Token, httpapi.At(r.LeasedUntil), orNothing(r.Payload), httpapi.At(r.ScheduledFor)}
	}
	if len(runs) > 0 {
		waited := httpapi.Duration(runs[0].Waited.Truncate(time.Millisecond))
		out.Waited = &waited
	}
	return out
}

type heartbeatInput struct {
	RunPath
	Body struct {
		LeaseToken string            `json:"lease_token"`
		Lease      *httpapi.Duration `json:"lease,omitempty" doc:"1s to 24h from now"`
	}
}

type completeInput struct {
	RunPath
	Body struct {
		LeaseToken string           `json:"lease_token"`
		Result     setting[anyJSON] `json:"result,omitempty" doc:"Kept with the run"`
	}
}

type failInput struct {
	RunPath
	Body struct {
		LeaseToken string `json:"lease_token"`
		Error      string `json:"error" doc:"The first 4 KiB are kept"`
		Retry      *bool  `json:"retry,omitempty" doc:"false: no further attempt"`
	}
}

type releaseInput struct {
	RunPath
	Body struct {
		LeaseToken string `json:"lease_token"`
	}
}

type released struct {
	ID     uuid.UUID    `json:"id"`
	Status queue.Status `json:"status"`
}

type beat struct {
	ID          uuid.UUID    `json:"id"`
	Status      queue.Status `json:"status"`
	LeasedUntil httpapi.Time `json:"leased_until"`
}

type finished struct {
	ID            uuid.UUID     `json:"id"`
	Status        queue.Status  `json:"status" doc:"pending if there will be another attempt"`
	Attempt       int           `json:"attempt" doc:"The attempt that ended"`
	NextAttemptAt *httpapi.Time `json:"next_attempt_at,omitempty"`
}

func finishedOf(id uuid.UUID) func(queue.Finished) finished {
	return func(f queue.Finished) finished {
		return finished{id, f.Status, f.Attempt, httpapi.AtOrNull(f.NextDueAt)}
	}
}

func (s *server) registerWorkers(a *httpapi.API) {
	const tag = "Workers"
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPost, Path: "/v1/leases", Scope: apikey.Write, Summary: "Lease runs of a queue", Tag: tag,
		Description: "Each run comes with a token that only its holder knows. With `wait` this is a long poll.",
		Long:        true, Timeout: chronos.MaxWait + s.timeout + time.Second,
	}, s.leaseRuns)
	lost := []string{"run_not_found", "lease_lost"}
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPost, Path: "/v1/runs/{id}/heartbeat", Scope: apikey.Write, Summary: "Renew a lease", Tag: tag, Codes: lost,
	}, s.heartbeat)
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPost, Path: "/v1/runs/{id}/complete", Scope: apikey.Write, Summary: "Complete a run", Tag: tag, Codes: lost,
		Description: "The same again with the same token gets the same answer.",
	}, s.complete)
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPost, Path: "/v1/runs/{id}/fail", Scope: apikey.Write, Summary: "Fail a run", Tag: tag, Codes: lost,
		Description: "It is tried again as its job says, unless `retry` is false. The same again with the same token gets the same answer.",
	}, s.fail)
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPost, Path: "/v1/runs/{id}/release", Scope: apikey.Write, Summary: "Give a run back", Tag: tag, Codes: lost,
		Description: "It is due again at once, for whoever leases it next, and the attempt doesn't count: for a worker that has to stop.",
	}, s.release)
}

// within reads a duration of a body that has bounds.
func within(name string, d *httpapi.Duration, def, least, most time.Duration) (time.Duration, error) {
	if d == nil {
		return def, nil
	}
	v := time.Duration(*d)
	if v < least || v > most {
		return 0, httpapi.Invalid("body."+name, "must be %s to %s", httpapi.Duration(least), httpapi.Duration(most))
	}
	return v, nil
}

func (s *server) leaseRuns(ctx context.Context, in *leaseInput) (leased, error) {
	lease, err := within("lease", in.Body.Lease, s.lease, chronos.MinLease, chronos.MaxLease)
	if err != nil {
		return leased{}, err
	}
	wait, err := within("wait", in.Body.Wait, 0, 0, chronos.MaxWait)
	if err != nil {
		return leased{}, err
	}
	queueName, worker := in.Body.Queue, in.Body.Worker
	if queueName == "" {
		queueName = defaultQueue
	}
	if worker == "" {
		worker = httpapi.PrincipalOf(ctx).Name
	}
	caller := callerOf(ctx)
	caller.Deadline = httpapi.Arrival(ctx).Add(wait + s.timeout)
	claim := queue.Claim{Queue: chronos.QueueName(caller.Tenant, queueName), Worker: worker, Max: in.Body.Max, For: lease}
	runs, replayed, err := s.store.LeaseRuns(ctx, caller, claim, wait, httpapi.Draining(ctx))
	return answer(ctx, runs, replayed, err, leasedOf)
}

// holding is a lease as a request names it. What isn't a token is nobody's current one.
func (p RunPath) holding(token string) (queue.Holding, error) {
	id, err := p.id()
	if err != nil {
		return queue.Holding{}, err
	}
	parsed, err := uuid.Parse(token)
	if err != nil {
		parsed = uuid.Nil
	}
	return queue.Holding{Run: id, Token: parsed}, nil
}

func (s *server) heartbeat(ctx context.Context, in *heartbeatInput) (beat, error) {
	h, err := in.holding(in.Body.LeaseToken)
	if err != nil {
		return beat{}, err
	}
	lease, err := within("lease", in.Body.Lease, s.lease, chronos.MinLease, chronos.MaxLease)
	if err != nil {
		return beat{}, err
	}
	until, replayed, err := s.store.Heartbeat(ctx, callerOf(ctx), h, lease)
	return answer(ctx, until, replayed, err, func(until time.Time) beat { return beat{h.Run, queue.Running, httpapi.At(until)} })
}

func (s *server) complete(ctx context.Context, in *completeInput) (finished, error) {
	h, err := in.holding(in.Body.LeaseToken)
	if err != nil {
		return finished{}, err
	}
	var result json.RawMessage
	if in.Body.Result.is() {
		result = json.RawMessage(in.Body.Result.value.RawMessage)
	}
	f, replayed, err := s.store.CompleteRun(ctx, callerOf(ctx), h, result)
	return answer(ctx, f, replayed, err, finishedOf(h.Run))
}

func (s *server) fail(ctx context.Context, in *failInput) (finished, error) {
	h, err := in.holding(in.Body.LeaseToken)
	if err != nil {
		return finished{}, err
	}
	text := in.Body.Error
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "")
	}
	again := in.Body.Retry == nil || *in.Body.Retry
	f, replayed, err := s.store.FailRun(ctx, callerOf(ctx), h, text, again)
	return answer(ctx, f, replayed, err, finishedOf(h.Run))
}

func (s *server) release(ctx context.Context, in *releaseInput) (released, error) {
	h, err := in.holding(in.Body.LeaseToken)
	if err != nil {
		return released{}, err
	}
	replayed, err := s.store.ReleaseRun(ctx, callerOf(ctx), h)
	return answer(ctx, queue.Pending, replayed, err, func(status queue.Status) released { return released{h.Run, status} })
}
