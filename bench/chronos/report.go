package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"holdfast/bench/chart"
	"holdfast/bench/figure"
)

// goal is one of the figures that the project has set itself.
type goal struct {
	text, load string
	floor, aim string
	holds      func(figure.Spread) bool // the floor
	measure    func(Result) (figure.Spread, bool)
	write      func(float64) string
}

func atLeast(n float64) func(figure.Spread) bool {
	return func(s figure.Spread) bool { return s.Median >= n }
}

// under has no round above n.
func under(n float64) func(figure.Spread) bool {
	return func(s figure.Spread) bool { return s.High <= n }
}

func times(x float64) string        { return strconv.FormatFloat(x, 'f', 2, 64) }
func milliseconds(x float64) string { return figure.Duration(x * 1e3) }
func whole(x float64) string        { return strconv.FormatFloat(x, 'f', 0, 64) }

// beside is our queue's speed over the best of a family's.
func beside(f family) func(Result) (figure.Spread, bool) {
	return func(r Result) (figure.Spread, bool) {
		us, ok := r.row(nameOurs)
		best, ok2 := r.best(f)
		return ratio(us, best, perSecond), ok && ok2
	}
}

// of takes a kind of figure of one row.
func of(name, kind string) func(Result) (figure.Spread, bool) {
	return func(r Result) (figure.Spread, bool) {
		row, ok := r.row(name)
		return row.spread(kind), ok && len(row.Figures[kind]) > 0
	}
}

var goals = []goal{
	{"Runs that do nothing: Holdfast in process / River", "noop", "≥ 3", "≥ 5", atLeast(3), beside(familyRiver), times},
	{"Runs that do nothing: Holdfast in process / graphile-worker", "noop", "≥ 2", "≥ 3", atLeast(2), beside(familyGraphile), times},
	{"Webhooks due at one instant: Holdfast / a loop that only sends", "burst", "≥ 0.4", "≥ 0.5", atLeast(0.4), func(r Result) (figure.Spread, bool) {
		us, ok := r.row(nameBurst)
		loop, ok2 := r.row(nameBare)
		return ratio(us, loop, perSecond), ok && ok2
	}, times},
	{
		"Lateness with a million jobs, 1,000 a second, spread: p99", "lateness", "< 25 ms", "< 25 ms", under(25e3),
		of(latenessName(string(familyHoldfast), cohort{jobs: 1_000_000, rate: 1000, spread: true}), p99), figure.Duration,
	},
	{
		"Lateness with a million jobs, 1,000 at one instant: the last", "lateness", "< 200 ms", "< 200 ms", under(200e3),
		of(latenessName(string(familyHoldfast), cohort{jobs: 1_000_000, rate: 1000}), highest), figure.Duration,
	},
	{"Nothing due, a million jobs: what the busier replica uses of a core", "idle", "< 1 %", "< 1 %", under(1), of(nameIdle, coreReplica), percent},
	{"Leader killed: until the next leads", "leader", "< 2 s", "< 2 s", under(2000), of("Leader "+losses[0].name, gap), milliseconds},
	{"Leader frozen: until the next leads", "leader", "< 15 s", "< 15 s", under(15000), of("Leader "+losses[1].name, gap), milliseconds},
	{"Leader cut off silently: until the next leads", "leader", "< 15 s", "< 15 s", under(15000), of("Leader "+losses[2].name, gap), milliseconds},
	{"Leader lost, in any way: instants that were never delivered", "leader", "0", "0", under(0), func(r Result) (figure.Spread, bool) {
		var all []float64
		for _, row := range r.Rows {
			all = append(all, row.Figures[lost]...)
		}
		return figure.Of(all), len(all) > 0
	}, whole},
}

// summary is the table of the goals.
func (all Results) summary() string {
	var t strings.Builder
	t.WriteString("| | floor | aim | measured | over the rounds |\n|---|---:|---:|---:|---:|\n")
	for _, g := range goals {
		r, ok := all[g.load]
		var s figure.Spread
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
		fmt.Fprintf(&t, "| %s | %s | %s | **%s**%s | %s – %s |\n", g.text, g.floor, g.aim, g.write(s.Median), verdict, g.write(s.Low), g.write(s.High))
	}
	return t.String()
}

// table writes rows; a row that doesn't count says why.
func table(r Result, head string, cells func(Row) string) string {
	var t strings.Builder
	columns := strings.Count(head, "|") - 1
	t.WriteString(head + "\n|---" + strings.Repeat("|---:", columns-2) + "|---|\n")
	for _, row := range r.Rows {
		if row.Wrong != "" {
			fmt.Fprintf(&t, "| %s | not reported: the run wasn't correct |%s\n", row.Name, strings.Repeat(" |", columns-2))
			continue
		}
		fmt.Fprintf(&t, "| %s | %s | %s |\n", row.Name, cells(row), row.Note)
	}
	t.WriteString("\n" + r.conditions())
	return t.String()
}

// conditions are what the figures were measured with.
func (r Result) conditions() string {
	text := fmt.Sprintf("`%s`: %s. Measured %s on %s; PostgreSQL %s (%s); River %s", r.Command, rounds(r.Rounds), r.At.Format("2 January 2006"), r.Machine,
		r.Versions.PostgreSQL, r.Versions.Settings, r.Versions.River)
	if r.Versions.Graphile != "" {
		text += fmt.Sprintf("; graphile-worker %s on Node.js %s", r.Versions.Graphile, r.Versions.Node)
	}
	if r.Versions.PgCron != "" {
		text += "; pg_cron " + r.Versions.PgCron
	}
	return text + ".\n"
}

