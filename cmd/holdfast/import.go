package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/schollz/progressbar/v3"

	"holdfast/inventory"
)

// inventoryImport sends a file to the API, and goes on elsewhere where a replica can't.
type inventoryImport struct {
	File           string   `arg:"" help:"CSV with a header, or a JSON object a line; - is standard input."`
	URL            []string `name:"url" default:"http://127.0.0.1:8080,http://127.0.0.1:8081" help:"Replicas; the next one goes on where one ends early."`
	Key            string   `env:"HOLDFAST_KEY" help:"API key, where the replicas ask for one."`
	Format         string   `enum:"auto,csv,ndjson" default:"auto" help:"csv or ndjson; auto: by the file's name."`
	Location       string   `help:"Location of the rows that name none."`
	Reason         string   `help:"Reason of the rows that give none, for the ledger."`
	DryRun         bool     `help:"Check, and change nothing."`
	IdempotencyKey string   `help:"Goes on with an import that ended early. Default: a new one." placeholder:"KEY"`
	JSON           bool     `name:"json" help:"Write the answer as JSON, whatever happens."`
}

// importAttempts bounds how often an import is sent.
const importAttempts = 6

// importAnswer is what an import came to.
type importAnswer struct {
	inventory.ImportTotals
	DryRun     bool `json:"dry_run"`
	Complete   bool `json:"complete"`
	Incomplete *struct {
		Code     string `json:"code"`
		Reason   string `json:"reason"`
		NextLine int64  `json:"next_line"`
	} `json:"incomplete,omitempty"`
	text []byte // the JSON, where it is asked for
}

// Run exits with 1 unless every row is there and good.
func (c inventoryImport) Run(ctx context.Context, out output) error {
	if err := c.check(); err != nil {
		return err
	}
	answer, err := c.run(ctx, out)
	if c.JSON {
		if err != nil {
			answer.text, _ = json.Marshal(map[string]any{"complete": false, "error": err.Error()})
		}
		if _, err := fmt.Fprintln(out.stdout, strings.TrimSpace(string(answer.text))); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	if !answer.Complete || answer.Failed > 0 {
		return exitError(1)
	}
	return nil
}

func (c *inventoryImport) check() error {
	for i, address := range c.URL {
		if u, err := url.Parse(address); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return usage("--url: %q isn't an address such as http://127.0.0.1:8080", address)
		}
		c.URL[i] = strings.TrimRight(address, "/")
	}
	if c.Format != "auto" {
		return nil
	}
	switch strings.ToLower(filepath.Ext(c.File)) {
	case ".csv":
		c.Format = "csv"
	case ".ndjson", ".jsonl":
		c.Format = "ndjson"
	default:
		return usage("--format: csv or ndjson? The name %q doesn't say", c.File)
	}
	return nil
}

// run sends the file until it is complete. All is sent each time: by the key, what is done isn't done again.
func (c inventoryImport) run(ctx context.Context, out output) (answer importAnswer, err error) {
	file := os.Stdin
	if c.File != "-" {
		if file, err = os.Open(c.File); err != nil {
			return answer, err
		}
		defer func() { _ = file.Close() }()
	}
	size := int64(-1) // unknown, and then it can't be read twice
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
		size = info.Size()
	}
	key := cmp.Or(c.IdempotencyKey, uuid.NewString())
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	began, told := time.Now(), int64(0)
	for attempt := 1; ; attempt++ {
		replica := c.URL[(attempt-1)%len(c.URL)]
		answer, err = c.send(ctx, client, replica, key, file, size, out.stderr, &told)
		var refused *problem
		final := err == nil && (answer.Complete || !passing(answer.Incomplete.Code)) ||
			errors.As(err, &refused) && refused.Status != http.StatusServiceUnavailable && refused.Status != http.StatusTooManyRequests
		if final || size < 0 || attempt == importAttempts || ctx.Err() != nil {
			break
		}
		pause := time.Second
		if refused != nil {
			pause = max(pause, refused.retryAfter)
		}
		why := err
		if why == nil {
			why = errors.New(answer.Incomplete.Reason)
		}
		fmt.Fprintf(out.stderr, "%s: %v; trying again\n", replica, why)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return answer, err
		}
	}
	if again := fmt.Sprintf("to go on, send the same again with --idempotency-key %s", key); err != nil && !c.DryRun {
		return answer, fmt.Errorf("%w\n%s", err, again)
	} else if err == nil && !answer.Complete {
		fmt.Fprintf(out.stderr, "ended early, before line %d: %s\n%s\n", answer.Incomplete.NextLine, answer.Incomplete.Reason, again)
	}
	if err != nil || c.JSON {
		return answer, err
	}
	return answer, answer.report(out.stdout, time.Since(began))
}

