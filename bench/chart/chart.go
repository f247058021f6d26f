// Package chart draws bars as SVG, for pages that show the picture as it is: with its units, the
// spread of what was measured, and colours that are told apart by everybody.
package chart

import (
	"encoding/xml"
	"fmt"
	"math"
	"strings"
)

// Colours from the palette of Okabe and Ito, which stay different for every kind of eye.
const (
	Blue   = "#0072b2"
	Orange = "#e69f00"
	Purple = "#cc79a7"
	Green  = "#009e73"
	Sky    = "#56b4e9"
	Grey   = "#8a8f98"
)

// Bars is a chart of horizontal bars, all from zero.
type Bars struct {
	Title    string
	Subtitle string // what is shown, with its unit
	Rows     []Bar
	Legend   []Part // for bars of several parts or colours; may be empty
}

// Bar is one row.
type Bar struct {
	Label     string
	Parts     []Part  // from left to right
	Low, High float64 // of the whole bar, drawn as a whisker if they differ
	Text      string  // behind the bar; the value, as people read it
}

// Part is one piece of a bar, or of the legend.
type Part struct {
	Label  string // in the legend
	Value  float64
	Colour string
}

// One is a bar of a single piece.
func One(value float64, colour string) []Part { return []Part{{Value: value, Colour: colour}} }

// The measures of a chart, in pixels.
const (
	width      = 860
	margin     = 20
	labelWidth = 300
	textWidth  = 96 // behind the longest bar
	rowHeight  = 30
	barHeight  = 18
	titleSpace = 58
	legendRow  = 26
	axisSpace  = 22
)

// SVG draws the chart.
func (b Bars) SVG() []byte {
	top := titleSpace
	if len(b.Legend) > 0 {
		top += legendRow
	}
	height := top + rowHeight*len(b.Rows) + axisSpace + margin
	longest := 0.0
	for _, row := range b.Rows {
		longest = max(longest, row.length(), row.High)
	}
	if longest == 0 {
		longest = 1 // an empty axis
	}
	step := niceStep(longest)
	left, right := float64(margin+labelWidth), float64(width-margin-textWidth)
	x := func(value float64) float64 { return left + value/longest*(right-left) }

	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="title" font-family="system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif" font-size="13">`+"\n", width, height, width, height)
	fmt.Fprintf(&s, "<title id=\"title\">%s</title>\n", escape(b.Title+": "+b.Subtitle))
	fmt.Fprintf(&s, "<rect width=\"%d\" height=\"%d\" rx=\"8\" fill=\"#ffffff\"/>\n", width, height)
	text(&s, margin, 30, `font-size="17" font-weight="600" fill="#1c2128"`, b.Title)
	text(&s, margin, 50, `fill="#57606a"`, b.Subtitle)
	if len(b.Legend) > 0 {
		at := float64(margin)
		for _, part := range b.Legend {
			fmt.Fprintf(&s, "<rect x=\"%.1f\" y=\"%d\" width=\"12\" height=\"12\" rx=\"2\" fill=\"%s\"/>\n", at, titleSpace+4, part.Colour)
			text(&s, at+18, titleSpace+14.5, `fill="#1c2128"`, part.Label)
			at += 18 + 7.2*float64(len([]rune(part.Label))) + 22
		}
	}
	bottom := float64(top + rowHeight*len(b.Rows))
	for tick := 0.0; tick <= longest*1.0001; tick += step {
		fmt.Fprintf(&s, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#d8dee4\"/>\n", x(tick), top, x(tick), bottom)
		text(&s, x(tick), bottom+18, `text-anchor="middle" font-size="12" fill="#57606a"`, tickText(tick))
	}
	for i, row := range b.Rows {
		middle := float64(top) + float64(i)*rowHeight + rowHeight/2
		text(&s, left-10, middle+4.5, `text-anchor="end" fill="#1c2128"`, row.Label)
		from := 0.0
		for _, part := range row.Parts {
			fmt.Fprintf(&s, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>\n",
				x(from), middle-barHeight/2, max(1, x(from+part.Value)-x(from)), barHeight, part.Colour)
			from += part.Value
		}
		if row.High > row.Low {
			whisker(&s, x(row.Low), x(row.High), middle)
		}
		text(&s, x(max(from, row.High))+8, middle+4.5, `font-weight="600" fill="#1c2128"`, row.Text)
	}
	fmt.Fprintf(&s, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#57606a\"/>\n", left, top, left, bottom)
	s.WriteString("</svg>\n")
	return []byte(s.String())
}

func (b Bar) length() float64 {
	sum := 0.0
	for _, part := range b.Parts {
		sum += part.Value
	}
	return sum
}

// whisker spans what was measured from the lowest to the highest. Its white edge keeps it visible on a dark bar.
func whisker(s *strings.Builder, low, high, middle float64) {
	path := fmt.Sprintf("M%.1f %.1fH%.1fM%.1f %.1fv8M%.1f %.1fv8", low, middle, high, low, middle-4, high, middle-4)
	fmt.Fprintf(s, "<path d=\"%s\" stroke=\"#ffffff\" stroke-width=\"3.6\" fill=\"none\" opacity=\"0.85\"/>\n", path)
	fmt.Fprintf(s, "<path d=\"%s\" stroke=\"#1c2128\" stroke-width=\"1.4\" fill=\"none\"/>\n", path)
}

func text(s *strings.Builder, x, y float64, attributes, content string) {
	fmt.Fprintf(s, "<text x=\"%.1f\" y=\"%.1f\" %s>%s</text>\n", x, y, attributes, escape(content))
}

func escape(content string) string {
	var s strings.Builder
	_ = xml.EscapeText(&s, []byte(content)) // a Builder doesn't fail
	return s.String()
}

// niceStep divides an axis into three to seven parts of 1, 2 or 5 times a power of ten.
func niceStep(longest float64) float64 {
	if longest <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(longest)))
	for _, factor := range []float64{0.2, 0.5, 1, 2} {
		if longest/(factor*power) <= 6.5 {
			return factor * power
		}
	}
	return 2 * power
}

func tickText(value float64) string {
	switch {
	case value >= 1e6:
		return fmt.Sprintf("%g M", value/1e6)
	case value >= 1e4:
		return fmt.Sprintf("%g k", value/1e3)
	}
	return fmt.Sprintf("%.4g", value)
}
