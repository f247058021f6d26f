package chronos

import (
	"errors"
	"fmt"
	"strconv"

	"holdfast/chronos/cron"
	"holdfast/webhook"
)

// What a command may be refused for. Nothing is changed by a refused command.
var (
	ErrInvalid          = errors.New("invalid input")
	ErrScheduleInPast   = errors.New("the schedule's only instant is past")
	ErrJobNotFound      = errors.New("no such job")
	ErrUnreadable       = errors.New("this version can't read what is stored") // put it anew, or delete it
	ErrNoInstant        = errors.New("the schedule has no further instant to skip")
	ErrAlertNotFound    = errors.New("no such alert")
	ErrMonitorNotFound  = errors.New("no such monitor")
	ErrCalendarNotFound = errors.New("no such calendar")
	ErrCalendarInUse    = errors.New("jobs exclude the calendar") // see [CalendarInUseError]
)

// FieldError names the field that can't be as it is, and why. It matches its Kind with
// errors.Is: [ErrInvalid], [ErrScheduleInPast],
// [cron.ErrInvalidSchedule], [cron.ErrInvalidTimezone], [cron.ErrInvalidCalendar] or [webhook.ErrTargetForbidden].
type FieldError struct {
	Field  string // as in the API's JSON, e.g. retry.max_attempts
	Reason string
	Kind   error
}

func (e *FieldError) Error() string        { return e.Field + ": " + e.Reason }
func (e *FieldError) Is(target error) bool { return target == e.Kind }

func invalid(field, reason string, args ...any) error {
	return &FieldError{field, fmt.Sprintf(reason, args...), ErrInvalid}
}

// scheduleError places what the schedule language refuses.
func scheduleError(err error) error {
	var refused *cron.Error
	if !errors.As(err, &refused) {
		return err
	}
	field, kind := "schedule", cron.ErrInvalidSchedule
	switch refused.Field {
	case "timezone":
		field, kind = "timezone", cron.ErrInvalidTimezone
	case "day_match", "dst_gap", "dst_overlap":
		field = refused.Field
	case "every", "at":
		field = "schedule." + refused.Field
	}
	if errors.Is(refused, cron.ErrInvalidCalendar) {
		field, kind = refused.Field, cron.ErrInvalidCalendar
	}
	reason := refused.Error()
	if refused.Field == field { // said already
		reason = strconv.Quote(refused.Value) + " " + refused.Reason
	}
	return &FieldError{field, reason, kind}
}

// targetError places what the sender refuses.
func targetError(err error) error {
	var refused *webhook.FieldError
	if !errors.As(err, &refused) {
		return err
	}
	kind := ErrInvalid
	if errors.Is(err, webhook.ErrTargetForbidden) {
		kind = webhook.ErrTargetForbidden
	}
	return &FieldError{"target.webhook." + refused.Field, refused.Reason, kind}
}
