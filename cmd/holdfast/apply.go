package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"holdfast/chronos/jobfile"
)

// chronosApply makes a server's jobs what a folder of files says.
type chronosApply struct {
	replicasOf
	Paths  []string `arg:"" name:"dir" help:"Folders of .yaml, .yml and .json files, or files."`
	Set    string   `default:"default" help:"What the jobs of these files are called together: a label holdfast.set that each gets, and by which --prune knows them."`
	Prune  bool     `help:"Delete the jobs of the set that aren't in the files any more."`
	DryRun bool     `help:"Show the plan, and change nothing; exit code 3 if there is anything to do."`
	Yes    bool     `short:"y" help:"Delete without asking."`
	JSON   bool     `name:"json" help:"Write the plan as JSON, whatever happens."`
}

// exitDrift says that the server isn't as the files say.
const exitDrift exitError = 3

// Help says how a file looks.
func (chronosApply) Help() string {
	return `A file has one or many documents, each a job, a calendar or a monitor in the words of the API, with its name. All of them are applied at once, or none if
anything is wrong with any. What is left out has its default, and a job that is so already isn't touched: applied again, the same files change nothing.
"holdfast chronos export" writes such files. Exit codes: 0 done, or nothing to do; 1 refused or failed; 2 called wrongly; 3 with --dry-run, if there is something to do.`
}

// applyAnswer is what the API says of a set.
type applyAnswer struct {
	Plan      string         `json:"plan"`
	Calendars []applyItem    `json:"calendars"`
	Monitors  []applyItem    `json:"monitors"`
	Jobs      []applyItem    `json:"jobs"`
	Summary   map[string]int `json:"summary"`
}

type applyItem struct {
	Kind   string          `json:"kind"`
	Name   string          `json:"name"`
	Action string          `json:"action"`
	File   string          `json:"file,omitempty"`
	Line   int             `json:"line,omitempty"`
	Before json.RawMessage `json:"-"`
	After  json.RawMessage `json:"-"`
	Fields []jobfile.Field `json:"fields,omitempty"` // that change
}

// UnmarshalJSON reads what the API says, which is more than what is told.
func (i *applyItem) UnmarshalJSON(text []byte) error {
	var told struct {
		Name, Action  string
		Before, After json.RawMessage
	}
	err := json.Unmarshal(text, &told)
	i.Name, i.Action, i.Before, i.After = told.Name, told.Action, told.Before, told.After
	return err
}

// applyReport is what --json writes.
type applyReport struct {
	Applied bool           `json:"applied"`
	DryRun  bool           `json:"dry_run"`
	Set     string         `json:"set"`
	Items   []applyItem    `json:"items"`
	Summary map[string]int `json:"summary,omitempty"`
	Errors  []fileError    `json:"errors,omitempty"`
	Error   string         `json:"error,omitempty"`
}

