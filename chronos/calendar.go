package chronos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"holdfast/chronos/cron"
)

// Calendar is days without runs, shared by the jobs that exclude it.
type Calendar struct {
	Name      string
	Timezone  string
	Dates     []cron.DateRange
	CreatedAt time.Time
	UpdatedAt time.Time
}

// compile fails with a [FieldError].
func (c *Calendar) compile() (cron.Calendar, error) {
	loc, err := cron.LoadLocation(c.Timezone)
	if err != nil {
		return cron.Calendar{}, scheduleError(err)
	}
	compiled, err := cron.NewCalendar(c.Name, loc, c.Dates)
	if err != nil {
		return compiled, scheduleError(err)
	}
	return compiled, nil
}

// CalendarInUseError names the jobs behind [ErrCalendarInUse].
type CalendarInUseError struct {
	Name string
	Jobs []string // some of them
}

func (e *CalendarInUseError) Error() string {
	return fmt.Sprintf("calendar %s is excluded by the job %s", e.Name, e.Jobs[0])
}

// Is matches [ErrCalendarInUse].
func (e *CalendarInUseError) Is(target error) bool { return target == ErrCalendarInUse }

const calendarColumns = `c.name, c.timezone, c.dates, c.created_at, c.updated_at`

func scanCalendar(row pgx.CollectableRow) (c Calendar, err error) {
	var dates []byte
	if err := row.Scan(&c.Name, &c.Timezone, &dates, &c.CreatedAt, &c.UpdatedAt); err != nil {
		return c, err
	}
	if err := json.Unmarshal(dates, &c.Dates); err != nil {
		return c, fmt.Errorf("%w: calendar %s: %w", ErrUnreadable, c.Name, err)
	}
	return c, nil
}

// GetCalendar gives a calendar; [ErrCalendarNotFound] if there is none.
func (s *Store) GetCalendar(ctx context.Context, tenant, name string) (Calendar, error) {
	rows, err := s.pool.Query(ctx, `SELECT `+calendarColumns+` FROM chronos.calendars c WHERE c.tenant = $1 AND c.name = $2`, tenant, name)
	if err != nil {
		return Calendar{}, err
	}
	c, err := pgx.CollectExactlyOneRow(rows, scanCalendar)
	return c, noRows(err, ErrCalendarNotFound)
}

// ListCalendars gives the tenant's calendars by name, at most limit, those after a name.
func (s *Store) ListCalendars(ctx context.Context, tenant, after string, limit int) ([]Calendar, error) {
	rows, err := s.pool.Query(ctx, `SELECT `+calendarColumns+` FROM chronos.calendars c
		WHERE c.tenant = $1 AND c.name > $2 ORDER BY c.name LIMIT $3`, tenant, after, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanCalendar)
}

// PutCalendarResult is the answer to a calendar that was put.
type PutCalendarResult struct {
	Calendar Calendar
	Created  bool
}

// lockCalendarSQL lets jobs go on being put that exclude the calendar: their rows are locked after it here,
// and before it there.
const lockCalendarSQL = `SELECT ` + calendarColumns + ` FROM chronos.calendars c WHERE c.tenant = $1 AND c.name = $2 FOR NO KEY UPDATE`

// calendarJobsSQL locks those jobs with the calendar of which something is planned or being planned; what the
// planner makes of the others it makes after this.
const calendarJobsSQL = `
SELECT ` + jobColumns + ` FROM chronos.jobs j
 WHERE j.tenant = $1 AND j.calendars @> ARRAY[$2::text] AND j.calendars <> '{}' AND j.deleted_at IS NULL
   AND (j.next_at <= clock_timestamp() + interval '1 minute'
        OR EXISTS (SELECT 1 FROM chronos.job_runs r WHERE r.job_id = j.id AND NOT r.parked AND r.scheduled_for > clock_timestamp()))
 ORDER BY j.id FOR UPDATE OF j`

// PutCalendar creates a calendar or replaces it. Jobs that exclude it are planned anew where their
// instants haven't come: what has a record already keeps that. It fails with a [FieldError].
func (s *Store) PutCalendar(ctx context.Context, c Caller, cal Calendar) (PutCalendarResult, bool, error) {
	return command(ctx, s, c, func(tx pgx.Tx) (PutCalendarResult, error) { return putCalendar(ctx, tx, c.Tenant, cal) })
}

func putCalendar(ctx context.Context, tx pgx.Tx, tenant string, cal Calendar) (PutCalendarResult, error) {
	none := PutCalendarResult{}
	if !name.MatchString(cal.Name) {
		return none, invalid("name", nameRule)
	}
	if _, err := cal.compile(); err != nil {
		return none, err
	}
	dates, err := json.Marshal(cal.Dates)
	if err != nil {
		return none, err
	}
	if cal.Dates == nil {
		dates = []byte("[]")
	}
	rows, err := tx.Query(ctx, lockCalendarSQL, tenant, cal.Name)
	if err != nil {
		return none, err
	}
	old, err := pgx.CollectExactlyOneRow(rows, scanCalendar)
	created := errors.Is(err, pgx.ErrNoRows)
	if err != nil && !created {
		return none, err
	}
	if !created && old.same(&cal) {
		return PutCalendarResult{old, false}, nil
	}
	store := func() error {
		return tx.QueryRow(ctx, `
			INSERT INTO chronos.calendars (tenant, name, timezone, dates) VALUES ($1, $2, $3, $4::text::json)
			ON CONFLICT (tenant, name) DO UPDATE SET timezone = excluded.timezone, dates = excluded.dates, updated_at = clock_timestamp()
			RETURNING created_at, updated_at`, tenant, cal.Name, cal.Timezone, string(dates)).Scan(&cal.CreatedAt, &cal.UpdatedAt)
	}
	if created {
		return PutCalendarResult{cal, true}, store() // no job has it yet
	}
	return PutCalendarResult{cal, false}, replanCalendar(ctx, tx, tenant, cal.Name, store)
}

