package crontab

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode/utf8"

	"holdfast/chronos/cron"
)

// Bounds of a crontab. What is beyond them is refused: a longer table as a
// whole, a longer line or environment where it stands.
const (
	MaxLines       = 10_000
	MaxJobs        = 1_000
	maxLine        = 16 << 10 // bytes
	maxVariables   = 100
	maxEnvironment = 16 << 10 // bytes of names and values
)

// Options say what the table itself doesn't.
type Options struct {
	System   bool   // a user stands before each command
	Timezone string // of the lines that no CRON_TZ or TZ stands above; "" is UTC
}

// Kind is what a line is.
type Kind string

const (
	Entry    Kind = "entry"    // a job
	Variable Kind = "variable" // for the lines below
	Ignored  Kind = "ignored"  // has no meaning here
	Refused  Kind = "refused"  // can't be taken
)

// Line is a line of a crontab that says something.
type Line struct {
	Number int    // from 1
	Text   string // without its end
	Kind   Kind
	Job    *Job // of an Entry; nil for others

	// Field is what was refused: command, user, variable, line, or a field of a
	// [cron.Error]. Reason says why, or what a variable does.
	Field, Reason string
}

// Job is what an entry would be.
type Job struct {
	Name     string
	Schedule string // five fields, or a name such as @daily
	Timezone string
	User     string // in a system crontab
	Command  string // for a shell
	Stdin    string // its standard input; may be empty
	Env      map[string]string
	Warnings []string // what may not be meant
}

// TooLongError says that a table is beyond its bounds, so that nothing of it was read.
type TooLongError struct {
	What string // "lines" or "jobs"
	Most int
}

func (e *TooLongError) Error() string {
	return fmt.Sprintf("has more than %d %s: import it in parts", e.Most, e.What)
}

// Parse reads a crontab and returns its lines but for blank ones and comments.
// It fails with a [cron.Error] if Options.Timezone isn't known, and with a
// [TooLongError]; whatever is wrong with a line is in that line.
func Parse(text string, o Options) ([]Line, error) {
	zone := o.Timezone
	if zone == "" {
		zone = "UTC"
	}
	loc, err := cron.LoadLocation(zone)
	if err != nil {
		return nil, err
	}
	t := table{system: o.System, zone: zone, loc: loc, env: map[string]string{}, names: map[string]int{}}
	text = strings.TrimPrefix(text, "\ufeff")
	jobs, number := 0, 0
	for line := range strings.Lines(text) {
		if number++; number > MaxLines {
			return nil, &TooLongError{"lines", MaxLines}
		}
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		content := strings.TrimLeft(line, blanks)
		if content == "" || content[0] == '#' {
			continue
		}
		l := Line{Number: number, Text: line}
		t.read(&l, content)
		t.lines = append(t.lines, l)
		if l.Kind == Entry {
			if jobs++; jobs > MaxJobs {
				return nil, &TooLongError{"jobs", MaxJobs}
			}
		}
	}
	return t.lines, nil
}

const blanks = " \t"

// table is what is known of a crontab between two lines.
type table struct {
	system bool
	zone   string         // the default
	loc    *time.Location // the default's
	cronTZ zoneLine       // the last that was given
	tz     zoneLine
	env    map[string]string // of the entries that follow; replaced, never changed
	names  map[string]int    // how many jobs had this name, without its number
	lines  []Line
}

// zoneLine is a line that sets the zone.
type zoneLine struct {
	number int // 0: none has, or an empty value has taken it back
	zone   string
	loc    *time.Location // nil: not known
}

// read decides what a line is and reads it.
func (t *table) read(l *Line, content string) {
	switch {
	case len(content) > maxLine:
		l.refuse("line", fmt.Sprintf("is longer than %d bytes", maxLine))
	case strings.IndexByte(content, 0) >= 0:
		l.refuse("line", "holds a NUL character")
	case !utf8.ValidString(content):
		l.refuse("line", "isn't UTF-8")
	default:
		v, is, err := readVariable(content)
		switch {
		case err != nil:
			l.refuse("variable", err.Error())
		case is:
			t.set(l, v)
		default:
			t.entry(l, content)
		}
	}
}

func (l *Line) refuse(field, reason string) { l.Kind, l.Field, l.Reason = Refused, field, reason }

func (l *Line) ignore(reason string) { l.Kind, l.Reason = Ignored, reason }

