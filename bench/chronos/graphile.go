package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed graphile/package.json graphile/work.mjs
var graphileFiles embed.FS

const (
	graphileVersion  = "0.18.0"
	graphileDatabase = "graphile"
)

// fetchGraphile installs graphile-worker into the stage's folder. Without npm or a registry its rows are left out.
func (s *stage) fetchGraphile(ctx context.Context) error {
	node, err := exec.CommandContext(ctx, "node", "--version").Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "no Node.js is installed: graphile-worker is left out")
		return nil
	}
	dir := filepath.Join(s.dir, "graphile")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"package.json", "work.mjs"} {
		content, err := graphileFiles.ReadFile("graphile/" + name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	install := exec.CommandContext(ctx, "npm", "install", "--no-audit", "--no-fund", "--silent")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "graphile-worker can't be fetched, its rows are left out: %v: %s\n", err, out)
		return nil
	}
	s.graphile, s.version.Graphile, s.version.Node = dir, graphileVersion, strings.TrimSpace(string(node))
	return nil
}

// node runs the script and returns what it says.
func (s *stage) node(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "node", append([]string{"work.mjs"}, args...)...)
	cmd.Dir = s.graphile
	cmd.Env = append(os.Environ(), "NODE_ENV=production", "NO_LOG_SUCCESS=1")
	var failed bytes.Buffer
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("graphile-worker: %w: %s", err, failed.Bytes())
	}
	return out, nil
}

// graphileQueue is graphile-worker's, in a process of Node.js.
type graphileQueue struct {
	stage *stage
	url   string
	pool  *pgxpool.Pool
	drop  func() error
}

func (s *stage) newGraphileQueue(ctx context.Context) (queued, error) {
	url, drop, err := s.database(ctx, graphileDatabase)
	if err != nil {
		return nil, err
	}
	if _, err := s.node(ctx, "migrate", url, "0"); err != nil {
		return nil, err
	}
	pool, err := pgxpool.New(ctx, url)
	return &graphileQueue{s, url, pool, drop}, err
}

func (q *graphileQueue) fill(ctx context.Context, n int) error {
	_, err := q.pool.Exec(ctx, `SELECT count(*) FROM graphile_worker.add_jobs(
		ARRAY(SELECT ('noop', '{}', NULL, NULL, NULL, NULL, NULL, NULL)::graphile_worker.job_spec FROM generate_series(1, $1::int)))`, n)
	if err != nil {
		return err
	}
	return q.stage.settle(ctx, q.pool, "graphile_worker._private_jobs")
}

func (q *graphileQueue) drain(ctx context.Context, n int) (float64, error) {
	out, err := q.stage.node(ctx, "work", q.url, strconv.Itoa(n))
	if err != nil {
		return 0, err
	}
	var said struct {
		Done    int
		Seconds float64
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &said); err != nil {
		return 0, fmt.Errorf("graphile-worker said %q: %w", out, err)
	}
	var left int
	if err := q.pool.QueryRow(ctx, "SELECT count(*) FROM graphile_worker._private_jobs").Scan(&left); err != nil {
		return 0, err
	}
	if left > 0 || said.Done != n {
		return 0, fmt.Errorf("graphile-worker did %d of %d and left %d", said.Done, n, left)
	}
	return said.Seconds, nil
}

func (q *graphileQueue) close() error { q.pool.Close(); return q.drop() }

func (q *graphileQueue) database() string { return graphileDatabase }
