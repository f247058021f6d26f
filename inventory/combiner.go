package inventory

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/google/uuid"

	"holdfast/internal/pg"
)

const (
	// laneCount is how many batches a replica may have in flight. Commands on one SKU share a
	// lane, so that they share batches; others don't wait behind a row that somebody holds.
	laneCount = 4
	// maxBatch bounds the commands of one transaction, and so how long it holds its rows.
	maxBatch = 500
	// maxQueue bounds the commands that wait in a lane.
	maxQueue = 8192
	// grace is how long a client whose time is over waits for a command that is being carried out.
	grace = 2 * time.Second
)

// ErrOverloaded means that too many commands wait already; this one was not taken.
var ErrOverloaded = errors.New("too many commands are waiting")

// task is one command on its way through a lane. Exactly one of reserve, confirm, release
// and extend is set.
type task struct {
	ctx      context.Context
	caller   Caller
	deadline *time.Time // by the database's clock; nil: none

	reserve *Reserve // with its lines checked and merged
	newID   uuid.UUID
	confirm *Confirmation
	release *Release
	extend  *Extension

	answer   Reservation
	replayed bool
	err      error
	done     chan struct{} // closed when the three above are final
}

// reservation is what the command is about; uuid.Nil for a new one.
func (t *task) reservation() uuid.UUID {
	switch {
	case t.confirm != nil:
		return t.confirm.ID
	case t.release != nil:
		return t.release.ID
	case t.extend != nil:
		return t.extend.ID
	}
	return uuid.Nil
}

// finish gives the outcome to who waits for it.
func (t *task) finish(err error) {
	if err != nil {
		t.answer, t.replayed, t.err = Reservation{}, false, err
	}
	close(t.done)
}

// lane carries commands out, one batch at a time: whatever arrives while a batch is in flight
// makes the next one. So an idle lane adds no wait, and a busy one pays for the lock, the
// round trips and the flush of a hot row once for many commands.
type lane struct {
	mu      sync.Mutex
	waiting []*task
	busy    bool
}

var laneSeed = maphash.MakeSeed()

// submit puts the command into its lane and waits for its outcome. A command whose client goes
// away before its batch begins isn't carried out; one whose outcome doesn't come in time
// may have been: [pg.ErrCommitUnknown].
func (s *Store) submit(t *task) (Reservation, bool, error) {
	t.done = make(chan struct{})
	t.deadline = s.deadline(t.caller)
	l := s.laneOf(t)
	l.mu.Lock()
	if len(l.waiting) >= maxQueue {
		l.mu.Unlock()
		return Reservation{}, false, ErrOverloaded
	}
	l.waiting = append(l.waiting, t)
	if !l.busy {
		l.busy = true
		go s.work(l)
	}
	l.mu.Unlock()

	select {
	case <-t.done:
		return t.answer, t.replayed, t.err
	case <-t.ctx.Done():
	}
	if l.withdraw(t) {
		return Reservation{}, false, t.ctx.Err()
	}
	select {
	case <-t.done:
		return t.answer, t.replayed, t.err
	case <-time.After(grace):
		return Reservation{}, false, pg.ErrCommitUnknown
	}
}

func (s *Store) laneOf(t *task) *lane {
	var h maphash.Hash
	h.SetSeed(laneSeed)
	_, _ = h.WriteString(t.caller.Tenant)
	if t.reserve != nil {
		_, _ = h.WriteString(t.reserve.Lines[0].SKU)
	} else {
		id := t.reservation()
		_, _ = h.Write(id[:])
	}
	return &s.lanes[h.Sum64()%laneCount]
}

