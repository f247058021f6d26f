package chronos

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"holdfast/chronos/alert"
	"holdfast/chronos/queue"
	"holdfast/webhook"
)

var everything = []alert.Kind{alert.Failed, alert.Missed, alert.Late, alert.Recovered}

// watched is a job that is pulled from and has one rule.
func (w *world) watched(name string, rules ...alert.Rule) Job {
	w.t.Helper()
	spec := DefaultSpec()
	spec.Schedule.Every = time.Hour
	spec.Target.Pull = &Pull{Queue: "q"}
	spec.Retry.MaxAttempts = 1
	spec.Alerts = rules
	return w.put(name, spec)
}

// end runs a job once, so that it succeeds or, with a reason, fails.
func (w *world) end(job, reason string) uuid.UUID {
	w.t.Helper()
	run, _, err := w.store.TriggerJob(w.t.Context(), me, job, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.finish(w.leaseOne(run.ID), reason)
	return run.ID
}

func (w *world) leaseOne(id uuid.UUID) queue.Run {
	w.t.Helper()
	for {
		var got queue.Claimed
		w.inTx(func(tx pgx.Tx) (err error) {
			got, err = queue.Lease(w.t.Context(), tx, queue.Claim{Queue: "default/q", Worker: "w", Max: 1, For: time.Minute})
			return err
		})
		for _, r := range got.Runs {
			if r.ID == id {
				return r
			}
		}
		if w.t.Context().Err() != nil {
			w.t.Fatal("nothing to lease")
		}
	}
}

func (w *world) finish(r queue.Run, reason string) {
	w.t.Helper()
	f := queue.Finish{Holding: r.Holding(), Kind: queue.Complete, Attempt: queue.Attempt{Outcome: "succeeded"}}
	if reason != "" {
		f = queue.Finish{Holding: r.Holding(), Kind: queue.Fail, Final: true, Attempt: queue.Attempt{Outcome: "failed", Error: reason}}
	}
	w.inTx(func(tx pgx.Tx) error {
		_, err := f.End(w.t.Context(), tx)
		return err
	})
}

// news lists the kinds of the alerts that there are, oldest first.
func (w *world) news() (kinds string) {
	w.t.Helper()
	w.Scan(w.t, `SELECT coalesce(string_agg(kind, ' ' ORDER BY n), '') FROM chronos.alerts`, nil, &kinds)
	return kinds
}

func (w *world) wantNews(want string) {
	w.t.Helper()
	if got := w.news(); got != want {
		w.t.Errorf("alerts: %q, want %q", got, want)
	}
}

func (w *world) lookForLate() {
	w.t.Helper()
	if _, err := w.service(Config{}).watchLate(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// Failure after failure is one alert; the first success after it is one more.
func TestFailuresAreToldOnceUntilASuccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.watched("job", alert.Rule{On: everything, URL: "http://127.0.0.1:9/"})
	w.end("job", "")
	w.wantNews("")
	for range 3 {
		w.end("job", "disk full")
	}
	w.wantNews("failed")
	w.end("job", "")
	w.wantNews("failed recovered")
	w.end("job", "")
	w.wantNews("failed recovered")
	w.end("job", "disk full again")
	w.wantNews("failed recovered failed")
	var payload []byte
	w.Scan(t, `SELECT payload FROM chronos.alerts WHERE kind = 'recovered'`, nil, &payload)
	var got struct {
		Type string
		Data struct {
			Job      string
			Failures int
			Run      struct{ Status string }
		}
	}
	if err := json.Unmarshal(payload, &got); err != nil || got.Type != "job.recovered" || got.Data.Job != "job" || got.Data.Failures != 3 || got.Data.Run.Status != "succeeded" {
		t.Errorf("%s", payload)
	}
}

// A rule may ask to be told only of failures that go on; of a recovery it then hears only if it heard of them.
func TestAfterHoldsFailuresBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.watched("job", alert.Rule{On: []alert.Kind{alert.Failed, alert.Recovered}, URL: "http://127.0.0.1:9/", After: time.Hour})
	w.end("job", "no")
	w.end("job", "")
	w.wantNews("")
	w.end("job", "no")
	w.Exec(t, `UPDATE chronos.jobs SET incident = jsonb_set(incident, '{since}', to_jsonb(clock_timestamp() - interval '61 min'))`)
	w.end("job", "no")
	w.wantNews("failed")
	w.end("job", "")
	w.wantNews("failed recovered")
}

// A reaper that ends a run says so in the transaction that ends it.
func TestALostLastAttemptIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.watched("job", alert.Rule{On: everything, URL: "http://127.0.0.1:9/"})
	run, _, err := w.store.TriggerJob(t.Context(), me, "job", nil)
	if err != nil {
		t.Fatal(err)
	}
	w.leaseOne(run.ID)
	w.Exec(t, `UPDATE chronos.job_runs SET leased_until = clock_timestamp() - interval '1 s' WHERE id = $1`, run.ID)
	var racers sync.WaitGroup
	for range 2 {
		racers.Go(func() {
			if _, err := queue.ReclaimExpiredLeases(t.Context(), w.Pool, 10); err != nil {
				t.Error(err)
			}
		})
	}
	racers.Wait()
	w.wantNews("failed")
}

