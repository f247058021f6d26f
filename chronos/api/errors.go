package api

import (
	"errors"
	"net/http"

	"holdfast/chronos"
	"holdfast/chronos/cron"
	"holdfast/chronos/queue"
	"holdfast/internal/httpapi"
	"holdfast/webhook"
)

// rules tell clients of the refusals of commands.
var rules = []httpapi.Rule{
	{Err: chronos.ErrInvalid, Status: http.StatusUnprocessableEntity, Code: httpapi.CodeValidationFailed, Tell: tellField},
	{Err: cron.ErrInvalidSchedule, Status: http.StatusUnprocessableEntity, Code: "invalid_schedule", Tell: tellField},
	{Err: cron.ErrInvalidTimezone, Status: http.StatusUnprocessableEntity, Code: "invalid_timezone", Tell: tellField},
	{Err: chronos.ErrScheduleInPast, Status: http.StatusUnprocessableEntity, Code: "schedule_in_past", Tell: tellField},
	{Err: webhook.ErrTargetForbidden, Status: http.StatusUnprocessableEntity, Code: "target_forbidden", Tell: tellField},
	{Err: cron.ErrInvalidCalendar, Status: http.StatusUnprocessableEntity, Code: "invalid_calendar", Tell: tellField},
	{Err: chronos.ErrAlertNotFound, Status: http.StatusNotFound, Code: "alert_not_found"},
	{Err: chronos.ErrMonitorNotFound, Status: http.StatusNotFound, Code: "monitor_not_found"},
	{Err: chronos.ErrCalendarNotFound, Status: http.StatusNotFound, Code: "calendar_not_found"},
	{Err: chronos.ErrCalendarInUse, Status: http.StatusConflict, Code: "calendar_in_use", Tell: tellCalendar},
	{Err: chronos.ErrPlanChanged, Status: http.StatusConflict, Code: "plan_changed", Tell: func(_ error, p *httpapi.Problem) {
		p.Detail = "What is to be done isn't what was expected any more. Nothing was changed."
	}},
	{Err: chronos.ErrNoInstant, Status: http.StatusConflict, Code: "no_next_instant"},
	{Err: chronos.ErrJobNotFound, Status: http.StatusNotFound, Code: "job_not_found"},
	{Err: chronos.ErrUnreadable, Status: http.StatusConflict, Code: "unreadable", Tell: func(_ error, p *httpapi.Problem) {
		p.Detail = "This version can't read what another has stored. Put it anew, or delete it; nothing was changed."
	}},
	{Err: queue.ErrNotFound, Status: http.StatusNotFound, Code: "run_not_found"},
	{Err: queue.ErrLeaseLost, Status: http.StatusConflict, Code: "lease_lost", Tell: func(_ error, p *httpapi.Problem) {
		p.Detail = "The lease token isn't the run's current one, or its lease has ended. Nothing was changed."
	}},
	{Err: queue.ErrState, Status: http.StatusConflict, Code: "run_state", Tell: tellState},
}

func tellField(err error, p *httpapi.Problem) {
	var bad *chronos.FieldError
	if errors.As(err, &bad) {
		p.Detail = bad.Error()
		p.Errors = []httpapi.FieldError{{Location: "body." + bad.Field, Message: bad.Reason}}
	}
}

func tellState(err error, p *httpapi.Problem) {
	var state *queue.StateError
	if errors.As(err, &state) {
		p.Detail = state.Error()
		p.Members = map[string]any{"run_status": state.Status}
	}
}

func tellCalendar(err error, p *httpapi.Problem) {
	var used *chronos.CalendarInUseError
	if errors.As(err, &used) {
		p.Detail = used.Error()
		p.Members = map[string]any{"jobs": used.Jobs}
	}
}
