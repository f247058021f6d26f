package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// form is a way to reserve with one transaction per click.
type form string

const (
	forUpdate  form = "SELECT … FOR UPDATE"
	statement  form = "single statement"
	optimistic form = "optimistic version"
	// The carts of several lines know two: as they come, and in one order.
	cartsAsTheyCome form = "FOR UPDATE, lines as they come"
	cartsInOrder    form = "FOR UPDATE, lines in one order"
)

// register is the tables and statements of one form, in a schema of its own. It leaves out what
// ours has besides (ledger, locations, limits, giving expired holds back), which is to its advantage.
type register struct {
	form   form
	schema string
	pool   *pgxpool.Pool
	sql    map[string]string // the statements below, with the schema's name in them

	again     atomic.Int64 // attempts that came to nothing because a rival was faster
	deadlocks atomic.Int64
}

const registerSQL = `
CREATE SCHEMA FORM;
CREATE TABLE FORM.stock (
    sku     text   PRIMARY KEY,
    on_hand bigint NOT NULL,
    held    bigint NOT NULL DEFAULT 0,
    sold    bigint NOT NULL DEFAULT 0,
    version bigint NOT NULL DEFAULT 0,
    CHECK (held BETWEEN 0 AND on_hand)
) WITH (fillfactor = 50);
CREATE TABLE FORM.reservations (
    id         uuid        PRIMARY KEY,
    key        text,
    skus       text[]      NOT NULL,
    quantities bigint[]    NOT NULL,
    status     text        NOT NULL DEFAULT 'held',
    expires_at timestamptz NOT NULL
);
CREATE UNIQUE INDEX ON FORM.reservations (key) WHERE key IS NOT NULL;
CREATE INDEX ON FORM.reservations (expires_at) WHERE status = 'held'`

// statements of all forms. A repeated key fails on its unique index, and would then be looked up.
var statements = map[string]string{
	"lock": `SELECT on_hand - held FROM FORM.stock WHERE sku = $1 FOR UPDATE`,
	"take": `UPDATE FORM.stock SET held = held + $2 WHERE sku = $1`,
	"note": `INSERT INTO FORM.reservations (id, key, skus, quantities, expires_at)
		VALUES ($1, nullif($2, ''), $3, $4, clock_timestamp() + interval '24 hours')`,

	"take and note": `WITH taken AS (
			UPDATE FORM.stock SET held = held + $4 WHERE sku = $3 AND on_hand - held >= $4 RETURNING sku
		)
		INSERT INTO FORM.reservations (id, key, skus, quantities, expires_at)
		SELECT $1, nullif($2, ''), ARRAY[sku], ARRAY[$4::bigint], clock_timestamp() + interval '24 hours' FROM taken`,

	"look": `SELECT on_hand - held, version FROM FORM.stock WHERE sku = $1`,
	"take version and note": `WITH taken AS (
			UPDATE FORM.stock SET held = held + $4, version = version + 1 WHERE sku = $3 AND version = $5 RETURNING sku
		)
		INSERT INTO FORM.reservations (id, key, skus, quantities, expires_at)
		SELECT $1, nullif($2, ''), ARRAY[sku], ARRAY[$4::bigint], clock_timestamp() + interval '24 hours' FROM taken`,

	"confirm": `WITH moved AS (
			UPDATE FORM.reservations SET status = 'confirmed'
			 WHERE id = $1 AND status = 'held' AND expires_at > clock_timestamp() RETURNING skus[1] AS sku, quantities[1] AS units
		)
		UPDATE FORM.stock s SET on_hand = on_hand - units, held = held - units, sold = sold + units, version = version + 1
		  FROM moved WHERE s.sku = moved.sku`,
	"release": `WITH moved AS (
			UPDATE FORM.reservations SET status = 'released' WHERE id = $1 AND status = 'held' RETURNING skus[1] AS sku, quantities[1] AS units
		)
		UPDATE FORM.stock s SET held = held - units, version = version + 1 FROM moved WHERE s.sku = moved.sku`,
}

// newRegister makes a form's tables with units of some SKUs. Its statements run on the pool.
func newRegister(ctx context.Context, pool *pgxpool.Pool, schema string, f form, units int64, skus []string) (*register, error) {
	r := &register{form: f, schema: schema, pool: pool, sql: map[string]string{}}
	for name, text := range statements {
		r.sql[name] = strings.ReplaceAll(text, "FORM", schema)
	}
	if _, err := pool.Exec(ctx, strings.ReplaceAll(registerSQL, "FORM", schema)); err != nil {
		return nil, err
	}
	_, err := pool.Exec(ctx, fmt.Sprintf("INSERT INTO %s.stock (sku, on_hand) SELECT sku, $2 FROM unnest($1::text[]) AS s(sku)", schema), skus, units)
	if err == nil {
		_, err = pool.Exec(ctx, fmt.Sprintf("ANALYZE %s.stock", schema))
	}
	return r, err
}

