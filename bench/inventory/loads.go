package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"holdfast/bench/figure"
	"holdfast/internal/pg"
)

const hotSKU = "hot"

// load is one situation that everybody is put into.
type load struct {
	name, title string
	about       string // what happens, in a sentence
	run         func(ctx context.Context, l load, b *bench) ([]Row, error)
}

var loads = []load{
	{"hot", "One hot SKU", "Every click wants a unit of one SKU, and gets it.", runHot},
	{"clicks", "100 units, 50,000 clicks", "50,000 clicks on a SKU with 100 units: the time until the last is answered.", runClicks},
	{"zipf", "Zipf over 100,000 SKUs", "Each click wants a unit of one of 100,000 SKUs; the n-th is asked for 1/n as often as the first.", runZipf},
	{"carts", "Carts in opposite orders", "Carts of three neighbouring lines out of six, half of them from left to right and half from right to left.", runCarts},
	{"mix", "The mix", "70 % reserve, 20 % confirm, 10 % release, on one SKU.", runMix},
	{"single", "One client alone", "One caller, one reservation after the other: the time that each takes.", runSingle},
	{"history", "Ten million finished reservations", "The hot SKU, in process, with ten million finished reservations in the tables and with none.", runHistory},
}

// bench is what the loads have in common.
type bench struct {
	run
	conns   int
	keys    bool
	history int
}

// common is how the loads with many callers differ.
type common struct {
	skus  []string
	units int64
	cart  func(*rand.Rand) []line
	mixed bool
	forms []form
	// crowd is a number of connections that the forms are also run with, beside the best for each; 0: none.
	crowd int
}

func runHot(ctx context.Context, l load, b *bench) ([]Row, error) {
	return b.runCommon(ctx, l, common{
		skus: []string{hotSKU}, units: plenty, cart: oneOf(hotSKU), forms: []form{forUpdate, statement, optimistic}, crowd: b.conns,
	})
}

func runZipf(ctx context.Context, l load, b *bench) ([]Row, error) {
	const n = 100_000
	skus := make([]string, n)
	for i := range skus {
		skus[i] = zipfSKU(i)
	}
	return b.runCommon(ctx, l, common{skus: skus, units: 1_000_000, cart: zipf(n), forms: []form{forUpdate, statement, optimistic}})
}

func runCarts(ctx context.Context, l load, b *bench) ([]Row, error) {
	return b.runCommon(ctx, l, common{skus: cartSKUs, units: plenty, cart: opposite(), forms: []form{cartsAsTheyCome, cartsInOrder}, crowd: 8})
}

func runMix(ctx context.Context, l load, b *bench) ([]Row, error) {
	return b.runCommon(ctx, l, common{
		skus: []string{hotSKU}, units: plenty, cart: oneOf(hotSKU), mixed: true, forms: []form{forUpdate, statement, optimistic},
	})
}

// runCommon puts everybody into a load with many callers.
func (b *bench) runCommon(ctx context.Context, l load, c common) (rows []Row, err error) {
	var closing closers
	defer func() { err = errors.Join(err, closing.close()) }()
	all, err := b.ourContestants(ctx, l, c, &closing)
	if err != nil {
		return nil, err
	}
	rivals, err := b.transactionContestants(ctx, l, c, &closing)
	if err != nil {
		return nil, err
	}
	all = append(all, rivals...)
	rivals, err = b.redisContestants(ctx, c)
	if err != nil {
		return nil, err
	}
	return b.interleave(ctx, l.title, append(all, rivals...))
}

// The clicks on few units.
const (
	clickCount = 50_000
	clickUnits = 100
)

// runClicks counts: exactly the units are held after each turn, on a SKU of its own.
func runClicks(ctx context.Context, l load, b *bench) (rows []Row, err error) {
	var closing closers
	defer func() { err = errors.Join(err, closing.close()) }()
	within, err := b.openLoadShop(ctx, "clicks_in_process", &closing)
	if err != nil {
		return nil, err
	}
	served, err := b.openLoadShop(ctx, "clicks_http", &closing)
	if err != nil {
		return nil, err
	}
	replicas, stop, err := b.stage.startReplicas(ctx, served.url)
	if err != nil {
		return nil, err
	}
	closing.add(stop)
	if err := served.stockUp(ctx, 1, "gone"); err != nil {
		return nil, err
	}
	if _, err := likenessOf(ctx, replicas[0], "gone"); err != nil { // the unit
		return nil, err
	}
	same, err := likenessOf(ctx, replicas[0], "gone") // sold out
	if err != nil {
		return nil, err
	}
	idle, stop, err := b.stage.startNothing(ctx, same)
	if err != nil {
		return nil, err
	}
	closing.add(stop)
	url, err := b.stage.database(ctx, "clicks_clicks")
	if err != nil {
		return nil, err
	}
	closing.add(func() error { return b.stage.drop(context.WithoutCancel(ctx), "clicks_clicks") })

	exact := func(_ context.Context, told books) error {
		if told.Reserved != clickUnits || told.SoldOut != clickCount-clickUnits {
			return fmt.Errorf("%d of %d units were held and %d of %d clicks were told that they are sold out", told.Reserved, clickUnits, told.SoldOut, clickCount)
		}
		return nil
	}
	sku := func(round int) string { return fmt.Sprintf("flash-%d", round) }
	basis := func(name string, f family, p play) *contestant {
		return &contestant{name: name, family: f, callers: b.conns, keyed: b.keys, play: p, after: exact}
	}
	var all []*contestant
	for _, o := range []struct {
		name string
		*shop
		play play
	}{{nameInProcess, within, inProcess(within.do)}, {nameHTTP, served, overHTTP(replicas)}} {
		one := basis(o.name, ours, o.play)
		one.before = func(ctx context.Context, round int) error {
			one.cart = oneOf(sku(round))
			return o.stockUp(ctx, clickUnits, sku(round))
		}
		one.check = func(ctx context.Context, told books) error {
			if o.shop == served {
				told.Reserved++ // for the likeness
			}
			return o.shop.check(ctx, told)
		}
		all = append(all, one)
	}
	idleOne := basis(nameNothing, nothing, overHTTP(idle))
	idleOne.cart, idleOne.after = oneOf(sku(0)), nil
	all = append(all, idleOne)
	pool, err := pg.OpenPool(ctx, url, pg.PoolOptions{MaxConns: clickPool, Name: "clicks"})
	if err != nil {
		return nil, err
	}
	closing.add(func() error { pool.Close(); return nil })
	for i, f := range []form{forUpdate, statement, optimistic} {
		var register *register
		one := basis(fmt.Sprintf("%s, %s", f, connectionsText(clickPool)), transactions, nil)
		one.before = func(ctx context.Context, round int) (err error) {
			one.cart = oneOf(sku(round))
			register, err = newRegister(ctx, pool, fmt.Sprintf("form_%d_%d", i, round), f, clickUnits, []string{sku(round)})
			one.play = inProcess(register.do)
			return err
		}
		one.after = func(ctx context.Context, told books) error {
			return errors.Join(exact(ctx, told), register.check(ctx, told))
		}
		all = append(all, one)
	}
	for _, appendfsync := range []string{"always", "everysec"} {
		r := b.stage.redis[appendfsync]
		if r == nil {
			continue
		}
		r.conns = 2
		one := basis(nameRedis(appendfsync), redisScript, r.play)
		one.before = func(_ context.Context, round int) error {
			one.cart = oneOf(sku(round))
			return r.stockUp(clickUnits, []string{sku(round)})
		}
		one.after = func(ctx context.Context, told books) error {
			return errors.Join(exact(ctx, told), r.check(told, clickUnits, one.skus()))
		}
		all = append(all, one)
	}
	counted := b.run
	counted.pace = pace{count: clickCount}
	return counted.interleave(ctx, l.title, all)
}

