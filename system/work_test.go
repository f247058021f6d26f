package system

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"holdfast/chronos"
	"holdfast/internal/pg/pgtest"
)

// A worker that stands still past its lease finds its run taken away when it goes on: what its command
// came to is refused, and the run has the one result of the worker after it.
func TestAFrozenWorkersRunIsWorkedByAnother(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, chronos.Schema())
	one, two := serveChronos(t, db), serveChronos(t, db)
	one.call(201, "PUT", "/v1/jobs/j", `{"schedule": "0 0 1 1 *", "retry": {"backoff": "0s"}, "target": {"pull": {"queue": "q"}}}`, nil)
	dir := t.TempDir()
	work := func(name string) *process {
		return start(t, name, nil, "chronos", "work", "--queue=q", "--lease=10s", "--name="+name, "--url="+one.url+","+two.url,
			"--", "sh", "-c", fmt.Sprintf("echo began; while ! test -e %s/%s; do sleep 0.1; done; echo by %s", dir, name, name))
	}
	first := work("first")
	var triggered run
	two.call(202, "POST", "/v1/jobs/j/trigger", "", &triggered)
	first.awaitLine(`\[j\] began`)
	first.signal(syscall.SIGSTOP)
	var token string
	db.Scan(t, "SELECT lease_token::text FROM chronos.job_runs WHERE id = $1", []any{triggered.ID}, &token)
	if err := os.WriteFile(filepath.Join(dir, "first"), nil, 0o600); err != nil { // its command ends meanwhile
		t.Fatal(err)
	}
	second := work("second")
	second.awaitLine(`\[j\] began`)
	first.signal(syscall.SIGCONT)
	first.awaitLine(`taken away|can't report the end of a run|lease is lost`)
	refusesEnds(t, triggered.ID, token, one, two)
	if err := os.WriteFile(filepath.Join(dir, "second"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var r struct {
		run
		Result struct{ Output string }
	}
	two.await(func() bool { two.call(200, "GET", "/v1/runs/"+triggered.ID, "", &r); return r.Status == "succeeded" })
	if len(r.Attempts) != 2 || r.Attempts[0].Outcome != "lease_expired" || r.Result.Output != "began\nby second\n" {
		t.Errorf("it became %+v", r)
	}
	refusesEnds(t, triggered.ID, token, one, two)
	hasOneResult(t, db, triggered.ID)
	for _, p := range []*process{first, second} {
		p.signal(syscall.SIGTERM)
		if code := p.wait(); code != 0 {
			t.Errorf("%s: exit code %d", p.name, code)
		}
	}
}
