package inventory

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Return is a command to take back units that were sold.
type Return struct {
	ID      uuid.UUID
	Lines   []Line // as in a confirmation: never more than was sold and hasn't come back yet
	Restock bool   // put them back on hand, where they were taken from; else they count as written off
	Reason  string
}

// noteReturnSQL says of a confirmed reservation what has come back of each line, by now.
const noteReturnSQL = `
UPDATE inventory.reservation_history SET line_returned = $3
 WHERE tenant = $1 AND id = $2 AND status = 'confirmed' AND line_returned IS NOT DISTINCT FROM $4`

// takeBackSQL counts units of one line as no longer sold; what isn't put on hand is written off. In the
// ledger each has come back first.
const takeBackSQL = `
WITH back AS (
	UPDATE inventory.stock
	   SET sold = sold - $4, on_hand = on_hand + CASE WHEN $5 THEN $4 ELSE 0 END, written_off = written_off + CASE WHEN $5 THEN 0 ELSE $4 END
	 WHERE tenant = $1 AND sku = $2 AND location = $3 AND sold >= $4 AND (active OR NOT $5)
	RETURNING on_hand, held
), noted AS (
	INSERT INTO inventory.ledger (tenant, sku, location, kind, delta_on_hand, delta_held, on_hand, held, reservation_id, reference, reason, actor)
	SELECT $1, $2, $3, e.kind, e.delta, 0, back.on_hand + e.off, back.held, $6, nullif($7, ''), $8, $9
	  FROM back, (VALUES (1, 'return', $4::bigint, CASE WHEN $5 THEN 0 ELSE $4::bigint END), (2, 'write_off', -$4::bigint, 0)) AS e(n, kind, delta, off)
	 WHERE e.n = 1 OR NOT $5
	 ORDER BY e.n
), bought AS (
	UPDATE inventory.customer_units u SET units = greatest(u.units - $4, 0)
	  FROM back WHERE u.tenant = $1 AND u.customer = $10 AND u.sku = $2
)
SELECT count(*) FROM back`

// Return takes back units of a confirmed reservation, and returns it. It fails with
// [ErrReservationNotFound], with [ErrHeld], [ErrExpired] or [ErrReleased] unless it is confirmed, with
// [ErrOverReturned], and with [ErrSKUNotFound] or [ErrLocationNotFound] where what is to be put back
// on hand has no place any more.
func (s *Store) Return(ctx context.Context, c Caller, cmd Return) (Reservation, bool, error) {
	lines, err := mergeLines(cmd.Lines)
	if err == nil {
		err = checkReason(cmd.Reason)
	}
	if err != nil {
		return Reservation{}, false, err
	}
	return command(ctx, s, c, func(tx pgx.Tx) (Reservation, error) {
		r, err := LockReservation(ctx, tx, c.Tenant, cmd.ID)
		if err != nil {
			return Reservation{}, err
		}
		if r.Status != Confirmed {
			return Reservation{}, stateError(r, "nothing of it is sold")
		}
		back, err := unitsToReturn(r, lines)
		if err != nil {
			return Reservation{}, err
		}
		items, err := lockStock(ctx, tx, c.Tenant, skusOf(r.Lines))
		if err != nil {
			return Reservation{}, err
		}
		var before, after []int64
		for i, l := range r.Lines {
			if l.Returned != nil {
				before = append(before, *l.Returned)
				back[i].total += *l.Returned
			}
			after = append(after, back[i].total)
		}
		tag, err := tx.Exec(ctx, noteReturnSQL, c.Tenant, r.ID, after, before)
		if err != nil {
			return Reservation{}, err
		}
		if tag.RowsAffected() != 1 {
			return Reservation{}, s.refusedInTime(ctx, tx, c)
		}
		for i, l := range r.Lines {
			if back[i].units > 0 {
				if err := takeBack(ctx, tx, c, cmd, r, l, back[i].units, items[l.SKU]); err != nil {
					return Reservation{}, err
				}
			}
			r.Lines[i].Returned = &after[i]
		}
		if _, err := s.serveLines(ctx, tx, c.Tenant, items); err != nil {
			return Reservation{}, err
		}
		return r, s.clock.InTime(ctx, tx, c.Deadline)
	})
}

func takeBack(ctx context.Context, tx pgx.Tx, c Caller, cmd Return, r Reservation, l Line, units int64, i *item) error {
	if cmd.Restock {
		if !i.active {
			return &NotFoundError{Kind: ErrSKUNotFound, Name: l.SKU}
		}
		if !i.at(l.Location).active {
			return &NotFoundError{Kind: ErrLocationNotFound, Name: l.Location}
		}
	}
	var changed int
	err := tx.QueryRow(ctx, takeBackSQL, c.Tenant, l.SKU, l.Location, units, cmd.Restock, r.ID, r.Reference, cmd.Reason, c.Actor, r.Customer).Scan(&changed)
	if err == nil && changed != 1 {
		err = fmt.Errorf("%s at %s: less is sold than the reservation says; run: holdfast inventory verify", l.SKU, l.Location)
	}
	return err
}

// comingBack is what comes back of a line now, and altogether.
type comingBack struct{ units, total int64 }

func unitsToReturn(r Reservation, lines []Line) ([]comingBack, error) {
	open := make([]int64, len(r.Lines))
	for i, l := range r.Lines {
		open[i] = *l.Confirmed
		if l.Returned != nil {
			open[i] -= *l.Returned
		}
	}
	units, err := divide(r.Lines, open, lines)
	if err != nil {
		return nil, &AmountError{ErrOverReturned, err.Error()}
	}
	back := make([]comingBack, len(r.Lines))
	for i, n := range units {
		back[i] = comingBack{n, n}
	}
	return back, nil
}
