package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
)

// replicasOf is where a command finds Chronos.
type replicasOf struct {
	URL []string `name:"url" default:"http://127.0.0.1:8090,http://127.0.0.1:8091" env:"HOLDFAST_CHRONOS_URL" help:"Replicas; where one doesn't answer, the next is asked."`
	Key string   `env:"HOLDFAST_KEY" help:"API key, where the replicas ask for one."`
}

const (
	// chronosAttempts bounds how often a request is sent, over all replicas.
	chronosAttempts = 6
	// chronosTimeout is more than the longest that the API takes.
	chronosTimeout = 90 * time.Second
)

func (r *replicasOf) check() error {
	for i, address := range r.URL {
		if u, err := url.Parse(address); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return usage("--url: %q isn't an address such as http://127.0.0.1:8090", address)
		}
		r.URL[i] = strings.TrimRight(address, "/")
	}
	return nil
}

// call sends a request until it is answered, each time to the next replica; a change has one idempotency key, so that it
// counts once. It fails with a [*problem] where it is refused.
func (r replicasOf) call(ctx context.Context, method, path string, body []byte, into any) error {
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment}, Timeout: chronosTimeout}
	defer client.CloseIdleConnections()
	key := uuid.NewString()
	for attempt := 1; ; attempt++ {
		err := r.try(ctx, client, r.URL[(attempt-1)%len(r.URL)], method, path, key, body, into)
		refused, ok := errors.AsType[*problem](err)
		if err == nil || ok && refused.Status < 500 && refused.Status != http.StatusTooManyRequests || attempt >= chronosAttempts || ctx.Err() != nil {
			return err
		}
		pause := time.Duration(0)
		if attempt%len(r.URL) == 0 {
			pause = time.Duration(attempt) * 200 * time.Millisecond
		}
		if ok {
			pause = max(pause, refused.retryAfter)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

func (r replicasOf) try(ctx context.Context, client *http.Client, server, method, path, key string, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, server+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if method != http.MethodGet {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", key)
	}
	if r.Key != "" {
		req.Header.Set("Authorization", "Bearer "+r.Key)
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode >= 300 {
		return refusalOf(res)
	}
	if err := json.NewDecoder(res.Body).Decode(into); err != nil {
		return fmt.Errorf("the answer of %s can't be read: %w", server, err)
	}
	return nil
}
