package crontab_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"holdfast/chronos/cron"
	"holdfast/chronos/crontab"
)

func mustParse(t testing.TB, text string, o crontab.Options) []crontab.Line {
	t.Helper()
	lines, err := crontab.Parse(text, o)
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// job parses a crontab whose last line is a job.
func job(t *testing.T, text string, o crontab.Options) crontab.Job {
	t.Helper()
	lines := mustParse(t, text, o)
	last := lines[len(lines)-1]
	if last.Job == nil {
		t.Fatalf("%q: %s %s", last.Text, last.Field, last.Reason)
	}
	return *last.Job
}

func TestUsersCrontab(t *testing.T) {
	t.Parallel()
	const text = "# m h dom mon dow command\n" +
		"\n" +
		"  \t # indented\n" +
		"SHELL=/bin/bash\n" +
		"MAILTO=ops@example.com\n" +
		"*/5\t*  * * *   /usr/bin/check --fast\n" +
		"CRON_TZ=Europe/Berlin\r\n" +
		"30 2 * * mon-fri backup # not a comment\r\n" +
		"@daily rotate\n" +
		"@reboot start\n" +
		"61 * * * * never\n" +
		"* * *\n" +
		"0 0 30 2 * never\n" +
		"0 5 * * *\n" +
		"-0 6 * * * quiet"
	want := []string{
		"4 variable SHELL=/bin/bash: in the environment of the commands below",
		"5 ignored MAILTO=ops@example.com: no mail is sent: a job has alerts, and its runs keep their results",
		"6 entry */5 * * * * in UTC: /usr/bin/check --fast",
		"7 variable CRON_TZ=Europe/Berlin: the timezone of the lines below",
		"8 entry 30 2 * * mon-fri in Europe/Berlin: backup # not a comment",
		"9 entry @daily in Europe/Berlin: rotate",
		`10 refused schedule: "@reboot" is an event, not a time: a service that outlives its processes has no reboot`,
		`11 refused minute: "61" is outside 0-59`,
		"12 refused schedule: has 3 of five fields (minute hour day month weekday), which stand before the command",
		`13 refused day_of_month: "30" never comes in month 2`,
		"14 refused command: is missing",
		"15 entry 0 6 * * * in Europe/Berlin: quiet",
	}
	compare(t, mustParse(t, text, crontab.Options{}), want)
}

func TestSystemCrontab(t *testing.T) {
	t.Parallel()
	const text = "PATH=/usr/bin\n" +
		"17 *\t* * *\troot    cd / && run-parts /etc/cron.hourly\n" +
		"@weekly www-data:www clean\n" +
		"0 5 * * * /usr/bin/backup now\n" +
		"0 5 * * * root\n" +
		"0 5 * * *\n" +
		"0 25 * * * root x\n"
	want := []string{
		"1 variable PATH=/usr/bin: in the environment of the commands below",
		"2 entry 17 * * * * in UTC as root: cd / && run-parts /etc/cron.hourly",
		"3 entry @weekly in UTC as www-data:www: clean",
		`4 refused user: "/usr/bin/backup" is not the name of a user: in a system crontab one stands before the command`,
		"5 refused command: is missing",
		"6 refused user: is missing: in a system crontab it stands before the command",
		`7 refused hour: "25" is outside 0-23`,
	}
	compare(t, mustParse(t, text, crontab.Options{System: true}), want)

	// The other way round there is only a guess.
	if w := job(t, "17 * * * * root run-parts", crontab.Options{}).Warnings; len(w) != 1 || !strings.Contains(w[0], "system crontab") {
		t.Errorf("a system crontab as a user's: warnings %q", w)
	}
}

func compare(t *testing.T, lines []crontab.Line, want []string) {
	t.Helper()
	for i, l := range lines {
		got := fmt.Sprintf("%d %s ", l.Number, l.Kind)
		switch l.Kind {
		case crontab.Entry:
			got += l.Job.Schedule + " in " + l.Job.Timezone
			if l.Job.User != "" {
				got += " as " + l.Job.User
			}
			got += ": " + l.Job.Command
		case crontab.Refused:
			got += l.Field + ": " + l.Reason
		default:
			got += l.Text + ": " + l.Reason
		}
		if i >= len(want) || got != want[i] {
			t.Errorf("got  %s\nwant %s", got, strings.Join(want[min(i, len(want)):min(i+1, len(want))], ""))
		}
	}
	if len(lines) < len(want) {
		t.Errorf("%d lines, want %d", len(lines), len(want))
	}
}

func TestVariables(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`A=b`:                    "b",
		`A = b`:                  "b",
		"\tA\t=  b c \t":         "b c",
		`A="  b  "`:              "  b  ",
		`A='say "hi"'`:           `say "hi"`,
		`"A" = b`:                "b",
		`'A'='b'`:                "b",
		`A=`:                     "",
		`A=""`:                   "",
		`A=b=c`:                  "b=c",
		`A=$HOME/x # no comment`: "$HOME/x # no comment",
		`A=it's`:                 "it's",
		`A=\"x\"`:                `\"x\"`,
	} {
		env := job(t, line+"\n* * * * * x", crontab.Options{}).Env
		if got, ok := env["A"]; !ok || got != want {
			t.Errorf("%s: %q, want %q", line, env, want)
		}
	}
	for line, reason := range map[string]string{
		`A="b`:      "has a quote that doesn't end",
		`A='b"`:     "has a quote that doesn't end",
		`A="b" c`:   "has more after the closing quote",
		`1=2`:       `"1" can't be the name of a variable`,
		`""=2`:      `"" can't be the name of a variable`,
		`"A B" = 2`: `"A B" can't be the name of a variable`,
		`=2`:        `"" can't be the name of a variable`,
	} {
		l := mustParse(t, line, crontab.Options{})[0]
		if l.Kind != crontab.Refused || l.Field != "variable" || l.Reason != reason {
			t.Errorf("%s: %s %s %q, want refused with %q", line, l.Kind, l.Field, l.Reason, reason)
		}
	}
	// A command may have an = in it, whatever stands before.
	if c := job(t, "* * * * * A=b run", crontab.Options{}).Command; c != "A=b run" {
		t.Errorf("command %q", c)
	}
	// A variable holds from its line on, and a later one replaces it.
	lines := mustParse(t, "A=1\n* * * * * x\nA=2\nB=3\n* * * * * y\n", crontab.Options{})
	if got := lines[1].Job.Env; !maps.Equal(got, map[string]string{"A": "1"}) {
		t.Errorf("the first has %v", got)
	}
	if got := lines[4].Job.Env; !maps.Equal(got, map[string]string{"A": "2", "B": "3"}) {
		t.Errorf("the second has %v", got)
	}
	for name := range map[string]string{"MAILTO": "", "MAILFROM": "", "CONTENT_TYPE": "", "CONTENT_TRANSFER_ENCODING": "", "RANDOM_DELAY": "", "LOGNAME": ""} {
		lines := mustParse(t, name+"=x\n* * * * * x", crontab.Options{})
		if lines[0].Kind != crontab.Ignored || lines[0].Reason == "" || len(lines[1].Job.Env) != 0 {
			t.Errorf("%s: %s %q, environment %v", name, lines[0].Kind, lines[0].Reason, lines[1].Job.Env)
		}
	}
}

