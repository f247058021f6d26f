package inventory

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Status is where a reservation stands.
type Status string

// A reservation is held until it becomes one of the others, which it does once.
const (
	Held      Status = "held"
	Confirmed Status = "confirmed"
	Released  Status = "released"
	Expired   Status = "expired"
)

// Line is one SKU and location of a reservation.
type Line struct {
	SKU       string `json:"sku"`
	Location  string `json:"location"`
	Quantity  int64  `json:"quantity" doc:"Units held"`
	Wanted    *int64 `json:"wanted,omitempty" doc:"Units asked for, where less would have done"`
	Confirmed *int64 `json:"confirmed,omitempty" doc:"Units sold, once confirmed"`
	Returned  *int64 `json:"returned,omitempty" doc:"Units that came back after that"`
}

// Reservation is a hold on stock for a bounded time.
type Reservation struct {
	ID        uuid.UUID  `json:"id"`
	Status    Status     `json:"status" enum:"held,confirmed,released,expired"`
	Lines     []Line     `json:"lines" nullable:"false"`
	Customer  string     `json:"customer,omitempty"`
	Reference string     `json:"reference,omitempty"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt time.Time  `json:"expires_at" doc:"From this instant the hold counts as free"`
	SettledAt *time.Time `json:"settled_at,omitempty" doc:"When it was confirmed or released, or its expiry was booked"`
	// Shortages is what a partial reservation didn't get; only in the answer that made it.
	Shortages []Shortage `json:"shortages,omitempty"`
	// Seq is, in a list of one SKU's reservations, the ledger entry of the hold.
	Seq int64 `json:"-"`
}

// reservationColumns is read by scanReservation. The status tells the truth of the
// instant: an overdue hold is expired, whether or not the reaper has passed.
const reservationColumns = `id,
	CASE WHEN status = 'held' AND expires_at <= clock_timestamp() THEN 'expired' ELSE status END AS status,
	line_skus, line_locations, line_quantities, line_wanted, line_confirmed, NULL::bigint[] AS line_returned,
	coalesce(customer, '') AS customer, coalesce(reference, '') AS reference, created_at, expires_at, settled_at`

// historyReservationColumns is the same of one that is over.
const historyReservationColumns = `id, status, line_skus, line_locations, line_quantities, line_wanted, line_confirmed, line_returned,
	coalesce(customer, '') AS customer, coalesce(reference, '') AS reference, created_at, expires_at, settled_at`

func scanReservation(row pgx.CollectableRow) (Reservation, error) {
	var r Reservation
	var skus, locations []string
	var quantities, wanted, confirmed, returned []int64
	err := row.Scan(&r.ID, &r.Status, &skus, &locations, &quantities, &wanted, &confirmed, &returned,
		&r.Customer, &r.Reference, &r.CreatedAt, &r.ExpiresAt, &r.SettledAt)
	if err != nil {
		return Reservation{}, err
	}
	r.CreatedAt, r.ExpiresAt = r.CreatedAt.UTC(), r.ExpiresAt.UTC()
	if r.SettledAt != nil {
		utc := r.SettledAt.UTC()
		r.SettledAt = &utc
	}
	r.Lines = make([]Line, len(skus))
	for i := range skus {
		r.Lines[i] = Line{SKU: skus[i], Location: locations[i], Quantity: quantities[i]}
		if wanted != nil {
			r.Lines[i].Wanted = &wanted[i]
		}
		if confirmed != nil {
			r.Lines[i].Confirmed = &confirmed[i]
		}
		if returned != nil {
			r.Lines[i].Returned = &returned[i]
		}
	}
	return r, nil
}

// GetReservation reads one reservation. It fails with [ErrReservationNotFound].
func (s *Store) GetReservation(ctx context.Context, tenant string, id uuid.UUID) (Reservation, error) {
	return reservationByID(ctx, s.pool, tenant, id, "")
}

// reservationByID reads a reservation where it is, with a locking clause or without. One that is
// over between the two statements is found by the second.
func reservationByID(ctx context.Context, db executor, tenant string, id uuid.UUID, lock string) (Reservation, error) {
	r, err := oneReservation(ctx, db, `SELECT `+reservationColumns+` FROM inventory.reservations WHERE tenant = $1 AND id = $2 `+lock, tenant, id)
	if errors.Is(err, ErrReservationNotFound) {
		return oneReservation(ctx, db, `SELECT `+historyReservationColumns+` FROM inventory.reservation_history WHERE tenant = $1 AND id = $2 `+lock, tenant, id)
	}
	return r, err
}

func oneReservation(ctx context.Context, db executor, sql, tenant string, id uuid.UUID) (Reservation, error) {
	rows, err := db.Query(ctx, sql, tenant, id)
	if err != nil {
		return Reservation{}, err
	}
	r, err := pgx.CollectExactlyOneRow(rows, scanReservation)
	if errors.Is(err, pgx.ErrNoRows) {
		return Reservation{}, ErrReservationNotFound
	}
	return r, err
}

// LockReservation locks a reservation's row until tx ends, waiting for whoever has it, and
// reads it. Call it before locking any stock row. It fails with [ErrReservationNotFound].
func LockReservation(ctx context.Context, tx pgx.Tx, tenant string, id uuid.UUID) (Reservation, error) {
	if _, err := reservationByID(ctx, tx, tenant, id, "FOR UPDATE"); err != nil {
		return Reservation{}, err
	}
	// A statement of its own, so that the time is that after the wait.
	return reservationByID(ctx, tx, tenant, id, "")
}

// ReservationFilter chooses reservations for a list; empty fields choose all.
type ReservationFilter struct {
	SKU       string
	Status    Status
	Customer  string
	Reference string
}

// Position is where a list of reservations goes on; the zero value is its beginning.
type Position struct {
	ID  uuid.UUID `json:"id"`
	Seq int64     `json:"seq"`
}

// Position is that of a reservation in the list that it was read by.
func (r Reservation) Position() Position { return Position{r.ID, r.Seq} }

// ListReservations reads up to limit reservations, newest first, from before the given position of
// the same list.
func (s *Store) ListReservations(ctx context.Context, tenant string, f ReservationFilter, before Position, limit int) ([]Reservation, error) {
	where, args := "tenant = $1", []any{tenant, limit}
	and := func(condition string, arg any) {
		args = append(args, arg)
		where += fmt.Sprintf(" AND "+condition, len(args))
	}
	if f.Customer != "" {
		and("customer = $%d", f.Customer)
	}
	if f.Reference != "" {
		and("reference = $%d", f.Reference)
	}
	if f.Status != "" {
		and("status = $%d", f.Status)
	}
	if f.SKU != "" {
		return s.listOfSKU(ctx, where, args, f.SKU, before)
	}
	if before.ID != uuid.Nil {
		and("id < $%d", before.ID)
	}
	// The status of a hold is a matter of time, so it is looked at from outside.
	rows, err := s.pool.Query(ctx, fmt.Sprintf(`
		(SELECT * FROM (SELECT tenant, %[1]s FROM inventory.reservations) held WHERE %[3]s ORDER BY id DESC LIMIT $2)
		UNION ALL
		(SELECT * FROM (SELECT tenant, %[2]s FROM inventory.reservation_history) over WHERE %[3]s ORDER BY id DESC LIMIT $2)
		ORDER BY id DESC LIMIT $2`, reservationColumns, historyReservationColumns, where), args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Reservation, error) {
		var tenant string
		return scanReservation(prefixed{row, []any{&tenant}})
	})
}

// listOfSKU goes by the ledger's entries of the SKU's holds, since no index of the reservations knows
// what they are about. Of several entries of one reservation it goes by that of its first line.
func (s *Store) listOfSKU(ctx context.Context, where string, args []any, sku string, before Position) ([]Reservation, error) {
	if before.Seq == 0 {
		before.Seq = math.MaxInt64
	}
	args = append(args, sku, before.Seq)
	rows, err := s.pool.Query(ctx, fmt.Sprintf(`
		SELECT l.seq, r.* FROM inventory.ledger l CROSS JOIN LATERAL (
			SELECT * FROM (
				SELECT tenant, %[1]s FROM inventory.reservations h WHERE h.tenant = l.tenant AND h.id = l.reservation_id
				UNION ALL
				SELECT tenant, %[2]s FROM inventory.reservation_history h WHERE h.tenant = l.tenant AND h.id = l.reservation_id) found
			WHERE %[3]s AND l.location = line_locations[array_position(line_skus, l.sku)]
		) r
		WHERE l.tenant = $1 AND l.sku = $%[4]d AND l.kind = 'hold' AND l.seq < $%[5]d
		ORDER BY l.seq DESC LIMIT $2`,
		reservationColumns, historyReservationColumns, where, len(args)-1, len(args)), args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Reservation, error) {
		var tenant string
		var seq int64
		r, err := scanReservation(prefixed{row, []any{&seq, &tenant}})
		r.Seq = seq
		return r, err
	})
}

// Extension is a command to hold on for ttl, counted from now.
type Extension struct {
	ID  uuid.UUID
	TTL time.Duration // 1 s to 24 h
}

// Extend moves a hold's expiry, never nearer. It fails with [ErrReservationNotFound],
// [ErrExpired], [ErrReleased], [ErrConfirmed] or [ErrExtensionLimit].
func (s *Store) Extend(ctx context.Context, c Caller, e Extension) (Reservation, bool, error) {
	if err := checkTTL("ttl", e.TTL); err != nil {
		return Reservation{}, false, err
	}
	return s.submit(&task{ctx: ctx, caller: c, extend: &e})
}

func stateError(r Reservation, detail string) error {
	kind := map[Status]error{Held: ErrHeld, Expired: ErrExpired, Released: ErrReleased, Confirmed: ErrConfirmed}[r.Status]
	return &StateError{Kind: kind, ID: r.ID, Status: r.Status, Detail: detail}
}
