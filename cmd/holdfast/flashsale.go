package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/google/uuid"
	"github.com/schollz/progressbar/v3"
)

// flashsale is the demonstration: many clicks, few units, on a SKU of its own.
type flashsale struct {
	Clicks      int           `default:"50000" help:"Buyers, each of whom clicks once."`
	Units       int           `default:"100" help:"Units for sale."`
	URL         []string      `name:"url" default:"http://127.0.0.1:8080,http://127.0.0.1:8081" help:"Replicas to spread the clicks over."`
	Connections int           `default:"512" help:"Connections open at once."`
	Key         string        `env:"HOLDFAST_KEY" help:"API key, where the replicas ask for one."`
	Timeout     time.Duration `default:"5m" help:"When to give up."`
}

func (f flashsale) check() error {
	for _, flag := range []struct {
		name               string
		value, least, most int
	}{{"clicks", f.Clicks, 1, 10_000_000}, {"units", f.Units, 1, 1_000_000_000}, {"connections", f.Connections, 1, 10_000}} {
		if flag.value < flag.least || flag.value > flag.most {
			return usage("--%s: must be from %d to %d, not %d", flag.name, flag.least, flag.most, flag.value)
		}
	}
	for _, address := range f.URL {
		if u, err := url.Parse(address); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return usage("--url: %q isn't an address such as http://127.0.0.1:8080", address)
		}
	}
	if f.Timeout <= 0 {
		return usage("--timeout: must be positive")
	}
	return nil
}

// tally is what the clicks came to.
type tally struct {
	mu         sync.Mutex
	held       map[uuid.UUID]int // answers that named each reservation
	soldOut    int
	errors     map[string]int
	latency    *hdrhistogram.Histogram // microseconds
	repetition int                     // of clicks that were told to come back
}

// Run exits with 1 unless exactly the units were held and everybody else was told that they are sold out.
func (f flashsale) Run(ctx context.Context, out output) error {
	if err := f.check(); err != nil {
		return err
	}
	for i := range f.URL {
		f.URL[i] = strings.TrimRight(f.URL[i], "/")
	}
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{
		MaxIdleConns: f.Connections, MaxIdleConnsPerHost: f.Connections, MaxConnsPerHost: f.Connections,
	}}
	defer client.CloseIdleConnections()
	sku := "FLASHSALE-" + time.Now().UTC().Format("20060102-150405.000000")
	shop := buyer{client: client, key: f.Key}
	if err := shop.prepare(ctx, f.URL[0], sku, f.Units); err != nil {
		return err
	}
	fmt.Fprintf(out.stderr, "%d clicks for %d units of %s, over %d replicas\n", f.Clicks, f.Units, sku, len(f.URL))
	began := time.Now()
	t := f.sell(ctx, shop, sku, out.stderr)
	wall := time.Since(began)
	left, err := shop.stock(ctx, f.URL[len(f.URL)-1], sku)
	if err != nil {
		return err
	}
	return f.report(out, t, wall, left)
}

// sell sends all clicks at once, as far as the connections go, and waits for their answers.
func (f flashsale) sell(ctx context.Context, shop buyer, sku string, progress io.Writer) *tally {
	t := &tally{held: map[uuid.UUID]int{}, errors: map[string]int{}, latency: hdrhistogram.New(1, int64(f.Timeout/time.Microsecond), 3)}
	bar := progressbar.NewOptions(f.Clicks, progressbar.OptionSetWriter(progress), progressbar.OptionSetDescription("clicks"),
		progressbar.OptionSetWidth(30), progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString("clicks"),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionOnCompletion(func() { fmt.Fprintln(progress) }))
	clicks := make(chan int)
	go func() {
		defer close(clicks)
		for i := range f.Clicks {
			clicks <- i
		}
	}()
	var workers sync.WaitGroup
	for range min(f.Connections, f.Clicks) {
		workers.Go(func() {
			for i := range clicks {
				t.count(shop.click(ctx, f.URL[i%len(f.URL)], sku))
				_ = bar.Add(1)
			}
		})
	}
	workers.Wait()
	return t
}

func (t *tally) count(c click) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_ = t.latency.RecordValue(max(1, c.latency.Microseconds()))
	t.repetition += c.repeated
	switch {
	case c.err != nil:
		t.errors[c.err.Error()]++
	case c.soldOut:
		t.soldOut++
	default:
		t.held[c.reservation]++
	}
}

