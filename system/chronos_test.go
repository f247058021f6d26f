package system

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"holdfast/chronos"
	"holdfast/internal/pg/pgtest"
)

func unmarshal(t *testing.T, data []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		t.Errorf("%v in %s", err, data)
	}
}

// hook is where deliveries come in.
type hook struct {
	*httptest.Server
	arrived chan delivery
}

type delivery struct {
	id, attempt, token string
	scheduledFor, sent time.Time // as its headers say
	at                 time.Time // when it came
	answer             chan int  // the status to answer with; without a waiting test, 200 at once
}

// newHook answers every delivery with 200; with hold, only when the test says so.
func newHook(t *testing.T, hold bool) *hook {
	t.Helper()
	h := &hook{arrived: make(chan delivery, 10_000)}
	var over sync.WaitGroup
	end := make(chan struct{})
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		over.Add(1)
		defer over.Done()
		_, _ = io.Copy(io.Discard, r.Body)
		at, err := time.Parse(time.RFC3339Nano, r.Header.Get("chronos-scheduled-for"))
		if err != nil {
			t.Errorf("chronos-scheduled-for: %v", err)
		}
		sent, err := strconv.ParseInt(r.Header.Get("webhook-timestamp"), 10, 64)
		if err != nil {
			t.Errorf("webhook-timestamp: %v", err)
		}
		d := delivery{
			id: r.Header.Get("webhook-id"), attempt: r.Header.Get("chronos-attempt"), token: r.Header.Get("chronos-lease-token"),
			scheduledFor: at, sent: time.Unix(sent, 0), at: time.Now(), answer: make(chan int, 1),
		}
		h.arrived <- d
		if hold {
			select {
			case status := <-d.answer:
				w.WriteHeader(status)
			case <-r.Context().Done():
			case <-end:
			}
		}
	}))
	t.Cleanup(func() { close(end); h.Close(); over.Wait() })
	return h
}

func (h *hook) next(t *testing.T) delivery {
	t.Helper()
	select {
	case d := <-h.arrived:
		return d
	case <-time.After(patience):
		t.Fatal("no delivery comes")
		return delivery{}
	}
}

type run struct {
	ID           string    `json:"id"`
	Status       string    `json:"status"`
	Reason       string    `json:"reason"`
	ScheduledFor time.Time `json:"scheduled_for"`
	Attempts     []struct {
		Number     int    `json:"number"`
		Worker     string `json:"worker"`
		Outcome    string `json:"outcome"`
		StatusCode int    `json:"status_code"`
	} `json:"attempts"`
}

func serveChronos(t *testing.T, db *pgtest.DB, args ...string) service {
	t.Helper()
	return serve(t, "chronos", db.URL, append([]string{"--allow-targets=127.0.0.0/8"}, args...)...)
}

func putJob(t *testing.T, s service, name, rest string, h *hook) {
	t.Helper()
	s.call(201, "PUT", "/v1/jobs/"+name, fmt.Sprintf(`{%s, "target": {"webhook": {"url": %q, "timeout": "60s"}}}`, rest, h.URL), nil)
}

// leading is what a replica says when it has won.
const leading = `msg=leading .*what=planner`

// ticking is two replicas, of which one leads, and a job that calls h each second.
func ticking(t *testing.T, db *pgtest.DB) (leader, other service, h *hook) {
	t.Helper()
	leader = serveChronos(t, db)
	leader.awaitLine(leading)
	other = serveChronos(t, db)
	h = newHook(t, false)
	putJob(t, other, "tick", `"schedule": {"every": "1s"}, "overlap": "allow"`, h)
	return leader, other, h
}

