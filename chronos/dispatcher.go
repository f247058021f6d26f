package chronos

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"holdfast/chronos/queue"
	"holdfast/internal/pg"
	"holdfast/webhook"
)

const (
	// claimBatch bounds the runs that are leased at once.
	claimBatch = 250
	// claimTimeout bounds one claim.
	claimTimeout = 5 * time.Second
	// claimPause is the pause when what is due is in somebody else's hands.
	claimPause = 10 * time.Millisecond
	// crowdPause is how long a claim that found a target full waits for room there before it looks at what stands behind that target's
	// runs, unless nobody has looked there for behindEvery: that look passes over all of them.
	crowdPause  = 25 * time.Millisecond
	behindEvery = time.Second
	// failurePause is the pause after a claim that failed.
	failurePause = 250 * time.Millisecond
)

// dispatcher leases the runs of webhooks as they come due and delivers them.
type dispatcher struct {
	store  *Store
	client *webhook.Client
	flight *flight
	worker string
	slots  chan struct{} // a value for each delivery that may be in flight
	perJob int           // how many of them one job may have
	front  *queue.Front  // of the dispatchers' queue
	to     *targets
	behind time.Time // when a claim last left no target's runs; lead's alone
	log    *slog.Logger

	secrets map[string]knownSecrets // by tenant; lead's alone

	deliveries sync.WaitGroup
}

// run leases and delivers until ctx ends; then it waits for what is in flight, for at most
// drain, and gives back what is left.
func (d *dispatcher) run(ctx context.Context, drain time.Duration) error {
	d.lead(ctx)
	done := make(chan struct{})
	go func() {
		d.deliveries.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-time.After(drain):
	}
	d.log.Info("drain: time is over, giving back what is in flight", "in_flight", d.flight.size())
	d.flight.stopAll(errDrained)
	<-done
	return nil
}

// lead takes runs up as they come due.
func (d *dispatcher) lead(ctx context.Context) {
	failing, expected := false, true
	for ctx.Err() == nil {
		rang := d.store.bell.wait("")
		free := d.reserve(ctx)
		if free == 0 {
			return
		}
		var (
			claimed queue.Claimed
			err     error
		)
		if expected {
			claimed, err = d.claim(ctx, free)
		}
		d.giveBack(free - len(claimed.Runs))
		wait, more := pollEvery, claimed.More
		if err == nil && (!more || d.front.Stale()) {
			wait, expected, err = d.untilDue(ctx)
		}
		crowded := d.to.crowded(claimed.Crowded) // after that look, which isn't to pass over them
		if !crowded {
			d.behind = time.Now()
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !failing {
				d.log.Error("can't take up runs, trying again", "error", err)
			}
			wait, expected = failurePause, true
		case crowded && time.Since(d.behind) < behindEvery:
			wait, expected = crowdPause, true
		case more || crowded:
			expected = true
			continue
		}
		failing = err != nil
		select {
		case <-ctx.Done():
		case <-rang:
			expected = true
		case <-time.After(wait):
		}
	}
}

// untilDue is how long to wait, and whether something is expected to be due then.
func (d *dispatcher) untilDue(ctx context.Context) (wait time.Duration, expected bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	in, ok, err := queue.NextDue(ctx, d.store.pool, d.demand(0))
	if err != nil || !ok || in > pollEvery {
		return pollEvery, false, err
	}
	if in <= 0 {
		return claimPause, true, nil
	}
	// In whole microseconds, as the database counts: never a moment early.
	return in + time.Microsecond, true, nil
}

// reserve takes as many slots as are free, up to a batch, and waits for the first; 0: ctx has ended.
func (d *dispatcher) reserve(ctx context.Context) int {
	select {
	case <-ctx.Done():
		return 0
	case <-d.slots:
	}
	for n := 1; n < claimBatch; n++ {
		select {
		case <-d.slots:
		default:
			return n
		}
	}
	return claimBatch
}

func (d *dispatcher) giveBack(n int) {
	for range n {
		d.slots <- struct{}{}
	}
}

