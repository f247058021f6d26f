package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/internal/pg/pgtest"
	"holdfast/inventory"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// holdfast runs a command line in this process.
func holdfast(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	// What should be refused may serve instead: then it ends, and with the wrong code.
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	code = run(ctx, args, output{&out, &err})
	return code, out.String(), err.String()
}

const nowhere = "--database-url=postgres://user:secret@127.0.0.1:1/shop"

func TestWhatCannotWorkIsSaidAtOnce(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	migrated := "--database-url=" + pgtest.New(t, inventory.Schema()).URL
	empty := "--database-url=" + pgtest.New(t).URL
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no command":          {nil, 2, "expected one of"},
		"unknown command":     {[]string{"frobnicate"}, 2, "frobnicate"},
		"unknown flag":        {[]string{"migrate", "--fast"}, 2, "--fast"},
		"wrong URL":           {[]string{"migrate", "--database-url=mysql://x"}, 1, "postgres://"},
		"migrate nowhere":     {[]string{"migrate", nowhere}, 1, "can't reach the database at 127.0.0.1:1"},
		"serve nowhere":       {[]string{"inventory", "serve", nowhere}, 1, "can't reach the database at 127.0.0.1:1"},
		"chronos nowhere":     {[]string{"chronos", "serve", nowhere}, 1, "can't reach the database at 127.0.0.1:1"},
		"verify nowhere":      {[]string{"inventory", "verify", nowhere}, 1, "can't reach the database at 127.0.0.1:1"},
		"unmigrated":          {[]string{"inventory", "serve", empty}, 1, "run: holdfast migrate"},
		"unmigrated chronos":  {[]string{"chronos", "serve", migrated}, 1, "run: holdfast migrate"},
		"taken port":          {[]string{"inventory", "serve", migrated, "--listen=" + taken.Addr().String()}, 1, "address already in use"},
		"auth off for all":    {[]string{"inventory", "serve", migrated, "--auth=off", "--listen=0.0.0.0:0"}, 1, "loopback"},
		"bad auth":            {[]string{"inventory", "serve", migrated, "--auth=maybe"}, 2, "auth"},
		"bad targets":         {[]string{"chronos", "serve", migrated, "--allow-targets=127.0.0.0/99"}, 2, "127.0.0.0/99"},
		"short hold":          {[]string{"inventory", "serve", migrated, "--max-hold=-5m"}, 2, "--max-hold"},
		"short timeout":       {[]string{"inventory", "serve", migrated, "--request-timeout=0s"}, 2, "--request-timeout"},
		"key without scope":   {[]string{"keys", "create", migrated, "--service=inventory", "--tenant=acme"}, 2, "--scope"},
		"key of no scope":     {[]string{"keys", "create", migrated, "--service=inventory", "--tenant=acme", "--scope=root"}, 2, "read, write or admin"},
		"key of no tenant":    {[]string{"keys", "create", migrated, "--service=inventory", "--tenant=A Corp", "--scope=read"}, 1, "tenant"},
		"key of no service":   {[]string{"keys", "list", migrated, "--service=payments"}, 2, "service"},
		"revoke a word":       {[]string{"keys", "revoke", migrated, "--service=inventory", "it"}, 2, "isn't a key's id"},
		"revoke a stranger":   {[]string{"keys", "revoke", migrated, "--service=inventory", "019400c0-0000-7000-8000-000000000000"}, 1, "no such API key"},
		"sale of nothing":     {[]string{"flashsale", "--units=0"}, 2, "--units"},
		"sale without clicks": {[]string{"flashsale", "--clicks=-1"}, 2, "--clicks"},
		"sale at a word":      {[]string{"flashsale", "--url=shop"}, 2, "--url"},
		"sale nowhere":        {[]string{"flashsale", "--url=http://127.0.0.1:1"}, 1, "connection refused"},
		"high ports":          {[]string{"up", "--base-port=65530"}, 2, "--base-port"},
		"negative drain":      {[]string{"up", "--drain=-1s"}, 2, "--drain"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := holdfast(t, c.args...)
			if code != c.code || !strings.Contains(stderr, c.want) {
				t.Errorf("exit code %d, want %d; said %q%q, want %q", code, c.code, stdout, stderr, c.want)
			}
			if strings.Contains(stderr, "secret") {
				t.Errorf("the password is in %q", stderr)
			}
		})
	}
}

