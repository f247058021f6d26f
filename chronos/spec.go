package chronos

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"time"
	"unicode/utf8"

	"holdfast/chronos/alert"
	"holdfast/webhook"
)

// Overlap says what happens to an instant that comes while as many runs of the job are going as may be.
type Overlap string

const (
	OverlapAllow   Overlap = "allow"   // it runs too
	OverlapSkip    Overlap = "skip"    // it is skipped
	OverlapQueue   Overlap = "queue"   // it waits for its turn
	OverlapReplace Overlap = "replace" // it runs instead
)

// CatchUpPolicy says what is made up for after an outage.
type CatchUpPolicy string

const (
	CatchUpNone   CatchUpPolicy = "none"
	CatchUpLatest CatchUpPolicy = "latest" // the newest instant alone
	CatchUpAll    CatchUpPolicy = "all"    // the newest, up to a number
)

// Spec is what the owner of a job says about it. Its JSON is what is stored.
type Spec struct {
	Schedule   Timing     `json:"schedule"`
	Timezone   string     `json:"timezone"`
	DayMatch   string     `json:"day_match"`
	DSTGap     string     `json:"dst_gap"`
	DSTOverlap string     `json:"dst_overlap"`
	StartAt    *time.Time `json:"start_at,omitempty"` // the first instant that counts
	EndAt      *time.Time `json:"end_at,omitempty"`   // the first that doesn't any more
	MaxRuns    *int64     `json:"max_runs,omitempty"`
	Target     Target     `json:"target"`
	Retry      Retry      `json:"retry"`
	Overlap    Overlap    `json:"overlap"`
	CatchUp    CatchUp    `json:"catch_up"`
	Priority   int        `json:"priority"` // 0 to 9, higher first
	// MaxConcurrent is how many runs may be going before Overlap has a say. Runs that were asked for start
	// anyway, and count.
	MaxConcurrent int `json:"max_concurrent"`
	// Jitter delays each instant by less than this, always by as much.
	Jitter  time.Duration     `json:"jitter_ns,omitempty"`
	Exclude []string          `json:"exclude,omitempty"` // names of calendars
	Labels  map[string]string `json:"labels,omitempty"`
	Alerts  []alert.Rule      `json:"alerts,omitempty"`
}

// Timing is exactly one of an expression, an interval and an instant.
type Timing struct {
	Expression string        `json:"expression,omitempty"`
	Every      time.Duration `json:"every_ns,omitempty"`
	At         string        `json:"at,omitempty"` // local to the job's zone
}

// Target is exactly one of a webhook and a queue to pull from.
type Target struct {
	Webhook *Webhook `json:"webhook,omitempty"`
	Pull    *Pull    `json:"pull,omitempty"`
}

