package chronos

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/chronos/queue"
	"holdfast/webhook"
)

// Two replicas, one job every second: each instant is delivered once, on time, signed, and with
// one id; one replica leaves on the way.
func TestEndToEndEachInstantOnceAcrossReplicas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newReceiver(t, nil)
	_, stopOne := w.start(Config{})
	w.start(Config{})
	w.put("tick", to(r.URL, time.Second))
	r.wait(3)
	stopOne()
	got := r.wait(6)
	secret, err := w.store.SigningSecret(t.Context(), "default")
	if err != nil {
		t.Fatal(err)
	}
	var last time.Time
	for i, d := range got {
		at, err := time.Parse(time.RFC3339Nano, d.Get("Chronos-Scheduled-For"))
		if err != nil || i > 0 && !at.Equal(last.Add(time.Second)) {
			t.Errorf("delivery %d is of %v after %v, %v", i, at, last, err)
		}
		last = at
		if err := webhook.Verify(d.Header, []byte(d.body), time.Now(), time.Minute, secret.Secret); err != nil {
			t.Errorf("delivery %d: %v", i, err)
		}
		var body struct {
			ID, Job      string
			Attempt      int
			ScheduledFor time.Time `json:"scheduled_for"`
		}
		if err := json.Unmarshal([]byte(d.body), &body); err != nil || body.Job != "tick" || body.Attempt != 1 ||
			body.ID != d.Get("Webhook-Id") || !body.ScheduledFor.Equal(at) {
			t.Errorf("delivery %d has the body %s", i, d.body)
		}
	}
	w.await(`SELECT count(*) >= 6 FROM chronos.run_history WHERE status = 'succeeded'`)
	var late, other int
	w.Scan(t, `SELECT count(*) FILTER (WHERE started_at < scheduled_for), count(*) FILTER (WHERE status <> 'succeeded' OR attempt <> 1)
		FROM chronos.run_history`, nil, &late, &other)
	if late != 0 || other != 0 {
		t.Errorf("%d runs started before they were due, %d didn't succeed at once", late, other)
	}
	w.noHoles()
}

func TestOutcomesOfDeliveries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(Config{})
	answers := map[string]func(n int, rw http.ResponseWriter){
		"success": func(_ int, rw http.ResponseWriter) { _, _ = rw.Write([]byte("fine")) },
		"retried": func(n int, rw http.ResponseWriter) {
			if n < 3 {
				rw.WriteHeader(503)
			}
		},
		"exhausted": func(_ int, rw http.ResponseWriter) { rw.WriteHeader(500) },
		"final":     func(_ int, rw http.ResponseWriter) { rw.WriteHeader(404) },
		"gone":      func(_ int, rw http.ResponseWriter) { rw.WriteHeader(410) },
	}
	for name, want := range map[string]struct {
		status   queue.Status
		reason   string
		outcomes string
		paused   bool
	}{
		"success":   {queue.Succeeded, "", "succeeded", false},
		"retried":   {queue.Succeeded, "", "http_error http_error succeeded", false},
		"exhausted": {queue.Failed, "http_error", "http_error http_error http_error", false},
		"final":     {queue.Failed, "http_error", "http_error", false},
		"gone":      {queue.Failed, "gone", "gone", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := 0
			r := newReceiver(t, func(rw http.ResponseWriter, _ *http.Request) { n++; answers[name](n, rw) })
			spec := to(r.URL, time.Hour)
			spec.Retry = Retry{MaxAttempts: 3, Backoff: time.Millisecond, MaxBackoff: time.Millisecond}
			w.put(name, spec)
			run, _, err := w.store.TriggerJob(t.Context(), me, name, json.RawMessage(`{"a": 1}`))
			if err != nil {
				t.Fatal(err)
			}
			w.await(`SELECT EXISTS (SELECT 1 FROM chronos.run_history WHERE id = $1)`, run.ID)
			run, err = w.store.GetRun(t.Context(), "default", run.ID)
			if err != nil {
				t.Fatal(err)
			}
			var outcomes []string
			for i, a := range run.Attempts {
				outcomes = append(outcomes, a.Outcome)
				if a.Number != i+1 || a.StartedAt == nil || a.FinishedAt == nil || a.LatencyMS == nil || a.Worker == "" || a.StatusCode == 0 {
					t.Errorf("attempt %d is %+v", i, a)
				}
			}
			if run.Status != want.status || run.Reason != want.reason || strings.Join(outcomes, " ") != want.outcomes {
				t.Errorf("the run is %s (%s) after %v", run.Status, run.Reason, outcomes)
			}
			for i, d := range r.all() {
				if d.Get("Webhook-Id") != run.ID.String() || d.body != `{"a": 1}` {
					t.Errorf("delivery %d has id %s, body %s", i, d.Get("Webhook-Id"), d.body)
				}
			}
			if j, err := w.store.GetJob(t.Context(), "default", name); err != nil || j.Paused != want.paused {
				t.Errorf("paused is %v, %v", j.Paused, err)
			}
		})
	}
}

