package process

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Build builds the replicas' binary, from the module that the benchmarks stand in, into a folder.
func Build(ctx context.Context, dir string) (binary string, err error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "holdfast").Output()
	if err != nil {
		return "", fmt.Errorf("go list holdfast: %w; start this program in the folder bench", err)
	}
	binary = filepath.Join(dir, "holdfast")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/holdfast")
	build.Dir = strings.TrimSpace(string(root))
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build cmd/holdfast: %w: %s", err, out)
	}
	return binary, nil
}
