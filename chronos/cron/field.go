package cron

import (
	"strconv"
	"strings"
)

// field is one of the fields that hold a set of numbers.
type field struct {
	name   string
	lo, hi int // of the values as written
	size   int // how many different values there are
	spread int // the highest value that a lone H may take
	names  string
}

var (
	secondField = field{name: "second", lo: 0, hi: 59, size: 60, spread: 59}
	minuteField = field{name: "minute", lo: 0, hi: 59, size: 60, spread: 59}
	hourField   = field{name: "hour", lo: 0, hi: 23, size: 24, spread: 23}
	// A lone H stays within the days that every month has.
	dayField   = field{name: "day_of_month", lo: 1, hi: 31, size: 31, spread: 28}
	monthField = field{name: "month", lo: 1, hi: 12, size: 12, spread: 12, names: "JANFEBMARAPRMAYJUNJULAUGSEPOCTNOVDEC"}
	// Both 0 and 7 are Sunday.
	weekdayField = field{name: "day_of_week", lo: 0, hi: 7, size: 7, spread: 6, names: "SUNMONTUEWEDTHUFRISAT"}
	yearField    = field{name: "year", lo: firstYear, hi: maxYear, size: maxYear - firstYear + 1}
)

// parse reads a list of entries that name values by number alone.
func (f *field) parse(list, seed string) (set uint64, err error) {
	for more := true; more; {
		var entry string
		entry, list, more = strings.Cut(list, ",")
		values, err := f.entry(entry, seed)
		if err != nil {
			return 0, err
		}
		set |= values
	}
	return set, nil
}

// entry reads one entry of a list: *, a, a-b or H, perhaps with a step.
func (f *field) entry(entry, seed string) (uint64, error) {
	switch entry {
	case "":
		return 0, refuse(f.name, entry, "is an empty entry")
	case "*":
		return f.values(f.lo, f.lo+f.size-1, 1), nil
	}
	base, stepText, stepped := strings.Cut(entry, "/")
	step := 1
	if stepped {
		var err error
		if step, err = f.step(entry, stepText); err != nil {
			return 0, err
		}
	}
	switch {
	case base == "*" || base == "?" && (f == &dayField || f == &weekdayField):
		return f.values(f.lo, f.lo+f.size-1, step), nil
	case base != "" && base[0]|0x20 == 'h':
		return f.hashed(entry, base[1:], step, seed)
	}
	first, last, isRange := strings.Cut(base, "-")
	a, err := f.value(entry, first)
	if err != nil {
		return 0, err
	}
	switch {
	case isRange:
		b, err := f.value(entry, last)
		if err != nil {
			return 0, err
		}
		return f.values(a, b, step), nil
	case stepped:
		return f.values(a, f.lo+f.size-1, step), nil
	}
	return f.values(a, a, 1), nil
}

// values is the set of every step-th value from a to b, counted along the
// range, which wraps round the end of the field if b comes before a.
func (f *field) values(a, b, step int) (set uint64) {
	top := f.lo + f.size - 1
	if a > b {
		b += f.size
	}
	if step == 1 && b <= top {
		return 1<<(b+1) - 1<<a
	}
	for v := a; v <= b; v += step {
		if v > top {
			set |= 1 << (v - f.size)
		} else {
			set |= 1 << v
		}
	}
	return set
}

// hashed reads what follows H: nothing, or the range (a-b).
func (f *field) hashed(entry, limits string, step int, seed string) (uint64, error) {
	a, b := f.lo, f.spread
	if limits != "" {
		inner, ok := strings.CutPrefix(limits, "(")
		inner, closed := strings.CutSuffix(inner, ")")
		first, last, isRange := strings.Cut(inner, "-")
		if !ok || !closed || !isRange {
			return 0, refuse(f.name, entry, "must be H, H(a-b), or either with a step")
		}
		var err error
		if a, err = f.value(entry, first); err != nil {
			return 0, err
		}
		if b, err = f.value(entry, last); err != nil {
			return 0, err
		}
		if a > b {
			return 0, refuse(f.name, entry, "has the ends of its range in the wrong order")
		}
	}
	size := b - a + 1
	if strings.Contains(entry, "/") {
		start := a + int(spread(seed, f.name)%uint64(min(step, size)))
		return f.values(start, b, step), nil
	}
	at := a + int(spread(seed, f.name)%uint64(size))
	return f.values(at, at, 1), nil
}

// spread turns a job's name into a number that is the same for ever and on
// every machine, and another one for each field: FNV-1a, then a mixing step
// so that the remainder by a small number depends on every bit.
func spread(seed, field string) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for _, s := range [...]string{field, "\x00", seed} {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * prime
		}
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

func (f *field) step(entry, text string) (int, error) {
	step, ok := number(text)
	switch {
	case !ok:
		return 0, refuse(f.name, entry, "has a step that is not a number")
	case step == 0:
		return 0, refuse(f.name, entry, "has a step of 0")
	case step > f.size:
		return 0, refuse(f.name, entry, "has a step larger than the field, which has "+strconv.Itoa(f.size)+" values")
	}
	return step, nil
}

