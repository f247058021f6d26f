// Package api is Chronos's HTTP face: it turns requests into commands and answers into JSON, and
// decides nothing itself.
package api

import (
	"context"
	"time"

	"holdfast/chronos"
	"holdfast/internal/httpapi"
)

const description = `Cron as a service: jobs with schedules, runs delivered at least once.

A **job** has a schedule and a target, a webhook or a queue that workers pull from. Each instant of the schedule becomes a **run**, which
is delivered until it succeeds or its attempts are used up; its id is the same on every attempt. Send an ` + "`Idempotency-Key`" + ` with every
change: after a lost answer, asking again with the same key gives the final word.`

// server is what the handlers work with.
type server struct {
	store   *chronos.Store
	lease   time.Duration // of a pull worker that doesn't say
	timeout time.Duration // of a request
}

// New makes the API of a replica. The config's Title, Description, Errors and Ready are filled in here.
func New(service *chronos.Service, cfg httpapi.Config) *httpapi.API {
	cfg.Title = "Holdfast Chronos"
	cfg.Description = description
	cfg.Errors = rules
	cfg.Ready = func(ctx context.Context) (any, error) {
		return readiness{chronos.Schema().Name, schedulesOf(service)}, service.Ready(ctx)
	}
	if cfg.RequestTimeout == 0 {
		cfg.RequestTimeout = 10 * time.Second
	}
	s := &server{store: service.Store(), lease: service.Lease(), timeout: cfg.RequestTimeout}
	a := httpapi.New(cfg)
	s.registerJobs(a)
	s.registerSchedules(a)
	s.registerCrontab(a)
	s.registerApply(a)
	s.registerCalendars(a)
	s.registerRuns(a)
	s.registerWorkers(a)
	s.registerAlerts(a)
	s.registerMonitors(a)
	s.registerService(a)
	return a
}

// callerOf is on whose behalf the request is carried out.
func callerOf(ctx context.Context) chronos.Caller {
	return chronos.Caller{Tenant: httpapi.Tenant(ctx), Key: httpapi.IdempotencyKey(ctx), Deadline: httpapi.Deadline(ctx)}
}

// answer is a command's, as an API answer of what show makes of it.
func answer[T, O any](ctx context.Context, result T, replayed bool, err error, show func(T) O) (O, error) {
	if err != nil {
		var none O
		return none, err
	}
	httpapi.SetReplayed(ctx, replayed)
	return show(result), nil
}
