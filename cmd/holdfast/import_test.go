package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"holdfast/internal/httpapi"
	"holdfast/internal/pg"
	"holdfast/internal/pg/pgtest"
	"holdfast/inventory"
	"holdfast/inventory/api"
)

func inventoryReplica(t *testing.T) (address string, db *pgtest.DB) {
	t.Helper()
	db = pgtest.New(t, inventory.Schema())
	clock, err := pg.NewClock(t.Context(), db.Pool)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(api.New(inventory.NewStore(db.Pool, clock, inventory.Options{}), db.Pool, httpapi.Config{Log: slog.New(slog.DiscardHandler)}))
	t.Cleanup(server.Close)
	return server.URL, db
}

func fileOf(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestImportFile(t *testing.T) {
	t.Parallel()
	replica, db := inventoryReplica(t)
	good := fileOf(t, "good.csv", "sku,name,delta\nMUG,Mug,5\nCUP,Cup,3\n")
	code, stdout, stderr := holdfast(t, "inventory", "import", good, "--url", replica)
	if code != 0 || !strings.Contains(words(stdout), "new SKUs 2") {
		t.Errorf("%d %q %q", code, stdout, stderr)
	}
	bad := fileOf(t, "bad.jsonl", `{"sku": "MUG", "delta": -6}`+"\n"+`{"sku": "CUP", "delta": 1}`+"\n")
	code, stdout, stderr = holdfast(t, "inventory", "import", bad, "--url", replica)
	if code != 1 || !strings.Contains(stderr, "line 1: MUG: -1 would be left, and 0 are held (below_held)") || !strings.Contains(words(stdout), "bad 1 ") {
		t.Errorf("%d %q %q", code, stdout, stderr)
	}
	code, stdout, _ = holdfast(t, "inventory", "import", bad, "--url", replica, "--json", "--dry-run")
	var answer struct {
		Errors []struct{ Line int }
		DryRun bool `json:"dry_run"`
	}
	if err := json.Unmarshal([]byte(stdout), &answer); err != nil || code != 1 || len(answer.Errors) != 1 || !answer.DryRun {
		t.Errorf("%d %q", code, stdout)
	}
	var onHand int
	db.Scan(t, "SELECT sum(on_hand) FROM inventory.stock", nil, &onHand)
	if onHand != 9 {
		t.Errorf("%d on hand, want 9", onHand)
	}
}

func TestImportFileRefused(t *testing.T) {
	t.Parallel()
	replica, _ := inventoryReplica(t)
	header := fileOf(t, "header.csv", "sku,amount\nMUG,5\n")
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no such file":   {[]string{"nowhere.csv", "--url", replica}, 1, "no such file"},
		"what format":    {[]string{"stock.txt", "--url", replica}, 2, "--format"},
		"not an address": {[]string{header, "--url", "shop"}, 2, "--url"},
		"a bad header":   {[]string{header, "--url", replica}, 1, `unknown column "amount"`},
		"a bad location": {[]string{header, "--url", replica, "--location", "a b"}, 1, "422"},
	} {
		code, _, stderr := holdfast(t, append([]string{"inventory", "import"}, c.args...)...)
		if code != c.code || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: exit code %d, want %d: %q, want %q", name, code, c.code, stderr, c.want)
		}
	}
	code, stdout, _ := holdfast(t, "inventory", "import", header, "--url", replica, "--json")
	if code != 1 || !json.Valid([]byte(stdout)) || !strings.Contains(stdout, "amount") {
		t.Errorf("%d %q", code, stdout)
	}
}

// TestImportFileGoesOn has the connection to the replica cut in the middle of the first attempt.
func TestImportFileGoesOn(t *testing.T) {
	t.Parallel()
	replica, db := inventoryReplica(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	var connections atomic.Int64
	go func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", strings.TrimPrefix(replica, "http://"))
			if err != nil {
				_ = client.Close()
				return
			}
			limit := int64(1 << 40)
			if connections.Add(1) == 1 {
				limit = 20_000
			}
			go func() { _, _ = io.Copy(client, server); _ = client.Close() }()
			go func() { _, _ = io.CopyN(server, client, limit); _ = server.Close(); _ = client.Close() }()
		}
	}()
	const rows = 10_000
	file := fileOf(t, "many.csv", "sku,delta\n"+strings.Repeat("MUG,1\n", rows))
	code, stdout, stderr := holdfast(t, "inventory", "import", file, "--url", "http://"+ln.Addr().String())
	var onHand int
	db.Scan(t, "SELECT sum(on_hand) FROM inventory.stock", nil, &onHand)
	if code != 0 || onHand != rows || connections.Load() < 2 {
		t.Errorf("%d, %d on hand, %d connections: %q %q", code, onHand, connections.Load(), stdout, stderr)
	}
}

// words is a table without its alignment.
func words(text string) string { return strings.Join(strings.Fields(text), " ") }