// A delivery a second, each instant once, while the leader is killed and started again: no instant
// is lost and none is planned twice.
func TestEverySecondWhileTheLeaderIsKilled(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, chronos.Schema())
	leader, other, h := ticking(t, db)

	seen := map[time.Time]int{}
	var first, last time.Time
	collect := func(n int) {
		for range n {
			d := h.next(t)
			seen[d.scheduledFor]++
			if first.IsZero() || d.scheduledFor.Before(first) {
				first = d.scheduledFor
			}
			if d.scheduledFor.After(last) {
				last = d.scheduledFor
			}
		}
	}
	collect(3)
	leader.kill()
	other.awaitLine(leading)
	collect(3)
	leader = serveChronos(t, db)
	collect(3)
	other.kill() // and the other way round
	leader.awaitLine(leading)
	collect(3)

	count := 0
	for at := first; !at.After(last); at = at.Add(time.Second) {
		count++
		// A replica that was killed between the delivery and its record delivers again: at least
		// once, and the receiver sees the same id.
		if seen[at] == 0 {
			t.Errorf("instant %v wasn't delivered", at)
		}
	}
	if len(seen) != count {
		t.Errorf("%d instants were delivered, want the %d from %v to %v", len(seen), count, first, last)
	}
	var planned, distinct int
	db.Scan(t, `SELECT count(*), count(DISTINCT scheduled_for) FROM
		(SELECT scheduled_for FROM chronos.job_runs UNION ALL SELECT scheduled_for FROM chronos.run_history) r`, nil, &planned, &distinct)
	if planned != distinct {
		t.Errorf("%d runs for %d instants", planned, distinct)
	}
}

// The worker is killed with a delivery in flight: after the lease it is delivered again, with
// the same id and the next number.
func TestARunWhoseWorkerWasKilledIsDeliveredAgain(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, chronos.Schema())
	h := newHook(t, true)
	one := serveChronos(t, db, "--lease=2s")
	putJob(t, one, "slow", `"schedule": "0 0 1 1 *"`, h)
	one.call(202, "POST", "/v1/jobs/slow/trigger", "", nil)
	first := h.next(t)
	two := serveChronos(t, db, "--lease=2s")
	one.kill()
	second := h.next(t)
	if second.id != first.id || first.attempt != "1" || second.attempt != "2" {
		t.Errorf("delivered as %s attempt %s, then %s attempt %s", first.id, first.attempt, second.id, second.attempt)
	}
	second.answer <- 200
	var r run
	two.await(func() bool { two.call(200, "GET", "/v1/runs/"+first.id, "", &r); return r.Status == "succeeded" })
	if len(r.Attempts) != 2 || r.Attempts[0].Outcome != "lease_expired" || r.Attempts[1].Outcome != "succeeded" {
		t.Errorf("attempts: %+v", r.Attempts)
	}
}

// A replica that stands still past the lease of a delivery finds the run taken away when it goes on: the answer that its
// receiver gave meanwhile is refused, and the run has the one result of the replica after it.
func TestAFrozenReplicasDeliveryIsMadeByAnother(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, chronos.Schema())
	h := newHook(t, true)
	one := serveChronos(t, db, "--lease=2s")
	putJob(t, one, "slow", `"schedule": "0 0 1 1 *", "retry": {"backoff": "0s"}`, h)
	one.call(202, "POST", "/v1/jobs/slow/trigger", "", nil)
	first := h.next(t)
	one.signal(syscall.SIGSTOP)
	two := serveChronos(t, db, "--lease=2s")
	second := h.next(t)
	if second.id != first.id || second.token == first.token {
		t.Fatalf("run %s came with token %s, then run %s with %s", first.id, first.token, second.id, second.token)
	}
	first.answer <- 200 // it waits for the replica to go on
	one.signal(syscall.SIGCONT)
	one.awaitLine(`msg="what came of a delivery wasn't stored: its lease is over|msg="a delivery was stopped: its lease`)
	one.await(func() bool { return one.counts(`holdfast_chronos_deliveries_total{outcome="lease_lost"} 1`) })
	// Whoever holds the old token is told: here it is the receiver, which may report as well.
	refusesEnds(t, first.id, first.token, one, two)
	second.answer <- 204
	var r run
	one.await(func() bool { one.call(200, "GET", "/v1/runs/"+first.id, "", &r); return r.Status == "succeeded" })
	refusesEnds(t, first.id, first.token, one, two)
	one.call(200, "GET", "/v1/runs/"+first.id, "", &r)
	if len(r.Attempts) != 2 || r.Attempts[0].Outcome != "lease_expired" || r.Attempts[1].Outcome != "succeeded" || r.Attempts[1].StatusCode != 204 {
		t.Errorf("attempts: %+v", r.Attempts)
	}
	hasOneResult(t, db, first.id)
	if len(h.arrived) != 0 {
		t.Errorf("%d more deliveries", len(h.arrived))
	}
}

