package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/internal/pg"
)

// closers end what a load has opened, the last first.
type closers []func() error

func (c *closers) add(end func() error) { *c = append(*c, end) }

func (c closers) close() error {
	var errs []error
	for _, end := range slices.Backward(c) {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

// openLoadShop opens a shop that is gone when the load has ended.
func (b *bench) openLoadShop(ctx context.Context, database string, closing *closers) (*shop, error) {
	o, err := b.stage.openShop(ctx, database)
	if err != nil {
		return nil, err
	}
	closing.add(func() error { return errors.Join(o.stop(), b.stage.drop(context.WithoutCancel(ctx), database)) })
	return o, nil
}

// ourContestants are ours in process, ours over HTTP and the handler that does nothing.
func (b *bench) ourContestants(ctx context.Context, l load, c common, closing *closers) ([]*contestant, error) {
	within, err := b.openLoadShop(ctx, l.name+"_in_process", closing)
	if err != nil {
		return nil, err
	}
	served, err := b.openLoadShop(ctx, l.name+"_http", closing)
	if err != nil {
		return nil, err
	}
	for _, o := range []*shop{within, served} {
		if len(c.skus) > 100 {
			err = o.stockCatalog(ctx, c.units, c.skus)
		} else {
			err = o.stockUp(ctx, c.units, c.skus...)
		}
		if err != nil {
			return nil, err
		}
	}
	replicas, stop, err := b.stage.startReplicas(ctx, served.url)
	if err != nil {
		return nil, err
	}
	closing.add(stop)
	same, err := likenessOf(ctx, replicas[0], c.skus[0])
	if err != nil {
		return nil, err
	}
	idle, stop, err := b.stage.startNothing(ctx, same)
	if err != nil {
		return nil, err
	}
	closing.add(stop)
	basis := contestant{callers: b.conns, keyed: b.keys, cart: c.cart, mixed: c.mixed}
	inProcessOne, overHTTPOne, nothingOne := basis, basis, basis
	inProcessOne.name, inProcessOne.family, inProcessOne.play = nameInProcess, ours, inProcess(within.do)
	inProcessOne.check, inProcessOne.counts = within.check, b.deadlocksIn(ctx, l.name+"_in_process")
	overHTTPOne.name, overHTTPOne.family, overHTTPOne.play = nameHTTP, ours, overHTTP(replicas)
	overHTTPOne.check = func(ctx context.Context, told books) error {
		told.Reserved++ // for the likeness
		return served.check(ctx, told)
	}
	overHTTPOne.counts = b.deadlocksIn(ctx, l.name+"_http")
	nothingOne.name, nothingOne.family, nothingOne.play = nameNothing, nothing, overHTTP(idle)
	return []*contestant{&inProcessOne, &overHTTPOne, &nothingOne}, nil
}

// Names of rows that ratios are made of.
const (
	nameInProcess = "Holdfast, in process"
	nameHTTP      = "Holdfast, HTTP, two replicas"
	nameNothing   = "Do-nothing HTTP handler, two processes"
)

func nameRedis(appendfsync string) string { return "Redis script, appendfsync " + appendfsync }

// deadlocksIn counts the deadlocks that PostgreSQL has seen in a database.
func (b *bench) deadlocksIn(ctx context.Context, database string) func() map[string]int64 {
	return func() map[string]int64 {
		var n int64
		// What sessions have seen arrives within a second.
		if err := b.stage.admin.QueryRow(ctx, "SELECT deadlocks FROM pg_stat_database WHERE datname = $1", database).Scan(&n); err != nil {
			return nil
		}
		return map[string]int64{"deadlocks": n}
	}
}

// transactionContestants are the forms of one transaction per click, each at the pool size that
// suits it best.
func (b *bench) transactionContestants(ctx context.Context, l load, c common, closing *closers) ([]*contestant, error) {
	database := l.name + "_clicks"
	url, err := b.stage.database(ctx, database)
	if err != nil {
		return nil, err
	}
	closing.add(func() error { return b.stage.drop(context.WithoutCancel(ctx), database) })
	pools := map[int]*pgxpool.Pool{} // the forms take turns with them
	open := func(size int) (*pgxpool.Pool, error) {
		if pool := pools[size]; pool != nil {
			return pool, nil
		}
		pool, err := pg.OpenPool(ctx, url, pg.PoolOptions{MaxConns: int32(size), Name: "clicks"})
		if err == nil {
			pools[size] = pool
			closing.add(func() error { pool.Close(); return nil })
		}
		return pool, err
	}
	made := 0
	add := func(f form, pool *pgxpool.Pool) (*contestant, error) {
		made++
		r, err := newRegister(ctx, pool, fmt.Sprintf("form_%d", made), f, c.units, c.skus)
		if err != nil {
			return nil, err
		}
		size := int(pool.Config().MaxConns)
		return &contestant{
			name: fmt.Sprintf("%s, %s", f, connectionsText(size)), family: transactions, callers: b.conns, keyed: b.keys, cart: c.cart, mixed: c.mixed,
			play: inProcess(r.do), check: r.check,
			counts: func() map[string]int64 {
				return map[string]int64{"deadlocks": r.deadlocks.Load(), "attempts lost": r.again.Load()}
			},
		}, nil
	}
	var all []*contestant
	for _, f := range c.forms {
		if !b.only.MatchString(string(f)) {
			continue
		}
		best, tried, err := b.bestPool(ctx, f, open, add)
		if err != nil {
			return nil, err
		}
		best.note = tried
		all = append(all, best)
	}
	if c.crowd == 0 || len(all) == 0 {
		return all, nil
	}
	crowd, err := open(c.crowd)
	if err != nil {
		return nil, err
	}
	for _, f := range c.forms {
		one, err := add(f, crowd)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

func connectionsText(n int) string {
	if n == 1 {
		return "1 connection"
	}
	return fmt.Sprintf("%d connections", n)
}

// poolSizes are tried for each form.
var poolSizes = []int{1, 2, 4, 8, 16, 32}

// trial is how long each is tried for.
const trial = 700 * time.Millisecond

// bestPool finds the pool size at which a form does most, and returns the contestant on fresh
// tables with what was tried.
func (b *bench) bestPool(ctx context.Context, f form, open func(int) (*pgxpool.Pool, error),
	add func(form, *pgxpool.Pool) (*contestant, error),
) (*contestant, string, error) {
	quick := b.run
	quick.pace = pace{warm: trial / 4, length: trial}
	var most float64
	var best *pgxpool.Pool
	var tried []string
	for _, size := range poolSizes {
		pool, err := open(size)
		if err != nil {
			return nil, "", err
		}
		one, err := add(f, pool)
		if err != nil {
			return nil, "", err
		}
		t, _, err := quick.turn(ctx, one, 0)
		if err != nil {
			return nil, "", err
		}
		tried = append(tried, fmt.Sprintf("%d: %.0f/s", size, t.PerSecond))
		if t.PerSecond > most {
			most, best = t.PerSecond, pool
		}
	}
	one, err := add(f, best)
	return one, "tried " + strings.Join(tried, ", "), err
}

// redisConns are the numbers of connections tried for its pipeline.
var redisConns = []int{1, 2, 4, 8}

// redisContestants are the script with either way of flushing; none if no Redis is installed.
func (b *bench) redisContestants(ctx context.Context, c common) ([]*contestant, error) {
	var all []*contestant
	for _, appendfsync := range []string{"always", "everysec"} {
		r := b.stage.redis[appendfsync]
		if r == nil || !b.only.MatchString(nameRedis(appendfsync)) {
			continue
		}
		one := &contestant{
			name: nameRedis(appendfsync), family: redisScript, callers: b.conns, keyed: b.keys, cart: c.cart, mixed: c.mixed, play: r.play,
			check: func(_ context.Context, told books) error { return r.check(told, c.units, c.skus) },
		}
		quick := b.run
		quick.pace = pace{warm: trial / 4, length: trial}
		most, best := 0.0, 1
		var tried []string
		for _, n := range redisConns {
			if err := r.stockUp(c.units, c.skus); err != nil {
				return nil, err
			}
			r.conns = n
			t, _, err := quick.turn(ctx, one, 0)
			if err != nil {
				return nil, err
			}
			tried = append(tried, fmt.Sprintf("%d: %.0f/s", n, t.PerSecond))
			if t.PerSecond > most {
				most, best = t.PerSecond, n
			}
		}
		r.conns = best
		one.note = connectionsText(best) + "; tried " + strings.Join(tried, ", ")
		if err := r.stockUp(c.units, c.skus); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}
