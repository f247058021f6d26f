package chronos

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"holdfast/chronos/cron"
	"holdfast/chronos/queue"
)

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// everySecond is a job whose watermark is that long before noon.
func everySecond(ago time.Duration, change func(*Job)) *Job {
	spec := DefaultSpec()
	spec.Schedule.Every = time.Second
	next := noon.Add(-ago)
	j := &Job{ID: 7, Name: "job", Tenant: "default", Spec: spec, Anchor: noon.Add(-1000 * time.Hour), NextAt: &next}
	if change != nil {
		change(j)
	}
	return j
}

// fate sums a plan up: how many instants met which fate.
func fate(p plan) map[string]int {
	sum := map[string]int{}
	for _, r := range p.runs {
		sum[string(r.Trigger)]++
	}
	for _, r := range p.records {
		sum[string(r.Status)+" "+r.Reason] += r.Count
		sum["records"]++
	}
	return sum
}

// ahead is the horizon of these tests.
const ahead = 5 * time.Second

// C3: whatever happens, every instant up to the horizon has a fate.
func TestC3EveryInstantHasAFate(t *testing.T) {
	t.Parallel()
	until := func(d time.Duration) *time.Time { at := noon.Add(d); return &at }
	policy := func(p CatchUpPolicy, window time.Duration, max int) func(*Job) {
		return func(j *Job) { j.Spec.CatchUp = CatchUp{p, window, max} }
	}
	for name, c := range map[string]struct {
		ago    time.Duration
		change func(*Job)
		want   map[string]int
	}{
		// Six instants are ahead: 12:00:00 to 12:00:05.
		"in step":             {0, nil, map[string]int{"schedule": 6}},
		"late, but punctual":  {30 * time.Second, nil, map[string]int{"schedule": 36}},
		"outage, none":        {10 * time.Minute, policy(CatchUpNone, time.Hour, 10), map[string]int{"schedule": 36, "missed outage": 570, "records": 1}},
		"outage, latest":      {10 * time.Minute, policy(CatchUpLatest, time.Hour, 10), map[string]int{"schedule": 36, "catch_up": 1, "missed outage": 569, "records": 1}},
		"outage, all":         {10 * time.Minute, policy(CatchUpAll, time.Hour, 10), map[string]int{"schedule": 36, "catch_up": 10, "missed outage": 560, "records": 1}},
		"outage, all of it":   {2 * time.Minute, policy(CatchUpAll, time.Hour, 100), map[string]int{"schedule": 36, "catch_up": 90}},
		"window bounds":       {10 * time.Minute, policy(CatchUpAll, time.Minute, 100), map[string]int{"schedule": 36, "catch_up": 30, "missed outage": 540, "records": 1}},
		"window closed":       {10 * time.Minute, policy(CatchUpLatest, 10*time.Second, 10), map[string]int{"schedule": 36, "missed outage": 570, "records": 1}},
		"a month, one record": {25 * time.Hour, policy(CatchUpNone, 0, 1), map[string]int{"schedule": 36, "missed outage": 89970, "records": 1}},
		"paused in the outage": {10 * time.Minute, func(j *Job) {
			j.PausedAt, j.PausedUntil = until(-5*time.Minute), until(-4*time.Minute)
			j.Spec.CatchUp = CatchUp{CatchUpAll, time.Hour, 300}
		}, map[string]int{"schedule": 36, "catch_up": 300, "skipped paused": 60, "missed outage": 210, "records": 2}},
		// What is to come may be resumed before it does.
		"paused still": {
			10 * time.Minute, func(j *Job) { j.PausedAt = until(-time.Hour) },
			map[string]int{"skipped paused": 601, "records": 1},
		},
		"paused until soon": {
			10 * time.Minute, func(j *Job) { j.PausedAt, j.PausedUntil = until(-time.Hour), until(time.Second) },
			map[string]int{"schedule": 5, "skipped paused": 601, "records": 1},
		},
		"max_runs": {0, func(j *Job) { n := int64(10); j.Spec.MaxRuns, j.Used = &n, 7 }, map[string]int{"schedule": 3}},
		"start_at": {0, func(j *Job) { j.Spec.StartAt = until(2 * time.Second) }, map[string]int{"schedule": 4}},
		"end_at":   {0, func(j *Job) { j.Spec.EndAt = until(2 * time.Second) }, map[string]int{"schedule": 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := everySecond(c.ago, c.change)
			p, err := j.plan(noon, ahead)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, fate(p)); diff != "" {
				t.Errorf("fates (-want +got):\n%s", diff)
			}
			if p.more(noon.Add(ahead)) {
				t.Error("the plan stops short of the horizon")
			}
			for _, r := range p.runs {
				if (r.Trigger == queue.Schedule) != r.DueAt.Equal(r.ScheduledFor) {
					t.Errorf("a %s run of %v is due at %v", r.Trigger, r.ScheduledFor, r.DueAt)
				}
			}
		})
	}
}

