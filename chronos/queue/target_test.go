package queue_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"holdfast/chronos/queue"
)

// putTo adds a due run of a job that goes to a target.
func (b *bench) putTo(job, target int64) (id uuid.UUID) {
	b.t.Helper()
	id = b.put(job, 10)
	b.Exec(b.t, `UPDATE chronos.jobs SET target = $2 WHERE id = $1`, job, target)
	b.Exec(b.t, `UPDATE chronos.job_runs SET target = $2 WHERE id = $1`, id, target)
	return id
}

func (b *bench) claim(c queue.Claim) (got queue.Claimed) {
	b.t.Helper()
	c.Worker, c.For = "w", lease
	if err := b.inTx(func(tx pgx.Tx) (err error) {
		got, err = queue.Lease(b.t.Context(), tx, c)
		return err
	}); err != nil {
		b.t.Fatal(err)
	}
	return got
}

func TestAClaimKeepsToWhatATargetMayHave(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for range 6 {
		b.putTo(b.newJob(uuid.NewString(), "skip"), 7)
	}
	b.putTo(b.newJob(uuid.NewString(), "skip"), 8)
	b.put(b.job, 10) // goes to no target

	// 2 are in flight to 7, and 8 are free: one more leaves 7, a second 6, a third 5, which is what it has then.
	got := b.claim(queue.Claim{Max: 100, Free: 8, Targets: map[int64]int{7: 2}})
	to := map[int64]int{}
	for _, r := range got.Runs {
		to[r.Target]++
	}
	if diff := cmp.Diff(map[int64]int{7: 3, 8: 1, 0: 1}, to); diff != "" || len(got.Crowded) != 1 || got.Crowded[0] != 7 {
		t.Errorf("%s\ncrowded are %v", diff, got.Crowded)
	}
	if got := b.claim(queue.Claim{Max: 100, Free: 8, Targets: map[int64]int{}, Shut: []int64{7}}); len(got.Runs)+len(got.Crowded) != 0 {
		t.Errorf("of a target that is shut: %+v", got)
	}
	if got := b.claim(queue.Claim{Max: 100, Free: 8, Targets: map[int64]int{7: 5}, Probed: map[int64]bool{7: true}}); len(got.Runs) != 1 || len(got.Crowded) != 1 {
		t.Errorf("of a target that one may try: %+v", got)
	}
	if got := b.claim(queue.Claim{Max: 100}); len(got.Runs) != 2 {
		t.Errorf("without a bound: %+v", got)
	}
}

func TestAFrontGoesBackToRunsThatWerePassedOver(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.putTo(b.newJob("left", "skip"), 7)
	var front queue.Front
	mark := front.Mark()
	shut := queue.Claim{Max: 100, Front: &front, Shut: []int64{7}}
	if _, ok, err := queue.NextDue(t.Context(), b.Pool, shut); ok || err != nil {
		t.Fatalf("something is due of what isn't shut: %v, %v", ok, err)
	}
	front.Rewind(mark)
	if got := b.claim(queue.Claim{Max: 100, Front: &front}); len(got.Runs) != 1 || got.Runs[0].ID != id {
		t.Errorf("leased %+v", got.Runs)
	}
}
