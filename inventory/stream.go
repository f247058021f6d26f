package inventory

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"holdfast/internal/pg"
)

// A stream tells listeners the newest state of SKUs. Each replica has one, however many listen: one tail of the
// ledger that says which SKUs have changed, one statement that reads their states, and from then on it is
// memory. It alone hands out states, so a listener never gets an older one after a newer one. What a
// listener hasn't taken yet is replaced, so it costs no more than the SKUs it asked for; nobody waits for it.

const (
	// DefaultMaxListeners is how many may listen at a replica. One tenant may have three quarters of them.
	DefaultMaxListeners = 4096
	// streamEvery is how often the stream looks for what is new.
	streamEvery = 100 * time.Millisecond
	// streamChunk bounds the SKUs that are read in one statement.
	streamChunk = 500
	// refreshEvery is how often SKUs that nothing was heard of are read again, some at a time: a change of settings is
	// in no ledger.
	refreshEvery = time.Second
	refreshAfter = 10 * time.Second
	// expiryOverlap is how far back the stream looks for holds that have run out.
	expiryOverlap = 2 * time.Second
	// maxPending is how many SKUs may have changed since a listener last took some.
	maxPending = 20_000
	// backfillPause keeps a list of all SKUs from going ahead of a listener by more than this.
	backfillPause = 2_000
	// replayLimit is how many entries a listener to all SKUs may have missed; beyond that it gets everything.
	replayLimit = 20_000
	// slowAfter is how long a listener may leave something untaken.
	slowAfter = 5 * time.Second
)

// Why somebody can't listen, or no longer.
var (
	ErrTooManyListeners = errors.New("too many listen at this replica")
	ErrTenantListeners  = errors.New("the tenant has as many listeners at this replica as it may have")
	ErrTooSlow          = errors.New("too_slow")
	ErrStreamEnded      = errors.New("draining")
)

// Update is a SKU's state, ready to be sent.
type Update struct {
	ID   string // what a listener goes on from
	Data string // JSON of a [State]
}

// Listener gets the updates of some SKUs, or of all of a tenant. It is to be closed.
type Listener struct {
	stream *stream
	tenant string
	skus   []string // nil: all
	since  int64    // what it has seen; -1: nothing
	signal chan struct{}

	mu      sync.Mutex
	pending map[string]Update
	order   []string  // of pending
	waits   time.Time // since when the oldest pending does; zero: nothing pending
	dropped error
}

// stream is a replica's.
type stream struct {
	most int
	wake chan struct{}

	mu      sync.Mutex
	count   int
	tenants map[string]*audience
	joining []*Listener
	ended   bool
}

// audience is a tenant's listeners.
type audience struct {
	count int
	all   map[*Listener]struct{}
	of    map[string]map[*Listener]struct{} // by SKU
}

func newStream(most int) *stream {
	return &stream{most: most, wake: make(chan struct{}, 1), tenants: map[string]*audience{}}
}

// Listen begins to listen to some SKUs, or, with none, to all of the tenant. Lastly is the id of the last update that the
// listener has seen: it gets the states of those that have changed since, and without one, or with one that
// says nothing, all states first. It fails with [ErrSKUNotFound], [ErrTooManyListeners] or [ErrTenantListeners].
func (s *Store) Listen(ctx context.Context, tenant string, skus []string, lastly string) (*Listener, error) {
	if len(skus) > 0 {
		skus = *sorted(skus)
		rows, err := s.pool.Query(ctx, `SELECT sku FROM unnest($2::text[]) AS w(sku)
			WHERE NOT EXISTS (SELECT 1 FROM inventory.skus k WHERE k.tenant = $1 AND k.sku = w.sku AND k.deleted_at IS NULL) LIMIT 1`, tenant, skus)
		if err != nil {
			return nil, err
		}
		unknown, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, err
		}
		if len(unknown) > 0 {
			return nil, &NotFoundError{Kind: ErrSKUNotFound, Name: unknown[0]}
		}
	}
	l := &Listener{stream: s.stream, tenant: tenant, skus: skus, since: -1, signal: make(chan struct{}, 1), pending: map[string]Update{}}
	if seq, err := strconv.ParseInt(lastly, 10, 64); err == nil && seq >= 0 {
		l.since = seq
	}
	return l, s.stream.join(l)
}

func (s *stream) join(l *Listener) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.tenants[l.tenant]
	switch {
	case s.ended:
		return ErrStreamEnded
	case s.count >= s.most:
		return ErrTooManyListeners
	case a != nil && a.count >= max(1, s.most*3/4):
		return ErrTenantListeners
	case a == nil:
		a = &audience{all: map[*Listener]struct{}{}, of: map[string]map[*Listener]struct{}{}}
		s.tenants[l.tenant] = a
	}
	s.count++
	a.count++
	if l.skus == nil {
		a.all[l] = struct{}{}
	}
	for _, sku := range l.skus {
		if a.of[sku] == nil {
			a.of[sku] = map[*Listener]struct{}{}
		}
		a.of[sku][l] = struct{}{}
	}
	s.joining = append(s.joining, l)
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