func TestAnAsynchronousRunGoesOnUntilItIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(Config{Lease: time.Second})
	r := newReceiver(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Chronos-Async", "accepted")
		rw.WriteHeader(202)
	})
	spec := to(r.URL, time.Hour)
	spec.Target.Webhook.Timeout = time.Minute
	w.put("job", spec)
	run, _, err := w.store.TriggerJob(t.Context(), me, "job", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.wait(1)
	w.await(`SELECT status = 'running' AND answer IS NOT NULL FROM chronos.job_runs WHERE id = $1`, run.ID)
	token := w.tokenOf(run)
	done, _, err := w.store.CompleteRun(t.Context(), me, token, json.RawMessage(`{"rows": 3}`))
	if err != nil || done.Status != queue.Succeeded {
		t.Fatalf("complete says %+v, %v", done, err)
	}
	run, err = w.store.GetRun(t.Context(), "default", run.ID)
	if err != nil || string(run.Result) != `{"rows": 3}` || len(run.Attempts) != 1 || run.Attempts[0].StatusCode != 202 {
		t.Errorf("the run is %+v, %v", run, err)
	}
}

func (w *world) tokenOf(r Run) queue.Holding {
	w.t.Helper()
	h := queue.Holding{Run: r.ID}
	w.Scan(w.t, `SELECT lease_token FROM chronos.job_runs WHERE id = $1`, []any{r.ID}, &h.Token)
	return h
}

// slow is a receiver whose answers wait until release is called; the channel says that one has come.
func slow(t *testing.T) (r *receiver, release func()) {
	free := make(chan struct{})
	release = sync.OnceFunc(func() { close(free) })
	r = newReceiver(t, func(_ http.ResponseWriter, req *http.Request) {
		select {
		case <-free:
		case <-req.Context().Done():
		}
	})
	t.Cleanup(release)
	return r, release
}

// C6: a worker that lives and renews keeps its run for many lease lengths.
func TestC6ALivingWorkerKeepsItsRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r, release := slow(t)
	w.start(Config{Lease: time.Second})
	w.start(Config{Lease: time.Second})
	w.put("job", to(r.URL, time.Hour))
	run, _, err := w.store.TriggerJob(t.Context(), me, "job", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.wait(1)
	w.await(`SELECT leased_until > started_at + interval '3.5 seconds' FROM chronos.job_runs WHERE id = $1`, run.ID)
	release()
	w.await(`SELECT EXISTS (SELECT 1 FROM chronos.run_history WHERE id = $1 AND status = 'succeeded' AND attempt = 1)`, run.ID)
	if n := len(r.all()); n != 1 {
		t.Errorf("%d deliveries, want 1", n)
	}
}

