// Package idempotency makes a change that is asked for twice happen once.
//
// The key's row is inserted first, in the transaction that makes the change, and the answer is
// stored by it too. So a key stands if and only if its change does: of parallel
// requests with one key, one acts while the others wait on the row; after a crash or an
// unknown commit, asking again finds the answer or acts for the first time; a refusal
// rolls the row back with everything else.
package idempotency

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/internal/pg"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrations makes the idempotency_keys table; a service lists it in its schema.
func Migrations() pg.Source {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		panic(err) // the folder is embedded above
	}
	return pg.Source{Name: "idempotency", FS: files}
}

// Kept is how long a key answers, at least.
const Kept = 24 * time.Hour

// ErrReused means that the key came with another body before.
var ErrReused = errors.New("idempotency key was used with another request body")

// Key names one request of a client. With an empty Value the request has no key.
type Key struct {
	Tenant string
	Path   string
	Value  string   // 1–255 visible ASCII characters
	Body   [32]byte // a hash of the request's body
}

// Once runs act inside tx unless the key has been answered before; then it gives that
// answer, with replayed set. It fails with [ErrReused] if the body differs. T must survive JSON.
func Once[T any](ctx context.Context, tx pgx.Tx, schema string, key Key, act func() (T, error)) (answer T, replayed bool, err error) {
	if key.Value == "" {
		answer, err = act()
		return answer, false, err
	}
	table := pgx.Identifier{schema, "idempotency_keys"}.Sanitize()
	// A rival's uncommitted row of the same key makes this wait for its outcome.
	tag, err := tx.Exec(ctx, `INSERT INTO `+table+` (tenant, path, key, body_hash) VALUES ($1, $2, $3, $4)
		ON CONFLICT DO NOTHING`, key.Tenant, key.Path, key.Value, key.Body[:])
	if err != nil {
		return answer, false, err
	}
	if tag.RowsAffected() == 0 {
		answer, err = replay[T](ctx, tx, table, key)
		return answer, err == nil, err
	}
	if answer, err = act(); err != nil {
		return answer, false, err
	}
	stored, err := json.Marshal(answer)
	if err != nil {
		return answer, false, fmt.Errorf("store the answer: %w", err)
	}
	_, err = tx.Exec(ctx, `UPDATE `+table+` SET answer = $4 WHERE tenant = $1 AND path = $2 AND key = $3`,
		key.Tenant, key.Path, key.Value, stored)
	return answer, false, err
}

func replay[T any](ctx context.Context, tx pgx.Tx, table string, key Key) (answer T, err error) {
	var body, stored []byte
	err = tx.QueryRow(ctx, `SELECT body_hash, answer FROM `+table+` WHERE tenant = $1 AND path = $2 AND key = $3`,
		key.Tenant, key.Path, key.Value).Scan(&body, &stored)
	if errors.Is(err, pgx.ErrNoRows) {
		return answer, pg.ErrRepeat // cleared between the two statements: it is free again
	}
	if err != nil {
		return answer, err
	}
	if string(body) != string(key.Body[:]) {
		return answer, ErrReused
	}
	if err := json.Unmarshal(stored, &answer); err != nil {
		return answer, fmt.Errorf("read the stored answer: %w", err)
	}
	return answer, nil
}

// clearBatch bounds one clearing transaction.
const clearBatch = 5000

// Clear deletes keys older than [Kept], a batch at a time, and says whether there are more.
// Replicas may run it at once.
func Clear(ctx context.Context, pool *pgxpool.Pool, schema string) (more bool, err error) {
	table := pgx.Identifier{schema, "idempotency_keys"}.Sanitize()
	tag, err := pool.Exec(ctx, `
		WITH old AS MATERIALIZED (
			SELECT tenant, path, key FROM `+table+`
			 WHERE created_at < clock_timestamp() - make_interval(secs => $1)
			 ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED)
		DELETE FROM `+table+` k USING old
		 WHERE (k.tenant, k.path, k.key) = (old.tenant, old.path, old.key)
		   AND k.created_at < clock_timestamp() - make_interval(secs => $1)`, Kept.Seconds(), clearBatch)
	return tag.RowsAffected() == clearBatch, err
}