// Close ends the listening. It may be called once.
func (l *Listener) Close() {
	s := l.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.tenants[l.tenant]
	s.count--
	if a.count--; a.count == 0 {
		delete(s.tenants, l.tenant)
		return
	}
	delete(a.all, l)
	for _, sku := range l.skus {
		if delete(a.of[sku], l); len(a.of[sku]) == 0 {
			delete(a.of, sku)
		}
	}
}

// Next waits for updates until ctx ends or the time is over; then it returns none. It fails with [ErrTooSlow] or
// [ErrStreamEnded], and the listener then gets no more.
func (l *Listener) Next(ctx context.Context, atMost time.Duration) ([]Update, error) {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	for {
		if updates, err := l.take(); len(updates) > 0 || err != nil {
			return updates, err
		}
		select {
		case <-l.signal:
		case <-timer.C:
			return nil, nil
		case <-ctx.Done():
			return nil, nil
		}
	}
}

func (l *Listener) take() ([]Update, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dropped != nil {
		return nil, l.dropped
	}
	updates := make([]Update, len(l.order))
	for i, sku := range l.order {
		updates[i] = l.pending[sku]
	}
	clear(l.pending)
	l.order, l.waits = l.order[:0], time.Time{}
	return updates, nil
}

// put leaves an update for the listener, in place of one of the same SKU, and never waits for it.
func (l *Listener) put(sku string, u Update, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dropped != nil {
		return
	}
	if _, waits := l.pending[sku]; !waits {
		l.order = append(l.order, sku)
	}
	l.pending[sku] = u
	if l.waits.IsZero() {
		l.waits = now
	} else if now.Sub(l.waits) > slowAfter || len(l.order) > maxPending {
		l.drop(ErrTooSlow)
	}
	l.ring()
}

// drop forgets what is pending; l.mu is held.
func (l *Listener) drop(why error) {
	l.dropped, l.pending, l.order = why, nil, nil
}

func (l *Listener) ring() {
	select {
	case l.signal <- struct{}{}:
	default:
	}
}

func (l *Listener) behind() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.order)
}

// gone says whether the listener has been closed or dropped; s.mu is held.
func (s *stream) gone(l *Listener) bool {
	a := s.tenants[l.tenant]
	if a == nil {
		return true
	}
	_, listens := a.all[l]
	return !listens
}

// hears says whether anybody listens to the SKU.
func (s *stream) hears(k skuKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.tenants[k.tenant]
	return a != nil && (len(a.all) > 0 || len(a.of[k.sku]) > 0)
}

// audienceOf lists who listens to the SKU.
func (s *stream) audienceOf(k skuKey, into []*Listener) []*Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.tenants[k.tenant]; a != nil {
		into = slices.AppendSeq(into, maps.Keys(a.all))
		into = slices.AppendSeq(into, maps.Keys(a.of[k.sku]))
	}
	return into
}

// end drops everybody.
func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for _, a := range s.tenants {
		for l := range a.all {
			l.end()
		}
		for _, listeners := range a.of {
			for l := range listeners {
				l.end()
			}
		}
	}
}

func (l *Listener) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dropped == nil {
		l.drop(ErrStreamEnded)
	}
	l.ring()
}

// caster is the stream's one goroutine.
type caster struct {
	store  *Store
	stream *stream
	log    *slog.Logger

	tail      *tail // nil: nobody listens
	expired   time.Time
	states    map[skuKey]told
	refreshed time.Time // when some were read again
	backfills []*backfill
}

// told is the newest state that was handed out.
type told struct {
	State
	read time.Time // by this process's clock
}

// backfill is a list of all SKUs that a listener is to get.
type backfill struct {
	to    *Listener
	after string
}

// run keeps the listeners told until ctx ends.
func (c *caster) run(ctx context.Context) error {
	defer c.stream.end()
	failing := false
	for ctx.Err() == nil {
		wait := streamEvery
		if c.stream.empty() {
			c.tail, c.states, c.backfills, wait = nil, nil, nil, time.Hour
		} else if err := c.turn(ctx); err != nil {
			if !failing && ctx.Err() == nil {
				c.log.Error("the stream can't be kept up, trying again", "error", err)
			}
			failing, wait = true, refreshEvery
		} else {
			failing = false
		}
		select {
		case <-ctx.Done():
		case <-c.stream.wake:
		case <-time.After(wait):
		}
	}
	return nil
}

