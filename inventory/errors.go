package inventory

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// What a command may be refused for. Nothing is changed by a refused command.
var (
	ErrInvalid             = errors.New("invalid input")
	ErrSKUNotFound         = errors.New("no such SKU")
	ErrLocationNotFound    = errors.New("no such location")
	ErrReservationNotFound = errors.New("no such reservation")
	ErrSoldOut             = errors.New("too few units are free")
	ErrCustomerRequired    = errors.New("a SKU with a limit per customer needs a customer")
	ErrCustomerLimit       = errors.New("the customer's limit for the SKU would be passed")
	ErrExpired             = errors.New("the reservation has expired")
	ErrExpiredSoldOut      = errors.New("the reservation has expired and its units are no longer free")
	ErrHeld                = errors.New("the reservation is only held")
	ErrReleased            = errors.New("the reservation was released")
	ErrConfirmed           = errors.New("the reservation is confirmed")
	ErrOverConfirmed       = errors.New("more than the reservation holds")
	ErrOverReturned        = errors.New("more than was sold and hasn't come back")
	ErrExtensionLimit      = errors.New("the hold can't be extended that far")
	ErrBelowHeld           = errors.New("less than is held would be left")
	ErrCountChanged        = errors.New("the stock isn't what the count expected")
	ErrSKUInUse            = errors.New("the SKU still has stock or holds")
	ErrLocationInUse       = errors.New("the location still has stock or holds, or is the location default")
	ErrPlaceNotFound       = errors.New("no such place in a waiting list")
	ErrAlreadyWaiting      = errors.New("the customer waits for the SKU already")
	ErrSettings            = errors.New("the SKU's holds don't allow these settings")
)

// InvalidError names the field of a command that can't be, and why.
type InvalidError struct {
	Field  string // as in the API's JSON, e.g. lines[0].quantity
	Reason string
}

func (e *InvalidError) Error() string        { return e.Field + ": " + e.Reason }
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

func invalid(field, reason string, args ...any) error {
	return &InvalidError{Field: field, Reason: fmt.Sprintf(reason, args...)}
}

// NotFoundError names the SKU or location that isn't there.
type NotFoundError struct {
	Kind error // ErrSKUNotFound or ErrLocationNotFound
	Name string
}

func (e *NotFoundError) Error() string        { return fmt.Sprintf("%v: %s", e.Kind, e.Name) }
func (e *NotFoundError) Is(target error) bool { return target == e.Kind }

// Shortage is what was missing of one line.
type Shortage struct {
	SKU       string `json:"sku"`
	Location  string `json:"location,omitempty" doc:"If the line named one"`
	Wanted    int64  `json:"wanted" doc:"Units asked for"`
	Available int64  `json:"available" doc:"Units that were free"`
}

// ShortageError gives the numbers behind [ErrSoldOut] and [ErrExpiredSoldOut].
type ShortageError struct {
	Kind      error
	Shortages []Shortage
}

func (e *ShortageError) Error() string {
	lines := make([]string, len(e.Shortages))
	for i, s := range e.Shortages {
		lines[i] = fmt.Sprintf("%s: %d wanted, %d available", s.SKU, s.Wanted, s.Available)
	}
	return strings.Join(lines, "; ")
}
func (e *ShortageError) Is(target error) bool { return target == e.Kind }

// CustomerLimitError gives the numbers behind [ErrCustomerLimit], in units.
type CustomerLimitError struct {
	SKU                string
	Limit, Has, Wanted int64
}

func (e *CustomerLimitError) Error() string {
	return fmt.Sprintf("%s: a customer may have %d, has %d and wants %d more", e.SKU, e.Limit, e.Has, e.Wanted)
}
func (e *CustomerLimitError) Is(target error) bool { return target == ErrCustomerLimit }

// AlreadyWaitingError names the place that the customer has.
type AlreadyWaitingError struct {
	SKU, Customer string
	ID            uuid.UUID
}

func (e *AlreadyWaitingError) Error() string {
	return fmt.Sprintf("%s: %s waits for it already, at %s", e.SKU, e.Customer, e.ID)
}
func (e *AlreadyWaitingError) Is(target error) bool { return target == ErrAlreadyWaiting }

// StateError says in which state a reservation was when it stood in the way.
type StateError struct {
	Kind   error // ErrHeld, ErrExpired, ErrReleased or ErrConfirmed
	ID     uuid.UUID
	Status Status
	Detail string // more, or ""
}

func (e *StateError) Error() string {
	text := fmt.Sprintf("reservation %s is %s", e.ID, e.Status)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}
func (e *StateError) Is(target error) bool { return target == e.Kind }

// AmountError gives the numbers behind [ErrOverConfirmed], [ErrOverReturned], [ErrBelowHeld] and
// [ErrCountChanged], in units.
type AmountError struct {
	Kind error
	Text string
}

func (e *AmountError) Error() string        { return e.Text }
func (e *AmountError) Is(target error) bool { return target == e.Kind }
