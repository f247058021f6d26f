package main

import (
	"cmp"
	"slices"
	"time"

	"holdfast/bench/figure"
	"holdfast/bench/machine"
)

// Turn is what one contestant did in one round.
type Turn struct {
	Seconds   float64            `json:"seconds"` // that were measured
	Done      int64              `json:"done"`    // commands answered in them
	PerSecond float64            `json:"per_second"`
	P50       float64            `json:"p50_us"`
	P90       float64            `json:"p90_us"`
	P99       float64            `json:"p99_us"`
	Max       float64            `json:"max_us"`
	CPU       map[string]float64 `json:"cpu_us"` // of each part, for one command
	Told      books              `json:"told"`   // in the whole turn
	Counts    map[string]int64   `json:"counts,omitempty"`
	Errors    map[string]int64   `json:"errors,omitempty"`
}

// Row is one contestant's turns.
type Row struct {
	Name    string `json:"name"`
	Family  family `json:"family"`
	Note    string `json:"note,omitempty"`
	Callers int    `json:"callers"`
	Turns   []Turn `json:"turns"`
	Correct bool   `json:"correct"`
}

func (r Row) each(value func(Turn) float64) []float64 {
	out := make([]float64, len(r.Turns))
	for i, t := range r.Turns {
		out[i] = value(t)
	}
	return out
}

func (r Row) spread(value func(Turn) float64) spread { return figure.Of(r.each(value)) }

func perSecond(t Turn) float64 { return t.PerSecond }
func p50(t Turn) float64       { return t.P50 }
func seconds(t Turn) float64   { return t.Seconds }

// Result is one load's rows, and what they were measured with.
type Result struct {
	At       time.Time     `json:"at"`
	Rows     []Row         `json:"rows"`
	Rounds   int           `json:"rounds"`
	Length   string        `json:"length"` // of a turn
	Keys     bool          `json:"keys"`
	Machine  machine.Facts `json:"machine"`
	Versions versions      `json:"versions"`
}

// row finds a correct row by its name.
func (r Result) row(name string) (Row, bool) {
	i := slices.IndexFunc(r.Rows, func(row Row) bool { return row.Name == name && row.Correct })
	if i < 0 {
		return Row{}, false
	}
	return r.Rows[i], true
}

// best finds the correct row of a family that did most.
func (r Result) best(f family) (Row, bool) {
	var best Row
	for _, row := range r.Rows {
		if row.Family == f && row.Correct && (best.Name == "" || row.spread(perSecond).Median > best.spread(perSecond).Median) {
			best = row
		}
	}
	return best, best.Name != ""
}

// ratio divides one row's figures by another's, round by round: they were taken one after the
// other, so what the machine did to both cancels out.
func ratio(a, b Row, value func(Turn) float64) spread {
	var ratios []float64
	for i := range min(len(a.Turns), len(b.Turns)) {
		ratios = append(ratios, value(a.Turns[i])/value(b.Turns[i]))
	}
	return figure.Of(ratios)
}

// Results are the latest of each load.
type Results map[string]Result

// bySpeed puts the fastest row first.
func bySpeed(a, b Row) int {
	return cmp.Compare(b.spread(perSecond).Median, a.spread(perSecond).Median)
}
