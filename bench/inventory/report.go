package main

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"holdfast/bench/figure"
)

// goal is one of the ratios that the project has set itself.
type goal struct {
	text       string
	load       string
	floor, aim string
	holds      func(spread) bool // the floor
	measure    func(Result) (spread, bool)
	decimals   int
}

func atLeast(n float64) func(spread) bool { return func(s spread) bool { return s.Median >= n } }
func atMost(n float64) func(spread) bool  { return func(s spread) bool { return s.Median <= n } }

// between measures the ratio of two rows.
func between(a, b string, value func(Turn) float64) func(Result) (spread, bool) {
	return func(r Result) (spread, bool) {
		above, ok := r.row(a)
		below, ok2 := r.row(b)
		return ratio(above, below, value), ok && ok2
	}
}

var goals = []goal{
	{
		text: "Hot SKU: Holdfast over HTTP / the do-nothing handler", load: "hot", floor: "≥ 0.5", aim: "≥ 0.6", decimals: 2,
		holds: atLeast(0.5), measure: between(nameHTTP, nameNothing, perSecond),
	},
	{
		text: "Hot SKU: Holdfast over HTTP / the best one transaction per click", load: "hot", floor: "≥ 10", aim: "≥ 10", decimals: 1,
		holds: atLeast(10), measure: func(r Result) (spread, bool) {
			ours, ok := r.row(nameHTTP)
			best, ok2 := r.best(transactions)
			return ratio(ours, best, perSecond), ok && ok2
		},
	},
	{
		text: "Hot SKU: Holdfast in process / Redis script, `appendfsync always`", load: "hot", floor: "≥ 1.0", aim: "≥ 1.5", decimals: 2,
		holds: atLeast(1), measure: between(nameInProcess, nameRedis("always"), perSecond),
	},
	{
		text: "50,000 clicks on 100 units: time of Holdfast over HTTP / of the do-nothing handler", load: "clicks", floor: "≤ 1.5", aim: "≤ 1.5", decimals: 2,
		holds: atMost(1.5), measure: between(nameHTTP, nameNothing, seconds),
	},
	{
		text: "50,000 clicks on 100 units: units held, in every round", load: "clicks", floor: "100", aim: "100",
		holds: func(s spread) bool { return s.Low == clickUnits && s.High == clickUnits }, measure: func(r Result) (spread, bool) {
			row, ok := r.row(nameHTTP)
			return row.spread(func(t Turn) float64 { return float64(t.Told.Reserved) }), ok
		},
	},
	{
		text: "Carts in opposite orders: deadlocks and errors, in process and over HTTP", load: "carts", floor: "0", aim: "0",
		holds: func(s spread) bool { return s.High == 0 }, measure: func(r Result) (spread, bool) {
			within, ok := r.row(nameInProcess)
			served, ok2 := r.row(nameHTTP)
			deadlocks := func(t Turn) float64 { return float64(t.Counts["deadlocks"]) }
			return figure.Of(append(within.each(deadlocks), served.each(deadlocks)...)), ok && ok2
		},
	},
	{
		text: "One client alone: median time of Holdfast in process / of a single-statement transaction", load: "single", floor: "≤ 1.5", aim: "≤ 1.5", decimals: 2,
		holds: atMost(1.5), measure: between(nameInProcess, string(statement), p50),
	},
	{
		text: "Hot SKU in process: with ten million finished reservations / with none", load: "history", floor: "≥ 0.9", aim: "≥ 0.9", decimals: 2,
		holds: atLeast(0.9), measure: func(r Result) (spread, bool) {
			if len(r.Rows) != 2 {
				return spread{}, false
			}
			return ratio(r.Rows[1], r.Rows[0], perSecond), r.Rows[0].Correct && r.Rows[1].Correct
		},
	},
}

// summary is the table of the goals.
func (all Results) summary() string {
	var t strings.Builder
	t.WriteString("| ratio | floor | aim | measured | over the rounds |\n|---|---:|---:|---:|---:|\n")
	for _, g := range goals {
		r, ok := all[g.load]
		var s spread
		if ok {
			s, ok = g.measure(r)
		}
		if !ok {
			fmt.Fprintf(&t, "| %s | %s | %s | not run | |\n", g.text, g.floor, g.aim)
			continue
		}
		verdict := ""
		if !g.holds(s) {
			verdict = " (missed)"
		}
		number := func(x float64) string { return strconv.FormatFloat(x, 'f', g.decimals, 64) }
		fmt.Fprintf(&t, "| %s | %s | %s | **%s**%s | %s – %s |\n", g.text, g.floor, g.aim, number(s.Median), verdict, number(s.Low), number(s.High))
	}
	return t.String()
}

// yardstick is what each row of a load's table is compared with.
func (r Result) yardstick(l load) Row {
	name := nameNothing
	switch l.name {
	case "history":
		return r.Rows[0]
	case "single":
		name = string(statement)
	}
	row, _ := r.row(name)
	return row
}