// refuseError is refuse for what package cron says.
func (l *Line) refuseError(err error) {
	var refused *cron.Error
	if errors.As(err, &refused) {
		l.refuse(refused.Field, fmt.Sprintf("%q %s", refused.Value, refused.Reason))
		return
	}
	l.refuse("schedule", err.Error())
}

// entry reads a line with a schedule and a command.
func (t *table) entry(l *Line, content string) {
	content = strings.TrimLeft(strings.TrimPrefix(content, "-"), blanks)
	schedule, rest, err := cutSchedule(content)
	if err != nil {
		l.refuse("schedule", err.Error())
		return
	}
	j := Job{Schedule: schedule, Env: t.env}
	if t.system {
		j.User, rest = cutWord(rest)
	}
	j.Command, j.Stdin = splitCommand(rest)
	j.Name = nameOf(j.User, rest, j.Command)
	t.names[j.Name]++
	if n := t.names[j.Name]; n > 1 {
		j.Name = fmt.Sprintf("%s.%d", j.Name, n)
	}
	loc, err := t.place(&j)
	if err != nil {
		l.refuse("timezone", err.Error())
		return
	}
	// The fields are judged before the command, which a line with too few of them lacks.
	if _, err := cron.Parse(j.Schedule, cron.Options{Location: loc, Seed: j.Name}); err != nil {
		l.refuseError(err)
		return
	}
	if field, reason := t.checkUser(j.User); reason != "" {
		l.refuse(field, reason)
		return
	}
	if strings.Trim(j.Command, blanks) == "" {
		reason := "is missing"
		if rest != "" {
			reason = "is empty before the %, which begins its input"
		}
		l.refuse("command", reason)
		return
	}
	if first, _ := cutWord(rest); !t.system && first == "root" {
		j.Warnings = append(j.Warnings, "the command begins with root: is this a system crontab, with a user before each command?")
	}
	l.Kind, l.Job = Entry, &j
}

// place gives a job the zone that holds where it stands.
func (t *table) place(j *Job) (*time.Location, error) {
	for _, set := range []zoneLine{t.cronTZ, t.tz} {
		switch {
		case set.number == 0:
			continue
		case set.loc == nil:
			return nil, fmt.Errorf("of line %d, %q, is not known, so it can't be said when this would run", set.number, set.zone)
		}
		j.Timezone = set.zone
		return set.loc, nil
	}
	j.Timezone = t.zone
	return t.loc, nil
}

func (t *table) checkUser(user string) (field, reason string) {
	switch {
	case !t.system:
		return "", ""
	case user == "":
		return "user", "is missing: in a system crontab it stands before the command"
	case !userName.MatchString(user):
		return "user", fmt.Sprintf("%q is not the name of a user: in a system crontab one stands before the command", user)
	}
	return "", ""
}

// set reads a variable, which holds from the next line on.
func (t *table) set(l *Line, v variable) {
	if reason, ok := ignored[v.name]; ok {
		l.ignore(reason)
		return
	}
	l.Kind, l.Reason = Variable, "in the environment of the commands below"
	switch v.name {
	case "CRON_TZ":
		if t.setZone(&t.cronTZ, l, v.value) {
			l.Reason = "the timezone of the lines below"
		}
		return
	case "TZ":
		if !t.setZone(&t.tz, l, v.value) {
			return
		}
		if t.cronTZ.number != 0 {
			l.Reason += fmt.Sprintf("; the CRON_TZ of line %d stays their timezone", t.cronTZ.number)
		} else {
			l.Reason += ", and their timezone"
		}
	}
	env := maps.Clone(t.env)
	env[v.name] = v.value
	size := 0
	for name, value := range env {
		size += len(name) + len(value)
	}
	if len(env) > maxVariables || size > maxEnvironment {
		l.refuse("variable", fmt.Sprintf("is too much: an environment has at most %d variables and %d bytes", maxVariables, maxEnvironment))
		return
	}
	t.env = env
}

// setZone puts the zone of a line in force, and reports whether it is known.
func (t *table) setZone(into *zoneLine, l *Line, zone string) bool {
	zone = strings.TrimPrefix(zone, ":")
	if zone == "" {
		*into = zoneLine{}
		return true
	}
	*into = zoneLine{number: l.Number, zone: zone}
	loc, err := cron.LoadLocation(zone)
	if err != nil {
		l.refuseError(err)
		l.Reason += "; the lines below are refused, too, up to the next timezone"
		return false
	}
	into.loc = loc
	return true
}
