package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"holdfast/chronos/cron"
)

// vector is a case of the files that the tests of package cron check against its oracle, as
// far as other libraries can be asked about it: an expression without options of ours.
type vector struct {
	rule        string // the file
	expr, zone  string
	loc         *time.Location
	from, until time.Time
	runs        []time.Time
	never       bool // refused: its day never comes
}

// readVectors reads the cases that can be compared, and counts the others.
func readVectors(dir string) (list []vector, others int, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, 0, err
	}
	if len(files) == 0 {
		return nil, 0, fmt.Errorf("no vectors in %s", dir)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, 0, err
		}
		for block := range strings.SplitSeq(string(text), "\n\n") {
			v, ok, err := readVector(block)
			switch {
			case err != nil:
				return nil, 0, fmt.Errorf("%s: %w", file, err)
			case ok:
				v.rule = strings.TrimSuffix(filepath.Base(file), ".txt")
				list = append(list, v)
			case v.expr != "":
				others++
			}
		}
	}
	return list, others, nil
}

// readVector reads one case; ok is false if it can't be compared.
func readVector(block string) (v vector, ok bool, err error) {
	var from, until, refused string
	var runs []string
	v.zone, ok = "UTC", true
	for line := range strings.Lines(block) {
		key, value, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
		value = strings.TrimSpace(value)
		switch key {
		case "schedule":
			v.expr = value
		case "zone":
			v.zone = value
		case "from":
			from = value
		case "until":
			until = value
		case "runs":
			runs = append(runs, value)
		case "refused":
			refused = value
		case "seed", "anchor", "day_match", "dst_gap", "dst_overlap", "start", "end", "exclude":
			ok = false
		}
	}
	v.never = strings.Contains(refused, "never comes") || strings.Contains(refused, "never falls") || strings.Contains(refused, "has no year")
	if v.expr == "" || !ok || from == "" && !v.never || strings.HasPrefix(v.expr, "@every") {
		return v, false, nil
	}
	if v.loc, err = cron.LoadLocation(v.zone); err != nil || v.never {
		return v, err == nil, err
	}
	for text, into := range map[string]*time.Time{from: &v.from, until: &v.until} {
		if *into, err = time.ParseInLocation("2006-01-02 15:04", text, v.loc); err != nil {
			return v, false, err
		}
	}
	for _, run := range runs {
		at, err := readRun(run)
		if err != nil {
			return v, false, err
		}
		v.runs = append(v.runs, at)
	}
	return v, true, nil
}

// readRun reads an instant such as "2026-03-29 03:00 +02:00 Sun   gap".
func readRun(text string) (time.Time, error) {
	f := strings.Fields(text)
	if len(f) < 3 {
		return time.Time{}, fmt.Errorf("no instant: %q", text)
	}
	clock := f[1]
	if len(clock) == len("15:04") {
		clock += ":00"
	}
	return time.Parse("2006-01-02 15:04:05 -07:00", f[0]+" "+clock+" "+f[2])
}
