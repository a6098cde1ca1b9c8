package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// clockEnv is how far the clock of a process jumps, and when after its start.
const clockEnv = "POSTERN_CHAOS_CLOCK"

// jumps is what the package time of Go gets besides: Go asks the kernel for the time past every library, so that the
// program is built once more, with a time.Now that jumps. Its monotonic clock stays, as that of a machine does.
const jumps = `package time

import "syscall"

// jumpBy are seconds by which the wall clock jumps, jumpAt when: nanoseconds behind the start.
var jumpBy, jumpAt int64

func init() {
	text, _ := syscall.Getenv("` + clockEnv + `")
	sign := int64(1)
	for into := &jumpBy; text != ""; text = text[1:] {
		switch c := text[0]; {
		case c == '-':
			sign = -1
		case c == '@':
			into = &jumpAt
		default:
			*into = *into*10 + int64(c-'0')
		}
	}
	jumpBy, jumpAt = jumpBy*sign, jumpAt*int64(Second)
}

func jumped(mono int64) int64 {
	if jumpBy == 0 || mono-startNano < jumpAt {
		return 0
	}
	return jumpBy
}
`

// buildClock builds the program whose clock can be moved beside the one that is tried, and returns its path.
func buildClock(ctx context.Context, bin string) (path string, err error) {
	path = bin + "-clock"
	tried, err := os.Stat(bin)
	if err != nil {
		return "", err
	}
	if there, err := os.Stat(path); err == nil && there.ModTime().After(tried.ModTime()) {
		return path, nil
	}
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("no Go to build a program whose clock can be moved: %w", err)
	}
	dir, err := os.MkdirTemp("", "postern-clock-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	std := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	text, err := os.ReadFile(filepath.Join(std, "time.go"))
	if err != nil {
		return "", err
	}
	const now = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	if strings.Count(string(text), now) != 1 {
		return "", fmt.Errorf("the time.Now of this Go is another than the one that can be moved")
	}
	moved := strings.Replace(string(text), now, now+"\tsec += jumped(mono)\n", 1)
	replace := map[string]string{}
	for name, text := range map[string]string{"time.go": moved, "jumps.go": jumps} {
		replace[filepath.Join(std, name)] = filepath.Join(dir, name)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	list, _ := json.Marshal(map[string]any{"Replace": replace})
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", path,
		"./cmd/postern").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build a program whose clock can be moved: %w: %s", err, out)
	}
	return path, nil
}

func noNodeClock(w *world) string { return w.noClock }

// clockNode starts a process anew with a clock that jumps by an hour, forwards or back, some seconds later. It stays
// so: leases, times and retries go by the database's clock, and by clocks that only count.
func clockNode(ctx context.Context, w *world, r *rand.Rand) {
	p, by := w.any(r, ""), 3600
	if r.IntN(2) == 0 {
		by = -by
	}
	p.mu.Lock()
	p.bin, p.env = w.clockBin, append(p.env, fmt.Sprintf("%s=%d@%d", clockEnv, by, 1+r.IntN(4)))
	p.mu.Unlock()
	if !w.anew(ctx, p) {
		w.missed(p.name + " was not started anew")
	}
	wait(ctx, 2*time.Second)
}
