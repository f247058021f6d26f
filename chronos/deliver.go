package chronos

import (
	"context"
	"encoding/json"
	"errors"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"holdfast/chronos/queue"
	"holdfast/internal/pg"
	"holdfast/webhook"
)

// reasonGone pauses a job whose receiver answered 410.
const reasonGone = "the receiver answered 410 Gone"

const (
	// settleTimeout bounds one try to store what came of a delivery; settlePause is
	// the first pause between two.
	settleTimeout = 3 * time.Second
	settlePause   = 50 * time.Millisecond
	// settleTries bounds the tries that fail although the database is there: then the lease
	// is let go, so that the run has a way out.
	settleTries = 5
)

// errand is what a delivery needs of its job's [Spec].
type errand struct {
	Target Target `json:"target"`
	Retry  Retry  `json:"retry"`
}

// errandOf is nil if the job has no webhook any more. Whoever starts deliveries reads it for them: to read JSON takes a deep stack, which each
// delivery's goroutine would have to grow.
func errandOf(r *queue.Run) *errand {
	var e errand
	if err := json.Unmarshal(r.Spec, &e); err != nil || e.Target.Webhook == nil {
		return nil
	}
	return &e
}

// deliver makes one attempt and stores what came of it. While the database is away it
// tries to store that until the lease is over; then the reaper sees to the run.
func (d *dispatcher) deliver(dv *delivery, secrets []webhook.Secret) {
	defer func() {
		if p := recover(); p != nil {
			// The lease is let go, so this counts as an attempt, and the run ends after its last.
			d.log.Error("a delivery panicked", "run", dv.run.ID, "job", dv.run.Job, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	if dv.refused {
		d.giveUp(dv)
		return
	}
	spec := dv.errand
	if spec == nil {
		d.settle(dv, d.finishing(dv, &errand{}, webhook.Result{
			Outcome: webhook.InvalidRequest, Class: webhook.ClassFinal, Error: "the job has no webhook any more",
		}))
		return
	}
	result := d.client.Send(dv.send, request(&dv.run, spec.Target.Webhook, d.store.Now(), secrets))
	dv.shown = shown(result, &spec.Target)
	switch {
	case result.Outcome == webhook.Cancelled && dv.lease.Err() != nil:
		d.store.metrics.attempts.WithLabelValues("lease_lost").Inc()
		d.log.Warn("a delivery was stopped: its lease couldn't be renewed, or its run was cancelled", "run", dv.run.ID, "job", dv.run.Job)
	case result.Outcome == webhook.Cancelled:
		d.giveUp(dv)
	case result.Class == webhook.ClassAccepted:
		d.store.metrics.attempts.WithLabelValues(string(result.Outcome)).Inc()
		lease := max(d.flight.lease, spec.Target.Webhook.Timeout)
		d.settle(dv, d.inTx(func(ctx context.Context, tx pgx.Tx) (queue.Finished, error) {
			return queue.Finished{}, queue.Accept(ctx, tx, dv.run.Holding(), lease, attempt(result))
		}))
	default:
		d.store.metrics.attempts.WithLabelValues(string(result.Outcome)).Inc()
		d.settle(dv, d.finishing(dv, spec, result))
	}
}

// giveUp gives the run back, at no cost.
func (d *dispatcher) giveUp(dv *delivery) {
	d.store.metrics.attempts.WithLabelValues(queue.OutcomeReleased).Inc()
	d.settle(dv, d.inTx(func(ctx context.Context, tx pgx.Tx) (queue.Finished, error) {
		return queue.Finished{}, queue.Release(ctx, tx, []queue.Holding{dv.run.Holding()})
	}))
}

// request is the attempt to be made now, by the database's clock.
func request(r *queue.Run, w *Webhook, now time.Time, secrets []webhook.Secret) webhook.Request {
	return webhook.Request{
		URL: w.URL, Method: w.Method, Headers: w.Headers, Body: body(r, w), Timeout: w.Timeout,
		ID: r.ID.String(), Timestamp: now, Secrets: secrets,
		Own: map[string]string{
			"Chronos-Job":           r.Job,
			"Chronos-Attempt":       strconv.Itoa(r.Attempt),
			"Chronos-Scheduled-For": r.ScheduledFor.UTC().Format(time.RFC3339Nano),
			"Chronos-Lease-Token":   r.Token.String(),
		},
	}
}

// body is a trigger's payload, else the job's body, else what the run is. A GET has only
// what was asked for, since many servers refuse one with a body.
func body(r *queue.Run, w *Webhook) []byte {
	switch {
	case r.Payload != nil:
		return r.Payload
	case w.Body != nil:
		return w.Body
	case w.Method == "GET":
		return nil
	}
	envelope, err := json.Marshal(struct {
		ID           string    `json:"id"`
		Job          string    `json:"job"`
		Attempt      int       `json:"attempt"`
		ScheduledFor time.Time `json:"scheduled_for"`
	}{r.ID.String(), r.Job, r.Attempt, r.ScheduledFor.UTC()})
	if err != nil {
		panic(err) // strings and a time within range always are JSON
	}
	return envelope
}

func attempt(r webhook.Result) queue.Attempt {
	latency := r.Latency.Milliseconds()
	return queue.Attempt{Outcome: string(r.Outcome), StatusCode: r.StatusCode, LatencyMS: &latency, Response: r.Response, Error: r.Error}
}

// store is one try to store what came of a delivery; it may be repeated: the token fences it.
type store func(ctx context.Context) (queue.Finished, error)

func (d *dispatcher) inTx(fn func(context.Context, pgx.Tx) (queue.Finished, error)) store {
	return func(ctx context.Context) (out queue.Finished, err error) {
		err = queue.InTx(ctx, d.store.pool, pg.TxOptions{RepeatUnknown: true}, func(tx pgx.Tx) (err error) {
			out, err = fn(ctx, tx)
			return err
		})
		return out, err
	}
}

// finishing ends the attempt by its result, together with others. A receiver that is gone also pauses the job.
func (d *dispatcher) finishing(dv *delivery, spec *errand, r webhook.Result) store {
	f := queue.Finish{Holding: dv.run.Holding(), Kind: queue.Fail, Attempt: attempt(r), Delay: spec.Retry.delay(r.RetryAfter)}
	switch r.Class {
	case webhook.ClassSuccess:
		f.Kind = queue.Complete
	case webhook.ClassFinal, webhook.ClassGone:
		f.Final = true
	}
	if r.Class != webhook.ClassGone {
		return func(context.Context) (queue.Finished, error) { return d.store.finisher.end(f, time.Time{}) }
	}
	return d.inTx(func(ctx context.Context, tx pgx.Tx) (queue.Finished, error) {
		done, err := f.End(ctx, tx)
		if err != nil || done.Repeated {
			return done, err
		}
		return done, pauseGone(ctx, tx, dv.run.JobID)
	})
}

// settle stores what came of a delivery, again and again until it is stored, refused for
// good, or the lease is over.
func (d *dispatcher) settle(dv *delivery, try store) {
	refused := 0
	for pause := settlePause; ; pause = min(2*pause, pollEvery) {
		ctx, cancel := context.WithTimeout(dv.lease, settleTimeout)
		done, err := try(ctx)
		cancel()
		if err == nil {
			d.store.metrics.ended(done.Status)
			if done.Woke {
				d.store.bell.ring("")
			} else if done.Status == queue.Pending {
				d.store.bell.ringHere("")
			}
			return
		}
		if errors.Is(err, queue.ErrLeaseLost) || errors.Is(err, queue.ErrNotFound) || dv.lease.Err() != nil {
			d.store.metrics.attempts.WithLabelValues("lease_lost").Inc()
			d.log.Warn("what came of a delivery wasn't stored: its lease is over", "run", dv.run.ID, "job", dv.run.Job, "error", err)
			return
		}
		if !pg.Unavailable(err) && !errors.Is(err, pg.ErrCommitUnknown) {
			if refused++; refused == settleTries {
				d.log.Error("what came of a delivery can't be stored", "run", dv.run.ID, "job", dv.run.Job, "error", err)
				return
			}
		}
		if pause == settlePause {
			d.log.Warn("can't store what came of a delivery, trying again", "run", dv.run.ID, "job", dv.run.Job, "error", err)
		}
		select {
		case <-dv.lease.Done():
		case <-time.After(pause):
		}
	}
}
