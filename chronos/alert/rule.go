package alert

import (
	"fmt"
	"slices"
	"time"
)

// Kind is what an alert tells.
type Kind string

const (
	Failed    Kind = "failed"    // a run has failed for good, or a monitored job said that it has
	Missed    Kind = "missed"    // an instant passed and nobody could run it, or no check-in came
	Late      Kind = "late"      // a run hasn't begun in time, or a monitored one hasn't ended in time
	Recovered Kind = "recovered" // the first success after one of the others that was told
)

// Kinds are all that a rule may name.
var Kinds = []Kind{Failed, Missed, Late, Recovered}

const (
	// DefaultLate is how long after its instant a run is late, unless a rule says.
	DefaultLate = time.Minute
	// MaxRules bounds the rules of one job or monitor.
	MaxRules = 10

	minAfter = time.Second
	maxAfter = 7 * 24 * time.Hour
)

// Rule sends the kinds of news that it names to a URL.
type Rule struct {
	On  []Kind `json:"on"`
	URL string `json:"url"`
	// After is, of late, how long a run may take to begin after its instant; of failed, how long a job must
	// have been failing. Zero: [DefaultLate], and at once.
	After time.Duration `json:"after_ns,omitempty"`
}

func (r *Rule) is(k Kind) bool { return slices.Contains(r.On, k) }

// lateAfter is how long after its instant a run is late by the rule.
func (r *Rule) lateAfter() time.Duration {
	if r.After == 0 {
		return DefaultLate
	}
	return r.After
}

// LateAfter is when a run is to be looked at first, after its instant; zero: no rule asks.
func LateAfter(rules []Rule) (first time.Duration) {
	for _, r := range rules {
		if r.is(Late) && (first == 0 || r.lateAfter() < first) {
			first = r.lateAfter()
		}
	}
	return first
}

// RuleError says which member of which rule can't be, as in the JSON of the API.
type RuleError struct {
	Field  string // e.g. alerts[0].on
	Reason string
}

func (e *RuleError) Error() string { return e.Field + ": " + e.Reason }

// Check fails with a [RuleError], or with what checkURL says. A monitor's rules have no after: its grace says
// when it is late.
func Check(rules []Rule, monitor bool, checkURL func(field, url string) error) error {
	if len(rules) > MaxRules {
		return &RuleError{"alerts", fmt.Sprintf("must be at most %d", MaxRules)}
	}
	seen := map[string]bool{}
	for i, r := range rules {
		field := fmt.Sprintf("alerts[%d]", i)
		if len(r.On) == 0 {
			return &RuleError{field + ".on", "must name at least one of failed, missed, late and recovered"}
		}
		for n, k := range r.On {
			switch {
			case !slices.Contains(Kinds, k):
				return &RuleError{fmt.Sprintf("%s.on[%d]", field, n), "must be failed, missed, late or recovered"}
			case seen[told(k, r.URL)]:
				return &RuleError{fmt.Sprintf("%s.on[%d]", field, n), fmt.Sprintf("%s goes to this url already", k)}
			}
			seen[told(k, r.URL)] = true
		}
		switch {
		case r.After == 0:
		case monitor:
			return &RuleError{field + ".after", "a monitor has none: its grace says when it is late"}
		case !r.is(Late) && !r.is(Failed):
			return &RuleError{field + ".after", "only late and failed have one"}
		case r.After < minAfter || r.After > maxAfter:
			return &RuleError{field + ".after", "must be 1s to 168h"}
		}
		if err := checkURL(field+".url", r.URL); err != nil {
			return err
		}
	}
	return nil
}
