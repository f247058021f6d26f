package inventory

import (
	"context"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Entry is one change of a SKU's counters.
type Entry struct {
	Seq           int64      `json:"seq" doc:"Rises with every change of a SKU at a location"`
	At            time.Time  `json:"at"`
	Kind          string     `json:"kind" enum:"receive,write_off,count,hold,offer,confirm,release,expire,retake,repair"`
	Location      string     `json:"location"`
	DeltaOnHand   int64      `json:"delta_on_hand"`
	DeltaHeld     int64      `json:"delta_held"`
	OnHand        int64      `json:"on_hand" doc:"Units on hand after the change"`
	Held          int64      `json:"held" doc:"Units held after the change"`
	ReservationID *uuid.UUID `json:"reservation_id,omitempty"`
	Reference     *string    `json:"reference,omitempty"`
	Reason        *string    `json:"reason,omitempty"`
	Actor         string     `json:"actor" doc:"Who made the change; expiry where time did"`
}

// entriesSQL reads a SKU's entries; what goes on from where, and in which order, comes after it.
const entriesSQL = `
SELECT seq, at, kind, location, delta_on_hand, delta_held, on_hand, held, reservation_id, reference, reason, actor
  FROM inventory.ledger WHERE tenant = $1 AND sku = $2`

// Ledger reads up to limit of a SKU's entries, oldest first, from after the given one. It fails
// with [ErrSKUNotFound] if the SKU never was.
func (s *Store) Ledger(ctx context.Context, tenant, sku string, after int64, limit int) ([]Entry, error) {
	entries, err := s.entries(ctx, entriesSQL+` AND seq > $3 ORDER BY seq LIMIT $4`, tenant, sku, after, limit)
	if err != nil || len(entries) > 0 {
		return entries, err
	}
	var known bool
	err = s.pool.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM inventory.skus WHERE tenant = $1 AND sku = $2)`, tenant, sku).Scan(&known)
	if err == nil && !known {
		err = &NotFoundError{Kind: ErrSKUNotFound, Name: sku}
	}
	return nil, err
}

// LatestEntries reads up to limit of a SKU's entries, newest first, from before the given one; zero: from
// the newest on. It doesn't say whether the SKU ever was.
func (s *Store) LatestEntries(ctx context.Context, tenant, sku string, before int64, limit int) ([]Entry, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	return s.entries(ctx, entriesSQL+` AND seq < $3 ORDER BY seq DESC LIMIT $4`, tenant, sku, before, limit)
}

func (s *Store) entries(ctx context.Context, sql string, args ...any) ([]Entry, error) {
	rows, err := s.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	entries, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Entry])
	for i := range entries {
		entries[i].At = entries[i].At.UTC()
	}
	return entries, err
}
