// Package cluster runs a private PostgreSQL for people who have no server: for
// `holdfast up`, whose data must survive anything, and for tests, whose data must not.
//
// One process owns a data folder: it holds a file lock for as long as it lives, and the
// server dies with it. When the owner is killed, the kernel stops the server at once, and
// the next owner's start is an ordinary crash recovery; a server that has outlived its
// owner all the same is stopped first, so that there are never two on one folder.
//
// PostgreSQL refuses to run as root. When the owner is root, the server runs as the user
// postgres, or nobody, with the one capability to pass through folders that are closed to
// that user, so that a checkout in a private folder works.
package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Config says which cluster to run.
type Config struct {
	Dir      string    // holds everything: the data, the lock, the log and the superuser's password
	Port     int       // on 127.0.0.1; 0: a free one
	Volatile bool      // for tests: no flushing, many connections, a crash loses everything
	Progress io.Writer // a line for each slow step; nil: none
	Settings []string  // more of the server's settings, as name=value; they win over what is set here
}

// Cluster is a running server. Stop it before the process ends.
type Cluster struct {
	Port     int
	password string
	bin      string
	unlock   func()
	cmd      *exec.Cmd
	exited   chan struct{} // closed when the server has ended,
	err      error         // which says how
	log      string
}

const (
	superuser    = "holdfast"
	startTimeout = 60 * time.Second // crash recovery included
	stopTimeout  = 30 * time.Second
)

// Start makes the cluster if Dir has none, starts it and waits until it answers. It
// fails at once, naming the reason, when another process owns the folder, the port is
// taken, or no server is installed.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	if cfg.Progress == nil {
		cfg.Progress = io.Discard
	}
	bin, err := find(ctx, cfg.Progress)
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	unlock, err := tryLockFile(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("data folder %s: %w", dir, err)
	}
	c := &Cluster{Port: cfg.Port, bin: bin, unlock: unlock, log: filepath.Join(dir, "postgresql.log")}
	if err := c.start(ctx, cfg, dir); err != nil {
		unlock()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, cfg Config, dir string) error {
	who, err := serverUser()
	if err != nil {
		return err
	}
	data := filepath.Join(dir, "data")
	if err := stopOrphan(ctx, data); err != nil {
		return err
	}
	if err := c.loadPassword(filepath.Join(dir, "superuser-password")); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(data, "initialized")); err != nil {
		if err := c.initialize(ctx, who, data, cfg.Volatile); err != nil {
			return err
		}
	}
	if c.Port == 0 {
		// Another process may take the port between here and the server's start, so try a few.
		for attempt := 1; ; attempt++ {
			c.Port, err = freePort()
			if err == nil {
				err = c.run(ctx, who, data, cfg)
			}
			if err == nil || attempt == 5 || !errors.Is(err, errPortTaken) {
				return err
			}
		}
	}
	return c.run(ctx, who, data, cfg)
}

// initialize makes the data folder. The marker comes last: a folder without it is the
// rest of an interrupted initdb, and is made again.
func (c *Cluster) initialize(ctx context.Context, who *syscall.Credential, data string, volatile bool) error {
	if err := os.RemoveAll(data); err != nil {
		return err
	}
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	if who != nil {
		if err := os.Chown(data, int(who.Uid), int(who.Gid)); err != nil {
			return err
		}
	}
	args := []string{"-D", data, "-U", superuser, "--auth=scram-sha-256", "--pwfile=/dev/stdin", "--encoding=UTF8", "--locale=C", "--no-instructions"}
	if volatile {
		args = append(args, "--no-sync")
	}
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, "initdb"), args...)
	cmd.Stdin = strings.NewReader(c.password + "\n")
	cmd.Dir = "/"
	cmd.Env = serverEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who}
	asServer(cmd.SysProcAttr)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb in %s: %w: %s", data, err, bytes.TrimSpace(out))
	}
	return os.WriteFile(filepath.Join(data, "initialized"), nil, 0o600)
}

var errPortTaken = errors.New("port is taken")

