package inventory

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
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
	take := taking{tenant: c.Tenant}
	return command(ctx, s, c, func(tx pgx.Tx) (Reservation, error) {
		r, err := lockHeld(ctx, tx, c.Tenant, cmd.ID, take.also...)
		if err != nil {
			return Reservation{}, err
		}
		sell, err := unitsToSell(r, cmd.Lines)
		if err != nil {
			return Reservation{}, err
		}
		switch r.Status {
		case Confirmed:
			if !soldAs(r, sell) {
				return Reservation{}, stateError(r, "with other lines")
			}
			return r, nil
		case Released:
			return Reservation{}, stateError(r, "")
		case Expired:
			if !cmd.Retake {
				return Reservation{}, stateError(r, "")
			}
			if err := s.retake(ctx, tx, c, r, sell, &take); err != nil {
				return Reservation{}, err
			}
		default:
			settled, err := settle(ctx, tx, settlement{
				ids: []uuid.UUID{r.ID}, status: Confirmed, confirmed: sell, actor: c.Actor, deadline: s.deadline(c),
			})
			if err != nil {
				return Reservation{}, err
			}
			if settled == 0 { // the hold ran out just now, or the request did
				return Reservation{}, s.refusedInTime(ctx, tx, c)
			}
		}
		return reservationByID(ctx, tx, c.Tenant, r.ID)
	})
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

func soldAs(r Reservation, sell []int64) bool {
	return !slices.ContainsFunc(r.Lines, func(l Line) bool {
		units := sell[0]
		sell = sell[1:]
		return *l.Confirmed != units
	})
}

// retakeSQL takes free units straight to sold, and marks the reservation, which is locked.
const retakeSQL = `
WITH want AS (
	SELECT * FROM unnest($2::text[], $3::text[], $4::bigint[]) AS w(sku, location, quantity) WHERE w.quantity > 0
), taken AS (
	UPDATE inventory.stock s SET on_hand = s.on_hand - w.quantity, sold = s.sold + w.quantity
	  FROM want w
	 WHERE s.tenant = $5 AND s.sku = w.sku AND s.location = w.location AND s.active
	   AND s.on_hand + s.backorder_limit - s.held - s.safety_stock >= w.quantity
	   AND clock_timestamp() < coalesce($7, 'infinity'::timestamptz)
	RETURNING s.sku, s.location, w.quantity, s.on_hand, s.held
), marked AS (
	UPDATE inventory.reservations SET status = 'confirmed', settled_at = clock_timestamp(), line_confirmed = $4
	 WHERE id = $1 AND status = 'expired' AND (SELECT count(*) FROM taken) = (SELECT count(*) FROM want)
	RETURNING id, reference
), noted AS (
	INSERT INTO inventory.ledger (tenant, sku, location, kind, delta_on_hand, delta_held, on_hand, held, reservation_id, reference, actor)
	SELECT $5, t.sku, t.location, 'retake', -t.quantity, 0, t.on_hand, t.held, m.id, m.reference, $6
	  FROM taken t, marked m ORDER BY t.sku, t.location
)
SELECT count(*) FROM marked`

// retake sells an expired reservation's units if they are free, in the same step.
func (s *Store) retake(ctx context.Context, tx pgx.Tx, c Caller, r Reservation, sell []int64, take *taking) error {
	// While its expiry isn't booked yet, this transaction must not hold on to it: rivals for the
	// same units would find it in their way, as this one would find theirs.
	if r.SettledAt == nil {
		return &reapFirstError{[]uuid.UUID{r.ID}}
	}
	take.wanted = map[place]int64{}
	skus, locations := make([]string, len(sell)), make([]string, len(sell))
	for i, l := range r.Lines {
		skus[i], locations[i] = l.SKU, l.Location
		if sell[i] > 0 {
			take.wanted[place{l.SKU, l.Location}] = sell[i]
		}
	}
	shelves, shortages, err := take.lockAndFree(ctx, tx)
	if err != nil {
		return err
	}
	if err := checkCustomer(ctx, tx, c.Tenant, r.Customer, shelves, take.wanted); err != nil {
		return err
	}
	if len(shortages) > 0 {
		return &ShortageError{Kind: ErrExpiredSoldOut, Shortages: shortages}
	}
	var marked int
	err = tx.QueryRow(ctx, retakeSQL, r.ID, skus, locations, sell, c.Tenant, c.Actor, s.deadline(c)).Scan(&marked)
	if err != nil {
		return err
	}
	if marked == 0 {
		return s.refusedInTime(ctx, tx, c)
	}
	return nil
}
