package inventory_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"holdfast/internal/idempotency"
	"holdfast/internal/pg"
	"holdfast/inventory"
)

// stopStock locks all stock rows, so that whatever comes meanwhile waits for one batch.
func (w *warehouse) stopStock() (resume func()) {
	w.Helper()
	tx, err := w.db.Pool.Begin(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	if _, err := tx.Exec(w.Context(), "SELECT 1 FROM inventory.stock FOR UPDATE"); err != nil {
		w.Fatal(err)
	}
	return func() {
		w.Helper()
		if err := tx.Rollback(w.Context()); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
			w.Fatal(err)
		}
	}
}

type outcome struct {
	inventory.Reservation
	replayed bool
	err      error
}

func (w *warehouse) reserveInBackground(ctx context.Context, c inventory.Caller, cmd inventory.Reserve) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		r, replayed, err := w.store().Reserve(ctx, c, cmd)
		done <- outcome{r, replayed, err}
	}()
	return done
}

// holdUpLane sends a reserve of one unit that gets no further until resume, which expects it to
// succeed: what is sent meanwhile makes one batch.
func (w *warehouse) holdUpLane(sku string) (resume func()) {
	w.Helper()
	letGo := w.stopStock()
	first := w.reserveInBackground(w.Context(), caller, one(sku, 1))
	w.awaitLockWait(1)
	return func() {
		w.Helper()
		letGo()
		if o := <-first; o.err != nil {
			w.Errorf("the reserve that held up its lane: %v", o.err)
		}
	}
}

// What waits behind a batch makes the next one: each command with its own outcome.
func TestABatchGivesEachCommandItsOwnOutcome(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 30)
	resume := w.holdUpLane("mug")
	var waiting []<-chan outcome
	for range 50 {
		waiting = append(waiting, w.reserveInBackground(t.Context(), caller, one("mug", 1)))
	}
	impossible := w.reserveInBackground(t.Context(), caller, cart(map[string]int64{"mug": 1, "cup": 1}))
	resume()
	held := 1
	for _, done := range waiting {
		switch o := <-done; {
		case o.err == nil:
			held++
		case !errors.Is(o.err, inventory.ErrSoldOut):
			t.Errorf("a reserve: %v", o.err)
		}
	}
	if o := <-impossible; !errors.Is(o.err, inventory.ErrSKUNotFound) {
		t.Errorf("an unknown SKU in the batch: %v", o.err)
	}
	if held != 30 {
		t.Errorf("%d held, want 30", held)
	}
	w.wantCounts("mug", 30, 30, 0)
}

