package chronos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"holdfast/chronos/queue"
)

func bareTargets(total int) (*targets, *atomic.Int64) {
	rings := new(atomic.Int64)
	return newTargets(total, &queue.Front{}, func() { rings.Add(1) }, newMetrics(nil).breakers, quiet), rings
}

// take is what a claim would be given of one target, one run after another, up to the bound.
func (t *targets) take(id int64, bound int) (land []func(error)) {
	for range bound {
		var c queue.Claim
		t.demand(&c)
		if c.Crowded(id, 0, 0) {
			break
		}
		l, ok := t.start(id)
		if !ok {
			panic("refused")
		}
		land = append(land, l)
	}
	return land
}

func TestNoNumberOfTargetsTakesEverything(t *testing.T) {
	t.Parallel()
	to, _ := bareTargets(1024)
	var got []int
	for id := range int64(5) {
		got = append(got, len(to.take(id+1, 1024)))
	}
	if diff := cmp.Diff([]int{512, 256, 128, 64, 32}, got); diff != "" {
		t.Error(diff)
	}
	if one, _ := bareTargets(1); len(one.take(1, 3)) != 1 {
		t.Error("where one delivery may be in flight, none is")
	}
}

// A target that had all it may have is opened again when a quarter of that is free, and not before: claims for one run each would
// be all that a busy replica does.
func TestAFullTargetIsOpenedForManyAtOnce(t *testing.T) {
	t.Parallel()
	to, rings := bareTargets(64)
	land := to.take(1, 64)
	if !to.crowded([]int64{1}) {
		t.Fatal("32 of 64 aren't a crowd")
	}
	var c queue.Claim
	for i := 0; ; i++ {
		if to.demand(&c); len(c.Shut) == 0 {
			if i != 5 { // 27 in flight, and 37 free
				t.Errorf("opened after %d have landed", i)
			}
			break
		}
		land[i](nil)
		c = queue.Claim{}
	}
	if rings.Load() != 1 {
		t.Errorf("%d rings, want 1", rings.Load())
	}
}

// One target shut for want of room is opened when others have left, though none of its own has landed.
func TestAFullTargetIsOpenedWhenOthersHaveGone(t *testing.T) {
	t.Parallel()
	to, _ := bareTargets(8)
	others := to.take(1, 8)
	to.take(2, 8)
	if !to.crowded([]int64{2}) {
		t.Fatal("2 of 8 beside 4 others aren't a crowd")
	}
	for _, land := range others {
		land(nil)
	}
	var c queue.Claim
	if to.demand(&c); len(c.Shut) != 0 {
		t.Errorf("still shut with 2 of 8 in flight: %v", c.Shut)
	}
}

func TestBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		to, rings := bareTargets(64)
		isShut := func() bool {
			var c queue.Claim
			to.demand(&c)
			return len(c.Shut) > 0
		}
		fail := func(n int) {
			for _, land := range to.take(1, n) {
				land(targetFailed("http://down.example"))
			}
		}
		hung := to.take(1, 1)[0]
		fail(breakerFailures - 1)
		to.take(1, 1)[0](nil)
		fail(breakerFailures - 1)
		to.take(1, 1)[0](errNotShown)
		if isShut() {
			t.Fatal("shut although it served in between")
		}
		fail(1)
		if !isShut() || gauge(to.open) != 1 {
			t.Fatalf("not shut after %d failures in a row, gauge %v", breakerFailures, gauge(to.open))
		}
		hung(nil) // from before: says nothing about now
		time.Sleep(breakerPause)
		if !isShut() {
			t.Fatal("opened by a delivery from before, or too early")
		}
		for round := range 2 {
			rings.Store(0)
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			if isShut() || rings.Load() != 1 {
				t.Fatalf("round %d: no delivery may try it, %d rings", round, rings.Load())
			}
			probe, ok := to.start(1)
			if !ok || !isShut() {
				t.Fatalf("round %d: start says %v, and more may try it: %v", round, ok, !isShut())
			}
			if _, ok := to.start(1); ok {
				t.Fatalf("round %d: a second one tries it", round)
			}
			if round == 0 {
				probe(targetFailed("http://down.example"))
				if !isShut() {
					t.Fatal("opened although the one that tried failed")
				}
				time.Sleep(breakerPause)
				continue
			}
			// One that ends without an answer makes room for the next to try.
			probe(errNotShown)
			if isShut() || gauge(to.open) != 1 {
				t.Fatal("nobody may try it after one that got no answer")
			}
			probe, _ = to.start(1)
			probe(nil)
		}
		if isShut() || gauge(to.open) != 0 {
			t.Errorf("shut although it serves again, gauge %v", gauge(to.open))
		}
		if got := len(to.take(1, 3)); got != 3 {
			t.Errorf("%d may go on, want all 3", got)
		}
	})
}