// withdraw takes a command back that no batch has taken yet.
func (l *lane) withdraw(t *task) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, waiting := range l.waiting {
		if waiting == t {
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// take gives the next batch: the commands of one tenant in their order, each idempotency
// key once, since the second with a key has to find the first one's answer.
func (l *lane) take() []*task {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		l.busy = false
		return nil
	}
	var batch, rest []*task
	type key struct{ path, value string }
	keys := map[key]bool{}
	for i, t := range l.waiting {
		if len(batch) == maxBatch {
			rest = append(rest, l.waiting[i:]...)
			break
		}
		k := key{t.caller.Key.Path, t.caller.Key.Value}
		if t.caller.Tenant != l.waiting[0].caller.Tenant || k.value != "" && keys[k] {
			rest = append(rest, t)
			continue
		}
		keys[k] = true
		batch = append(batch, t)
	}
	l.waiting = rest
	return batch
}

// work carries out batches until nothing waits.
func (s *Store) work(l *lane) {
	for batch := l.take(); batch != nil; batch = l.take() {
		s.carryOut(batch, true)
	}
}

// carryOut gives every command of a batch its outcome. What goes wrong for the batch as a whole,
// and isn't the database's state, is found out by carrying the commands out one by one: a
// bad one spoils only itself. With fast, [takeSQL] is tried first.
func (s *Store) carryOut(batch []*task, fast bool) {
	ctx, cancel := batchContext(batch)
	defer cancel()
	for attempt := 1; ; attempt++ {
		err := s.tryBatch(ctx, batch, fast)
		fast = false
		if errors.Is(err, errAnswered) {
			// A few that are asked again don't slow down the others.
			answered, fresh, partErr := s.part(ctx, batch)
			if err = partErr; err == nil && len(answered) > 0 && len(fresh) > 0 {
				s.carryOut(answered, false)
				s.carryOut(fresh, true)
				return
			}
			if err == nil {
				continue
			}
		}
		var first *reapFirstError
		switch {
		case err == nil:
			for _, t := range batch {
				t.finish(nil)
			}
			return
		case errors.As(err, &first) && attempt < maxReapFirst:
			if _, err = s.reapEach(ctx, first.due); err == nil {
				continue
			}
		case errors.Is(err, pg.ErrCommitUnknown) && attempt < maxReapFirst && ctx.Err() == nil:
			// Those with a key find out by asking again; the others can't.
			batch = finishWithout(batch, err)
			if len(batch) > 0 {
				continue
			}
			return
		case len(batch) > 1 && !pg.Unavailable(err) && !errors.Is(err, pg.ErrCommitUnknown) && ctx.Err() == nil:
			for _, t := range batch {
				s.carryOut([]*task{t}, false)
			}
			return
		}
		for _, t := range batch {
			t.finish(err)
		}
		return
	}
}

// tryBatch is runBatch, with a panic made an error: a lane has no client whose connection could
// be the only one to suffer.
func (s *Store) tryBatch(ctx context.Context, batch []*task, fast bool) (err error) {
	defer func() {
		if p := recover(); p != nil {
			slog.Error("a batch panicked", "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	if fast {
		if done, err := s.take(ctx, batch); done || err != nil {
			return err
		}
	}
	return s.runBatch(ctx, batch)
}

// finishWithout ends the commands without a key, and returns the others.
func finishWithout(batch []*task, err error) (keyed []*task) {
	for _, t := range batch {
		if t.caller.Key.Value == "" {
			t.finish(err)
		} else {
			keyed = append(keyed, t)
		}
	}
	return keyed
}

// longestBatch bounds a batch of commands that have no time limit.
const longestBatch = 30 * time.Second

// batchContext ends when the last of the commands' times is over: a batch isn't cut short
// because one of its clients has gone.
func batchContext(batch []*task) (context.Context, context.CancelFunc) {
	var latest time.Time
	for _, t := range batch {
		deadline, ok := t.ctx.Deadline()
		if !ok {
			deadline = time.Now().Add(longestBatch)
		}
		if deadline.After(latest) {
			latest = deadline
		}
	}
	return context.WithDeadline(context.WithoutCancel(batch[0].ctx), latest)
}