// C7: a run whose worker has gone is delivered again, with the same id, after its lease.
func TestC7ARunOfADeadWorkerIsDeliveredAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newReceiver(t, nil)
	w.put("job", to(r.URL, time.Hour))
	run, _, err := w.store.TriggerJob(t.Context(), me, "job", nil)
	if err != nil {
		t.Fatal(err)
	}
	// A worker leases it and is never heard of again.
	if runs, _, err := w.store.LeaseRuns(t.Context(), me, queue.Claim{Worker: "dead", Max: 1, For: time.Second}, 0, nil); err != nil || len(runs) != 1 {
		t.Fatalf("leased %v, %v", runs, err)
	}
	w.start(Config{})
	got := r.wait(1)
	if got[0].Get("Webhook-Id") != run.ID.String() || got[0].Get("Chronos-Attempt") != "2" {
		t.Errorf("delivered as attempt %s of %s", got[0].Get("Chronos-Attempt"), got[0].Get("Webhook-Id"))
	}
	w.await(`SELECT EXISTS (SELECT 1 FROM chronos.run_history WHERE id = $1 AND attempts->0->>'outcome' = 'lease_expired'
		AND started_at > (attempts->0->>'started_at')::timestamptz + interval '1 second')`, run.ID)
}

func TestDrainLetsDeliveriesEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r, release := slow(t)
	_, stop := w.start(Config{Lease: time.Second})
	w.put("job", to(r.URL, time.Hour))
	run, _, err := w.store.TriggerJob(t.Context(), me, "job", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.wait(1)
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	// It renews while it drains.
	w.await(`SELECT leased_until > started_at + interval '2.5 seconds' FROM chronos.job_runs WHERE id = $1`, run.ID)
	select {
	case <-stopped:
		t.Error("the replica didn't wait for its delivery")
	default:
	}
	release()
	<-stopped
	if run, err = w.store.GetRun(t.Context(), "default", run.ID); err != nil || run.Status != queue.Succeeded {
		t.Errorf("the run is %s, %v", run.Status, err)
	}
}

func TestDrainGivesBackWhatIsLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r, _ := slow(t)
	_, stop := w.start(Config{Drain: time.Millisecond})
	spec := to(r.URL, time.Hour)
	spec.Retry.MaxAttempts = 1
	w.put("job", spec)
	run, _, err := w.store.TriggerJob(t.Context(), me, "job", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.wait(1)
	stop()
	if run, err = w.store.GetRun(t.Context(), "default", run.ID); err != nil || run.Status != queue.Pending || run.Attempts[0].Outcome != "released" {
		t.Fatalf("the run is %+v, %v", run, err)
	}
	w.start(Config{})
	if got := r.wait(2); got[1].Get("Chronos-Attempt") != "2" {
		t.Errorf("the next delivery is attempt %s", got[1].Get("Chronos-Attempt"))
	}
}

// A cancelled run's delivery is stopped, and its answer changes nothing.
func TestACancelledDeliveryIsStopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stopped := make(chan struct{})
	r := newReceiver(t, func(_ http.ResponseWriter, req *http.Request) {
		<-req.Context().Done()
		close(stopped)
	})
	w.start(Config{Lease: time.Second})
	w.put("job", to(r.URL, time.Hour))
	run, _, err := w.store.TriggerJob(t.Context(), me, "job", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.wait(1)
	if _, _, err := w.store.CancelRun(t.Context(), me, run.ID); err != nil {
		t.Fatal(err)
	}
	<-stopped
	if run, err = w.store.GetRun(t.Context(), "default", run.ID); err != nil || run.Status != queue.Cancelled || run.Attempts[0].Outcome != "cancelled" {
		t.Errorf("the run is %+v, %v", run, err)
	}
}

// The database goes away while a delivery is in flight and comes back before the lease
// is over: the answer is stored, nothing is delivered twice, and the instants in
// between run late.
func TestADatabaseThatGoesAwayDropsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r, release := slow(t)
	fast := newReceiver(t, nil)
	w.start(Config{})
	w.put("slow", to(r.URL, time.Hour))
	// With skip, a run whose end couldn't be stored for a while would count as going on.
	tick := to(fast.URL, time.Second)
	tick.Overlap = OverlapAllow
	w.put("tick", tick)
	run, _, err := w.store.TriggerJob(t.Context(), me, "slow", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.wait(1)
	fast.wait(1)
	w.SetAllowConnections(t, false)
	release()
	before := len(fast.all())
	<-time.After(2 * time.Second) // the outage itself
	w.SetAllowConnections(t, true)
	fast.wait(before + 4)
	w.await(`SELECT EXISTS (SELECT 1 FROM chronos.run_history WHERE id = $1 AND status = 'succeeded' AND attempt = 1)`, run.ID)
	if n := len(r.all()); n != 1 {
		t.Errorf("%d deliveries of the slow run, want 1", n)
	}
	seen := map[string]bool{}
	for _, d := range fast.all() {
		if seen[d.Get("Webhook-Id")] {
			t.Errorf("run %s was delivered twice", d.Get("Webhook-Id"))
		}
		seen[d.Get("Webhook-Id")] = true
	}
	var skipped int
	w.Scan(t, `SELECT count(*) FROM chronos.run_history WHERE status <> 'succeeded'`, nil, &skipped)
	if skipped != 0 {
		t.Errorf("%d runs didn't succeed", skipped)
	}
	w.noHoles()
}

