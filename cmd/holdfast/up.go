package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"holdfast/chronos"
	"holdfast/internal/pg"
	"holdfast/internal/pg/cluster"
	"holdfast/inventory"
)

// up is a whole Holdfast for one machine.
type up struct {
	Data        string        `default:".holdfast" env:"HOLDFAST_DATA" help:"Folder of the private PostgreSQL." type:"path"`
	BasePort    int           `help:"Inventory at P and P+1, Chronos at P+10 and P+11, the receiver at P+15, PostgreSQL at P+20. Default: 8080, and 5433 for PostgreSQL." placeholder:"P"`
	DatabaseURL string        `env:"DATABASE_URL" help:"Use this database for both services, and start no PostgreSQL." placeholder:"URL"`
	Drain       time.Duration `default:"30s" help:"How long what is in flight may take to end."`
}

const (
	defaultBasePort     = 8080
	defaultPostgresPort = 5433
	allowLoopback       = "127.0.0.0/8,::1/128"
	readyTimeout        = 30 * time.Second
)

// addresses is where everything is.
type addresses struct {
	inventory, chronos [2]string
	receiver           string
	postgresPort       int
}

func (a addresses) replicas() []string {
	return []string{a.inventory[0], a.inventory[1], a.chronos[0], a.chronos[1]}
}

func (u up) addresses() (addresses, error) {
	base, postgres := u.BasePort, u.BasePort+20
	if base == 0 {
		base, postgres = defaultBasePort, defaultPostgresPort
	}
	if base < 1 || base+20 > 65535 {
		return addresses{}, usage("--base-port: must be from 1 to %d, not %d", 65535-20, u.BasePort)
	}
	at := func(offset int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(base+offset)) }
	return addresses{
		inventory: [2]string{at(0), at(1)}, chronos: [2]string{at(10), at(11)}, receiver: at(15), postgresPort: postgres,
	}, nil
}

// Run starts everything in its order, says where it is, and stops it in the opposite order
// when ctx ends. Told to stop while it starts, it stops what has been started; that is no failure.
func (u up) Run(ctx context.Context, out output) error {
	at, err := u.addresses()
	if err != nil {
		return err
	}
	err = u.run(ctx, at, out)
	if ctx.Err() != nil && !errors.Is(err, errStop) {
		return nil
	}
	return err
}

// errStop marks what went wrong while stopping, when being told to stop is no excuse.
var errStop = errors.New("not stopped cleanly")

func (u up) run(ctx context.Context, at addresses, out output) (err error) {
	if u.Drain < 0 {
		return usage("--drain: can't be negative")
	}
	say := &speaker{to: out.stdout}
	for _, address := range at.replicas() {
		if err := checkFree(address); err != nil {
			return err
		}
	}
	receiverListener, err := net.Listen("tcp", at.receiver)
	if err != nil {
		return fmt.Errorf("receiver: %w; choose other ports with --base-port", err)
	}
	defer func() { _ = receiverListener.Close() }()

	inventoryURL, chronosURL := u.DatabaseURL, u.DatabaseURL
	exited := make(<-chan struct{})
	if u.DatabaseURL == "" {
		say.line("starting PostgreSQL in %s", u.Data)
		private, startErr := cluster.Start(ctx, cluster.Config{Dir: u.Data, Port: at.postgresPort, Progress: out.stdout})
		if startErr != nil {
			return startErr // not err, which the function below must reach
		}
		defer func() {
			if stopErr := private.Stop(); stopErr != nil {
				err = errors.Join(err, fmt.Errorf("%w: PostgreSQL: %w", errStop, stopErr))
			}
			say.line("stopped")
		}()
		exited = private.Exited()
		for _, service := range []string{"inventory", "chronos"} {
			if err := private.EnsureDatabase(ctx, service, service, service); err != nil {
				return err
			}
		}
		inventoryURL, chronosURL = private.URL("inventory", "inventory", "inventory"), private.URL("chronos", "chronos", "chronos")
	}
	if err := pg.Migrate(ctx, inventoryURL, inventory.Schema()); err != nil {
		return err
	}
	if err := pg.Migrate(ctx, chronosURL, chronos.Schema()); err != nil {
		return err
	}
	if err := seedStock(ctx, inventoryURL); err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	// The receiver outlives the replicas, which deliver to it while they drain.
	receiving, stopReceiving := context.WithCancel(context.WithoutCancel(ctx))
	received := make(chan error, 1)
	go func() { received <- newReceiver(nil).serve(receiving, receiverListener) }()
	defer func() { stopReceiving(); err = errors.Join(err, <-received) }()

	all, ctx := errgroup.WithContext(ctx)
	for _, r := range u.replicas(at, inventoryURL, chronosURL) {
		all.Go(func() error { return r.supervise(ctx, u.Drain, say) })
	}
	all.Go(func() error {
		select {
		case <-exited:
			if ctx.Err() == nil {
				return fmt.Errorf("PostgreSQL ended; its log is in %s", u.Data)
			}
		case <-ctx.Done():
			say.line("draining")
		}
		return nil
	})
	all.Go(func() error {
		if err := u.welcome(ctx, at, say); err != nil && ctx.Err() == nil {
			return err
		}
		return nil
	})
	return all.Wait()
}

