package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cgroup bounds all processes of one script together.
type cgroup struct {
	path string
	dir  *os.File // the init is born in it
}

// openCgroup returns a directory below which cgroups with limits can be made: the one that is given, or that of this
// process. Otherwise it says what is missing.
func openCgroup(given string) (path, why string) {
	path = given
	if path == "" {
		if path = ownCgroup(); path == "" {
			return "", "no cgroup v2 is mounted"
		}
	}
	err := os.WriteFile(filepath.Join(path, "cgroup.subtree_control"), []byte("+memory +pids"), 0)
	if err != nil {
		return "", fmt.Sprintf("memory and processes cannot be bounded in %s: %v", path, err)
	}
	probe := filepath.Join(path, "postern-probe-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(probe, 0o755); err != nil {
		return "", fmt.Sprintf("no cgroup can be made in %s: %v", path, err)
	}
	defer os.Remove(probe)
	for _, name := range []string{"memory.max", "pids.max", "cgroup.kill"} {
		if _, err := os.Stat(filepath.Join(probe, name)); err != nil {
			return "", fmt.Sprintf("a cgroup in %s has no %s", path, name)
		}
	}
	return path, ""
}

// ownCgroup is the directory of this process in cgroup v2, or "".
func ownCgroup() string {
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	mine, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(mounts)) {
		left, right, _ := strings.Cut(line, " - ")
		fields := strings.Fields(left)
		if len(fields) < 5 || !strings.HasPrefix(right, "cgroup2 ") {
			continue
		}
		for line := range strings.Lines(string(mine)) {
			if at, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
				below, err := filepath.Rel(fields[3], at)
				if err == nil && !strings.HasPrefix(below, "..") {
					return filepath.Join(fields[4], below)
				}
			}
		}
	}
	return ""
}

// makeCgroup makes the cgroup of a script.
func (b *Box) makeCgroup(name string) (*cgroup, error) {
	g := &cgroup{path: filepath.Join(b.cgroup, "postern-"+name)}
	if err := os.Mkdir(g.path, 0o755); err != nil {
		return nil, err
	}
	l := b.config.Limits
	for _, s := range []struct {
		file  string
		value int64
	}{
		{"memory.max", l.Memory + l.Tmp},
		{"pids.max", int64(l.Processes + threadsOfInit)},
	} {
		if err := os.WriteFile(filepath.Join(g.path, s.file), []byte(strconv.FormatInt(s.value, 10)), 0); err != nil {
			return nil, errors.Join(err, g.remove())
		}
	}
	os.WriteFile(filepath.Join(g.path, "memory.swap.max"), []byte("0"), 0) // is not there without swap
	var err error
	if g.dir, err = os.Open(g.path); err != nil {
		return nil, errors.Join(err, g.remove())
	}
	return g, nil
}

// outOfMemory says whether the kernel has killed a process of the cgroup because all together took too much.
func (g *cgroup) outOfMemory() bool {
	if g == nil {
		return false
	}
	text, _ := os.ReadFile(filepath.Join(g.path, "memory.events"))
	_, rest, found := bytes.Cut(text, []byte("oom_kill "))
	return found && !bytes.HasPrefix(rest, []byte("0"))
}

// remove kills what is left in the cgroup and removes it.
func (g *cgroup) remove() error {
	if g.dir != nil {
		g.dir.Close()
	}
	os.WriteFile(filepath.Join(g.path, "cgroup.kill"), []byte("1"), 0)
	for end := time.Now().Add(2 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if err := syscall.Rmdir(g.path); err == nil || time.Now().After(end) {
			return err
		}
	}
}
