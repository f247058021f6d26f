package inventory

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"holdfast/internal/pg"
)

// newsSQL says, without locks, whether there is anything to make deliveries of. Open gaps are worth a look.
const newsSQL = `
SELECT EXISTS (SELECT 1 FROM inventory.event_position p
                WHERE EXISTS (SELECT 1 FROM inventory.subscriptions)
                  AND (p.gaps_from <> '{}' OR EXISTS (SELECT 1 FROM inventory.ledger WHERE seq > p.seq)))`

// takePositionSQL makes the position this transaction's; a replica that finds it taken has nothing to do.
const takePositionSQL = `
SELECT seq, gaps_from, gaps_to, gaps_before FROM inventory.event_position
 WHERE EXISTS (SELECT 1 FROM inventory.subscriptions) FOR UPDATE SKIP LOCKED`

// MakeDeliveries makes deliveries of what is new in the ledger, for all subscriptions, and says how many; more
// says that it found more than it took. Replicas may call it at once: the deliveries and the position
// in the ledger that they come from are one transaction's, so each event is made once.
func (s *Store) MakeDeliveries(ctx context.Context) (made int, more bool, err error) {
	var news bool
	if err := s.pool.QueryRow(ctx, newsSQL).Scan(&news); err != nil || !news {
		return 0, false, err
	}
	err = pg.InTx(ctx, s.pool, pg.TxOptions{}, func(tx pgx.Tx) error {
		var t tail
		var from, to, before []int64
		err := tx.QueryRow(ctx, takePositionSQL).Scan(&t.seq, &from, &to, &before)
		if errors.Is(err, pgx.ErrNoRows) {
			made, more = 0, false
			return nil
		}
		if err != nil {
			return err
		}
		for i := range from {
			t.gaps = append(t.gaps, gap{from[i], to[i], before[i]})
		}
		next, changes, left, err := t.look(ctx, tx)
		if err != nil {
			return err
		}
		made, more = 0, left
		if len(changes) > 0 {
			if made, err = s.deliverChanges(ctx, tx, changes); err != nil {
				return err
			}
		}
		from, to, before = []int64{}, []int64{}, []int64{}
		for _, g := range next.gaps {
			from, to, before = append(from, g.from), append(to, g.to), append(before, g.before)
		}
		_, err = tx.Exec(ctx, `UPDATE inventory.event_position SET seq = $1, gaps_from = $2, gaps_to = $3, gaps_before = $4`, next.seq, from, to, before)
		return err
	})
	return made, more, err
}

// subscriber is what making deliveries has to know of a subscription.
type subscriber struct {
	id     uuid.UUID
	tenant string
	events []string
	skus   []string // nil: all
	since  int64
}

// wants says whether an event that is in the ledger with a number is for the subscriber, whatever it is about.
func (u *subscriber) wants(event string, seq int64) bool {
	return seq > u.since && slices.Contains(u.events, event)
}

// about says whether one of some SKUs is among the subscriber's.
func (u *subscriber) about(skus ...string) bool {
	return u.skus == nil || slices.ContainsFunc(skus, func(sku string) bool { return slices.Contains(u.skus, sku) })
}

// deliverChanges makes the deliveries of some changes.
func (s *Store) deliverChanges(ctx context.Context, tx pgx.Tx, changes []change) (int, error) {
	rows, err := tx.Query(ctx, `SELECT id, tenant, events, skus, since_seq FROM inventory.subscriptions WHERE full_since IS NULL`)
	if err != nil {
		return 0, err
	}
	subscribers := map[string][]*subscriber{} // by tenant
	var u subscriber
	_, err = pgx.ForEachRow(rows, []any{&u.id, &u.tenant, &u.events, &u.skus, &u.since}, func() error {
		one := u
		subscribers[u.tenant] = append(subscribers[u.tenant], &one)
		u = subscriber{}
		return nil
	})
	if err != nil || len(subscribers) == 0 {
		return 0, err
	}
	out := outbox{store: s, subscribers: subscribers}
	if err := out.reservations(ctx, tx, changes); err != nil {
		return 0, err
	}
	if err := out.stock(ctx, tx, changes); err != nil {
		return 0, err
	}
	return len(out.ids), out.write(ctx, tx)
}

// outbox is deliveries to be, side by side.
type outbox struct {
	store       *Store
	subscribers map[string][]*subscriber

	ids, subscriptions       []uuid.UUID
	topics, events, payloads []string
}

func (o *outbox) add(u *subscriber, topic, event, payload string) error {
	id, err := pg.NewID(o.store.Now())
	o.ids, o.subscriptions = append(o.ids, id), append(o.subscriptions, u.id)
	o.topics, o.events, o.payloads = append(o.topics, topic), append(o.events, event), append(o.payloads, payload)
	return err
}

