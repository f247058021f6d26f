package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"holdfast/internal/idempotency"
	"holdfast/internal/pg"
)

// batchOfRows is some rows of an import that one transaction carries out.
type batchOfRows struct {
	Import
	caller Caller // its key is the batch's
	rows   []importRow
	last   bool

	take   taking
	places []place // beside the location default, where some row may put the first stock

	// What an attempt finds and decides.
	now       time.Time
	items     map[string]*item
	names     map[string]string
	locations map[string]bool
	keys      map[idempotency.ID]idempotency.Stored
	changes   map[string]*skuChange
	flows     map[*shelf]*flow
	entries   []importEntry
	short     []string // SKUs of which holds stand in some row's way

	answer   importAnswer
	replayed bool
}

// skuChange is what becomes of a SKU, beside its counters.
type skuChange struct {
	created, revived bool
	rowSettings
	name    *string
	limited bool // it has a limit per customer, and had none
}

// flow is what comes in and goes out of a stock row, in units.
type flow struct {
	received, writtenOff int64
	made                 bool // it wasn't there
}

type importEntry struct {
	place
	kind              string
	delta             int64
	onHand, held      int64
	reason, reference string
}

// prepare finds out what is to be locked.
func (b *batchOfRows) prepare() {
	skus, places := map[string]bool{}, map[place]bool{}
	for _, r := range b.rows {
		if r.bad != nil {
			continue
		}
		skus[r.sku] = true
		// A place where nothing is yet is made for a row that can be carried out there.
		good := r.counted != nil && (r.expected == nil || *r.expected == 0) || r.delta != nil && *r.delta > 0
		if good && r.location != DefaultLocation {
			places[place{r.sku, r.location}] = true
		}
	}
	b.take = taking{tenant: b.caller.Tenant, also: slices.Sorted(maps.Keys(skus))}
	b.places = slices.SortedFunc(maps.Keys(places), comparePlaces)
}

// carryOut is one attempt, from the locks to the commit.
func (b *batchOfRows) carryOut(ctx context.Context, s *Store, tx *pg.Pipeline) error {
	for {
		if err := b.open(ctx, s, tx); err != nil {
			return err
		}
		if stored, ok := b.keys[b.caller.Key.ID()]; ok {
			return b.replay(stored)
		}
		if !b.now.Before(s.clock.At(b.caller.Deadline)) {
			return pg.ErrDeadline
		}
		for i := range b.rows {
			if err := b.decide(&b.rows[i]); err != nil {
				return err
			}
		}
		// Holds that have run out don't count: then they go first, and everything is decided anew.
		if len(b.short) > 0 {
			some, err := b.take.giveBackExpired(ctx, tx, b.items, b.short)
			if err != nil {
				return err
			}
			if some {
				continue
			}
		}
		if b.DryRun {
			return nil // and roll back
		}
		return b.write(ctx, s, tx)
	}
}

// lockPlacesSQL keeps locations from being deleted until the transaction ends; one that is being deleted is waited for.
const lockPlacesSQL = `
SELECT location FROM inventory.locations WHERE tenant = $1 AND location = ANY($2::text[]) ORDER BY location FOR KEY SHARE`

// makePlacesSQL makes the stock rows of SKUs at locations where they haven't been. Like ensureShelf, it
// comes before the lock of the SKUs' rows.
const makePlacesSQL = `
INSERT INTO inventory.stock (tenant, sku, location)
SELECT $1, w.sku, w.location
  FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS w(sku, location, n)
  JOIN inventory.stock s ON s.tenant = $1 AND s.sku = w.sku AND s.location = '` + DefaultLocation + `' AND s.active
  JOIN inventory.locations l ON l.tenant = $1 AND l.location = w.location
 WHERE NOT EXISTS (SELECT 1 FROM inventory.stock o WHERE o.tenant = $1 AND o.sku = w.sku AND o.location = w.location)
 ORDER BY w.n
ON CONFLICT DO NOTHING`

const readNamesSQL = `
SELECT sku, name FROM inventory.skus WHERE tenant = $1 AND sku = ANY($2::text[])`