func TestPitfall25MadeUpRunsAreTheNewest(t *testing.T) {
	t.Parallel()
	j := everySecond(time.Hour, func(j *Job) { j.Spec.CatchUp = CatchUp{CatchUpAll, time.Hour, 3} })
	p, err := j.plan(noon, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []time.Duration{-33 * time.Second, -32 * time.Second, -31 * time.Second} {
		if r := p.runs[i]; r.Trigger != queue.CatchUp || !r.ScheduledFor.Equal(noon.Add(want)) {
			t.Errorf("run %d is %s of %v", i, r.Trigger, r.ScheduledFor)
		}
	}
	missed := p.records[0].Stretch
	if !missed.From.Equal(noon.Add(-time.Hour)) || !missed.To.Equal(noon.Add(-34*time.Second)) || missed.Count != 3600-33 {
		t.Errorf("missed %+v", missed)
	}
}

// A job that ran every second comes back after a month: each step is bounded, and the
// steps together account for every instant once.
func TestALongOutageIsPlannedInBoundedSteps(t *testing.T) {
	t.Parallel()
	const month = 30 * 24 * time.Hour
	j := everySecond(month, nil)
	total, steps := 0, 0
	for {
		p, err := j.plan(noon, ahead)
		if err != nil {
			t.Fatal(err)
		}
		steps++
		for _, n := range []string{"schedule", "catch_up", "missed outage"} {
			total += fate(p)[n]
		}
		if len(p.records) > 1 {
			t.Fatalf("a step wrote %d records", len(p.records))
		}
		if !p.more(noon.Add(ahead)) {
			break
		}
		j.NextAt = p.next
	}
	if want := int(month/time.Second) + 6; total != want {
		t.Errorf("%d instants have a fate, want %d", total, want)
	}
	if steps > 30 {
		t.Errorf("it took %d steps", steps)
	}
}

func TestAnEndedScheduleHasNoWatermark(t *testing.T) {
	t.Parallel()
	j := everySecond(0, func(j *Job) {
		j.Spec.Schedule = Timing{At: "2026-03-02T12:00:03"}
	})
	p, err := j.plan(noon, ahead)
	if err != nil || len(p.runs) != 1 || p.next != nil {
		t.Errorf("planned %d runs, next %v, %v", len(p.runs), p.next, err)
	}
}

func TestStartAtIsTheFirstInstantOfAnInterval(t *testing.T) {
	t.Parallel()
	start := noon.Add(90 * time.Minute)
	for _, timing := range []Timing{{Every: time.Hour}, {Expression: "@every 1h"}} {
		spec := DefaultSpec()
		spec.Schedule, spec.StartAt = timing, &start
		tt, err := spec.compile("job", noon, nil)
		if err != nil {
			t.Fatal(err)
		}
		first, _ := tt.Next(noon)
		second, _ := tt.Next(first)
		if !first.Equal(start) || !second.Equal(start.Add(time.Hour)) {
			t.Errorf("%+v begins at %v, %v", timing, first, second)
		}
	}
}

// Jitter only delays, by the same for each instant whoever works it out, spread over all of its range.
func TestJitterIsDeterministicAndOnlyDelays(t *testing.T) {
	t.Parallel()
	j := everySecond(0, func(j *Job) { j.Spec.Jitter = 10 * time.Second })
	p, err := j.plan(noon, 15*time.Second)
	if err != nil || len(p.runs) != 16 {
		t.Fatalf("planned %d runs, %v", len(p.runs), err)
	}
	again, err := everySecond(0, func(j *Job) { j.Spec.Jitter, j.ID = 10*time.Second, 99 }).plan(noon, 15*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var least, most time.Duration = time.Hour, 0
	for i, r := range p.runs {
		delay := r.DueAt.Sub(r.ScheduledFor)
		if delay < 0 || delay >= 10*time.Second || delay%time.Millisecond != 0 || !r.DueAt.Equal(again.runs[i].DueAt) {
			t.Errorf("the instant %v is due %v later, the other time at %v", r.ScheduledFor, delay, again.runs[i].DueAt)
		}
		least, most = min(least, delay), max(most, delay)
	}
	if least > 3*time.Second || most < 7*time.Second {
		t.Errorf("the delays go from %v to %v of 10s", least, most)
	}
	items, err := j.Upcoming(noon.Add(-1), 3)
	if err != nil || !items[1].At.Equal(p.runs[1].ScheduledFor) || !items[1].EffectiveAt.Equal(p.runs[1].DueAt) {
		t.Errorf("upcoming are %+v, %v, planned %+v", items, err, p.runs[:3])
	}
	other, err := everySecond(0, func(j *Job) { j.Spec.Jitter, j.Name = 10*time.Second, "other" }).plan(noon, 15*time.Second)
	if err != nil || other.runs[3].DueAt.Equal(p.runs[3].DueAt) && other.runs[4].DueAt.Equal(p.runs[4].DueAt) {
		t.Errorf("another job has the same delays, %v", err)
	}
}

// What jitter has delayed beyond an outage isn't late.
func TestAnOutageIsJudgedByWhenARunWasToStart(t *testing.T) {
	t.Parallel()
	j := everySecond(10*time.Minute, func(j *Job) {
		j.Spec.Jitter = time.Hour
		j.Spec.CatchUp = CatchUp{CatchUpNone, time.Hour, 1}
	})
	p, err := j.plan(noon, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range p.runs {
		if r.DueAt.Before(noon.Add(-punctual)) {
			t.Errorf("the run of %v is planned for %v", r.ScheduledFor, r.DueAt)
		}
	}
	if sum := fate(p); sum["schedule"] < 400 || sum["schedule"]+sum["missed outage"] != 601 {
		t.Errorf("the fates are %v", sum)
	}
}

// The same function makes what is shown and what is planned.
func TestUpcomingIsWhatIsPlanned(t *testing.T) {
	t.Parallel()
	cal, err := cron.NewCalendar("c", nil, []cron.DateRange{{From: "2026-03-03"}})
	if err != nil {
		t.Fatal(err)
	}
	until := noon.Add(90 * time.Minute)
	j := everySecond(0, func(j *Job) {
		j.Spec.Schedule = Timing{Expression: "H/7 * * * *"}
		j.Spec.Jitter = time.Minute
		j.calendars = []cron.Calendar{cal}
		j.PausedAt, j.PausedUntil = &noon, &until
		j.Skips = []time.Time{noon.Add(2 * time.Hour)}
	})
	tt, err := j.timetable()
	if err != nil {
		t.Fatal(err)
	}
	j.Skips[0], _ = tt.Next(j.Skips[0])
	shown, err := j.Upcoming(noon.Add(-1), 300)
	if err != nil {
		t.Fatal(err)
	}
	// As if all of it had come.
	p, err := j.plan(shown[len(shown)-1].At, 0)
	if err != nil {
		t.Fatal(err)
	}
	planned := map[time.Time]string{}
	for _, r := range p.runs {
		planned[r.ScheduledFor.UTC()] = ""
	}
	at := func(s queue.Stretch, reason string) {
		for when := range tt.Between(s.From, s.To.Add(1)) {
			planned[when.UTC()] = reason
		}
	}
	for _, r := range p.records {
		at(r.Stretch, r.Reason)
	}
	seen := map[string]int{}
	for _, in := range shown {
		reason, ok := planned[in.At]
		word, _, _ := strings.Cut(in.Note, ":")
		if reason == queue.ReasonOutage {
			reason = "" // it would have run in time
		}
		if !ok || word != reason {
			t.Errorf("%v is shown as %q and planned as %q, %v", in.At, in.Note, reason, ok)
		}
		seen[word]++
	}
	if len(seen) != 4 || len(planned) != len(shown) {
		t.Errorf("shown are %v, planned %d of %d", seen, len(planned), len(shown))
	}
}