// Webhook is an HTTP request to be made.
type Webhook struct {
	URL     string            `json:"url"`
	Method  string            `json:"method"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    json.RawMessage   `json:"body,omitempty"` // nil: {id, job, attempt, scheduled_for}
	Timeout time.Duration     `json:"timeout_ns"`
}

// Pull is a queue that workers lease from.
type Pull struct {
	Queue   string          `json:"queue"`
	Payload json.RawMessage `json:"payload,omitempty"` // nil: none; a trigger may bring its own
}

// Retry says how failed attempts are repeated.
type Retry struct {
	MaxAttempts int           `json:"max_attempts"`
	Backoff     time.Duration `json:"backoff_ns"`     // after the first failure; it doubles
	MaxBackoff  time.Duration `json:"max_backoff_ns"` // up to this
}

// CatchUp bounds what is made up for after an outage: the newest Max instants of the last Window.
type CatchUp struct {
	Policy CatchUpPolicy `json:"policy"`
	Window time.Duration `json:"window_ns"`
	Max    int           `json:"max"`
}

// The defaults of a job.
const (
	DefaultTimezone    = "UTC"
	DefaultMaxAttempts = 5
	DefaultBackoff     = 10 * time.Second
	DefaultMaxBackoff  = time.Hour
	DefaultWindow      = time.Hour
	DefaultCatchUpMax  = 10
)

// Bounds of a job's settings.
const (
	maxMaxAttempts = 100
	maxBackoff     = 7 * 24 * time.Hour
	maxWindow      = 366 * 24 * time.Hour
	maxCatchUp     = 10_000
	maxConcurrent  = 1000
	maxJitter      = 24 * time.Hour
	maxExclude     = 16
	maxLabels      = 64
	maxLabelValue  = 255
)

// DefaultSpec is a spec of which only schedule and target are missing.
func DefaultSpec() Spec {
	return Spec{
		Timezone: DefaultTimezone, DayMatch: "any", DSTGap: "run", DSTOverlap: "once",
		Retry:   Retry{MaxAttempts: DefaultMaxAttempts, Backoff: DefaultBackoff, MaxBackoff: DefaultMaxBackoff},
		Overlap: OverlapSkip, MaxConcurrent: 1,
		CatchUp: CatchUp{Policy: CatchUpLatest, Window: DefaultWindow, Max: DefaultCatchUpMax},
	}
}

var name = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)

const nameRule = "must be 1 to 128 characters of A-Z a-z 0-9 . _ : -"

// CheckName fails with a [FieldError] unless s can name a job.
func CheckName(s string) error {
	if !name.MatchString(s) {
		return invalid("name", nameRule)
	}
	return nil
}

// check fails with a [FieldError] at the first thing that can't be. The timing is judged
// by compile.
func (s *Spec) check(guard *webhook.Guard) error {
	if err := s.Target.check(guard); err != nil {
		return err
	}
	switch {
	case s.Retry.MaxAttempts < 1 || s.Retry.MaxAttempts > maxMaxAttempts:
		return invalid("retry.max_attempts", "must be 1 to %d", maxMaxAttempts)
	case s.Retry.Backoff < 0 || s.Retry.Backoff > maxBackoff:
		return invalid("retry.backoff", "must be 0s to 168h")
	case s.Retry.MaxBackoff < 0 || s.Retry.MaxBackoff > maxBackoff:
		return invalid("retry.max_backoff", "must be 0s to 168h")
	case !slices.Contains([]Overlap{OverlapAllow, OverlapSkip, OverlapQueue, OverlapReplace}, s.Overlap):
		return invalid("overlap", "must be allow, skip, queue or replace")
	case s.MaxConcurrent < 1 || s.MaxConcurrent > maxConcurrent:
		return invalid("max_concurrent", "must be 1 to %d", maxConcurrent)
	case s.Jitter < 0 || s.Jitter > maxJitter || s.Jitter%time.Millisecond != 0:
		return invalid("jitter", "must be 0s to 24h, in whole milliseconds")
	case len(s.Exclude) > maxExclude:
		return invalid("exclude", "must be at most %d calendars", maxExclude)
	case !slices.Contains([]CatchUpPolicy{CatchUpNone, CatchUpLatest, CatchUpAll}, s.CatchUp.Policy):
		return invalid("catch_up.policy", "must be none, latest or all")
	case s.CatchUp.Window < 0 || s.CatchUp.Window > maxWindow:
		return invalid("catch_up.window", "must be 0s to 8784h")
	case s.CatchUp.Max < 1 || s.CatchUp.Max > maxCatchUp:
		return invalid("catch_up.max", "must be 1 to %d", maxCatchUp)
	case s.Priority < 0 || s.Priority > 9:
		return invalid("priority", "must be 0 to 9")
	case s.MaxRuns != nil && *s.MaxRuns < 1:
		return invalid("max_runs", "must be at least 1, or null")
	case s.StartAt != nil && s.EndAt != nil && !s.EndAt.After(*s.StartAt):
		return invalid("end_at", "must be later than start_at")
	case len(s.Labels) > maxLabels:
		return invalid("labels", "must be at most %d", maxLabels)
	}
	for i, calendar := range s.Exclude {
		field := fmt.Sprintf("exclude[%d]", i)
		if !name.MatchString(calendar) {
			return invalid(field, "a calendar's name "+nameRule)
		}
		if slices.Contains(s.Exclude[:i], calendar) {
			return invalid(field, "is there twice")
		}
	}
	for key, value := range s.Labels {
		if !name.MatchString(key) {
			return invalid("labels."+key, "a label's name "+nameRule)
		}
		if utf8.RuneCountInString(value) > maxLabelValue {
			return invalid("labels."+key, "must have at most %d characters", maxLabelValue)
		}
	}
	return checkAlerts(s.Alerts, false, guard)
}

func (t *Target) check(guard *webhook.Guard) error {
	switch {
	case (t.Webhook == nil) == (t.Pull == nil):
		return invalid("target", "must have one of webhook and pull")
	case t.Pull != nil && !name.MatchString(t.Pull.Queue):
		return invalid("target.pull.queue", nameRule)
	case t.Pull != nil:
		return nil
	}
	for _, err := range []error{
		guard.CheckURL(t.Webhook.URL), webhook.CheckMethod(t.Webhook.Method),
		webhook.CheckHeaders(t.Webhook.Headers), webhook.CheckTimeout(t.Webhook.Timeout),
	} {
		if err != nil {
			return targetError(err)
		}
	}
	return nil
}

// origin is where a webhook goes; empty: there is none.
func (t *Target) origin() string {
	if t.Webhook == nil {
		return ""
	}
	return webhook.Origin(t.Webhook.URL)
}

// id stands for the origin in the database; zero: there is none.
func (t *Target) id() int64 {
	origin := t.origin()
	if origin == "" {
		return 0
	}
	sum := sha256.Sum256([]byte(origin))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// payload is what a worker gets with a run; nil: nothing.
func (t *Target) payload() json.RawMessage {
	if t.Pull == nil {
		return nil
	}
	return t.Pull.Payload
}

// queueOf is where the job's runs wait: empty for the dispatcher's.
func (s *Spec) queueOf(tenant string) string {
	if s.Target.Pull == nil {
		return ""
	}
	return QueueName(tenant, s.Target.Pull.Queue)
}

// QueueName is what package queue calls a tenant's queue. A tenant's name has no slash.
func QueueName(tenant, queue string) string { return tenant + "/" + queue }

// sameTiming reports whether both have the same instants, given the same anchor.
func (s *Spec) sameTiming(o *Spec) bool {
	return s.Schedule == o.Schedule && s.Timezone == o.Timezone && sameInstant(s.StartAt, o.StartAt)
}

func sameInstant(a, b *time.Time) bool {
	return a == nil && b == nil || a != nil && b != nil && a.Equal(*b)
}