func TestTimezonesHoldFromTheirLineOn(t *testing.T) {
	t.Parallel()
	const text = "0 0 * * * a\n" +
		"TZ=Asia/Kathmandu\n" +
		"0 0 * * * b\n" +
		"CRON_TZ = \"Europe/Berlin\"\n" +
		"0 0 * * * c\n" +
		"TZ=America/New_York\n" +
		"0 0 * * * d\n" +
		"CRON_TZ=\n" +
		"0 0 * * * e\n" +
		"TZ=\n" +
		"0 0 * * * f\n" +
		"CRON_TZ=:Africa/Cairo\n" +
		"0 0 * * * g\n"
	zones := map[string]string{
		"a": "Pacific/Apia", "b": "Asia/Kathmandu", "c": "Europe/Berlin", "d": "Europe/Berlin",
		"e": "America/New_York", "f": "Pacific/Apia", "g": "Africa/Cairo",
	}
	tzs := map[string]string{"a": "", "b": "Asia/Kathmandu", "c": "Asia/Kathmandu", "d": "America/New_York", "e": "America/New_York", "f": "", "g": ""}
	for _, l := range mustParse(t, text, crontab.Options{Timezone: "Pacific/Apia"}) {
		if l.Kind != crontab.Entry {
			if l.Kind != crontab.Variable {
				t.Errorf("line %d: %s %s", l.Number, l.Kind, l.Reason)
			}
			continue
		}
		if c := l.Job.Command; l.Job.Timezone != zones[c] || l.Job.Env["TZ"] != tzs[c] || l.Job.Env["CRON_TZ"] != "" {
			t.Errorf("%s is in %s with %v, want %s and TZ=%s", c, l.Job.Timezone, l.Job.Env, zones[c], tzs[c])
		}
	}
}

