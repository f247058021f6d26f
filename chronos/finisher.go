package chronos

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"holdfast/chronos/queue"
	"holdfast/internal/pg"
)

const (
	// finishBatch bounds the attempts that are finished by one transaction.
	finishBatch = 500
	// finishLanes is how many such transactions go on at once: while one waits for its commit to be
	// flushed, another is at work.
	finishLanes = 2
)

// finisher ends attempts in batches: what arrives while transactions are under way forms the next,
// without a timer. Whoever begins one while a lane is free carries it out for the others. It is safe for
// concurrent use.
type finisher struct {
	store *Store

	mu    sync.Mutex
	queue []*ending
	lanes int // that are at work
}

// ending is an attempt that waits for its end to be stored.
type ending struct {
	finish   queue.Finish
	deadline time.Time     // after it the end is refused; zero: none
	turn     chan struct{} // closed when a lane is handed to it
	done     chan struct{} // closed when out and err are there

	handed bool // the lane was; the finisher's mu guards it
	out    queue.Finished
	err    error
}

var errNotStored = errors.New("it wasn't stored")

// end stores the end of an attempt, as [queue.Finish.End] does, before the deadline, which is like that of a
// [Caller], or not at all.
func (f *finisher) end(finish queue.Finish, deadline time.Time) (queue.Finished, error) {
	e := &ending{finish: finish, deadline: deadline, turn: make(chan struct{}), done: make(chan struct{}), err: errNotStored}
	f.mu.Lock()
	f.queue = append(f.queue, e)
	if f.lanes < finishLanes {
		f.lanes++
		f.hand(e)
	}
	f.mu.Unlock()
	select {
	case <-e.turn:
		f.work()
		<-e.done
	case <-e.done:
		if e.handed { // just before another lane took it along: nobody hands it one now
			f.work()
		}
	}
	return e.out, e.err
}

// hand gives a lane to one that waits. The caller holds mu.
func (f *finisher) hand(e *ending) {
	e.handed = true
	close(e.turn)
}

// work carries out one batch and hands the lane on, if somebody waits who has none.
func (f *finisher) work() {
	f.mu.Lock()
	n := min(len(f.queue), finishBatch)
	batch := f.queue[:n:n]
	f.queue = f.queue[n:]
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, e := range batch {
			close(e.done)
		}
		for _, e := range f.queue {
			if !e.handed {
				f.hand(e)
				return
			}
		}
		f.lanes--
	}()
	if n > 0 {
		f.store.endAll(batch)
	}
}

// endAll stores a batch in one transaction. If the database refuses that, it finds out which attempt spoils it.
func (s *Store) endAll(batch []*ending) {
	finishes := make([]queue.Finish, len(batch))
	var first time.Time // of the deadlines
	for i, e := range batch {
		finishes[i] = e.finish
		if !e.deadline.IsZero() && (first.IsZero() || e.deadline.Before(first)) {
			first = e.deadline
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	var (
		out  []queue.Finished
		errs []error
	)
	err := queue.InTx(ctx, s.pool, pg.TxOptions{RepeatUnknown: true}, func(tx pgx.Tx) (err error) {
		if out, errs, err = queue.EndAll(ctx, tx, finishes); err != nil {
			return err
		}
		return s.clock.InTime(ctx, tx, first)
	})
	switch {
	case err == nil:
		for i, e := range batch {
			e.out, e.err = out[i], errs[i]
		}
	case len(batch) == 1 || pg.Unavailable(err) || errors.Is(err, pg.ErrCommitUnknown) || ctx.Err() != nil:
		for _, e := range batch {
			e.err = err
		}
	default:
		for i := range batch {
			s.endAll(batch[i : i+1])
		}
	}
}
