package inventory

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Bounds of a reservation.
const (
	MaxLines   = 100
	MaxUnits   = 1_000_000_000 // of one line, and of one adjustment
	MinTTL     = time.Second
	MaxTTL     = 24 * time.Hour
	DefaultTTL = 10 * time.Minute
)

// Reserve is a command to hold units.
type Reserve struct {
	Lines        []Line        // SKU, Location ("": default) and Quantity; lines of the same SKU and location add up
	TTL          time.Duration // 0: the shortest default of the SKUs, or [DefaultTTL]
	Customer     string
	Reference    string
	AllowPartial bool // hold what is free if it is less
}

// reserveSQL checks and takes in one statement: rivals queue on the stock rows, so nothing can
// come between the reading and the writing. It makes the reservation only if every line was taken.
const reserveSQL = `
WITH want AS (
	SELECT * FROM unnest($3::text[], $4::text[], $5::bigint[]) AS w(sku, location, quantity)
), taken AS (
	UPDATE inventory.stock s SET held = s.held + w.quantity
	  FROM want w
	 WHERE s.tenant = $2 AND s.sku = w.sku AND s.location = w.location AND s.active
	   AND s.on_hand + s.backorder_limit - s.held - s.safety_stock >= w.quantity
	   AND clock_timestamp() < coalesce($11, 'infinity'::timestamptz)
	RETURNING s.sku, s.location, w.quantity, s.on_hand, s.held
), made AS (
	INSERT INTO inventory.reservations (id, tenant, line_skus, line_locations, line_quantities, line_wanted,
	                                    customer, reference, first_ttl, created_at, expires_at)
	SELECT $1, $2, $3, $4, $5, $6, nullif($7, ''), nullif($8, ''), make_interval(secs => $9), t.now, t.now + make_interval(secs => $9)
	  FROM (SELECT clock_timestamp() AS now) t
	 WHERE (SELECT count(*) FROM taken) = (SELECT count(*) FROM want)
	RETURNING id
), noted AS (
	INSERT INTO inventory.ledger (tenant, sku, location, kind, delta_on_hand, delta_held, on_hand, held, reservation_id, reference, actor)
	SELECT $2, t.sku, t.location, 'hold', 0, t.quantity, t.on_hand, t.held, m.id, nullif($8, ''), $10
	  FROM taken t, made m ORDER BY t.sku, t.location
)
SELECT count(*) FROM made`

// Reserve holds units, all lines or none, for the ttl counted on the database's clock. With
// AllowPartial it holds what is free; the rest stands in Shortages. It fails with
// [ErrSKUNotFound], [ErrLocationNotFound], [ErrCustomerRequired], [ErrCustomerLimit]
// or [ErrSoldOut].
func (s *Store) Reserve(ctx context.Context, c Caller, cmd Reserve) (Reservation, bool, error) {
	lines, err := checkReserve(cmd)
	if err != nil {
		return Reservation{}, false, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Reservation{}, false, err
	}
	take := taking{tenant: c.Tenant, wanted: map[place]int64{}}
	for _, l := range lines {
		take.wanted[place{l.SKU, l.Location}] = l.Quantity
	}
	return command(ctx, s, c, func(tx pgx.Tx) (Reservation, error) {
		shelves, shortages, err := take.lockAndFree(ctx, tx)
		if err != nil {
			return Reservation{}, err
		}
		if err := checkCustomer(ctx, tx, c.Tenant, cmd.Customer, shelves, take.wanted); err != nil {
			return Reservation{}, err
		}
		granted := lines
		if len(shortages) > 0 {
			if granted = whatIsFree(lines, shelves); !cmd.AllowPartial || len(granted) == 0 {
				return Reservation{}, &ShortageError{Kind: ErrSoldOut, Shortages: shortages}
			}
		}
		made, err := s.reserve(ctx, tx, c, id, cmd, granted, ttlOf(cmd, granted, shelves))
		if err != nil {
			return Reservation{}, err
		}
		if !made {
			return Reservation{}, s.refusedInTime(ctx, tx, c)
		}
		r, err := reservationByID(ctx, tx, c.Tenant, id)
		r.Shortages = shortages
		return r, err
	})
}

func (s *Store) reserve(ctx context.Context, tx pgx.Tx, c Caller, id uuid.UUID, cmd Reserve, lines []Line, ttl time.Duration) (bool, error) {
	skus, locations := make([]string, len(lines)), make([]string, len(lines))
	quantities := make([]int64, len(lines))
	var wanted []int64
	for i, l := range lines {
		skus[i], locations[i], quantities[i] = l.SKU, l.Location, l.Quantity
		if cmd.AllowPartial {
			if l.Wanted == nil {
				l.Wanted = &l.Quantity
			}
			wanted = append(wanted, *l.Wanted)
		}
	}
	var made int
	err := tx.QueryRow(ctx, reserveSQL, id, c.Tenant, skus, locations, quantities, wanted,
		cmd.Customer, cmd.Reference, ttl.Seconds(), c.Actor, s.deadline(c)).Scan(&made)
	return made == 1, err
}

// whatIsFree cuts each line to what its shelf has, and drops those that get nothing.
func whatIsFree(lines []Line, shelves map[place]shelf) []Line {
	var granted []Line
	for _, l := range lines {
		wanted := l.Quantity
		l.Wanted = &wanted
		l.Quantity = min(wanted, shelves[place{l.SKU, l.Location}].free())
		if l.Quantity > 0 {
			granted = append(granted, l)
		}
	}
	return granted
}