// value reads a number or a name of the field; entry is what it is part of.
func (f *field) value(entry, text string) (int, error) {
	if n, ok := number(text); ok {
		if n < f.lo || n > f.hi {
			return 0, refuse(f.name, entry, "is outside "+strconv.Itoa(f.lo)+"-"+strconv.Itoa(f.hi))
		}
		return n, nil
	}
	if len(text) == 3 {
		for i := 0; i < len(f.names); i += 3 {
			if strings.EqualFold(f.names[i:i+3], text) {
				return f.lo + i/3, nil
			}
		}
	}
	reason := "is not a number"
	if f.names != "" {
		reason = "is neither a number nor a name such as " + f.names[:3]
	}
	return 0, refuse(f.name, entry, reason)
}

// number reads an unsigned decimal number; all beyond 9999 are the same.
func number(text string) (int, bool) {
	if text == "" {
		return 0, false
	}
	n := 0
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return 0, false
		}
		n = min(n*10+int(text[i]-'0'), maxYear+1)
	}
	return n, true
}

// parseDays reads the day of month, which also knows L, L-n, LW and nW.
func (p *plan) parseDays(list, seed string) error {
	for more := true; more; {
		var entry string
		entry, list, more = strings.Cut(list, ",")
		if err := p.parseDay(entry, seed); err != nil {
			return err
		}
	}
	return nil
}

func (p *plan) parseDay(entry, seed string) error {
	f := &dayField
	switch {
	case strings.EqualFold(entry, "L"):
		p.fromLast |= 1
	case strings.EqualFold(entry, "LW"):
		p.lastWorkday = true
	case entry != "" && entry[0]|0x20 == 'l':
		before, ok := strings.CutPrefix(entry[1:], "-")
		n, isNumber := number(before)
		if !ok || !isNumber || n > 30 {
			return refuse(f.name, entry, "must be L, LW, or L-n with n from 0 to 30")
		}
		p.fromLast |= 1 << n
	case entry != "" && entry[len(entry)-1]|0x20 == 'w':
		n, ok := number(entry[:len(entry)-1])
		if !ok || n < f.lo || n > f.hi {
			return refuse(f.name, entry, "must have a single day from 1 to 31 before W")
		}
		p.nearest |= 1 << n
	default:
		set, err := f.entry(entry, seed)
		if err != nil {
			return err
		}
		p.days |= uint32(set)
	}
	return nil
}

// parseWeekdays reads the day of week, which also knows dL, d#n and d#L.
func (p *plan) parseWeekdays(list, seed string) error {
	for more := true; more; {
		var entry string
		entry, list, more = strings.Cut(list, ",")
		if err := p.parseWeekday(entry, seed); err != nil {
			return err
		}
	}
	return nil
}

func (p *plan) parseWeekday(entry, seed string) error {
	f := &weekdayField
	if strings.EqualFold(entry, "L") {
		return refuse(f.name, entry, "alone is ambiguous: SAT is every Saturday, SATL the last one of the month, and L as day of month the last day")
	}
	name, nth, ok := strings.Cut(entry, "#")
	if !ok && entry != "" && entry[len(entry)-1]|0x20 == 'l' {
		name, nth, ok = entry[:len(entry)-1], "L", true
	}
	if !ok {
		set, err := f.entry(entry, seed)
		if err != nil {
			return err
		}
		p.weekdays |= uint8(set)
		return nil
	}
	wd, err := f.value(entry, name)
	if err != nil {
		return err
	}
	wd %= 7
	if strings.EqualFold(nth, "L") {
		p.last |= 1 << wd
		return nil
	}
	n, isNumber := number(nth)
	if !isNumber || n < 1 || n > 5 {
		return refuse(f.name, entry, "must have 1 to 5, or L, after #")
	}
	p.nth |= 1 << (7*(n-1) + wd)
	return nil
}

// parseYears reads the year, which neither wraps nor spreads; nil is every year.
func parseYears(list string) ([]yearSpan, error) {
	if list == "*" {
		return nil, nil
	}
	var spans []yearSpan
	for more := true; more; {
		var entry string
		entry, list, more = strings.Cut(list, ",")
		span, err := parseYear(entry)
		if err != nil {
			return nil, err
		}
		spans = append(spans, span)
	}
	return spans, nil
}

func parseYear(entry string) (yearSpan, error) {
	f := &yearField
	if entry == "" {
		return yearSpan{}, refuse(f.name, entry, "is an empty entry")
	}
	span := yearSpan{f.lo, f.hi, 1}
	base, stepText, stepped := strings.Cut(entry, "/")
	var err error
	if stepped {
		if span.step, err = f.step(entry, stepText); err != nil {
			return yearSpan{}, err
		}
	}
	if base == "*" {
		return span, nil
	}
	first, last, isRange := strings.Cut(base, "-")
	if span.first, err = f.value(entry, first); err != nil {
		return yearSpan{}, err
	}
	switch {
	case isRange:
		if span.last, err = f.value(entry, last); err != nil {
			return yearSpan{}, err
		}
		if span.first > span.last {
			return yearSpan{}, refuse(f.name, entry, "has the ends of its range in the wrong order")
		}
	case !stepped:
		span.last = span.first
	}
	return span, nil
}
