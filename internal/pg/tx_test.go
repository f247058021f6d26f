package pg_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/internal/pg"
	"holdfast/internal/pg/pgtest"
)

func TestInTxRunsAgainAfterADeadlock(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := t.Context()
	db.Exec(t, "CREATE TABLE n (id int PRIMARY KEY, v int)")
	db.Exec(t, "INSERT INTO n VALUES (1, 0), (2, 0)")
	// Both take their first row before either asks for its second, so one must die.
	var both sync.WaitGroup
	both.Add(2)
	var firstTry [3]sync.Once
	swap := func(first, second int) error {
		return pg.InTx(ctx, db.Pool, pg.TxOptions{}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "UPDATE n SET v = v + 1 WHERE id = $1", first); err != nil {
				return err
			}
			firstTry[first].Do(func() { both.Done(); both.Wait() })
			_, err := tx.Exec(ctx, "UPDATE n SET v = v + 1 WHERE id = $1", second)
			return err
		})
	}
	errs := make(chan error, 2)
	go func() { errs <- swap(1, 2) }()
	go func() { errs <- swap(2, 1) }()
	for range 2 {
		if err := <-errs; err != nil {
			t.Errorf("a transaction failed instead of running again: %v", err)
		}
	}
	var sum int
	db.Scan(t, "SELECT sum(v) FROM n", nil, &sum)
	if sum != 4 {
		t.Errorf("sum of increments is %d, want 4", sum)
	}
}

func TestInTxRollsBackAndSaysWhatFnSaid(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, "CREATE TABLE n (id int)")
	own := errors.New("own")
	err := pg.InTx(t.Context(), db.Pool, pg.TxOptions{}, func(tx pgx.Tx) error {
		_, _ = tx.Exec(t.Context(), "INSERT INTO n VALUES (1)")
		return own
	})
	if !errors.Is(err, own) {
		t.Errorf("error is %v, want fn's own", err)
	}
	var rows int
	db.Scan(t, "SELECT count(*) FROM n", nil, &rows)
	if rows != 0 {
		t.Errorf("%d rows stand after a rollback", rows)
	}
}

// The bound on COMMIT begins when the function has ended, however long that took.
func TestInTxCommitsAfterALongFunction(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	err := pg.InTx(t.Context(), db.Pool, pg.TxOptions{}, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "SELECT pg_sleep(5.5)")
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// A client that hangs up after its transaction has been decided doesn't undo it.
func TestInTxCommitsAlthoughTheCallerHasGone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, "CREATE TABLE n (id int)")
	ctx, cancel := context.WithCancel(t.Context())
	err := pg.InTx(ctx, db.Pool, pg.TxOptions{}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO n VALUES (1)")
		cancel()
		return err
	})
	if err != nil {
		t.Fatalf("commit: %v", err)
	}
	var rows int
	db.Scan(t, "SELECT count(*) FROM n", nil, &rows)
	if rows != 1 {
		t.Errorf("%d rows, want 1", rows)
	}
}

// The two faults of a commit, made by a proxy that cuts the connection: the COMMIT never
// arrived, or it was carried out and its answer lost. The caller can't tell them apart, so both are
// unknown; one that finds its own earlier row may run again, and then knows.
func TestLostCommitIsUnknown(t *testing.T) {
	t.Parallel()
	for _, fault := range []struct {
		name  string
		drops direction
		rows  int
	}{{"not applied", requests, 0}, {"applied", answers, 1}} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			db.Exec(t, "CREATE TABLE n (id int PRIMARY KEY)")
			proxy := newCuttingProxy(t, db)
			insertAndCut := func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), "INSERT INTO n VALUES (1) ON CONFLICT DO NOTHING")
				proxy.cutNext.CompareAndSwap(0, int32(fault.drops))
				return err
			}
			err := pg.InTx(t.Context(), proxy.pool, pg.TxOptions{}, insertAndCut)
			if !errors.Is(err, pg.ErrCommitUnknown) {
				t.Fatalf("error is %v, want ErrCommitUnknown", err)
			}
			if got := countSoon(t, db, fault.rows); got != fault.rows {
				t.Errorf("%d rows stand, want %d", got, fault.rows)
			}
			runs := 0
			err = pg.InTx(t.Context(), proxy.pool, pg.TxOptions{RepeatUnknown: true}, func(tx pgx.Tx) error {
				if runs++; runs == 1 {
					return insertAndCut(tx)
				}
				_, err := tx.Exec(t.Context(), "INSERT INTO n VALUES (1) ON CONFLICT DO NOTHING")
				return err
			})
			if err != nil || runs != 2 {
				t.Errorf("%d runs, error %v; want a second run that succeeds", runs, err)
			}
			if got := countSoon(t, db, 1); got != 1 {
				t.Errorf("%d rows stand at last, want 1", got)
			}

			// The database goes away before it can be asked again: still unknown.
			err = pg.InTx(t.Context(), proxy.pool, pg.TxOptions{RepeatUnknown: true}, func(tx pgx.Tx) error {
				err := insertAndCut(tx)
				db.SetAllowConnections(t, false)
				return err
			})
			db.SetAllowConnections(t, true)
			if !errors.Is(err, pg.ErrCommitUnknown) {
				t.Errorf("a second try that can't connect: %v, want ErrCommitUnknown", err)
			}
		})
	}
}

// countSoon counts once no other session is in a transaction.
func countSoon(t *testing.T, db *pgtest.DB, want int) (rows int) {
	t.Helper()
	for range 200 {
		db.Scan(t, "SELECT count(*) FROM n", nil, &rows)
		if rows == want {
			break
		}
		db.Exec(t, "SELECT pg_stat_clear_snapshot()")
	}
	return rows
}

type direction int32

const (
	requests direction = 1
	answers  direction = 2
)

// cuttingProxy passes bytes to the database. Once cutNext names a direction, the next bytes
// that way are dropped and the connection is closed on both sides.
type cuttingProxy struct {
	pool    *pgxpool.Pool
	cutNext atomic.Int32
}

func newCuttingProxy(t *testing.T, db *pgtest.DB) *cuttingProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &cuttingProxy{}
	cfg := db.Pool.Config().ConnConfig
	var passing sync.WaitGroup
	passing.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port))))
			if err != nil {
				_ = client.Close()
				continue
			}
			closeBoth := sync.OnceFunc(func() { _ = client.Close(); _ = server.Close() })
			passing.Go(func() { defer closeBoth(); _, _ = io.Copy(filter{p, server, requests}, client) })
			passing.Go(func() { defer closeBoth(); _, _ = io.Copy(filter{p, client, answers}, server) })
		}
	})
	through, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	through.Host = l.Addr().String()
	p.pool, err = pg.OpenPool(t.Context(), through.String(), pg.PoolOptions{MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.pool.Close()
		_ = l.Close()
		passing.Wait()
	})
	return p
}

// filter passes one direction's bytes on.
type filter struct {
	proxy *cuttingProxy
	to    io.Writer
	way   direction
}

func (f filter) Write(b []byte) (int, error) {
	if f.proxy.cutNext.CompareAndSwap(int32(f.way), 0) {
		return 0, io.ErrClosedPipe
	}
	return f.to.Write(b)
}
