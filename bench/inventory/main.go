package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"

	_ "time/tzdata"

	"holdfast/bench/figure"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == nothingFlag {
		fmt.Fprintln(os.Stderr, doNothing(os.Args[2], os.Stdin))
		os.Exit(1)
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
	loads   []load
	conns   int
	length  time.Duration
	rounds  int
	keys    bool
	history int
	out     string
	render  bool
	only    *regexp.Regexp
	profile string
	// statements shows what PostgreSQL's time went into.
	statements bool
}

func parse(args []string) (o options, err error) {
	names := make([]string, len(loads))
	for i, l := range loads {
		names[i] = l.name
	}
	flags := flag.NewFlagSet("inventory", flag.ContinueOnError)
	which := flags.String("load", strings.Join(names, ","), "loads to run")
	flags.IntVar(&o.conns, "conns", 512, "callers, and connections over HTTP")
	flags.DurationVar(&o.length, "for", 5*time.Second, "how long each turn is measured")
	flags.IntVar(&o.rounds, "rounds", 3, "how often everybody has a turn")
	flags.BoolVar(&o.keys, "keys", true, "send an idempotency key with each command")
	flags.IntVar(&o.history, "history", 10_000_000, "finished reservations of the load history")
	flags.StringVar(&o.out, "out", "", "folder for results and plots; the page beside it, of the same name, gets the tables. Default: print them")
	flags.BoolVar(&o.render, "render", false, "measure nothing: make tables and plots of the results in the folder")
	only := flags.String("only", "", "a regular expression: the rows to run, for a closer look at some; not with -out")
	flags.StringVar(&o.profile, "cpuprofile", "", "file for a profile of this process, callers and all")
	flags.BoolVar(&o.statements, "statements", false, "show which statements PostgreSQL spent most time on, by database; not with -out")
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
	if o.only, err = regexp.Compile(*only); err != nil {
		return o, fmt.Errorf("-only: %w", err)
	}
	switch {
	case *only != "" && o.out != "":
		return o, fmt.Errorf("-only makes half a table: not with -out")
	case o.statements && o.out != "":
		return o, fmt.Errorf("-statements costs time: not with -out")
	case flags.NArg() > 0:
		return o, fmt.Errorf("what is %q?", flags.Arg(0))
	case o.conns < 1 || o.conns > 4096:
		return o, fmt.Errorf("-conns: must be from 1 to 4096, not %d", o.conns)
	case o.length < 100*time.Millisecond || o.length > 10*time.Minute:
		return o, fmt.Errorf("-for: must be from 100ms to 10m, not %v", o.length)
	case o.rounds < 1 || o.rounds > 100:
		return o, fmt.Errorf("-rounds: must be from 1 to 100, not %d", o.rounds)
	case o.history < 1 || o.history > 100_000_000:
		return o, fmt.Errorf("-history: must be from 1 to 100000000, not %d", o.history)
	case o.render && o.out == "":
		return o, fmt.Errorf("-render needs -out")
	}
	return o, nil
}

// warmUp is what each turn runs before it is measured.
const warmUp = 500 * time.Millisecond

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
	if o.profile != "" {
		file, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
		defer func() { pprof.StopCPUProfile(); _ = file.Close() }()
	}
	var settings []string
	if o.statements {
		settings = append(settings, statementsSetting)
	}
	s, err := setUp(ctx, o.conns, settings...)
	if err != nil {
		return err
	}
	defer func() {
		if closing := s.close(); err == nil {
			err = closing
		}
	}()
	fmt.Fprintln(os.Stderr, s.facts)
	b := &bench{run: run{stage: s, pace: pace{warm: warmUp, length: o.length}, rounds: o.rounds, only: o.only, bar: os.Stderr, statements: o.statements}, conns: o.conns, keys: o.keys, history: o.history}
	for _, l := range o.loads {
		rows, err := l.run(ctx, l, b)
		if rows == nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		results[l.name] = Result{
			At: time.Now().UTC().Truncate(time.Second), Rows: rows, Rounds: o.rounds, Length: o.length.String(), Keys: o.keys,
			Machine: s.facts, Versions: s.version,
		}
		fmt.Println(results.table(l))
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

func resultsFile(out string) string { return filepath.Join(out, "inventory.json") }
