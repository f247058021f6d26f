// Package system tests real processes of the real binary: started, killed, stopped, cut off and
// started again, with the invariants checked afterwards.
package system

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"holdfast/internal/pg/pgtest"
)

// binary is the program under test, built once.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "holdfast-system-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "holdfast")
	build := exec.Command("go", "build", "-race", "-o", binary, "holdfast/cmd/holdfast")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		os.Exit(1)
	}
	pgtest.Main(cleaning{m, dir})
}

// cleaning runs the tests, then removes the binary, before pgtest ends the process.
type cleaning struct {
	m   *testing.M
	dir string
}

func (c cleaning) Run() int {
	defer func() { _ = os.RemoveAll(c.dir) }()
	return c.m.Run()
}

// patience bounds every wait of a test for something that must happen.
const patience = 60 * time.Second

// process is a running holdfast.
type process struct {
	t      *testing.T
	name   string
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // once exited

	mu    sync.Mutex
	lines []string
	more  chan struct{} // closed and replaced with every line
}

// start runs the binary with the environment that env adds, and kills it at the test's end.
func start(t *testing.T, name string, env []string, args ...string) *process {
	t.Helper()
	return startProgram(t, binary, name, env, args...)
}

func startProgram(t *testing.T, path, name string, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, cmd: exec.Command(path, args...), exited: make(chan struct{}), more: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = in, in
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	var read sync.WaitGroup
	read.Go(func() { p.read(out) })
	go func() {
		defer close(p.exited)
		p.err = p.cmd.Wait()
		read.Wait()
		_ = out.Close()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		_ = p.cmd.Process.Kill()
		<-p.exited
		if t.Failed() {
			t.Logf("%s said:\n%s", name, strings.Join(p.said(), "\n"))
		}
	})
	return p
}

func (p *process) read(from io.Reader) {
	scanner := bufio.NewScanner(from)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		p.mu.Lock()
		p.lines = append(p.lines, scanner.Text())
		close(p.more)
		p.more = make(chan struct{})
		p.mu.Unlock()
	}
}

func (p *process) said() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.lines...)
}

// awaitLine waits until the process has said something that matches, and returns the match's groups.
func (p *process) awaitLine(pattern string) []string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	late := time.After(patience)
	for {
		p.mu.Lock()
		lines, more := p.lines, p.more
		p.mu.Unlock()
		for _, line := range lines {
			if m := re.FindStringSubmatch(line); m != nil {
				return m
			}
		}
		select {
		case <-more:
		case <-p.exited:
			p.t.Fatalf("%s ended (%v) before it said %q:\n%s", p.name, p.err, pattern, strings.Join(p.said(), "\n"))
		case <-late:
			p.t.Fatalf("%s didn't say %q in %v:\n%s", p.name, pattern, patience, strings.Join(p.said(), "\n"))
		}
	}
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%s: %v", p.name, err)
	}
}

// wait returns the exit code.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		p.t.Fatalf("%s doesn't end:\n%s", p.name, strings.Join(p.said(), "\n"))
	}
	return p.cmd.ProcessState.ExitCode()
}

// kill ends the process as a crash does.
func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	<-p.exited
}

// service is one replica that serves.
type service struct {
	*process
	url string
}

// serve starts a replica on a port of its own and waits until it is ready.
func serve(t *testing.T, kind, databaseURL string, args ...string) service {
	t.Helper()
	return serveProgram(t, binary, kind, databaseURL, nil, args...)
}

func serveProgram(t *testing.T, path, kind, databaseURL string, env []string, args ...string) service {
	t.Helper()
	args = append([]string{kind, "serve", "--auth=off", "--listen=127.0.0.1:0"}, args...)
	s := service{process: startProgram(t, path, kind, append(env, "DATABASE_URL="+databaseURL), args...)}
	s.url = "http://" + s.awaitLine(`msg=serving address=(\S+)`)[1]
	s.await(func() bool { status, _, _ := s.try("GET", "/readyz", ""); return status == 200 })
	return s
}

// await polls until the condition holds.
func (s service) await(condition func() bool) {
	s.t.Helper()
	await(s.t, condition)
}

func await(t *testing.T, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !condition() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("it doesn't come about in %v", patience)
		}
	}
}

// client doesn't keep connections, so that each request meets the process as it is then.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}

func (s service) try(method, path, body string, header ...string) (status int, answer []byte, h http.Header) {
	req, err := http.NewRequest(method, s.url+path, bytes.NewBufferString(body))
	if err != nil {
		s.t.Error(err)
		return 0, nil, nil
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, []byte(err.Error()), nil
	}
	defer func() { _ = res.Body.Close() }()
	answer, err = io.ReadAll(res.Body)
	if err != nil {
		return 0, []byte(err.Error()), nil
	}
	return res.StatusCode, answer, res.Header
}

// call must get that status, and reads the answer into a value unless it is nil.
func (s service) call(want int, method, path, body string, into any) {
	s.t.Helper()
	status, answer, _ := s.try(method, path, body)
	if status != want {
		s.t.Fatalf("%s %s: status %d, want %d: %s", method, path, status, want, answer)
	}
	if into != nil {
		if err := json.Unmarshal(answer, into); err != nil {
			s.t.Fatalf("%s %s: %v in %s", method, path, err, answer)
		}
	}
}
