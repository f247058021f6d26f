package inventory_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"holdfast/inventory"
)

// I1 to I7 under random commands by more actors than units, on two replicas at once.
func TestInvariantsUnderRandomCommands(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	skus := []string{"a", "b", "c"}
	for _, sku := range skus {
		w.receive(sku, 4)
	}
	w.stockAt("a", "attic", 3, "cellar", 1)
	three := int64(3)
	w.put(inventory.Settings{SKU: "c", MaxPerCustomer: inventory.Change[int64]{Set: true, Value: &three}})
	type command struct {
		kind, which int
		lines       []inventory.Line
		customer    string
		allocate    inventory.Allocation
	}
	anyCommand := rapid.Custom(func(t *rapid.T) command {
		return command{
			kind:     rapid.IntRange(0, 15).Draw(t, "kind"),
			which:    rapid.IntRange(0, 20).Draw(t, "which"),
			customer: rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "customer"),
			allocate: rapid.SampledFrom([]inventory.Allocation{inventory.Prefer, inventory.Fewest, inventory.Spread}).Draw(t, "allocate"),
			lines: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) inventory.Line {
				l := inventory.Line{SKU: rapid.SampledFrom(skus).Draw(t, "sku"), Quantity: rapid.Int64Range(1, 3).Draw(t, "quantity")}
				if l.SKU == "a" {
					l.Location = rapid.SampledFrom([]string{"", "", "default", "attic", "cellar"}).Draw(t, "location")
				}
				return l
			}), 1, 3).Draw(t, "lines"),
		}
	})
	expected := []error{
		inventory.ErrSoldOut, inventory.ErrExpired, inventory.ErrReleased, inventory.ErrConfirmed,
		inventory.ErrExpiredSoldOut, inventory.ErrBelowHeld, inventory.ErrExtensionLimit, inventory.ErrOverConfirmed,
		inventory.ErrCustomerLimit, inventory.ErrOverReturned, inventory.ErrHeld, inventory.ErrAlreadyWaiting,
	}

	rapid.Check(t, func(rt *rapid.T) {
		var mu sync.Mutex
		var made, joined []uuid.UUID
		pick := func(from *[]uuid.UUID, n int) uuid.UUID {
			mu.Lock()
			defer mu.Unlock()
			if len(*from) == 0 {
				return uuid.Nil
			}
			return (*from)[n%len(*from)]
		}
		run := func(s *inventory.Store, c command) error {
			ctx, id, place := t.Context(), pick(&made, c.which), pick(&joined, c.which)
			var err error
			switch {
			case c.kind <= 2 || id == uuid.Nil:
				var r inventory.Reservation
				r, _, err = s.Reserve(ctx, caller, inventory.Reserve{Lines: c.lines, AllowPartial: c.kind == 2, Customer: c.customer, Allocate: c.allocate})
				if err == nil {
					mu.Lock()
					made = append(made, r.ID)
					mu.Unlock()
				}
			case c.kind == 3:
				_, _, err = s.Confirm(ctx, caller, inventory.Confirmation{ID: id, Retake: c.which%2 == 0})
			case c.kind == 4:
				_, _, err = s.Release(ctx, caller, inventory.Release{ID: id})
			case c.kind == 5:
				_, err = w.db.Pool.Exec(ctx, "UPDATE inventory.reservations SET expires_at = clock_timestamp() WHERE id = $1 AND status = 'held'", id)
			case c.kind == 6:
				_, _, err = s.ReapOnce(ctx)
			case c.kind == 7:
				_, _, err = s.Extend(ctx, caller, inventory.Extension{ID: id, TTL: time.Minute})
			case c.kind == 8:
				_, _, err = s.Adjust(ctx, caller, inventory.Adjustment{SKU: c.lines[0].SKU, Location: c.lines[0].Location, Delta: c.lines[0].Quantity - 2 | 1, Reason: "r"})
			case c.kind == 9:
				_, _, err = s.Return(ctx, caller, inventory.Return{ID: id, Lines: c.lines[:1], Restock: c.which%2 == 0, Reason: "r"})
			case c.kind <= 12 || place == uuid.Nil:
				customer := fmt.Sprintf("%s-%d", c.customer, c.which)
				if c.kind == 10 {
					customer = c.customer // with holds of its own, and a limit
				}
				var p inventory.Place
				p, _, err = s.Join(ctx, caller, inventory.Join{SKU: c.lines[0].SKU, Quantity: c.lines[0].Quantity, Customer: customer, TTL: time.Minute})
				if err == nil {
					mu.Lock()
					joined = append(joined, p.ID)
					if p.ReservationID != nil {
						made = append(made, *p.ReservationID)
					}
					mu.Unlock()
				}
			case c.kind == 13:
				err = s.Leave(ctx, caller, place)
			case c.kind == 14:
				_, err = w.db.Pool.Exec(ctx, "UPDATE inventory.waitlist SET expires_at = clock_timestamp() WHERE id = $1", place)
			case c.kind == 15:
				var p inventory.Place
				if p, err = s.GetPlace(ctx, tenant, place); err == nil && p.ReservationID != nil {
					mu.Lock()
					made = append(made, *p.ReservationID) // for others to confirm, extend or give back
					mu.Unlock()
				} else if err == nil {
					_, err = s.KeepLines(ctx)
				}
			}
			for _, e := range expected {
				if errors.Is(err, e) {
					return nil
				}
			}
			return err
		}
		var actors sync.WaitGroup
		for i := range 6 {
			commands := rapid.SliceOfN(anyCommand, 1, 8).Draw(rt, "commands")
			actors.Go(func() {
				for _, c := range commands {
					if err := run(w.replicas[i%2], c); err != nil {
						t.Errorf("%+v: %v", c, err)
					}
					w.checkNobodyWaitsForNothing() // after every commit, and there are many
				}
			})
		}
		actors.Wait()
		w.checkInvariants()
		var most int64
		w.db.Scan(t, `SELECT coalesce(max(units), 0) FROM (
			SELECT customer, sum(quantity) AS units FROM (
				SELECT customer, quantity FROM inventory.reservations, unnest(line_skus, line_quantities) AS l(sku, quantity)
				 WHERE sku = 'c' AND status = 'held' AND expires_at > clock_timestamp()
				UNION ALL
				SELECT customer, confirmed - coalesce(returned, 0) FROM inventory.reservation_history, unnest(line_skus, line_confirmed, line_returned) AS l(sku, confirmed, returned)
				 WHERE sku = 'c' AND status = 'confirmed') all_of GROUP BY customer) per_customer`, nil, &most)
		if most > three {
			t.Errorf("a customer has %d units, and the limit is %d", most, three)
		}
		if t.Failed() {
			rt.FailNow()
		}
	})
}
