package chronos

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"holdfast/chronos/queue"
	"holdfast/internal/pg"
)

var (
	errLeaseOver = errors.New("the lease is over")
	errDrained   = errors.New("the time to drain is over")
)

// delivery is a leased run on its way. Its lease context ends when the lease can no longer be
// counted on; its send context ends then too, and when a drain runs out of time.
type delivery struct {
	run   queue.Run
	lease context.Context
	end   context.CancelCauseFunc
	send  context.Context
	stop  context.CancelCauseFunc
	timer *time.Timer // ends the lease by the monotonic clock, a little early

	errand  *errand     // nil: there is none any more
	refused bool        // its target was shut at the last moment
	shown   error       // what it has shown of its target
	land    func(error) // takes that in
}

// flight is what a replica has leased for its own dispatcher. It is safe for concurrent use.
type flight struct {
	lease time.Duration // how long a lease lasts

	mu     sync.Mutex
	held   map[uuid.UUID]*delivery
	going  map[int64]int // how many of them each job has
	behind int           // how many are of backfills
}

func newFlight(lease time.Duration) *flight {
	return &flight{lease: lease, held: map[uuid.UUID]*delivery{}, going: map[int64]int{}}
}

// usable is the part of a lease that is counted on: what is stopped at its end has some time
// to stop, and clocks may differ in their speed.
func (f *flight) usable() time.Duration { return f.lease - f.lease/10 }

// add takes in a run whose lease was asked for at the given time or later.
func (f *flight) add(run queue.Run, asked time.Time) *delivery {
	d := &delivery{run: run, shown: errNotShown}
	d.lease, d.end = context.WithCancelCause(context.Background())
	d.send, d.stop = context.WithCancelCause(d.lease)
	d.timer = time.AfterFunc(time.Until(asked.Add(f.usable())), func() { d.end(errLeaseOver) })
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held[run.ID] = d
	f.going[run.JobID]++
	if run.Trigger == queue.Backfill {
		f.behind++
	}
	return d
}

// remove is called when the run has been dealt with. It returns how many its job had until then.
func (f *flight) remove(d *delivery) (had int) {
	f.mu.Lock()
	delete(f.held, d.run.ID)
	had = f.going[d.run.JobID]
	if f.going[d.run.JobID]--; had == 1 {
		delete(f.going, d.run.JobID)
	}
	if d.run.Trigger == queue.Backfill {
		f.behind--
	}
	f.mu.Unlock()
	d.timer.Stop()
	d.end(nil)
	return had
}

// byJob counts what is held of each job, and what of backfills.
func (f *flight) byJob() (going map[int64]int, backfills int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.going), f.behind
}

func (f *flight) size() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.held)
}

func (f *flight) all() []*delivery {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]*delivery, 0, len(f.held))
	for _, d := range f.held {
		all = append(all, d)
	}
	return all
}

// stopAll ends sending, not leases.
func (f *flight) stopAll(cause error) {
	for _, d := range f.all() {
		d.stop(cause)
	}
}

// renew is one heartbeat: a single statement for all that is held.
func (f *flight) renew(ctx context.Context, conn *pgx.Conn) error {
	all := f.all()
	if len(all) == 0 {
		return nil
	}
	holdings := make([]queue.Holding, len(all))
	for i, d := range all {
		holdings[i] = d.run.Holding()
	}
	asked := time.Now()
	ctx, cancel := context.WithTimeout(ctx, f.beat())
	defer cancel()
	found, err := queue.Renew(ctx, conn, holdings, f.lease)
	if err != nil {
		return err
	}
	for _, d := range all {
		switch found[d.run.ID] {
		case queue.Renewed:
			// A timer that has fired has ended the lease for good: what it stopped can't go on.
			if d.timer.Stop() {
				d.timer.Reset(time.Until(asked.Add(f.usable())))
			}
		case queue.Lost:
			d.end(errLeaseOver)
		}
	}
	return nil
}

// beat is the time from one heartbeat to the next.
func (f *flight) beat() time.Duration { return f.lease / 3 }

// reconnectPause is how long a heartbeat waits after a failure.
const reconnectPause = 100 * time.Millisecond

// keep renews until ctx ends, on a connection of its own: when the pool is busy or exhausted,
// leases still are renewed. A lost connection is replaced at once. A value on now brings the next beat
// forward: somebody has taken a lease away, perhaps one of these.
func (f *flight) keep(ctx context.Context, url string, now <-chan struct{}, log *slog.Logger) error {
	var conn *pgx.Conn
	drop := func() {
		if conn != nil {
			hangUp(ctx, conn, log)
			conn = nil
		}
	}
	defer drop()
	failing := false
	for ctx.Err() == nil {
		pause := f.beat()
		err := func() (err error) {
			if conn == nil {
				connectCtx, cancel := context.WithTimeout(ctx, f.beat())
				defer cancel()
				if conn, err = pg.Connect(connectCtx, url, "holdfast chronos heartbeat"); err != nil {
					return err
				}
			}
			return f.renew(ctx, conn)
		}()
		if err != nil && ctx.Err() == nil {
			if !failing {
				log.Warn("can't renew leases, trying again", "in_flight", f.size(), "error", err)
			}
			drop()
			pause = reconnectPause
		}
		failing = err != nil
		select {
		case <-ctx.Done():
		case <-now:
		case <-time.After(pause):
		}
	}
	return nil
}
