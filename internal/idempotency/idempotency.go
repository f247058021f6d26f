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
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
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
	found := map[ID]Stored{}
	var batch pgx.Batch
	queueLock(&batch, []Key{key}) // waits for a rival's outcome
	QueueFind(&batch, schema, []Key{key}, found)
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return answer, false, err
	}
	if stored, ok := found[key.ID()]; ok {
		if !stored.IsFor(key) {
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

// ID is what a key is known by: a hash of all but its body.
type ID [16]byte

// ID is the key's.
func (k *Key) ID() ID {
	text := make([]byte, 0, 512)
	for _, part := range []string{k.Tenant, k.Path} {
		text = append(append(text, part...), '\n')
	}
	sum := sha256.Sum256(append(text, k.Value...))
	return ID(sum[:16])
}

// BodyHash is as much of the hash of its body as is stored with the key.
func (k *Key) BodyHash() [16]byte { return [16]byte(k.Body[:16]) }

// Stored is the answer that a key has.
type Stored struct {
	bodyHash [16]byte
	Made     uuid.UUID // what was made, if the answer can be told from that
	Text     []byte    // else: JSON
}

// IsFor reports whether it answers a request with that body.
func (s Stored) IsFor(key Key) bool { return s.bodyHash == key.BodyHash() }

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
	names := make([]int64, len(keys))
	for i := range keys {
		id := keys[i].ID()
		names[i] = int64(binary.BigEndian.Uint64(id[:]))
	}
	slices.Sort(names)
	batch.Queue(`SELECT pg_advisory_xact_lock(n) FROM unnest($1::bigint[]) AS n`, names)
}

// findSQL looks each key up by the index, one by one: OFFSET 0 keeps the planner, which knows
// nothing of a table that was empty a minute ago, from reading all of it instead.
const findSQL = `
SELECT k.* FROM unnest($1::uuid[]) AS w(id) CROSS JOIN LATERAL (
	SELECT k.id, k.body_hash, k.made, k.answer FROM %s.idempotency_keys k
	 WHERE k.id = w.id
	   AND k.day >= (now() AT TIME ZONE 'UTC')::date - 1 AND k.day <= (now() AT TIME ZONE 'UTC')::date + 1 OFFSET 0) k`

// QueueFind reads, with the other statements of a batch, which of the keys have been answered, into found.
//
// With [QueueStore] it serves transactions that find many answers at once. They take the
// locks that requests with the same key and body must share first, look the keys up under them,
// and store the answers at the end: then no rival can have answered in between.
func QueueFind(batch *pgx.Batch, schema string, keys []Key, found map[ID]Stored) {
	ids := make([]pgtype.UUID, len(keys))
	for i := range keys {
		ids[i] = pgtype.UUID{Bytes: keys[i].ID(), Valid: true}
	}
	batch.Queue(fmt.Sprintf(findSQL, pgx.Identifier{schema}.Sanitize()), ids).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var id, bodyHash, made pgtype.UUID
			var stored Stored
			if err := rows.Scan(&id, &bodyHash, &made, &stored.Text); err != nil {
				return err
			}
			stored.bodyHash, stored.Made = bodyHash.Bytes, made.Bytes
			found[id.Bytes] = stored
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
	INSERT INTO %[1]s.idempotency_keys (id, body_hash, answer)
	SELECT a.id, a.body_hash, a.answer::jsonb
	  FROM unnest($1::uuid[], $2::uuid[], $3::text[]) WITH ORDINALITY AS a(id, body_hash, answer, n)
	 ORDER BY a.n
	ON CONFLICT DO NOTHING
	RETURNING 1
)
SELECT %[1]s.must(count(*), $4) FROM stored`

// QueueStore stores answers with the other statements of a batch.
func QueueStore(batch *pgx.Batch, schema string, answers []Answer) {
	n := len(answers)
	rows := make([]answerRow, n)
	for i, a := range answers {
		rows[i] = answerRow{a.Key.ID(), a}
	}
	// Rivals insert in one order, so that they can't wait for each other in a circle.
	slices.SortFunc(rows, func(a, b answerRow) int { return bytes.Compare(a.id[:], b.id[:]) })
	ids, bodies, texts := make([]pgtype.UUID, n), make([]pgtype.UUID, n), make([]string, n)
	for i, r := range rows {
		ids[i], bodies[i] = pgtype.UUID{Bytes: r.id, Valid: true}, pgtype.UUID{Bytes: r.Key.BodyHash(), Valid: true}
		texts[i] = string(r.Text)
	}
	batch.Queue(fmt.Sprintf(storeSQL, pgx.Identifier{schema}.Sanitize()), ids, bodies, texts, n)
}

type answerRow struct {
	id ID
	Answer
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
