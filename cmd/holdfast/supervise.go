package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// replica is one process that `up` keeps running.
type replica struct {
	name string // inventory 1
	args []string
	env  []string // beside this process's own
}

const (
	restartPause    = 200 * time.Millisecond // before the first new start, then doubled
	maxRestartPause = 5 * time.Second
	// steady is how long a replica must have run for its next end to count as the first.
	steady = 10 * time.Second
	// killAfter is how much longer than its own drain a replica may take to end.
	killAfter = 5 * time.Second
)

// supervise runs the replica until ctx ends, starting it again whenever it ends by itself;
// then it has drain to end, after SIGTERM, before it is killed.
func (r replica) supervise(ctx context.Context, drain time.Duration, say *speaker) error {
	pause := restartPause
	for {
		began := time.Now()
		err := r.runOnce(ctx, drain, say)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > steady {
			pause = restartPause
		}
		say.line("%s ended (%s), starting it again", r.name, ending(err))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, maxRestartPause)
	}
}

func ending(err error) string {
	if err == nil {
		return "exit code 0"
	}
	return err.Error()
}

func (r replica) runOnce(ctx context.Context, drain time.Duration, say *speaker) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, r.args...)
	cmd.Env = append(os.Environ(), r.env...)
	// A group of its own keeps a terminal's Ctrl-C from it: it is told to end by SIGTERM alone.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, in
	var copied sync.WaitGroup
	copied.Go(func() { say.copy(r.name, out) })
	defer copied.Wait()
	defer func() { _ = in.Close() }()

	started, ended := make(chan error, 1), make(chan error, 1)
	go startAndWait(cmd, started, ended)
	if err := <-started; err != nil {
		return err
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-ended:
		return err
	case <-time.After(drain + killAfter):
		say.line("%s doesn't end, killing it", r.name)
		_ = cmd.Process.Kill()
		return <-ended
	}
}

// startAndWait stays on one thread: the kernel's signal at the parent's death follows the thread that started
// the child.
func startAndWait(cmd *exec.Cmd, started, ended chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Start()
	started <- err
	if err == nil {
		ended <- cmd.Wait()
	}
}

// speaker writes whole lines from many sources to one place.
type speaker struct {
	mu sync.Mutex
	to io.Writer
}

func (s *speaker) line(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.to, format+"\n", args...)
}

// copy prefixes every line with its source.
func (s *speaker) copy(name string, from io.Reader) {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			s.mu.Lock()
			fmt.Fprintf(s.to, "[%s] %s", name, line)
			s.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}