func TestHelpAndVersion(t *testing.T) {
	t.Parallel()
	if code, stdout, _ := holdfast(t, "--help"); code != 0 || !strings.Contains(stdout, "flashsale") {
		t.Errorf("help: exit code %d: %s", code, stdout)
	}
	if code, stdout, _ := holdfast(t, "version"); code != 0 || !strings.HasPrefix(stdout, "holdfast ") {
		t.Errorf("version: exit code %d: %s", code, stdout)
	}
}

func TestMigrateMakesBothServices(t *testing.T) {
	t.Parallel()
	url := "--database-url=" + pgtest.New(t).URL
	for range 2 {
		if code, stdout, stderr := holdfast(t, "migrate", url); code != 0 || stdout != "inventory: migrated\nchronos: migrated\n" {
			t.Fatalf("exit code %d: %s%s", code, stdout, stderr)
		}
	}
	if code, stdout, stderr := holdfast(t, "inventory", "verify", url); code != 0 {
		t.Errorf("verify: exit code %d: %s%s", code, stdout, stderr)
	}
}

func TestKeysFromFirstToLast(t *testing.T) {
	t.Parallel()
	url := "--database-url=" + pgtest.New(t, inventory.Schema()).URL
	code, secret, stderr := holdfast(t, "keys", "create", url, "--service=inventory", "--tenant=acme", "--scope=read,write", "--name=till")
	if code != 0 || !strings.HasPrefix(secret, "hf_") || !strings.Contains(stderr, "shown only now") {
		t.Fatalf("create: exit code %d: %q %q", code, secret, stderr)
	}
	_, listed, _ := holdfast(t, "keys", "list", url, "--service=inventory", "--json")
	var keys []struct{ ID, Tenant, Name string }
	if err := json.Unmarshal([]byte(listed), &keys); err != nil || len(keys) != 1 || keys[0].Name != "till" {
		t.Fatalf("list: %v in %s", err, listed)
	}
	if strings.Contains(listed, strings.TrimSpace(secret)) {
		t.Error("the list shows the secret")
	}
	if code, stdout, stderr := holdfast(t, "keys", "revoke", url, "--service=inventory", keys[0].ID); code != 0 || !strings.Contains(stdout, "till") {
		t.Errorf("revoke: exit code %d: %s%s", code, stdout, stderr)
	}
}

func TestVerifyFindsNamesAndRepairs(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, inventory.Schema())
	url := "--database-url=" + db.URL
	if err := seedStock(t.Context(), db.URL); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, "UPDATE inventory.stock SET held = 2 WHERE sku = 'FLASH-10'")
	code, stdout, _ := holdfast(t, "inventory", "verify", url)
	if code != 1 || stdout != "default/FLASH-10 at default: held is 2, should be 0\n" {
		t.Errorf("exit code %d: %s", code, stdout)
	}
	var report struct {
		OK          bool
		Differences []inventory.Difference
	}
	code, stdout, _ = holdfast(t, "inventory", "verify", url, "--json")
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != 1 || report.OK || len(report.Differences) != 1 {
		t.Errorf("--json: exit code %d, %v in %s", code, err, stdout)
	}
	code, stdout, _ = holdfast(t, "inventory", "verify", url, "--repair")
	if code != 0 || !strings.Contains(stdout, "(repaired)") {
		t.Errorf("--repair: exit code %d: %s", code, stdout)
	}
	if code, stdout, _ = holdfast(t, "inventory", "verify", url); code != 0 {
		t.Errorf("afterwards: exit code %d: %s", code, stdout)
	}
	code, stdout, _ = holdfast(t, "inventory", "verify", nowhere, "--json")
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != 1 {
		t.Errorf("--json with an unreachable database: exit code %d, %v in %q", code, err, stdout)
	}
	code, stdout, _ = holdfast(t, "inventory", "verify", "--database-url=", "--json")
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != 1 {
		t.Errorf("--json without a database: exit code %d, %v in %q", code, err, stdout)
	}
}

func TestReceiverKeepsTheLastDeliveries(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	r := newReceiver(&printed)
	served := make(chan error, 1)
	go func() { served <- r.serve(t.Context(), ln) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for range keptDeliveries + 5 {
		res, err := client.Post("http://"+ln.Addr().String()+"/hook", "application/json", strings.NewReader(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
	}
	res, err := client.Get("http://" + ln.Addr().String() + "/")
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Total int
		Last  []delivery
	}
	if err := json.NewDecoder(res.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if got.Total != keptDeliveries+5 || len(got.Last) != keptDeliveries || strings.Count(printed.String(), "\n") != got.Total {
		t.Errorf("total %d, kept %d", got.Total, len(got.Last))
	}
}