// Runs that fail at the same time, finished by many, are one incident.
func TestRivalsTellOfAFailureOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.watched("a", alert.Rule{On: everything, URL: "http://127.0.0.1:9/a"}, alert.Rule{On: everything, URL: "http://127.0.0.1:9/b"})
	w.watched("b", alert.Rule{On: everything, URL: "http://127.0.0.1:9/a"})
	var runs []queue.Run
	for range 8 {
		for _, job := range []string{"a", "b"} {
			run, _, err := w.store.TriggerJob(t.Context(), me, job, nil)
			if err != nil {
				t.Fatal(err)
			}
			runs = append(runs, w.leaseOne(run.ID))
		}
	}
	var racers sync.WaitGroup
	for i := range 4 {
		racers.Go(func() {
			var all []queue.Finish
			for k := i; k < len(runs); k += 4 {
				all = append(all, queue.Finish{Holding: runs[k].Holding(), Kind: queue.Fail, Final: true, Attempt: queue.Attempt{Outcome: "failed"}})
			}
			w.inTx(func(tx pgx.Tx) error {
				_, _, err := queue.EndAll(t.Context(), tx, all)
				return err
			})
		})
	}
	racers.Wait()
	w.wantNews("failed failed failed")
	var failures int
	w.Scan(t, `SELECT sum((incident->>'failures')::int) FROM chronos.jobs`, nil, &failures)
	if failures != 16 {
		t.Errorf("%d failures were counted, want 16", failures)
	}
}

// An outage's record is one alert, written with it.
func TestAnOutageIsToldOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := to("http://127.0.0.1:9/", time.Minute)
	spec.CatchUp.Policy = CatchUpNone
	spec.Alerts = []alert.Rule{{On: everything, URL: "http://127.0.0.1:9/"}}
	j := w.put("job", spec)
	w.Exec(t, `DELETE FROM chronos.job_runs`)
	w.Exec(t, `UPDATE chronos.jobs SET anchor = anchor - interval '1 day', next_at = clock_timestamp() - interval '1 h', last_at = clock_timestamp() - interval '2 h'`)
	p := planner{store: w.store, term: w.term(), log: quiet}
	for range 3 {
		if _, err := p.round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	w.wantNews("missed")
	var count, recorded int
	w.Scan(t, `SELECT (payload::json->'data'->'missed'->>'count')::int,
		(SELECT sum((missed->>'count')::int) FROM chronos.run_history WHERE job_id = $1 AND status = 'missed') FROM chronos.alerts`, []any{j.ID}, &count, &recorded)
	if count != recorded || count < 59 {
		t.Errorf("the alert tells of %d instants, the record of %d", count, recorded)
	}
}

