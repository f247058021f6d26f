package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"

	"holdfast/bench/process"
)

// replica is one process of the real binary.
type replica struct {
	*process.Process
	url string
}

// saidLength is how much of what a replica said is told when it doesn't start, in bytes.
const saidLength = 2000

// startReplica starts a replica whose database is at url, and waits until it is ready.
func (s *stage) startReplica(ctx context.Context, name, url string, args ...string) (*replica, error) {
	address, err := process.FreeAddress()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(s.binary, append([]string{"chronos", "serve", "--auth=off", "--listen=" + address, "--allow-targets=127.0.0.0/8", "--drain=5s"}, args...)...)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+url)
	r, log := &replica{url: "http://" + address}, filepath.Join(s.dir, name+".log")
	if r.Process, err = process.Start(cmd, log); err != nil {
		return nil, err
	}
	err = r.Await(func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/readyz", nil)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return errors.New(res.Status)
		}
		return nil
	})
	if err != nil {
		said, _ := os.ReadFile(log)
		return nil, errors.Join(err, r.Stop(), fmt.Errorf("it said: %s", said[max(0, len(said)-saidLength):]))
	}
	return r, nil
}

// startReplicas starts two; stop ends both.
func (s *stage) startReplicas(ctx context.Context, name, url string, args ...string) (both [2]*replica, stop func() error, err error) {
	stop = func() error {
		var errs []error
		for _, r := range both {
			if r != nil {
				errs = append(errs, r.Stop())
			}
		}
		return errors.Join(errs...)
	}
	for i := range both {
		if both[i], err = s.startReplica(ctx, fmt.Sprintf("%s-%d", name, i+1), url, args...); err != nil {
			return both, nil, errors.Join(err, stop())
		}
	}
	return both, stop, nil
}
