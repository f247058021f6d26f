// Package idempotency makes a change that is asked for twice happen once.
//
// The key's row is inserted first, in the transaction that makes the change, and the answer is
// stored by it too. So a key stands if and only if its change does: of parallel
// requests with one key, one acts while the others wait on the row; after a crash or an
// unknown commit, asking again finds the answer or acts for the first time; a refusal
// rolls the row back with everything else.
package idempotency

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/internal/pg"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrations makes the idempotency_keys table; a service lists it in its schema.
func Migrations() pg.Source { return pg.Migrations("idempotency", migrations) }

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

// Stored is the answer that a key has, and the hash of the body that it came with.
type Stored struct {
	Body [32]byte
	Text []byte // JSON
}

// QueueFind reads, with the other statements of a batch, which of the keys of one tenant have
// been answered, into found; there, a key's Body is zero.
//
// With [QueueStore] it serves transactions that find many answers at once. They take the
// locks that requests with the same key and body must share first, look the keys up under them,
// and store the answers at the end: then no rival can have answered in between.
func QueueFind(batch *pgx.Batch, schema string, keys []Key, found map[Key]Stored) {
	paths, values := make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		paths[i], values[i] = k.Path, k.Value
	}
	batch.Queue(`SELECT k.path, k.key, k.body_hash, k.answer FROM unnest($2::text[], $3::text[]) AS w(path, key)
		JOIN `+pgx.Identifier{schema, "idempotency_keys"}.Sanitize()+` k ON k.tenant = $1 AND k.path = w.path AND k.key = w.key`,
		keys[0].Tenant, paths, values).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			key := Key{Tenant: keys[0].Tenant}
			var body []byte
			var stored Stored
			if err := rows.Scan(&key.Path, &key.Value, &body, &stored.Text); err != nil {
				return err
			}
			copy(stored.Body[:], body)
			found[key] = stored
		}
		return rows.Err()
	})
}

// Answer is what a key is to answer from now on.
type Answer struct {
	Key  Key
	Text []byte // JSON
}

// QueueStore stores the answers of one tenant's keys with the other statements of a batch. It
// affects fewer rows than there are answers if one of the keys has been answered meanwhile; the
// transaction must then be repeated.
func QueueStore(batch *pgx.Batch, schema string, answers []Answer) *pgx.QueuedQuery {
	// Rivals insert in one order, so that they can't wait for each other in a circle.
	slices.SortFunc(answers, func(a, b Answer) int {
		return cmp.Or(strings.Compare(a.Key.Path, b.Key.Path), strings.Compare(a.Key.Value, b.Key.Value))
	})
	n := len(answers)
	paths, values, texts, bodies := make([]string, n), make([]string, n), make([]string, n), make([][]byte, n)
	for i, a := range answers {
		paths[i], values[i], texts[i], bodies[i] = a.Key.Path, a.Key.Value, string(a.Text), a.Key.Body[:]
	}
	return batch.Queue(`INSERT INTO `+pgx.Identifier{schema, "idempotency_keys"}.Sanitize()+` (tenant, path, key, body_hash, answer)
		SELECT $1, a.path, a.key, a.body_hash, a.answer::jsonb
		  FROM unnest($2::text[], $3::text[], $4::bytea[], $5::text[]) WITH ORDINALITY AS a(path, key, body_hash, answer, n)
		 ORDER BY a.n
		ON CONFLICT DO NOTHING`, answers[0].Key.Tenant, paths, values, bodies, texts)
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
