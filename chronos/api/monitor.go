package api

import (
	"context"
	"net/http"
	"time"

	"holdfast/chronos"
	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
)

// monitor is a monitor as clients see it.
type monitor struct {
	Name          string               `json:"name"`
	Schedule      any                  `json:"schedule" doc:"A cron expression, {\"every\": …} or {\"at\": …}"`
	Timezone      string               `json:"timezone"`
	Grace         httpapi.Duration     `json:"grace"`
	Alerts        []shownRule          `json:"alerts" nullable:"false"`
	State         chronos.MonitorState `json:"state" enum:"new,up,running,late,down,unknown" doc:"new: it hasn't checked in yet. up: all is well. running: started, and not ended yet. late: a check-in is due and there is grace left, or a run hasn't ended in time. down: it has failed, or no check-in came. unknown: one may have come while no replica of Chronos could receive it"`
	ExpectedAt    *httpapi.Time        `json:"expected_at" doc:"The next instant for which a check-in is awaited"`
	Deadline      *httpapi.Time        `json:"deadline" doc:"When its absence is told; null: nothing is awaited, or it was told already"`
	StartedAt     *httpapi.Time        `json:"started_at" doc:"Of a run that goes on"`
	LastCheckInAt *httpapi.Time        `json:"last_check_in_at"`
	LastDuration  *httpapi.Duration    `json:"last_duration,omitempty" doc:"From the last start to its end"`
	Failures      int                  `json:"failures" doc:"In a row, as it has said itself"`
	FailingSince  *httpapi.Time        `json:"failing_since" doc:"Since when something is wrong"`
	CreatedAt     httpapi.Time         `json:"created_at"`
	UpdatedAt     httpapi.Time         `json:"updated_at"`
}

func monitorOf(m chronos.Monitor) monitor {
	out := monitor{
		Name: m.Name, Schedule: timingOf(m.Spec.Schedule), Timezone: m.Spec.Timezone, Grace: httpapi.Duration(m.Spec.Grace), Alerts: showRules(m.Spec.Alerts),
		State: m.State, ExpectedAt: httpapi.AtOrNull(m.ExpectedAt), Deadline: httpapi.AtOrNull(m.Deadline), StartedAt: httpapi.AtOrNull(m.StartedAt),
		LastCheckInAt: httpapi.AtOrNull(m.LastAt), LastDuration: tookOf(m.Took), Failures: m.Failures, FailingSince: httpapi.AtOrNull(m.Since),
		CreatedAt: httpapi.At(m.CreatedAt), UpdatedAt: httpapi.At(m.UpdatedAt),
	}
	return out
}

func tookOf(d time.Duration) *httpapi.Duration {
	if d <= 0 {
		return nil
	}
	out := httpapi.Duration(d)
	return &out
}

// monitorEvent is one as clients see it.
type monitorEvent struct {
	At       httpapi.Time             `json:"at"`
	Kind     chronos.MonitorEventKind `json:"kind" enum:"start,ping,fail,missed,late,unknown"`
	Message  string                   `json:"message,omitempty" doc:"What came with it, or why"`
	Duration *httpapi.Duration        `json:"duration,omitempty" doc:"From the start to this end"`

	n int64
}

// MonitorPath names a monitor; it is exported because only then are its fields found where it is embedded.
type MonitorPath struct {
	Name string `path:"name"`
}

type putMonitorInput struct {
	MonitorPath
	Body monitorBody
}

// monitorBody is a monitor as clients write it.
type monitorBody struct {
	Name     string               `json:"name,omitempty" doc:"May be left out where the path has it"`
	Schedule timing               `json:"schedule"`
	Timezone string               `json:"timezone,omitempty" minLength:"1" doc:"A name of the zone database; UTC if left out"`
	Grace    httpapi.Duration     `json:"grace" doc:"How long after an instant a check-in is still in time, and how long a run may take that said that it started; 1s to 8784h"`
	Alerts   setting[[]alertRule] `json:"alerts,omitempty" maxItems:"10" doc:"Whom to tell when it goes wrong, or right again; without after"`
}

func (b *monitorBody) spec() (chronos.MonitorSpec, error) {
	spec := chronos.MonitorSpec{Timezone: b.Timezone, Grace: time.Duration(b.Grace)}
	if spec.Timezone == "" {
		spec.Timezone = chronos.DefaultTimezone
	}
	var err error
	if spec.Schedule, err = b.Schedule.parse(); err != nil {
		return spec, err
	}
	spec.Alerts, err = rulesOf(b.Alerts.value)
	return spec, err
}

type failedInput struct {
	MonitorPath
	Body *struct {
		Message string `json:"message,omitempty" maxLength:"1000" doc:"What went wrong"`
	}
}

type listEventsInput struct {
	httpapi.ListParams
	MonitorPath
}

const monitorsAre = "A monitor watches a job that runs elsewhere and only checks in. A check-in is awaited for the first instant of the schedule after the last one; " +
	"an interval counts from the last one. If none has come by `grace` after that instant, by the database's clock, it is `missed`, once, until it checks in again. " +
	"What says that it starts must end within `grace`, else it is `late`. What was awaited while no replica could receive it is called `unknown`, and the next instant counts."