// reservations adds what became of reservations.
func (o *outbox) reservations(ctx context.Context, tx pgx.Tx, changes []change) error {
	var wanted []change
	keys := map[reservationKey]bool{}
	for _, c := range changes {
		if c.event != "" && slices.ContainsFunc(o.subscribers[c.tenant], func(u *subscriber) bool { return u.wants(c.event, c.seq) }) {
			wanted = append(wanted, c)
			keys[reservationKey{c.tenant, c.reservation}] = true
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	found, err := readReservations(ctx, tx, slices.Collect(maps.Keys(keys)))
	if err != nil {
		return err
	}
	for _, c := range wanted {
		r, ok := found[reservationKey{c.tenant, c.reservation}]
		if !ok {
			continue // its history is gone, and so is every use of the event
		}
		payload, err := Event{c.event, c.at, asOf(c.event, r)}.text()
		if err != nil {
			return err
		}
		for _, u := range o.subscribers[c.tenant] {
			if u.wants(c.event, c.seq) && u.about(skusOf(r.Lines)...) {
				if err := o.add(u, "reservation:"+c.reservation.String(), c.event, payload); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// moved is what some changes did to a SKU.
type moved struct {
	seq  int64 // of the newest
	free int64 // units that became available, or, if negative, ceased to be
}

// stock adds what the changes made of the stock: one event of a kind per SKU, with the newest state.
func (o *outbox) stock(ctx context.Context, tx pgx.Tx, changes []change) error {
	wanted := map[skuKey]moved{}
	for _, c := range changes {
		concerned := func(u *subscriber) bool {
			return u.about(c.sku) && (u.wants(eventChanged, c.seq) || u.wants(eventLow, c.seq) || u.wants(eventOut, c.seq))
		}
		if slices.ContainsFunc(o.subscribers[c.tenant], concerned) {
			m := wanted[skuKey{c.tenant, c.sku}]
			wanted[skuKey{c.tenant, c.sku}] = moved{max(m.seq, c.seq), m.free + c.deltaOnHand - c.deltaHeld}
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	keys := slices.SortedFunc(maps.Keys(wanted), compareSKUs)
	states, err := readStates(ctx, tx, keys)
	if err != nil {
		return err
	}
	levels, err := readLevels(ctx, tx, keys)
	if err != nil {
		return err
	}
	for _, k := range keys {
		state, ok := states[k]
		if !ok {
			continue // deleted
		}
		now, before := state.levelAt(state.Available), levels[k]
		if before == "" {
			before = state.levelAt(state.Available - wanted[k].free)
		}
		levels[k] = now
		for _, event := range append([]string{eventChanged}, state.crossed(before, now)...) {
			payload, err := Event{event, state.At, state}.text()
			if err != nil {
				return err
			}
			for _, u := range o.subscribers[k.tenant] {
				if u.wants(event, wanted[k].seq) && u.about(k.sku) {
					if err := o.add(u, "sku:"+k.sku, event, payload); err != nil {
						return err
					}
				}
			}
		}
	}
	return writeLevels(ctx, tx, levels)
}

// insertDeliveriesSQL makes them in their order, and wakes their topics: whoever ends a topic locks it before
// looking whether it has deliveries left, so either it sees these, or the topic is made anew here.
const insertDeliveriesSQL = `
INSERT INTO inventory.deliveries (id, subscription_id, topic, event, payload)
SELECT w.id, w.subscription_id, w.topic, w.event, w.payload
  FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[]) WITH ORDINALITY AS w(id, subscription_id, topic, event, payload, n)
 ORDER BY w.n`

// wakeTopicsSQL locks the topics that there are, and leaves them as they are.
const wakeTopicsSQL = `
INSERT INTO inventory.delivery_topics (subscription_id, topic)
SELECT DISTINCT subscription_id, topic FROM unnest($1::uuid[], $2::text[]) AS w(subscription_id, topic) ORDER BY 1, 2
ON CONFLICT (subscription_id, topic) DO UPDATE SET due_at = excluded.due_at WHERE false`

func (o *outbox) write(ctx context.Context, tx pgx.Tx) error {
	if len(o.ids) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, insertDeliveriesSQL, o.ids, o.subscriptions, o.topics, o.events, o.payloads)
	if err == nil {
		_, err = tx.Exec(ctx, wakeTopicsSQL, o.subscriptions, o.topics)
	}
	if pg.Constraint(err) != "" {
		err = errors.Join(pg.ErrRepeat, err) // a subscription has just been deleted
	}
	return err
}

func compareSKUs(a, b skuKey) int {
	return slices.Compare([]string{a.tenant, a.sku}, []string{b.tenant, b.sku})
}

func readLevels(ctx context.Context, tx pgx.Tx, keys []skuKey) (map[skuKey]level, error) {
	tenants, skus := make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		tenants[i], skus[i] = k.tenant, k.sku
	}
	rows, err := tx.Query(ctx, `SELECT l.tenant, l.sku, l.level FROM inventory.stock_levels l
		JOIN unnest($1::text[], $2::text[]) AS w(tenant, sku) ON l.tenant = w.tenant AND l.sku = w.sku`, tenants, skus)
	if err != nil {
		return nil, err
	}
	levels := make(map[skuKey]level, len(keys))
	var k skuKey
	var l level
	_, err = pgx.ForEachRow(rows, []any{&k.tenant, &k.sku, &l}, func() error {
		levels[k] = l
		return nil
	})
	return levels, err
}

// writeLevelsSQL remembers what was announced. The holder of the position alone writes here.
const writeLevelsSQL = `
INSERT INTO inventory.stock_levels AS l (tenant, sku, level)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[])
ON CONFLICT (tenant, sku) DO UPDATE SET level = excluded.level WHERE l.level <> excluded.level`

func writeLevels(ctx context.Context, tx pgx.Tx, levels map[skuKey]level) error {
	var tenants, skus, names []string
	for k, l := range levels {
		tenants, skus, names = append(tenants, k.tenant), append(skus, k.sku), append(names, string(l))
	}
	_, err := tx.Exec(ctx, writeLevelsSQL, tenants, skus, names)
	return err
}
