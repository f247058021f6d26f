package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"holdfast/chronos/worker"
)

// chronosWork runs a command for each run of a queue.
type chronosWork struct {
	replicasOf
	Queue       string        `required:"" help:"The queue whose runs are worked."`
	Command     []string      `arg:"" optional:"" help:"What is run for each, after --. Left out with --crontab."`
	Crontab     bool          `help:"Run what the lines of imported crontabs say: each run's payload has a command for the shell."`
	Concurrency int           `default:"1" help:"How many run at once."`
	Lease       time.Duration `default:"60s" help:"How long a run stays this worker's unless it is renewed: when the worker is gone, others run it so much later."`
	Drain       time.Duration `default:"30s" help:"How long commands may go on after SIGTERM; then they are ended, and their runs given back."`
	Final       []int         `help:"Exit codes that no further attempt would mend." placeholder:"CODE,…"`
	Name        string        `help:"Kept with each attempt. Default: host and process id."`
}

const (
	// keptOutput is how much of the end of a command's output is kept with its run, in bytes.
	keptOutput = 3 << 10
	// stopGrace is how long a command has after SIGTERM when its run is over for this worker. It is less than the
	// margin of the shortest lease that is allowed, so that it has ended before the lease does.
	stopGrace  = 3 * time.Second
	leastLease = 10 * time.Second
	// outputAfter is how long the output is read of processes that outlive the command.
	outputAfter = time.Second
)

// Help says what a command gets.
func (chronosWork) Help() string {
	return `The command gets the run's payload as JSON on its standard input, and CHRONOS_RUN_ID, CHRONOS_JOB, CHRONOS_QUEUE, CHRONOS_ATTEMPT and
CHRONOS_SCHEDULED_FOR in its environment. Exit code 0 is success; any other fails the attempt, which is repeated as the job says. The end of what it writes is
kept with the run. When the run is lost or cancelled, the command and its process group get SIGTERM, and SIGKILL 3 s later.`
}

func (c chronosWork) Run(ctx context.Context, out output, log *slog.Logger) error {
	if err := c.check(); err != nil {
		return err
	}
	switch {
	case c.Crontab == (len(c.Command) > 0):
		return usage("give a command after --, or --crontab")
	case c.Concurrency < 1 || c.Concurrency > 1000:
		return usage("--concurrency: must be 1 to 1000, not %d", c.Concurrency)
	case c.Lease < leastLease || c.Lease > 24*time.Hour:
		return usage("--lease: must be 10s to 24h, not %v", c.Lease)
	case c.Drain < 0:
		return usage("--drain: can't be negative")
	}
	if len(c.Command) > 0 {
		if _, err := exec.LookPath(c.Command[0]); err != nil {
			return usage("%v", err)
		}
	}
	if c.Drain == 0 {
		c.Drain = -1
	}
	s := &shell{cfg: c, say: &speaker{to: out.stdout}}
	w, err := worker.New(worker.Config{
		Servers: c.URL, Key: c.Key, Name: c.Name, Lease: c.Lease, Margin: max(c.Lease/6, stopGrace+time.Second), Drain: c.Drain, Log: log,
		Queues: []worker.Queue{{Name: c.Queue, Concurrency: c.Concurrency, Handle: s.run}},
	})
	if err != nil {
		return usage("%v", err)
	}
	log.Info("working", "queue", c.Queue, "replicas", strings.Join(c.URL, " "))
	err = w.Run(ctx)
	if err == nil {
		log.Info("drained")
	}
	return err
}

// shell runs commands.
type shell struct {
	cfg chronosWork
	say *speaker
}

// commandResult is what is kept with a run that succeeded.
type commandResult struct {
	ExitCode int    `json:"exit_code"`
	Output   string `json:"output"`
}