// do carries out a command, in a transaction that is committed when it returns.
func (r *register) do(ctx context.Context, c command) (string, outcome, error) {
	id := uuid.UUID{}
	try := r.settle
	if c.kind == reserve {
		var err error
		if id, err = uuid.NewV7(); err != nil {
			return "", done, err
		}
		switch r.form {
		case statement:
			try = r.inOneStatement
		case optimistic:
			try = r.onVersion
		default:
			try = r.underLock
		}
	}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		conn, err := r.pool.Acquire(ctx)
		if ctx.Err() != nil {
			if err == nil {
				conn.Release()
			}
			return "", done, errStopped
		}
		if err != nil {
			return "", done, err
		}
		o, err := try(context.WithoutCancel(ctx), conn, id, c)
		conn.Release() // of a connection in mid-transaction, this closes it
		switch {
		case isDeadlock(err):
			r.deadlocks.Add(1)
		case errors.Is(err, errFaster):
			r.again.Add(1)
			select {
			case <-time.After(rand.N(pause)):
			case <-ctx.Done():
			}
		default:
			return id.String(), o, err
		}
	}
}

// errFaster means that a rival changed the row between the look and the write.
var errFaster = errors.New("a rival was faster")

// firstPause is what an attempt that lost waits at most, before it tries again; twice that, four
// times and so on, up to lastPause, if it goes on losing.
const firstPause, lastPause = time.Millisecond, 64 * time.Millisecond

// settle confirms or releases.
func (r *register) settle(ctx context.Context, conn *pgxpool.Conn, _ uuid.UUID, c command) (outcome, error) {
	name := "confirm"
	if c.kind == release {
		name = "release"
	}
	tag, err := conn.Exec(ctx, r.sql[name], c.id)
	if err == nil && tag.RowsAffected() != 1 {
		err = fmt.Errorf("%s: not held", name)
	}
	return done, err
}

// underLock takes two round trips: one locks and reads, one writes and commits.
func (r *register) underLock(ctx context.Context, conn *pgxpool.Conn, id uuid.UUID, c command) (outcome, error) {
	var begin pgx.Batch
	begin.Queue("BEGIN")
	enough := true
	for _, l := range r.ordered(c.lines) {
		begin.Queue(r.sql["lock"], l.sku).QueryRow(func(row pgx.Row) error {
			var free int64
			err := row.Scan(&free)
			enough = enough && free >= l.quantity
			return err
		})
	}
	if err := conn.SendBatch(ctx, &begin).Close(); err != nil {
		return done, err
	}
	if !enough {
		_, err := conn.Exec(ctx, "ROLLBACK")
		return soldOut, err
	}
	var write pgx.Batch
	skus, quantities := make([]string, len(c.lines)), make([]int64, len(c.lines))
	for i, l := range c.lines {
		skus[i], quantities[i] = l.sku, l.quantity
		write.Queue(r.sql["take"], l.sku, l.quantity)
	}
	write.Queue(r.sql["note"], id, c.key, skus, quantities)
	write.Queue("COMMIT")
	return done, conn.SendBatch(ctx, &write).Close()
}

func (r *register) ordered(lines []line) []line {
	if r.form != cartsInOrder {
		return lines
	}
	return sortedLines(lines)
}

func (r *register) inOneStatement(ctx context.Context, conn *pgxpool.Conn, id uuid.UUID, c command) (outcome, error) {
	tag, err := conn.Exec(ctx, r.sql["take and note"], id, c.key, c.lines[0].sku, c.lines[0].quantity)
	if err == nil && tag.RowsAffected() == 0 {
		return soldOut, nil
	}
	return done, err
}

func (r *register) onVersion(ctx context.Context, conn *pgxpool.Conn, id uuid.UUID, c command) (outcome, error) {
	l := c.lines[0]
	var free, version int64
	if err := conn.QueryRow(ctx, r.sql["look"], l.sku).Scan(&free, &version); err != nil {
		return done, err
	}
	if free < l.quantity {
		return soldOut, nil
	}
	tag, err := conn.Exec(ctx, r.sql["take version and note"], id, c.key, l.sku, l.quantity, version)
	if err == nil && tag.RowsAffected() == 0 {
		err = errFaster
	}
	return done, err
}

func isDeadlock(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == "40P01"
}

// check compares what callers were told with the counters, and those with the reservations.
func (r *register) check(ctx context.Context, told books) error {
	var held, sold, inReservations int64
	err := r.pool.QueryRow(ctx, fmt.Sprintf(`
		SELECT sum(held)::bigint, sum(sold)::bigint,
		       (SELECT coalesce(sum(q), 0)::bigint FROM %[1]s.reservations, unnest(quantities) AS q WHERE status = 'held')
		  FROM %[1]s.stock`, r.schema)).Scan(&held, &sold, &inReservations)
	if err != nil {
		return err
	}
	if held != inReservations {
		return fmt.Errorf("the stock says that %d units are held, the reservations say %d", held, inReservations)
	}
	return told.compare(held, sold)
}
