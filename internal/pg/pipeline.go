package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Pipeline is a read-write transaction at READ COMMITTED whose BEGIN travels with its first
// statements and whose COMMIT with its last: two messages less than [InTx]. So what
// the last statements find must be judged by themselves: they fail if it isn't as
// it should be, and then nothing stands. It is one goroutine's.
type Pipeline struct {
	conn  *pgx.Conn
	begun bool
	// committing says that COMMIT was sent, so that only the server's word tells what became of it.
	committing bool
}

// InPipeline runs fn in a transaction, and again where [InTx] would. What fn doesn't commit with
// [Pipeline.Commit] is rolled back.
func InPipeline(ctx context.Context, pool *pgxpool.Pool, o TxOptions, fn func(*Pipeline) error) error {
	return repeat(ctx, o, func() error { return runPipeline(ctx, pool, fn) })
}

func runPipeline(ctx context.Context, pool *pgxpool.Pool, fn func(*Pipeline) error) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	p := Pipeline{conn: conn.Conn()}
	err = fn(&p)
	if p.committing {
		err = commitFate(err)
	}
	if p.conn.PgConn().TxStatus() != 'I' && !p.conn.IsClosed() {
		finishCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
		defer cancel()
		_, _ = p.conn.Exec(finishCtx, "ROLLBACK") // a connection that can't is closed by the pool
	}
	return err
}

func (p *Pipeline) begin(ctx context.Context) error {
	if p.begun {
		return nil
	}
	return p.SendBatch(ctx, &pgx.Batch{}).Close()
}

// SendBatch sends statements in one message.
func (p *Pipeline) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return p.conn.SendBatch(ctx, p.opened(b))
}

// opened is the batch with BEGIN before it, if it is the first.
func (p *Pipeline) opened(b *pgx.Batch) *pgx.Batch {
	if p.begun {
		return b
	}
	p.begun = true
	var first pgx.Batch
	first.Queue("BEGIN")
	first.Queue(byIndexSQL)
	first.QueuedQueries = append(first.QueuedQueries, b.QueuedQueries...)
	return &first
}

// byIndexSQL bounds idleness as idleLimitSQL does, and keeps the planner to the indexes: a plan that reads a
// whole table because it was small when it was made would be kept while the table grows.
const byIndexSQL = `SELECT set_config('idle_in_transaction_session_timeout', '10s', true),
	set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)`

// Exec sends one statement.
func (p *Pipeline) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := p.begin(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	return p.conn.Exec(ctx, sql, args...)
}

// Query sends one query; its rows are to be read before anything else is sent.
func (p *Pipeline) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := p.begin(ctx); err != nil {
		return nil, err
	}
	return p.conn.Query(ctx, sql, args...)
}

// QueryRow sends one query for one row.
func (p *Pipeline) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := p.begin(ctx); err != nil {
		return failedRow{err}
	}
	return p.conn.QueryRow(ctx, sql, args...)
}

type failedRow struct{ err error }

func (r failedRow) Scan(...any) error { return r.err }

// Commit sends the last statements with COMMIT behind them, and outlives ctx by a few
// seconds once it has begun: a client that hangs up must not turn a decided transaction into
// an unknown one. Where one of the statements fails, nothing stands. It returns what fn is to return.
func (p *Pipeline) Commit(ctx context.Context, b *pgx.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b = p.opened(b)
	b.Queue("COMMIT")
	patience := finishTimeout
	if deadline, ok := ctx.Deadline(); ok {
		patience += time.Until(deadline)
	}
	finishCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	p.committing = true
	return p.conn.SendBatch(finishCtx, b).Close()
}
