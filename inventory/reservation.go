package inventory

import (
	"context"
	"errors"
	"fmt"
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
}

// reservationColumns is read by scanReservation. The status tells the truth of the
// instant: an overdue hold is expired, whether or not the reaper has passed.
const reservationColumns = `id,
	CASE WHEN status = 'held' AND expires_at <= clock_timestamp() THEN 'expired' ELSE status END,
	line_skus, line_locations, line_quantities, line_wanted, line_confirmed,
	coalesce(customer, ''), coalesce(reference, ''), created_at, expires_at, settled_at`

func scanReservation(row pgx.CollectableRow) (Reservation, error) {
	var r Reservation
	var skus, locations []string
	var quantities, wanted, confirmed []int64
	err := row.Scan(&r.ID, &r.Status, &skus, &locations, &quantities, &wanted, &confirmed,
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
	}
	return r, nil
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func reservationByID(ctx context.Context, db querier, tenant string, id uuid.UUID) (Reservation, error) {
	rows, err := db.Query(ctx, `SELECT `+reservationColumns+` FROM inventory.reservations WHERE id = $1 AND tenant = $2`, id, tenant)
	if err != nil {
		return Reservation{}, err
	}
	r, err := pgx.CollectExactlyOneRow(rows, scanReservation)
	if errors.Is(err, pgx.ErrNoRows) {
		return Reservation{}, ErrReservationNotFound
	}
	return r, err
}

// GetReservation reads one reservation. It fails with [ErrReservationNotFound].
func (s *Store) GetReservation(ctx context.Context, tenant string, id uuid.UUID) (Reservation, error) {
	return reservationByID(ctx, s.pool, tenant, id)
}

// LockReservation locks a reservation's row until tx ends, waiting for whoever has it, and
// reads it. Call it before locking any stock row. It fails with [ErrReservationNotFound].
func LockReservation(ctx context.Context, tx pgx.Tx, tenant string, id uuid.UUID) (Reservation, error) {
	var one int
	err := tx.QueryRow(ctx, `SELECT 1 FROM inventory.reservations WHERE id = $1 AND tenant = $2 FOR UPDATE`, id, tenant).Scan(&one)
	if errors.Is(err, pgx.ErrNoRows) {
		return Reservation{}, ErrReservationNotFound
	}
	if err != nil {
		return Reservation{}, err
	}
	// A statement of its own, so that it sees what was committed while this one waited.
	return reservationByID(ctx, tx, tenant, id)
}

// ReservationFilter chooses reservations for a list; empty fields choose all.
type ReservationFilter struct {
	SKU       string
	Status    Status
	Customer  string
	Reference string
}

// ListReservations reads up to limit reservations, newest first, from before the given id.
func (s *Store) ListReservations(ctx context.Context, tenant string, f ReservationFilter, before uuid.UUID, limit int) ([]Reservation, error) {
	where := "tenant = $1"
	args := []any{tenant}
	and := func(condition string, arg any) {
		args = append(args, arg)
		where += fmt.Sprintf(" AND "+condition, len(args))
	}
	if before != uuid.Nil {
		and("id < $%d", before)
	}
	if f.SKU != "" {
		and("line_skus @> ARRAY[$%d]", f.SKU)
	}
	if f.Customer != "" {
		and("customer = $%d", f.Customer)
	}
	if f.Reference != "" {
		and("reference = $%d", f.Reference)
	}
	switch f.Status {
	case "":
	case Held:
		where += " AND status = 'held' AND expires_at > (SELECT clock_timestamp())"
	case Expired:
		where += " AND (status = 'expired' OR status = 'held' AND expires_at <= (SELECT clock_timestamp()))"
	default:
		and("status = $%d", f.Status)
	}
	args = append(args, limit)
	rows, err := s.pool.Query(ctx, fmt.Sprintf(`SELECT %s FROM inventory.reservations WHERE %s ORDER BY id DESC LIMIT $%d`,
		reservationColumns, where, len(args)), args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanReservation)
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
	kind := map[Status]error{Expired: ErrExpired, Released: ErrReleased, Confirmed: ErrConfirmed}[r.Status]
	return &StateError{Kind: kind, ID: r.ID, Status: r.Status, Detail: detail}
}