// passing reports whether an import that ended early for this reason should go on at once.
func passing(code string) bool {
	switch code {
	case "import_stopped", "database_unavailable", "commit_unknown", "overloaded", "request_timeout", "body_incomplete", "body_timeout":
		return true
	}
	return false
}

func (c inventoryImport) send(ctx context.Context, client *http.Client, replica, key string, file io.Reader, size int64, progress io.Writer, told *int64) (answer importAnswer, err error) {
	description := filepath.Base(c.File)
	bar := progressbar.NewOptions64(size, progressbar.OptionSetWriter(progress), progressbar.OptionSetDescription(description),
		progressbar.OptionSetWidth(30), progressbar.OptionShowBytes(true), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionOnCompletion(func() { fmt.Fprintln(progress) }))
	sent := progressbar.NewReader(struct{ io.Reader }{file}, bar)
	query := url.Values{}
	for name, value := range map[string]string{"location": c.Location, "reason": c.Reason} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if c.DryRun {
		query.Set("dry_run", "true")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, replica+"/v1/imports?"+query.Encode(), struct{ io.Reader }{&sent})
	if err != nil {
		return answer, err
	}
	if size > 0 {
		req.ContentLength = size
	}
	req.Header.Set("Content-Type", map[string]string{"csv": "text/csv", "ndjson": "application/x-ndjson"}[c.Format])
	req.Header.Set("Idempotency-Key", key)
	if c.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.Key)
	}
	res, err := client.Do(req)
	if err != nil {
		_ = bar.Exit()
		return answer, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode >= 300 {
		_ = bar.Exit()
		return answer, refusalOf(res)
	}
	if c.JSON {
		if answer.text, err = io.ReadAll(res.Body); err == nil {
			err = json.Unmarshal(answer.text, &answer)
		}
		return answer, err
	}
	return answer, answer.read(res.Body, func(r inventory.RowResult) {
		if r.Line > *told { // what was told before comes again with the answer to the whole
			*told = r.Line
			fmt.Fprintln(progress, rowText(r))
		}
	})
}

// refusalOf is the problem that an answer is.
func refusalOf(res *http.Response) error {
	content, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return err
	}
	p := &problem{Status: res.StatusCode, Detail: "no problem document"}
	_ = json.Unmarshal(content, p) // what isn't one is told by its status
	if seconds, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil {
		p.retryAfter = time.Duration(seconds) * time.Second
	}
	return p
}

// read reads an answer as it comes, without keeping its list.
func (a *importAnswer) read(from io.Reader, tell func(inventory.RowResult)) error {
	dec := json.NewDecoder(from)
	if _, err := dec.Token(); err != nil {
		return err
	}
	rest := map[string]json.RawMessage{}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return err
		}
		if name != "errors" {
			var value json.RawMessage
			if err := dec.Decode(&value); err != nil {
				return err
			}
			rest[fmt.Sprint(name)] = value
			continue
		}
		if _, err := dec.Token(); err != nil {
			return err
		}
		for dec.More() {
			var r inventory.RowResult
			if err := dec.Decode(&r); err != nil {
				return err
			}
			tell(r)
		}
		if _, err := dec.Token(); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil {
		return err
	}
	text, err := json.Marshal(rest)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, a)
}

func rowText(r inventory.RowResult) string {
	text := fmt.Sprintf("line %d: ", r.Line)
	if r.SKU != "" {
		text += r.SKU + ": "
	}
	if r.Field != "" {
		text += r.Field + ": "
	}
	return text + r.Reason + " (" + r.Code + ")"
}

func (a *importAnswer) report(stdout io.Writer, wall time.Duration) error {
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, value any) { fmt.Fprintf(w, "%s\t%v\t\n", name, value) }
	row("rows", a.Rows)
	if a.DryRun {
		row("would be applied", a.Applied)
	} else {
		row("applied", a.Applied)
	}
	row("of them unchanged", a.Unchanged)
	row("bad", a.Failed)
	row("new SKUs", a.Created)
	row("wall time", wall.Round(time.Millisecond))
	row("rows per second", int(float64(a.Rows)/wall.Seconds()))
	return w.Flush()
}