// A run that nobody takes is late by the database's clock, once, whoever looks.
func TestARunThatNobodyTakesIsLateOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.watched("job", alert.Rule{On: everything, URL: "http://127.0.0.1:9/"})
	run, _, err := w.store.TriggerJob(t.Context(), me, "job", nil)
	if err != nil {
		t.Fatal(err)
	}
	w.lookForLate()
	w.wantNews("")
	w.Exec(t, `UPDATE chronos.job_runs SET effective_at = effective_at - interval '61 s', late_at = late_at - interval '61 s'`)
	var racers sync.WaitGroup
	for range 4 {
		racers.Go(w.lookForLate)
	}
	racers.Wait()
	w.wantNews("late")
	w.finish(w.leaseOne(run.ID), "")
	w.wantNews("late") // a late run that succeeds is no recovery: nothing had failed
	w.end("job", "")   // in time
	second, _, err := w.store.TriggerJob(t.Context(), me, "job", nil)
	if err != nil {
		t.Fatal(err)
	}
	w.Exec(t, `UPDATE chronos.job_runs SET effective_at = effective_at - interval '2 min', late_at = late_at - interval '2 min' WHERE id = $1`, second.ID)
	w.finish(w.leaseOne(second.ID), "") // begun and ended before anybody looked
	w.lookForLate()
	w.wantNews("late late")
}

