package inventory

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"holdfast/internal/idempotency"
	"holdfast/internal/pg"
)

// takeSQL holds units of one SKU for many reservations at once, in one statement and so in one
// message: the sale of a hot SKU while there is enough for everybody who asks. Rivals queue on
// the stock row, and its predicates are judged on the row as the rival before left it: enough for
// all, nothing that would have to be looked up first (a limit per customer, a waiting list, other
// locations), and the time of the most urgent not over. Otherwise it changes nothing, and
// the general way decides one by one.
//
// A key that has been answered before, or is being answered, keeps it from changing anything too:
// by the lookup, or by the unique index.
const takeSQL = `
WITH took AS (
	UPDATE inventory.stock s SET held = s.held + $3
	 WHERE s.tenant = $1 AND s.sku = $2 AND s.location = '` + DefaultLocation + `' AND s.active
	   AND s.on_hand + s.backorder_limit - s.safety_stock - s.held >= $3
	   AND s.max_per_customer IS NULL AND s.waiting = 0
	   AND NOT EXISTS (SELECT 1 FROM inventory.stock o WHERE o.tenant = $1 AND o.sku = $2 AND o.location <> '` + DefaultLocation + `')
	   AND clock_timestamp() < coalesce($4, 'infinity'::timestamptz)%s
	RETURNING s.on_hand, s.held - $3 AS held_before, clock_timestamp() AS at, (now() AT TIME ZONE 'UTC')::date AS day,
	          (SELECT k.default_ttl FROM inventory.skus k WHERE k.tenant = $1 AND k.sku = $2) AS default_ttl
), wanted AS (
	SELECT w.*, t.*, CASE WHEN w.secs > 0 THEN make_interval(secs => w.secs) ELSE coalesce(t.default_ttl, interval '10 min') END AS ttl
	  FROM took t, unnest($6::uuid[], $7::bigint[], $8::float8[], $9::text[], $10::text[]) WITH ORDINALITY AS w(id, quantity, secs, customer, reference, n)
), made AS (
	INSERT INTO inventory.reservations (id, tenant, line_skus, line_locations, line_quantities, customer, reference, first_ttl, created_at, expires_at)
	SELECT id, $1, ARRAY[$2], ARRAY['` + DefaultLocation + `'], ARRAY[quantity], nullif(customer, ''), nullif(reference, ''), ttl, at, at + ttl
	  FROM wanted
), noted AS (
	INSERT INTO inventory.ledger (tenant, sku, location, kind, event, delta_on_hand, delta_held, on_hand, held, reservation_id, reference, actor)
	SELECT $1, $2, '` + DefaultLocation + `', 'hold', '` + eventHeld + `', 0, quantity, on_hand,
	       held_before + sum(quantity) OVER (ORDER BY n ROWS UNBOUNDED PRECEDING), id, nullif(reference, ''), $5
	  FROM wanted ORDER BY n
)%s
SELECT at, coalesce(default_ttl, interval '10 min') FROM took`

// The places that requests with keys fill in [takeSQL]. Keys of today are refused by the unique index, so only those of
// yesterday are looked up. The answer of a key is the reservation, from which it can be told again, see readFirst.
const (
	takeUnanswered = `
	   AND NOT EXISTS (SELECT 1 FROM unnest($11::uuid[]) AS a(id) CROSS JOIN LATERAL (
	                     SELECT 1 FROM inventory.idempotency_keys k WHERE k.id = a.id AND k.day = (now() AT TIME ZONE 'UTC')::date - 1 OFFSET 0) k)`
	takeAnswered = `, answered AS (
	INSERT INTO inventory.idempotency_keys (id, body_hash, made, day)
	SELECT a.id, a.body_hash, a.made, took.day FROM took, unnest($11::uuid[], $12::uuid[], $13::uuid[]) AS a(id, body_hash, made)
)`
)

var (
	takeUnkeyedSQL = fmt.Sprintf(takeSQL, "", "")
	takeKeyedSQL   = fmt.Sprintf(takeSQL, takeUnanswered, takeAnswered)
)

// errAnswered means that a key of the batch has been answered already, today.
var errAnswered = errors.New("a key has been answered before")

// take carries a batch out by [takeSQL] and says whether it could. Of an error it is the fate that counts:
// [pg.ErrCommitUnknown] or nothing stands.
func (s *Store) take(ctx context.Context, batch []*task) (bool, error) {
	columns, ok := s.columns(batch)
	if !ok {
		return false, nil
	}
	sql, args := takeUnkeyedSQL, []any{
		batch[0].caller.Tenant, columns.sku, columns.total, columns.deadline, batch[0].caller.Actor,
		columns.ids, columns.quantities, columns.secs, columns.customers, columns.references,
	}
	if columns.keys != nil {
		sql, args = takeKeyedSQL, append(args, columns.keys, columns.bodies, columns.made)
	}
	var at time.Time
	var defaultTTL time.Duration
	err := pg.Autocommit(ctx, s.pool, sql, args, &at, &defaultTTL)
	switch {
	case err == nil:
	case strings.HasPrefix(pg.Constraint(err), "idempotency_keys_"):
		return false, errAnswered
	case errors.Is(err, pgx.ErrNoRows), pg.Code(err) != "" && !pg.Unavailable(err) && !errors.Is(err, pg.ErrCommitUnknown):
		return false, nil // the general way finds out what it is
	default:
		return false, err
	}
	at = at.UTC()
	for _, t := range batch {
		t.answer = heldAnswer(t, at, cmp.Or(t.reserve.TTL, defaultTTL))
		t.replayed, t.err = false, nil
	}
	return true, nil
}

