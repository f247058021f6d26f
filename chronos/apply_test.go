package chronos

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// A set is applied to a job as it stands when it is locked: one that was changed between the reading and the lock is planned
// anew, so that nothing is done that wasn't decided on what there is.
func TestApplyPlansAnewWhatChangedSinceItWasRead(t *testing.T) {
	t.Parallel()
	spec := pulled("q", time.Hour)
	labelled := func(set string) Spec {
		s := spec
		s.Labels = map[string]string{SetLabel: set}
		return s
	}
	for name, c := range map[string]struct {
		rival  func(ctx context.Context, s *Store, tx pgx.Tx, j *Job) error
		expect bool // hold on to the plan of before
		want   error
		action Action
	}{
		"another set took it": {func(ctx context.Context, s *Store, tx pgx.Tx, j *Job) error {
			return s.replace(ctx, tx, j, labelled("other"), nil)
		}, false, ErrInvalid, ""},
		"it became what it is to be": {func(ctx context.Context, s *Store, tx pgx.Tx, j *Job) error {
			return s.replace(ctx, tx, j, labelled("team"), nil)
		}, false, nil, Unchanged},
		"it was deleted": {func(ctx context.Context, s *Store, tx pgx.Tx, j *Job) error {
			return j.delete(ctx, tx)
		}, false, nil, Create},
		"the plan was another": {func(ctx context.Context, s *Store, tx pgx.Tx, j *Job) error {
			return s.replace(ctx, tx, j, relabelled(spec, "by hand"), nil)
		}, true, ErrPlanChanged, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.put("job", spec)
			set := Set{Name: "team", Jobs: []SetJob{{Name: "job", Spec: spec}}}
			if c.expect {
				plan, _, err := w.store.Apply(t.Context(), me, set, true)
				if err != nil || plan.Jobs[0].Action != Change {
					t.Fatalf("planned %+v, %v", plan, err)
				}
				set.Expect = plan.Plan
			}
			rival, err := w.Pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = rival.Rollback(context.Background()) }()
			j, err := lockJob(t.Context(), rival, "default", "job")
			if err != nil {
				t.Fatal(err)
			}
			if err := c.rival(t.Context(), w.store, rival, &j); err != nil {
				t.Fatal(err)
			}
			type outcome struct {
				done Applied
				err  error
			}
			came := make(chan outcome, 1)
			go func() {
				done, _, err := w.store.Apply(t.Context(), me, set, false)
				came <- outcome{done, err}
			}()
			w.await(`SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`)
			if err := rival.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := <-came
			if !errors.Is(got.err, c.want) {
				t.Fatalf("applied with %v, want %v", got.err, c.want)
			}
			if c.want == nil && got.done.Jobs[0].Action != c.action {
				t.Errorf("done: %s, want %s", got.done.Jobs[0].Action, c.action)
			}
			now, err := w.store.GetJob(t.Context(), "default", "job")
			if err != nil || c.want != nil && (now.Revision != j.Revision || !sameSpec(&now.Spec, &j.Spec)) {
				t.Errorf("the rival's job became %+v, %v", now, err)
			}
		})
	}
}
