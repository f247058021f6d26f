package holdfast_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// pkg is what `go list` says of a package.
type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func within(path string, roots ...string) bool {
	return slices.ContainsFunc(roots, func(root string) bool {
		return path == "holdfast/"+root || strings.HasPrefix(path, "holdfast/"+root+"/")
	})
}

// The kernel knows no service, the services don't know each other, and what correctness rests
// on doesn't know HTTP.
func TestLayers(t *testing.T) {
	t.Parallel()
	forbidden := []struct {
		from, to []string
	}{
		{[]string{"internal"}, []string{"inventory", "chronos", "webhook", "web", "cmd"}},
		{[]string{"inventory"}, []string{"chronos", "web", "cmd"}},
		{[]string{"chronos"}, []string{"inventory", "web", "cmd"}},
		{[]string{"webhook"}, []string{"internal", "inventory", "chronos", "web", "cmd"}},
		{[]string{"chronos/cron"}, []string{"internal", "chronos/queue", "webhook"}},
		{[]string{"chronos/worker"}, []string{"internal", "chronos", "webhook"}},
	}
	withoutHTTP := []string{
		"holdfast/inventory", "holdfast/chronos/queue", "holdfast/chronos/alert", "holdfast/chronos/cron", "holdfast/internal/pg",
		"holdfast/internal/elect", "holdfast/internal/loop", "holdfast/internal/idempotency", "holdfast/internal/apikey",
	}
	seen := 0
	for _, p := range packages(t) {
		for _, rule := range forbidden {
			if !within(p.ImportPath, rule.from...) {
				continue
			}
			seen++
			for _, dep := range p.Deps {
				if within(dep, rule.to...) {
					t.Errorf("%s depends on %s", p.ImportPath, dep)
				}
			}
		}
		if slices.Contains(withoutHTTP, p.ImportPath) {
			seen++
			if slices.Contains(p.Imports, "net/http") {
				t.Errorf("%s imports net/http", p.ImportPath)
			}
		}
	}
	if seen < len(forbidden)+len(withoutHTTP) {
		t.Errorf("the rules met only %d packages: have they moved?", seen)
	}
}