// demand is what the dispatcher can take now. Backfills have half of what it can do at most.
func (d *dispatcher) demand(free int) queue.Claim {
	going, backfills := d.flight.byJob()
	c := queue.Claim{Worker: d.worker, Max: free, For: d.flight.lease, PerJob: d.perJob, Going: going, Front: d.front}
	if c.Backfill = max(1, cap(d.slots)/2) - backfills; c.Backfill <= 0 {
		c.Backfill = -1
	}
	d.to.demand(&c)
	return c
}

// knownSecrets are a tenant's, as they were a moment ago: one that was replaced since signs on for a day anyway.
type knownSecrets struct {
	secrets []webhook.Secret
	until   time.Time
}

// secretsLast is how long they are taken as known.
const secretsLast = 5 * time.Second

// secretsOf gives the secrets that sign the runs, by tenant.
func (d *dispatcher) secretsOf(ctx context.Context, tx pgx.Tx, runs []queue.Run) (map[string][]webhook.Secret, error) {
	secrets := map[string][]webhook.Secret{}
	var unknown []string
	for _, r := range runs {
		known, ok := d.secrets[r.Tenant]
		if !ok || time.Now().After(known.until) {
			unknown = append(unknown, r.Tenant)
			continue
		}
		secrets[r.Tenant] = known.secrets
	}
	found, err := signingSecrets(ctx, tx, unknown)
	if len(d.secrets) > len(found)+1000 || d.secrets == nil {
		d.secrets = map[string]knownSecrets{}
	}
	for tenant, s := range found {
		secrets[tenant] = s
		d.secrets[tenant] = knownSecrets{s, time.Now().Add(secretsLast)}
	}
	return secrets, err
}

// claim leases up to free runs and starts them. Each takes one of the caller's slots along.
func (d *dispatcher) claim(ctx context.Context, free int) (queue.Claimed, error) {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	var (
		claimed queue.Claimed
		secrets map[string][]webhook.Secret
	)
	asked := time.Now()
	err := queue.InTx(ctx, d.store.pool, pg.TxOptions{}, func(tx pgx.Tx) error {
		asked = time.Now()
		var err error
		claimed, err = queue.Lease(ctx, tx, d.demand(free))
		if err != nil {
			return err
		}
		secrets, err = d.secretsOf(ctx, tx, claimed.Runs)
		return err
	})
	if errors.Is(err, pg.ErrCommitUnknown) {
		d.disown(claimed.Runs)
	}
	if err != nil {
		return queue.Claimed{}, err
	}
	if len(claimed.Replaced) > 0 {
		d.store.bell.taken()
	}
	for _, e := range claimed.Settled {
		d.store.metrics.ended(e.Status)
	}
	for _, r := range claimed.Runs {
		d.store.metrics.lateness.Observe(max(0, r.Late.Seconds()))
		d.store.metrics.started.Inc()
		d.store.metrics.inFlight.Inc()
		dv := d.flight.add(r, asked)
		var ok bool
		dv.land, ok = d.to.start(r.Target)
		dv.refused, dv.errand = !ok, errandOf(&r)
		d.deliveries.Go(func() {
			defer d.giveBack(1)
			defer d.store.metrics.inFlight.Dec()
			defer d.land(dv)
			d.deliver(dv, secrets[dv.run.Tenant])
		})
	}
	return claimed, nil
}

// land makes room for another run of the job, and says so if that was what one waited for.
func (d *dispatcher) land(dv *delivery) {
	dv.land(dv.shown)
	if had := d.flight.remove(dv); had >= d.perJob || dv.run.Trigger == queue.Backfill {
		if had >= d.perJob {
			d.front.Reset() // what it left standing there may be taken now
		}
		d.store.bell.ringHere("")
	}
}

// disown gives back leases that may have been taken without anybody knowing. If that fails
// too they end by themselves, at the cost of an attempt.
func (d *dispatcher) disown(runs []queue.Run) {
	ctx, cancel := context.WithTimeout(context.Background(), claimTimeout)
	defer cancel()
	holdings := make([]queue.Holding, len(runs))
	for i := range runs {
		holdings[i] = runs[i].Holding()
	}
	err := pg.InTx(ctx, d.store.pool, pg.TxOptions{RepeatUnknown: true}, func(tx pgx.Tx) error { return queue.Release(ctx, tx, holdings) })
	if err != nil {
		d.log.Warn("leases of unknown fate are left to the reaper", "runs", len(runs), "error", err)
	}
}
