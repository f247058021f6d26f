package chronos

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"holdfast/internal/pg"
)

// SetLabel is the label of the jobs that belong to a set: its name is the value.
const SetLabel = "holdfast.set"

// Set is what a part of the jobs, and calendars and monitors beside them, are to be: those of a folder of files, say.
type Set struct {
	Name      string
	Calendars []Calendar
	Monitors  []SetMonitor
	Jobs      []SetJob
	// Prune deletes the jobs of the set that aren't among Jobs.
	Prune bool
	// Expect is the Plan of an earlier [Store.Apply]: if what is to be done isn't the same any more, nothing is. Empty: whatever
	// is to be done.
	Expect string
}

// SetJob is a job of a set.
type SetJob struct {
	Name   string
	Spec   Spec
	Paused *bool // nil: as it is
}

// SetMonitor is a monitor of a set.
type SetMonitor struct {
	Name string
	Spec MonitorSpec
}

// Action is what becomes of a job, a calendar or a monitor.
type Action string

const (
	Create    Action = "create"
	Change    Action = "change"
	Unchanged Action = "unchanged"
	Prune     Action = "prune"
	Left      Action = "left" // of the set, but not among its jobs any more, and kept
)

// AppliedJob is what became of a job, or would.
type AppliedJob struct {
	Name          string
	Action        Action
	Before, After *Job // nil: it isn't there
}

// AppliedCalendar is what became of a calendar, or would.
type AppliedCalendar struct {
	Name          string
	Action        Action
	Before, After *Calendar
}

// AppliedMonitor is what became of a monitor, or would.
type AppliedMonitor struct {
	Name          string
	Action        Action
	Before, After *Monitor
}

// Applied is what [Store.Apply] did or would do, each list by name.
type Applied struct {
	Calendars []AppliedCalendar
	Monitors  []AppliedMonitor
	Jobs      []AppliedJob
	Plan      string // stands for all of it, and for what it was decided on
}

// Fault is what is wrong with one part of a set.
type Fault struct {
	List  List
	Index int // in that
	Err   error
}

// List is one of a set's.
type List string

const (
	Calendars List = "calendars"
	Monitors  List = "monitors"
	Jobs      List = "jobs"
)

// SetError lists the faults of a set; nothing was changed. It matches [ErrInvalid].
type SetError struct{ Faults []Fault }

func (e *SetError) Error() string {
	return fmt.Sprintf("%d faults, the first: %v", len(e.Faults), e.Faults[0].Err)
}

// Is matches [ErrInvalid].
func (e *SetError) Is(target error) bool { return target == ErrInvalid }

// ErrPlanChanged means that a set would now be applied otherwise than was expected.
var ErrPlanChanged = errors.New("the plan has changed")

// Apply makes jobs and calendars what a set says, all of it in one transaction or, if anything can't be as it is
// to be, nothing. What is so already isn't touched, or even locked. A job gets the set's name as a
// label; one that has another set's is refused. Calendars and monitors belong to no set, and are never deleted.
// A dry run does everything and takes it back. It fails with a [SetError] or [ErrPlanChanged].
func (s *Store) Apply(ctx context.Context, c Caller, set Set, dryRun bool) (done Applied, replayed bool, err error) {
	for i := range set.Jobs {
		labels := map[string]string{SetLabel: set.Name}
		for key, value := range set.Jobs[i].Spec.Labels {
			if key != SetLabel {
				labels[key] = value
			}
		}
		set.Jobs[i].Spec.Labels = labels
	}
	var tried Applied
	done, replayed, err = command(ctx, s, c, func(tx pgx.Tx) (Applied, error) {
		a := application{store: s, tx: tx, tenant: c.Tenant, set: set}
		if err := a.run(ctx); err != nil {
			return Applied{}, err
		}
		if dryRun {
			tried = a.done
			return Applied{}, errDryRun
		}
		return a.done, nil
	})
	if errors.Is(err, errDryRun) {
		return tried, false, nil
	}
	if err == nil && !replayed {
		s.bell.ringAll()
	}
	return done, replayed, err
}

// application is a set on its way into one transaction.
type application struct {
	store  *Store
	tx     pgx.Tx
	tenant string
	set    Set
	done   Applied
	faults []Fault
	facts  [][]any // what the plan follows from
}

