package cron

import (
	"strconv"
	"strings"
	"time"
)

const (
	maxExpression = 256 // bytes

	fieldEvery    = "every"
	fieldAt       = "at"
	fieldDayMatch = "day_match"
	fieldGap      = "dst_gap"
	fieldOverlap  = "dst_overlap"
)

// What the macros mean, as those expressions would be read.
var (
	yearly  = midnights(1<<1, 1<<1, allWeek)      // 0 0 1 1 *
	monthly = midnights(1<<1, allMonths, allWeek) // 0 0 1 * *
	weekly  = midnights(allDays, allMonths, 1<<0) // 0 0 * * 0
	daily   = midnights(allDays, allMonths, allWeek)
	hourly  = pattern{seconds: 1, minutes: 1, hours: fullDay, days: allDays, months: allMonths, weekdays: allWeek, both: true, daily: true}
)

func midnights(days uint32, months uint16, weekdays uint8) pattern {
	p := pattern{seconds: 1, minutes: 1, hours: 1, days: days, months: months, weekdays: weekdays, both: true}
	p.daily = p.everyDay()
	return p
}

// macro is the pattern of a name, which is case-sensitive; nil: it is none.
func macro(name string) *pattern {
	switch name {
	case "@yearly", "@annually":
		return &yearly
	case "@monthly":
		return &monthly
	case "@weekly":
		return &weekly
	case "@daily", "@midnight":
		return &daily
	case "@hourly":
		return &hourly
	}
	return nil
}

// Parse reads an expression: five fields, six with seconds first, seven with a
// year last; a macro such as @daily; or "@every 90s". The language is described
// in the package's documentation. What can't be run is refused with an *Error:
// bad syntax, values outside their field, days that never come, years that are
// past (see Options.Anchor) and more than 256 bytes. Any input is judged in
// bounded time, well under a millisecond.
func Parse(expr string, o Options) (Schedule, error) {
	loc, err := checkLocation(o.Location)
	if err != nil {
		return Schedule{}, err
	}
	if err := o.check(); err != nil {
		return Schedule{}, err
	}
	if len(expr) > maxExpression {
		return Schedule{}, refuse(fieldSchedule, expr, "is longer than "+strconv.Itoa(maxExpression)+" bytes")
	}
	text := trim(expr)
	if strings.HasPrefix(text, "@") {
		return parseName(text, loc, &o)
	}
	e := &struct { // one allocation
		plan    plan
		pattern pattern
	}{plan: expressionPlan(text, loc, &o)}
	p := &e.plan
	p.pattern = &e.pattern
	if err := p.parseFields(text, &o); err != nil {
		return Schedule{}, err
	}
	if err := p.checkPossible(text, o.Anchor); err != nil {
		return Schedule{}, err
	}
	return Schedule{p}, nil
}

// expressionPlan is a plan without its pattern.
func expressionPlan(text string, loc *time.Location, o *Options) plan {
	return plan{
		loc: loc, text: text, skipGaps: o.Gap == GapSkip, allPasses: o.Overlap == OverlapTwice,
		anchorSec: o.Anchor.Unix(), anchorNsec: int32(o.Anchor.Nanosecond()),
	}
}

// parseName reads what begins with @.
func parseName(text string, loc *time.Location, o *Options) (Schedule, error) {
	if m := macro(text); m != nil {
		p := expressionPlan(text, loc, o)
		p.pattern, p.fixed = m, m != &hourly
		return Schedule{&p}, nil
	}
	if name, rest := cutWord(text); name == "@every" {
		return parseEvery(rest, text, o.Anchor, loc)
	}
	return Schedule{}, refuseName(text)
}

// check refuses policies that aren't known.
func (o *Options) check() error {
	switch o.DayMatch {
	case "", DayAny, DayAll:
	default:
		return refuse(fieldDayMatch, string(o.DayMatch), "must be any or all")
	}
	switch o.Gap {
	case "", GapRun, GapSkip:
	default:
		return refuse(fieldGap, string(o.Gap), "must be run or skip")
	}
	switch o.Overlap {
	case "", OverlapOnce, OverlapTwice:
	default:
		return refuse(fieldOverlap, string(o.Overlap), "must be once or twice")
	}
	return nil
}

func checkLocation(loc *time.Location) (*time.Location, error) {
	switch loc {
	case nil:
		return time.UTC, nil
	case time.Local:
		return nil, refuse(fieldTimezone, "Local", "is the machine's own zone, which replicas may not share: name a zone, such as Europe/Berlin")
	}
	return loc, nil
}

func parseEvery(duration, text string, anchor time.Time, loc *time.Location) (Schedule, error) {
	d, err := time.ParseDuration(duration)
	if err != nil {
		return Schedule{}, refuse(fieldEvery, duration, "is not a duration such as 90s, 5m or 2h30m")
	}
	if err := checkInterval(d, duration); err != nil {
		return Schedule{}, err
	}
	s := newInterval(d, anchor, loc)
	s.p.text = text
	return s, nil
}

