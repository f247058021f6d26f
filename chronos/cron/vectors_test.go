package cron_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/chronos/cron"
)

var fill = flag.Bool("fill", false, "write the runs that the oracle finds into the vector files, for reading over")

// vector is one case of a file in testdata/vectors: lines of a key and a value,
// with an empty line after the case and # before remarks.
//
//	schedule, every or at          what to parse
//	zone (UTC), seed, anchor       how; zone is a name for LoadLocation
//	day_match, dst_gap, dst_overlap
//	start, end, exclude            of the timetable; exclude is a date or "a to b"
//	exclude_zone                   of the excluded dates, if not the schedule's
//	from, until                    the window, on the zone's clock, half open
//	runs                           an instant, and perhaps the kind of its note
//	says                           the description
//	warns                          a warning's code and part of its text
//	refused                        the field, and part of the reason
type vector struct {
	at    string // file:line
	lines []string
	keys  map[string]string
	runs  []string
	warns []string

	exclude []cron.DateRange
}

func TestVectors(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/vectors/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no vector files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			vectors := readVectors(t, file)
			if *fill {
				fillVectors(t, file, vectors)
				return
			}
			for _, v := range vectors {
				if v.keys != nil {
					v.check(t)
				}
			}
		})
	}
}

func readVectors(t *testing.T, file string) (vectors []*vector) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	v := &vector{at: file + ":1"}
	for i, line := range strings.Split(strings.TrimRight(string(text), "\n"), "\n") {
		if line == "" {
			vectors = append(vectors, v)
			v = &vector{at: fmt.Sprintf("%s:%d", file, i+2)}
			continue
		}
		v.lines = append(v.lines, line)
		if strings.HasPrefix(line, "#") {
			continue
		}
		key, value, _ := strings.Cut(line, " ")
		value = strings.TrimLeft(value, " ")
		if v.keys == nil {
			v.keys = map[string]string{}
		}
		switch key {
		case "runs":
			v.runs = append(v.runs, value)
		case "warns":
			v.warns = append(v.warns, value)
		case "exclude":
			from, to, _ := strings.Cut(value, " to ")
			v.exclude = append(v.exclude, cron.DateRange{From: from, To: to})
		case "exclude_zone", "start", "end", "schedule", "every", "at", "zone", "seed", "anchor", "day_match", "dst_gap", "dst_overlap", "from", "until", "says", "refused":
			v.keys[key] = value
		default:
			t.Fatalf("%s: unknown key %q", v.at, key)
		}
	}
	return append(vectors, v)
}

func (v *vector) options() (cron.Options, error) {
	o := cron.Options{
		Seed:     v.keys["seed"],
		DayMatch: cron.DayMatch(v.keys["day_match"]),
		Gap:      cron.GapPolicy(v.keys["dst_gap"]),
		Overlap:  cron.OverlapPolicy(v.keys["dst_overlap"]),
	}
	o.Location = time.UTC
	if zone, ok := v.keys["zone"]; ok {
		loc, err := cron.LoadLocation(zone)
		if err != nil {
			return o, err
		}
		o.Location = loc
	}
	if anchor, ok := v.keys["anchor"]; ok {
		var err error
		if o.Anchor, err = time.Parse(time.RFC3339Nano, anchor); err != nil {
			return o, err
		}
	}
	return o, nil
}

func (v *vector) parse() (cron.Schedule, error) {
	o, err := v.options()
	if err != nil {
		return cron.Schedule{}, err
	}
	if every, ok := v.keys["every"]; ok {
		d, err := time.ParseDuration(every)
		if err != nil {
			return cron.Schedule{}, err
		}
		return cron.Every(d, o.Anchor)
	}
	if at, ok := v.keys["at"]; ok {
		return cron.At(at, o.Location)
	}
	return cron.Parse(v.keys["schedule"], o)
}

func (v *vector) check(t *testing.T) {
	t.Helper()
	s, err := v.parse()
	if refused, ok := v.keys["refused"]; ok {
		field, reason, _ := strings.Cut(refused, " ")
		var e *cron.Error
		if !errors.As(err, &e) || e.Field != field || !strings.Contains(e.Reason, strings.TrimLeft(reason, " ")) {
			t.Errorf("%s: %v, want refused: %s", v.at, err, refused)
		}
		return
	}
	if err != nil {
		t.Errorf("%s: %v", v.at, err)
		return
	}
	if says, ok := v.keys["says"]; ok && s.Describe() != says {
		t.Errorf("%s: says %q, want %q", v.at, s.Describe(), says)
	}
	v.checkWarnings(t, s)
	if v.keys["from"] == "" {
		return
	}
	from, until := v.clock(t, "from", s.Location()), v.clock(t, "until", s.Location())
	tt := v.timetable(t, s)
	var got []string
	for at := range tt.Between(from, until) {
		line := writeInstant(at)
		if note, ok := tt.Note(at); ok {
			line += "   " + string(note.Kind)
		}
		got = append(got, line)
	}
	if !slices.Equal(got, v.runs) {
		t.Errorf("%s: %s runs\n\t%s\nwant\n\t%s", v.at, s, strings.Join(got, "\n\t"), strings.Join(v.runs, "\n\t"))
	}
	if want, ok := v.oracle(t); ok {
		var instants []string
		for _, run := range v.runs {
			if !strings.HasSuffix(run, "excluded") { // that much the oracle says
				run, _, _ = strings.Cut(run, "   ")
			}
			instants = append(instants, run)
		}
		if !slices.Equal(want, instants) {
			t.Errorf("%s: the oracle runs %s\n\t%s\nwant\n\t%s", v.at, s, strings.Join(want, "\n\t"), strings.Join(instants, "\n\t"))
		}
	}
}

