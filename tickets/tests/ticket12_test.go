package tests

import (
	"context"
	"testing"

	"github.com/google/uuid"

	"holdfast/chronos"
	"holdfast/chronos/queue"
)

// The reaper takes back leases that have ended, and only those.
func TestTicket12(t *testing.T) {
	pool := database(t, chronos.Schema())
	tenant := "ticket12-" + uuid.NewString()
	t.Cleanup(func() {
		if _, err := pool.Exec(context.Background(), "DELETE FROM chronos.job_runs WHERE tenant = $1", tenant); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	insert := func(status, leasedUntil string) (id uuid.UUID) {
		t.Helper()
		err := pool.QueryRow(t.Context(), `
			INSERT INTO chronos.job_runs (tenant, job_id, scheduled_for, status, attempt, lease_token, leased_until, worker)
			VALUES ($1, -1, clock_timestamp(), $2, 1, gen_random_uuid(), clock_timestamp() + $3::interval, 'worker')
			RETURNING id`, tenant, status, leasedUntil).Scan(&id)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	runs := []struct {
		name, status, leasedUntil, want string
		id                              uuid.UUID
	}{
		{name: "running, its lease good for an hour", status: "running", leasedUntil: "1 hour", want: "running"},
		{name: "leased, its lease good for a minute", status: "leased", leasedUntil: "1 minute", want: "leased"},
		{name: "leased, its lease over for a minute", status: "leased", leasedUntil: "-1 minute", want: "pending"},
		{name: "running, its lease just over", status: "running", leasedUntil: "-1 millisecond", want: "pending"},
	}
	for i := range runs {
		runs[i].id = insert(runs[i].status, runs[i].leasedUntil)
	}
	if _, err := queue.ReclaimExpiredLeases(t.Context(), pool, 1000); err != nil {
		t.Fatal(err)
	}
	for _, run := range runs {
		var status string
		if err := pool.QueryRow(t.Context(), "SELECT status FROM chronos.job_runs WHERE id = $1", run.id).Scan(&status); err != nil {
			t.Fatal(err)
		}
		if status != run.want {
			t.Errorf("%s: status is %s after the reaper, want %s", run.name, status, run.want)
		}
	}
}
