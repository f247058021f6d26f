package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"holdfast/chronos"
	"holdfast/chronos/api"
	"holdfast/chronos/queue"
	"holdfast/internal/httpapi"
	"holdfast/internal/pg/pgtest"
)

// desk is two replicas of Chronos, in this process.
type desk struct {
	*testing.T
	db   *pgtest.DB
	urls string // as --url takes them
	one  string
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{T: t, db: pgtest.New(t, chronos.Schema())}
	if err := queue.EnsurePartitions(t.Context(), d.db.Pool); err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	var urls []string
	for range 2 {
		service, err := chronos.New(t.Context(), chronos.Config{
			Pool: d.db.Pool, SessionURL: d.db.URL, Log: quiet, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		})
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(api.New(service, httpapi.Config{Log: quiet}))
		t.Cleanup(server.Close)
		urls = append(urls, server.URL)
	}
	d.one, d.urls = urls[0], strings.Join(urls, ",")
	return d
}

func (d *desk) call(method, path, body string, into any) {
	d.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, d.one+path, strings.NewReader(body))
	if err != nil {
		d.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		d.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= 300 {
		d.Fatalf("%s %s: %d %s %v", method, path, res.StatusCode, text, err)
	}
	if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			d.Fatal(err)
		}
	}
}

// trigger makes a run of a pull job with that payload.
func (d *desk) trigger(job, payload string) (id string) {
	d.Helper()
	d.call("PUT", "/v1/jobs/"+job, `{"schedule": "0 0 1 1 *", "retry": {"max_attempts": 2, "backoff": "0s"}, "target": {"pull": {"queue": "q", "payload": `+payload+`}}}`, nil)
	var made struct{ ID string }
	d.call("POST", "/v1/jobs/"+job+"/trigger", "", &made)
	return made.ID
}

type workedRun struct {
	Status   string
	Result   commandResult
	Attempts []struct{ Outcome, Error string }
}

func (d *desk) ended(id, status string) workedRun {
	d.Helper()
	for {
		var r workedRun
		d.call("GET", "/v1/runs/"+id, "", &r)
		if r.Status == status {
			return r
		}
		if r.Status == "failed" || r.Status == "succeeded" {
			d.Fatalf("the run has %+v, want %s", r, status)
		}
	}
}

// work runs `chronos work` in this process; stop ends it as SIGTERM does.
func (d *desk) work(args ...string) (stop func() (code int, stdout string)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan int, 1)
	var out, logs bytes.Buffer
	go func() {
		done <- run(ctx, append([]string{"chronos", "work", "--queue=q", "--url=" + d.urls}, args...), output{&out, &logs})
	}()
	stop = sync.OnceValues(func() (int, string) { cancel(); return <-done, out.String() })
	d.Cleanup(func() { stop() })
	return stop
}

func TestWorkRunsACommandForEachRun(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	good, bad, final := d.trigger("good", `{"month":"May"}`), d.trigger("bad", `1`), d.trigger("final", "2")
	loud := d.trigger("loud", "null")
	stop := d.work("--concurrency=2", "--final=65", "--", "sh", "-c", `
		echo "$CHRONOS_JOB $CHRONOS_ATTEMPT"
		case $CHRONOS_JOB in
		good) cat ;;
		bad) echo trouble >&2; exit 3 ;;
		final) exit 65 ;;
		loud) test -z "$(cat)" && seq 100000 ;;
		esac`)
	if r := d.ended(good, "succeeded"); r.Result.Output != "good 1\n"+`{"month":"May"}` {
		t.Errorf("it became %+v", r)
	}
	if r := d.ended(bad, "failed"); len(r.Attempts) != 2 || r.Attempts[1].Error != "exit status 3\nbad 2\ntrouble\n" {
		t.Errorf("a command that fails became %+v", r)
	}
	if r := d.ended(final, "failed"); len(r.Attempts) != 1 {
		t.Errorf("a final exit code became %+v", r)
	}
	if r := d.ended(loud, "succeeded"); !strings.HasPrefix(r.Result.Output, "… ") || !strings.HasSuffix(r.Result.Output, "99999\n100000\n") || len(r.Result.Output) > 4096 {
		t.Errorf("much output is kept as %q", r.Result.Output)
	}
	if code, stdout := stop(); code != 0 || !strings.Contains(stdout, "[good] good 1\n") || !strings.Contains(stdout, "[bad] trouble\n") {
		t.Errorf("exit code %d: %.200s", code, stdout)
	}
}

func TestWorkRunsImportedCrontabs(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	id := d.trigger("line", `{"command": "echo $GREETING; read line; echo got $line", "stdin": "a line\n", "env": {"GREETING": "hello"}}`)
	other := d.trigger("other", `{"command": "true", "stdin": "", "user": "nobody-at-all", "env": {}}`)
	odd := d.trigger("odd", `{"month": "May"}`)
	d.work("--crontab")
	if r := d.ended(id, "succeeded"); r.Result.Output != "hello\ngot a line\n" {
		t.Errorf("it became %+v", r)
	}
	if r := d.ended(other, "failed"); len(r.Attempts) != 1 || !strings.Contains(r.Attempts[0].Error, "for the user nobody-at-all") {
		t.Errorf("another user's became %+v", r)
	}
	if r := d.ended(odd, "failed"); len(r.Attempts) != 1 || !strings.Contains(r.Attempts[0].Error, "no command") {
		t.Errorf("what isn't a crontab's became %+v", r)
	}
}

// A run that is cancelled takes the whole process group of its command with it, also what
// doesn't heed SIGTERM.
func TestWorkEndsTheProcessGroupOfALostRun(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	id := d.trigger("long", "1")
	file := filepath.Join(t.TempDir(), "pids")
	stop := d.work("--lease=10s", "--", "sh", "-c", `trap "" TERM; sleep 1000 & echo $$ $! > `+file+`.new; mv `+file+`.new `+file+`; wait; wait`)
	var pids []string
	for len(pids) == 0 {
		content, _ := os.ReadFile(file)
		pids = strings.Fields(string(content))
	}
	d.call("POST", "/v1/runs/"+id+"/cancel", "", nil)
	for _, text := range pids {
		pid, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		for !gone(pid) {
		}
	}
	d.ended(id, "cancelled")
	if code, _ := stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// gone reports whether a process has ended, though nobody may have asked for its exit code yet.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func TestWorkGivesBackWhatOutlastsTheDrain(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	id := d.trigger("long", "1")
	file := filepath.Join(t.TempDir(), "began")
	stop := d.work("--drain=0s", "--", "sh", "-c", "touch "+file+"; sleep 1000")
	for err := os.ErrNotExist; err != nil; _, err = os.Stat(file) {
	}
	if code, _ := stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if r := d.ended(id, "pending"); len(r.Attempts) != 1 || r.Attempts[0].Outcome != "released" {
		t.Errorf("it became %+v", r)
	}
}

func TestWorkRefused(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"--crontab":     {"--queue=q"},
		"after --":      {"--queue=q", "--crontab", "--", "true"},
		"--queue":       {"--", "true"},
		"--concurrency": {"--queue=q", "--concurrency=0", "--", "true"},
		"--lease":       {"--queue=q", "--lease=1s", "--", "true"},
		"not-there":     {"--queue=q", "--", "not-there"},
		"--url":         {"--queue=q", "--url=shop", "--", "true"},
	} {
		if code, _, stderr := holdfast(t, append([]string{"chronos", "work"}, args...)...); code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit code %d: %s", args, code, stderr)
		}
	}
}