// refusesEnds fails unless a lease that is over ends the run in no way, whichever replica is asked.
func refusesEnds(t *testing.T, id, token string, replicas ...service) {
	t.Helper()
	for _, s := range replicas {
		for end, body := range map[string]string{"/complete": `{"lease_token": %q}`, "/fail": `{"lease_token": %q, "error": "no"}`} {
			if status, answer, _ := s.try("POST", "/v1/runs/"+id+end, fmt.Sprintf(body, token)); status != 409 || !strings.Contains(string(answer), `"lease_lost"`) {
				t.Errorf("%s with the old token: status %d: %s", end, status, answer)
			}
		}
	}
}

// hasOneResult fails unless the run has ended, once.
func hasOneResult(t *testing.T, db *pgtest.DB, id string) {
	t.Helper()
	var results, going int
	db.Scan(t, `SELECT (SELECT count(*) FROM chronos.run_history WHERE id = $1), (SELECT count(*) FROM chronos.job_runs WHERE id = $1)`, []any{id}, &results, &going)
	if results != 1 || going != 0 {
		t.Errorf("run %s has %d results, and %d that are to come", id, results, going)
	}
}

// counts reports whether the replica's metrics have a line.
func (s service) counts(line string) bool {
	_, answer, _ := s.try("GET", "/metrics", "")
	return strings.Contains("\n"+string(answer), "\n"+line+"\n")
}

// A worker that lives and renews for three lease lengths is never reclaimed.
func TestARunWhoseWorkerRenewsIsLeftAlone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, chronos.Schema())
	h := newHook(t, true)
	one, two := serveChronos(t, db, "--lease=1s"), serveChronos(t, db, "--lease=1s")
	putJob(t, one, "long", `"schedule": "0 0 1 1 *"`, h)
	var triggered run
	two.call(202, "POST", "/v1/jobs/long/trigger", "", &triggered)
	d := h.next(t)
	one.await(func() bool {
		var past bool
		db.Scan(t, "SELECT clock_timestamp() > started_at + interval '3.5 s' FROM chronos.job_runs WHERE id = $1", []any{d.id}, &past)
		return past
	})
	d.answer <- 200
	var r run
	one.await(func() bool { one.call(200, "GET", "/v1/runs/"+d.id, "", &r); return r.Status == "succeeded" })
	if len(r.Attempts) != 1 || len(h.arrived) != 0 {
		t.Errorf("attempts %+v, and %d more deliveries", r.Attempts, len(h.arrived))
	}
}

// SIGTERM: a delivery in flight ends and is recorded; one that doesn't end in time is given
// back without having counted, and another replica delivers it.
func TestDrainEndsOrGivesBackDeliveries(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		drain string
		ends  bool
	}{"ends": {"30s", true}, "given back": {"1s", false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t, chronos.Schema())
			h := newHook(t, true)
			one := serveChronos(t, db, "--drain="+c.drain)
			putJob(t, one, "slow", `"schedule": "0 0 1 1 *"`, h)
			one.call(202, "POST", "/v1/jobs/slow/trigger", "", nil)
			first := h.next(t)
			two := serveChronos(t, db)
			one.signal(syscall.SIGTERM)
			one.await(func() bool { status, _, _ := one.try("GET", "/livez", ""); return status == 0 })
			if c.ends {
				first.answer <- 200
			}
			if code := one.wait(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			if !c.ends {
				second := h.next(t)
				if second.id != first.id {
					t.Errorf("run %s came, want %s", second.id, first.id)
				}
				second.answer <- 200
			}
			var r run
			two.await(func() bool { two.call(200, "GET", "/v1/runs/"+first.id, "", &r); return r.Status == "succeeded" })
			if c.ends && len(r.Attempts) != 1 || !c.ends && (len(r.Attempts) != 2 || r.Attempts[0].Outcome != "released") {
				t.Errorf("attempts: %+v", r.Attempts)
			}
		})
	}
}