// A command that the database refuses spoils only itself.
func TestABadCommandDoesNotSpoilItsBatch(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 30)
	w.db.Exec(t, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'poison'; END $$`)
	w.db.Exec(t, `CREATE TRIGGER refuse BEFORE INSERT ON inventory.reservations FOR EACH ROW WHEN (NEW.reference = 'poison') EXECUTE FUNCTION refuse()`)
	poison := one("mug", 1)
	poison.Reference = "poison"
	resume := w.holdUpLane("mug")
	var good []<-chan outcome
	for range 10 {
		good = append(good, w.reserveInBackground(t.Context(), caller, one("mug", 1)))
	}
	bad := w.reserveInBackground(t.Context(), caller, poison)
	resume()
	for _, done := range good {
		if o := <-done; o.err != nil {
			t.Errorf("a good command: %v", o.err)
		}
	}
	if o := <-bad; pg.Code(o.err) != "P0001" {
		t.Errorf("the bad one: %v", o.err)
	}
	w.wantCounts("mug", 30, 11, 0)
}

// A client that goes away while its command waits isn't served.
func TestACommandWhoseClientHasGoneIsNotCarriedOut(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 30)
	resume := w.holdUpLane("mug")
	ctx, hangUp := context.WithCancel(t.Context())
	gone := w.reserveInBackground(ctx, caller, one("mug", 7))
	hangUp()
	if o := <-gone; !errors.Is(o.err, context.Canceled) {
		t.Errorf("error is %v", o.err)
	}
	resume()
	w.hold(one("mug", 2)) // a batch after it
	w.wantCounts("mug", 30, 3, 0)
}

// A command whose outcome doesn't come in time is unknown to its client, who learns it with the key.
func TestAnOutcomeThatDoesNotComeIsUnknown(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 30)
	resume := w.stopStock()
	ctx, hangUp := context.WithCancel(t.Context())
	slow := w.reserveInBackground(ctx, withKey("k"), one("mug", 1))
	w.awaitLockWait(1)
	hangUp()
	if o := <-slow; !errors.Is(o.err, pg.ErrCommitUnknown) {
		t.Errorf("error is %v, want ErrCommitUnknown", o.err)
	}
	again := w.reserveInBackground(t.Context(), withKey("k"), one("mug", 1))
	resume()
	if o := <-again; o.err != nil || !o.replayed {
		t.Errorf("with the key: replayed %t, %v", o.replayed, o.err)
	}
	w.wantCounts("mug", 30, 1, 0)
}

func TestAFullLaneSaysSo(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 30)
	resume := w.stopStock()
	defer resume()
	ctx, hangUp := context.WithCancel(t.Context())
	var all sync.WaitGroup
	overloaded := make(chan struct{}, 1)
	for range 8192 + 600 {
		all.Go(func() {
			_, _, err := w.store().Reserve(ctx, caller, one("mug", 1))
			if errors.Is(err, inventory.ErrOverloaded) {
				select {
				case overloaded <- struct{}{}:
				default:
				}
			}
		})
	}
	select {
	case <-overloaded:
	case <-time.After(30 * time.Second):
		t.Error("a lane takes any number of commands")
	}
	hangUp()
	resume()
	all.Wait()
}

// I6 where it is hardest: the twin of a request that took the last unit must hear of it, not of
// a sold-out shelf.
func TestATwinHearsOfTheLastUnit(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	for i := range 20 {
		sku := "last-" + string(rune('a'+i))
		w.receive(sku, 1)
		c := withKey(sku)
		ids := make(chan string, 8)
		won := w.race(8, func(_ int, s *inventory.Store) error {
			r, _, err := s.Reserve(t.Context(), c, one(sku, 1))
			ids <- r.ID.String()
			return err
		})
		if won != 8 {
			t.Errorf("%d of 8 twins got the hold", won)
		}
		for first := <-ids; len(ids) > 0; {
			if id := <-ids; id != first {
				t.Errorf("two holds: %s and %s", first, id)
			}
		}
	}
}

// The same key with another body is refused, also by the other replica at the same time.
func TestOneKeyTwoBodies(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 10)
	w.receive("cup", 10)
	won := w.race(2, func(i int, s *inventory.Store) error {
		c := withKey("k")
		c.Key.Body[0] = byte(i)
		_, _, err := s.Reserve(t.Context(), c, one([]string{"mug", "cup"}[i], 1))
		return err
	}, idempotency.ErrReused)
	if won != 1 {
		t.Errorf("%d of two bodies won, want 1", won)
	}
}

// Twins that wait for the same batch: the second waits for the first one's answer.
func TestTwinsOfOneBatch(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 10)
	resume := w.holdUpLane("mug")
	var twins []<-chan outcome
	for range 5 {
		twins = append(twins, w.reserveInBackground(t.Context(), withKey("k"), one("mug", 1)))
	}
	resume()
	acted := 0
	for _, done := range twins {
		o := <-done
		if o.err != nil {
			t.Errorf("a twin: %v", o.err)
		} else if !o.replayed {
			acted++
		}
	}
	if acted != 1 {
		t.Errorf("%d twins acted, want 1", acted)
	}
	w.wantCounts("mug", 10, 2, 0)
}

// A batch in which some keys were answered before, today or yesterday, answers those again and carries out the others.
func TestAnsweredKeysAmongNewOnes(t *testing.T) {
	t.Parallel()
	for _, days := range []int{0, 1} {
		w := newWarehouse(t)
		w.receive("mug", 10)
		first, _, err := w.store().Reserve(t.Context(), withKey("again"), one("mug", 1))
		if err != nil {
			t.Fatal(err)
		}
		w.db.Exec(t, `UPDATE inventory.idempotency_keys SET day = day - $1::integer`, days)
		resume := w.holdUpLane("mug")
		again := w.reserveInBackground(t.Context(), withKey("again"), one("mug", 1))
		var others []<-chan outcome
		for i := range 3 {
			others = append(others, w.reserveInBackground(t.Context(), withKey(fmt.Sprint("new", i)), one("mug", 1)))
		}
		other := withKey("again")
		other.Key.Body[0]++
		reused := w.reserveInBackground(t.Context(), other, one("mug", 1))
		resume()
		if o := <-again; o.err != nil || !o.replayed || o.ID != first.ID {
			t.Errorf("a key of %d days ago: %+v, want %s", days, o, first.ID)
		}
		if o := <-reused; !errors.Is(o.err, idempotency.ErrReused) {
			t.Errorf("with another body: %+v", o)
		}
		for _, done := range others {
			if o := <-done; o.err != nil || o.replayed {
				t.Errorf("a new key: %+v", o)
			}
		}
		w.wantCounts("mug", 10, 5, 0)
	}
}

// slowWrites makes time pass, on the database's clock, between what a batch decides and what it writes.
func (w *warehouse) slowWrites() {
	w.Helper()
	w.db.Exec(w, `CREATE FUNCTION tarry() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END $$`)
	w.db.Exec(w, `CREATE TRIGGER tarry BEFORE UPDATE ON inventory.stock FOR EACH STATEMENT EXECUTE FUNCTION tarry()`)
	w.db.Exec(w, `CREATE TRIGGER tarry BEFORE UPDATE ON inventory.reservations FOR EACH STATEMENT EXECUTE FUNCTION tarry()`)
}

func TestAHoldIsJudgedWhenItIsWritten(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 10)
	r := w.hold(one("mug", 1))
	w.slowWrites()
	w.db.Exec(t, "UPDATE inventory.reservations SET expires_at = clock_timestamp() + interval '300 ms' WHERE id = $1", r.ID)
	if err := w.confirm(r.ID); !errors.Is(err, inventory.ErrExpired) {
		t.Errorf("error is %v, want ErrExpired", err)
	}
	w.wantCounts("mug", 10, 0, 0)
}

func TestADeadlineIsJudgedWhenItIsWritten(t *testing.T) {
	t.Parallel()
	w := newWarehouse(t)
	w.receive("mug", 10)
	r := w.hold(one("mug", 1))
	w.slowWrites()
	soon := func() inventory.Caller { c := caller; c.Deadline = time.Now().Add(300 * time.Millisecond); return c }
	if _, _, err := w.store().Reserve(t.Context(), soon(), one("mug", 1)); !errors.Is(err, pg.ErrDeadline) {
		t.Errorf("reserve: %v, want ErrDeadline", err)
	}
	if _, _, err := w.store().Confirm(t.Context(), soon(), inventory.Confirmation{ID: r.ID}); !errors.Is(err, pg.ErrDeadline) {
		t.Errorf("confirm: %v, want ErrDeadline", err)
	}
	if _, _, err := w.store().Extend(t.Context(), soon(), inventory.Extension{ID: r.ID, TTL: 30 * time.Minute}); !errors.Is(err, pg.ErrDeadline) {
		t.Errorf("extend: %v, want ErrDeadline", err)
	}
	w.wantCounts("mug", 10, 1, 0)
}
