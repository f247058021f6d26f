// Package pgtest gives every test a fresh, migrated database on a real PostgreSQL.
//
// A test program has one private cluster, started by the first test that needs it and
// ended by [Main]. A set of schemas is migrated once, into a template; each test gets a
// clone of it, owned by a role that owns databases and nothing else, so that no
// test leans on a superuser.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"holdfast/internal/pg"
	"holdfast/internal/pg/cluster"
)

const role = "tester"

// server is the test program's cluster, and what has been made on it.
var server struct {
	once    sync.Once
	cluster *cluster.Cluster
	err     error
	admin   *pgxpool.Pool

	mu        sync.Mutex
	templates map[string]*template
	databases int
}

type template struct {
	once sync.Once
	name string
	err  error
}

// Main runs the tests, ends the cluster and fails when a goroutine is left over. Call it
// from TestMain, with the *testing.M or something around it.
func Main(m interface{ Run() int }) {
	code := m.Run()
	if server.admin != nil {
		server.admin.Close()
	}
	if server.cluster != nil {
		_ = server.cluster.Stop()
		_ = os.RemoveAll(clusterDir())
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

const clusterDirPrefix = "holdfast-test-"

func clusterDir() string {
	return filepath.Join(os.TempDir(), clusterDirPrefix+strconv.Itoa(os.Getpid()))
}

// sweep removes what test programs left behind that were killed before they could.
func sweep() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), clusterDirPrefix+"*"))
	for _, dir := range dirs {
		pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), clusterDirPrefix))
		if err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			_ = os.RemoveAll(dir)
		}
	}
}

// DB is one test's database.
type DB struct {
	URL  string
	Pool *pgxpool.Pool // closed at the test's end
}

// New makes a database with the given schemas migrated, and drops it at the test's end.
// Without a server to run it on, the test fails.
func New(t testing.TB, schemas ...pg.Schema) *DB {
	t.Helper()
	ctx := context.Background()
	server.once.Do(startServer)
	if server.err != nil {
		t.Fatalf("no database to test on: %v", server.err)
	}
	from, err := templateOf(ctx, schemas)
	if err != nil {
		t.Fatalf("migrate the test database: %v", err)
	}
	name := newName()
	if err := createDatabase(ctx, name, from); err != nil {
		t.Fatalf("create the test database: %v", err)
	}
	db := &DB{URL: urlOf(name)}
	db.Pool, err = pg.OpenPool(ctx, db.URL, pg.PoolOptions{MaxConns: 12})
	if err != nil {
		t.Fatalf("open the test database: %v", err)
	}
	t.Cleanup(func() {
		db.Pool.Close()
		if _, err := server.admin.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("drop the test database: %v", err)
		}
	})
	return db
}

// Exec runs a statement that must succeed.
func (db *DB) Exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	if _, err := db.Pool.Exec(context.Background(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// Scan reads the one row that a query must give.
func (db *DB) Scan(t testing.TB, sql string, args []any, into ...any) {
	t.Helper()
	if err := db.Pool.QueryRow(context.Background(), sql, args...).Scan(into...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// SetAllowConnections says whether anybody may connect to the database, and ends all its
// sessions when not: the database "goes away" for this test alone.
func (db *DB) SetAllowConnections(t testing.TB, allowed bool) {
	t.Helper()
	ctx := context.Background()
	name := pgx.Identifier{db.Pool.Config().ConnConfig.Database}.Sanitize()
	if _, err := server.admin.Exec(ctx, fmt.Sprintf("ALTER DATABASE %s ALLOW_CONNECTIONS %t", name, allowed)); err != nil {
		t.Fatal(err)
	}
	if !allowed {
		_, err := server.admin.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1",
			db.Pool.Config().ConnConfig.Database)
		if err != nil {
			t.Fatal(err)
		}
	}
}

func startServer() {
	ctx := context.Background()
	server.templates = map[string]*template{}
	sweep()
	_ = os.RemoveAll(clusterDir()) // of a killed program that had this one's number
	server.cluster, server.err = cluster.Start(ctx, cluster.Config{Dir: clusterDir(), Volatile: true, Progress: os.Stderr})
	if server.err != nil {
		return
	}
	server.admin, server.err = pg.OpenPool(ctx, server.cluster.SuperuserURL("postgres"), pg.PoolOptions{MaxConns: 4})
	if server.err != nil {
		return
	}
	_, server.err = server.admin.Exec(ctx, "CREATE ROLE "+role+" LOGIN PASSWORD '"+role+"'")
}

func urlOf(database string) string { return server.cluster.URL(role, role, database) }

func newName() string {
	server.mu.Lock()
	defer server.mu.Unlock()
	server.databases++
	return fmt.Sprintf("test_%d", server.databases)
}

func createDatabase(ctx context.Context, name, from string) error {
	_, err := server.admin.Exec(ctx, fmt.Sprintf("CREATE DATABASE %s OWNER %s TEMPLATE %s", name, role, from))
	return err
}

// templateOf returns the database that has these schemas migrated, making it for the first who asks.
func templateOf(ctx context.Context, schemas []pg.Schema) (string, error) {
	var names []string
	for _, s := range schemas {
		names = append(names, s.Name)
	}
	key := strings.Join(names, " ")
	server.mu.Lock()
	tmpl := server.templates[key]
	if tmpl == nil {
		tmpl = &template{}
		server.templates[key] = tmpl
	}
	server.mu.Unlock()
	tmpl.once.Do(func() {
		tmpl.name = newName() + "_template"
		if tmpl.err = createDatabase(ctx, tmpl.name, "template0"); tmpl.err != nil {
			return
		}
		for _, s := range schemas {
			if tmpl.err = pg.Migrate(ctx, urlOf(tmpl.name), s); tmpl.err != nil {
				return
			}
		}
	})
	return tmpl.name, tmpl.err
}
