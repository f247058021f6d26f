package web

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"holdfast/chronos"
	"holdfast/chronos/queue"
)

// runRow is a run with what can be said about it.
type runRow struct {
	chronos.Run
	Why  string // what went wrong, or why it didn't run; empty: nothing
	Took string // the last attempt; empty: unknown
}

func listOf(now time.Time, job bool, runs []chronos.Run) runList {
	list := runList{Now: now, Job: job}
	for _, r := range runs {
		list.Items = append(list.Items, rowOfRun(r))
	}
	return list
}

func rowOfRun(r chronos.Run) runRow {
	row := runRow{Run: r, Why: why(r)}
	if last := row.Last(); last != nil {
		if long, ok := duration(*last); ok {
			row.Took = millis(long)
		}
	}
	return row
}

// Last is the last attempt; nil: none was made.
func (r runRow) Last() *queue.Attempt {
	if len(r.Attempts) == 0 {
		return nil
	}
	return &r.Attempts[len(r.Attempts)-1]
}

// Late is how long after its instant the run was begun; empty if it wasn't, or in time.
func (r runRow) Late() string {
	if len(r.Attempts) == 0 || r.Attempts[0].StartedAt == nil || r.Trigger != queue.Schedule {
		return ""
	}
	late := r.Attempts[0].StartedAt.Sub(r.EffectiveAt)
	if late < time.Second {
		return ""
	}
	return spell(late) + " late"
}

var reasons = map[string]string{
	queue.ReasonPaused:     "the job was paused",
	queue.ReasonOverlap:    "an earlier run was still going",
	queue.ReasonQueueFull:  "an earlier run was still going, and too many were waiting",
	queue.ReasonReplaced:   "a later instant took its place",
	queue.ReasonExcluded:   "a calendar excludes its date",
	queue.ReasonSkipNext:   "somebody asked to have it skipped",
	queue.ReasonOutage:     "nobody could run it in time",
	queue.ReasonJobDeleted: "the job was deleted",
	queue.ReasonRequested:  "somebody cancelled it",
}

// why tells what became of a run that didn't simply succeed.
func why(r chronos.Run) string {
	var parts []string
	if r.Missed != nil && r.Missed.Count > 1 {
		parts = append(parts, fmt.Sprintf("%s instants until %s", number(int64(r.Missed.Count)), r.Missed.To.UTC().Format("2 Jan 15:04:05")))
	}
	last := &queue.Attempt{}
	if n := len(r.Attempts); n > 0 {
		last = &r.Attempts[n-1]
	}
	if r.Reason != "" && r.Reason != last.Outcome {
		text, ok := reasons[r.Reason]
		if !ok {
			text = strings.ReplaceAll(r.Reason, "_", " ")
		}
		parts = append(parts, text)
	}
	if r.Status != queue.Succeeded {
		parts = append(parts, faultOf(*last)...)
	}
	return strings.Join(parts, "; ")
}

// faultOf is what an attempt failed with.
func faultOf(a queue.Attempt) []string {
	switch {
	case a.Error != "":
		return []string{excerpt(a.Error, 200)}
	case a.StatusCode >= 300:
		return []string{fmt.Sprintf("answered with %d", a.StatusCode)}
	case a.FinishedAt != nil && a.Outcome != string(queue.Succeeded):
		return []string{strings.ReplaceAll(a.Outcome, "_", " ")}
	}
	return nil
}

// duration is how long an attempt took, as its sender measured or else between its marks.
func duration(a queue.Attempt) (time.Duration, bool) {
	switch {
	case a.LatencyMS != nil:
		return time.Duration(*a.LatencyMS) * time.Millisecond, true
	case a.StartedAt != nil && a.FinishedAt != nil:
		return a.FinishedAt.Sub(*a.StartedAt), true
	}
	return 0, false
}

// tookOf is runs, the latest first, for a plot, the oldest first. What hasn't begun is left out.
func tookOf(latestFirst []chronos.Run) []took {
	var all []took
	for _, r := range slices.Backward(latestFirst) {
		if r.Status == queue.Pending && len(r.Attempts) == 0 {
			continue
		}
		t := took{at: r.ScheduledFor.UTC(), kind: string(r.Status)}
		t.text = t.at.Format("2 Jan 15:04:05") + ": " + t.kind
		if len(r.Attempts) > 0 {
			if t.long, t.timed = duration(r.Attempts[len(r.Attempts)-1]); t.timed {
				t.text += " in " + millis(t.long)
			}
		}
		all = append(all, t)
	}
	return all
}

// strip is a row of cells, one for each run, the latest at the right. The cells differ in colour
// and in shape.
type strip struct {
	Width   int
	Cells   []cell
	Summary string
}

type cell struct {
	X    int
	Kind string // a status
	ID   string
	Text string
}

// A cell's place in the strip; the page draws cells 8 by 20.
const cellPitch = 10

// stripOrder is the order in which a strip's runs are counted up.
var stripOrder = []queue.Status{
	queue.Succeeded, queue.Failed, queue.Missed, queue.Skipped, queue.Cancelled, queue.Running, queue.Leased, queue.Pending,
}

func newStrip(latestFirst []chronos.Glance) strip {
	s := strip{Width: runsPerStrip * cellPitch}
	counts := map[queue.Status]int{}
	for i, g := range latestFirst[:min(len(latestFirst), runsPerStrip)] {
		counts[g.Status]++
		text := fmt.Sprintf("%s: %s", g.ScheduledFor.UTC().Format("2 Jan 15:04:05"), g.Status)
		if reason, ok := reasons[g.Reason]; ok {
			text += ", " + reason
		}
		if g.Missed != nil && g.Missed.Count > 1 {
			text += fmt.Sprintf(" (%s instants)", number(int64(g.Missed.Count)))
		}
		if g.Attempt > 1 {
			text += fmt.Sprintf(", attempt %d", g.Attempt)
		}
		s.Cells = append(s.Cells, cell{s.Width - (i+1)*cellPitch, string(g.Status), g.ID.String(), text})
	}
	slices.Reverse(s.Cells) // drawn from left to right
	var parts []string
	for _, status := range stripOrder {
		if n := counts[status]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, status))
		}
	}
	s.Summary = strings.Join(parts, ", ")
	return s
}
