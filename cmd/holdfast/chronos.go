package main

import (
	"context"
	"log/slog"
	"time"

	"holdfast/chronos"
	"holdfast/chronos/api"
	"holdfast/web"
	"holdfast/webhook"
)

type chronosCmd struct {
	Serve  chronosServe  `cmd:"" help:"Run one replica." set:"listen=127.0.0.1:8090"`
	Work   chronosWork   `cmd:"" help:"Run a command for each run of a queue."`
	Apply  chronosApply  `cmd:"" help:"Make the jobs what a folder of files says."`
	Export chronosExport `cmd:"" help:"Write jobs, calendars and monitors as files for apply."`
}

type chronosServe struct {
	serving
	AllowTargets string        `env:"HOLDFAST_ALLOW_TARGETS" help:"Loopback, private and similar address ranges that jobs may call, as in 127.0.0.0/8,::1/128." placeholder:"CIDR,…"`
	Lease        time.Duration `default:"15s" help:"How long a delivery's lease lasts unless it is renewed: after a crash, its runs are delivered again so much later."`
	Concurrency  int           `default:"1024" help:"Deliveries at once."`
	Keep         time.Duration `default:"720h" help:"How long finished runs are kept."`
}

func (c chronosServe) Run(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	if c.Lease < time.Second || c.Concurrency < 1 || c.Keep < 24*time.Hour {
		return usage("--lease must be at least 1s, --concurrency at least 1 and --keep at least 24h")
	}
	allow, err := webhook.ParsePrefixes(c.AllowTargets)
	if err != nil {
		return usage("--allow-targets: %w", err)
	}
	schema := chronos.Schema()
	pool, err := c.open(ctx, "holdfast chronos", schema)
	if err != nil {
		return err
	}
	defer pool.Close()
	ln, err := c.listen()
	if err != nil {
		return err
	}
	httpConfig := c.httpConfig(pool, schema)
	service, err := chronos.New(ctx, chronos.Config{
		Pool: pool, SessionURL: c.sessionURL(), Allow: allow, Lease: c.Lease, Drain: c.Drain,
		Concurrency: c.Concurrency, Keep: c.Keep, Log: slog.Default(), Metrics: httpConfig.Metrics,
	})
	if err != nil {
		return err
	}
	face := api.New(service, httpConfig)
	web.Chronos(face, service.Store(), httpConfig.Keys)
	return c.serve(ctx, face, ln, service.Run)
}
