package main

import (
	"fmt"
	"math/rand/v2"
	"sort"
	"strconv"

	"holdfast/bench/figure"
)

// kind is what a command asks for.
type kind uint8

const (
	reserve kind = iota
	confirm
	release
)

type line struct {
	sku      string
	quantity int64
}

// command is one request, the same for every system.
type command struct {
	kind  kind
	lines []line // of a reserve
	id    string // of what is confirmed or released
	key   string // idempotency key; "": none
}

// outcome is what a system did with a command.
type outcome uint8

const (
	done outcome = iota
	soldOut
)

// buyer is one caller's part of a load: it says what comes next, and keeps book of what was
// acknowledged. It isn't safe for concurrent use.
type buyer struct {
	random *rand.Rand
	cart   func(*rand.Rand) []line
	mixed  bool   // 70 % reserve, 20 % confirm, 10 % release
	prefix string // of its idempotency keys; "": none
	asked  int64

	holds []string // ids that may be confirmed or released; kept if mixed
	books books
}

// books are what callers were told, in units.
type books struct {
	Reserved  int64 `json:"reserved"`
	SoldOut   int64 `json:"sold_out"` // commands
	Confirmed int64 `json:"confirmed"`
	Released  int64 `json:"released"`
}

func (b books) held() int64 { return b.Reserved - b.Confirmed - b.Released }

func (b *books) add(other books) {
	b.Reserved += other.Reserved
	b.SoldOut += other.SoldOut
	b.Confirmed += other.Confirmed
	b.Released += other.Released
}

// next makes the buyer's next command.
func (b *buyer) next() command {
	b.asked++
	c := command{kind: reserve}
	if b.prefix != "" {
		c.key = b.prefix + strconv.FormatInt(b.asked, 36)
	}
	if b.mixed && len(b.holds) > 0 {
		switch n := b.random.IntN(10); {
		case n >= 9:
			c.kind = release
		case n >= 7:
			c.kind = confirm
		}
	}
	if c.kind == reserve {
		c.lines = b.cart(b.random)
		return c
	}
	// A random one of the holds; the last takes its place.
	i, last := b.random.IntN(len(b.holds)), len(b.holds)-1
	c.id = b.holds[i]
	b.holds[i] = b.holds[last]
	b.holds = b.holds[:last]
	return c
}

// answered enters what came of a command. The id is that of the reservation that a reserve made.
func (b *buyer) answered(c command, id string, o outcome) {
	if o == soldOut {
		b.books.SoldOut++
		return
	}
	switch c.kind {
	case confirm:
		b.books.Confirmed++
	case release:
		b.books.Released++
	default:
		for _, l := range c.lines {
			b.books.Reserved += l.quantity
		}
		if b.mixed {
			b.holds = append(b.holds, id)
		}
	}
}

// oneOf is a cart with one unit of always the same SKU.
func oneOf(sku string) func(*rand.Rand) []line {
	lines := []line{{sku, 1}}
	return func(*rand.Rand) []line { return lines }
}

// zipfSKU names a SKU of the Zipf load.
func zipfSKU(rank int) string { return fmt.Sprintf("zipf-%06d", rank) }

// zipf draws SKUs with probabilities as 1, 1/2, 1/3, … of the first.
func zipf(n int) func(*rand.Rand) []line {
	upTo := make([]float64, n)
	sum := 0.0
	for i := range upTo {
		sum += 1 / float64(i+1)
		upTo[i] = sum
	}
	carts := make([][]line, n)
	for i := range carts {
		carts[i] = []line{{zipfSKU(i), 1}}
	}
	return func(r *rand.Rand) []line {
		i := sort.SearchFloat64s(upTo, r.Float64()*sum)
		return carts[min(i, n-1)]
	}
}

// cartSKUs are what the three-line carts are made of.
var cartSKUs = []string{"cart-1", "cart-2", "cart-3", "cart-4", "cart-5", "cart-6"}

// opposite fills carts with three neighbours of a ring of SKUs, half of them up and half of them down.
func opposite() func(*rand.Rand) []line {
	n := len(cartSKUs)
	return func(r *rand.Rand) []line {
		first, step := r.IntN(n), 1
		if r.IntN(2) == 0 {
			step = n - 1
		}
		lines := make([]line, 3)
		for i := range lines {
			lines[i] = line{cartSKUs[(first+i*step)%n], 1}
		}
		return lines
	}
}

// spread is over the rounds of a run.
type spread = figure.Spread