// run starts the server and waits until it answers, or says why it doesn't.
func (c *Cluster) run(ctx context.Context, who *syscall.Credential, data string, cfg Config) error {
	if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port))); err != nil {
		return fmt.Errorf("PostgreSQL's port 127.0.0.1:%d: %w: %w", c.Port, errPortTaken, err)
	} else {
		_ = l.Close()
	}
	args := []string{
		"-D", data,
		"-c", "listen_addresses=127.0.0.1", "-c", "port=" + strconv.Itoa(c.Port),
		"-c", "unix_socket_directories=", "-c", "max_connections=300", "-c", "shared_buffers=256MB",
		"-c", "max_wal_size=2GB", "-c", "jit=off", "-c", "timezone=UTC", "-c", "log_timezone=UTC",
		"-c", "log_min_messages=fatal", "-c", "log_line_prefix=%m [%p] ",
	}
	if cfg.Volatile {
		args = append(args, "-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off",
			"-c", "shared_buffers=128MB", "-c", "autovacuum_naptime=10s")
	}
	for _, setting := range cfg.Settings {
		args = append(args, "-c", setting)
	}
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(filepath.Join(c.bin, "postgres"), args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = "/"
	cmd.Env = serverEnv()
	// A group of its own keeps a terminal's Ctrl-C from the server, which must outlive the replicas.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who, Setpgid: true}
	asServer(cmd.SysProcAttr)
	dieWithParent(cmd.SysProcAttr, syscall.SIGQUIT)

	c.cmd, c.exited = cmd, make(chan struct{})
	started := make(chan error)
	go func() {
		// The parent-death signal fires when the thread that started the server ends, so
		// this one is kept until the server has gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			c.err = cmd.Wait()
		}
		close(c.exited)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	return c.awaitAnswer(ctx)
}

func (c *Cluster) awaitAnswer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, c.SuperuserURL("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-c.exited:
			return fmt.Errorf("PostgreSQL ended while starting (%v), its log says:\n%s", c.err, tail(c.log))
		case <-ctx.Done():
			_ = c.Stop()
			return fmt.Errorf("PostgreSQL doesn't answer on 127.0.0.1:%d: %w", c.Port, err)
		case <-tick.C:
		}
	}
}

// Exited is closed when the server has ended, whoever ended it.
func (c *Cluster) Exited() <-chan struct{} { return c.exited }

// Stop ends all sessions and the server cleanly, and gives the folder free.
func (c *Cluster) Stop() error {
	defer c.unlock()
	select {
	case <-c.exited:
		return c.err
	default:
	}
	if err := c.cmd.Process.Signal(syscall.SIGINT); err != nil { // fast shutdown
		return err
	}
	select {
	case <-c.exited:
		return c.err
	case <-time.After(stopTimeout):
		_ = c.cmd.Process.Signal(syscall.SIGQUIT)
		<-c.exited
		return errors.New("PostgreSQL took too long to stop and was stopped at once; the next start recovers")
	}
}

// URL leads to a database of this cluster as the given role.
func (c *Cluster) URL(role, password, database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(role, password), Path: database,
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port)), RawQuery: "sslmode=disable",
	}
	return u.String()
}

// SuperuserURL leads to a database as the superuser, for making roles and databases.
func (c *Cluster) SuperuserURL(database string) string { return c.URL(superuser, c.password, database) }

// EnsureDatabase makes a login role and a database of its own unless they exist. The role
// owns that one database and nothing else.
func (c *Cluster) EnsureDatabase(ctx context.Context, database, role, password string) error {
	conn, err := pgx.Connect(ctx, c.SuperuserURL("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	roleID, databaseID := pgx.Identifier{role}.Sanitize(), pgx.Identifier{database}.Sanitize()
	var hasRole, hasDatabase bool
	err = conn.QueryRow(ctx, `
		SELECT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = $1),
		       EXISTS (SELECT 1 FROM pg_database WHERE datname = $2)`, role, database).Scan(&hasRole, &hasDatabase)
	if err != nil {
		return err
	}
	if !hasRole {
		quoted := "'" + strings.ReplaceAll(password, "'", "''") + "'"
		if _, err := conn.Exec(ctx, "CREATE ROLE "+roleID+" LOGIN PASSWORD "+quoted); err != nil {
			return fmt.Errorf("create role %s: %w", role, err)
		}
	}
	if !hasDatabase {
		if _, err := conn.Exec(ctx, "CREATE DATABASE "+databaseID+" OWNER "+roleID); err != nil {
			return fmt.Errorf("create database %s: %w", database, err)
		}
		if _, err := conn.Exec(ctx, "REVOKE ALL ON DATABASE "+databaseID+" FROM PUBLIC"); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) loadPassword(file string) error {
	kept, err := os.ReadFile(file)
	if err == nil && len(kept) > 0 {
		c.password = string(kept)
		return nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	random := make([]byte, 24)
	_, _ = rand.Read(random) // never fails
	c.password = hex.EncodeToString(random)
	return os.WriteFile(file, []byte(c.password), 0o600)
}

func serverEnv() []string { return []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"} }

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func tail(file string) string {
	content, _ := os.ReadFile(file)
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}