func (f flashsale) report(out output, t *tally, wall time.Duration, left stock) error {
	failed, duplicates := 0, 0
	for _, n := range t.errors {
		failed += n
	}
	for _, n := range t.held {
		duplicates += n - 1
	}
	w := tabwriter.NewWriter(out.stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, value any) { fmt.Fprintf(w, "%s\t%v\t\n", name, value) }
	at := func(percentile float64) time.Duration {
		return (time.Duration(t.latency.ValueAtPercentile(percentile)) * time.Microsecond).Round(100 * time.Microsecond)
	}
	row("clicks", f.Clicks)
	row("holds", len(t.held))
	row("sold-out answers", t.soldOut)
	row("errors", failed)
	row("duplicates", duplicates)
	row("told to come back", t.repetition)
	row("wall time", wall.Round(time.Millisecond))
	row("clicks per second", int(float64(f.Clicks)/wall.Seconds()))
	row("latency p50", at(50))
	row("latency p90", at(90))
	row("latency p99", at(99))
	row("latency max", at(100))
	if err := w.Flush(); err != nil {
		return err
	}
	for text, n := range t.errors {
		fmt.Fprintf(out.stdout, "%d × %s\n", n, text)
	}
	want := min(f.Units, f.Clicks)
	exact := len(t.held) == want && t.soldOut == f.Clicks-want && failed == 0 && duplicates == 0 && left.Held == want && left.Available == f.Units-want
	if !exact {
		fmt.Fprintf(out.stdout, "NOT exact: %d units, %d held and %d available by the last replica's word\n", f.Units, left.Held, left.Available)
		return exitError(1)
	}
	fmt.Fprintf(out.stdout, "exactly %d of %d units held, by the last replica's word too\n", left.Held, f.Units)
	return nil
}

// buyer speaks to replicas.
type buyer struct {
	client *http.Client
	key    string
}

// click is what one buyer got.
type click struct {
	reservation uuid.UUID
	soldOut     bool
	err         error
	latency     time.Duration
	repeated    int
}

type stock struct {
	Held      int `json:"held"`
	Available int `json:"available"`
}

func (b buyer) prepare(ctx context.Context, replica, sku string, units int) error {
	if err := b.do(ctx, http.MethodPut, replica+"/v1/skus/"+sku, `{"name": "Flash sale"}`, "", nil); err != nil {
		return err
	}
	return b.do(ctx, http.MethodPost, replica+"/v1/skus/"+sku+"/adjustments",
		fmt.Sprintf(`{"delta": %d, "reason": "flash sale"}`, units), uuid.NewString(), nil)
}

func (b buyer) stock(ctx context.Context, replica, sku string) (s stock, err error) {
	return s, b.do(ctx, http.MethodGet, replica+"/v1/skus/"+sku, "", "", &s)
}

// click buys one unit. Told to come back, it does, with the same key: so it can't buy two.
func (b buyer) click(ctx context.Context, replica, sku string) (c click) {
	began, key := time.Now(), uuid.NewString()
	defer func() { c.latency = time.Since(began) }()
	for {
		var made struct {
			ID uuid.UUID `json:"id"`
		}
		err := b.do(ctx, http.MethodPost, replica+"/v1/reservations", `{"lines": [{"sku": "`+sku+`", "quantity": 1}]}`, key, &made)
		var p *problem
		switch {
		case err == nil:
			c.reservation = made.ID
			return c
		case errors.As(err, &p) && p.Code == "sold_out":
			c.soldOut = true
			return c
		case errors.As(err, &p) && p.Status == http.StatusServiceUnavailable && p.retryAfter > 0:
			c.repeated++
			select {
			case <-ctx.Done():
			case <-time.After(p.retryAfter):
				continue
			}
		}
		c.err = err
		return c
	}
}

// problem is a refusal.
type problem struct {
	Status     int                                  `json:"status"`
	Code       string                               `json:"code"`
	Detail     string                               `json:"detail"`
	Errors     []struct{ Location, Message string } `json:"errors"`
	retryAfter time.Duration
}

func (p *problem) Error() string { return fmt.Sprintf("%d %s: %s", p.Status, p.Code, p.Detail) }

func (b buyer) do(ctx context.Context, method, address, body, idempotencyKey string, answer any) error {
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewBufferString(body))
	if err != nil {
		return err
	}
	if idempotencyKey != "" {
		req.Header.Set("Idempotency-Key", idempotencyKey)
	}
	if b.key != "" {
		req.Header.Set("Authorization", "Bearer "+b.key)
	}
	res, err := b.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	content, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode >= 300 {
		p := &problem{Status: res.StatusCode, Detail: "no problem document"}
		_ = json.Unmarshal(content, p) // what isn't one is told by its status
		if seconds, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil {
			p.retryAfter = time.Duration(seconds) * time.Second
		}
		return p
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(content, answer)
}