// open locks everything that the rows are about, and reads it.
func (b *batchOfRows) open(ctx context.Context, s *Store, tx *pg.Pipeline) error {
	b.items, b.names, b.locations = map[string]*item{}, map[string]string{}, map[string]bool{DefaultLocation: true}
	b.keys, b.changes, b.flows = map[idempotency.ID]idempotency.Stored{}, map[string]*skuChange{}, map[*shelf]*flow{}
	b.entries, b.short, b.answer, b.replayed = nil, nil, importAnswer{}, false

	var pipeline pgx.Batch
	keys := []idempotency.Key{b.caller.Key}
	if b.caller.Key.Value != "" {
		idempotency.QueueGuard(&pipeline, keys, s.Now())
	}
	if locations := b.otherLocations(); len(locations) > 0 {
		pipeline.Queue(lockPlacesSQL, b.take.tenant, locations).Query(func(rows pgx.Rows) error {
			known, err := pgx.CollectRows(rows, pgx.RowTo[string])
			for _, l := range known {
				b.locations[l] = true
			}
			return err
		})
	}
	if n := len(b.places); n > 0 {
		skus, locations := make([]string, n), make([]string, n)
		for i, p := range b.places {
			skus[i], locations[i] = p.sku, p.location
		}
		pipeline.Queue(makePlacesSQL, b.take.tenant, skus, locations)
	}
	queueLockStock(&pipeline, b.take.tenant, b.take.also, nil, b.items)
	pipeline.Queue(readNamesSQL, b.take.tenant, b.take.also).Query(func(rows pgx.Rows) error {
		var sku, name string
		_, err := pgx.ForEachRow(rows, []any{&sku, &name}, func() error { b.names[sku] = name; return nil })
		return err
	})
	pipeline.Queue("SELECT clock_timestamp()").QueryRow(func(row pgx.Row) error { return row.Scan(&b.now) })
	if b.caller.Key.Value != "" {
		idempotency.QueueFind(&pipeline, schemaName, keys, b.keys)
	}
	return tx.SendBatch(ctx, &pipeline).Close()
}

func (b *batchOfRows) otherLocations() []string {
	var locations []string
	for _, r := range b.rows {
		if r.bad == nil && r.location != DefaultLocation {
			locations = append(locations, r.location)
		}
	}
	slices.Sort(locations)
	return slices.Compact(locations)
}

// decide gives a row its result and books what it changes. An error is the transaction's.
func (b *batchOfRows) decide(r *importRow) error {
	result := RowResult{Line: r.line}
	if isName(r.sku) {
		result.SKU = r.sku
	}
	bad := r.bad
	if bad == nil {
		onHand, unchanged, err := b.apply(r)
		switch {
		case err == nil:
			b.answer.Applied++
			if unchanged {
				b.answer.Unchanged++
			}
			if b.All {
				result.Location, result.OnHand = r.location, &onHand
				b.answer.Results = append(b.answer.Results, result)
			}
		case errors.Is(err, pg.ErrRepeat):
			return err
		default:
			bad = importFault(err)
		}
	}
	b.answer.Rows++
	if bad != nil {
		b.answer.Failed++
		result.Field, result.Code, result.Reason = bad.field, bad.code, bad.reason
		b.answer.Results = append(b.answer.Results, result)
	}
	return nil
}

// importFault is a refusal as a row is told of it.
func importFault(err error) *rowError {
	fault := &rowError{reason: err.Error()}
	switch {
	case errors.Is(err, ErrLocationNotFound):
		fault.field, fault.code = "location", "location_not_found"
	case errors.Is(err, ErrCountChanged):
		fault.field, fault.code = "expected", "count_changed"
	case errors.Is(err, ErrSettings):
		fault.field, fault.code = "backorder_limit", "settings_conflict"
	default:
		fault.code = "below_held"
	}
	return fault
}

