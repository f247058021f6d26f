// Package idempotency makes a change that is asked for twice happen once.
//
// The answer is stored by the transaction that makes the change. So a key stands if and only if
// its change does: of parallel requests with one key, one acts while the others wait for it; after a
// crash or an unknown commit, asking again finds the answer or acts for the first time; a
// refusal leaves nothing.
//
// Keys are kept by the day of their first use, UTC, so that clearing them is dropping a
// table. A key is looked for in the days that may have it; what keeps two requests from using
// one key at once is a lock, not the index, since that knows one day only.
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
	found := map[Key]Stored{}
	var batch pgx.Batch
	queueLock(&batch, []Key{key}) // waits for a rival's outcome
	QueueFind(&batch, schema, []Key{key}, found)
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return answer, false, err
	}
	for _, stored := range found {
		if stored.Body != key.Body {
			return answer, false, ErrReused
		}
		if err := json.Unmarshal(stored.Text, &answer); err != nil {
			return answer, false, fmt.Errorf("read the stored answer: %w", err)
		}
		return answer, true, nil
	}
	if answer, err = act(); err != nil {
		return answer, false, err
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return answer, false, fmt.Errorf("store the answer: %w", err)
	}
	var store pgx.Batch
	QueueStore(&store, schema, []Answer{{Key: key, Text: text}})
	return answer, false, tx.SendBatch(ctx, &store).Close()
}

// Stored is the answer that a key has, and the hash of the body that it came with.
type Stored struct {
	Body [32]byte
	Text []byte // JSON
}

// NearMidnight says of an instant of the database's clock whether rivals that use a key within a minute
// of it may store it under different days.
func NearMidnight(now time.Time) bool {
	return now.Add(time.Minute).UTC().Day() != now.Add(-time.Minute).UTC().Day()
}

// QueueGuard makes rivals with the same keys wait in a transaction that begins near midnight; at other
// times the index does. It comes before all other locks of the transaction.
func QueueGuard(batch *pgx.Batch, keys []Key, now time.Time) {
	if NearMidnight(now) {
		queueLock(batch, keys)
	}
}

// queueLock locks keys until the transaction ends, in one order.
func queueLock(batch *pgx.Batch, keys []Key) {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.Tenant + "\n" + k.Path + "\n" + k.Value
	}
	slices.Sort(names)
	batch.Queue(`SELECT pg_advisory_xact_lock(h) FROM (SELECT hashtextextended(name, 7) AS h FROM unnest($1::text[]) AS name ORDER BY 1) AS locks`, names)
}

// findSQL looks each key up by the index, one by one: OFFSET 0 keeps the planner, which knows
// nothing of a table that was empty a minute ago, from reading all of it instead.
const findSQL = `
SELECT k.* FROM unnest($2::text[], $3::text[]) AS w(path, key) CROSS JOIN LATERAL (
	SELECT k.path, k.key, k.body_hash, k.answer FROM %s.idempotency_keys k
	 WHERE k.tenant = $1 AND k.path = w.path AND k.key = w.key
	   AND k.day >= (now() AT TIME ZONE 'UTC')::date - 1 AND k.day <= (now() AT TIME ZONE 'UTC')::date + 1 OFFSET 0) k`

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
	batch.Queue(fmt.Sprintf(findSQL, pgx.Identifier{schema}.Sanitize()),
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

// storeSQL has the transaction repeated if one of the keys has been answered meanwhile.
const storeSQL = `
WITH stored AS (
	INSERT INTO %[1]s.idempotency_keys (tenant, path, key, body_hash, answer)
	SELECT $1, a.path, a.key, a.body_hash, a.answer::jsonb
	  FROM unnest($2::text[], $3::text[], $4::bytea[], $5::text[]) WITH ORDINALITY AS a(path, key, body_hash, answer, n)
	 ORDER BY a.n
	ON CONFLICT DO NOTHING
	RETURNING 1
)
SELECT %[1]s.must(count(*), $6) FROM stored`

// QueueStore stores the answers of one tenant's keys with the other statements of a batch.
func QueueStore(batch *pgx.Batch, schema string, answers []Answer) {
	// Rivals insert in one order, so that they can't wait for each other in a circle.
	slices.SortFunc(answers, func(a, b Answer) int {
		return cmp.Or(strings.Compare(a.Key.Path, b.Key.Path), strings.Compare(a.Key.Value, b.Key.Value))
	})
	n := len(answers)
	paths, values, texts, bodies := make([]string, n), make([]string, n), make([]string, n), make([][]byte, n)
	for i, a := range answers {
		paths[i], values[i], texts[i], bodies[i] = a.Key.Path, a.Key.Value, string(a.Text), a.Key.Body[:]
	}
	batch.Queue(fmt.Sprintf(storeSQL, pgx.Identifier{schema}.Sanitize()), answers[0].Key.Tenant, paths, values, bodies, texts, n)
}

// Partitioned says how the keys of a schema are kept.
func Partitioned(schema string) pg.Partitioned {
	return pg.Partitioned{Schema: schema, Table: "idempotency_keys", Span: pg.Day}
}

// Clear drops the days whose keys are all older than [Kept], and makes those to come. Replicas
// may run it at once.
func Clear(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	p := Partitioned(schema)
	if err := p.Ensure(ctx, pool); err != nil {
		return err
	}
	_, err := p.Drop(ctx, pool, Kept)
	return err
}