func TestTargetsOfWhichNothingIsKnownAreForgotten(t *testing.T) {
	t.Parallel()
	to, _ := bareTargets(8)
	for id := range int64(100) {
		to.take(id+1, 1)[0](nil)
	}
	if len(to.of) != 0 {
		t.Errorf("%d targets are remembered that served and have nothing in flight", len(to.of))
	}
}

func gauge(g prometheus.Gauge) float64 {
	all := prometheus.NewRegistry()
	all.MustRegister(g)
	got, err := all.Gather()
	if err != nil {
		panic(err)
	}
	return got[0].GetMetric()[0].GetGauge().GetValue()
}

// However many jobs go to however many receivers that don't answer, another's deliveries go on.
func TestHungTargetsLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 3 {
		hang, _ := slow(t)
		for n := range 8 {
			name := fmt.Sprintf("hung-%d-%d", i, n)
			spec := to(hang.URL, time.Hour)
			spec.Target.Webhook.Timeout = 15 * time.Minute
			w.put(name, spec)
			w.trigger(name)
		}
	}
	r := newReceiver(t, nil)
	w.put("good", to(r.URL, time.Hour))
	w.start(Config{Concurrency: 16, Drain: time.Millisecond})
	// Three may have 8, 4 and 2 of the 16, and the rest waits untouched.
	w.await(`SELECT count(*) = 14 FROM chronos.job_runs WHERE status = 'leased'`)
	for n := range 5 {
		w.trigger("good")
		r.wait(n + 1)
	}
	w.await(`SELECT count(*) = 5 FROM chronos.run_history WHERE status = 'succeeded'`)
	var waiting, touched int
	w.Scan(t, `SELECT count(*) FILTER (WHERE status = 'pending'), count(*) FILTER (WHERE attempt > 1) FROM chronos.job_runs`, nil, &waiting, &touched)
	if waiting != 10 || touched != 0 {
		t.Errorf("%d runs wait for the hung targets, want 10; %d were tried twice", waiting, touched)
	}
}

// A target whose deliveries all fail is left alone, its runs wait without losing attempts, and they are delivered when it serves again.
func TestADeadTargetIsLeftAloneUntilItServes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	s, _ := w.start(Config{})
	trigger := func(name string) Run {
		spec := to("http://"+address+"/"+name, time.Hour)
		spec.Retry.MaxAttempts = 1
		w.put(name, spec)
		return w.trigger(name)
	}
	for n := range breakerFailures {
		trigger(fmt.Sprint("failed-", n))
	}
	w.await(`SELECT count(*) = $1 FROM chronos.run_history WHERE status = 'failed' AND reason = 'connection_refused'`, breakerFailures)
	for gauge(s.store.metrics.breakers) != 1 {
		w.await(`SELECT true`)
	}
	var late []Run
	for n := range 5 {
		late = append(late, trigger(fmt.Sprint("late-", n)))
	}
	r := newReceiver(t, nil)
	w.put("other", to(r.URL, time.Hour))
	w.trigger("other")
	r.wait(1)
	var touched int
	w.Scan(t, `SELECT count(*) FROM chronos.job_runs WHERE attempt > 0 AND target = (SELECT target FROM chronos.jobs WHERE name = 'late-0')`, nil, &touched)
	if touched != 0 {
		t.Errorf("%d runs were tried although the target is left alone", touched)
	}

	if listener, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	back := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	back.Listener = listener
	back.Start()
	t.Cleanup(back.Close)
	for _, run := range late {
		w.await(`SELECT EXISTS (SELECT 1 FROM chronos.run_history WHERE id = $1 AND status = 'succeeded' AND attempt = 1)`, run.ID)
	}
	if g := gauge(s.store.metrics.breakers); g != 0 {
		t.Errorf("the gauge says %v open breakers", g)
	}
}

// A target that was shut after its run was asked for gets nothing, and the run goes back at no cost.
func TestNothingIsSentToATargetThatWasJustShut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newReceiver(t, nil)
	job := w.put("job", to(r.URL, time.Hour))
	run := w.trigger("job")
	s := w.service(Config{})
	d := s.dispatcher()
	id := job.Spec.Target.id()
	for range breakerFailures {
		d.to.take(id, 1)[0](targetFailed(r.URL))
	}
	delete(d.to.shut, id) // as it was when the claim asked
	<-d.slots
	if claimed, err := d.claim(t.Context(), 1); err != nil || len(claimed.Runs) != 1 {
		t.Fatalf("claimed %+v, %v", claimed, err)
	}
	d.deliveries.Wait()
	if n := len(r.all()); n != 0 {
		t.Errorf("%d deliveries", n)
	}
	run, err := w.store.GetRun(t.Context(), "default", run.ID)
	if err != nil || run.Status != queue.Pending || len(run.Attempts) != 1 || run.Attempts[0].Outcome != queue.OutcomeReleased {
		t.Errorf("the run is %+v, %v", run, err)
	}
}

