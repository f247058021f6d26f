package system

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

// stack is a whole Holdfast, started by `up`.
type stack struct {
	*process
	base int
}

// port gives a replica as a client sees it.
func (s stack) port(offset int) service {
	return service{process: s.process, url: fmt.Sprintf("http://127.0.0.1:%d", s.base+offset)}
}

func (s stack) databaseURL(name string) string {
	return fmt.Sprintf("postgres://%s:%s@127.0.0.1:%d/%s?sslmode=disable", name, name, s.base+20, name)
}

// freeBase finds a base port whose stack fits.
func freeBase(t *testing.T) int {
	t.Helper()
	for range 100 {
		base := 10_000 + rand.IntN(20_000) // below the ports that outgoing connections get
		fits := true
		for _, offset := range []int{0, 1, 10, 11, 15, 20} {
			ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", base+offset))
			if err != nil {
				fits = false
				break
			}
			_ = ln.Close()
		}
		if fits {
			return base
		}
	}
	t.Fatal("no free ports")
	return 0
}

func up(t *testing.T, data string, base int) stack {
	t.Helper()
	s := stack{start(t, "up", []string{"DATABASE_URL="}, "up", "--data", data, fmt.Sprintf("--base-port=%d", base)), base}
	s.awaitLine("Ctrl-C drains and stops all")
	return s
}

// pidOf finds a replica's process by its address.
func pidOf(t *testing.T, address string) int {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range dirs {
		content, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(content), "serve\x00") && strings.Contains(string(content), address) {
			var pid int
			if _, err := fmt.Sscanf(file, "/proc/%d/", &pid); err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatalf("no replica on %s", address)
	return 0
}

func TestUp(t *testing.T) {
	t.Parallel()
	// Closed to everyone but its owner, as a clone in a private folder is.
	data := filepath.Join(t.TempDir(), "private", ".holdfast")
	if err := os.MkdirAll(filepath.Dir(data), 0o700); err != nil {
		t.Fatal(err)
	}
	s := up(t, data, freeBase(t))

	// The seeds are there, and the first job delivers.
	var k sku
	s.port(1).call(200, "GET", "/v1/skus/BULK-5000", "", &k)
	if k.Available != 5000 {
		t.Errorf("BULK-5000 has %d available", k.Available)
	}
	s.port(0).call(201, "POST", "/v1/reservations", `{"lines": [{"sku": "FLASH-10", "quantity": 3}], "ttl": "1h"}`, nil)
	s.port(1).call(200, "GET", "/v1/skus/FLASH-10", "", &k)
	if k.Available != 7 {
		t.Errorf("FLASH-10 has %d available", k.Available)
	}
	await(t, func() bool {
		var got struct{ Total int }
		s.port(15).call(200, "GET", "/", "", &got)
		return got.Total > 0
	})

	// A replica that dies is started again, with a line that says so.
	if err := syscall.Kill(pidOf(t, fmt.Sprintf("127.0.0.1:%d", s.base+1)), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.awaitLine(`inventory 2 ended \(signal: killed\), starting it again`)
	await(t, func() bool { status, _, _ := s.port(1).try("GET", "/readyz", ""); return status == 200 })

	// A second one on the same data, or on the same ports, is refused and does no harm.
	for name, c := range map[string]struct {
		data string
		base int
		want string
	}{
		"data":  {data, freeBase(t), "another holdfast is using it"},
		"ports": {filepath.Join(t.TempDir(), "d"), s.base, "address already in use"},
	} {
		second := start(t, "second up", []string{"DATABASE_URL="}, "up", "--data", c.data, fmt.Sprintf("--base-port=%d", c.base))
		if code := second.wait(); code != 1 {
			t.Errorf("same %s: exit code %d, want 1", name, code)
		}
		second.awaitLine(c.want)
	}

	// Killed outright, it leaves nothing running, and the next one recovers the data.
	s.kill()
	s = up(t, data, s.base)
	s.port(0).call(200, "GET", "/v1/skus/FLASH-10", "", &k)
	if k.Available != 7 {
		t.Errorf("after a crash: %d available, want 7", k.Available)
	}

	// PostgreSQL's roles own their databases and nothing else.
	conn, err := pgx.Connect(t.Context(), s.databaseURL("inventory"))
	if err != nil {
		t.Fatal(err)
	}
	var super bool
	var owns int
	err = conn.QueryRow(t.Context(), `SELECT rolsuper OR rolcreatedb OR rolcreaterole, (SELECT count(*) FROM pg_database WHERE datdba = r.oid)
		FROM pg_roles r WHERE rolname = current_user`).Scan(&super, &owns)
	if err != nil || super || owns != 1 {
		t.Errorf("the role inventory: super %t, owns %d databases, %v", super, owns, err)
	}
	_ = conn.Close(t.Context())
	verified(t, s.databaseURL("inventory"))

	// Ctrl-C drains and stops all.
	s.signal(syscall.SIGINT)
	if code := s.wait(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	for _, offset := range []int{0, 1, 10, 11, 15, 20} {
		if ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", s.base+offset)); err != nil {
			t.Errorf("still in use: %v", err)
		} else {
			_ = ln.Close()
		}
	}
}
