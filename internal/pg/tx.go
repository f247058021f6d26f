package pg

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// maxAttempts bounds how often one transaction is run: rivals that still
	// collide after this many tries are told so.
	maxAttempts = 10
	// finishTimeout bounds COMMIT and ROLLBACK, which outlive the caller's context:
	// a client that hangs up must not turn a decided transaction into an unknown one.
	finishTimeout = 5 * time.Second
	// beginSQL also bounds how long a replica that was frozen in mid-transaction can
	// hold row locks. It is local to the transaction, so transaction poolers keep it apart,
	// and both statements travel as one message.
	beginSQL     = "BEGIN; " + idleLimitSQL
	idleLimitSQL = "SET LOCAL idle_in_transaction_session_timeout = '10s'"
	beginReadSQL = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL idle_in_transaction_session_timeout = '60s'"
)

// ErrRepeat, returned by a transaction's function, rolls back and runs it again:
// for a conflict that the function saw itself and that its rival will resolve.
var ErrRepeat = errors.New("repeat the transaction")

// codeNotAsDecided is what a schema's function must() raises: something isn't any more as it was
// when the transaction was decided on. It is [ErrRepeat], said by the database.
const codeNotAsDecided = "HF001"

// TxOptions say how a transaction may be run. The zero value is a read-write
// transaction at READ COMMITTED.
type TxOptions struct {
	// Snapshot reads everything as of one instant, and writes nothing.
	Snapshot bool
	// RepeatUnknown runs the function again when the fate of a commit is unknown.
	// Set it only where the function finds its own earlier attempt.
	RepeatUnknown bool
}

// InTx runs fn in a transaction and commits it when fn returns nil. It runs fn
// again after a serialization failure, a deadlock or [ErrRepeat], until ctx
// ends. It fails with [ErrCommitUnknown] when the answer to COMMIT was lost, and
// otherwise with what fn or the database said, in which case nothing stands.
// It is safe for concurrent use.
func InTx(ctx context.Context, pool *pgxpool.Pool, o TxOptions, fn func(pgx.Tx) error) error {
	return repeat(ctx, o, func() error { return runTx(ctx, pool, o, fn) })
}

// repeat runs a transaction until it has an outcome that can stand.
func repeat(ctx context.Context, o TxOptions, run func() error) error {
	unknown := false // an earlier attempt may stand
	for attempt := 1; ; attempt++ {
		err := run()
		if Code(err) == codeNotAsDecided {
			err = errors.Join(ErrRepeat, err)
		}
		if unknown && Unavailable(err) && !errors.Is(err, ErrCommitUnknown) {
			err = fmt.Errorf("%w, and asking again failed: %w", ErrCommitUnknown, err)
		}
		unknown = unknown || errors.Is(err, ErrCommitUnknown)
		again := errors.Is(err, ErrRepeat) || repeatable(err) ||
			o.RepeatUnknown && errors.Is(err, ErrCommitUnknown)
		if !again || attempt == maxAttempts && !errors.Is(err, ErrRepeat) {
			return err
		}
		pause := time.Duration(rand.Int64N(int64(time.Millisecond) << min(attempt, 6)))
		select {
		case <-ctx.Done():
			if unknown && !errors.Is(err, ErrCommitUnknown) {
				err = fmt.Errorf("%w: %w", ErrCommitUnknown, err)
			}
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(pause):
		}
	}
}

func runTx(ctx context.Context, pool *pgxpool.Pool, o TxOptions, fn func(pgx.Tx) error) error {
	begin := beginSQL
	if o.Snapshot {
		begin = beginReadSQL
	}
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: begin})
	if err != nil {
		return err
	}
	err = fn(tx)
	finishCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	if err != nil {
		// An error here changes nothing: a connection that can't roll back is
		// closed by the pool, and the server rolls back then.
		_ = tx.Rollback(finishCtx)
		return err
	}
	return commitFate(tx.Commit(finishCtx))
}

// Autocommit runs one statement that is a transaction of its own, and reads its one row. It fails with
// [pgx.ErrNoRows], with [ErrCommitUnknown] when the answer was lost, and otherwise with what the
// database said, in which case nothing stands.
func Autocommit(ctx context.Context, pool *pgxpool.Pool, sql string, args []any, row ...any) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return commitFate(err)
	}
	defer rows.Close()
	got := rows.Next()
	if got {
		if err := rows.Scan(row...); err != nil {
			return fmt.Errorf("%w: %w", ErrCommitUnknown, err)
		}
	}
	rows.Close()
	err = rows.Err()
	var said *pgconn.PgError
	switch {
	case err == nil && !got:
		return pgx.ErrNoRows
	case !got && errors.As(err, &said):
		return err // even a FATAL: the row would have been sent before the commit
	}
	return commitFate(err)
}

// commitFate turns what COMMIT answered into what is known. An ERROR is the
// server's word that it rolled back; a FATAL, or no answer, is no word at all.
func commitFate(err error) error {
	if err == nil || errors.Is(err, pgx.ErrTxCommitRollback) || errors.Is(err, pgx.ErrTxClosed) || pgconn.SafeToRetry(err) {
		return err
	}
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Severity == "ERROR" {
		return err
	}
	return fmt.Errorf("%w: %w", ErrCommitUnknown, err)
}
