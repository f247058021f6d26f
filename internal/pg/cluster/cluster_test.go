package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

// ownerEnv makes this test program a process that owns a cluster until it is killed.
const ownerEnv = "HOLDFAST_TEST_CLUSTER_OWNER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(ownerEnv); dir != "" {
		c, err := Start(context.Background(), Config{Dir: dir})
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		fmt.Println(c.SuperuserURL("postgres"))
		select {}
	}
	os.Exit(m.Run())
}

// privateDir is below a folder that only its owner may enter, as a clone in a private folder is.
func privateDir(t *testing.T) string {
	t.Helper()
	closed := filepath.Join(t.TempDir(), "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(closed, ".holdfast")
}

func exec1(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func TestDataOutlivesStopAndStart(t *testing.T) {
	t.Parallel()
	cfg := Config{Dir: privateDir(t)}
	c, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.EnsureDatabase(t.Context(), "shop", "shop", "it's"); err != nil {
		t.Fatal(err)
	}
	exec1(t, c.URL("shop", "it's", "shop"), "CREATE SCHEMA s; CREATE TABLE s.kept ()")
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	c, err = Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Stop() }()
	if err := c.EnsureDatabase(t.Context(), "shop", "shop", "it's"); err != nil {
		t.Errorf("making what exists: %v", err)
	}
	exec1(t, c.URL("shop", "it's", "shop"), "TABLE s.kept")
}

func TestOneOwnerPerFolder(t *testing.T) {
	t.Parallel()
	cfg := Config{Dir: privateDir(t)}
	c, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Stop() }()
	if _, err := Start(t.Context(), cfg); !errors.Is(err, errOwned) {
		t.Errorf("a second owner: %v, want %v", err, errOwned)
	}
	exec1(t, c.SuperuserURL("postgres"), "SELECT 1")
}

func TestATakenPortIsNamed(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	port := l.Addr().(*net.TCPAddr).Port
	_, err = Start(t.Context(), Config{Dir: privateDir(t), Port: port})
	if !errors.Is(err, errPortTaken) || !strings.Contains(err.Error(), fmt.Sprint(port)) {
		t.Errorf("error is %v, want the taken port %d", err, port)
	}
}

// The owner is killed outright: its server goes with it, and the next owner finds everything
// that was committed, again and again.
func TestAKilledOwnerLeavesARecoverableCluster(t *testing.T) {
	t.Parallel()
	dir := privateDir(t)
	for round := range 3 {
		owner := exec.Command(os.Args[0])
		owner.Env = append(os.Environ(), ownerEnv+"="+dir)
		out, err := owner.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := owner.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		url := strings.TrimSpace(line)
		if err != nil || !strings.HasPrefix(url, "postgres://") {
			t.Fatalf("the owner says %q, %v", line, err)
		}
		if round == 0 {
			exec1(t, url, "CREATE TABLE rounds (n int)")
		}
		exec1(t, url, fmt.Sprintf("INSERT INTO rounds VALUES (%d)", round))
		if err := owner.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = owner.Wait()
	}
	c, err := Start(t.Context(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Stop() }()
	exec1(t, c.SuperuserURL("postgres"), "SELECT 1 / (SELECT (count(*) = 3)::int FROM rounds)")
}

func TestAnInterruptedInitIsMadeAgain(t *testing.T) {
	t.Parallel()
	dir := privateDir(t)
	if err := os.MkdirAll(filepath.Join(dir, "data", "base"), 0o700); err != nil {
		t.Fatal(err)
	}
	c, err := Start(t.Context(), Config{Dir: dir, Volatile: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
}

func TestNoServerIsOneClearLine(t *testing.T) {
	t.Setenv("HOLDFAST_POSTGRES_BIN", t.TempDir())
	_, err := Start(t.Context(), Config{Dir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "HOLDFAST_POSTGRES_BIN") {
		t.Errorf("error is %v", err)
	}
}