func (s *server) registerMonitors(a *httpapi.API) {
	const tag = "Monitors"
	absent := []string{"monitor_not_found"}
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPut, Path: "/v1/monitors/{name}", Scope: apikey.Write, Summary: "Create or replace a monitor", Tag: tag, Description: monitorsAre,
		Also: []int{http.StatusCreated}, Codes: []string{"invalid_schedule", "invalid_timezone", "schedule_in_past", "target_forbidden"},
	}, s.putMonitor)
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodGet, Path: "/v1/monitors/{name}", Scope: apikey.Read, Summary: "Get a monitor", Tag: tag, Codes: absent,
	}, func(ctx context.Context, in *MonitorPath) (monitor, error) {
		m, err := s.store.GetMonitor(ctx, httpapi.Tenant(ctx), in.Name)
		return answer(ctx, m, false, err, monitorOf)
	})
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodDelete, Path: "/v1/monitors/{name}", Scope: apikey.Write, Summary: "Delete a monitor", Tag: tag,
		Description: "With its check-ins; its alerts stay.", Codes: absent,
	}, func(ctx context.Context, in *MonitorPath) (httpapi.None, error) {
		return httpapi.None{}, s.store.DeleteMonitor(ctx, callerOf(ctx), in.Name)
	})
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodGet, Path: "/v1/monitors", Scope: apikey.Read, Summary: "List monitors", Tag: tag,
	}, s.listMonitors)
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodGet, Path: "/v1/monitors/{name}/events", Scope: apikey.Read, Summary: "List a monitor's check-ins", Tag: tag,
		Description: "And when they didn't come; newest first. The last 100 are kept.", Codes: absent,
	}, s.listEvents)
	for _, op := range []struct {
		word, summary, description string
		kind                       chronos.MonitorEventKind
	}{
		{"ping", "Check in: it has succeeded", "Without a body: `curl -X POST …/ping` does.", chronos.CheckInPing},
		{"start", "Check in: it starts", "Its ping or fail must come within `grace`. Started again, it counts from then.", chronos.CheckInStart},
	} {
		httpapi.Register(a, httpapi.Op{
			Method: http.MethodPost, Path: "/v1/monitors/{name}/" + op.word, Scope: apikey.Write, Summary: op.summary, Tag: tag, Description: op.description, Codes: absent,
		}, func(ctx context.Context, in *MonitorPath) (monitor, error) {
			m, replayed, err := s.store.CheckIn(ctx, callerOf(ctx), in.Name, op.kind, "")
			return answer(ctx, m, replayed, err, monitorOf)
		})
	}
	httpapi.Register(a, httpapi.Op{
		Method: http.MethodPost, Path: "/v1/monitors/{name}/fail", Scope: apikey.Write, Summary: "Check in: it has failed", Tag: tag,
		Description: "The body may be left out.", Codes: absent,
	}, func(ctx context.Context, in *failedInput) (monitor, error) {
		message := ""
		if in.Body != nil {
			message = in.Body.Message
		}
		m, replayed, err := s.store.CheckIn(ctx, callerOf(ctx), in.Name, chronos.CheckInFail, message)
		return answer(ctx, m, replayed, err, monitorOf)
	})
}

func (s *server) putMonitor(ctx context.Context, in *putMonitorInput) (monitor, error) {
	if chronos.CheckName(in.Name) != nil {
		return monitor{}, httpapi.Invalid("path.name", "must be 1 to 128 characters of A-Z a-z 0-9 . _ : -")
	}
	if in.Body.Name != "" && in.Body.Name != in.Name {
		return monitor{}, httpapi.Invalid("body.name", "differs from the name in the path")
	}
	spec, err := in.Body.spec()
	if err != nil {
		return monitor{}, err
	}
	put, replayed, err := s.store.PutMonitor(ctx, callerOf(ctx), in.Name, spec)
	if err == nil && put.Created {
		httpapi.SetStatus(ctx, http.StatusCreated)
	}
	return answer(ctx, put.Monitor, replayed, err, monitorOf)
}

func (s *server) listMonitors(ctx context.Context, in *httpapi.ListParams) (httpapi.Page[monitor], error) {
	const kind = "monitors"
	var after string
	if _, err := in.After(kind, &after); err != nil {
		return httpapi.Page[monitor]{}, err
	}
	found, err := s.store.ListMonitors(ctx, httpapi.Tenant(ctx), after, in.Limit+1)
	if err != nil {
		return httpapi.Page[monitor]{}, err
	}
	items := make([]monitor, len(found))
	for i, m := range found {
		items[i] = monitorOf(m)
	}
	return httpapi.NewPage(items, in.Limit, kind, func(last monitor) string { return last.Name }), nil
}

func (s *server) listEvents(ctx context.Context, in *listEventsInput) (httpapi.Page[monitorEvent], error) {
	const kind = "monitor-events"
	var before int64
	if _, err := in.After(kind, &before); err != nil {
		return httpapi.Page[monitorEvent]{}, err
	}
	found, err := s.store.ListMonitorEvents(ctx, httpapi.Tenant(ctx), in.Name, before, in.Limit+1)
	if err != nil {
		return httpapi.Page[monitorEvent]{}, err
	}
	items := make([]monitorEvent, len(found))
	for i, e := range found {
		items[i] = monitorEvent{httpapi.At(e.At), e.Kind, e.Message, tookOf(e.Took), e.N}
	}
	return httpapi.NewPage(items, in.Limit, kind, func(last monitorEvent) int64 { return last.n }), nil
}
