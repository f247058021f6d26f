package inventory

import (
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
	sell := make([]int64, len(r.Lines))
	if lines == nil {
		for i, l := range r.Lines {
			sell[i] = l.Quantity
		}
		return sell, nil
	}
	for _, want := range lines {
		i := slices.IndexFunc(r.Lines, func(l Line) bool { return l.SKU == want.SKU && l.Location == want.Location })
		if i < 0 {
			return nil, &AmountError{ErrOverConfirmed, fmt.Sprintf("%s at %s: the reservation holds none", want.SKU, want.Location)}
		}
		if want.Quantity > r.Lines[i].Quantity {
			return nil, &AmountError{ErrOverConfirmed, fmt.Sprintf("%s at %s: the reservation holds %d, not %d",
				want.SKU, want.Location, r.Lines[i].Quantity, want.Quantity)}
		}
		sell[i] = want.Quantity
	}
	return sell, nil
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

func placesOf(lines []Line) []place {
	places := make([]place, len(lines))
	for i, l := range lines {
		places[i] = place{l.SKU, l.Location}
	}
	return places
}
