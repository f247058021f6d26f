package system

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/chronos"
	"holdfast/internal/pg/pgtest"
)

// skewVariable moves the wall clock of a binary that buildSkewed has made, by a duration.
const skewVariable = "HOLDFAST_TEST_SKEW"

// skewed is the program with a wall clock that can be put wrong, built when the first test asks for it.
var skewed = sync.OnceValues(func() (string, error) { return buildSkewed(filepath.Dir(binary)) })

// buildSkewed builds the program with a time.Now whose wall clock, though not its monotonic one, is off by what the
// environment says. Nothing outside the process does that: Go reads the clock from the kernel's vDSO, so
// libfaketime, which takes the place of functions of the C library, doesn't reach it, and Linux has time namespaces
// for the monotonic clock alone.
func buildSkewed(dir string) (path string, err error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	// The toolchain may lie in the module cache, where it may not be overlaid: by a link it doesn't.
	root := filepath.Join(dir, "goroot")
	if err := os.Symlink(strings.TrimSpace(string(out)), root); err != nil {
		return "", err
	}
	now, err := os.ReadFile(filepath.Join(root, "src/time/time.go"))
	if err != nil {
		return "", err
	}
	const reading = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	text := strings.Replace(string(now), reading, reading+"\tsec += skew\n", 1)
	if text == string(now) {
		return "", fmt.Errorf("time.Now of %s doesn't begin with %q", out, reading)
	}
	overlay := map[string]string{}
	for name, text := range map[string]string{"time.go": text, "skew.go": `package time

import "syscall"

// skew is how wrong the wall clock is, in seconds.
var skew = func() int64 {
	text, set := syscall.Getenv("` + skewVariable + `")
	if !set {
		return 0
	}
	d, err := ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return int64(d / Second)
}()
`} {
		overlay[filepath.Join(root, "src/time", name)] = filepath.Join(dir, name)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), list, 0o600); err != nil {
		return "", err
	}
	path = filepath.Join(dir, "holdfast-skewed")
	build := exec.Command(filepath.Join(root, "bin/go"), "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", path, "holdfast/cmd/holdfast")
	build.Env = append(os.Environ(), "GOROOT="+root, "GOTOOLCHAIN=local")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return path, nil
}

// A replica whose wall clock is two hours off, ahead or behind: it plans and fires on time by the database's clock, takes back no
// lease that is alive, and keeps its own.
func TestAReplicaWithAWrongClockIsOnTimeAndReclaimsNothingAlive(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{2 * time.Hour, -2 * time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t, chronos.Schema())
			path, err := skewed()
			if err != nil {
				t.Fatal(err)
			}
			held, ticks := newHook(t, true), newHook(t, false)
			right := serveChronos(t, db, "--lease=1s", "--concurrency=1")
			right.awaitLine(leading)
			putJob(t, right, "long", `"schedule": "0 0 1 1 *", "overlap": "allow"`, held)
			trigger := func() delivery {
				right.call(202, "POST", "/v1/jobs/long/trigger", "", nil)
				return held.next(t)
			}
			rights := trigger() // all that this replica can do at once
			wrong := serveProgram(t, path, "chronos", db.URL, []string{skewVariable + "=" + skew.String()}, "--allow-targets=127.0.0.0/8", "--lease=1s")
			_, _, header := wrong.try("GET", "/livez", "")
			if at, err := http.ParseTime(header.Get("Date")); err != nil || time.Since(at.Add(-skew)).Abs() > patience {
				t.Fatalf("its clock says %q, %v: that isn't %v off", header.Get("Date"), err, skew)
			}
			wrongs := trigger()

			onTime := func(n int) {
				t.Helper()
				for range n {
					d := ticks.next(t)
					if late := d.at.Sub(d.scheduledFor); late < 0 || late > patience { // its clock is that of the database
						t.Errorf("the instant %v was delivered %v late", d.scheduledFor, late)
					}
					if off := d.sent.Sub(d.scheduledFor); off.Abs() > patience {
						t.Errorf("the delivery of the instant %v says that it was sent %v after it", d.scheduledFor, off)
					}
				}
			}
			putJob(t, wrong, "tick", `"schedule": {"every": "1s"}, "overlap": "allow"`, ticks)
			onTime(3)

			// Both deliveries outlast their leases several times, under either's reaper.
			await(t, func() bool {
				var past bool
				db.Scan(t, "SELECT coalesce(bool_and(clock_timestamp() > started_at + interval '3.5 s'), true) FROM chronos.job_runs WHERE id = ANY($1::uuid[])",
					[]any{[]string{rights.id, wrongs.id}}, &past)
				return past
			})
			rights.answer <- 200
			wrongs.answer <- 200
			workers := map[string]bool{}
			for _, d := range []delivery{rights, wrongs} {
				var r run
				wrong.await(func() bool { wrong.call(200, "GET", "/v1/runs/"+d.id, "", &r); return r.Status == "succeeded" })
				if len(r.Attempts) != 1 {
					t.Errorf("attempts: %+v", r.Attempts)
				} else {
					workers[r.Attempts[0].Worker] = true
				}
			}
			if len(workers) != 2 || len(held.arrived) != 0 {
				t.Errorf("delivered by %d replicas, and %d more deliveries", len(workers), len(held.arrived))
			}
			if !wrong.counts("holdfast_chronos_leases_reclaimed_total 0") || !right.counts("holdfast_chronos_leases_reclaimed_total 0") {
				t.Error("a lease was reclaimed")
			}

			right.kill() // alone, it plans as well
			wrong.awaitLine(leading)
			onTime(3)
			var first time.Time
			db.Scan(t, "SELECT min(h.scheduled_for) FROM chronos.run_history h JOIN chronos.jobs j ON j.id = h.job_id WHERE j.name = 'tick'", nil, &first)
			everyInstantOnce(t, db, first)
		})
	}
}
