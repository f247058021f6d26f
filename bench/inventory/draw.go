package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"holdfast/bench/chart"
	"holdfast/bench/figure"
)

var colours = map[family]string{ours: chart.Blue, transactions: chart.Orange, redisScript: chart.Purple, nothing: chart.Grey}

// draw makes a load's plots.
func (all Results) draw(out string, l load) error {
	r := all[l.name]
	value, subtitle := perSecond, "commands a second, median of the rounds, whiskers from the lowest to the highest; longer is better"
	number := func(x float64) string { return figure.Thousands(int64(x)) }
	switch l.name {
	case "clicks":
		value, subtitle = seconds, "seconds until 50,000 clicks are answered, median of the rounds, whiskers from the lowest to the highest; shorter is better"
		number = func(x float64) string { return fmt.Sprintf("%.2f s", x) }
	case "single":
		value, subtitle = p50, "microseconds for one reservation, median, whiskers over the rounds; shorter is better"
		number = figure.Duration
	}
	plot := chart.Bars{Title: l.title, Subtitle: subtitle}
	for _, row := range r.ordered(l) {
		if !row.Correct {
			continue
		}
		s := row.spread(value)
		plot.Rows = append(plot.Rows, chart.Bar{
			Label: row.Name, Parts: chart.One(s.Median, colours[row.Family]), Low: s.Low, High: s.High, Text: number(s.Median),
		})
	}
	if plot.Legend = r.families(); len(plot.Legend) == 1 {
		plot.Legend = nil
	}
	if err := os.WriteFile(filepath.Join(out, "inventory-"+l.name+".svg"), plot.SVG(), 0o644); err != nil {
		return err
	}
	if l.name != "hot" {
		return nil
	}
	return os.WriteFile(filepath.Join(out, "inventory-cpu.svg"), r.cpuPlot(l).SVG(), 0o644)
}

// families are the legend: those that have a row to be seen.
func (r Result) families() []chart.Part {
	var legend []chart.Part
	for _, f := range []family{ours, transactions, redisScript, nothing} {
		if slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Family == f && row.Correct }) {
			legend = append(legend, chart.Part{Label: string(f), Colour: colours[f]})
		}
	}
	return legend
}

// cpuPlot shows where the processor time of a command goes. The forms of one transaction per
// click take so much that the others couldn't be seen beside them.
func (r Result) cpuPlot(l load) chart.Bars {
	partColours := map[string]string{
		ownPart: chart.Grey, "replicas": chart.Blue, "do-nothing": chart.Sky, "PostgreSQL": chart.Green, "Redis always": chart.Purple, "Redis everysec": chart.Purple,
	}
	plot := chart.Bars{
		Title: l.title + ": processor time of a command", Subtitle: "microseconds on one of the cores, median of the rounds; what is compared in process works in the client",
		Legend: []chart.Part{
			{Label: "client", Colour: chart.Grey},
			{Label: "replicas", Colour: chart.Blue},
			{Label: "do-nothing handler", Colour: chart.Sky},
			{Label: "PostgreSQL", Colour: chart.Green},
			{Label: "Redis", Colour: chart.Purple},
		},
	}
	for _, row := range r.ordered(l) {
		if !row.Correct || row.Family == transactions {
			continue
		}
		used := partsOf(row)
		bar := chart.Bar{Label: row.Name}
		sum := 0.0
		for _, part := range parts {
			if used[part] > 0 {
				bar.Parts = append(bar.Parts, chart.Part{Value: used[part], Colour: partColours[part]})
				sum += used[part]
			}
		}
		bar.Text = figure.Duration(sum)
		plot.Rows = append(plot.Rows, bar)
	}
	return plot
}
