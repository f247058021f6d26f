package queue

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// frontMargin is how long a run may take from the reading of the clock that makes it due to
	// the commit that shows it, without being overlooked until the next full look.
	frontMargin = time.Second
	// frontLasts is how long a front is trusted: a full look costs what stands before the
	// first pending run, in flight or dead, and finds what came behind the front.
	frontLasts = 5 * time.Second
	// frontStale is how old a front is by which it should be looked for anew.
	frontStale = 500 * time.Millisecond
	// frontRow is how many priorities there are: 9 to 0, and a backfill's.
	frontRow = 11
)

// Front is where a queue's pending runs begin, for each priority, so that whoever looks for them
// needn't step over those in flight, and over rows that are gone but not yet vacuumed, again and
// again. It is a hint: what becomes due gets the present as its due time, so it comes behind the
// front only if its transaction takes longer than a second; then it is found within five. It is safe for
// concurrent use; nil is a front that knows nothing.
type Front struct {
	mu    sync.Mutex
	era   int       // counts resets
	since time.Time // of the last full look, by the monotonic clock
	last  time.Time // of the last look
	floor [frontRow]time.Time
}

// Stale reports whether [NextDue] should be asked, so that the front keeps up.
func (f *Front) Stale() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Since(f.last) > frontStale
}

// Reset forgets what is known: something before the front may be taken after all.
func (f *Front) Reset() {
	if f != nil {
		f.mu.Lock()
		f.era++
		f.since = time.Time{}
		f.mu.Unlock()
	}
}

// Mark is a place to come back to: see [Front.Rewind].
type Mark []time.Time

// Mark gives the place where the front is. Runs that are passed over from now on stand there or behind it.
func (f *Front) Mark() Mark {
	floors, _ := f.floors()
	return floors
}

// Rewind goes back to a mark: the runs that were passed over since may be taken now.
func (f *Front) Rewind(to Mark) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.era++
	for i, at := range to {
		if at.Before(f.floor[i]) {
			f.floor[i] = at
		}
	}
}

// floors are the due times to look from, by priority from 9 to -1, and the era they are of.
func (f *Front) floors() (floors []time.Time, era int) {
	floors = make([]time.Time, frontRow)
	if f == nil {
		return floors, 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.since) < frontLasts {
		copy(floors, f.floor[:])
	}
	return floors, f.era
}

// learn takes in what a look from the given floors has found: the first pending run of each
// priority, or the time of the look where there is none. What was found before a reset is void.
func (f *Front) learn(from []time.Time, era int, first []time.Time) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.era != era {
		return
	}
	f.last = time.Now()
	full := true
	for i, at := range first {
		full = full && from[i].IsZero()
		f.floor[i] = at.Add(-frontMargin)
	}
	if full {
		f.since = time.Now()
	}
}

// isPending keeps the planner of queries from the statistics of r's status, by which it would read the whole table
// whenever few runs are pending, or few were when they were taken: the index gives the first of them.
const isPending = `CASE WHEN r.status = 'pending' THEN true END`

// nextDueSQL finds the first pending run of each priority, whose place is the new front.
const nextDueSQL = `
SELECT coalesce(least(due.due_at, clock.now), clock.now), due.due_at - clock.now
  FROM (SELECT clock_timestamp() AS now) clock, unnest($3::timestamptz[]) WITH ORDINALITY AS f(front, n)
  LEFT JOIN LATERAL (
	SELECT r.due_at FROM chronos.job_runs r
	 WHERE r.queue = $1 AND r.priority = 10 - f.n AND r.due_at >= f.front AND ` + isPending + ` AND r.job_id <> ALL($2) AND r.target <> ALL($4)
	 ORDER BY r.due_at LIMIT 1) due ON true
 ORDER BY f.n`

// NextDue is how long it is, by the database's clock, until there is something for the claim to
// find, negative if there is already; ok is false if there is nothing. The claim's front learns from it.
func NextDue(ctx context.Context, db querier, c Claim) (in time.Duration, ok bool, err error) {
	from, era := c.Front.floors()
	rows, err := db.Query(ctx, nextDueSQL, c.Queue, c.full(), from, c.shut())
	if err != nil {
		return 0, false, err
	}
	var (
		first = make([]time.Time, 0, frontRow)
		at    time.Time
		wait  *time.Duration
	)
	_, err = pgx.ForEachRow(rows, []any{&at, &wait}, func() error {
		first = append(first, at)
		wanted := len(first) < frontRow || c.Backfill >= 0 // the last is a backfill's
		if wait != nil && wanted && (!ok || *wait < in) {
			in, ok = *wait, true
		}
		return nil
	})
	if err != nil {
		return 0, false, err
	}
	c.Front.learn(from, era, first)
	return in, ok, nil
}

// querier is a pool, a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}