func (u up) replicas(at addresses, inventoryURL, chronosURL string) []replica {
	ours := []string{"HOLDFAST_LOG_LEVEL=warn"}
	if u.DatabaseURL == "" { // then a session URL in the environment is of some other database
		ours = append(ours, "SESSION_DATABASE_URL=")
	}
	var replicas []replica
	for i := range 2 {
		replicas = append(replicas,
			replica{
				name: fmt.Sprintf("inventory %d", i+1),
				args: []string{"inventory", "serve", "--auth=off", "--listen", at.inventory[i], "--drain", u.Drain.String(), "--allow-targets", allowLoopback},
				env:  append([]string{"DATABASE_URL=" + inventoryURL}, ours...),
			},
			replica{
				name: fmt.Sprintf("chronos %d", i+1),
				args: []string{"chronos", "serve", "--auth=off", "--listen", at.chronos[i], "--drain", u.Drain.String(), "--allow-targets", allowLoopback},
				env:  append([]string{"DATABASE_URL=" + chronosURL}, ours...),
			})
	}
	return replicas
}

func checkFree(address string) error {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("%w; stop what uses it, or choose other ports with --base-port", err)
	}
	return ln.Close()
}

// seedStock makes what a newcomer tries first, unless it is there.
func seedStock(ctx context.Context, databaseURL string) error {
	pool, err := pg.OpenPool(ctx, databaseURL, pg.PoolOptions{MaxConns: 2, Name: "holdfast seed"})
	if err != nil {
		return err
	}
	defer pool.Close()
	clock, err := pg.NewClock(ctx, pool)
	if err != nil {
		return err
	}
	store := inventory.NewStore(pool, clock, inventory.Options{})
	caller := inventory.Caller{Tenant: "default", Actor: "seed"}
	if err := store.Seed(ctx, caller, "FLASH-10", "Ten of something good", 10); err != nil {
		return err
	}
	return store.Seed(ctx, caller, "BULK-5000", "Five thousand of something else", 5000)
}

// welcome waits until all replicas are ready, makes the first job and says what to do next.
func (u up) welcome(ctx context.Context, at addresses, say *speaker) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for _, address := range at.replicas() {
		if err := awaitReady(ctx, "http://"+address+"/readyz"); err != nil {
			return fmt.Errorf("%s isn't ready: %w", address, err)
		}
	}
	if err := seedJob(ctx, "http://"+at.chronos[0], "http://"+at.receiver); err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	postgres := "your own, from DATABASE_URL"
	if u.DatabaseURL == "" {
		postgres = fmt.Sprintf("127.0.0.1:%d  (databases and roles inventory and chronos, password = name)", at.postgresPort)
	}
	say.line(`
  Inventory   http://%s  http://%s
  Chronos     http://%s  http://%s
  Receiver    http://%s  (what the job "hello" delivers, every 10 s)
  PostgreSQL  %s

Try:
  curl -s http://%s/v1/reservations -d '{"lines": [{"sku": "FLASH-10", "quantity": 3}]}'

Ctrl-C drains and stops all.`, at.inventory[0], at.inventory[1], at.chronos[0], at.chronos[1], at.receiver, postgres, at.inventory[0])
	return nil
}

func awaitReady(ctx context.Context, url string) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		status, err := request(ctx, http.MethodGet, url, "")
		if err == nil && status == http.StatusOK {
			return nil
		}
		select {
		case <-ctx.Done():
			if err == nil {
				err = fmt.Errorf("status %d", status)
			}
			return err
		case <-tick.C:
		}
	}
}

// seedJob makes a job whose runs are seen at once, unless there is one of that name.
func seedJob(ctx context.Context, chronosURL, receiverURL string) error {
	job := chronosURL + "/v1/jobs/hello"
	if status, err := request(ctx, http.MethodGet, job, ""); err != nil || status != http.StatusNotFound {
		return err
	}
	body := fmt.Sprintf(`{"schedule": {"every": "10s"}, "target": {"webhook": {"url": "%s/hello", "body": {"hello": "world"}}}}`, receiverURL)
	status, err := request(ctx, http.MethodPut, job, body)
	if err == nil && status != http.StatusCreated {
		err = fmt.Errorf("PUT %s: status %d", job, status)
	}
	return err
}

func request(ctx context.Context, method, url, body string) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewBufferString(body))
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	return res.StatusCode, res.Body.Close()
}
