package cron_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"holdfast/chronos/cron"
)

func TestTimetableKeepsToItsBounds(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	daily := mustParse(t, "0 12 * * *", cron.Options{})
	for _, c := range []struct {
		name       string
		start, end time.Time
		first      int // days from noon, as last
		last       int
	}{
		{"on instants: the start counts, the end doesn't", noon, noon.AddDate(0, 0, 3), 0, 2},
		{"just after an instant", noon.Add(1), noon.AddDate(0, 0, 3).Add(1), 1, 3},
		{"start alone", noon.AddDate(0, 0, 2), time.Time{}, 2, 10},
		{"end alone", time.Time{}, noon, -10, -1},
		{"none", time.Time{}, time.Time{}, -10, 10},
		{"before the year 1", time.Date(-10, 1, 1, 0, 0, 0, 0, time.UTC), noon, -10, -1},
	} {
		tt := cron.Timetable{Schedule: daily, Start: c.start, End: c.end}
		from, to := noon.AddDate(0, 0, -10), noon.AddDate(0, 0, 11)
		got := slices.Collect(tt.Between(from, to))
		if n := c.last - c.first + 1; len(got) != n || !got[0].Equal(noon.AddDate(0, 0, c.first)) || !got[n-1].Equal(noon.AddDate(0, 0, c.last)) {
			t.Errorf("%s: %v", c.name, got)
			continue
		}
		var back []time.Time
		for at, ok := tt.Prev(to); ok && !at.Before(from); at, ok = tt.Prev(at) {
			back = append(back, at)
		}
		slices.Reverse(back)
		if !equalTimes(got, back) {
			t.Errorf("%s: backwards %v, forwards %v", c.name, back, got)
		}
	}
	empty := cron.Timetable{Schedule: daily, Start: noon, End: noon}
	if at, ok := empty.Next(time.Time{}); ok {
		t.Errorf("between noon and noon: Next = %v", at)
	}
	if at, ok := empty.Prev(noon.AddDate(1, 0, 0)); ok {
		t.Errorf("between noon and noon: Prev = %v", at)
	}
	if at, ok := (cron.Timetable{}).Next(noon); ok {
		t.Errorf("the zero timetable: Next = %v", at)
	}
}

// TestExcludedInstantsStayVisible: an excluded instant is shown with a note and
// isn't lost to whoever accounts for it.
func TestExcludedInstantsStayVisible(t *testing.T) {
	t.Parallel()
	berlin := mustLoad(t, "Europe/Berlin")
	holidays := mustCalendar(t, "holidays", berlin, cron.DateRange{From: "2026-03-29"}, cron.DateRange{From: "2026-12-24", To: "2026-12-26"})
	empty := mustCalendar(t, "empty", berlin)
	tt := cron.Timetable{Schedule: mustParse(t, "30 2 * * *", cron.Options{Location: berlin}), Exclude: []cron.Calendar{{}, empty, holidays}}
	var got []string
	for at := range tt.Between(time.Date(2026, 12, 23, 0, 0, 0, 0, berlin), time.Date(2026, 12, 28, 0, 0, 0, 0, berlin)) {
		line := at.Format(time.DateOnly)
		c, excluded := tt.Excluded(at)
		note, noted := tt.Note(at)
		if excluded != noted || excluded && (c.Name() != "holidays" || note.Kind != cron.NoteExcluded) {
			t.Errorf("%v: excluded by %q, note %v", at, c.Name(), note)
		}
		if excluded {
			line += " " + note.String()
		}
		got = append(got, line)
	}
	want := []string{
		"2026-12-23",
		"2026-12-24 excluded: doesn't run: 2026-12-24 is in the calendar holidays",
		"2026-12-25 excluded: doesn't run: 2026-12-25 is in the calendar holidays",
		"2026-12-26 excluded: doesn't run: 2026-12-26 is in the calendar holidays",
		"2026-12-27",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	// On 29 March the run makes up for a gap, but what counts is that it doesn't run.
	at := time.Date(2026, 3, 29, 3, 0, 0, 0, berlin)
	if note, ok := tt.Note(at); !ok || note.Kind != cron.NoteExcluded {
		t.Errorf("an excluded gap: %v", note)
	}
	tt.Exclude = nil
	if note, ok := tt.Note(at); !ok || note.Kind != cron.NoteGap {
		t.Errorf("a gap that isn't excluded: %v", note)
	}
}

// TestCalendarHasTheDatesOfItsZone compares a calendar with the dates that the
// zone's clock shows, hour by hour, over a year with a day of 23 hours, one of
// 25, and one that didn't exist.
func TestCalendarHasTheDatesOfItsZone(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Europe/Berlin", "Pacific/Apia", "UTC", "America/Sao_Paulo"} {
		loc := mustLoad(t, zone)
		dates := []cron.DateRange{
			{From: "2011-12-30"},
			{From: "2011-03-27", To: "2011-03-27"},
			{From: "2011-10-30", To: "2011-11-02"},
			{From: "2011-11-01", To: "2011-11-05"},
			{From: "2011-11-06"},
			{From: "2011-01-01", To: "2011-01-31"},
			{From: "2011-01-10"},
		}
		listed := map[string]bool{}
		for _, d := range dates {
			from, _ := time.Parse(time.DateOnly, d.From)
			to, err := time.Parse(time.DateOnly, d.To)
			if err != nil {
				to = from
			}
			for ; !from.After(to); from = from.AddDate(0, 0, 1) {
				listed[from.Format(time.DateOnly)] = true
			}
		}
		c := mustCalendar(t, zone, loc, dates...)
		for at := time.Date(2010, 12, 30, 0, 30, 0, 0, time.UTC); at.Year() < 2012; at = at.Add(time.Hour) {
			if date := at.In(loc).Format(time.DateOnly); c.Excludes(at) != listed[date] {
				t.Fatalf("%s: Excludes(%v) = %v, on %s", zone, at, c.Excludes(at), date)
			}
		}
	}
}

