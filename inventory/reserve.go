package inventory

import (
	"context"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"holdfast/internal/pg"
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
	Lines        []Line        // SKU, Location ("": as Allocate says) and Quantity; lines of the same SKU and location add up
	TTL          time.Duration // 0: the shortest default of the SKUs, or [DefaultTTL]
	Customer     string
	Reference    string
	AllowPartial bool       // hold what is free if it is less
	Allocate     Allocation // "": [Prefer]
}

// Reserve holds units, all lines or none, for the ttl counted on the database's clock. With
// AllowPartial it holds what is free; the rest stands in Shortages. It fails with
// [ErrSKUNotFound], [ErrLocationNotFound], [ErrCustomerRequired], [ErrCustomerLimit]
// or [ErrSoldOut].
func (s *Store) Reserve(ctx context.Context, c Caller, cmd Reserve) (Reservation, bool, error) {
	lines, err := checkReserve(cmd)
	if err != nil {
		return Reservation{}, false, err
	}
	id, err := pg.NewID(s.Now())
	if err != nil {
		return Reservation{}, false, err
	}
	cmd.Lines = lines
	return s.submit(&task{ctx: ctx, caller: c, reserve: &cmd, newID: id})
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
	switch cmd.Allocate {
	case "", Prefer, Fewest, Spread:
	default:
		return nil, invalid("allocate", "must be prefer, fewest or spread")
	}
	return mergeLines(cmd.Lines)
}

// mergeLines checks lines and adds up those of the same SKU and location, or of the same SKU and
// none, in the order of their first mention.
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
		if err := checkSKU(at+"sku", l.SKU); err != nil {
			return nil, err
		}
		if l.Location != "" {
			if err := checkSKU(at+"location", l.Location); err != nil {
				return nil, err
			}
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

// skuReason says what a SKU or a location may be called.
const skuReason = "must be 1 to 128 characters of A-Z a-z 0-9 . _ : -"

func checkSKU(field, sku string) error {
	if !isName(sku) {
		return invalid(field, skuReason)
	}
	return nil
}

// isName reports whether a SKU or a location may be called so.
func isName(name string) bool {
	for _, c := range []byte(name) {
		switch {
		case 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '.', c == '_', c == ':', c == '-':
		default:
			return false
		}
	}
	return len(name) >= 1 && len(name) <= 128
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
