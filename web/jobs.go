package web

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"holdfast/chronos"
	"holdfast/chronos/queue"
	"holdfast/internal/apikey"
	"holdfast/internal/httpapi"
)

// How many rows Chronos's pages show.
const (
	jobsPerPage   = 25
	runsPerPage   = 50
	runsPerStrip  = 30
	upcomingShown = 6
	troublesShown = 15
	// troublesAmong is how many of the latest runs are looked through for troubles.
	troublesAmong = 2000
)

// Chronos adds Chronos's dashboard to its API: / and the pages below /jobs, /runs and /monitors. Nil keys mean that
// authentication is off. Call it once, before face serves.
func Chronos(face *httpapi.API, store *chronos.Store, keys *apikey.Store) {
	s := newSite("Chronos", keys, store.Now, []link{{"/", "Jobs"}, {"/runs", "Runs"}, {"/monitors", "Monitors"}},
		chronos.ErrJobNotFound, chronos.ErrMonitorNotFound, queue.ErrNotFound)
	p := jobPages{store}
	s.mount(face, map[string]func(context.Context, visit) (page, error){
		"GET /{$}":         p.jobs,
		"GET /jobs/{name}": p.job,
		"GET /runs":        p.runs,
		"GET /runs/{id}":   p.run,
		"GET /monitors":    p.monitors,

		"GET /monitors/{name}": p.monitor,
	}, "GET /jobs", "GET /jobs/", "GET /runs/", "GET /monitors/")
}

type jobPages struct{ store *chronos.Store }

// jobRow is a job as a list shows it.
type jobRow struct {
	chronos.Job
	Words string           // its schedule
	Next  *chronos.Instant // nil: it has ended
	Last  *chronos.Glance  // nil: nothing has come due yet
	Strip strip
}

// outlook puts the schedule into words and finds the next instants. A schedule that can't be read any
// more, say because its zone is gone, is no reason to hide the job.
func outlook(j *chronos.Job, now time.Time, count int) (text string, next []chronos.Instant) {
	text, err := j.Describe()
	if err == nil {
		next, err = j.Upcoming(now, count)
	}
	if err != nil {
		return err.Error(), nil
	}
	return text, next
}

// lastOf is the latest run that was begun or has ended, or else the one that has waited for it longest.
func lastOf(latestFirst []chronos.Glance) *chronos.Glance {
	for i, g := range latestFirst {
		if g.Status != queue.Pending || i == len(latestFirst)-1 {
			return &latestFirst[i]
		}
	}
	return nil
}

type jobsView struct {
	Jobs     []jobRow
	Next     *string
	Paged    bool
	Replicas []chronos.Replica
	Leader   *chronos.Replica // nil: none is known
	Troubles runList
	Among    int64
	// StripLength is how many runs a strip shows at most.
	StripLength int
}

// runList is runs as the pages' shared part shows them.
type runList struct {
	Now   time.Time
	Items []runRow
	Job   bool // shows whose they are
}

func (p jobPages) jobs(ctx context.Context, v visit) (page, error) {
	const kind = "jobs"
	var after string
	paged, err := listParams(v, jobsPerPage).After(kind, &after)
	if err != nil {
		return page{}, err
	}
	found, err := p.store.ListJobs(ctx, v.tenant, chronos.JobFilter{After: after, Limit: jobsPerPage + 1})
	if err != nil {
		return page{}, err
	}
	list := httpapi.NewPage(found, jobsPerPage, kind, func(last chronos.Job) string { return last.Name })
	latest, err := p.store.LatestRuns(ctx, list.Items, runsPerStrip)
	if err != nil {
		return page{}, err
	}
	body := jobsView{Next: list.NextCursor, Paged: paged, Among: troublesAmong, StripLength: runsPerStrip}
	for _, j := range list.Items {
		row := jobRow{Job: j, Strip: newStrip(latest[j.ID])}
		text, next := outlook(&j, v.now, 1)
		row.Words = text
		if len(next) > 0 {
			row.Next = &next[0]
		}
		row.Last = lastOf(latest[j.ID])
		body.Jobs = append(body.Jobs, row)
	}
	if body.Replicas, err = p.store.ListReplicas(ctx); err != nil {
		return page{}, err
	}
	for i := range body.Replicas {
		if body.Replicas[i].Leader {
			body.Leader = &body.Replicas[i]
		}
	}
	troubles, err := p.store.Troubles(ctx, v.tenant, troublesAmong, troublesShown)
	if err != nil {
		return page{}, err
	}
	body.Troubles = listOf(v.now, true, troubles)
	return page{name: "jobs", title: "Jobs", body: body}, nil
}

type jobView struct {
	chronos.Job
	Words    string
	Upcoming []chronos.Instant
	Facts    []fact
	Body     string // what is delivered; empty: the default
	Plot     *barPlot
	Runs     runList
	Alerts   alertList
	Next     *string
	Paged    bool
}

// fact is one line of a job's or a run's description.
type fact struct{ Name, Text string }