func (v *vector) checkWarnings(t *testing.T, s cron.Schedule) {
	t.Helper()
	if v.warns == nil {
		return
	}
	var got []string
	for _, w := range s.Lint() {
		got = append(got, string(w.Code)+" "+w.Message)
	}
	for i, want := range v.warns {
		code, part, _ := strings.Cut(want, " ")
		if want == "nothing" && len(got) == 0 {
			continue
		}
		if i >= len(got) || !strings.HasPrefix(got[i], code+" ") || !strings.Contains(got[i], strings.TrimLeft(part, " ")) {
			t.Errorf("%s: warns\n\t%s\nwant\n\t%s", v.at, strings.Join(got, "\n\t"), strings.Join(v.warns, "\n\t"))
			return
		}
	}
	if len(got) > len(v.warns) {
		t.Errorf("%s: warns\n\t%s\nwant only\n\t%s", v.at, strings.Join(got, "\n\t"), strings.Join(v.warns, "\n\t"))
	}
}

// clock is a key's time on the zone's clock; zero if it isn't given.
func (v *vector) clock(t *testing.T, key string, loc *time.Location) time.Time {
	t.Helper()
	text, ok := v.keys[key]
	if !ok {
		return time.Time{}
	}
	at, err := time.ParseInLocation("2006-01-02 15:04", text, loc)
	if err != nil {
		t.Fatalf("%s: %s: %v", v.at, key, err)
	}
	return at
}

func (v *vector) timetable(t *testing.T, s cron.Schedule) cron.Timetable {
	t.Helper()
	tt := cron.Timetable{Schedule: s, Start: v.clock(t, "start", s.Location()), End: v.clock(t, "end", s.Location())}
	if v.exclude != nil {
		c, err := cron.NewCalendar("vector", v.excludeZone(t, s.Location()), v.exclude)
		if err != nil {
			t.Fatalf("%s: %v", v.at, err)
		}
		tt.Exclude = []cron.Calendar{c}
	}
	return tt
}

func (v *vector) excludeZone(t *testing.T, loc *time.Location) *time.Location {
	t.Helper()
	if name, ok := v.keys["exclude_zone"]; ok {
		return mustLoad(t, name)
	}
	return loc
}

// oracle lists the runs by brute force, if the oracle knows this kind.
func (v *vector) oracle(t *testing.T) (runs []string, ok bool) {
	t.Helper()
	expr := v.keys["schedule"]
	if expr == "" || strings.HasPrefix(expr, "@every") {
		return nil, false
	}
	o, err := v.options()
	if err != nil {
		t.Fatal(err)
	}
	from, until := v.clock(t, "from", o.Location), v.clock(t, "until", o.Location)
	oracle := newOracle(expr, o)
	list := oracle.between
	if until.Sub(from) > 1000*24*time.Hour {
		list = oracle.noons
	}
	start, end := v.clock(t, "start", o.Location), v.clock(t, "end", o.Location)
	for _, at := range list(from, until) {
		if at.Before(start) || !end.IsZero() && !at.Before(end) {
			continue
		}
		run := writeInstant(at.In(o.Location))
		if date := at.In(v.excludeZone(t, o.Location)).Format(time.DateOnly); v.excludes(date) {
			run += "   excluded"
		}
		runs = append(runs, run)
	}
	return runs, true
}

// excludes goes by the order of dates as text.
func (v *vector) excludes(date string) bool {
	return slices.ContainsFunc(v.exclude, func(r cron.DateRange) bool {
		return date == r.From || r.From <= date && date <= r.To
	})
}

// noons lists the instants of a schedule that runs at 12:00 in UTC, by judging
// every date.
func (r *oracle) noons(from, to time.Time) (found []time.Time) {
	for at := from.Truncate(24 * time.Hour).Add(12 * time.Hour); at.Before(to); at = at.AddDate(0, 0, 1) {
		if r.matches(at) {
			found = append(found, at)
		}
	}
	return found
}

func writeInstant(at time.Time) string {
	layout := "2006-01-02 15:04"
	if at.Second() != 0 || at.Nanosecond() != 0 {
		layout += ":05.999"
	}
	return at.Format(layout + " -07:00 Mon")
}

// fillVectors rewrites a file with the oracle's runs instead of its own.
func fillVectors(t *testing.T, file string, vectors []*vector) {
	t.Helper()
	var text strings.Builder
	for i, v := range vectors {
		if i > 0 {
			text.WriteString("\n")
		}
		runs := v.runs
		if v.keys["from"] != "" {
			if found, ok := v.oracle(t); ok {
				runs = withNotes(found, v.runs)
			}
		}
		for _, line := range v.lines {
			if !strings.HasPrefix(line, "runs ") {
				text.WriteString(line + "\n")
			}
		}
		for _, run := range runs {
			text.WriteString("runs        " + run + "\n")
		}
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// withNotes keeps the notes that were written after an instant.
func withNotes(found, written []string) []string {
	for i, run := range found {
		for _, old := range written {
			if strings.HasPrefix(old, run+"   ") {
				found[i] = old
			}
		}
	}
	return found
}
