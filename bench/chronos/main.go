package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"holdfast/bench/figure"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == bareFlag {
		if err := bareLoop(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := start(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// options are the command line's.
type options struct {
	loads  []load
	rounds int
	runs   int           // of noop
	due    int           // of burst
	length time.Duration // of lateness, each
	jobs   []int         // of lateness
	rates  []int         // of lateness, a second
	churn  int           // of deadrows
	out    string
	render bool
}

// load is one question.
type load struct {
	name, title string
	run         func(ctx context.Context, b *bench) ([]Row, error)
	table       func(Result) string
	draw        func(Result) ([]byte, bool) // false: there is nothing to draw
}

var loads = []load{
	{"noop", "Runs that do nothing", runNoop, noopTable, drawNoop},
	{"burst", "Webhooks due at one instant", runBurst, burstTable, drawBurst},
	{"lateness", "Lateness of the start", runLateness, latenessTable, drawLateness},
	{"idle", "Nothing is due", runIdle, idleTable, nil},
	{"cron", "Lateness of pg_cron", runCron, latenessTable, nil},
	{"leader", "A leader that is lost", runLeader, leaderTable, nil},
	{"deadrows", "Dead rows", runDeadRows, deadRowsTable, drawDeadRows},
}

func parse(args []string) (o options, err error) {
	names := make([]string, len(loads))
	for i, l := range loads {
		names[i] = l.name
	}
	flags := flag.NewFlagSet("chronos", flag.ContinueOnError)
	which := flags.String("load", strings.Join(names, ","), "loads to run")
	flags.IntVar(&o.rounds, "rounds", 3, "how often everybody has a turn")
	flags.IntVar(&o.runs, "runs", 100_000, "runs of a turn of noop")
	flags.IntVar(&o.due, "due", 100_000, "webhooks of a turn of burst")
	flags.DurationVar(&o.length, "for", 10*time.Second, "how long each lateness is measured")
	jobs := flags.String("jobs", "1000,1000000", "how many jobs there are, in all, in the load lateness")
	rates := flags.String("rates", "1,100,1000", "how many of them are due each second, in the load lateness")
	flags.IntVar(&o.churn, "churn", 600_000, "runs that pass through before deadrows measures: ten minutes of a thousand a second")
	flags.StringVar(&o.out, "out", "", "folder for results and plots; the page beside it, of the same name, gets the tables. Default: print them")
	flags.BoolVar(&o.render, "render", false, "measure nothing: make tables and plots of the results in the folder")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	for _, name := range strings.Split(*which, ",") {
		i := slices.Index(names, name)
		if i < 0 {
			return o, fmt.Errorf("-load: %q isn't one of %s", name, strings.Join(names, ", "))
		}
		o.loads = append(o.loads, loads[i])
	}
	if o.jobs, err = numbers(*jobs, 1, 10_000_000); err != nil {
		return o, fmt.Errorf("-jobs: %w", err)
	}
	if o.rates, err = numbers(*rates, 1, 1000); err != nil {
		return o, fmt.Errorf("-rates: %w", err)
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("what is %q?", flags.Arg(0))
	case o.rounds < 1 || o.rounds > 100:
		return o, fmt.Errorf("-rounds: must be from 1 to 100, not %d", o.rounds)
	case o.runs < 1000 || o.runs > 10_000_000 || o.due < 1000 || o.due > 1_000_000 || o.churn < 1000 || o.churn > 10_000_000:
		return o, errors.New("-runs and -churn: must be from 1000 to 10000000; -due: to 1000000")
	case o.length < time.Second || o.length > 10*time.Minute:
		return o, fmt.Errorf("-for: must be from 1s to 10m, not %v", o.length)
	case o.render && o.out == "":
		return o, errors.New("-render needs -out")
	}
	return o, nil
}

func numbers(list string, least, most int) (found []int, err error) {
	for _, text := range strings.Split(list, ",") {
		var n int
		if _, err := fmt.Sscanf(text, "%d", &n); err != nil || n < least || n > most {
			return nil, fmt.Errorf("%q isn't from %d to %d", text, least, most)
		}
		found = append(found, n)
	}
	return found, nil
}

// bench is what the loads have in common.
type bench struct {
	options
	*stage
}

func start(ctx context.Context, args []string) (err error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	results := Results{}
	if o.out != "" {
		if err := os.MkdirAll(o.out, 0o755); err != nil {
			return err
		}
		if results, err = figure.Read[Result](resultsFile(o.out)); err != nil {
			return err
		}
	}
	if o.render {
		return render(o.out, results)
	}
	s, err := setUp(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	fmt.Fprintln(os.Stderr, s.facts)
	b := &bench{o, s}
	for _, l := range o.loads {
		rows, err := l.run(ctx, b)
		if len(rows) == 0 {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		result := Result{
			At: time.Now().UTC().Truncate(time.Second), Command: "go run ./chronos " + strings.Join(args, " "),
			Rows: rows, Rounds: o.rounds, Machine: s.facts, Versions: s.version,
		}
		results[l.name] = result
		fmt.Println(l.table(result))
		if err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		if o.out == "" {
			continue
		}
		// After each load, so that nothing is lost if a later one fails.
		if err := figure.Write(resultsFile(o.out), results); err != nil {
			return err
		}
		if err := render(o.out, results); err != nil {
			return err
		}
	}
	return nil
}
