package web

import (
	"encoding/json"
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"holdfast/chronos/queue"
)

// words are what templates say things with.
var words = template.FuncMap{
	"asset": assetPath,
	"number": func(n any) string {
		if p, ok := n.(*int64); ok {
			return number(*p)
		}
		return number(n.(int64))
	},
	"signed": signed,
	"minus":  func(a, b int) int { return a - b },
	"at":     at,
	"short":  short,
	"lower":  strings.ToLower,
	"human":  func(word any) string { return strings.ReplaceAll(fmt.Sprint(word), "_", " ") },
	"spell": func(d any) string {
		if p, ok := d.(*time.Duration); ok {
			return spell(*p)
		}
		return spell(d.(time.Duration))
	},
	"millis":      millis,
	"local":       local,
	"text":        func(raw json.RawMessage) string { return string(raw) },
	"excerpt":     func(text string) string { return excerpt(text, longestText) },
	"list":        func(items ...string) []string { return items },
	"attemptKind": attemptKind,
	"attemptTook": func(a queue.Attempt) string {
		if long, ok := duration(a); ok {
			return millis(long)
		}
		return "–"
	},
}

// longestText is how many bytes of a body or an answer a page shows.
const longestText = 4096

// attemptKind is the status that an attempt's outcome is coloured like.
func attemptKind(a queue.Attempt) queue.Status {
	switch {
	case a.FinishedAt == nil:
		return queue.Running
	case a.Outcome == string(queue.Succeeded):
		return queue.Succeeded
	case a.Outcome == queue.OutcomeReleased, a.Outcome == queue.OutcomeCancelled:
		return queue.Cancelled
	}
	return queue.Failed
}

// local is an RFC 3339 time as people of its zone read it.
func local(text string) string {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return text
	}
	return t.Format("Mon 2 Jan 15:04:05 -07:00")
}

// number groups the digits: 5,000.
func number(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, digits = "−", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// signed is a change: +3, −2, or nothing for none.
func signed(n int64) string {
	switch {
	case n == 0:
		return ""
	case n > 0:
		return "+" + number(n)
	}
	return number(n)
}

// short is enough of an id for people to tell it from its neighbours: the end, since ids that
// begin with their time begin alike.
func short(id any) string {
	var text string
	switch id := id.(type) {
	case uuid.UUID:
		text = id.String()
	case *uuid.UUID:
		text = id.String()
	case string:
		text = id
	}
	if len(text) == 36 {
		return "…" + text[28:]
	}
	return text
}

// excerpt cuts a text that is too long to be read anyway.
func excerpt(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// spell is a duration in its two largest units: 9m 12s, 3d 4h. The script has the same, to
// count down between two answers.
func spell(d time.Duration) string {
	seconds := int64(d / time.Second)
	for _, u := range []struct {
		size, part  int64
		name, minor string
	}{{86400, 3600, "d", "h"}, {3600, 60, "h", "m"}, {60, 1, "m", "s"}} {
		if seconds < u.size {
			continue
		}
		text := strconv.FormatInt(seconds/u.size, 10) + u.name
		if rest := seconds % u.size / u.part; rest > 0 {
			text += " " + strconv.FormatInt(rest, 10) + u.minor
		}
		return text
	}
	return strconv.FormatInt(seconds, 10) + "s"
}

// millis is a short duration with three digits: 7 ms, 1.25 s, 2m 5s.
func millis(d time.Duration) string {
	switch {
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'g', 3, 64) + " s"
	}
	return spell(d)
}

// moment is an instant as a page shows it.
type moment struct {
	t, now time.Time
}

// at takes a time.Time or a *time.Time, for {{with}}.
func at(now time.Time, t any) moment {
	switch t := t.(type) {
	case time.Time:
		return moment{t.UTC(), now}
	case *time.Time:
		if t != nil {
			return moment{t.UTC(), now}
		}
	}
	return moment{now: now}
}

// Given reports whether there is one.
func (m moment) Given() bool { return !m.t.IsZero() }

// Machine is for the datetime attribute.
func (m moment) Machine() string { return m.t.Format("2006-01-02T15:04:05.000Z07:00") }

// Full leaves nothing out.
func (m moment) Full() string { return m.t.Format("Mon 2 Jan 2006 15:04:05.000 UTC") }

// Clock is the time of day, with the date unless it is today.
func (m moment) Clock() string {
	switch {
	case m.t.Format(time.DateOnly) == m.now.Format(time.DateOnly):
		return m.t.Format("15:04:05")
	case m.t.Year() == m.now.Year():
		return m.t.Format("2 Jan 15:04")
	}
	return m.t.Format("2 Jan 2006 15:04")
}

// Relative is how long ago, or in how long.
func (m moment) Relative() string {
	d := m.t.Sub(m.now)
	switch {
	case d >= time.Second:
		return "in " + spell(d)
	case d > -time.Second:
		return "now"
	}
	return spell(-d) + " ago"
}
