package chronos

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
)

// NewJob is a job of an import: its name, and what is to hold for it.
type NewJob struct {
	Name string
	// Edit makes the spec of what stands: of [DefaultSpec] where there is no such job yet, or
	// its own can't be read.
	Edit func(spec *Spec, exists bool)
}

// Imported is what became of one job of an import.
type Imported struct {
	Created     bool
	Changed     bool // an existing one; with neither, it was so already
	Next        *Instant
	Description string   // the schedule in words
	Warnings    []string // what may not be meant

	// Field and Refused say what was refused, and why; nothing was done then. Empty: it was done.
	Field, Refused string
}

// errDryRun rolls an import back that was only to be tried.
var errDryRun = errors.New("a dry run")

// ImportJobs creates or changes jobs in one transaction, as [Store.PutJob] does each; an idempotency
// key covers them all. One that is refused keeps none of the others back. A dry run does
// everything and takes it back at the end; its key stays unused. The answers are in
// the order of the jobs, whose names must differ.
func (s *Store) ImportJobs(ctx context.Context, c Caller, jobs []NewJob, dryRun bool) (done []Imported, replayed bool, err error) {
	var tried []Imported
	done, replayed, err = command(ctx, s, c, func(tx pgx.Tx) ([]Imported, error) {
		done := make([]Imported, len(jobs))
		// By name, so that two imports don't wait for each other in a circle.
		order := make([]int, len(jobs))
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int { return cmp.Compare(jobs[a].Name, jobs[b].Name) })
		for _, i := range order {
			if err := s.importJob(ctx, tx, c.Tenant, jobs[i], &done[i]); err != nil {
				return nil, err
			}
		}
		if dryRun {
			tried = done
			return nil, errDryRun
		}
		return done, nil
	})
	if errors.Is(err, errDryRun) {
		return tried, false, nil
	}
	return done, replayed, err
}

// importJob works in a savepoint, so that whatever a refused job has done is taken back.
func (s *Store) importJob(ctx context.Context, tx pgx.Tx, tenant string, n NewJob, into *Imported) error {
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		j, err := lockJob(ctx, tx, tenant, n.Name)
		switch {
		case errors.Is(err, ErrJobNotFound):
			spec := DefaultSpec()
			n.Edit(&spec, false)
			into.Created = true
			j, err = s.create(ctx, tx, tenant, n.Name, spec, false)
		case err == nil, errors.Is(err, ErrUnreadable):
			readable, spec, before := err == nil, DefaultSpec(), j.Revision
			if readable {
				spec = j.Spec
			}
			n.Edit(&spec, readable)
			err = s.replace(ctx, tx, &j, spec, nil)
			into.Changed = j.Revision != before
		}
		if err != nil {
			return err
		}
		return j.outlook(ctx, tx, into)
	})
	var bad *FieldError
	if errors.As(err, &bad) {
		*into, err = Imported{Field: bad.Field, Refused: bad.Reason}, nil
	}
	return err
}

// outlook says when the job will run.
func (j *Job) outlook(ctx context.Context, tx pgx.Tx, into *Imported) error {
	now, err := dbNow(ctx, tx)
	if err != nil {
		return err
	}
	next, err := j.Upcoming(now, 1)
	if err != nil {
		return err
	}
	if len(next) > 0 {
		into.Next = &next[0]
	}
	p, err := PreviewSpec(j.Spec, j.Name, now, 0)
	into.Description, into.Warnings = p.Description, p.Warnings
	return err
}
