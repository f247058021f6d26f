package main

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"time"

	"holdfast/bench/figure"
	"holdfast/bench/machine"
)

// Row is one contestant's figures, one of each kind for each round.
type Row struct {
	Name    string               `json:"name"`
	Family  family               `json:"family"`
	Note    string               `json:"note,omitempty"`
	Figures map[string][]float64 `json:"figures"`
	Wrong   string               `json:"wrong,omitempty"` // why its figures don't count
}

// family is what a contestant belongs to, and gives it its colour.
type family string

const (
	familyHoldfast family = "Holdfast"
	familyRiver    family = "River"
	familyGraphile family = "graphile-worker"
	familyPgCron   family = "pg_cron"
	familyBare     family = "bare loop"
)

// The kinds of figures.
const (
	perSecond = "per_second"
	seconds   = "seconds"
	p50       = "p50_us"
	p99       = "p99_us"
	highest   = "max_us"
	gap       = "gap_ms"
	lost      = "lost"
	doubled   = "doubled"
	samples   = "samples"

	coreReplica = "core_replica_percent"
	coreServer  = "core_postgresql_percent"
)

func newRow(name string, f family, note string) *Row {
	return &Row{Name: name, Family: f, Note: note, Figures: map[string][]float64{}}
}

func (r *Row) add(kind string, value float64) { r.Figures[kind] = append(r.Figures[kind], value) }

func (r Row) spread(kind string) figure.Spread { return figure.Of(r.Figures[kind]) }

// fault notes that a figure can't be believed.
func (r *Row) fault(format string, args ...any) {
	if r.Wrong == "" {
		r.Wrong = fmt.Sprintf(format, args...)
	}
}

// rows drops the pointers, and fails if a row is wrong.
func rowsOf(all []*Row) (rows []Row, err error) {
	for _, r := range all {
		rows = append(rows, *r)
		if r.Wrong != "" {
			err = errors.Join(err, fmt.Errorf("%s: %s", r.Name, r.Wrong))
		}
	}
	return rows, err
}

// Result is one load's rows, and what they were measured with.
type Result struct {
	At       time.Time     `json:"at"`
	Command  string        `json:"command"`
	Rows     []Row         `json:"rows"`
	Rounds   int           `json:"rounds"`
	Machine  machine.Facts `json:"machine"`
	Versions versions      `json:"versions"`
}

// row finds a row that counts.
func (r Result) row(name string) (Row, bool) {
	i := slices.IndexFunc(r.Rows, func(row Row) bool { return row.Name == name && row.Wrong == "" })
	if i < 0 {
		return Row{}, false
	}
	return r.Rows[i], true
}

// best finds the row of a family that counts and did most.
func (r Result) best(f family) (best Row, ok bool) {
	for _, row := range r.Rows {
		if row.Family == f && row.Wrong == "" && (!ok || row.spread(perSecond).Median > best.spread(perSecond).Median) {
			best, ok = row, true
		}
	}
	return best, ok
}

// ratio divides one row's figures by another's, round by round: what the machine did to both cancels out.
func ratio(a, b Row, kind string) figure.Spread {
	var ratios []float64
	for i := range min(len(a.Figures[kind]), len(b.Figures[kind])) {
		if q := a.Figures[kind][i] / b.Figures[kind][i]; !math.IsNaN(q) {
			ratios = append(ratios, q)
		}
	}
	return figure.Of(ratios)
}

// Results are the latest of each load.
type Results map[string]Result

func resultsFile(out string) string { return filepath.Join(out, "chronos.json") }