// same reports whether both have the same days.
func (c *Calendar) same(o *Calendar) bool {
	return c.Timezone == o.Timezone && slices.Equal(c.Dates, o.Dates)
}

// replanCalendar plans the jobs anew that exclude a calendar which change changes; the past is
// judged by what held then.
func replanCalendar(ctx context.Context, tx pgx.Tx, tenant, name string, change func() error) error {
	rows, err := tx.Query(ctx, calendarJobsSQL, tenant, name)
	if err != nil {
		return err
	}
	var jobs []*Job
	for rows.Next() {
		j, err := scanJob(rows)
		if errors.Is(err, ErrUnreadable) {
			continue
		}
		if err != nil {
			rows.Close()
			return err
		}
		jobs = append(jobs, &j)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	now, err := dbNow(ctx, tx)
	if err != nil {
		return err
	}
	if err := loadCalendars(ctx, tx, jobs); err != nil {
		return err
	}
	for _, j := range jobs {
		if err := j.settlePast(ctx, tx, now); err != nil {
			return err
		}
	}
	if err := change(); err != nil {
		return err
	}
	if err := loadCalendars(ctx, tx, jobs); err != nil {
		return err
	}
	for _, j := range jobs {
		if _, err := j.timetable(); err != nil {
			continue // it is set aside, or will be
		}
		if err := j.replan(ctx, tx, now); err != nil {
			return err
		}
	}
	return nil
}

// DeleteCalendar deletes a calendar. It fails with [ErrCalendarNotFound] or [ErrCalendarInUse].
func (s *Store) DeleteCalendar(ctx context.Context, c Caller, name string) error {
	_, _, err := command(ctx, s, c, func(tx pgx.Tx) (struct{}, error) {
		var none struct{}
		// This waits for whoever is putting a job that excludes the calendar, and the next statement sees it.
		tag, err := tx.Exec(ctx, `SELECT 1 FROM chronos.calendars WHERE tenant = $1 AND name = $2 FOR UPDATE`, c.Tenant, name)
		if err != nil {
			return none, err
		}
		if tag.RowsAffected() == 0 {
			return none, ErrCalendarNotFound
		}
		rows, err := tx.Query(ctx, `SELECT j.name FROM chronos.jobs j
			WHERE j.tenant = $1 AND j.calendars @> ARRAY[$2::text] AND j.calendars <> '{}' AND j.deleted_at IS NULL ORDER BY j.name LIMIT 10`, c.Tenant, name)
		if err != nil {
			return none, err
		}
		users, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return none, err
		}
		if len(users) > 0 {
			return none, &CalendarInUseError{name, users}
		}
		_, err = tx.Exec(ctx, `DELETE FROM chronos.calendars WHERE tenant = $1 AND name = $2`, c.Tenant, name)
		return none, err
	})
	return err
}

// keepCalendars fails with a [FieldError] if one of a spec's calendars doesn't exist, and keeps the
// others from being deleted until tx ends.
func keepCalendars(ctx context.Context, tx pgx.Tx, tenant string, names []string) error {
	if len(names) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, `SELECT name FROM chronos.calendars WHERE tenant = $1 AND name = ANY($2) ORDER BY name FOR KEY SHARE`, tenant, names)
	if err != nil {
		return err
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for i, name := range names {
		if !slices.Contains(found, name) {
			return invalid(fmt.Sprintf("exclude[%d]", i), "there is no calendar %s", name)
		}
	}
	return nil
}

// loadCalendars gives jobs the calendars that their specs name, as they stand. Read after a job's
// row was locked, they are good until it is let go: who changes one locks its jobs. One that can't be read is a
// fault of the jobs that name it alone.
func loadCalendars(ctx context.Context, db querier, jobs []*Job) error {
	type key struct{ tenant, name string }
	wanted, faults := map[key]*cron.Calendar{}, map[key]error{}
	var tenants, names []string
	for _, j := range jobs {
		j.calendars, j.astray = nil, nil
		for _, name := range j.Spec.Exclude {
			if k := (key{j.Tenant, name}); wanted[k] == nil {
				wanted[k] = &cron.Calendar{}
				tenants, names = append(tenants, k.tenant), append(names, k.name)
			}
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	rows, err := db.Query(ctx, `SELECT c.tenant, `+calendarColumns+` FROM chronos.calendars c
		JOIN unnest($1::text[], $2::text[]) AS w(tenant, name) ON c.tenant = w.tenant AND c.name = w.name`, tenants, names)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var tenant string
		c, err := scanCalendar(withFirst{rows, &tenant})
		if err != nil && !errors.Is(err, ErrUnreadable) {
			return err
		}
		k := key{tenant, c.Name}
		if err == nil {
			if *wanted[k], err = c.compile(); err != nil { // nobody's input is at fault now
				err = fmt.Errorf("%w: calendar %s: %v", ErrUnreadable, c.Name, err)
			}
		}
		faults[k] = err
	}
	for _, j := range jobs {
		for _, name := range j.Spec.Exclude {
			k := key{j.Tenant, name}
			j.calendars = append(j.calendars, *wanted[k])
			if faults[k] != nil {
				j.astray = faults[k]
			}
		}
	}
	return rows.Err()
}

// withFirst is a row with one more column before the others.
type withFirst struct {
	pgx.CollectableRow
	first any
}

func (r withFirst) Scan(into ...any) error {
	return r.CollectableRow.Scan(append([]any{r.first}, into...)...)
}