// table is one load's, in Markdown, ratios first.
func (all Results) table(l load) string {
	r := all[l.name]
	base := r.yardstick(l)
	value, compared := perSecond, "speed"
	if l.name == "single" {
		value, compared = p50, "median time"
	} else if l.name == "clicks" {
		value, compared = seconds, "time"
	}
	var t strings.Builder
	fmt.Fprintf(&t, "Ratio: %s, that of “%s” being 1.\n\n", compared, base.Name)
	if l.name == "clicks" {
		t.WriteString("| | ratio | seconds (spread) | clicks/s | p50 | p99 | processor time per click | |\n")
	} else {
		t.WriteString("| | ratio | commands/s (spread) | p50 | p99 | processor time per command | |\n")
	}
	columns := strings.Count(t.String()[strings.Index(t.String(), "\n\n")+2:], "|") - 1
	t.WriteString("|---" + strings.Repeat("|---:", columns-3) + "|---|---|\n")
	for _, row := range r.ordered(l) {
		if !row.Correct {
			fmt.Fprintf(&t, "| %s | not reported: the run wasn't correct |%s\n", row.Name, strings.Repeat(" |", columns-2))
			continue
		}
		fmt.Fprintf(&t, "| %s | %s | ", row.Name, ratioText(ratio(row, base, value).Median))
		if l.name == "clicks" {
			s := row.spread(seconds)
			fmt.Fprintf(&t, "%.2f (%.2f – %.2f) | ", s.Median, s.Low, s.High)
			fmt.Fprintf(&t, "%s | ", figure.Thousands(int64(row.spread(perSecond).Median)))
		} else {
			s := row.spread(perSecond)
			fmt.Fprintf(&t, "%s (%s – %s) | ", figure.Thousands(int64(s.Median)), figure.Thousands(int64(s.Low)), figure.Thousands(int64(s.High)))
		}
		fmt.Fprintf(&t, "%s | %s | %s | %s |\n", figure.Duration(row.spread(p50).Median), figure.Duration(row.spread(func(t Turn) float64 { return t.P99 }).Median),
			cpuText(row), remarks(row))
	}
	if r.Versions.Redis == "" && l.name != "history" {
		t.WriteString("\nRedis: not run, no redis-server was installed.\n")
	}
	fmt.Fprintf(&t, "\n%s, %s, %s. Measured %s on %s; PostgreSQL %s (%s)", callersText(r.Rows[0].Callers), r.lengthText(l), keysText(r.Keys),
		r.At.Format("2 January 2006"), r.Machine, r.Versions.PostgreSQL, r.Versions.Settings)
	if r.Versions.Redis != "" {
		fmt.Fprintf(&t, "; Redis %s", r.Versions.Redis)
	}
	t.WriteString(".\n")
	return t.String()
}

func callersText(n int) string {
	if n == 1 {
		return "One caller"
	}
	return fmt.Sprintf("%d callers", n)
}

func keysText(keys bool) string {
	if keys {
		return "each command with an idempotency key"
	}
	return "no idempotency keys"
}

func (r Result) lengthText(l load) string {
	if l.name == "clicks" {
		return fmt.Sprintf("%d rounds of %s clicks", r.Rounds, figure.Thousands(clickCount))
	}
	return fmt.Sprintf("%d rounds of %s", r.Rounds, r.Length)
}

// ordered puts a load's rows in the order of its table.
func (r Result) ordered(l load) []Row {
	rows := slices.Clone(r.Rows)
	if l.name != "history" {
		slices.SortStableFunc(rows, bySpeed)
	}
	return rows
}

// parts are what processor time is told of, in this order.
var parts = []string{ownPart, "replicas", "do-nothing", "PostgreSQL", "Redis always", "Redis everysec"}

func partName(part string) string {
	switch part {
	case "Redis always", "Redis everysec":
		return "Redis"
	case "do-nothing":
		return "server"
	}
	return part
}

// partsOf are the parts whose time counts for a row: those that it works with.
func partsOf(row Row) map[string]float64 {
	used := map[string]float64{}
	for _, part := range parts {
		switch {
		case part == "replicas" && row.Family != ours, part == "do-nothing" && row.Family != nothing,
			part == "PostgreSQL" && row.Family != ours && row.Family != transactions,
			strings.HasPrefix(part, "Redis") && !strings.HasSuffix(row.Name, strings.TrimPrefix(part, "Redis")):
			continue
		}
		if s := row.spread(func(t Turn) float64 { return t.CPU[part] }); s.Median > 0 {
			used[part] = s.Median
		}
	}
	return used
}

func cpuText(row Row) string {
	used := partsOf(row)
	var texts []string
	for _, part := range parts {
		if n, ok := used[part]; ok {
			texts = append(texts, fmt.Sprintf("%s %s", partName(part), figure.Duration(n)))
		}
	}
	return strings.Join(texts, ", ")
}

func remarks(row Row) string {
	var texts []string
	counts := map[string]int64{}
	for _, t := range row.Turns {
		for name, n := range t.Counts {
			counts[name] += n
		}
	}
	for _, name := range []string{"deadlocks", "attempts lost"} {
		if n := counts[name]; n > 0 {
			texts = append(texts, figure.Thousands(n)+" "+name)
		}
	}
	if row.Note != "" {
		texts = append(texts, row.Note)
	}
	return strings.Join(texts, "; ")
}

func ratioText(x float64) string {
	switch {
	case math.IsNaN(x):
		return ""
	case x < 0.0995:
		return fmt.Sprintf("%.3f", x)
	case x < 9.95:
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

// render makes the plots and puts the tables into the page.
func render(out string, all Results) error {
	page := strings.TrimSuffix(out, "/") + ".md"
	content, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	text := string(content)
	blocks := map[string]string{"goals": all.summary()}
	for _, l := range loads {
		if _, ok := all[l.name]; !ok {
			blocks[l.name] = "Not run.\n"
			continue
		}
		blocks[l.name] = all.table(l)
		if err := all.draw(out, l); err != nil {
			return err
		}
	}
	for name, block := range blocks {
		if text, err = figure.Place(text, "inventory", name, block); err != nil {
			return fmt.Errorf("%s: %w", page, err)
		}
	}
	return os.WriteFile(page, []byte(text), 0o644)
}