func (p jobPages) job(ctx context.Context, v visit) (page, error) {
	name := v.PathValue("name")
	if chronos.CheckName(name) != nil {
		return page{}, notFound
	}
	j, err := p.store.GetJob(ctx, v.tenant, name)
	if err != nil {
		return page{}, err
	}
	runs, paged, err := p.listRuns(ctx, v, name)
	if err != nil {
		return page{}, err
	}
	var alerts []chronos.Alert
	if len(j.Spec.Alerts) > 0 {
		if alerts, err = p.store.ListAlerts(ctx, v.tenant, chronos.AlertFilter{Job: name, Limit: alertsShown}); err != nil {
			return page{}, err
		}
	}
	body := jobView{
		Alerts: alertList{v.now, alerts},
		Job:    j, Facts: factsOf(j.Spec), Plot: newBarPlot(tookOf(runs.Items)), Runs: listOf(v.now, false, runs.Items), Next: runs.NextCursor, Paged: paged,
	}
	body.Words, body.Upcoming = outlook(&j, v.now, upcomingShown)
	if hook := j.Spec.Target.Webhook; hook != nil {
		body.Body = string(hook.Body)
	}
	return page{name: "job", title: j.Name, body: body}, nil
}

// listRuns gives a page of runs, of one job or, with an empty name, of all.
func (p jobPages) listRuns(ctx context.Context, v visit, job string) (runs httpapi.Page[chronos.Run], paged bool, err error) {
	const kind = "runs"
	filter := chronos.RunFilter{Job: job, Limit: runsPerPage + 1}
	var after chronos.RunPosition
	if paged, err = listParams(v, runsPerPage).After(kind, &after); err != nil {
		return runs, paged, err
	}
	if paged {
		filter.After = &after
	}
	found, err := p.store.ListRuns(ctx, v.tenant, filter)
	return httpapi.NewPage(found, runsPerPage, kind, func(last chronos.Run) chronos.RunPosition { return last.Position() }), paged, err
}

// factsOf is what there is to say about a job beside its schedule. Headers may hold secrets, so their values aren't shown.
func factsOf(s chronos.Spec) []fact {
	var facts []fact
	add := func(name, format string, args ...any) {
		facts = append(facts, fact{name, fmt.Sprintf(format, args...)})
	}
	switch {
	case s.Target.Webhook != nil:
		hook := s.Target.Webhook
		add("Calls", "%s %s", hook.Method, hook.URL)
		add("Timeout", "%s", spell(hook.Timeout))
		if len(hook.Headers) > 0 {
			add("Headers", "%s (values not shown)", strings.Join(sortedKeys(hook.Headers), ", "))
		}
	case s.Target.Pull != nil:
		add("Pulled from", "queue %s", s.Target.Pull.Queue)
	}
	add("Attempts", "%s", attemptsText(s.Retry))
	add("Overlap", "%s", overlapText(s))
	add("After an outage", "%s", catchUpText(s.CatchUp))
	if s.Priority > 0 {
		add("Priority", "%d", s.Priority)
	}
	if s.MaxRuns != nil {
		add("Runs at most", "%s times", number(*s.MaxRuns))
	}
	if s.StartAt != nil {
		add("Starts", "%s", s.StartAt.UTC().Format(time.RFC3339))
	}
	if s.EndAt != nil {
		add("Ends before", "%s", s.EndAt.UTC().Format(time.RFC3339))
	}
	if s.Jitter > 0 {
		add("Jitter", "each instant starts later by less than %s, always by as much", spell(s.Jitter))
	}
	if len(s.Exclude) > 0 {
		add("Doesn’t run on", "the days of %s", strings.Join(s.Exclude, ", "))
	}
	facts = append(facts, rulesText(s.Alerts)...)
	for _, key := range sortedKeys(s.Labels) {
		add("Label "+key, "%s", s.Labels[key])
	}
	return facts
}

// overlapText says what becomes of an instant that comes while runs are going.
func overlapText(s chronos.Spec) string {
	during := "during a run"
	if s.MaxConcurrent > 1 {
		during = fmt.Sprintf("while %d runs are going", s.MaxConcurrent)
	}
	switch s.Overlap {
	case chronos.OverlapSkip:
		return "skip: an instant that comes " + during + " is skipped"
	case chronos.OverlapQueue:
		return "queue: an instant that comes " + during + " waits for its turn"
	case chronos.OverlapReplace:
		return "replace: an instant that comes " + during + " has the oldest cancelled"
	}
	return "allow: runs may go on at the same time"
}

func attemptsText(r chronos.Retry) string {
	if r.MaxAttempts == 1 {
		return "one, no retry"
	}
	return fmt.Sprintf("up to %d; the first retry after %s, then doubling, up to %s", r.MaxAttempts, spell(r.Backoff), spell(r.MaxBackoff))
}

func catchUpText(c chronos.CatchUp) string {
	switch c.Policy {
	case chronos.CatchUpNone:
		return "nothing is made up for"
	case chronos.CatchUpLatest:
		return fmt.Sprintf("the latest missed instant is made up for, if it is at most %s old", spell(c.Window))
	}
	return fmt.Sprintf("up to %d missed instants of the last %s are made up for", c.Max, spell(c.Window))
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

type runsView struct {
	Runs  runList
	Next  *string
	Paged bool
}

func (p jobPages) runs(ctx context.Context, v visit) (page, error) {
	runs, paged, err := p.listRuns(ctx, v, "")
	return page{name: "runs", title: "Runs", body: runsView{listOf(v.now, true, runs.Items), runs.NextCursor, paged}}, err
}

func (p jobPages) run(ctx context.Context, v visit) (page, error) {
	id, err := uuid.Parse(v.PathValue("id"))
	if err != nil {
		return page{}, notFound
	}
	r, err := p.store.GetRun(ctx, v.tenant, id)
	if err != nil {
		return page{}, err
	}
	return page{name: "run", title: "Run " + id.String(), body: rowOfRun(r)}, nil
}
