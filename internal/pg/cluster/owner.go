package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// serverUser is whom the server runs as: nil for the owner itself, another when that is root.
func serverUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			continue
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			continue
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and there is no user postgres or nobody to run it as")
}

// lockPoll is how often a waiting process looks whether a lock is free.
const lockPoll = 100 * time.Millisecond

var errOwned = errors.New("another holdfast is using it")

// tryLockFile takes a file lock that ends with the process, and fails at once if another has it.
func tryLockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errOwned
		}
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		unlock, err := tryLockFile(path)
		if !errors.Is(err, errOwned) {
			return unlock, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}

// stopOrphan stops a server that still runs on the folder although its owner has gone: the
// caller holds the folder's lock. Usually it is already on its way out.
func stopOrphan(ctx context.Context, data string) error {
	pidFile := filepath.Join(data, "postmaster.pid")
	content, err := os.ReadFile(pidFile)
	if err != nil {
		return nil // none, or no folder yet
	}
	first, _, _ := strings.Cut(string(content), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil || !isServer(pid, data) {
		return nil // stale: the server replaces it itself
	}
	_ = syscall.Kill(pid, syscall.SIGQUIT)
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for isServer(pid, data) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("a PostgreSQL from before (process %d) still runs on %s and doesn't stop", pid, data)
		case <-tick.C:
		}
	}
	return nil
}

// isServer reports whether the process is a PostgreSQL on that folder, and not
// somebody else who was given the same number.
func isServer(pid int, data string) bool {
	cmdline, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return false
	}
	args := strings.Split(string(cmdline), "\x00")
	for i, arg := range args {
		if arg == "-D" && i+1 < len(args) && args[i+1] == data {
			return true
		}
	}
	return false
}