func TestCalendarRefusesWhatIsNoDate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		of    cron.DateRange
		field string
	}{
		{cron.DateRange{}, "dates[1]"},
		{cron.DateRange{From: "2026-02-29"}, "dates[1]"},
		{cron.DateRange{From: "2026-1-1"}, "dates[1]"},
		{cron.DateRange{From: "0000-01-01"}, "dates[1]"},
		{cron.DateRange{From: "2026-12-25T00:00:00Z"}, "dates[1]"},
		{cron.DateRange{To: "2026-12-25"}, "dates[1].from"},
		{cron.DateRange{From: "2026-12-25", To: "25 December"}, "dates[1].to"},
		{cron.DateRange{From: "2026-12-25", To: "2026-12-24"}, "dates[1]"},
	} {
		_, err := cron.NewCalendar("c", nil, []cron.DateRange{{From: "2026-01-01"}, c.of})
		var e *cron.Error
		if !errors.Is(err, cron.ErrInvalidCalendar) || errors.Is(err, cron.ErrInvalidSchedule) || !errors.As(err, &e) || e.Field != c.field || e.Reason == "" {
			t.Errorf("%+v: %v, want refused at %s", c.of, err, c.field)
		}
	}
	if _, err := cron.NewCalendar("c", time.Local, nil); !errors.Is(err, cron.ErrInvalidTimezone) {
		t.Errorf("in time.Local: %v", err)
	}
	if _, err := cron.NewCalendar("c", nil, make([]cron.DateRange, 10_001)); !errors.Is(err, cron.ErrInvalidCalendar) {
		t.Errorf("10,001 entries: %v", err)
	}
}

func TestTimetableAllocatesNothing(t *testing.T) {
	berlin := mustLoad(t, "Europe/Berlin")
	from := time.Date(2026, 6, 15, 12, 34, 56, 0, time.UTC)
	tt := cron.Timetable{
		Schedule: mustParse(t, "0 9-17 * * MON-FRI", cron.Options{Location: berlin}),
		Start:    from.AddDate(-1, 0, 0), End: from.AddDate(1, 0, 0),
		Exclude: []cron.Calendar{mustCalendar(t, "c", berlin, cron.DateRange{From: "2026-06-15"})},
	}
	if n := testing.AllocsPerRun(100, func() {
		at, _ := tt.Next(from)
		tt.Prev(at)
		tt.Excluded(at)
	}); n != 0 {
		t.Errorf("Next, Prev and Excluded allocate %v times", n)
	}
}

func mustCalendar(t testing.TB, name string, loc *time.Location, dates ...cron.DateRange) cron.Calendar {
	t.Helper()
	c, err := cron.NewCalendar(name, loc, dates)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
