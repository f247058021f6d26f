package alert

import (
	"slices"
	"strings"
	"time"
)

// Incident is what has gone wrong with a job or monitor since its last success, and whom it was told. The zero
// Incident is that nothing has.
type Incident struct {
	Since    *time.Time `json:"since,omitempty"`    // the first failure in a row
	Failures int        `json:"failures,omitempty"` // in a row
	Told     []string   `json:"told,omitempty"`     // which alerts were made of it: kind and URL
}

// Zero reports whether nothing has gone wrong.
func (n *Incident) Zero() bool { return n.Since == nil && n.Failures == 0 && len(n.Told) == 0 }

func told(k Kind, url string) string { return string(k) + " " + url }

// tell gives the rules to which the news is new, and remembers that they know it.
func (n *Incident) tell(k Kind, rules []Rule, fits func(*Rule) bool) (news []Rule) {
	for _, r := range rules {
		key := told(k, r.URL)
		if !r.is(k) || slices.Contains(n.Told, key) || fits != nil && !fits(&r) {
			continue
		}
		n.Told = append(n.Told, key)
		news = append(news, r)
	}
	return news
}

// Fail notes a failure, and gives the rules to tell of it: those that aren't told yet, once the failures have gone on
// for as long as they say.
func (n *Incident) Fail(at time.Time, rules []Rule) []Rule {
	if n.Since == nil {
		n.Since = &at
	}
	n.Failures++
	return n.tell(Failed, rules, func(r *Rule) bool { return at.Sub(*n.Since) >= r.After })
}

// Miss gives the rules to tell that instants, or check-ins, were missed.
func (n *Incident) Miss(rules []Rule) []Rule { return n.tell(Missed, rules, nil) }

// Late gives the rules to tell of a run that was or is late by so much.
func (n *Incident) Late(by time.Duration, rules []Rule) []Rule {
	return n.tell(Late, rules, func(r *Rule) bool { return by >= r.lateAfter() })
}

// Overrun gives the rules to tell of a monitored run that hasn't ended in time.
func (n *Incident) Overrun(rules []Rule) []Rule { return n.tell(Late, rules, nil) }

// InTime forgets the late alerts of rules by which a run that began so late was in time.
func (n *Incident) InTime(by time.Duration, rules []Rule) {
	for _, r := range rules {
		if r.is(Late) && by < r.lateAfter() {
			n.forget(told(Late, r.URL))
		}
	}
}

func (n *Incident) forget(key string) {
	if i := slices.Index(n.Told, key); i >= 0 {
		n.Told = slices.Delete(n.Told, i, i+1)
	}
}

// Succeed ends the failures, and gives the rules to tell of it: those whose URL was told of them, and those that ask for
// nothing else. Of a job a late run is no failure, so what was told of it stays; of a monitor it is.
func (n *Incident) Succeed(rules []Rule, lateToo bool) (news []Rule) {
	ended := func(key string) bool { return lateToo || !strings.HasPrefix(key, string(Late)+" ") }
	for _, r := range rules {
		if !r.is(Recovered) {
			continue
		}
		heard := slices.ContainsFunc(n.Told, func(key string) bool {
			_, url, _ := strings.Cut(key, " ")
			return ended(key) && (url == r.URL || len(r.On) == 1 && !asks(rules, r.URL))
		})
		if heard {
			news = append(news, r)
		}
	}
	n.Since, n.Failures = nil, 0
	n.Told = slices.DeleteFunc(n.Told, ended)
	return news
}

// asks reports whether a URL is to be told of what goes wrong.
func asks(rules []Rule, url string) bool {
	return slices.ContainsFunc(rules, func(r Rule) bool { return r.URL == url && (r.is(Failed) || r.is(Missed)) })
}
