package inventory

import (
	"context"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// A tail reads what is new in the ledger. Entries are numbered before they are committed, so a
// number may be missing below one that is there: its transaction is still going on, or was rolled
// back. The tail never waits for it: what is there is taken at once, and the gap is looked
// into again until it is filled, or nobody is left who could fill it.
//
// Who could fill a gap had written to the ledger before the gap was first seen, and has had a
// transaction id since before that, because every entry is written under the lock of a row that its
// transaction has locked before. So any transaction id that is handed out after the gap was seen is
// higher, and when no lower one is running any more, in a snapshot taken later the gap is as
// it will stay. (The snapshot's own xmax is no such id: ids above it may be running.)
//
// A foreign transaction that runs for hours would keep every gap open for hours. Therefore, for
// gaps that have been looked into in vain, only transactions count that hold a lock for writing on the
// ledger: one that could fill a gap holds it until it ends. They are read before the snapshot is
// taken, so that whoever isn't among them has ended before it.
//
// Entries of one stock row, and of one reservation, come in their order: a later one of these is
// written under a lock that the earlier one's transaction held until it was committed, so a
// snapshot that has the later has the earlier.
type tail struct {
	seq  int64 // every entry up to here has been seen, or is in a gap, or never will be
	gaps []gap // in their order, all below seq
}

// gap is a stretch of numbers that hadn't been seen when a higher one was.
type gap struct {
	from, to int64
	before   int64 // no transaction with this id or a higher one can fill it; 0: not known yet
}

const (
	// maxGaps bounds the gaps that are kept open: while there are so many the tail takes nothing new.
	maxGaps = 2048
	// lookLimit bounds the entries that one look takes from gaps, and the new ones.
	lookLimit = 2000
)

// lookSQL reads what is new, in one snapshot with what tells which gaps can still be filled.
const lookSQL = `
SELECT s.oldest, s.own, l.*
  FROM (SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS oldest,
               CASE WHEN $5 THEN pg_current_xact_id()::text::bigint ELSE 0 END AS own) s
  LEFT JOIN (
	(SELECT ` + lookColumns + ` FROM inventory.ledger WHERE seq > $1 ORDER BY seq LIMIT $2)
	UNION ALL
	(SELECT l.* FROM unnest($3::bigint[], $4::bigint[]) AS g(low, high)
	  CROSS JOIN LATERAL (SELECT ` + lookColumns + ` FROM inventory.ledger WHERE seq BETWEEN g.low AND g.high ORDER BY seq LIMIT $6) l
	  ORDER BY l.seq LIMIT $6)
  ) l ON true
 ORDER BY l.seq`

const lookColumns = `seq, at, tenant, sku, location, coalesce(event, '') AS event, delta_on_hand, delta_held, reservation_id`

// writersSQL reads the ids of the transactions that have a lock for writing on the ledger. One without an
// id hasn't written yet.
const writersSQL = `
WITH locks AS MATERIALIZED (SELECT locktype, database, relation, mode, transactionid, virtualtransaction FROM pg_locks WHERE granted)
SELECT DISTINCT t.transactionid::text::bigint
  FROM locks w JOIN locks t USING (virtualtransaction)
 WHERE w.locktype = 'relation' AND w.relation = 'inventory.ledger'::regclass AND w.mode = 'RowExclusiveLock'
   AND w.database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND t.locktype = 'transactionid' AND t.mode = 'ExclusiveLock'`

// change is an entry as the tail gives it.
type change struct {
	seq         int64
	at          time.Time
	tenant, sku string
	location    string
	event       string // "" if it is no transition of a reservation, or not the entry that stands for it
	deltaOnHand int64
	deltaHeld   int64
	reservation uuid.UUID // of an entry with an event
}

// look takes what is new, in the order of its numbers, and returns the tail as it is after that; each entry
// is taken once. More says that there is more to be had at once. It is to be the transaction's only
// look, since only then the transaction's id is one that was handed out after every gap was seen, and the
// transaction is to be READ COMMITTED, so that each statement has a snapshot of its own.
func (t tail) look(ctx context.Context, tx pgx.Tx) (next tail, changes []change, more bool, err error) {
	limit := lookLimit
	if len(t.gaps) >= maxGaps {
		limit = 0
	}
	low, high, waited := make([]int64, len(t.gaps)), make([]int64, len(t.gaps)), false
	for i, g := range t.gaps {
		low[i], high[i], waited = g.from, g.to, waited || g.before != 0
	}
	var writers []int64
	if waited {
		rows, err := tx.Query(ctx, writersSQL)
		if err != nil {
			return t, nil, false, err
		}
		if writers, err = pgx.CollectRows(rows, pgx.RowTo[int64]); err != nil {
			return t, nil, false, err
		}
	}
	rows, err := tx.Query(ctx, lookSQL, t.seq, limit, low, high, len(t.gaps) > 0, lookLimit)
	if err != nil {
		return t, nil, false, err
	}
	var oldest, own int64
	var r lookRow
	_, err = pgx.ForEachRow(rows, append([]any{&oldest, &own}, r.fields()...), func() error {
		if r.seq != nil {
			changes = append(changes, r.change())
		}
		return nil
	})
	if err != nil {
		return t, nil, false, err
	}
	if waited {
		oldest = max(oldest, oldestOf(writers, own))
	}
	late := 0 // those from gaps
	for late < len(changes) && changes[late].seq <= t.seq {
		late++
	}
	if late == lookLimit {
		// There may be more of them, which come first.
		changes = changes[:late]
		return t.advance(changes, changes[late-1].seq, oldest, own), changes, true, nil
	}
	more = limit > 0 && len(changes)-late == limit
	return t.advance(changes, t.seq, oldest, own), changes, more, nil
}

// oldestOf is the lowest of the writers' ids, which lack their upper half. Own is an id from nearby.
func oldestOf(writers []int64, own int64) int64 {
	oldest := int64(math.MaxInt64)
	for _, w := range writers {
		oldest = min(oldest, own+int64(int32(uint32(w)-uint32(own))))
	}
	return oldest
}

// advance closes the gaps that were filled, or can't be any more, up to a number, and opens those that are new.
func (t tail) advance(changes []change, upTo, oldest, own int64) tail {
	next := tail{seq: t.seq}
	i := 0
	for _, g := range t.gaps {
		if g.before == 0 {
			g.before = own // handed out after the gap was seen
		}
		from := g.from
		for ; i < len(changes) && changes[i].seq <= g.to; i++ {
			next.keep(gap{from, changes[i].seq - 1, g.before}, upTo, oldest)
			from = changes[i].seq + 1
		}
		next.keep(gap{from, g.to, g.before}, upTo, oldest)
	}
	for _, c := range changes[i:] {
		if c.seq > next.seq+1 {
			next.gaps = append(next.gaps, gap{from: next.seq + 1, to: c.seq - 1})
		}
		next.seq = c.seq
	}
	return next
}

// keep keeps what of a gap can still be filled, or wasn't looked into.
func (t *tail) keep(g gap, upTo, oldest int64) {
	if oldest >= g.before {
		g.from = max(g.from, upTo+1)
	}
	if g.from <= g.to {
		t.gaps = append(t.gaps, g)
	}
}

// floor is the number up to which nothing can come any more.
func (t *tail) floor() int64 {
	if len(t.gaps) > 0 {
		return t.gaps[0].from - 1
	}
	return t.seq
}

// lookRow is an entry of a look, all NULL if there is none.
type lookRow struct {
	seq                          *int64
	at                           *time.Time
	tenant, sku, location, event *string
	deltaOnHand, deltaHeld       *int64
	reservation                  *uuid.UUID
}

func (r *lookRow) fields() []any {
	return []any{&r.seq, &r.at, &r.tenant, &r.sku, &r.location, &r.event, &r.deltaOnHand, &r.deltaHeld, &r.reservation}
}

func (r *lookRow) change() change {
	c := change{
		seq: *r.seq, at: r.at.UTC(), tenant: *r.tenant, sku: *r.sku, location: *r.location, event: *r.event,
		deltaOnHand: *r.deltaOnHand, deltaHeld: *r.deltaHeld,
	}
	if r.reservation != nil {
		c.reservation = *r.reservation
	}
	return c
}

// lookBack is how far behind the newest entry a tail begins that has nowhere to go on from: an entry
// that is committed after that, with a number from before it, is among so many.
const lookBack = 5000

// newTail begins near the newest entry.
func newTail(ctx context.Context, db executor) (tail, error) {
	var t tail
	err := db.QueryRow(ctx, `SELECT coalesce(max(seq), 0) FROM inventory.ledger`).Scan(&t.seq)
	t.seq = max(0, t.seq-lookBack)
	return t, err
}