func (s *stream) empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count > 0 {
		return false
	}
	s.joining = nil
	return true
}

// turn tells of what has changed, and those who have just come what they want to know.
func (c *caster) turn(ctx context.Context) error {
	if c.tail == nil {
		t, err := newTail(ctx, c.store.pool)
		if err != nil {
			return err
		}
		c.tail, c.states, c.expired = &t, map[skuKey]told{}, c.store.Now()
	}
	changed := map[skuKey]bool{}
	for more := true; more; {
		var changes []change
		var next tail
		err := pg.InTx(ctx, c.store.pool, pg.TxOptions{RepeatUnknown: true}, func(tx pgx.Tx) (err error) {
			next, changes, more, err = c.tail.look(ctx, tx)
			return err
		})
		if err != nil {
			return err
		}
		*c.tail = next
		for _, ch := range changes {
			changed[skuKey{ch.tenant, ch.sku}] = true
		}
	}
	if err := c.addExpired(ctx, changed); err != nil {
		return err
	}
	maps.DeleteFunc(changed, func(k skuKey, _ bool) bool { return !c.stream.hears(k) })
	c.addStale(changed)
	wanted, err := c.newcomers(ctx)
	if err != nil {
		return err
	}
	for k := range wanted {
		changed[k] = true
	}
	for chunk := range slices.Chunk(slices.Collect(maps.Keys(changed)), streamChunk) {
		if err := c.tell(ctx, chunk, wanted); err != nil {
			return err
		}
	}
	return nil
}

// expiredSQL names the SKUs of holds that have run out since an instant. Time is all that it takes, so no entry
// says so before the reaper has passed.
const expiredSQL = `
WITH now AS MATERIALIZED (SELECT clock_timestamp() AS now)
SELECT (SELECT now FROM now), r.tenant, l.sku
  FROM (SELECT 1) one
  LEFT JOIN inventory.reservations r ON r.status = 'held' AND r.expires_at > $1 AND r.expires_at <= (SELECT now FROM now)
  LEFT JOIN LATERAL unnest(r.line_skus) AS l(sku) ON true`

func (c *caster) addExpired(ctx context.Context, changed map[skuKey]bool) error {
	rows, err := c.store.pool.Query(ctx, expiredSQL, c.expired.Add(-expiryOverlap))
	if err != nil {
		return err
	}
	var now time.Time
	var tenant, sku *string
	_, err = pgx.ForEachRow(rows, []any{&now, &tenant, &sku}, func() error {
		if tenant != nil && sku != nil {
			changed[skuKey{*tenant, *sku}] = true
		}
		return nil
	})
	if err == nil {
		c.expired = now
	}
	return err
}

// addStale adds some of the SKUs that weren't read for a while, and forgets those that nobody listens to any more.
func (c *caster) addStale(changed map[skuKey]bool) {
	now := time.Now()
	if now.Sub(c.refreshed) < refreshEvery {
		return
	}
	c.refreshed = now
	n := 0
	for k, t := range c.states {
		switch {
		case !c.stream.hears(k):
			delete(c.states, k)
		case n < streamChunk && now.Sub(t.read) > refreshAfter:
			changed[k] = true
			n++
		}
	}
}

// newcomers finds out what those want to know who have just begun to listen.
func (c *caster) newcomers(ctx context.Context) (map[skuKey][]*Listener, error) {
	c.stream.mu.Lock()
	joining := c.stream.joining
	c.stream.joining = nil
	c.stream.mu.Unlock()
	wanted := map[skuKey][]*Listener{}
	err := c.welcome(ctx, joining, wanted)
	if err != nil { // they are asked again
		c.stream.mu.Lock()
		c.stream.joining = append(joining, c.stream.joining...)
		c.stream.mu.Unlock()
	}
	return wanted, err
}

func (c *caster) welcome(ctx context.Context, joining []*Listener, wanted map[skuKey][]*Listener) error {
	if err := c.resume(ctx, joining, wanted); err != nil {
		return err
	}
	for _, l := range joining {
		known := l.since >= 0 && l.since <= c.tail.seq
		switch {
		case l.skus == nil && known && c.tail.seq-l.since <= replayLimit:
			if err := c.resumeAll(ctx, l, wanted); err != nil {
				return err
			}
		case l.skus == nil:
			c.backfills = append(c.backfills, &backfill{to: l})
		case !known:
			for _, sku := range l.skus {
				k := skuKey{l.tenant, sku}
				wanted[k] = append(wanted[k], l)
			}
		}
	}
	for _, b := range c.backfills {
		if err := c.fill(ctx, b, wanted); err != nil {
			return err
		}
	}
	c.backfills = slices.DeleteFunc(c.backfills, func(b *backfill) bool { return b.to == nil })
	return nil
}

