package web

import (
	"fmt"
	"strings"
	"time"
)

// Plots are drawn in a box of plotWidth by plotHeight, which the page stretches to the room
// there is; lines keep their width.
const (
	plotWidth  = 1000.0
	plotHeight = 200.0
	// maxBarWidth keeps a few runs from becoming a wall.
	maxBarWidth = 24.0
)

// stepPlot draws two counters over a row of changes: each holds until the next change, and each
// change has the same room, since changes come in bursts.
type stepPlot struct {
	Scale    []int64 // from the top down to 0
	Line     string  // on hand
	Area     string  // held
	Spots    []spot
	From, To time.Time
	Summary  string
}

// spot is where the pointer learns more.
type spot struct {
	X, Width float64
	Text     string
}

// level is both counters after a change.
type level struct {
	at           time.Time
	onHand, held int64
	text         string
}

// newStepPlot draws the levels, oldest first; nil if there are none.
func newStepPlot(levels []level) *stepPlot {
	if len(levels) == 0 {
		return nil
	}
	var most int64
	for _, l := range levels {
		most = max(most, l.onHand, l.held)
	}
	top := roundUp(most)
	y := func(n int64) float64 { return plotHeight * (1 - float64(n)/float64(top)) }
	width := plotWidth / float64(len(levels))
	var line, area strings.Builder
	spots := make([]spot, len(levels))
	fmt.Fprintf(&area, "M0 %.1f", plotHeight)
	for i, l := range levels {
		left, right := float64(i)*width, float64(i+1)*width
		if i == 0 {
			fmt.Fprintf(&line, "M0 %.1fH%.2f", y(l.onHand), right)
		} else {
			fmt.Fprintf(&line, "V%.1fH%.2f", y(l.onHand), right)
		}
		fmt.Fprintf(&area, "V%.1fH%.2f", y(l.held), right)
		spots[i] = spot{left, width, l.text}
	}
	fmt.Fprintf(&area, "V%.1fZ", plotHeight)
	first, last := levels[0], levels[len(levels)-1]
	return &stepPlot{
		Scale: []int64{top, top / 2, 0}, Line: line.String(), Area: area.String(), Spots: spots, From: first.at, To: last.at,
		Summary: fmt.Sprintf("On hand went from %s to %s, held from %s to %s, in %d changes.",
			number(first.onHand), number(last.onHand), number(first.held), number(last.held), len(levels)),
	}
}

// roundUp is the smallest round number that isn't less than n. Its half is round as well.
func roundUp(n int64) int64 {
	for unit := int64(1); ; unit *= 10 {
		for _, digit := range []int64{2, 4, 6, 8, 10, 12, 16} {
			if digit*unit >= n {
				return digit * unit
			}
		}
	}
}

// barPlot draws how long each of a row of runs took.
type barPlot struct {
	Scale    []string // from the top down to 0
	Bars     []bar
	From, To time.Time
	Summary  string
}

type bar struct {
	spot
	Y, Height float64
	Kind      string // a status, which decides how the bar looks
}

// took is one run for a barPlot; timed is false if it took no time because it never ran.
type took struct {
	at    time.Time
	long  time.Duration
	timed bool
	kind  string
	text  string
}

// newBarPlot draws the runs, oldest first; nil if none of them has run.
func newBarPlot(runs []took) *barPlot {
	var most time.Duration
	var timed int
	for _, r := range runs {
		if r.timed {
			timed++
			most = max(most, r.long)
		}
	}
	if timed == 0 {
		return nil
	}
	top := time.Duration(roundUp(max(1, (most+time.Millisecond-1).Milliseconds()))) * time.Millisecond
	p := &barPlot{
		Scale: []string{millis(top), millis(top / 2), "0"}, From: runs[0].at, To: runs[len(runs)-1].at,
		Summary: fmt.Sprintf("%d runs took at most %s.", timed, millis(most)),
	}
	room := plotWidth / float64(len(runs))
	width := min(room*0.7, maxBarWidth)
	for i, r := range runs {
		height := 3.0
		if r.timed {
			height = max(height, plotHeight*float64(r.long)/float64(top))
		}
		p.Bars = append(p.Bars, bar{
			spot: spot{(float64(i)+0.5)*room - width/2, width, r.text}, Y: plotHeight - height, Height: height, Kind: r.kind,
		})
	}
	return p
}

// stack is a bar of parts that add up.
type stack struct {
	Parts   []part
	Summary string
}

type part struct {
	X, Width float64
	Kind     string
	Text     string
}

// add appends a part of so many units of total.
func (s *stack) add(kind, text string, units, total int64) {
	if units <= 0 || total <= 0 {
		return
	}
	x := 0.0
	if n := len(s.Parts); n > 0 {
		x = s.Parts[n-1].X + s.Parts[n-1].Width
	}
	s.Parts = append(s.Parts, part{x, plotWidth * float64(units) / float64(total), kind, number(units) + " " + text})
	if s.Summary != "" {
		s.Summary += ", "
	}
	s.Summary += number(units) + " " + text
}
