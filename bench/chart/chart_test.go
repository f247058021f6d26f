package chart

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestChartsAreXML(t *testing.T) {
	t.Parallel()
	for name, bars := range map[string]Bars{
		"empty": {Title: "none"},
		"zero":  {Rows: []Bar{{Label: "a", Parts: One(0, Blue)}}},
		"marks": {Title: `<&"`, Rows: []Bar{{Label: "<b>", Parts: One(3, Blue), Low: 2, High: 4, Text: "3 & more"}}, Legend: One(1, Grey)},
	} {
		svg := string(bars.SVG())
		for d := xml.NewDecoder(strings.NewReader(svg)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("%s: a place that isn't a number:\n%s", name, svg)
		}
	}
}

func TestSteps(t *testing.T) {
	t.Parallel()
	for longest, want := range map[float64]float64{0: 1, 1: 0.2, 7: 2, 10: 2, 62_000: 10_000, 96_500: 20_000} {
		if got := niceStep(longest); got != want {
			t.Errorf("up to %v in steps of %v, want %v", longest, got, want)
		}
	}
}
