package elect_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"holdfast/internal/elect"
	"holdfast/internal/pg"
	"holdfast/internal/pg/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var schema = pg.Schema{Name: "club", Sources: []pg.Source{elect.Migrations()}}

// candidate campaigns in the background and reports each term that it wins.
type candidate struct {
	won    chan elect.Term
	ended  chan error // the cause of each term's end
	resign context.CancelFunc
	gone   sync.WaitGroup
}

func campaign(t *testing.T, db *pgtest.DB, name string) *candidate {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := &candidate{won: make(chan elect.Term, 10), ended: make(chan error, 10), resign: cancel}
	cfg := elect.Config{URL: db.URL, Schema: schema.Name, Name: "chair", Holder: name, Log: slog.New(slog.DiscardHandler)}
	c.gone.Go(func() {
		err := elect.Lead(ctx, cfg, func(ctx context.Context, term elect.Term) error {
			c.won <- term
			<-ctx.Done()
			c.ended <- context.Cause(ctx)
			return nil
		})
		if err != nil {
			t.Errorf("Lead: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); c.gone.Wait() })
	return c
}

func fence(t *testing.T, db *pgtest.DB, term elect.Term) error {
	t.Helper()
	return pg.InTx(t.Context(), db.Pool, pg.TxOptions{}, func(tx pgx.Tx) error { return term.Fence(t.Context(), tx) })
}

func TestOneLeadsAndTheNextTermHasAHigherEpoch(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, schema)
	a := campaign(t, db, "a")
	first := <-a.won
	b := campaign(t, db, "b")
	if err := fence(t, db, first); err != nil {
		t.Errorf("the leader's own fence: %v", err)
	}
	select {
	case <-b.won:
		t.Fatal("two leaders")
	default:
	}
	a.resign()
	second := <-b.won
	if second.Epoch <= first.Epoch {
		t.Errorf("epoch %d after %d", second.Epoch, first.Epoch)
	}
	if err := fence(t, db, first); !errors.Is(err, elect.ErrDeposed) {
		t.Errorf("the earlier leader's fence: %v, want ErrDeposed", err)
	}
}

func TestLosingTheSessionEndsTheTerm(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, schema)
	a := campaign(t, db, "a")
	<-a.won
	db.Exec(t, "SELECT pg_terminate_backend(backend_pid) FROM club.leaderships")
	if cause := <-a.ended; !errors.Is(cause, elect.ErrDeposed) {
		t.Errorf("the term ended with %v, want ErrDeposed", cause)
	}
	<-a.won // and it campaigns again
}

// A frozen leader keeps its session: only its row tells.
func TestAFrozenLeaderIsReplaced(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, schema)
	frozen, err := pg.Connect(t.Context(), db.URL, "frozen")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = frozen.Close(context.Background()) }()
	lock := func() (pid int) {
		err := frozen.QueryRow(t.Context(), `SELECT pg_backend_pid() FROM
			(SELECT pg_advisory_lock(hashtextextended('holdfast.lead.club.chair', 0))) l`).Scan(&pid)
		if err != nil {
			t.Fatal(err)
		}
		return pid
	}
	pid := lock()
	db.Exec(t, `INSERT INTO club.leaderships VALUES ('chair', 7, 'frozen', $1, clock_timestamp() - interval '5 s')`, pid)
	b := campaign(t, db, "b")
	// Its session lives until the row is stale by the database's clock: backdate it.
	var alive bool
	db.Scan(t, "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE pid = $1)", []any{pid}, &alive)
	if !alive {
		t.Error("a leader that renewed 5 s ago was ended")
	}
	db.Exec(t, `UPDATE club.leaderships SET renewed_at = clock_timestamp() - interval '11 s'`)
	if term := <-b.won; term.Epoch != 8 {
		t.Errorf("epoch %d, want 8", term.Epoch)
	}
}

// The winner of the lock that has not yet raised the epoch isn't the one on record: it must be
// left alone however old the record is.
func TestOnlyTheHolderOnRecordIsEnded(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, schema)
	winner, err := pg.Connect(t.Context(), db.URL, "winner")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := winner.Exec(t.Context(), `SELECT pg_advisory_lock(hashtextextended('holdfast.lead.club.chair', 0))`); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, `INSERT INTO club.leaderships VALUES ('chair', 7, 'crashed', 1, clock_timestamp() - interval '1 hour')`)
	b := campaign(t, db, "b")
	for range 3 {
		awaitChallenge(t, db)
	}
	if err := winner.Ping(t.Context()); err != nil {
		t.Errorf("the winner's session was ended: %v", err)
	}
	_ = winner.Close(context.Background())
	<-b.won
}

// awaitChallenge waits until the challenger has looked once more for somebody to end.
func awaitChallenge(t *testing.T, db *pgtest.DB) {
	t.Helper()
	const last = `SELECT coalesce(max(query_start), 'epoch') FROM pg_stat_activity WHERE application_name = 'holdfast elect chair'
		AND datname = current_database() AND query LIKE '%pg_terminate_backend%' AND state = 'idle'`
	var before, now time.Time
	db.Scan(t, last, nil, &before)
	for !now.After(before) {
		db.Scan(t, last, nil, &now)
		if t.Context().Err() != nil {
			t.Fatal(t.Context().Err())
		}
	}
}

// A transaction of the old term that has passed its fence holds the next leader off until it ends.
func TestFenceHoldsOffTheNextLeader(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, schema)
	a := campaign(t, db, "a")
	first := <-a.won
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Fence(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	// However long the transaction takes, the leader goes on renewing under it.
	var before, renewed time.Time
	db.Scan(t, "SELECT renewed_at FROM club.leaderships", nil, &before)
	for !renewed.After(before) {
		db.Scan(t, "SELECT renewed_at FROM club.leaderships", nil, &renewed)
		if len(a.ended) > 0 {
			t.Fatalf("the fence ended its own leader's term: %v", <-a.ended)
		}
	}
	a.resign()
	b := campaign(t, db, "b")
	var waiting bool
	for !waiting {
		db.Scan(t, `SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE application_name = 'holdfast elect chair'
			AND datname = current_database() AND wait_event_type = 'Lock')`, nil, &waiting)
	}
	select {
	case <-b.won:
		t.Error("the next leader won inside a fenced transaction of the last")
	default:
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-b.won
}
