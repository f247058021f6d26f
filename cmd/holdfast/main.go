// Command holdfast runs Holdfast: its two services, all of it at once for a first look, and
// the tools around them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/alecthomas/kong"
)

// version is set when a release is built.
var version = "dev"

// cli is the whole command line.
type cli struct {
	Up        up           `cmd:"" help:"Run everything: a private PostgreSQL, two replicas of each service, some data to try."`
	Inventory inventoryCmd `cmd:"" help:"Stock reservations."`
	Chronos   chronosCmd   `cmd:"" help:"Cron as a service."`
	Migrate   migrateCmd   `cmd:"" help:"Bring a database to what this binary needs."`
	Keys      keysCmd      `cmd:"" help:"Make, list and revoke API keys."`
	Flashsale flashsale    `cmd:"" help:"Send 50,000 clicks for 100 units, and count who got one."`
	Receiver  receiverCmd  `cmd:"" help:"Receive webhooks and print them."`
	Version   versionCmd   `cmd:"" help:"Print the version."`

	LogLevel slog.Level `help:"debug, info, warn or error." default:"info" env:"HOLDFAST_LOG_LEVEL"`
}

// output is where a command writes for people; logs go to standard error.
type output struct {
	stdout, stderr io.Writer
}

// exitError ends the process with a code, and without a message of its own: the command has
// said everything.
type exitError int

// usageError says that a flag's value can't be: the command was called wrongly.
type usageError struct{ error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], output{os.Stdout, os.Stderr}))
}

// run is the process without its globals, and returns its exit code: 0 done, 1 failed, 2 called
// wrongly.
func run(ctx context.Context, args []string, out output) int {
	var c cli
	exited := -1
	parser, err := kong.New(&c, kong.Name("holdfast"),
		kong.Description("Reservations and schedules that hold, on nothing but PostgreSQL."),
		kong.Writers(out.stdout, out.stderr), kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Exit(func(code int) { exited = code }),
		kong.Bind(out))
	if err != nil {
		panic(err) // the struct above contradicts itself
	}
	parsed, err := parser.Parse(args)
	if exited >= 0 { // help was asked for
		return exited
	}
	if err != nil {
		fmt.Fprintf(out.stderr, "holdfast: %v\n", err)
		return 2
	}
	logger := slog.New(slog.NewTextHandler(out.stderr, &slog.HandlerOptions{Level: c.LogLevel}))
	slog.SetDefault(logger)
	parsed.Bind(logger)
	parsed.BindTo(ctx, (*context.Context)(nil))
	err = parsed.Run()
	var code exitError
	switch {
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, new(usageError)):
		fmt.Fprintf(out.stderr, "holdfast: %v\n", err)
		return 2
	case err != nil:
		fmt.Fprintf(out.stderr, "holdfast: %v\n", err)
		return 1
	}
	return 0
}

type versionCmd struct{}

func (versionCmd) Run(out output) error {
	text := "holdfast " + version
	if info, ok := debug.ReadBuildInfo(); ok {
		text += " " + info.GoVersion
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				text += " " + s.Value
			}
		}
	}
	_, err := fmt.Fprintln(out.stdout, text)
	return err
}
