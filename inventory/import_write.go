package inventory

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"holdfast/internal/idempotency"
	"holdfast/internal/pg"
)

// reviveSKUsSQL makes deleted SKUs anew, under the lock of their stock.
const reviveSKUsSQL = `
WITH revived AS (
	UPDATE inventory.skus
	   SET name = '', default_ttl = NULL, created_at = clock_timestamp(), updated_at = clock_timestamp(), deleted_at = NULL
	 WHERE tenant = $1 AND sku = ANY($2::text[])
)
UPDATE inventory.stock SET active = true, safety_stock = 0, backorder_limit = 0, max_per_customer = NULL
 WHERE tenant = $1 AND sku = ANY($2::text[]) AND location = '` + DefaultLocation + `'`

// makeSKUsSQL makes SKUs that weren't there when their stock was to be locked. A rival that makes one of them
// is waited for, and then everything is decided anew.
const makeSKUsSQL = `
WITH made AS (
	INSERT INTO inventory.skus (tenant, sku, name, default_ttl)
	SELECT $1, w.sku, coalesce(w.name, ''), make_interval(secs => w.ttl)
	  FROM unnest($2::text[], $3::text[], $4::float8[]) WITH ORDINALITY AS w(sku, name, ttl, n) ORDER BY w.n
	ON CONFLICT DO NOTHING
	RETURNING 1
)
SELECT inventory.must(count(*), $5) FROM made`

// makeStockSQL makes stock rows with all that the batch puts on them. Those of SKUs that were there
// already have been made before the locks, see makePlacesSQL.
const makeStockSQL = `
WITH made AS (
	INSERT INTO inventory.stock (tenant, sku, location, on_hand, received, written_off, safety_stock, backorder_limit, max_per_customer)
	SELECT $1, w.sku, w.location, w.received - w.written_off, w.received, w.written_off,
	       coalesce(w.safety_stock, 0), coalesce(w.backorder_limit, 0), w.max_per_customer
	  FROM unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[])
	       WITH ORDINALITY AS w(sku, location, received, written_off, safety_stock, backorder_limit, max_per_customer, n)
	 ORDER BY w.n
	ON CONFLICT DO NOTHING
	RETURNING 1
)
SELECT inventory.must(count(*), $9) FROM made`

// changeStockSQL changes what is on hand, and the settings that stand on the rows of the location
// default. Each row must be as it was decided on, what is held on it too, and the time not yet over.
const changeStockSQL = `
WITH written AS (
	UPDATE inventory.stock s
	   SET active           = true,
	       on_hand          = s.on_hand + w.received - w.written_off,
	       received         = s.received + w.received,
	       written_off      = s.written_off + w.written_off,
	       safety_stock     = coalesce(w.safety_stock, s.safety_stock),
	       backorder_limit  = coalesce(w.backorder_limit, s.backorder_limit),
	       max_per_customer = coalesce(w.max_per_customer, s.max_per_customer)
	  FROM unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[])
	    AS w(sku, location, received, written_off, safety_stock, backorder_limit, max_per_customer, on_hand_before, held_before)
	 WHERE s.tenant = $1 AND s.sku = w.sku AND s.location = w.location
	   AND s.on_hand = w.on_hand_before AND s.held = w.held_before
	RETURNING 1
)
SELECT inventory.must(count(*), $11) FROM written`

// changeSKUsSQL changes names and times to live. Any change of a SKU's settings is dated here.
const changeSKUsSQL = `
UPDATE inventory.skus k
   SET name = coalesce(w.name, k.name), default_ttl = coalesce(make_interval(secs => w.ttl), k.default_ttl), updated_at = clock_timestamp()
  FROM unnest($2::text[], $3::text[], $4::float8[]) AS w(sku, name, ttl)
 WHERE k.tenant = $1 AND k.sku = w.sku`

const importEntriesSQL = `
INSERT INTO inventory.ledger (tenant, sku, location, kind, delta_on_hand, delta_held, on_hand, held, reason, reference, actor)
SELECT $1, e.sku, e.location, e.kind, e.delta, 0, e.on_hand, e.held, e.reason, nullif(e.reference, ''), $2
  FROM unnest($3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[], $9::text[], $10::text[])
       WITH ORDINALITY AS e(sku, location, kind, delta, on_hand, held, reason, reference, n)
 ORDER BY e.n`

// importInTimeSQL fails a batch whose time is over: it is decided anew, and then refused.
const importInTimeSQL = `SELECT inventory.must((clock_timestamp() < $1)::int, 1)`

// write writes what was decided, in one message with COMMIT. See [books.write]. Where somebody waits for units
// that have come in, they are held for the line first, in the same transaction.
func (b *batchOfRows) write(ctx context.Context, s *Store, tx *pg.Pipeline) error {
	var pipeline pgx.Batch
	b.queueSKUs(&pipeline)
	b.queueStock(&pipeline)
	for _, sku := range slices.Sorted(maps.Keys(b.changes)) {
		if b.changes[sku].limited {
			pipeline.Queue(countBoughtSQL, b.take.tenant, sku)
		}
	}
	b.queueEntries(&pipeline)
	if pipeline.Len() == 0 && b.caller.Key.Value == "" {
		return nil
	}
	if len(withLine(b.items)) > 0 {
		if err := tx.SendBatch(ctx, &pipeline).Close(); err != nil {
			return err
		}
		if _, err := s.serveLines(ctx, tx, b.take.tenant, b.items); err != nil {
			return err
		}
		pipeline = pgx.Batch{}
	}
	if b.caller.Key.Value != "" {
		text, err := json.Marshal(b.answer)
		if err != nil {
			return err
		}
		idempotency.QueueStore(&pipeline, schemaName, []idempotency.Answer{{Key: b.caller.Key, Text: text}})
	}
	pipeline.Queue(importInTimeSQL, s.clock.At(b.caller.Deadline))
	return tx.Commit(ctx, &pipeline)
}

