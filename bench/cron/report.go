package main

import (
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"holdfast/bench/machine"
	"holdfast/chronos/cron"
)

// table writes rows of cells as Markdown; the first row is the head.
func table(w io.Writer, rows [][]string) {
	for i, row := range rows {
		fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(w, "|%s\n", strings.Repeat("---|", len(row)))
		}
	}
	fmt.Fprintln(w)
}

func reportHead(w io.Writer) {
	fmt.Fprintf(w, `# The schedule language beside other libraries

Written by `+"`cd bench && go run ./cron -out ../docs/benchmarks-cron.md`"+`; nothing here is claimed that the program didn't see.
Measured on %s; all are given the same zones, of the zone data %s.

`, machineLine(), cron.ZoneDataVersion())
	rows := [][]string{{"library", "version", "set up"}}
	for _, l := range libraries {
		rows = append(rows, []string{l.name, version(l.module), l.remark})
	}
	table(w, rows)
}

func machineLine() string {
	f := machine.Read()
	return fmt.Sprintf("%d × %s, %s, %s", f.Cores, f.CPU, f.System, f.Go)
}

// version is that of a module in this binary; our own has none.
func version(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == module && dep.Replace == nil {
				return dep.Version
			}
		}
	}
	return "this one"
}

func reportSpeed(w io.Writer, title, about string, rows []row) {
	fmt.Fprintf(w, "## %s\n\n%s\n\n", title, about)
	cells := [][]string{{"expression", "ours ÷ fastest other"}}
	for _, l := range libraries {
		cells[0] = append(cells[0], l.name)
	}
	for _, r := range rows {
		line := []string{"`" + r.name + "`", fmt.Sprintf("**%.2f**", r.ratio())}
		for _, f := range r.figures {
			line = append(line, fmt.Sprintf("%.0f ns, %.0f", f.ns, f.allocs))
		}
		cells = append(cells, line)
	}
	table(w, cells)
}

func reportVerdicts(w io.Writer, vectors []vector, others int, verdicts [][]verdict) {
	fmt.Fprintf(w, `## Where each is wrong

%d cases of `+"`chronos/cron/testdata/vectors`"+`, which the tests check against a brute-force oracle, were put to each library; %d more need an option or a
refusal of our own and were not. What a library doesn't read isn't counted as wrong. Some of these are choices that its documentation names, as
that of robfig/cron says that it leaves out what falls in a gap: the table says what happens, not what was promised.

`, len(vectors), others)
	summary := [][]string{{"rule", "cases"}}
	for _, l := range libraries {
		summary[0] = append(summary[0], l.name)
	}
	var rules []string
	for _, v := range vectors {
		if len(rules) == 0 || rules[len(rules)-1] != v.rule {
			rules = append(rules, v.rule)
		}
	}
	for _, rule := range append(rules, "") {
		cases, counts := 0, make([][3]int, len(libraries))
		for i, v := range vectors {
			if rule != "" && v.rule != rule {
				continue
			}
			cases++
			for n := range libraries {
				counts[n][verdicts[i][n].kind]++
			}
		}
		line := []string{rule, fmt.Sprint(cases)}
		if rule == "" {
			line[0] = "all"
		}
		for _, c := range counts {
			line = append(line, told(c))
		}
		summary = append(summary, line)
	}
	table(w, summary)

	cases := [][]string{{"rule", "expression", "zone"}}
	for _, l := range libraries[ours+1:] {
		cases[0] = append(cases[0], l.name)
	}
	for i, v := range vectors {
		line, anyWrong := []string{v.rule, "`" + v.expr + "`", v.zone}, false
		for n := range libraries[ours+1:] {
			got := verdicts[i][n+ours+1]
			anyWrong = anyWrong || got.kind == wrong
			line = append(line, [...]string{"right", got.text, "not read"}[got.kind])
		}
		if anyWrong {
			cases = append(cases, line)
		}
	}
	table(w, cases)
}

func told(c [3]int) string {
	var parts []string
	for k, word := range [...]string{"right", "wrong", "not read"} {
		if c[k] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c[k], word))
		}
	}
	return strings.Join(parts, ", ")
}