func (s *shell) run(ctx context.Context, r *worker.Run) (any, error) {
	cmd, err := s.command(r)
	if err != nil {
		return nil, err
	}
	cmd.Env = append(cmd.Env, "CHRONOS_RUN_ID="+r.ID, "CHRONOS_JOB="+r.Job, "CHRONOS_QUEUE="+r.Queue,
		"CHRONOS_ATTEMPT="+strconv.Itoa(r.Attempt), "CHRONOS_SCHEDULED_FOR="+r.ScheduledFor.UTC().Format(time.RFC3339Nano))
	kept := &tail{}
	lines := &prefixed{say: s.say, name: r.Job}
	both := io.MultiWriter(kept, lines)
	cmd.Stdout, cmd.Stderr = both, both
	cmd.WaitDelay = outputAfter
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	err = runGroup(ctx, cmd)
	lines.end()
	output := strings.ToValidUTF8(strings.ReplaceAll(kept.String(), "\x00", "�"), "�")
	exit, _ := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil || errors.Is(err, exec.ErrWaitDelay):
		return commandResult{0, output}, nil
	case exit == nil:
		return nil, err // it couldn't be started
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%w; %v\n%s", context.Cause(ctx), exit, output)
	case slices.Contains(s.cfg.Final, exit.ExitCode()):
		return nil, worker.Final(fmt.Errorf("%v\n%s", exit, output))
	}
	return nil, fmt.Errorf("%v\n%s", exit, output)
}

// command is what is to be run, with its input and its environment.
func (s *shell) command(r *worker.Run) (*exec.Cmd, error) {
	if !s.cfg.Crontab {
		cmd := exec.Command(s.cfg.Command[0], s.cfg.Command[1:]...)
		cmd.Env = os.Environ()
		if len(r.Payload) > 0 && string(r.Payload) != "null" {
			cmd.Stdin = bytes.NewReader(r.Payload)
		}
		return cmd, nil
	}
	var line struct {
		Command, Stdin, User string
		Env                  map[string]string
	}
	if err := r.Decode(&line); err != nil {
		return nil, err
	}
	if line.Command == "" {
		return nil, worker.Final(errors.New("the payload has no command: it isn't a crontab line's"))
	}
	if line.User != "" {
		if me, err := user.Current(); err != nil || me.Username != line.User {
			return nil, worker.Final(fmt.Errorf("the line is for the user %s: run a worker as that user, with a queue of its own", line.User))
		}
	}
	cmd := exec.Command(cmp.Or(line.Env["SHELL"], "/bin/sh"), "-c", line.Command)
	cmd.Stdin = strings.NewReader(line.Stdin)
	cmd.Env = os.Environ()
	for name, value := range line.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	if home := line.Env["HOME"]; home != "" {
		cmd.Dir = home
	}
	return cmd, nil
}

// runGroup runs cmd, which leads a process group. When ctx ends the group gets SIGTERM, and what is left of
// it after a moment is killed.
func runGroup(ctx context.Context, cmd *exec.Cmd) error {
	ended := make(chan error, 1)
	started := make(chan error, 1)
	go startAndWait(cmd, started, ended)
	if err := <-started; err != nil {
		return err
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	group := -cmd.Process.Pid
	_ = syscall.Kill(group, syscall.SIGTERM)
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	var err error
	select {
	case err = <-ended:
	case <-grace.C:
		_ = syscall.Kill(group, syscall.SIGKILL)
		err = <-ended
	}
	// What the command leaves behind must not go on either: the run may start elsewhere.
	_ = syscall.Kill(group, syscall.SIGKILL)
	return err
}

// tail keeps the end of what is written.
type tail struct {
	mu   sync.Mutex
	kept []byte
	cut  bool
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p[max(0, len(p)-keptOutput):]...)
	if over := len(t.kept) - keptOutput; over > 0 || len(p) > keptOutput {
		t.cut = true
		t.kept = append(t.kept[:0], t.kept[max(0, over):]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cut {
		return "… " + string(t.kept)
	}
	return string(t.kept)
}

// prefixed says lines with the name of their job.
type prefixed struct {
	say  *speaker
	name string

	mu   sync.Mutex
	rest []byte
}

func (p *prefixed) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rest = append(p.rest, text...)
	for {
		n, line, err := bufio.ScanLines(p.rest, false)
		if n == 0 || err != nil {
			break
		}
		p.say.line("[%s] %s", p.name, line)
		p.rest = p.rest[n:]
	}
	if len(p.rest) > bufio.MaxScanTokenSize {
		p.say.line("[%s] %s", p.name, p.rest)
		p.rest = nil
	}
	return len(text), nil
}

// end says what is left of a last line.
func (p *prefixed) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.rest) > 0 {
		p.say.line("[%s] %s", p.name, p.rest)
		p.rest = nil
	}
}
