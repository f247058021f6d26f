package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holdfast/chronos"
	"holdfast/chronos/jobfile"
)

// chronosExport writes jobs, calendars and monitors as files that `chronos apply` reads.
type chronosExport struct {
	replicasOf
	Dir   string `arg:"" optional:"" type:"path" help:"Folder to write a file for each into, which must not be there yet or be empty. Left out: all of them to standard output."`
	Label string `help:"Only jobs with this label, as key:value, and their calendars." placeholder:"KEY:VALUE"`
	Set   string `help:"Only jobs of this set, and their calendars." placeholder:"NAME"`
	JSON  bool   `name:"json" help:"JSON instead of YAML."`
}

func (c chronosExport) Run(ctx context.Context, out output) error {
	if err := c.check(); err != nil {
		return err
	}
	if c.Label != "" && c.Set != "" {
		return usage("give --label or --set, not both")
	}
	query := url.Values{}
	if c.Set != "" {
		c.Label = chronos.SetLabel + ":" + c.Set
	}
	if c.Label != "" {
		query.Set("label", c.Label)
	}
	jobs, err := c.list(ctx, "/v1/jobs", query)
	if err != nil {
		return err
	}
	calendars, err := c.list(ctx, "/v1/calendars", url.Values{})
	if err != nil {
		return err
	}
	if c.Label != "" {
		if calendars, err = used(calendars, jobs); err != nil {
			return err
		}
		return c.writeReadable(out, append(calendars, jobs...))
	}
	monitors, err := c.list(ctx, "/v1/monitors", url.Values{})
	if err != nil {
		return err
	}
	return c.writeReadable(out, slices.Concat(calendars, monitors, jobs))
}

// writeReadable leaves out what would be written by halves, and then fails in the end.
func (c chronosExport) writeReadable(out output, all []exported) error {
	var without []string
	all = slices.DeleteFunc(all, func(e exported) bool {
		if e.unreadable {
			without = append(without, e.kind+" "+e.name)
		}
		return e.unreadable
	})
	if err := c.write(out, all); err != nil {
		return err
	}
	if len(without) > 0 {
		return fmt.Errorf("left out, since the server can't read what another version has stored: %s", strings.Join(without, ", "))
	}
	return nil
}

// exported is a job or a calendar as it is written.
type exported struct {
	kind, name string
	text       json.RawMessage
	unreadable bool // by the server: it may lack something
}

// list gets all of a kind.
func (c chronosExport) list(ctx context.Context, path string, query url.Values) ([]exported, error) {
	var all []exported
	kind := strings.TrimSuffix(strings.TrimPrefix(path, "/v1/"), "s")
	query.Set("limit", "500")
	for {
		var page struct {
			Items      []json.RawMessage `json:"items"`
			NextCursor *string           `json:"next_cursor"`
		}
		if err := c.call(ctx, http.MethodGet, path+"?"+query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		for _, item := range page.Items {
			var named struct {
				Name       string
				Unreadable bool
			}
			if err := json.Unmarshal(item, &named); err != nil {
				return nil, err
			}
			text, err := jobfile.Trim(item, chronos.SetLabel)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", kind, named.Name, err)
			}
			all = append(all, exported{kind, named.Name, text, named.Unreadable})
		}
		if page.NextCursor == nil || *page.NextCursor == "" {
			return all, nil
		}
		query.Set("cursor", *page.NextCursor)
	}
}

// used are the calendars that jobs exclude.
func used(calendars, jobs []exported) (kept []exported, err error) {
	names := map[string]bool{}
	for _, j := range jobs {
		var spec struct{ Exclude []string }
		if err := json.Unmarshal(j.text, &spec); err != nil {
			return nil, err
		}
		for _, name := range spec.Exclude {
			names[name] = true
		}
	}
	for _, c := range calendars {
		if names[c.name] {
			kept = append(kept, c)
		}
	}
	return kept, nil
}

func (c chronosExport) write(out output, all []exported) error {
	if c.Dir == "" {
		texts := make([]json.RawMessage, len(all))
		for i, e := range all {
			texts[i] = e.text
		}
		text, err := c.encode(texts...)
		if err == nil {
			_, err = out.stdout.Write(text)
		}
		return err
	}
	if entries, err := os.ReadDir(c.Dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s isn't empty", c.Dir)
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	ending := ".yaml"
	if c.JSON {
		ending = ".json"
	}
	for _, e := range all {
		text, err := c.encode(e.text)
		if err != nil {
			return err
		}
		folder := filepath.Join(c.Dir, e.kind+"s")
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		// A name may begin with a dot, or be all dots.
		file := filepath.Join(folder, strings.ReplaceAll(e.name, ".", "_")+ending)
		f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		for n := 2; errors.Is(err, os.ErrExist); n++ {
			f, err = os.OpenFile(strings.TrimSuffix(file, ending)+fmt.Sprintf("-%d", n)+ending, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		}
		if err != nil {
			return err
		}
		_, err = f.Write(text)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out.stderr, "%d files in %s\n", len(all), c.Dir)
	return err
}

func (c chronosExport) encode(objects ...json.RawMessage) ([]byte, error) {
	if !c.JSON {
		return jobfile.Encode(objects)
	}
	var text []byte
	for _, o := range objects {
		indented, err := json.MarshalIndent(o, "", "  ")
		if err != nil {
			return nil, err
		}
		text = append(append(text, indented...), '\n')
	}
	return text, nil
}