func (a *application) run(ctx context.Context) error {
	for _, i := range byName(a.set.Calendars, func(c *Calendar) string { return c.Name }) {
		if err := a.tryCalendar(ctx, i); err != nil {
			return err
		}
	}
	for _, i := range byName(a.set.Monitors, func(m *SetMonitor) string { return m.Name }) {
		if err := a.tryMonitor(ctx, i); err != nil {
			return err
		}
	}
	if err := a.jobs(ctx); err != nil {
		return err
	}
	if err := a.prune(ctx); err != nil {
		return err
	}
	if len(a.faults) > 0 {
		slices.SortStableFunc(a.faults, func(x, y Fault) int {
			return cmp.Or(cmp.Compare(x.List, y.List), cmp.Compare(x.Index, y.Index))
		})
		return &SetError{a.faults}
	}
	text, err := json.Marshal(a.facts)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	if a.done.Plan = hex.EncodeToString(sum[:16]); a.set.Expect != "" && a.set.Expect != a.done.Plan {
		return ErrPlanChanged
	}
	return nil
}

// byName orders a list as all who lock its rows do.
func byName[T any](list []T, name func(*T) string) []int {
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(name(&list[x]), name(&list[y])) })
	return order
}

// judge notes what the owner of a set has to know, and passes on what isn't his to mend.
func (a *application) judge(list List, i int, err error) error {
	if errors.As(err, new(*FieldError)) {
		a.faults = append(a.faults, Fault{list, i, err})
		return nil
	}
	return err
}

// putOne makes a row of a tenant's, which sql and scan read by its name, what it is to be, unless it is so already.
func putOne[V any](ctx context.Context, a *application, name, sql string, scan pgx.RowToFunc[V], same func(old *V) (bool, error),
	put func(pgx.Tx) (V, error),
) (action Action, before, after *V, err error) {
	rows, err := a.tx.Query(ctx, sql, a.tenant, name)
	if err != nil {
		return "", nil, nil, err
	}
	old, err := pgx.CollectExactlyOneRow(rows, scan)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		action = Create
	case err != nil:
		return "", nil, nil, err
	default:
		unchanged, err := same(&old)
		if err != nil || unchanged {
			return Unchanged, &old, &old, err
		}
		action, before = Change, &old
	}
	var now V
	err = pgx.BeginFunc(ctx, a.tx, func(tx pgx.Tx) (err error) {
		now, err = put(tx)
		return err
	})
	return action, before, &now, err
}

func (a *application) tryCalendar(ctx context.Context, i int) error {
	want := a.set.Calendars[i]
	action, before, after, err := putOne(ctx, a, want.Name, `SELECT `+calendarColumns+` FROM chronos.calendars c WHERE c.tenant = $1 AND c.name = $2`, scanCalendar,
		func(old *Calendar) (bool, error) { return old.same(&want), nil },
		func(tx pgx.Tx) (Calendar, error) {
			put, err := putCalendar(ctx, tx, a.tenant, want)
			return put.Calendar, err
		})
	if err != nil {
		return a.judge(Calendars, i, err)
	}
	a.done.Calendars = append(a.done.Calendars, AppliedCalendar{Name: want.Name, Action: action, Before: before, After: after})
	if action != Unchanged {
		a.facts = append(a.facts, []any{"calendar", want.Name, action, before, want.Timezone, want.Dates})
	}
	return nil
}

func (a *application) tryMonitor(ctx context.Context, i int) error {
	want := a.set.Monitors[i]
	action, before, after, err := putOne(ctx, a, want.Name, `SELECT `+monitorColumns+` FROM chronos.monitors m WHERE m.tenant = $1 AND m.name = $2`, scanMonitor,
		func(old *Monitor) (bool, error) {
			err := a.store.checkMonitor(want.Name, &want.Spec, old.now)
			return text(old.Spec) == text(want.Spec), err
		},
		func(tx pgx.Tx) (Monitor, error) {
			put, err := a.store.putMonitor(ctx, tx, a.tenant, want.Name, want.Spec)
			return put.Monitor, err
		})
	if err != nil {
		return a.judge(Monitors, i, err)
	}
	a.done.Monitors = append(a.done.Monitors, AppliedMonitor{Name: want.Name, Action: action, Before: before, After: after})
	if action != Unchanged {
		var spec any
		if before != nil {
			spec = before.Spec
		}
		a.facts = append(a.facts, []any{"monitor", want.Name, action, spec, want.Spec})
	}
	return nil
}

