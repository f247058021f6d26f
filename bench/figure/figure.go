// Package figure writes what was measured as people read it, and puts it into pages.
package figure

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Spread is the median of what was measured over the rounds of a run, and its neighbours.
type Spread struct{ Low, Median, High float64 }

// Of is the spread of some values; not numbers if there are none.
func Of(values []float64) Spread {
	if len(values) == 0 {
		return Spread{math.NaN(), math.NaN(), math.NaN()}
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Spread{sorted[0], (sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[n-1]}
}

// Duration writes microseconds with three digits.
func Duration(us float64) string {
	digits := func(x float64, unit string) string {
		return strconv.FormatFloat(x, 'f', max(0, 2-int(math.Floor(math.Log10(x)))), 64) + " " + unit
	}
	switch {
	case us <= 0:
		return "0"
	case us < 999.5:
		return digits(us, "µs")
	case us < 999.5e3:
		return digits(us/1e3, "ms")
	}
	return digits(us/1e6, "s")
}

// Thousands writes a whole number in groups of three.
func Thousands(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Place puts a program's block into a page, between the two comments that mark its place.
func Place(page, program, name, block string) (string, error) {
	begin, end := "<!-- "+program+": "+name+" -->\n", "<!-- "+program+": end -->\n"
	before, rest, ok := strings.Cut(page, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return "", fmt.Errorf("no place for the table %q", name)
	}
	return before + begin + "\n" + block + "\n" + end + after, nil
}
