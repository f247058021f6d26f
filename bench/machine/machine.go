// Package machine says what a figure was measured on, and what each process used of it.
package machine

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Facts are what a figure depends on, without anything that names the machine.
type Facts struct {
	CPU      string        `json:"cpu"` // the model
	Cores    int           `json:"cores"`
	MemoryMB int64         `json:"memory_mb"`
	System   string        `json:"system"`
	Go       string        `json:"go"`
	Flush    time.Duration `json:"flush_ns"` // see [Flush]; 0: not measured
}

// Read finds the facts out, but for the flush.
func Read() Facts {
	f := Facts{CPU: "unknown", Cores: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version()}
	if model := field("/proc/cpuinfo", "model name"); model != "" {
		f.CPU = model
	}
	if kb, _, ok := strings.Cut(field("/proc/meminfo", "MemTotal"), " "); ok {
		n, _ := strconv.ParseInt(kb, 10, 64)
		f.MemoryMB = n >> 10
	}
	return f
}

func (f Facts) String() string {
	return fmt.Sprintf("%d × %s, %.0f GB, %s, %s, %v for one flush", f.Cores, f.CPU, float64(f.MemoryMB)/1024, f.System, f.Go, f.Flush.Round(time.Microsecond))
}

// field is the value of the first line of a file that begins with the name.
func field(path, name string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Flush is the median time of an fdatasync after writing one page in place, as a
// database's log does, on the disk that dir is on.
func Flush(dir string) (time.Duration, error) {
	file, err := os.CreateTemp(dir, "flush-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	defer func() { _ = file.Close() }()
	page := make([]byte, 8<<10)
	if _, err := file.Write(make([]byte, 16<<20)); err != nil {
		return 0, err
	}
	if err := file.Sync(); err != nil {
		return 0, err
	}
	var took []time.Duration
	for i := range 2000 {
		began := time.Now()
		if _, err := file.WriteAt(page, int64(i)*int64(len(page))); err != nil {
			return 0, err
		}
		if err := syscall.Fdatasync(int(file.Fd())); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// tick is the unit that the kernel counts processor time in: 1/100 s on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// Load is what the processes of the machine have used up to one moment.
type Load map[int]Process

// Process is one of them.
type Process struct {
	Parent int
	Used   time.Duration // in user and kernel together
}

// Look reads the load.
func Look() Load {
	now := Load{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if parent, used, ok := usage(path); ok {
			now[pid] = Process{parent, used}
		}
	}
	return now
}

// Of is what some processes and their living children have used. One that has ended
// counts for nothing.
func (l Load) Of(pids ...int) time.Duration {
	var total time.Duration
	for pid, p := range l {
		if slices.Contains(pids, pid) || slices.Contains(pids, p.Parent) {
			total += p.Used
		}
	}
	return total
}

// Parent is the process that started another; 0 if that isn't known.
func Parent(pid int) int {
	parent, _, _ := usage(fmt.Sprintf("/proc/%d/stat", pid))
	return parent
}

func usage(path string) (parent int, used time.Duration, ok bool) {
	content, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, false
	}
	// The name, in parentheses, may hold anything; fields are counted from behind it.
	_, rest, _ := strings.Cut(string(content[strings.LastIndexByte(string(content), ')'):]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, 0, false
	}
	parent, _ = strconv.Atoi(fields[1])
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return parent, time.Duration(user+system) * tick, true
}