// resumeSQL finds which of the SKUs have changed since a listener left. Holds that have run out and aren't
// given back yet have no entry.
const resumeSQL = `
SELECT w.i, w.sku FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[]) AS w(i, tenant, sku, since)
 WHERE EXISTS (SELECT 1 FROM inventory.ledger l WHERE l.tenant = w.tenant AND l.sku = w.sku AND l.seq > w.since)
    OR EXISTS (SELECT 1 FROM inventory.reservations r
                WHERE r.status = 'held' AND r.expires_at <= (SELECT clock_timestamp()) AND r.tenant = w.tenant AND w.sku = ANY(r.line_skus))`

func (c *caster) resume(ctx context.Context, joining []*Listener, wanted map[skuKey][]*Listener) error {
	var at, since []int64
	var tenants, skus []string
	for i, l := range joining {
		if l.since < 0 || l.since > c.tail.seq {
			continue
		}
		for _, sku := range l.skus {
			at, since = append(at, int64(i)), append(since, l.since)
			tenants, skus = append(tenants, l.tenant), append(skus, sku)
		}
	}
	if len(at) == 0 {
		return nil
	}
	rows, err := c.store.pool.Query(ctx, resumeSQL, at, tenants, skus, since)
	if err != nil {
		return err
	}
	var i int64
	var sku string
	_, err = pgx.ForEachRow(rows, []any{&i, &sku}, func() error {
		k := skuKey{joining[i].tenant, sku}
		wanted[k] = append(wanted[k], joining[i])
		return nil
	})
	return err
}

const resumeAllSQL = `
SELECT DISTINCT sku FROM inventory.ledger WHERE tenant = $1 AND seq > $2
UNION
SELECT unnest(line_skus) FROM inventory.reservations WHERE status = 'held' AND expires_at <= (SELECT clock_timestamp()) AND tenant = $1`

func (c *caster) resumeAll(ctx context.Context, l *Listener, wanted map[skuKey][]*Listener) error {
	rows, err := c.store.pool.Query(ctx, resumeAllSQL, l.tenant, l.since)
	if err != nil {
		return err
	}
	skus, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, sku := range skus {
		k := skuKey{l.tenant, sku}
		wanted[k] = append(wanted[k], l)
	}
	return err
}

// fill goes on with a list, unless its listener has to catch up first.
func (c *caster) fill(ctx context.Context, b *backfill, wanted map[skuKey][]*Listener) error {
	c.stream.mu.Lock()
	gone := c.stream.gone(b.to)
	c.stream.mu.Unlock()
	if gone {
		b.to = nil
		return nil
	}
	if b.to.behind() > backfillPause {
		return nil
	}
	rows, err := c.store.pool.Query(ctx, `SELECT sku FROM inventory.skus WHERE tenant = $1 AND deleted_at IS NULL AND sku > $2 ORDER BY sku LIMIT $3`,
		b.to.tenant, b.after, streamChunk)
	if err != nil {
		return err
	}
	skus, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, sku := range skus {
		k := skuKey{b.to.tenant, sku}
		wanted[k] = append(wanted[k], b.to)
		b.after = sku
	}
	if len(skus) < streamChunk {
		b.to = nil
	}
	return nil
}

// tell reads states, and hands those that differ to all who listen, the others to those who want them. The
// id is the tail's floor, from before the states were read: what isn't in them has a higher number.
func (c *caster) tell(ctx context.Context, keys []skuKey, wanted map[skuKey][]*Listener) error {
	id := strconv.FormatInt(c.tail.floor(), 10)
	states, err := readStates(ctx, c.store.pool, keys)
	if err != nil {
		return err
	}
	now := time.Now()
	var listeners []*Listener
	for _, k := range keys {
		state, ok := states[k]
		if !ok {
			state = State{SKU: k.sku, Deleted: true, At: c.store.Now().UTC()}
		}
		before, known := c.states[k]
		c.states[k] = told{state, now}
		listeners = listeners[:0]
		if !known || !before.State.same(state) {
			listeners = c.stream.audienceOf(k, listeners)
		} else {
			listeners = append(listeners, wanted[k]...)
		}
		if len(listeners) == 0 {
			continue
		}
		text, err := json.Marshal(state)
		if err != nil {
			return err
		}
		u := Update{ID: id, Data: string(text)}
		for _, l := range listeners {
			l.put(k.sku, u, now)
		}
	}
	return nil
}

func newListenersGauge(s *stream) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "holdfast_inventory_stream_listeners", Help: "Listeners of this replica's stream.",
	}, func() float64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		return float64(s.count)
	})
}
