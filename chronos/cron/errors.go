package cron

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The kinds of refusal. Every error of this package is an *Error that
// matches one of them with errors.Is.
var (
	// ErrInvalidSchedule means an expression, interval, instant or policy
	// that can't be run.
	ErrInvalidSchedule = errors.New("invalid schedule")

	// ErrInvalidTimezone means a zone that isn't in the zone data.
	ErrInvalidTimezone = errors.New("invalid timezone")

	// ErrInvalidCalendar means a calendar's date or range of dates that is none.
	ErrInvalidCalendar = errors.New("invalid calendar")
)

// Error says which part of the input was refused and why.
type Error struct {
	// Field is one of second, minute, hour, day_of_month, month, day_of_week,
	// year; schedule for the expression as a whole; every, at, day_match,
	// dst_gap, dst_overlap; timezone; dates or an entry of it, such as dates[2]
	// or dates[2].from.
	Field string

	// Value is what was refused, cut to 64 bytes.
	Value string

	// Reason completes the sentence that begins with the value.
	Reason string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s %s", e.Field, strconv.Quote(e.Value), e.Reason)
}

// Is matches ErrInvalidTimezone for the field timezone, ErrInvalidCalendar for
// dates, and ErrInvalidSchedule for all others.
func (e *Error) Is(target error) bool {
	switch {
	case e.Field == fieldTimezone:
		return target == ErrInvalidTimezone
	case strings.HasPrefix(e.Field, fieldDates):
		return target == ErrInvalidCalendar
	}
	return target == ErrInvalidSchedule
}

const (
	fieldSchedule = "schedule"
	fieldTimezone = "timezone"
	fieldDates    = "dates"

	maxErrorValue = 64 // bytes of the input that an error repeats
)

func refuse(field, value, reason string) *Error {
	if len(value) > maxErrorValue {
		value = value[:maxErrorValue-3] + "..."
	}
	return &Error{Field: field, Value: value, Reason: reason}
}