func TestForbiddenTargets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, _, err := w.store.PutJob(t.Context(), me, "job", to("http://10.0.0.1/", time.Hour), nil)
	if err == nil || !strings.Contains(err.Error(), "target.webhook.url") {
		t.Errorf("a private address: %v", err)
	}
}

// Pitfall 39: a receiver that doesn't answer starves nobody, however many runs wait for it.
func TestPitfall39ASlowReceiverLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	release := make(chan struct{})
	var slow atomic.Int64
	hang := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		slow.Add(1)
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(hang.Close)
	answered := make(chan struct{}, 10)
	quick := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { answered <- struct{}{} }))
	t.Cleanup(quick.Close)
	w.put("slow", to(hang.URL, time.Hour))
	w.put("quick", to(quick.URL, time.Hour))
	for range 20 {
		if _, _, err := w.store.TriggerJob(t.Context(), me, "slow", nil); err != nil {
			t.Fatal(err)
		}
	}
	_, stop := w.start(Config{Concurrency: 8})
	defer stop()
	for slow.Load() < 2 {
		w.await("SELECT true")
	}
	for range 3 {
		if _, _, err := w.store.TriggerJob(t.Context(), me, "quick", nil); err != nil {
			t.Fatal(err)
		}
		select {
		case <-answered:
		case <-time.After(20 * time.Second):
			t.Fatal("the quick job waits for the slow one")
		}
	}
	if n := slow.Load(); n != 2 {
		t.Errorf("%d slow deliveries at once, want a quarter of 8", n)
	}
	close(release)
	w.await("SELECT count(*) = 20 FROM chronos.run_history h JOIN chronos.jobs j ON j.id = h.job_id WHERE j.name = 'slow' AND h.status = 'succeeded'")
}

// A run that has to wait for another of its job doesn't keep a worker from the next job's, however
// few it asks for and however short it waits.
func TestAWaitingRunDoesNotBlockItsQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := to("", time.Hour)
	spec.Target = Target{Pull: &Pull{Queue: "q"}}
	busy, other := w.put("busy", spec), w.put("other", spec)
	name := QueueName("default", "q")
	for ago := range 5 {
		w.Exec(t, `INSERT INTO chronos.job_runs (job_id, queue, scheduled_for, due_at, effective_at)
			SELECT $1, $2, at, at, at FROM (SELECT clock_timestamp() - make_interval(secs => $3) AS at) t`, busy.ID, name, 10-ago)
	}
	w.Exec(t, `INSERT INTO chronos.job_runs (job_id, queue, scheduled_for) VALUES ($1, $2, clock_timestamp())`, other.ID, name)
	claim := queue.Claim{Queue: name, Worker: "w", Max: 1, For: time.Minute}
	for _, want := range []string{"busy", "other"} {
		runs, _, err := w.store.LeaseRuns(t.Context(), me, claim, 0, nil)
		if err != nil || len(runs) != 1 || runs[0].Job != want {
			t.Fatalf("leased %+v, %v; want a run of %s", runs, err, want)
		}
	}
	if runs, _, err := w.store.LeaseRuns(t.Context(), me, claim, 0, nil); err != nil || len(runs) != 0 {
		t.Errorf("leased %+v, %v; want none", runs, err)
	}
}

func TestPullWorkerFromLeaseToEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	spec := to("", time.Hour)
	spec.Target = Target{Pull: &Pull{Queue: "q"}}
	spec.Retry = Retry{MaxAttempts: 2}
	w.put("job", spec)
	claim := queue.Claim{Queue: QueueName("default", "q"), Worker: "w", Max: 5, For: time.Minute}
	type leased struct {
		runs []queue.Run
		err  error
	}
	polled := make(chan leased, 1)
	go func() {
		runs, _, err := w.store.LeaseRuns(ctx, me, claim, MaxWait, nil)
		polled <- leased{runs, err}
	}()
	run, _, err := w.store.TriggerJob(ctx, me, "job", nil)
	if err != nil {
		t.Fatal(err)
	}
	got := <-polled
	if got.err != nil || len(got.runs) != 1 || got.runs[0].ID != run.ID {
		t.Fatalf("the long poll gave %+v, %v", got.runs, got.err)
	}
	if _, _, err := w.store.Heartbeat(ctx, me, got.runs[0].Holding(), time.Minute); err != nil {
		t.Error(err)
	}
	if f, _, err := w.store.FailRun(ctx, me, got.runs[0].Holding(), "no luck", true); err != nil || f.Status != queue.Pending {
		t.Errorf("fail says %+v, %v", f, err)
	}
	other := Caller{Tenant: "other"}
	runs, _, err := w.store.LeaseRuns(ctx, me, claim, MaxWait, nil)
	if err != nil || len(runs) != 1 || runs[0].Attempt != 2 {
		t.Fatalf("leased %+v, %v", runs, err)
	}
	if _, _, err := w.store.CompleteRun(ctx, other, runs[0].Holding(), nil); err == nil {
		t.Error("another tenant completed the run")
	}
	if f, _, err := w.store.FailRun(ctx, me, runs[0].Holding(), "no luck", true); err != nil || f.Status != queue.Failed {
		t.Errorf("fail says %+v, %v", f, err)
	}
	stop := make(chan struct{})
	close(stop)
	if runs, _, err := w.store.LeaseRuns(ctx, me, claim, MaxWait, stop); err != nil || len(runs) != 0 {
		t.Errorf("a poll that is stopped gave %v, %v", runs, err)
	}
}

func TestReplicasAreListedWithTheirLeader(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one, stop := w.start(Config{})
	w.await(`SELECT count(*) = 1 FROM chronos.leaderships l JOIN chronos.replicas r ON l.holder = r.id::text`)
	w.start(Config{})
	w.await(`SELECT count(*) = 2 FROM chronos.replicas`)
	replicas, err := w.store.ListReplicas(t.Context())
	if err != nil || len(replicas) != 2 || replicas[0].ID != one.ID() || !replicas[0].Leader || replicas[0].Epoch != 1 || replicas[1].Leader {
		t.Errorf("replicas are %+v, %v", replicas, err)
	}
	stop()
	w.await(`SELECT count(*) = 1 FROM chronos.leaderships l JOIN chronos.replicas r ON l.holder = r.id::text WHERE l.epoch = 2`)
}

func TestARotatedSecretSignsOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	first, err := w.store.SigningSecret(ctx, "default")
	if err != nil {
		t.Fatal(err)
	}
	second, _, err := w.store.RotateSecret(ctx, me)
	if err != nil || second.Previous != first.Secret.Reveal() || second.Secret == second.Previous {
		t.Fatalf("rotated: %v", err)
	}
	r := newReceiver(t, nil)
	w.start(Config{})
	w.put("job", to(r.URL, time.Hour))
	if _, _, err := w.store.TriggerJob(ctx, me, "job", nil); err != nil {
		t.Fatal(err)
	}
	d := r.wait(1)[0]
	if err := webhook.Verify(d.Header, []byte(d.body), time.Now(), time.Minute, first.Secret); err != nil {
		t.Errorf("the previous secret: %v", err)
	}
	current, err := webhook.ParseSecret(second.Secret)
	if err != nil {
		t.Fatal(err)
	}
	if err := webhook.Verify(d.Header, []byte(d.body), time.Now(), time.Minute, current); err != nil {
		t.Errorf("the new secret: %v", err)
	}
	third, _, err := w.store.RotateSecret(ctx, me)
	if err != nil || third.Previous != second.Secret {
		t.Errorf("rotated again: %v", err)
	}
}