// A job that is sent to another receiver doesn't wait for the one that it went to.
func TestAJobThatIsSentElsewhereIsntHeldByItsOldTarget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hang, _ := slow(t)
	spec := to(hang.URL, time.Hour)
	spec.Target.Webhook.Timeout = 15 * time.Minute
	for n := range 3 {
		w.put(fmt.Sprint("job-", n), spec)
		w.trigger(fmt.Sprint("job-", n))
	}
	w.start(Config{Concurrency: 4, Drain: time.Millisecond})
	w.await(`SELECT count(*) = 2 FROM chronos.job_runs WHERE status = 'leased'`)
	var name string
	w.Scan(t, `SELECT j.name FROM chronos.job_runs r JOIN chronos.jobs j ON j.id = r.job_id WHERE r.status = 'pending'`, nil, &name)
	r := newReceiver(t, nil)
	w.put(name, to(r.URL, time.Hour))
	if got := r.wait(1)[0].Get("Chronos-Job"); got != name {
		t.Errorf("delivered %s, want %s", got, name)
	}
}

// The four receivers that misbehave, at once, and one that doesn't.
func TestBadReceiversAtOnceKeepNobodyWaiting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	trickle := newReceiver(t, func(rw http.ResponseWriter, req *http.Request) {
		_, _ = rw.Write([]byte("a"))
		_ = http.NewResponseController(rw).Flush()
		<-req.Context().Done() // the next byte would come in a minute
	})
	gigabyte := newReceiver(t, func(rw http.ResponseWriter, req *http.Request) {
		for chunk := bytes.Repeat([]byte("x"), 1<<20); req.Context().Err() == nil; {
			if _, err := rw.Write(chunk); err != nil {
				return
			}
		}
	})
	metadata := newReceiver(t, func(rw http.ResponseWriter, req *http.Request) {
		http.Redirect(rw, req, "http://169.254.169.254/latest/meta-data", http.StatusFound)
	})
	forbidden := to("http://127.0.0.1:9", time.Hour)
	bad := map[string]Spec{"trickle": to(trickle.URL, time.Hour), "gigabyte": to(gigabyte.URL, time.Hour), "metadata": to(metadata.URL, time.Hour), "loopback": forbidden}
	for name, spec := range bad {
		spec.Target.Webhook.Timeout = time.Second
		spec.Retry.MaxAttempts = 1
		spec.Overlap, spec.MaxConcurrent = OverlapAllow, 100
		w.put(name, spec)
	}
	// As it stands after the allow-list was narrowed: ::1 isn't on it.
	w.Exec(t, `UPDATE chronos.jobs SET spec = replace(spec::text, '127.0.0.1:9', '[::1]:9')::json WHERE name = 'loopback'`)
	r := newReceiver(t, nil)
	w.put("good", to(r.URL, time.Hour))
	w.start(Config{Concurrency: 32})
	for n := range 20 {
		for name := range bad {
			w.trigger(name)
		}
		w.trigger("good")
		r.wait(n + 1)
	}
	w.await(`SELECT count(*) = 100 FROM chronos.run_history`)
	rows, err := w.Pool.Query(t.Context(), `SELECT DISTINCT j.name, h.status, coalesce(h.reason, ''), length(h.outcome->>'response') FROM chronos.run_history h JOIN chronos.jobs j ON j.id = h.job_id`)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for rows.Next() {
		var (
			name, status, reason string
			kept                 *int
		)
		if err := rows.Scan(&name, &status, &reason, &kept); err != nil {
			t.Fatal(err)
		}
		text, _ := json.Marshal(kept)
		got[name] += fmt.Sprint(status, " ", reason, " ", string(text), ";")
	}
	if diff := cmp.Diff(map[string]string{
		"good": "succeeded  null;", "trickle": "succeeded  1;", "gigabyte": "succeeded  4096;", "metadata": "failed redirect null;", "loopback": "failed target_forbidden null;",
	}, got); diff != "" {
		t.Error(diff)
	}
}

// What was passed over while a target was shut is taken at once when it is opened.
func TestRunsThatWerePassedOverAreTakenWhenTheirTargetIsOpened(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newReceiver(t, nil)
	job := w.put("job", to(r.URL, time.Hour))
	run := w.trigger("job")
	w.Exec(t, `UPDATE chronos.job_runs SET due_at = due_at - interval '1 minute' WHERE id = $1`, run.ID)
	d := w.service(Config{}).dispatcher()
	id := job.Spec.Target.id()
	land := d.to.take(id, cap(d.slots))
	if !d.to.crowded([]int64{id}) {
		t.Fatal("half of all aren't a crowd")
	}
	if _, expected, err := d.untilDue(t.Context()); err != nil || expected {
		t.Fatalf("something is due of what isn't shut: %v, %v", expected, err)
	}
	for _, l := range land {
		l(nil)
	}
	<-d.slots
	if claimed, err := d.claim(t.Context(), 1); err != nil || len(claimed.Runs) != 1 {
		t.Errorf("claimed %+v, %v", claimed.Runs, err)
	}
	d.deliveries.Wait()
}
