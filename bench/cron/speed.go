package main

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"holdfast/chronos/cron"
)

// patterns are what most schedules look like.
var patterns = []string{
	"* * * * *", "*/5 * * * *", "*/15 * * * *", "0 * * * *", "30 2 * * *", "0 9-17 * * MON-FRI", "0 0 * * 0", "0 0 1 * *", "0 0 1,15 * *", "@daily",
}

const (
	turn     = 4 * time.Millisecond // how long one library runs before the next has its turn
	instants = 1024                 // that Next is asked about, in turn; a power of two
)

// figure is what one library took for one operation.
type figure struct {
	ns     float64 // median of the rounds
	allocs float64
}

// row is one operation by all libraries.
type row struct {
	name    string
	figures []figure
}

// ratio is our time as a part of that of the fastest other.
func (r row) ratio() float64 {
	fastest := r.figures[1].ns
	for _, f := range r.figures[2:] {
		fastest = min(fastest, f.ns)
	}
	return r.figures[ours].ns / fastest
}

func parseSpeed(rounds int) ([]row, error) {
	var rows []row
	for _, expr := range patterns {
		operations := make([]func(int), len(libraries))
		for i, l := range libraries {
			if err := l.parse(expr); err != nil {
				return nil, fmt.Errorf("%s: %q: %w", l.name, expr, err)
			}
			operations[i] = func(int) { _ = l.parse(expr) }
		}
		rows = append(rows, row{expr, compare(operations, rounds)})
	}
	return rows, nil
}

func nextSpeed(zone string, rounds int) ([]row, error) {
	loc, err := cron.LoadLocation(zone)
	if err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(4, 4))
	from := make([]time.Time, instants)
	for i := range from {
		from[i] = time.Date(2026, 1, 1, 0, 0, random.IntN(365*24*60*60), 0, time.UTC).In(loc)
	}
	var rows []row
	for _, expr := range patterns {
		operations := make([]func(int), len(libraries))
		for i, l := range libraries {
			next, err := l.read(expr, loc)
			if err != nil {
				return nil, fmt.Errorf("%s: %q: %w", l.name, expr, err)
			}
			operations[i] = func(n int) { next(from[n%instants]) }
		}
		rows = append(rows, row{expr, compare(operations, rounds)})
	}
	return rows, nil
}

// compare gives every operation a turn in each round, so that whatever else the machine does
// meets all of them, and takes the medians.
func compare(operations []func(int), rounds int) []figure {
	times := make([]int, len(operations)) // for one turn
	for i, op := range operations {
		for n := 64; ; n *= 2 {
			if took, _ := repeat(op, n); took >= turn/4 {
				times[i] = max(int(float64(n)*float64(turn)/float64(took)), 1)
				break
			}
		}
	}
	ns, allocs := make([][]float64, len(operations)), make([]float64, len(operations))
	for range rounds {
		for i, op := range operations {
			took, made := repeat(op, times[i])
			ns[i] = append(ns[i], float64(took.Nanoseconds())/float64(times[i]))
			allocs[i] = float64(made) / float64(times[i])
		}
	}
	figures := make([]figure, len(operations))
	for i := range figures {
		slices.Sort(ns[i])
		figures[i] = figure{ns[i][len(ns[i])/2], allocs[i]}
	}
	return figures
}

// repeat runs op n times; made is how many objects it allocated.
func repeat(op func(int), n int) (took time.Duration, made uint64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	for i := range n {
		op(i)
	}
	took = time.Since(began)
	runtime.ReadMemStats(&after)
	return took, after.Mallocs - before.Mallocs
}
