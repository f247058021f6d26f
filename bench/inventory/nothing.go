package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"holdfast/bench/process"
)

// nothingFlag makes this program a server that does nothing.
const nothingFlag = "-do-nothing"

// likeness is an answer that the do-nothing server gives to every request, taken from a replica.
type likeness struct {
	Status int         `json:"status"`
	Header http.Header `json:"header"`
	Body   []byte      `json:"body"`
}

// doNothing serves a likeness, which it reads from its input, with the same net/http server
// as a replica: what HTTP on this machine costs by itself.
func doNothing(address string, in io.Reader) error {
	var same likeness
	if err := json.NewDecoder(in).Decode(&same); err != nil {
		return err
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Addr: address, Protocols: &protocols, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			for name, values := range same.Header {
				w.Header()[name] = values
			}
			status := same.Status
			if r.URL.Path != "/v1/reservations" { // what changes a reservation is answered with it too
				status = http.StatusOK
			}
			w.WriteHeader(status)
			_, _ = w.Write(same.Body)
		}),
	}
	return server.ListenAndServe()
}

// startNothing starts as many processes that do nothing as there are replicas.
func (s *stage) startNothing(ctx context.Context, same likeness) (addresses []string, stop func() error, err error) {
	input, err := json.Marshal(same)
	if err != nil {
		return nil, nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	return s.startServers("do-nothing", func(address string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, self, nothingFlag, address)
		cmd.Stdin = strings.NewReader(string(input))
		return cmd
	}, func(address string) error {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// startReplicas starts processes of the real binary on a shop's database.
func (s *stage) startReplicas(ctx context.Context, databaseURL string) (addresses []string, stop func() error, err error) {
	return s.startServers("replicas", func(address string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, s.binary, "inventory", "serve", "--listen", address, "--auth", "off")
		cmd.Env = append(os.Environ(), "DATABASE_URL="+databaseURL)
		return cmd
	}, func(address string) error {
		answer, err := http.Get("http://" + address + "/readyz")
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		if answer.StatusCode != http.StatusOK {
			return errors.New(answer.Status)
		}
		return nil
	})
}

// replicaCount is how many replicas serve the loads over HTTP, and how many processes do nothing.
const replicaCount = 2

func (s *stage) startServers(name string, command func(address string) *exec.Cmd, ready func(address string) error) (addresses []string, stop func() error, err error) {
	var all []*process.Process
	var numbers []int
	stop = func() error {
		s.uses(name)
		var errs []error
		for _, p := range all {
			errs = append(errs, p.Stop())
		}
		return errors.Join(errs...)
	}
	for i := range replicaCount {
		address, err := process.FreeAddress()
		if err != nil {
			return nil, nil, errors.Join(err, stop())
		}
		p, err := process.Start(command(address), filepath.Join(s.dir, fmt.Sprintf("%s-%d.log", name, i+1)))
		if err != nil {
			return nil, nil, errors.Join(err, stop())
		}
		all = append(all, p)
		if err := p.Await(func() error { return ready(address) }); err != nil {
			return nil, nil, errors.Join(err, stop())
		}
		addresses, numbers = append(addresses, address), append(numbers, p.PID())
	}
	s.uses(name, numbers...)
	return addresses, stop, nil
}

// likenessOf asks a replica for one unit of a SKU and keeps its answer.
func likenessOf(ctx context.Context, address, sku string) (likeness, error) {
	body := strings.NewReader(`{"lines":[{"sku":"` + sku + `","quantity":1}]}`)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v1/reservations", body)
	if err != nil {
		return likeness{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", uuid.NewString())
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return likeness{}, err
	}
	defer func() { _ = answer.Body.Close() }()
	same := likeness{Status: answer.StatusCode, Header: answer.Header}
	same.Header.Del("Date") // the server writes both itself
	same.Header.Del("Content-Length")
	same.Body, err = io.ReadAll(answer.Body)
	return same, err
}
