package alert

import (
	"strings"
	"testing"
	"time"
)

func urls(rules []Rule) string {
	var out []string
	for _, r := range rules {
		out = append(out, r.URL)
	}
	return strings.Join(out, " ")
}

func TestWhoIsTold(t *testing.T) {
	t.Parallel()
	rules := []Rule{
		{On: []Kind{Failed, Recovered}, URL: "now"},
		{On: []Kind{Failed, Recovered}, URL: "later", After: time.Minute},
		{On: []Kind{Missed}, URL: "missed"},
		{On: []Kind{Late}, URL: "late"},
		{On: []Kind{Late}, URL: "later still", After: time.Hour},
		{On: []Kind{Recovered}, URL: "good news only"},
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var n Incident
	step := func(what, want string, news []Rule) {
		t.Helper()
		if got := urls(news); got != want {
			t.Errorf("%s told %q, want %q", what, got, want)
		}
	}
	step("a success out of nothing", "", n.Succeed(rules, false))
	step("a failure", "now", n.Fail(start, rules))
	step("another one", "", n.Fail(start.Add(59*time.Second), rules))
	step("one after a minute", "later", n.Fail(start.Add(time.Minute), rules))
	step("one more", "", n.Fail(start.Add(time.Hour), rules))
	step("an outage", "missed", n.Miss(rules))
	step("another outage", "", n.Miss(rules))
	step("a late run", "late", n.Late(2*time.Minute, rules))
	step("a later run", "later still", n.Late(2*time.Hour, rules))
	if n.Failures != 4 || !n.Since.Equal(start) {
		t.Errorf("%+v", n)
	}
	step("a success", "now later good news only", n.Succeed(rules, false))
	step("another one", "", n.Succeed(rules, false))
	step("a late run", "", n.Late(2*time.Minute, rules))
	n.InTime(30*time.Minute, rules) // by the one, not by the other
	step("a late run", "later still", n.Late(2*time.Hour, rules))
	n.InTime(0, rules)
	if !n.Zero() {
		t.Errorf("left: %+v", n)
	}
	step("a failure", "now", n.Fail(start, rules))
	step("the end of a short failure", "now good news only", n.Succeed(rules, false))
}

func TestLateAfter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		want  time.Duration
		rules []Rule
	}{
		{0, nil},
		{0, []Rule{{On: []Kind{Failed}, After: time.Second}}},
		{DefaultLate, []Rule{{On: []Kind{Failed, Late}}}},
		{time.Second, []Rule{{On: []Kind{Late}}, {On: []Kind{Late}, After: time.Second}}},
	} {
		if got := LateAfter(c.rules); got != c.want {
			t.Errorf("%v: %v, want %v", c.rules, got, c.want)
		}
	}
}
