// Package process runs the programs that a benchmark needs beside it, and ends just those.
package process

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is a program that was started, and dies with this one.
type Process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has ended,
	err    error         // which says how
}

// stopTime is how long a process may take to end when it is asked to.
const stopTime = 15 * time.Second

// Start starts cmd, writing what it says to the file log. The kernel ends it when this process dies.
func Start(cmd *exec.Cmd, log string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	if cmd.Stdout == nil {
		cmd.Stdout = out
	}
	cmd.Stderr = out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &Process{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The signal on death is tied to the thread that started the process: it is kept until the end.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
		close(p.exited)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// PID is the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Stop asks the process to end, and ends it when it doesn't.
func (p *Process) Stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
		return nil
	case <-time.After(stopTime):
		_ = p.cmd.Process.Kill()
		<-p.exited
		return fmt.Errorf("%s didn't stop when asked to", p.cmd.Path)
	}
}

// Await returns when ready succeeds, or says why it won't.
func (p *Process) Await(ready func() error) error {
	const within, every = 30 * time.Second, 20 * time.Millisecond
	for deadline := time.Now().Add(within); ; {
		err := ready()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s isn't ready: %w", p.cmd.Path, err)
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%s has ended: %w", p.cmd.Path, errors.Join(p.err, err))
		case <-time.After(every):
		}
	}
}

// FreeAddress is a loopback address that nobody listens on.
func FreeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}
