package inventory

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// actorExpiry stands in the ledger where time itself ended a hold.
const actorExpiry = "expiry"

// settlement takes reservations out of held, all to the same status.
type settlement struct {
	ids       []uuid.UUID
	status    Status
	confirmed []int64 // with Confirmed, for one reservation: units sold per line
	actor     string
	deadline  *time.Time // on the database's clock; nil: none
}

// settleSQL is the one way out of held: the status changes, the units leave held (and,
// where sold, on_hand), and the ledger gets its entries, in one statement whose first UPDATE
// carries the predicates that make it legal. A rival that was faster leaves it
// nothing to do, so units are credited once. The caller has locked the reservations and
// their stock rows.
//
// Several entries for one stock row get the balances that they would have had one by one.
const settleSQL = `
WITH settled AS (
	UPDATE inventory.reservations
	   SET status = $2, settled_at = clock_timestamp(), line_confirmed = $3
	 WHERE id = ANY($1) AND status = 'held'
	   AND CASE WHEN $2 = 'expired' THEN expires_at <= clock_timestamp() ELSE expires_at > clock_timestamp() END
	   AND clock_timestamp() < coalesce($5, 'infinity'::timestamptz)
	RETURNING id, tenant, reference, line_skus, line_locations, line_quantities, line_confirmed
), lines AS (
	SELECT s.id, s.tenant, s.reference, l.sku, l.location, l.quantity, coalesce(l.confirmed, 0) AS confirmed
	  FROM settled s, unnest(s.line_skus, s.line_locations, s.line_quantities, s.line_confirmed) AS l(sku, location, quantity, confirmed)
), moved AS (
	UPDATE inventory.stock s
	   SET held = s.held - l.quantity, on_hand = s.on_hand - l.confirmed, sold = s.sold + l.confirmed
	  FROM (SELECT tenant, sku, location, sum(quantity)::bigint AS quantity, sum(confirmed)::bigint AS confirmed
	          FROM lines GROUP BY tenant, sku, location) l
	 WHERE s.tenant = l.tenant AND s.sku = l.sku AND s.location = l.location
	RETURNING s.tenant, s.sku, s.location, s.on_hand, s.held
), entries AS (
	SELECT id, tenant, reference, sku, location, 1 AS part, 'confirm' AS kind, -confirmed AS delta_on_hand, -confirmed AS delta_held
	  FROM lines WHERE confirmed > 0
	UNION ALL
	SELECT id, tenant, reference, sku, location, 2, CASE WHEN $2 = 'expired' THEN 'expire' ELSE 'release' END, 0, confirmed - quantity
	  FROM lines WHERE confirmed < quantity
), noted AS (
	INSERT INTO inventory.ledger (tenant, sku, location, kind, delta_on_hand, delta_held, on_hand, held, reservation_id, reference, actor)
	SELECT e.tenant, e.sku, e.location, e.kind, e.delta_on_hand, e.delta_held,
	       m.on_hand - coalesce(sum(e.delta_on_hand) OVER later, 0), m.held - coalesce(sum(e.delta_held) OVER later, 0),
	       e.id, e.reference, $4
	  FROM entries e JOIN moved m USING (tenant, sku, location)
	WINDOW later AS (PARTITION BY e.tenant, e.sku, e.location ORDER BY e.id, e.part ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)
	 ORDER BY e.id, e.sku, e.location, e.part
)
SELECT count(*) FROM settled`

// settle returns how many reservations it took out of held.
func settle(ctx context.Context, tx pgx.Tx, s settlement) (int, error) {
	var settled int
	err := tx.QueryRow(ctx, settleSQL, s.ids, s.status, s.confirmed, s.actor, s.deadline).Scan(&settled)
	return settled, err
}

// lockHeld locks a reservation and then its stock rows, with any others that the caller will
// need. Its time may run out while this waits: that is for the statement that acts to judge.
func lockHeld(ctx context.Context, tx pgx.Tx, tenant string, id uuid.UUID, also ...place) (Reservation, error) {
	r, err := LockReservation(ctx, tx, tenant, id)
	if err == nil && (r.Status == Held || r.Status == Expired) {
		_, err = lockStock(ctx, tx, tenant, append(placesOf(r.Lines), also...))
	}
	return r, err
}

func placesOf(lines []Line) []place {
	places := make([]place, len(lines))
	for i, l := range lines {
		places[i] = place{l.SKU, l.Location}
	}
	return places
}

// Release is a command to give a hold back.
type Release struct {
	ID uuid.UUID
}

// Release gives a hold back. Released already, or expired, it changes nothing and is no
// error. It fails with [ErrReservationNotFound] or [ErrConfirmed].
func (s *Store) Release(ctx context.Context, c Caller, cmd Release) (Reservation, bool, error) {
	return command(ctx, s, c, func(tx pgx.Tx) (Reservation, error) {
		r, err := lockHeld(ctx, tx, c.Tenant, cmd.ID)
		if err != nil {
			return Reservation{}, err
		}
		switch r.Status {
		case Confirmed:
			return Reservation{}, stateError(r, "")
		case Released, Expired:
			return r, nil
		}
		settled, err := settle(ctx, tx, settlement{ids: []uuid.UUID{r.ID}, status: Released, actor: c.Actor, deadline: s.deadline(c)})
		if err != nil {
			return Reservation{}, err
		}
		if settled == 0 { // the hold ran out just now, or the request did
			return Reservation{}, s.refusedInTime(ctx, tx, c)
		}
		return reservationByID(ctx, tx, c.Tenant, r.ID)
	})
}