// TestUnknownZoneIsNeverSilentlyAnother: a line whose zone isn't known would run at the wrong
// time in any other.
func TestUnknownZoneIsNeverSilentlyAnother(t *testing.T) {
	t.Parallel()
	lines := mustParse(t, "0 0 * * * a\nCRON_TZ=Mars/Olympus\n0 0 * * * b\nFOO=bar\n0 0 * * * c\nCRON_TZ=UTC\n0 0 * * * d\nTZ=CEST\n0 0 * * * e", crontab.Options{})
	want := []crontab.Kind{
		crontab.Entry, crontab.Refused, crontab.Refused, crontab.Variable, crontab.Refused, crontab.Variable, crontab.Entry,
		crontab.Refused, crontab.Entry, // CRON_TZ is still UTC
	}
	for i, l := range lines {
		if l.Kind != want[i] || l.Kind == crontab.Refused && (l.Field != "timezone" || l.Reason == "") {
			t.Errorf("%s: %s %s %q, want %s", l.Text, l.Kind, l.Field, l.Reason, want[i])
		}
	}
	if r := lines[2].Reason; !strings.Contains(r, "line 2") || !strings.Contains(r, "Mars/Olympus") {
		t.Errorf("refused with %q, without the line and the zone", r)
	}
	var e *cron.Error
	if _, err := crontab.Parse("", crontab.Options{Timezone: "Mars/Olympus"}); !errors.As(err, &e) || e.Field != "timezone" {
		t.Errorf("as the default: %v", err)
	}
}

