package system

import (
	"net/url"
	"syscall"
	"testing"
	"time"

	"holdfast/chronos"
	"holdfast/internal/pg/pgtest"
	"holdfast/internal/relay"
)

// everyInstantOnce waits until all runs up to now have ended, and fails unless every second since
// first has exactly one.
func everyInstantOnce(t *testing.T, db *pgtest.DB, first time.Time) {
	t.Helper()
	var last time.Time
	db.Scan(t, "SELECT clock_timestamp()", nil, &last)
	await(t, func() bool {
		var settled bool
		db.Scan(t, "SELECT NOT EXISTS (SELECT 1 FROM chronos.job_runs WHERE scheduled_for <= $1)", []any{last}, &settled)
		return settled
	})
	var instants, distinct, span int
	db.Scan(t, `SELECT count(*), count(DISTINCT scheduled_for), floor(extract(epoch FROM $2::timestamptz - $1))::int + 1
		FROM chronos.run_history WHERE scheduled_for BETWEEN $1 AND $2 AND missed IS NULL`, []any{first, last}, &instants, &distinct, &span)
	if instants != distinct || instants != span {
		t.Errorf("%d runs of %d instants in %d seconds", instants, distinct, span)
	}
}

// A leader that is frozen keeps its session: another takes over all the same, and when the frozen
// one wakes, nothing is planned twice.
func TestAFrozenLeaderIsReplacedAndDoesNoHarm(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, chronos.Schema())
	leader, other, h := ticking(t, db)
	first := h.next(t).scheduledFor
	leader.signal(syscall.SIGSTOP)
	other.awaitLine(leading)
	leader.signal(syscall.SIGCONT)
	leader.awaitLine(`not leading`)
	everyInstantOnce(t, db, first)
}

// The leader's connections to the database are cut without a word to either end: another takes over, the one that is cut off
// knows by itself that it leads no more, and when the connections come back, nothing has been or is planned twice.
func TestALeaderThatIsCutOffIsReplacedAndDoesNoHarm(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, chronos.Schema())
	at, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	cable, err := relay.New(at.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cable.Close)
	at.Host = cable.Address()
	leader := serve(t, "chronos", at.String(), "--allow-targets=127.0.0.0/8", "--lease=3s")
	leader.awaitLine(leading)
	other := serveChronos(t, db, "--lease=3s")
	h := newHook(t, false)
	putJob(t, leader, "tick", `"schedule": {"every": "1s"}, "overlap": "allow"`, h)
	first := h.next(t).scheduledFor
	cable.Cut()
	other.awaitLine(leading)
	leader.awaitLine(`not leading`)
	everyInstantOnce(t, db, first)
	cable.Mend()
	leader.await(func() bool { status, _, _ := leader.try("GET", "/readyz", ""); return status == 200 })
	everyInstantOnce(t, db, first)
	other.kill() // the lost one can lead again
	await(t, func() bool {
		var leads bool
		db.Scan(t, "SELECT epoch > 2 FROM chronos.leaderships WHERE name = 'planner'", nil, &leads)
		return leads
	})
	everyInstantOnce(t, db, first)
}
