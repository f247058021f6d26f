package inventory

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"holdfast/internal/pg"
	"holdfast/internal/pg/pgtest"
)

// reel is a tail and the ledger that it reads.
type reel struct {
	*testing.T
	db   *pgtest.DB
	tail tail
	seen []int64
}

func newReel(t *testing.T) *reel {
	t.Helper()
	return &reel{T: t, db: pgtest.New(t, Schema())}
}

// writer is an open transaction that writes to the ledger.
type writer struct {
	*reel
	tx pgx.Tx
}

func (r *reel) begin() *writer {
	r.Helper()
	tx, err := r.db.Pool.Begin(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	w := &writer{r, tx}
	w.exec(`SELECT pg_current_xact_id()`) // as the lock of a stock row does
	return w
}

func (w *writer) exec(sql string, args ...any) {
	w.Helper()
	if _, err := w.tx.Exec(w.Context(), sql, args...); err != nil {
		w.Fatal(err)
	}
}

const noteSQL = `INSERT INTO inventory.ledger (tenant, sku, location, kind, delta_on_hand, delta_held, on_hand, held, actor)
	VALUES ('acme', $1, 'default', 'count', 0, 0, 0, 0, 'test') RETURNING seq`

func (w *writer) note(sku string) (seq int64) {
	w.Helper()
	if err := w.tx.QueryRow(w.Context(), noteSQL, sku).Scan(&seq); err != nil {
		w.Fatal(err)
	}
	return seq
}

func (w *writer) commit() {
	w.Helper()
	if err := w.tx.Commit(w.Context()); err != nil {
		w.Fatal(err)
	}
}

func (w *writer) rollback() { _ = w.tx.Rollback(w.Context()) }

// look takes what is new, all of it, and returns the numbers.
func (r *reel) look() (seqs []int64) {
	r.Helper()
	for more := true; more; {
		err := pg.InTx(r.Context(), r.db.Pool, pg.TxOptions{}, func(tx pgx.Tx) error {
			var changes []change
			var err error
			r.tail, changes, more, err = r.tail.look(r.Context(), tx)
			for _, c := range changes {
				seqs = append(seqs, c.seq)
			}
			return err
		})
		if err != nil {
			r.Fatal(err)
		}
	}
	r.seen = append(r.seen, seqs...)
	return seqs
}

func (r *reel) wantLook(want ...int64) {
	r.Helper()
	if got := r.look(); !slices.Equal(got, want) {
		r.Errorf("took %v, want %v (gaps %v)", got, want, r.tail.gaps)
	}
}

// wantAll checks that every committed entry was seen once.
func (r *reel) wantAll() {
	r.Helper()
	rows, err := r.db.Pool.Query(r.Context(), `SELECT seq FROM inventory.ledger ORDER BY seq`)
	if err != nil {
		r.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		r.Fatal(err)
	}
	if seen := slices.Sorted(slices.Values(r.seen)); !slices.Equal(seen, all) {
		r.Errorf("saw %d entries, %d are there", len(seen), len(all))
	}
}

func TestTailSeesWhatIsCommittedLate(t *testing.T) {
	t.Parallel()
	r := newReel(t)
	slow, fast, undone := r.begin(), r.begin(), r.begin()
	a, b := slow.note("a"), undone.note("b")
	c := fast.note("c")
	fast.commit()
	r.wantLook(c)
	r.wantLook()
	undone.rollback()
	r.wantLook()
	if floor := r.tail.floor(); floor >= a {
		t.Errorf("the floor is %d with %d open", floor, a)
	}
	d := slow.note("d")
	slow.commit()
	r.wantLook(a, d)
	r.wantLook()
	r.wantLook()
	if len(r.tail.gaps) != 0 || r.tail.floor() != d {
		t.Errorf("%d, rolled back, is still waited for: %v", b, r.tail.gaps)
	}
	r.wantAll()
}

// A transaction may get its id after that of the one whose entry is seen first, and its number before: then
// no id that the snapshot knows bounds it.
func TestTailWaitsForATransactionThatTheSnapshotDoesNotBound(t *testing.T) {
	t.Parallel()
	r := newReel(t)
	older := r.begin()
	younger := r.begin()
	a := younger.note("a")
	b := older.note("b")
	older.commit()
	r.wantLook(b)
	r.wantLook()
	r.wantLook()
	younger.commit()
	r.wantLook(a)
	r.wantAll()
}

func TestTailIsNotHeldUpByAForeignTransaction(t *testing.T) {
	t.Parallel()
	r := newReel(t)
	foreign := r.begin() // has an id, and has nothing to do with the ledger
	foreign.exec(`CREATE TABLE inventory.foreign_table (n int)`)
	for range maxGaps + 10 {
		r.db.Exec(t, `SELECT nextval('inventory.ledger_seq')`) // as a rolled back entry does
		r.db.Exec(t, noteSQL, "mug")
	}
	for range 5 {
		r.look()
	}
	if len(r.tail.gaps) > 1 {
		t.Errorf("%d gaps are open although nobody can fill them", len(r.tail.gaps))
	}
	r.wantAll()
	foreign.commit()
}

// A long transaction's entries come in their order, some at a time, and before those that were written after it.
func TestTailTakesALargeGapInOrder(t *testing.T) {
	t.Parallel()
	r := newReel(t)
	long := r.begin()
	long.exec(`INSERT INTO inventory.ledger (tenant, sku, location, kind, delta_on_hand, delta_held, on_hand, held, actor)
		SELECT 'acme', 'mug', 'default', 'count', 0, 0, n, 0, 'test' FROM generate_series(1, $1) n`, 2*lookLimit+10)
	other := r.begin()
	other.note("cup")
	other.commit()
	r.look()
	long.commit()
	r.db.Exec(t, noteSQL, "mug")
	got := r.look()
	if len(got) != 2*lookLimit+11 || !slices.IsSorted(got) {
		t.Errorf("%d entries, in order: %v", len(got), slices.IsSorted(got))
	}
	r.wantAll()
}

// Writers with long and short transactions, many of which are rolled back, while somebody reads.
func TestTailUnderWriters(t *testing.T) {
	t.Parallel()
	r := newReel(t)
	const writers, rounds = 6, 60
	var all sync.WaitGroup
	done := make(chan struct{})
	for i := range writers {
		all.Go(func() {
			for range rounds {
				tx, err := r.db.Pool.Begin(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				_, err = tx.Exec(t.Context(), `SELECT pg_current_xact_id()`)
				for range rand.IntN(4) {
					var seq int64
					if err == nil {
						err = tx.QueryRow(t.Context(), noteSQL, fmt.Sprint("sku-", i)).Scan(&seq)
					}
				}
				if err == nil && rand.IntN(3) > 0 {
					err = tx.Commit(t.Context())
				} else if undo := tx.Rollback(t.Context()); err == nil {
					err = undo
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	go func() { all.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		r.look()
	}
	r.look()
	r.look()
	r.wantAll()
	if len(r.tail.gaps) > 0 {
		t.Errorf("gaps are left: %v", r.tail.gaps)
	}
}
