package inventory

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Location is a place where stock may be kept.
type Location struct {
	Location  string     `json:"location"`
	Name      string     `json:"name"`
	Rank      int32      `json:"rank" doc:"Lower is preferred when a reservation doesn't say from where"`
	CreatedAt *time.Time `json:"created_at,omitempty" doc:"Not of the location default, unless it was changed"`
	UpdatedAt *time.Time `json:"updated_at,omitempty"`
}

// LocationSettings is a command to create a location or to change some of its settings.
type LocationSettings struct {
	Location string
	Name     Change[string]
	Rank     Change[int32]
}

// MaxRank is the highest rank of a location; 0 is the lowest.
const MaxRank = 1_000_000

const putLocationSQL = `
INSERT INTO inventory.locations AS l (tenant, location, name, rank) VALUES ($1, $2, coalesce($4, ''), coalesce($6, 0))
ON CONFLICT (tenant, location) DO UPDATE
   SET name = CASE WHEN $3 THEN coalesce($4, '') ELSE l.name END,
       rank = CASE WHEN $5 THEN coalesce($6, 0) ELSE l.rank END,
       updated_at = clock_timestamp()
RETURNING location, name, rank, created_at, updated_at, xmax = 0`

// PutLocation creates a location, with created set, or changes the settings that the command names.
func (s *Store) PutLocation(ctx context.Context, c Caller, cmd LocationSettings) (l Location, created bool, err error) {
	if err := checkSKU("location", cmd.Location); err != nil {
		return Location{}, false, err
	}
	if cmd.Name.Value != nil {
		if err := checkText("name", *cmd.Name.Value, 255); err != nil {
			return Location{}, false, err
		}
	}
	if rank := cmd.Rank.Value; rank != nil && (*rank < 0 || *rank > MaxRank) {
		return Location{}, false, invalid("rank", "must be from 0 to %d, not %d", MaxRank, *rank)
	}
	l, _, err = command(ctx, s, c, func(tx pgx.Tx) (l Location, err error) {
		err = tx.QueryRow(ctx, putLocationSQL, c.Tenant, cmd.Location, cmd.Name.Set, cmd.Name.Value, cmd.Rank.Set, cmd.Rank.Value).
			Scan(&l.Location, &l.Name, &l.Rank, &l.CreatedAt, &l.UpdatedAt, &created)
		if err != nil {
			return l, err
		}
		created = created && cmd.Location != DefaultLocation
		return inUTC(l), s.clock.InTime(ctx, tx, c.Deadline)
	})
	return l, created, err
}

func inUTC(l Location) Location {
	for _, at := range []**time.Time{&l.CreatedAt, &l.UpdatedAt} {
		if *at != nil {
			utc := (*at).UTC()
			*at = &utc
		}
	}
	return l
}

// locationsSQL reads locations by their names; the location default is there without a row.
const locationsSQL = `
SELECT location, name, rank, created_at, updated_at
  FROM (SELECT location, name, rank, created_at, updated_at FROM inventory.locations WHERE tenant = $1
        UNION ALL
        SELECT '` + DefaultLocation + `', '', 0, NULL, NULL
         WHERE NOT EXISTS (SELECT 1 FROM inventory.locations WHERE tenant = $1 AND location = '` + DefaultLocation + `')) l
 WHERE location > $2 ORDER BY location LIMIT $3`

// ListLocations reads up to limit locations in the order of their names, from after the given one.
func (s *Store) ListLocations(ctx context.Context, tenant, after string, limit int) ([]Location, error) {
	rows, err := s.pool.Query(ctx, locationsSQL, tenant, after, limit)
	if err != nil {
		return nil, err
	}
	locations, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Location])
	for i := range locations {
		locations[i] = inUTC(locations[i])
	}
	return locations, err
}

// GetLocation reads one location. It fails with [ErrLocationNotFound].
func (s *Store) GetLocation(ctx context.Context, tenant, location string) (l Location, err error) {
	err = s.pool.QueryRow(ctx, `SELECT location, name, rank, created_at, updated_at FROM inventory.locations WHERE tenant = $1 AND location = $2`,
		tenant, location).Scan(&l.Location, &l.Name, &l.Rank, &l.CreatedAt, &l.UpdatedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		if location == DefaultLocation {
			return Location{Location: DefaultLocation}, nil
		}
		return Location{}, &NotFoundError{Kind: ErrLocationNotFound, Name: location}
	}
	return inUTC(l), err
}

// dropShelvesSQL closes a location's stock rows, which are locked, unless there is anything on them. They
// stay, since what was sold from them is part of their SKUs' totals.
const dropShelvesSQL = `
UPDATE inventory.stock SET active = false
 WHERE tenant = $1 AND location = $2 AND active AND on_hand = 0 AND held = 0`

// DeleteLocation deletes a location that has no stock and no holds. It fails with [ErrLocationNotFound] or
// [ErrLocationInUse], always for the location default.
func (s *Store) DeleteLocation(ctx context.Context, c Caller, location string) error {
	if location == DefaultLocation {
		return ErrLocationInUse
	}
	var take taking
	_, _, err := command(ctx, s, c, func(tx pgx.Tx) (none struct{}, err error) {
		// Whoever wants to put stock there waits for this row, see ensureShelf.
		tag, err := tx.Exec(ctx, `DELETE FROM inventory.locations WHERE tenant = $1 AND location = $2`, c.Tenant, location)
		if err != nil {
			return none, err
		}
		if tag.RowsAffected() == 0 {
			return none, &NotFoundError{Kind: ErrLocationNotFound, Name: location}
		}
		rows, err := tx.Query(ctx, `SELECT sku FROM inventory.stock WHERE tenant = $1 AND location = $2 AND active ORDER BY sku`, c.Tenant, location)
		if err != nil {
			return none, err
		}
		skus, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return none, err
		}
		take = taking{tenant: c.Tenant, also: slices.Concat(skus, take.also)}
		slices.Sort(take.also)
		take.also = slices.Compact(take.also)
		items, err := take.lock(ctx, tx)
		if err != nil {
			return none, err
		}
		var held []string // perhaps by holds that have expired, and no longer count
		for _, sku := range skus {
			if items[sku].at(location).held > 0 {
				held = append(held, sku)
			}
		}
		for some := len(held) > 0; some; {
			if some, err = take.giveBackExpired(ctx, tx, items, held); err != nil {
				return none, err
			}
		}
		tag, err = tx.Exec(ctx, dropShelvesSQL, c.Tenant, location)
		if err == nil && tag.RowsAffected() != int64(len(skus)) {
			err = ErrLocationInUse
		}
		if err == nil {
			_, err = s.serveLines(ctx, tx, c.Tenant, items)
		}
		if err == nil {
			err = s.clock.InTime(ctx, tx, c.Deadline)
		}
		return none, err
	})
	return err
}