// apply carries a row out on the books, or refuses it and changes nothing.
func (b *batchOfRows) apply(r *importRow) (onHand int64, unchanged bool, err error) {
	if !b.locations[r.location] {
		return 0, false, &NotFoundError{Kind: ErrLocationNotFound, Name: r.location}
	}
	i, change := b.items[r.sku], b.changes[r.sku]
	before := change
	if change == nil {
		change = &skuChange{}
	}
	switch {
	case i == nil:
		i, change.created = &item{active: true}, true
	case !i.active:
		i, change.revived = revived(i), true
	}
	s := i.at(r.location)
	made := s == nil
	if made {
		s = &shelf{place: place{r.sku, r.location}}
	}

	delta := int64(0)
	kind := "count"
	if r.counted != nil {
		if r.expected != nil && *r.expected != s.onHand {
			return 0, false, &AmountError{ErrCountChanged, fmt.Sprintf("%d are on hand, not %d as expected", s.onHand, *r.expected)}
		}
		delta = *r.counted - s.onHand
	} else if delta, kind = *r.delta, "receive"; delta < 0 {
		kind = "write_off"
	}
	if delta < 0 && s.onHand+delta < s.held {
		if s.held > 0 {
			b.short = append(b.short, r.sku)
		}
		return 0, false, &AmountError{ErrBelowHeld, fmt.Sprintf("%d would be left, and %d are held", s.onHand+delta, s.held)}
	}
	if limit := r.settings.backorderLimit; limit != nil && *limit < i.backorderLimit {
		if d := i.at(DefaultLocation); d != nil {
			left := d.onHand
			if d == s {
				left += delta
			}
			if d.held > left+*limit {
				b.short = append(b.short, r.sku)
				return 0, false, fmt.Errorf("%w: %d are on backorder", ErrSettings, d.held-left)
			}
		}
	}
	// A rival has made the SKU, or its location, since its places were made.
	if made && !change.created && !change.revived {
		return 0, false, pg.ErrRepeat
	}

	fresh := before == nil && (change.created || change.revived)
	if fresh {
		b.answer.Created++
	}
	settings := b.applySettings(r, i, change)
	b.items[r.sku] = i
	if settings || change.created || change.revived {
		b.changes[r.sku] = change
	}
	if made {
		i.shelves = append(i.shelves, s)
	}
	if change.created && r.location != DefaultLocation && i.at(DefaultLocation) == nil {
		d := &shelf{place: place{r.sku, DefaultLocation}, active: true}
		i.shelves = append(i.shelves, d)
		b.flows[d] = &flow{made: true}
	}
	if unchanged = delta == 0 && s.active && !settings && !fresh; unchanged {
		return s.onHand, true, nil
	}
	f := b.flows[s]
	if f == nil {
		f = &flow{made: made}
		b.flows[s] = f
	}
	s.active = true
	if delta == 0 {
		return s.onHand, false, nil
	}
	s.onHand += delta
	f.received += max(delta, 0)
	f.writtenOff += max(-delta, 0)
	b.entries = append(b.entries, importEntry{
		place: s.place, kind: kind, delta: delta, onHand: s.onHand, held: s.held, reason: r.reason, reference: r.reference,
	})
	return s.onHand, false, nil
}

// revived is a deleted SKU as it begins anew: with its counters, without its settings.
func revived(i *item) *item {
	anew := &item{active: true, waiting: i.waiting, shelves: slices.Clone(i.shelves)}
	for _, s := range anew.shelves {
		if s.location == DefaultLocation {
			s.active = true
		}
	}
	return anew
}

// applySettings notes the settings that a row changes, and says whether there are any.
func (b *batchOfRows) applySettings(r *importRow, i *item, change *skuChange) bool {
	changed := false
	number := func(new *int64, is *int64, note **int64) {
		if new != nil && *new != *is {
			*is, *note, changed = *new, new, true
		}
	}
	number(r.settings.safetyStock, &i.safetyStock, &change.safetyStock)
	number(r.settings.backorderLimit, &i.backorderLimit, &change.backorderLimit)
	if limit := r.settings.maxPerCustomer; limit != nil && (i.maxPerCustomer == nil || *i.maxPerCustomer != *limit) {
		change.limited = change.limited || i.maxPerCustomer == nil
		i.maxPerCustomer, change.maxPerCustomer, changed = limit, limit, true
	}
	if ttl := r.settings.defaultTTL; ttl != nil && (i.defaultTTL == nil || *i.defaultTTL != *ttl) {
		i.defaultTTL, change.defaultTTL, changed = ttl, ttl, true
	}
	if name := r.name; name != nil {
		if is := b.names[r.sku]; change.created || change.revived || is != *name {
			change.name, changed = name, true
			b.names[r.sku] = *name
		}
	}
	return changed
}

func comparePlaces(a, b place) int {
	return cmp.Or(strings.Compare(a.sku, b.sku), strings.Compare(a.location, b.location))
}
