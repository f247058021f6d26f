package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"holdfast/internal/httpapi"
)

// receiverCmd is a webhook's other end, for trying jobs.
type receiverCmd struct {
	Listen string `default:"127.0.0.1:8095" help:"Loopback address to receive on."`
}

func (c receiverCmd) Run(ctx context.Context, out output) error {
	if err := httpapi.CheckOpen(c.Listen); err != nil {
		return err
	}
	ln, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	fmt.Fprintf(out.stderr, "receiving on http://%s/\n", ln.Addr())
	return newReceiver(out.stdout).serve(ctx, ln)
}

// delivery is one webhook that came in.
type delivery struct {
	At           time.Time `json:"at"`
	Path         string    `json:"path"`
	ID           string    `json:"id"`
	Job          string    `json:"job,omitempty"`
	Attempt      string    `json:"attempt,omitempty"`
	ScheduledFor string    `json:"scheduled_for,omitempty"`
	Body         string    `json:"body"`
}

// keptDeliveries is how many of the last deliveries GET / shows.
const keptDeliveries = 100

// receiver answers every POST with 200 and remembers the last deliveries, which GET / lists, newest first.
type receiver struct {
	print io.Writer // a line for each; nil: none

	mu    sync.Mutex
	total int
	last  []delivery
}

func newReceiver(print io.Writer) *receiver { return &receiver{print: print} }

func (r *receiver) serve(ctx context.Context, ln net.Listener) error {
	server := &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := server.Shutdown(bounded)
	<-served
	return err
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if req.Method == http.MethodGet {
		r.mu.Lock()
		defer r.mu.Unlock()
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		_ = encoder.Encode(map[string]any{"total": r.total, "last": r.last})
		return
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, 4<<10))
	if err != nil {
		http.Error(w, `{"error": "the body could not be read"}`, http.StatusBadRequest)
		return
	}
	d := delivery{
		At: time.Now().UTC(), Path: req.URL.Path, ID: req.Header.Get("webhook-id"), Job: req.Header.Get("chronos-job"),
		Attempt: req.Header.Get("chronos-attempt"), ScheduledFor: req.Header.Get("chronos-scheduled-for"), Body: string(body),
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total++
	r.last = append([]delivery{d}, r.last[:min(len(r.last), keptDeliveries-1)]...)
	if r.print != nil {
		fmt.Fprintf(r.print, "%s %s job=%s attempt=%s scheduled_for=%s %s\n",
			d.At.Format("15:04:05.000"), d.ID, d.Job, d.Attempt, d.ScheduledFor, d.Body)
	}
	_, _ = io.WriteString(w, `{"received": true}`)
}
