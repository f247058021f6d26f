package chronos

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"

	"holdfast/chronos/queue"
)

// Pitfall 36: what comes due on one replica is told to the others, and losing that costs no run.
func TestPitfall36AHintReachesTheOtherReplicas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.put("job", pulled("q", time.Hour))
	one, _ := w.start(Config{})
	w.await(`SELECT count(*) >= 1 FROM pg_stat_activity WHERE datname = current_database() AND query = 'LISTEN ' || $1`, hintChannel)
	rang := one.store.bell.wait(QueueName("default", "q"))
	other, _ := w.start(Config{})
	w.await(`SELECT count(*) >= 2 FROM pg_stat_activity WHERE datname = current_database() AND query = 'LISTEN ' || $1`, hintChannel)
	if _, _, err := other.store.TriggerJob(t.Context(), me, "job", nil); err != nil {
		t.Fatal(err)
	}
	<-rang
	// Without the hint, as when its session is lost, the run is found by looking.
	w.Exec(t, `UPDATE chronos.job_runs SET due_at = clock_timestamp() + interval '600 ms'`)
	claim := queue.Claim{Queue: QueueName("default", "q"), Worker: "w", Max: 1, For: time.Minute}
	if runs, _, err := w.store.LeaseRuns(t.Context(), me, claim, MaxWait, nil); err != nil || len(runs) != 1 {
		t.Errorf("leased %v, %v", runs, err)
	}
}

// A run that is cancelled by another replica, or replaced, has its delivery stopped at once, not at the next beat.
func TestATakenLeaseStopsItsDeliveryAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stopped := make(chan struct{}, 2)
	r := newReceiver(t, func(_ http.ResponseWriter, req *http.Request) {
		<-req.Context().Done()
		stopped <- struct{}{}
	})
	w.start(Config{Lease: time.Hour}) // a beat comes every twenty minutes
	w.await(`SELECT count(*) >= 1 FROM pg_stat_activity WHERE datname = current_database() AND query = 'LISTEN ' || $1`, hintChannel)
	spec := to(r.URL, time.Hour)
	spec.Overlap, spec.Target.Webhook.Timeout = OverlapReplace, 15*time.Minute
	j := w.put("job", spec)
	run, _, err := w.store.TriggerJob(t.Context(), me, "job", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.wait(1)
	w.await(`SELECT status <> 'pending' FROM chronos.job_runs WHERE id = $1`, run.ID)
	w.Exec(t, `INSERT INTO chronos.job_runs (job_id, scheduled_for) VALUES ($1, clock_timestamp())`, j.ID)
	<-stopped
	got := r.wait(2)
	w.await(`SELECT status = 'cancelled' AND reason = 'replaced' FROM chronos.run_history WHERE id = $1`, run.ID)
	// This replica isn't running: all it can do is tell the others.
	speaker := w.service(Config{})
	go func() { _ = speaker.speak(t.Context()) }()
	if _, _, err := speaker.store.CancelRun(t.Context(), me, uuid.MustParse(got[1].Get("Webhook-Id"))); err != nil {
		t.Fatal(err)
	}
	<-stopped
}

// The timestamp that is signed is of the sending, not of the lease: a receiver that judges by it isn't misled by a wait.
func TestTheTimestampIsOfTheSending(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 24, 18, 0, 5, 0, time.UTC)
	run := queue.Run{StartedAt: now.Add(-10 * time.Second)}
	if got := request(&run, &Webhook{Method: "POST"}, now, nil); !got.Timestamp.Equal(now) {
		t.Errorf("the timestamp is %v, want %v", got.Timestamp, now)
	}
}

// Attempts that end at once are stored in few transactions, each with its own outcome.
func TestEndingsAreStoredTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := pulled("q", time.Hour)
	spec.Overlap = OverlapAllow
	j := w.put("job", spec)
	for i := range 40 {
		w.late(j, "q", i+1)
	}
	claim := queue.Claim{Queue: QueueName("default", "q"), Worker: "w", Max: 100, For: time.Minute}
	runs, _, err := w.store.LeaseRuns(t.Context(), me, claim, 0, nil)
	if err != nil || len(runs) != 40 {
		t.Fatalf("leased %d runs, %v", len(runs), err)
	}
	w.Exec(t, `UPDATE chronos.job_runs SET leased_until = clock_timestamp() - interval '1 s' WHERE id = $1`, runs[7].ID)
	f := finisher{store: w.store}
	type result struct {
		i   int
		out queue.Finished
		err error
	}
	results := make(chan result)
	for i, r := range runs {
		finish := queue.Finish{Holding: r.Holding(), Kind: queue.Complete, Attempt: queue.Attempt{Outcome: "succeeded"}}
		if i == 11 {
			finish.Attempt.Response = "\x00" // PostgreSQL refuses it: that spoils no other
		}
		var deadline time.Time
		if i == 23 {
			deadline = time.Now().Add(-time.Minute) // nor does one that comes too late
		}
		go func() {
			out, err := f.end(finish, deadline)
			results <- result{i, out, err}
		}()
	}
	for range runs {
		r := <-results
		if (r.err != nil) != (r.i == 7 || r.i == 11 || r.i == 23) || r.err == nil && r.out.Status != queue.Succeeded {
			t.Errorf("ending %d: %+v, %v", r.i, r.out, r.err)
		}
	}
	if n := w.count(`SELECT count(*) FROM chronos.run_history WHERE status = 'succeeded'`); n != 37 {
		t.Errorf("%d succeeded, want 37", n)
	}
	if f.lanes != 0 {
		t.Errorf("%d lanes are left at work", f.lanes)
	}
}