func (a *application) jobs(ctx context.Context) error {
	names := make([]string, len(a.set.Jobs))
	for i, j := range a.set.Jobs {
		names[i] = j.Name
	}
	rows, err := a.tx.Query(ctx, `SELECT `+jobColumns+` FROM chronos.jobs j
		WHERE j.tenant = $1 AND j.name = ANY($2) AND j.deleted_at IS NULL`, a.tenant, names)
	if err != nil {
		return err
	}
	known := map[string]*Job{}
	for rows.Next() {
		j, err := scanShown(rows)
		if err != nil {
			rows.Close()
			return err
		}
		known[j.Name] = &j
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, i := range byName(a.set.Jobs, func(j *SetJob) string { return j.Name }) {
		done, err := a.job(ctx, &a.set.Jobs[i], known[a.set.Jobs[i].Name])
		if err := a.judge(Jobs, i, err); err != nil {
			return err
		}
		a.done.Jobs = append(a.done.Jobs, done)
		if err == nil && done.Action != Unchanged {
			a.facts = append(a.facts, []any{"job", done.Name, done.Action, revisionOf(done.Before), a.set.Jobs[i].Spec, a.set.Jobs[i].Paused})
		}
	}
	return nil
}

func revisionOf(j *Job) int64 {
	if j == nil {
		return 0
	}
	return j.Revision
}

// job makes one job what it is to be. before is how it was read, without a lock; nil: there was none.
func (a *application) job(ctx context.Context, want *SetJob, before *Job) (AppliedJob, error) {
	done := AppliedJob{Name: want.Name, Action: Create, Before: before}
	if before != nil {
		done.Action = Change
		if owner := before.Spec.Labels[SetLabel]; owner != "" && owner != a.set.Name {
			return done, invalid("name", "the job belongs to the set %s: its label %s says so", owner, SetLabel)
		}
		spec := want.Spec
		if err := a.store.prepare(&spec); err != nil {
			return done, err
		}
		if sameSpec(&before.Spec, &spec) && before.FaultyAt == nil && (want.Paused == nil || *want.Paused == before.Paused) {
			done.Action, done.After = Unchanged, before
			return done, nil
		}
	}
	return done, pgx.BeginFunc(ctx, a.tx, func(tx pgx.Tx) error {
		j, err := lockJob(ctx, tx, a.tenant, want.Name)
		switch {
		case before == nil && errors.Is(err, ErrJobNotFound):
			j, err = a.store.create(ctx, tx, a.tenant, want.Name, want.Spec, want.Paused != nil && *want.Paused)
		case err != nil && !errors.Is(err, ErrUnreadable) && !errors.Is(err, ErrJobNotFound):
		case before == nil || errors.Is(err, ErrJobNotFound) || j.Revision != before.Revision:
			return pg.ErrRepeat // it was changed since it was read
		default:
			err = a.store.replace(ctx, tx, &j, want.Spec, want.Paused)
		}
		done.After = &j
		return err
	})
}

// prune deletes what an earlier set had and this one hasn't, or notes that it is left.
func (a *application) prune(ctx context.Context) error {
	kept := make([]string, len(a.set.Jobs))
	for i, j := range a.set.Jobs {
		kept[i] = j.Name
	}
	sql := `SELECT ` + jobColumns + ` FROM chronos.jobs j WHERE j.tenant = $1 AND j.labels @> $2 AND j.name <> ALL($3) AND j.deleted_at IS NULL ORDER BY j.name`
	if a.set.Prune {
		sql += ` FOR UPDATE`
	}
	rows, err := a.tx.Query(ctx, sql, a.tenant, map[string]string{SetLabel: a.set.Name}, kept)
	if err != nil {
		return err
	}
	var gone []*Job
	for rows.Next() {
		j, err := scanShown(rows)
		if err != nil {
			rows.Close()
			return err
		}
		gone = append(gone, &j)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if err := loadCalendars(ctx, a.tx, gone); err != nil {
		return err
	}
	for _, j := range gone {
		before := *j
		done := AppliedJob{Name: j.Name, Action: Left, Before: &before, After: j}
		if a.set.Prune {
			done.Action, done.After = Prune, nil
			if err := j.delete(ctx, a.tx); err != nil {
				return err
			}
			a.facts = append(a.facts, []any{"job", j.Name, done.Action, before.Revision})
		}
		a.done.Jobs = append(a.done.Jobs, done)
	}
	slices.SortStableFunc(a.done.Jobs, func(x, y AppliedJob) int { return cmp.Compare(x.Name, y.Name) })
	return nil
}
