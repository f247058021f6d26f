package system

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// skewVariable moves the wall clock of a binary that buildSkewed has made, by a duration.
const skewVariable = "HOLDFAST_TEST_SKEW"

// skewed is the program with a wall clock that can be put wrong, built when the first test asks for it.
var skewed = sync.OnceValues(func() (string, error) { return buildSkewed(filepath.Dir(binary)) })

// buildSkewed builds the program with a time.Now whose wall clock, though not its monotonic one, is off by what the
// environment says. Nothing outside the process does that: Go reads the clock from the kernel's vDSO, so
// libfaketime, which takes the place of functions of the C library, doesn't reach it, and Linux has time namespaces
// for the monotonic clock alone.
func buildSkewed(dir string) (path string, err error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	// The toolchain may lie in the module cache, where it may not be overlaid: by a link it doesn't.
	root := filepath.Join(dir, "goroot")
	if err := os.Symlink(strings.TrimSpace(string(out)), root); err != nil {
		return "", err
	}
	now, err := os.ReadFile(filepath.Join(root, "src/time/time.go"))
	if err != nil {
		return "", err
	}
	const reading = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	text := strings.Replace(string(now), reading, reading+"\tsec += skew\n", 1)
	if text == string(now) {
		return "", fmt.Errorf("time.Now of %s doesn't begin with %q", out, reading)
	}
	overlay := map[string]string{}
	for name, text := range map[string]string{"time.go": text, "skew.go": `package time

import "syscall"

// skew is how wrong the wall clock is, in seconds.
var skew = func() int64 {
	text, set := syscall.Getenv("` + skewVariable + `")
	if !set {
		return 0
	}
	d, err := ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return int64(d / Second)
}()
`} {
		overlay[filepath.Join(root, "src/time", name)] = filepath.Join(dir, name)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), list, 0o600); err != nil {
		return "", err
	}
	path = filepath.Join(dir, "holdfast-skewed")
	build := exec.Command(filepath.Join(root, "bin/go"), "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", path, "holdfast/cmd/holdfast")
	build.Env = append(os.Environ(), "GOROOT="+root, "GOTOOLCHAIN=local")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return path, nil
}