// refuseName says what is wrong with a name that isn't one of the macros.
func refuseName(name string) error {
	if name == "@reboot" {
		return refuse(fieldSchedule, name, "is an event, not a time: a service that outlives its processes has no reboot")
	}
	reason := "is not one of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly and @every"
	if lower := strings.ToLower(name); macro(lower) != nil {
		reason = "must be written " + lower
	} else if word, _ := cutWord(name); macro(word) != nil {
		reason = "has more after " + word + ", which stands alone"
	}
	return refuse(fieldSchedule, name, reason)
}

// parseFields fills in the pattern of p.
func (p *plan) parseFields(text string, o *Options) error {
	if strings.HasPrefix(text, "TZ=") || strings.HasPrefix(text, "CRON_TZ=") {
		prefix, _ := cutWord(text)
		return refuse(fieldSchedule, prefix, "can't stand before the fields: give the zone as timezone")
	}
	var f [8]string // one more than allowed
	n := split(text, f[:])
	second, year := "0", ""
	switch n {
	case 5:
		copy(f[1:], f[:5])
	case 6:
		second = f[0]
	case 7:
		second, year = f[0], f[6]
	default:
		return refuse(fieldSchedule, text, "has "+count(n)+": five are needed (minute hour day month weekday), six with seconds first, seven with a year last")
	}
	minutes, hours, days, months, weekdays := f[1], f[2], f[3], f[4], f[5]

	var err error
	set := func(into *uint64, f *field, s string) {
		if err == nil {
			*into, err = f.parse(s, o.Seed)
		}
	}
	var h, m uint64
	set(&p.seconds, &secondField, second)
	set(&p.minutes, &minuteField, minutes)
	set(&h, &hourField, hours)
	if err == nil {
		err = p.parseDays(days, o.Seed)
	}
	set(&m, &monthField, months)
	if err == nil {
		plus := strings.HasPrefix(weekdays, "+")
		p.both = plus || o.DayMatch == DayAll || wild(days) || wild(weekdays)
		err = p.parseWeekdays(strings.TrimPrefix(weekdays, "+"), o.Seed)
	}
	if err == nil && year != "" {
		p.years, err = parseYears(year)
	}
	if err != nil {
		return err
	}
	p.hours, p.months = uint32(h), uint16(m)
	p.daily = p.everyDay()
	p.fixed = !wild(second) && !wild(minutes) && !wild(hours)
	return nil
}

// wild reports whether a field begins with * (or ?, which is the same), which
// decides how the day fields combine and whether a time is fixed.
func wild(field string) bool { return field[0] == '*' || field[0] == '?' }

// split cuts text at spaces and tabs into f and returns how many fields there
// are, at most len(f).
func split(text string, f []string) int {
	n, start := 0, -1 // start of the current field; none between fields
	for i := 0; i < len(text) && n < len(f); i++ {
		gap := blank(text[i])
		switch {
		case gap && start >= 0:
			f[n], start = text[start:i], -1
			n++
		case !gap && start < 0:
			start = i
		}
	}
	if start >= 0 && n < len(f) {
		f[n] = text[start:]
		n++
	}
	return n
}

// trim is text without the blanks at its ends.
func trim(text string) string {
	for text != "" && blank(text[0]) {
		text = text[1:]
	}
	for text != "" && blank(text[len(text)-1]) {
		text = text[:len(text)-1]
	}
	return text
}

func blank(c byte) bool { return c == ' ' || c == '\t' }

// cutWord cuts text after its first word.
func cutWord(text string) (word, rest string) {
	if i := strings.IndexAny(text, " \t"); i >= 0 {
		return text[:i], strings.TrimLeft(text[i:], " \t")
	}
	return text, ""
}

func count(fields int) string {
	switch {
	case fields == 1:
		return "1 field"
	case fields > 7:
		return "more than 7 fields"
	}
	return strconv.Itoa(fields) + " fields"
}

// checkPossible refuses an expression that never runs, naming the field that
// stands in the way.
func (p *plan) checkPossible(text string, anchor time.Time) error {
	if p.daily {
		return nil
	}
	everyYear := *p.pattern
	everyYear.years = nil
	if !everyYear.possible() {
		return p.impossible(text)
	}
	if p.years == nil {
		return nil
	}
	var f [8]string
	split(text, f[:])
	if !p.possible() {
		return refuse(yearField.name, f[6], "has no year in which that day comes")
	}
	if !anchor.IsZero() {
		if _, ok := p.next(anchor); !ok {
			return refuse(yearField.name, f[6], "is past")
		}
	}
	return nil
}

func (p *plan) impossible(text string) error {
	var f [8]string
	if n := split(text, f[:]); n == 5 {
		copy(f[1:], f[:5])
	}
	days, months, weekdays := f[3], f[4], f[5]
	if !p.onlyDays().possible() {
		if months == "*" {
			return refuse(dayField.name, days, "never comes")
		}
		return refuse(dayField.name, days, "never comes in month "+months)
	}
	return refuse(weekdayField.name, weekdays, "never falls on day "+days+" of month "+months)
}