// TestPercent has what Vixie's cron makes of each.
func TestPercent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, command, stdin string }{
		{`mail -s x`, `mail -s x`, ""},
		{`mail%hello`, `mail`, "hello\n"},
		{`mail %`, `mail `, ""},
		{`mail%a%b`, `mail`, "a\nb\n"},
		{`mail%a%`, `mail`, "a\n"},
		{`mail%%a`, `mail`, "\na\n"},
		{`date +\%F`, `date +%F`, ""},
		{`date +\%F%a\%b`, `date +%F`, "a%b\n"},
		{`echo a\b`, `echo a\b`, ""},
		{`echo a\\%b`, `echo a\\`, "b\n"},
		{`echo a\\\%b`, `echo a\\%b`, ""},
		{`cat%a\\%b`, `cat`, "a\\%b\n"},
		{`echo \`, `echo \`, ""},
		{`echo "50\% of #1"`, `echo "50% of #1"`, ""},
	} {
		j := job(t, "* * * * * "+c.text, crontab.Options{})
		if j.Command != c.command || j.Stdin != c.stdin {
			t.Errorf("%s: command %q, input %q, want %q, %q", c.text, j.Command, j.Stdin, c.command, c.stdin)
		}
	}
	if l := mustParse(t, "* * * * * %input", crontab.Options{})[0]; l.Kind != crontab.Refused || l.Field != "command" {
		t.Errorf("only input: %s %s", l.Kind, l.Reason)
	}
}

func TestRandomNumbersBecomeStable(t *testing.T) {
	t.Parallel()
	for fields, want := range map[string]string{
		"~ * * * *":             "H * * * *",
		"0~29 ~ * * *":          "H(0-29) H * * *",
		"~29 8~ * * *":          "H(0-29) H(8-23) * * *",
		"0 0 ~15,20~ * *":       "0 0 H(1-15),H(20-31) * *",
		"~/10 0~9/5,20 * ~6 ~5": "H/10 H(0-9)/5,20 * H(1-6) H(0-5)",
	} {
		if got := job(t, fields+" x", crontab.Options{}).Schedule; got != want {
			t.Errorf("%s: %s, want %s", fields, got, want)
		}
	}
	for _, fields := range []string{"1~2~3 * * * *", "9~5 * * * *", "0~99 * * * *", "a~b * * * *"} {
		if l := mustParse(t, fields+" x", crontab.Options{})[0]; l.Kind != crontab.Refused || l.Reason == "" {
			t.Errorf("%s: %s", fields, l.Kind)
		}
	}
}

func TestNamesAreStableAndUnique(t *testing.T) {
	t.Parallel()
	names := func(text string, o crontab.Options) (list []string) {
		for _, l := range mustParse(t, text, o) {
			if l.Job != nil {
				list = append(list, l.Job.Name)
			}
		}
		return list
	}
	before := names("0 1 * * * /usr/bin/backup --full\n0 2 * * * clean\n", crontab.Options{})
	after := names("# moved, edited\nX=1\n30 3 * * 1-5 clean\n\n@daily /usr/bin/backup --full\n", crontab.Options{})
	if before[0] != after[1] || before[1] != after[0] {
		t.Errorf("names %q became %q", before, after)
	}
	if !strings.HasPrefix(before[0], "backup-full-") || !strings.HasPrefix(before[1], "clean-") {
		t.Errorf("names %q say nothing", before)
	}
	// Jobs with the same schedule and command are still different jobs.
	same := names("0 1 * * * x\n0 1 * * * x\n0 2 * * * x\n0 1 * * * x%input", crontab.Options{})
	if same[1] != same[0]+".2" || same[2] != same[0]+".3" || same[3] == same[0] || strings.HasPrefix(same[3], same[0]+".") {
		t.Errorf("names %q", same)
	}
	// So are two users' jobs, and commands that look alike.
	users := names("0 1 * * * a x y\n0 1 * * * b x y\n0 1 * * * a x  y\n", crontab.Options{System: true})
	if users[0] == users[1] || users[0] == users[2] {
		t.Errorf("names %q", users)
	}
	// Whatever the command, a name is one that a job can have.
	for _, command := range []string{
		"/", "[ -x /usr/bin/x ] && y", "> /dev/null", strings.Repeat("x", 5000), strings.Repeat("word ", 500), "日本語", "../..", "a\tb", `"quo ted" 'x'`, "-",
	} {
		name := names("* * * * * "+command, crontab.Options{})[0]
		if len(name) > 100 || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-") != "" {
			t.Errorf("%.30q is named %q", command, name)
		}
	}
}

func TestWhatIsTooLong(t *testing.T) {
	t.Parallel()
	var tooLong *crontab.TooLongError
	if _, err := crontab.Parse(strings.Repeat("#\n", 10_001), crontab.Options{}); !errors.As(err, &tooLong) || tooLong.What != "lines" {
		t.Errorf("10,001 lines: %v", err)
	}
	if _, err := crontab.Parse(strings.Repeat("* * * * * x\n", 1001), crontab.Options{}); !errors.As(err, &tooLong) || tooLong.What != "jobs" {
		t.Errorf("1,001 jobs: %v", err)
	}
	if _, err := crontab.Parse(strings.Repeat("* * * * * x\n", 1000), crontab.Options{}); err != nil {
		t.Errorf("1,000 jobs: %v", err)
	}
	var many strings.Builder
	for n := range 101 {
		fmt.Fprintf(&many, "V%d=x\n", n)
	}
	for _, c := range []struct{ text, field string }{
		{"* * * * * " + strings.Repeat("x", 17_000), "line"},
		{"* * * * * a\x00b", "line"},
		{"* * * * * \xff", "line"},
		{"A=" + strings.Repeat("x", 10_000) + "\nB=" + strings.Repeat("x", 10_000), "variable"},
		{many.String(), "variable"},
	} {
		lines := mustParse(t, c.text+"\n0 5 * * * good", crontab.Options{})
		bad, good := lines[len(lines)-2], lines[len(lines)-1]
		if bad.Kind != crontab.Refused || bad.Field != c.field || bad.Reason == "" || good.Kind != crontab.Entry {
			t.Errorf("%.20q: %s %s %q, and the line after it %s", c.text, bad.Kind, bad.Field, bad.Reason, good.Kind)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"# x\nA=b\n*/5 * * * * x%y\n", "CRON_TZ=Europe/Berlin\n@daily x", "@every 5m x", "~ 0~5/2 * * * x\\%", "A = 'b'\n\"A\"=\"", "@every", "@", "-",
		"0 0 * * * root x", "TZ=Mars\n* * * * * x", "\xef\xbb\xbf* * * * * x", "* * * * *\tx\r\n", "H(0-5) * * * * x", "0 0 L * FRIL x",
	} {
		f.Add(text, false)
		f.Add(text, true)
	}
	f.Fuzz(func(t *testing.T, text string, system bool) {
		lines, err := crontab.Parse(text, crontab.Options{System: system})
		if err != nil {
			return
		}
		names := map[string]bool{}
		last := 0
		for _, l := range lines {
			if l.Number <= last || (l.Kind == crontab.Entry) != (l.Job != nil) || l.Kind != crontab.Entry && l.Reason == "" || l.Kind == crontab.Refused && l.Field == "" {
				t.Fatalf("%+v after line %d", l, last)
			}
			last = l.Number
			if l.Job == nil {
				continue
			}
			j := l.Job
			if names[j.Name] || j.Name == "" || strings.Trim(j.Command, " \t") == "" || system != (j.User != "") {
				t.Fatalf("%+v", j)
			}
			names[j.Name] = true
			loc, err := cron.LoadLocation(j.Timezone)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := cron.Parse(j.Schedule, cron.Options{Location: loc, Seed: j.Name}); err != nil {
				t.Fatal(err)
			}
		}
	})
}