func ttlOf(cmd Reserve, lines []Line, shelves map[place]shelf) time.Duration {
	if cmd.TTL != 0 {
		return cmd.TTL
	}
	var shortest time.Duration
	for _, l := range lines {
		if own := shelves[place{l.SKU, l.Location}].defaultTTL; own != nil && (shortest == 0 || *own < shortest) {
			shortest = *own
		}
	}
	if shortest == 0 {
		return DefaultTTL
	}
	return shortest
}

// customerUnitsSQL counts what a customer holds or has bought of some SKUs. Under the lock of
// their stock rows it can't grow.
const customerUnitsSQL = `
SELECT l.sku, sum(coalesce(l.confirmed, l.quantity))::bigint
  FROM inventory.reservations r, unnest(r.line_skus, r.line_quantities, r.line_confirmed) AS l(sku, quantity, confirmed)
 WHERE r.tenant = $1 AND r.customer = $2 AND l.sku = ANY($3)
   AND (r.status = 'confirmed' OR r.status = 'held' AND r.expires_at > clock_timestamp())
 GROUP BY l.sku`

// checkCustomer refuses what would pass a SKU's limit per customer. It is called under the
// lock of the stock rows, which all takers of the SKU share.
func checkCustomer(ctx context.Context, tx pgx.Tx, tenant, customer string, shelves map[place]shelf, wanted map[place]int64) error {
	limits, wants := map[string]int64{}, map[string]int64{}
	for p, units := range wanted {
		if limit := shelves[p].maxPerCustomer; limit != nil {
			limits[p.sku] = *limit
			wants[p.sku] += units
		}
	}
	if len(limits) == 0 {
		return nil
	}
	var skus []string
	for sku := range limits {
		skus = append(skus, sku)
	}
	slices.Sort(skus)
	if customer == "" {
		return &NotFoundError{Kind: ErrCustomerRequired, Name: skus[0]}
	}
	rows, err := tx.Query(ctx, customerUnitsSQL, tenant, customer, skus)
	if err != nil {
		return err
	}
	has := map[string]int64{}
	var sku string
	var units int64
	if _, err := pgx.ForEachRow(rows, []any{&sku, &units}, func() error { has[sku] = units; return nil }); err != nil {
		return err
	}
	for _, sku := range skus {
		if has[sku]+wants[sku] > limits[sku] {
			return &CustomerLimitError{SKU: sku, Limit: limits[sku], Has: has[sku], Wanted: wants[sku]}
		}
	}
	return nil
}

func checkReserve(cmd Reserve) ([]Line, error) {
	if cmd.TTL != 0 {
		if err := checkTTL("ttl", cmd.TTL); err != nil {
			return nil, err
		}
	}
	if err := checkText("customer", cmd.Customer, 255); err != nil {
		return nil, err
	}
	if err := checkText("reference", cmd.Reference, 255); err != nil {
		return nil, err
	}
	return mergeLines(cmd.Lines)
}

// mergeLines checks lines and adds up those of the same SKU and location, in the order of
// their first mention.
func mergeLines(lines []Line) ([]Line, error) {
	if len(lines) == 0 {
		return nil, invalid("lines", "must have at least one line")
	}
	if len(lines) > MaxLines {
		return nil, invalid("lines", "must have at most %d lines, not %d", MaxLines, len(lines))
	}
	var merged []Line
	for i, l := range lines {
		at := fmt.Sprintf("lines[%d].", i)
		if l.Location == "" {
			l.Location = DefaultLocation
		}
		if err := checkSKU(at+"sku", l.SKU); err != nil {
			return nil, err
		}
		if err := checkSKU(at+"location", l.Location); err != nil {
			return nil, err
		}
		if l.Quantity < 1 || l.Quantity > MaxUnits {
			return nil, invalid(at+"quantity", "must be from 1 to %d, not %d", MaxUnits, l.Quantity)
		}
		same := slices.IndexFunc(merged, func(m Line) bool { return m.SKU == l.SKU && m.Location == l.Location })
		if same < 0 {
			merged = append(merged, Line{SKU: l.SKU, Location: l.Location, Quantity: l.Quantity})
			continue
		}
		if merged[same].Quantity += l.Quantity; merged[same].Quantity > MaxUnits {
			return nil, invalid(at+"quantity", "the lines of %s add up to more than %d", l.SKU, MaxUnits)
		}
	}
	return merged, nil
}

var skuPattern = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)

// skuReason says what a SKU or a location may be called.
const skuReason = "must be 1 to 128 characters of A-Z a-z 0-9 . _ : -"

func checkSKU(field, sku string) error {
	if !skuPattern.MatchString(sku) {
		return invalid(field, skuReason)
	}
	return nil
}

func checkTTL(field string, ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return invalid(field, "must be from %v to %v, not %v", MinTTL, MaxTTL, ttl)
	}
	return nil
}

// checkText bounds optional text; the empty one stands for none.
func checkText(field, text string, most int) error {
	if n := utf8.RuneCountInString(text); n > most {
		return invalid(field, "must be at most %d characters, not %d", most, n)
	}
	if !utf8.ValidString(text) || slices.Contains([]byte(text), 0) {
		return invalid(field, "must be UTF-8 without NUL")
	}
	return nil
}
