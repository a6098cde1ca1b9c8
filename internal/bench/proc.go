package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ticks is how /proc counts the time of a processor: USER_HZ, which is 100 on every Linux of ours.
const ticks = 100

// stat reads what a process has used of the processors, in seconds: itself, and its children that have
// ended and were waited for; false where there is no /proc, or no such process.
func stat(pid int) (parent int, self, children float64, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, 0, false
	}
	// the name in parentheses may hold spaces and parentheses
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(f) < 15 {
		return 0, 0, 0, false
	}
	at := func(i int) float64 {
		n, _ := strconv.ParseFloat(f[i], 64)
		return n / ticks
	}
	parent, _ = strconv.Atoi(f[1])
	return parent, at(11) + at(12), at(13) + at(14), true
}

// memory is a process's resident memory now and at its highest, in bytes, or zeros if they are unknown.
func memory(pid int) (now, highest int64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch key {
		case "VmRSS":
			now = n << 10
		case "VmHWM":
			highest = n << 10
		}
	}
	return now, highest
}

// findPostmaster looks for the process that the server's backends are children of, which is there to be
// seen only if the server runs on this machine.
func (b *Bench) findPostmaster(ctx context.Context) (bool, error) {
	var backend int
	if err := b.pool.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&backend); err != nil {
		return false, err
	}
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", backend))
	parent, _, _, ok := stat(backend)
	if !ok || !strings.HasPrefix(string(name), "postgres") {
		return false, nil
	}
	b.postmaster = parent
	return true, nil
}

// serverCPU is what all processes of the server have used, in seconds: those that live, and those that the
// postmaster has buried.
func (b *Bench) serverCPU() float64 {
	if !b.local {
		return 0
	}
	_, self, children, _ := stat(b.postmaster)
	sum := self + children
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if parent, self, children, ok := stat(pid); ok && parent == b.postmaster {
			sum += self + children
		}
	}
	return sum
}