// part tells the commands whose keys have been answered from the others.
func (s *Store) part(ctx context.Context, batch []*task) (answered, fresh []*task, err error) {
	var keys []idempotency.Key
	for _, t := range batch {
		if t.caller.Key.Value != "" {
			keys = append(keys, t.caller.Key)
		}
	}
	found := map[idempotency.ID]idempotency.Stored{}
	var find pgx.Batch
	idempotency.QueueFind(&find, schemaName, keys, found)
	if err := s.pool.SendBatch(ctx, &find).Close(); err != nil {
		return nil, nil, err
	}
	for _, t := range batch {
		if _, ok := found[t.caller.Key.ID()]; ok {
			answered = append(answered, t)
		} else {
			fresh = append(fresh, t)
		}
	}
	return answered, fresh, nil
}

// heldAnswer is what a reservation that got everything looks like.
func heldAnswer(t *task, at time.Time, ttl time.Duration) Reservation {
	l := t.reserve.Lines[0]
	l.Location = DefaultLocation
	return Reservation{
		ID: t.newID, Status: Held, Lines: []Line{l}, Customer: t.reserve.Customer, Reference: t.reserve.Reference,
		CreatedAt: at, ExpiresAt: at.Add(ttl),
	}
}

// takeColumns are the arguments of [takeSQL].
type takeColumns struct {
	sku        string
	total      int64
	deadline   *time.Time
	ids        []pgtype.UUID
	quantities []int64
	secs       []float64
	// nil where none of the batch has one
	customers, references []string
	keys, bodies, made    []pgtype.UUID // in the order of the keys, see [idempotency.QueueStore]
}

// columns puts a batch side by side, if it is one that [takeSQL] can carry out: reservations of one line
// of the same SKU, all or nothing, by one actor.
func (s *Store) columns(batch []*task) (c takeColumns, ok bool) {
	n := len(batch)
	first := batch[0]
	if first.reserve == nil {
		return c, false
	}
	c.sku = first.reserve.Lines[0].SKU
	customers, references, keys := false, false, false
	for _, t := range batch {
		r := t.reserve
		if r == nil || len(r.Lines) != 1 || r.Lines[0].SKU != c.sku || r.Lines[0].Location != "" || r.AllowPartial || t.caller.Actor != first.caller.Actor {
			return c, false
		}
		customers, references, keys = customers || r.Customer != "", references || r.Reference != "", keys || t.caller.Key.Value != ""
	}
	if keys && idempotency.NearMidnight(s.Now()) {
		return c, false
	}
	c.ids, c.quantities, c.secs = make([]pgtype.UUID, n), make([]int64, n), make([]float64, n)
	if customers {
		c.customers = make([]string, n)
	}
	if references {
		c.references = make([]string, n)
	}
	if keys {
		c.setKeys(batch)
	}
	for i, t := range batch {
		r := t.reserve
		c.ids[i] = pgtype.UUID{Bytes: t.newID, Valid: true}
		c.quantities[i], c.secs[i] = r.Lines[0].Quantity, r.TTL.Seconds()
		c.total += r.Lines[0].Quantity
		if customers {
			c.customers[i] = r.Customer
		}
		if references {
			c.references[i] = r.Reference
		}
		if t.deadline != nil && (c.deadline == nil || t.deadline.Before(*c.deadline)) {
			c.deadline = t.deadline
		}
	}
	return c, true
}

func (c *takeColumns) setKeys(batch []*task) {
	type answer struct {
		key  idempotency.ID
		task *task
	}
	answers := make([]answer, 0, len(batch))
	for _, t := range batch {
		if t.caller.Key.Value != "" {
			answers = append(answers, answer{t.caller.Key.ID(), t})
		}
	}
	slices.SortFunc(answers, func(a, b answer) int { return bytes.Compare(a.key[:], b.key[:]) })
	n := len(answers)
	c.keys, c.bodies, c.made = make([]pgtype.UUID, n), make([]pgtype.UUID, n), make([]pgtype.UUID, n)
	for i, a := range answers {
		c.keys[i] = pgtype.UUID{Bytes: a.key, Valid: true}
		c.bodies[i] = pgtype.UUID{Bytes: a.task.caller.Key.BodyHash(), Valid: true}
		c.made[i] = pgtype.UUID{Bytes: a.task.newID, Valid: true}
	}
}