func rounds(n int) string {
	if n == 1 {
		return "one round"
	}
	return fmt.Sprintf("the medians of %d rounds", n)
}

func rate(s figure.Spread) string {
	return fmt.Sprintf("%s (%s – %s)", figure.Thousands(int64(s.Median)), figure.Thousands(int64(s.Low)), figure.Thousands(int64(s.High)))
}

// besides is what a row is compared with: our own in process.
func besides(r Result, row Row, base string) string {
	yardstick, ok := r.row(base)
	if !ok {
		return ""
	}
	return times(ratio(row, yardstick, perSecond).Median)
}

func noopTable(r Result) string {
	return "Ratio: speed, that of “" + nameOurs + "” being 1.\n\n" + table(r, "| | ratio | runs/s (spread) | |", func(row Row) string {
		return besides(r, row, nameOurs) + " | " + rate(row.spread(perSecond))
	})
}

func burstTable(r Result) string {
	return "Ratio: speed, that of “" + nameBare + "” being 1.\n\n" + table(r, "| | ratio | webhooks/s (spread) | seconds | p99 of the lateness | twice | |", func(row Row) string {
		late, twice := "", ""
		if s := row.spread(p99); len(row.Figures[p99]) > 0 {
			late, twice = figure.Duration(s.Median), whole(row.spread(doubled).High)
		}
		return fmt.Sprintf("%s | %s | %.2f | %s | %s", besides(r, row, nameBare), rate(row.spread(perSecond)), row.spread(seconds).Median, late, twice)
	})
}

func latenessTable(r Result) string {
	return table(r, "| | p50 | p99 | highest, of all rounds | samples | |", func(row Row) string {
		n := 0.0
		for _, x := range row.Figures[samples] {
			n += x
		}
		return fmt.Sprintf("%s | %s | %s | %s", figure.Duration(row.spread(p50).Median), figure.Duration(row.spread(p99).Median), figure.Duration(row.spread(highest).High), figure.Thousands(int64(n)))
	})
}

func leaderTable(r Result) string {
	return table(r, "| | until another leads (spread) | latest delivery | lost | doubled | |", func(row Row) string {
		s := row.spread(gap)
		return fmt.Sprintf("%s (%s – %s) | %s | %s | %s", milliseconds(s.Median), milliseconds(s.Low), milliseconds(s.High),
			figure.Duration(row.spread(highest).High), whole(row.spread(lost).High), whole(row.spread(doubled).High))
	})
}

func deadRowsTable(r Result) string {
	return "Ratio: speed, that of the same with nothing open being 1.\n\n" + table(r, "| | ratio | runs/s (spread) | |", func(row Row) string {
		base, _ := strings.CutSuffix(row.Name, with)
		base, _ = strings.CutSuffix(base, without)
		return besides(r, row, base+without) + " | " + rate(row.spread(perSecond))
	})
}

var colours = map[family]string{familyHoldfast: chart.Blue, familyRiver: chart.Orange, familyGraphile: chart.Green, familyPgCron: chart.Purple, familyBare: chart.Grey}

// plot draws a kind of figure of the rows that count.
func plot(r Result, title, subtitle, kind string, write func(float64) string) ([]byte, bool) {
	p := chart.Bars{Title: title, Subtitle: subtitle}
	for _, row := range r.Rows {
		if row.Wrong != "" || len(row.Figures[kind]) == 0 {
			continue
		}
		s := row.spread(kind)
		p.Rows = append(p.Rows, chart.Bar{Label: row.Name, Parts: chart.One(s.Median, colours[row.Family]), Low: s.Low, High: s.High, Text: write(s.Median)})
	}
	for _, f := range []family{familyHoldfast, familyRiver, familyGraphile, familyPgCron, familyBare} {
		if slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Family == f && row.Wrong == "" }) {
			p.Legend = append(p.Legend, chart.Part{Label: string(f), Colour: colours[f]})
		}
	}
	return p.SVG(), len(p.Rows) > 0
}

func count(x float64) string { return figure.Thousands(int64(x)) }

func drawNoop(r Result) ([]byte, bool) {
	return plot(r, "Runs that do nothing", "runs a second, median of the rounds, whiskers from the lowest to the highest; longer is better", perSecond, count)
}

func drawBurst(r Result) ([]byte, bool) {
	return plot(r, "Webhooks due at one instant", "webhooks a second, median of the rounds, whiskers over the rounds; longer is better", perSecond, count)
}

func drawDeadRows(r Result) ([]byte, bool) {
	return plot(r, "With dead rows that can't be cleared away", "runs a second, median of the rounds, whiskers over the rounds; longer is better", perSecond, count)
}

func drawLateness(r Result) ([]byte, bool) {
	return plot(r, "Lateness of the start", "99 % start within so many microseconds, median of the rounds, whiskers over the rounds; shorter is better", p99, figure.Duration)
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
		r, ok := all[l.name]
		if !ok {
			blocks[l.name] = "Not run.\n"
			continue
		}
		blocks[l.name] = l.table(r)
		if l.draw == nil {
			continue
		}
		if picture, ok := l.draw(r); ok {
			if err := os.WriteFile(filepath.Join(out, "chronos-"+l.name+".svg"), picture, 0o644); err != nil {
				return err
			}
			blocks[l.name] += fmt.Sprintf("\n![%s](%s/chronos-%s.svg)\n", l.title, filepath.Base(out), l.name)
		}
	}
	for name, block := range blocks {
		if text, err = figure.Place(text, "chronos", name, block); err != nil {
			return fmt.Errorf("%s: %w", page, err)
		}
	}
	return os.WriteFile(page, []byte(text), 0o644)
}