// skuColumns are SKUs with names and times to live, side by side.
type skuColumns struct {
	skus  []string
	names []*string
	ttls  []*float64
}

func (c *skuColumns) add(sku string, change *skuChange) {
	var seconds *float64
	if change.defaultTTL != nil {
		seconds = new(change.defaultTTL.Seconds())
	}
	c.skus, c.names, c.ttls = append(c.skus, sku), append(c.names, change.name), append(c.ttls, seconds)
}

func (b *batchOfRows) queueSKUs(pipeline *pgx.Batch) {
	var revived []string
	var made, changed skuColumns
	for _, sku := range slices.Sorted(maps.Keys(b.changes)) {
		change := b.changes[sku]
		switch {
		case change.created:
			made.add(sku, change)
		case change.revived:
			revived = append(revived, sku)
			changed.add(sku, change)
		default:
			changed.add(sku, change)
		}
	}
	if len(revived) > 0 {
		pipeline.Queue(reviveSKUsSQL, b.take.tenant, revived)
	}
	if n := len(made.skus); n > 0 {
		pipeline.Queue(makeSKUsSQL, b.take.tenant, made.skus, made.names, made.ttls, n)
	}
	if len(changed.skus) > 0 {
		pipeline.Queue(changeSKUsSQL, b.take.tenant, changed.skus, changed.names, changed.ttls)
	}
}

// stockColumns are stock rows with what becomes of them, side by side.
type stockColumns struct {
	skus, locations                       []string
	received, writtenOff                  []int64
	safetyStocks, backorderLimits, limits []*int64
	onHandBefore, heldBefore              []int64
}

func (c *stockColumns) add(s *shelf, f *flow, settings rowSettings) {
	c.skus, c.locations = append(c.skus, s.sku), append(c.locations, s.location)
	c.received, c.writtenOff = append(c.received, f.received), append(c.writtenOff, f.writtenOff)
	c.safetyStocks, c.backorderLimits = append(c.safetyStocks, settings.safetyStock), append(c.backorderLimits, settings.backorderLimit)
	c.limits = append(c.limits, settings.maxPerCustomer)
	c.onHandBefore, c.heldBefore = append(c.onHandBefore, s.before.onHand), append(c.heldBefore, s.before.held)
}

func (b *batchOfRows) queueStock(pipeline *pgx.Batch) {
	// Settings stand on the row of the location default, whatever else changes there.
	for sku, change := range b.changes {
		if d := b.items[sku].at(DefaultLocation); b.flows[d] == nil && change.onStock() {
			b.flows[d] = &flow{}
		}
	}
	shelves := slices.SortedFunc(maps.Keys(b.flows), func(x, y *shelf) int { return comparePlaces(x.place, y.place) })
	var made, changed stockColumns
	for _, s := range shelves {
		var settings rowSettings
		if change := b.changes[s.sku]; change != nil && s.location == DefaultLocation {
			settings = change.rowSettings
		}
		if f := b.flows[s]; f.made {
			made.add(s, f, settings)
		} else {
			changed.add(s, f, settings)
		}
	}
	if n := len(made.skus); n > 0 {
		pipeline.Queue(makeStockSQL, b.take.tenant, made.skus, made.locations, made.received, made.writtenOff,
			made.safetyStocks, made.backorderLimits, made.limits, n)
	}
	if n := len(changed.skus); n > 0 {
		pipeline.Queue(changeStockSQL, b.take.tenant, changed.skus, changed.locations, changed.received, changed.writtenOff,
			changed.safetyStocks, changed.backorderLimits, changed.limits, changed.onHandBefore, changed.heldBefore, n)
	}
}

// onStock reports whether settings change that stand on a stock row.
func (s rowSettings) onStock() bool {
	return s.safetyStock != nil || s.backorderLimit != nil || s.maxPerCustomer != nil
}

func (b *batchOfRows) queueEntries(pipeline *pgx.Batch) {
	n := len(b.entries)
	if n == 0 {
		return
	}
	skus, locations, kinds := make([]string, n), make([]string, n), make([]string, n)
	deltas, onHand, held := make([]int64, n), make([]int64, n), make([]int64, n)
	reasons, references := make([]string, n), make([]string, n)
	for i, e := range b.entries {
		skus[i], locations[i], kinds[i] = e.sku, e.location, e.kind
		deltas[i], onHand[i], held[i] = e.delta, e.onHand, e.held
		reasons[i], references[i] = e.reason, e.reference
	}
	pipeline.Queue(importEntriesSQL, b.take.tenant, b.caller.Actor, skus, locations, kinds, deltas, onHand, held, reasons, references)
}
