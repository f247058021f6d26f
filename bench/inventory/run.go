package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/schollz/progressbar/v3"
)

// contestant is one row of a load's table.
type contestant struct {
	name    string
	family  family
	note    string // what it was tuned to
	callers int
	keyed   bool // each command carries an idempotency key
	play    play
	cart    func(*rand.Rand) []line
	mixed   bool
	before  func(ctx context.Context, round int) error  // each turn; nil: nothing
	after   func(ctx context.Context, told books) error // each turn, with its own books; nil: nothing
	check   func(ctx context.Context, told books) error // at the end, with all of them
	counts  func() map[string]int64                     // more to tell of each turn, as totals; nil: nothing
}

// family is what a contestant belongs to, and gives it its colour.
type family string

const (
	ours         family = "Holdfast"
	transactions family = "one transaction per click"
	redisScript  family = "Redis script"
	nothing      family = "do-nothing handler"
)

// run is one load, carried out by everyone who takes part in turns: A B C A B C …, so that
// a change of the machine's mood doesn't favour one of them.
type run struct {
	stage  *stage
	pace   pace
	rounds int
	only   *regexp.Regexp // of the contestants' names
	bar    io.Writer
	// statements are told after the rounds.
	statements bool
}

func (r run) interleave(ctx context.Context, title string, all []*contestant) ([]Row, error) {
	all = slices.DeleteFunc(all, func(c *contestant) bool { return !r.only.MatchString(c.name) })
	bar := progressbar.NewOptions(len(all)*r.rounds, progressbar.OptionSetWriter(r.bar), progressbar.OptionSetWidth(30),
		progressbar.OptionShowCount(), progressbar.OptionSetElapsedTime(true), progressbar.OptionSetPredictTime(true),
		progressbar.OptionOnCompletion(func() { fmt.Fprintln(r.bar) }))
	if r.statements {
		if err := r.stage.resetStatements(ctx); err != nil {
			return nil, err
		}
	}
	rows := make([]Row, len(all))
	told := make([]books, len(all))
	for i, c := range all {
		rows[i] = Row{Name: c.name, Family: c.family, Note: c.note, Callers: c.callers}
	}
	for round := range r.rounds {
		for i, c := range all {
			bar.Describe(fmt.Sprintf("%s, round %d of %d: %-36s", title, round+1, r.rounds, c.name))
			t, b, err := r.turn(ctx, c, round)
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			rows[i].Turns = append(rows[i].Turns, t)
			told[i].add(b)
			_ = bar.Add(1)
		}
	}
	if r.statements {
		if err := r.stage.writeStatements(ctx, r.bar); err != nil {
			return nil, err
		}
	}
	var wrong []error
	for i, c := range all {
		if err := r.verdict(ctx, c, &rows[i], told[i]); err != nil {
			wrong = append(wrong, fmt.Errorf("%s, %s: %w", title, c.name, err))
		}
	}
	return rows, errors.Join(wrong...)
}

// verdict says whether a row's figures may be reported: only those of a run without errors,
// whose books agree with what callers were told.
func (r run) verdict(ctx context.Context, c *contestant, row *Row, told books) error {
	for _, t := range row.Turns {
		for text, n := range t.Errors {
			return fmt.Errorf("%d commands failed, such as: %s", n, text)
		}
	}
	if c.check != nil {
		if err := c.check(ctx, told); err != nil {
			return err
		}
	}
	row.Correct = true
	return nil
}

// turn lets one contestant work for once, and measures it.
func (r run) turn(ctx context.Context, c *contestant, round int) (t Turn, told books, err error) {
	if c.before != nil {
		if err := c.before(ctx, round); err != nil {
			return t, told, err
		}
	}
	buyers := make([]*buyer, c.callers)
	for i := range buyers {
		buyers[i] = &buyer{random: rand.New(rand.NewPCG(uint64(round), uint64(i))), cart: c.cart, mixed: c.mixed}
		if c.keyed {
			buyers[i].prefix = fmt.Sprintf("key-%d-%s-", round, strconv.FormatInt(int64(i), 36))
		}
	}
	if err := r.stage.settle(ctx); err != nil {
		return t, told, err
	}
	runtime.GC() // what the one before has left
	counted := map[string]int64{}
	if c.counts != nil {
		counted = c.counts()
	}
	w := r.pace.start()
	used := make(chan map[string]float64, 1)
	ended := make(chan struct{})
	go func() { used <- r.cpuDuring(w, ended) }()
	timings := c.play(ctx, buyers, w)
	wall := time.Since(w.from)
	close(ended)
	if w.counted {
		t.Seconds = wall.Seconds()
	} else {
		t.Seconds = r.pace.length.Seconds()
	}
	for _, b := range buyers {
		told.add(b.books)
	}
	t.Errors = map[string]int64{}
	for _, one := range timings {
		for text, n := range one.errors {
			t.Errors[text] += n
		}
	}
	h := histogram(timings)
	t.Done = h.TotalCount()
	t.PerSecond = float64(t.Done) / t.Seconds
	at := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1e3 }
	t.P50, t.P90, t.P99, t.Max = at(50), at(90), at(99), at(100)
	t.Told = told
	t.CPU = <-used
	for part := range t.CPU {
		if t.CPU[part] /= float64(t.Done); t.Done == 0 || t.CPU[part] < 0.05 {
			delete(t.CPU, part)
		}
	}
	if c.counts != nil {
		t.Counts = map[string]int64{}
		for name, n := range c.counts() {
			t.Counts[name] = n - counted[name]
		}
	}
	if c.after != nil {
		err = c.after(ctx, told)
	}
	return t, told, err
}

// cpuDuring is the processor time, in microseconds, that each part uses while the stopwatch measures.
func (r run) cpuDuring(w *stopwatch, ended <-chan struct{}) map[string]float64 {
	until := func(at time.Time) {
		select {
		case <-time.After(time.Until(at)):
		case <-ended:
		}
	}
	if !w.counted {
		until(w.from)
	}
	before := r.stage.cpu()
	if w.counted {
		<-ended
	} else {
		until(w.to)
	}
	used := map[string]float64{}
	for part, now := range r.stage.cpu() {
		used[part] = float64((now - before[part]).Microseconds())
	}
	return used
}