// Whoever looks for late runs has them locked, so that their leases can't be renewed: it waits for no job.
func TestLookingForLateRunsWaitsForNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.watched("job", alert.Rule{On: everything, URL: "http://127.0.0.1:9/"})
	if _, _, err := w.store.TriggerJob(t.Context(), me, "job", nil); err != nil {
		t.Fatal(err)
	}
	w.Exec(t, `UPDATE chronos.job_runs SET effective_at = effective_at - interval '61 s', late_at = late_at - interval '61 s'`)
	tx, err := w.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), `SELECT 1 FROM chronos.jobs FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := w.service(Config{}).watchLate(ctx); err != nil {
		t.Errorf("it waited: %v", err)
	}
	w.wantNews("")
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.lookForLate()
	w.wantNews("late")
}

func TestAPausedJobsRunsAreNotLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.watched("job", alert.Rule{On: everything, URL: "http://127.0.0.1:9/"})
	if _, _, err := w.store.TriggerJob(t.Context(), me, "job", nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.store.PauseJob(t.Context(), me, "job", "", nil); err != nil {
		t.Fatal(err)
	}
	w.Exec(t, `UPDATE chronos.job_runs SET effective_at = effective_at - interval '61 s', late_at = late_at - interval '61 s'`)
	w.lookForLate()
	w.wantNews("")
	if _, _, err := w.store.ResumeJob(t.Context(), me, "job"); err != nil {
		t.Fatal(err)
	}
	w.Exec(t, `UPDATE chronos.job_runs SET late_at = clock_timestamp()`)
	w.lookForLate()
	w.wantNews("late")
}

// What is planned when alerts are added or taken away follows.
func TestPlannedRunsFollowAlerts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.watched("job")
	run, _, err := w.store.TriggerJob(t.Context(), me, "job", nil)
	if err != nil {
		t.Fatal(err)
	}
	w.watched("job", alert.Rule{On: everything, URL: "http://127.0.0.1:9/"})
	w.finish(w.leaseOne(run.ID), "no")
	w.wantNews("failed")
	w.watched("job")
	w.end("job", "")
	w.wantNews("failed")
	var incidents int
	w.Scan(t, `SELECT count(*) FROM chronos.jobs WHERE incident IS NOT NULL OR watched OR late_after IS NOT NULL`, nil, &incidents)
	if incidents != 0 {
		t.Error("a job without alerts keeps an incident")
	}
}

// Two replicas deliver an alert once, signed, with an id that stays.
func TestAlertsArriveSigned(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tries := 0
	r := newReceiver(t, func(rw http.ResponseWriter, _ *http.Request) {
		if tries++; tries == 1 {
			rw.WriteHeader(http.StatusInternalServerError)
		}
	})
	w.watched("job", alert.Rule{On: everything, URL: r.URL + "/hook"})
	w.end("job", "disk full")
	w.start(Config{})
	w.start(Config{})
	first := r.wait(1)[0]
	w.await(`SELECT attempts = 1 AND token IS NULL FROM chronos.alerts`)
	w.Exec(t, `UPDATE chronos.alerts SET due_at = clock_timestamp()`)
	w.await(`SELECT status = 'delivered' FROM chronos.alerts`)
	got := r.all()
	if len(got) != 2 {
		t.Fatalf("%d deliveries", len(got))
	}
	secret, err := w.store.SigningSecret(t.Context(), me.Tenant)
	if err != nil {
		t.Fatal(err)
	}
	for i, g := range got {
		if err := webhook.Verify(g.Header, []byte(g.body), time.Now(), time.Minute, secret.Secret); err != nil {
			t.Error(err)
		}
		if g.Get(webhook.HeaderID) != first.Get(webhook.HeaderID) || g.Get("Chronos-Alert") != "failed" || g.Get("Chronos-Job") != "job" ||
			g.Get("Chronos-Attempt") != fmt.Sprint(i+1) || g.body != first.body {
			t.Errorf("%v %s", g.Header, g.body)
		}
	}
	a, err := w.store.ListAlerts(t.Context(), me.Tenant, AlertFilter{Job: "job", Limit: 10})
	if err != nil || len(a) != 1 || a[0].Attempts != 2 || a[0].FinishedAt == nil {
		t.Errorf("%+v, %v", a, err)
	}
	if _, _, err := w.store.RedeliverAlert(t.Context(), me, a[0].ID); err != nil {
		t.Fatal(err)
	}
	if again := r.wait(3)[2]; again.Get(webhook.HeaderID) != first.Get(webhook.HeaderID) {
		t.Error("delivered again with another id")
	}
}

// An attempt's lease is taken over when it is over, not before, and what its holder says then changes nothing.
func TestAnAlertsLeaseIsFenced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.watched("job", alert.Rule{On: everything, URL: "http://127.0.0.1:9/"})
	w.end("job", "no")
	claim := func() []*telling {
		got, err := newHerald(w.store, nil, quiet).claim(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first := claim()
	if len(first) != 1 || len(claim()) != 0 {
		t.Fatalf("%d leases, and then another", len(first))
	}
	w.Exec(t, `UPDATE chronos.alerts SET due_at = clock_timestamp() - interval '1 ms'`)
	settle := func(t0 *telling, class webhook.Class) AlertStatus {
		status, err := w.store.settleAlert(t.Context(), t0, webhook.Result{Outcome: webhook.HTTPError, Class: class, StatusCode: 500})
		if err != nil {
			t.Fatal(err)
		}
		return status
	}
	if got := settle(first[0], webhook.ClassSuccess); got != "" {
		t.Errorf("a lease that was over made it %s", got)
	}
	second := claim()
	if len(second) != 1 {
		t.Fatal("it wasn't taken over")
	}
	if got := settle(first[0], webhook.ClassSuccess); got != "" {
		t.Errorf("a lease that was taken over made it %s", got)
	}
	if got := settle(second[0], webhook.ClassRetry); got != AlertPending {
		t.Errorf("after a failure it is %q", got)
	}
	w.Exec(t, `UPDATE chronos.alerts SET due_at = clock_timestamp(), queued_at = clock_timestamp() - interval '72 h'`)
	if got := settle(claim()[0], webhook.ClassRetry); got != AlertFailed {
		t.Errorf("after three days it is %q", got)
	}
	a, err := w.store.ListAlerts(t.Context(), me.Tenant, AlertFilter{Status: AlertFailed, Limit: 10})
	if err != nil || len(a) != 1 || a[0].StatusCode == nil || *a[0].StatusCode != 500 || a[0].Error == "" {
		t.Errorf("%+v, %v", a, err)
	}
}

// One URL that doesn't answer has but a share of a replica's attempts.
func TestOneURLHasItsShare(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.watched("job", alert.Rule{On: everything, URL: "http://127.0.0.1:9/"})
	w.Exec(t, `INSERT INTO chronos.alerts (tenant, job_id, source, kind, cause, url, payload)
		SELECT 'default', 1, 'job', 'failed', n::text, CASE WHEN n > 600 THEN 'http://b/' ELSE 'http://a/' END, '{}' FROM generate_series(1, 601) n`)
	h := newHerald(w.store, nil, quiet)
	got := map[string]int{}
	for range 3 {
		claimed, err := h.claim(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range claimed {
			got[c.url]++
		}
	}
	if got["http://a/"] != alertShare || got["http://b/"] != 1 {
		t.Errorf("leased %v", got)
	}
}

func TestOldAlertsAreDropped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Exec(t, `INSERT INTO chronos.alerts (tenant, job_id, source, kind, cause, url, payload, status, finished_at)
		SELECT 'default', 1, 'job', 'failed', n::text, 'http://a/', '{}', CASE WHEN n = 3 THEN 'pending' ELSE 'delivered' END,
		       CASE WHEN n < 3 THEN clock_timestamp() - n * interval '1 h' END FROM generate_series(1, 3) n`)
	if _, err := dropAlerts(t.Context(), w.Pool, 90*time.Minute); err != nil {
		t.Fatal(err)
	}
	var left string
	w.Scan(t, `SELECT string_agg(cause, ' ' ORDER BY cause) FROM chronos.alerts`, nil, &left)
	if left != "1 3" {
		t.Errorf("left: %s", left)
	}
}

// Replicas that look at once never take the same alert.
func TestRivalsTakeAnAlertOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const n = 300
	w.Exec(t, `INSERT INTO chronos.alerts (tenant, job_id, source, kind, cause, url, payload)
		SELECT 'default', 1, 'job', 'failed', n::text, 'http://h' || n || '/', '{}' FROM generate_series(1, $1) n`, n)
	var (
		mu     sync.Mutex
		times  = map[uuid.UUID]int{}
		racers sync.WaitGroup
	)
	for range 8 {
		racers.Go(func() {
			for {
				claimed, err := newHerald(w.store, nil, quiet).claim(t.Context())
				if err != nil {
					t.Error(err)
				}
				if len(claimed) == 0 {
					return
				}
				mu.Lock()
				for _, c := range claimed {
					times[c.id]++
				}
				mu.Unlock()
			}
		})
	}
	racers.Wait()
	for id, k := range times {
		if k != 1 {
			t.Errorf("%s was taken %d times", id, k)
		}
	}
	if claimed, err := newHerald(w.store, nil, quiet).claim(t.Context()); err != nil || len(times)+len(claimed) < n && len(claimed) < alertsInFlight {
		t.Errorf("%d of %d were taken, %v", len(times), n, err)
	}
}

// An address that isn't allowed is refused when it is dialled, and that ends the alert; so does a receiver that wants no more.
func TestAnAlertThatCannotArriveFailsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newReceiver(t, func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusGone) })
	elsewhere := newReceiver(t, nil)
	moved := newReceiver(t, func(rw http.ResponseWriter, req *http.Request) {
		http.Redirect(rw, req, elsewhere.URL, http.StatusTemporaryRedirect)
	})
	w.watched("job", alert.Rule{On: everything, URL: r.URL}, alert.Rule{On: everything, URL: "http://127.0.0.1:9/"}, alert.Rule{On: everything, URL: moved.URL})
	w.end("job", "no")
	w.Exec(t, `UPDATE chronos.alerts SET url = 'http://[::1]:9/' WHERE url = 'http://127.0.0.1:9/'`) // only 127.0.0.0/8 is allowed
	w.start(Config{})
	w.await(`SELECT count(*) = 2 FROM chronos.alerts WHERE status = 'failed'`)
	w.await(`SELECT attempts = 1 AND status = 'pending' AND token IS NULL FROM chronos.alerts WHERE url = $1`, moved.URL)
	var errs string
	w.Scan(t, `SELECT string_agg(split_part(error, ':', 1), ' ' ORDER BY error) FROM chronos.alerts`, nil, &errs)
	if errs != "gone redirect target_forbidden" || len(elsewhere.all()) != 0 {
		t.Errorf("ended with %s; %d came where it was redirected to", errs, len(elsewhere.all()))
	}
}

// A drain gives an alert that is under way its time, and what it stops is due again at once and doesn't count.
func TestADrainStopsAlerts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	release := make(chan struct{})
	r := newReceiver(t, func(_ http.ResponseWriter, req *http.Request) {
		select {
		case <-release:
		case <-req.Context().Done():
		}
	})
	defer close(release)
	w.watched("job", alert.Rule{On: everything, URL: r.URL})
	w.end("job", "no")
	_, stop := w.start(Config{Drain: time.Millisecond})
	r.wait(1)
	stop()
	w.await(`SELECT status = 'pending' AND attempts = 0 AND token IS NULL AND due_at <= clock_timestamp() FROM chronos.alerts`)
}
