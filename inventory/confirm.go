package inventory

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
)

// Confirmation is a command to sell what a reservation holds.
type Confirmation struct {
	ID uuid.UUID
	// Lines sells a part and releases the rest; nil sells everything.
	Lines []Line
	// Retake takes the stock again if the reservation has expired and it is free.
	Retake bool
}

// Confirm sells a hold. Repeated, it gives the same answer. It fails with [ErrReservationNotFound],
// [ErrExpired] or [ErrReleased], with [ErrConfirmed] if it was confirmed with other lines, with
// [ErrOverConfirmed], and when retaking with [ErrExpiredSoldOut] or [ErrCustomerLimit].
func (s *Store) Confirm(ctx context.Context, c Caller, cmd Confirmation) (Reservation, bool, error) {
	if cmd.Lines != nil {
		lines, err := mergeLines(cmd.Lines)
		if err != nil {
			return Reservation{}, false, err
		}
		cmd.Lines = lines
	}
	return s.submit(&task{ctx: ctx, caller: c, confirm: &cmd})
}

// Release is a command to give a hold back.
type Release struct {
	ID uuid.UUID
}

// Release gives a hold back. Released already, or expired, it changes nothing and is no
// error. It fails with [ErrReservationNotFound] or [ErrConfirmed].
func (s *Store) Release(ctx context.Context, c Caller, cmd Release) (Reservation, bool, error) {
	return s.submit(&task{ctx: ctx, caller: c, release: &cmd})
}

// unitsToSell is how much of each of r's lines is to be sold: all, or what lines name.
func unitsToSell(r Reservation, lines []Line) ([]int64, error) {
	held := make([]int64, len(r.Lines))
	for i, l := range r.Lines {
		held[i] = l.Quantity
	}
	if lines == nil {
		return held, nil
	}
	sell, err := divide(r.Lines, held, lines)
	if err != nil {
		return nil, &AmountError{ErrOverConfirmed, err.Error()}
	}
	return sell, nil
}

// divide says how much of each of a reservation's lines some wanted ones take, if not more than there
// is of each. A wanted line without a location takes from all of its SKU, in their order.
func divide(lines []Line, there []int64, wanted []Line) ([]int64, error) {
	units := make([]int64, len(lines))
	// Those that name a location first, so that the others take what these leave.
	wanted = slices.Clone(wanted)
	slices.SortStableFunc(wanted, func(a, b Line) int { return cmp.Compare(min(len(b.Location), 1), min(len(a.Location), 1)) })
	for _, want := range wanted {
		missing, has := want.Quantity, int64(0)
		for i, l := range lines {
			if l.SKU == want.SKU && (l.Location == want.Location || want.Location == "") {
				here := min(missing, there[i]-units[i])
				units[i], missing, has = units[i]+here, missing-here, has+there[i]
			}
		}
		if missing > 0 {
			where := ""
			if want.Location != "" {
				where = " at " + want.Location
			}
			return nil, fmt.Errorf("%s%s: the reservation has %d, not %d", want.SKU, where, has, want.Quantity)
		}
	}
	return units, nil
}

// soldAs reports whether a confirmed reservation was confirmed with just those units.
func soldAs(r Reservation, sell []int64) bool {
	for i, l := range r.Lines {
		if *l.Confirmed != sell[i] {
			return false
		}
	}
	return true
}