// clickPool is what the forms of one transaction per click get for the clicks on few units,
// most of which only look.
const clickPool = 8

func (c *contestant) skus() []string { return []string{c.cart(nil)[0].sku} }

// runSingle compares what one caller waits for.
func runSingle(ctx context.Context, l load, b *bench) (rows []Row, err error) {
	var closing closers
	defer func() { err = errors.Join(err, closing.close()) }()
	c := common{skus: []string{hotSKU}, units: plenty, cart: oneOf(hotSKU)}
	alone := *b
	alone.conns = 1
	all, err := alone.ourContestants(ctx, l, c, &closing)
	if err != nil {
		return nil, err
	}
	all[0].name, all[1].name, all[2].name = nameInProcess, "Holdfast, HTTP", "Do-nothing HTTP handler"
	url, err := b.stage.database(ctx, "single_clicks")
	if err != nil {
		return nil, err
	}
	closing.add(func() error { return b.stage.drop(context.WithoutCancel(ctx), "single_clicks") })
	pool, err := pg.OpenPool(ctx, url, pg.PoolOptions{MaxConns: 2, Name: "clicks"})
	if err != nil {
		return nil, err
	}
	closing.add(func() error { pool.Close(); return nil })
	for i, f := range []form{statement, forUpdate} {
		r, err := newRegister(ctx, pool, fmt.Sprintf("form_%d", i), f, plenty, c.skus)
		if err != nil {
			return nil, err
		}
		all = append(all, &contestant{name: string(f), family: transactions, callers: 1, keyed: b.keys, cart: c.cart, play: inProcess(r.do), check: r.check})
	}
	for _, appendfsync := range []string{"always", "everysec"} {
		r := b.stage.redis[appendfsync]
		if r == nil {
			continue
		}
		r.conns = 1
		if err := r.stockUp(plenty, c.skus); err != nil {
			return nil, err
		}
		all = append(all, &contestant{
			name: nameRedis(appendfsync), family: redisScript, callers: 1, keyed: b.keys, cart: c.cart, play: r.play,
			check: func(_ context.Context, told books) error { return r.check(told, plenty, c.skus) },
		})
	}
	return b.interleave(ctx, l.title, all)
}

// runHistory compares ours with itself.
func runHistory(ctx context.Context, l load, b *bench) (rows []Row, err error) {
	var closing closers
	defer func() { err = errors.Join(err, closing.close()) }()
	var all []*contestant
	for _, past := range []int{0, b.history} {
		database := fmt.Sprintf("history_%d", past)
		o, err := b.openLoadShop(ctx, database, &closing)
		if err != nil {
			return nil, err
		}
		if err := o.stockUp(ctx, plenty, hotSKU); err != nil {
			return nil, err
		}
		if past > 0 {
			if err := o.fillHistory(ctx, past, b.bar); err != nil {
				return nil, err
			}
		}
		all = append(all, &contestant{
			name: fmt.Sprintf("Holdfast, in process, %s finished", figure.Thousands(int64(past))), family: ours, callers: b.conns, keyed: b.keys,
			cart: oneOf(hotSKU), play: inProcess(o.do),
			check: func(ctx context.Context, told books) error {
				sold := int64(past)
				told.Reserved, told.Confirmed = told.Reserved+sold, told.Confirmed+sold
				return o.check(ctx, told)
			},
		})
	}
	return b.interleave(ctx, l.title, all)
}

// sortedLines are a cart's lines in the one order of their SKUs.
func sortedLines(lines []line) []line {
	return slices.SortedFunc(slices.Values(lines), func(a, b line) int { return strings.Compare(a.sku, b.sku) })
}