type fileError struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`
	Field  string `json:"field,omitempty"`
	Reason string `json:"reason"`
}

// faultyFiles are all that is wrong with the files.
type faultyFiles []*jobfile.Error

func (f faultyFiles) Error() string {
	lines := make([]string, len(f))
	for i, e := range f {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

func (c chronosApply) Run(ctx context.Context, out output) error {
	if err := c.check(); err != nil {
		return err
	}
	report := applyReport{DryRun: c.DryRun, Set: c.Set, Items: []applyItem{}}
	err := c.apply(ctx, out, &report)
	var faulty faultyFiles
	if errors.As(err, &faulty) {
		for _, f := range faulty {
			report.Errors = append(report.Errors, fileError{f.File, f.Line, f.Field, f.Reason})
			fmt.Fprintln(out.stderr, f.Error())
		}
		err = errors.New("nothing was changed")
	}
	if c.JSON {
		if err != nil && !errors.As(err, new(exitError)) {
			report.Error = err.Error()
		}
		enc := json.NewEncoder(out.stdout)
		enc.SetIndent("", "  ")
		if err := enc.Encode(report); err != nil {
			return err
		}
	}
	return err
}

func (c chronosApply) apply(ctx context.Context, out output, report *applyReport) error {
	docs, faults := jobfile.Read(c.Paths...)
	if len(faults) > 0 {
		return faultyFiles(faults)
	}
	if len(docs) == 0 {
		return fmt.Errorf("there is no job in %s", strings.Join(c.Paths, " "))
	}
	plan, err := c.send(ctx, docs, "", true)
	if err != nil {
		return err
	}
	report.Items, report.Summary = c.items(plan, docs), plan.Summary
	toDo := plan.Summary["create"] + plan.Summary["change"] + plan.Summary["prune"]
	if !c.JSON {
		if err := writePlan(out.stdout, report); err != nil {
			return err
		}
	}
	switch {
	case c.DryRun && toDo > 0:
		return exitDrift
	case c.DryRun || toDo == 0:
		return nil
	case plan.Summary["prune"] > 0 && !c.Yes:
		fmt.Fprintf(out.stderr, "Delete %s? [y/N] ", count(plan.Summary["prune"], "job"))
		answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
			return errors.New("not confirmed, nothing was changed (--yes deletes without asking)")
		}
	}
	if _, err := c.send(ctx, docs, plan.Plan, false); err != nil {
		return err
	}
	report.Applied = true
	if !c.JSON {
		_, err = fmt.Fprintln(out.stdout, "Applied.")
	}
	return err
}

// send has the API carry out the set, or try to.
func (c chronosApply) send(ctx context.Context, docs []*jobfile.Document, expect string, dryRun bool) (applyAnswer, error) {
	var (
		answer applyAnswer
		lists  = map[jobfile.Kind][]json.RawMessage{jobfile.Job: {}, jobfile.Calendar: {}, jobfile.Monitor: {}}
	)
	for _, d := range docs {
		lists[d.Kind] = append(lists[d.Kind], d.JSON)
	}
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	request := map[string]any{"set": c.Set, "prune": c.Prune, "expect": expect}
	for kind, list := range lists {
		request[string(kind)+"s"] = list
	}
	if err := enc.Encode(request); err != nil {
		return answer, err
	}
	err := c.call(ctx, http.MethodPost, "/v1/apply?dry_run="+strconv.FormatBool(dryRun), body.Bytes(), &answer)
	if refused, ok := errors.AsType[*problem](err); ok && len(refused.Errors) > 0 {
		return answer, placed(refused, docs)
	}
	return answer, err
}

var setPart = regexp.MustCompile(`^body\.(job|calendar|monitor)s\[(\d+)\](?:\.(.*))?$`)

// placed says where in the files it is what the API refuses.
func placed(refused *problem, docs []*jobfile.Document) error {
	var found faultyFiles
	for _, e := range refused.Errors {
		m := setPart.FindStringSubmatch(e.Location)
		if m == nil {
			if e.Location == "body.set" {
				return usage("--set: %s", e.Message)
			}
			return refused
		}
		kind, n := jobfile.Kind(m[1]), 0
		index, _ := strconv.Atoi(m[2])
		for _, d := range docs {
			if d.Kind != kind {
				continue
			}
			if n == index {
				found = append(found, &jobfile.Error{File: d.File, Line: d.Place(m[3]), Field: m[3], Reason: e.Message})
				break
			}
			n++
		}
	}
	slices.SortStableFunc(found, func(a, b *jobfile.Error) int { return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line) })
	return found
}

// items are what the API would do, with where the files say so and what it changes.
func (c chronosApply) items(plan applyAnswer, docs []*jobfile.Document) []applyItem {
	type key struct {
		kind jobfile.Kind
		name string
	}
	where := map[key]*jobfile.Document{}
	for _, d := range docs {
		where[key{d.Kind, d.Name}] = d
	}
	items := []applyItem{}
	add := func(kind jobfile.Kind, list []applyItem) {
		for _, item := range list {
			item.Kind = string(kind)
			if d := where[key{kind, item.Name}]; d != nil {
				item.File, item.Line = d.File, d.Line
			}
			if item.Action == "change" {
				item.Fields = jobfile.Diff(item.Before, item.After)
			}
			items = append(items, item)
		}
	}
	add(jobfile.Calendar, plan.Calendars)
	add(jobfile.Monitor, plan.Monitors)
	add(jobfile.Job, plan.Jobs)
	return items
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// signs stand before what is done.
var signs = map[string]string{"create": "+", "change": "~", "prune": "-", "left": "?"}

// writePlan tells what is to be done; of what is so already, only how much.
func writePlan(to io.Writer, r *applyReport) error {
	var b strings.Builder
	for _, item := range r.Items {
		sign, ok := signs[item.Action]
		if !ok {
			continue
		}
		fmt.Fprintf(&b, "%s %s %s %s", sign, item.Action, item.Kind, item.Name)
		if item.File != "" {
			fmt.Fprintf(&b, "  (%s:%d)", item.File, item.Line)
		}
		if item.Action == "left" {
			b.WriteString("  (not in the files any more; --prune deletes it)")
		}
		b.WriteByte('\n')
		for _, f := range item.Fields {
			fmt.Fprintf(&b, "    %s: %s → %s\n", f.Path, shownValue(f.Before), shownValue(f.After))
		}
	}
	fmt.Fprintf(&b, "%d to create, %d to change, %d to delete, %d unchanged\n",
		r.Summary["create"], r.Summary["change"], r.Summary["prune"], r.Summary["unchanged"])
	_, err := io.WriteString(to, b.String())
	return err
}

// maxShown is how much of a value a plan shows, in characters.
const maxShown = 120

func shownValue(v json.RawMessage) string {
	if v == nil {
		return "nothing"
	}
	if text := []rune(string(v)); len(text) > maxShown {
		return string(text[:maxShown]) + "…"
	}
	return string(v)
}
