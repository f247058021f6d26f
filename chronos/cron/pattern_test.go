package cron

import (
	"math/bits"
	"testing"
	"time"
)

// TestCivilDates goes through every day that counts, beside package time.
func TestCivilDates(t *testing.T) {
	t.Parallel()
	const first, last = minWall / day, maxWall / day
	if y, m, d := civil(first); y != 1 || m != 1 || d != 1 {
		t.Errorf("the first day is %d-%d-%d", y, m, d)
	}
	if y, m, d := civil(last); y != 9999 || m != 12 || d != 31 {
		t.Errorf("the last day is %d-%d-%d", y, m, d)
	}
	for date := int64(first); date <= last; date++ {
		y, m, d := civil(date)
		want := time.Unix(date*day, 0).UTC()
		if y != want.Year() || m != int(want.Month()) || d != want.Day() || weekday(date) != int(want.Weekday()) {
			t.Fatalf("day %d is %d-%d-%d, weekday %d, want %v", date, y, m, d, weekday(date), want)
		}
		if back := dateOf(y, m, d); back != date {
			t.Fatalf("day %d goes to %d-%d-%d and comes back as %d", date, y, m, d, back)
		}
		if length := monthLength(y, m); d > length || want.AddDate(0, 0, 1).Day() == 1 && d != length {
			t.Fatalf("%d-%d has %d days, and a %dth", y, m, length, d)
		}
	}
}

// TestHashedValues: H is one value of its range, H/n every nth from one of the
// first n, and in the end every value comes up.
func TestHashedValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		f     *field
		entry string
		a, b  int
		step  int // 0: a single value
	}{
		{&secondField, "H", 0, 59, 0},
		{&minuteField, "H", 0, 59, 0},
		{&hourField, "H", 0, 23, 0},
		{&dayField, "H", 1, 28, 0},
		{&monthField, "H", 1, 12, 0},
		{&weekdayField, "H", 0, 6, 0},
		{&minuteField, "H(10-19)", 10, 19, 0},
		{&dayField, "H(29-31)", 29, 31, 0},
		{&weekdayField, "h(mon-FRI)", 1, 5, 0},
		{&minuteField, "H(7-7)", 7, 7, 0},
		{&minuteField, "H/15", 0, 59, 15},
		{&minuteField, "H/7", 0, 59, 7},
		{&minuteField, "H(10-29)/5", 10, 29, 5},
		{&minuteField, "H(0-3)/10", 0, 3, 10},
		{&dayField, "H/10", 1, 28, 10},
	} {
		var seen uint64
		for n := range 2000 {
			name := "job-" + string(rune('a'+n%26)) + time.Unix(int64(n), 0).UTC().String()
			set, err := c.f.entry(c.entry, name)
			if err != nil {
				t.Fatalf("%s %s: %v", c.f.name, c.entry, err)
			}
			again, _ := c.f.entry(c.entry, name)
			if set != again {
				t.Fatalf("%s %s: two values for one name", c.f.name, c.entry)
			}
			first := bits.TrailingZeros64(set)
			want := uint64(1) << first
			if c.step > 0 {
				if first >= c.a+c.step {
					t.Fatalf("%s %s begins with %d", c.f.name, c.entry, first)
				}
				for v := first; v <= c.b; v += c.step {
					want |= 1 << v
				}
			}
			if set != want || first < c.a || int(highest(set)) > c.b {
				t.Fatalf("%s %s is %b", c.f.name, c.entry, set)
			}
			seen |= set
		}
		for v := c.a; v <= c.b; v++ {
			if seen>>v&1 == 0 {
				t.Errorf("%s %s never gave %d", c.f.name, c.entry, v)
			}
		}
	}
}
