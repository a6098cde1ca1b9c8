package devpg

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/postern-dev/postern/internal/fault"
)

// postmaster is what a server writes about itself into its data directory.
type postmaster struct {
	pid    int
	port   int
	socket string // directory of its socket
	ready  bool
}

// readPostmaster reads postmaster.pid of the data directory under dir; false if there is none, or half of one.
func readPostmaster(dir string) (pm postmaster, ok bool) {
	body, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		return pm, false
	}
	lines := strings.Split(string(body), "\n")
	if len(lines) < 8 {
		return pm, false
	}
	pm.pid, _ = strconv.Atoi(strings.TrimSpace(lines[0]))
	pm.port, _ = strconv.Atoi(strings.TrimSpace(lines[3]))
	pm.socket = strings.TrimSpace(lines[4])
	pm.ready = strings.TrimSpace(lines[7]) == "ready"
	return pm, pm.pid > 0 && pm.port > 0
}

// running tells whether the server of dir accepts connections. It asks the socket, which lies in a directory that only
// its user can write: whatever else took the port or the process number after a crash does not answer there.
func running(dir string) bool {
	pm, ok := readPostmaster(dir)
	if !ok || !pm.ready || !alive(pm.pid) {
		return false
	}
	conn, err := net.DialTimeout("unix", filepath.Join(pm.socket, ".s.PGSQL."+strconv.Itoa(pm.port)), time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// alive tells whether a process exists, under any user.
func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || err == syscall.EPERM
}

// majorsIn lists the majors that have a directory under root, highest first.
func majorsIn(root string) []int {
	entries, _ := os.ReadDir(root)
	var majors []int
	for _, e := range entries {
		if m, err := strconv.Atoi(e.Name()); err == nil && e.IsDir() {
			majors = append(majors, m)
		}
	}
	slices.Sort(majors)
	slices.Reverse(majors)
	return majors
}

// checkMajor refuses a data directory that another major of PostgreSQL made. A missing or empty one is fine.
func checkMajor(data string, major int) error {
	body, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if have := strings.TrimSpace(string(body)); have != strconv.Itoa(major) {
		return fault.New(fault.Conflict, "data_of_another_major",
			"%s was made by PostgreSQL %s and the one to run is %d: name the directory of a PostgreSQL %s in POSTERN_PG_BIN, "+
				"or move the data away; nothing was touched", data, have, major, have)
	}
	return nil
}

// tellOtherMajors says that data of other majors exists, when this major begins with none: otherwise an upgrade of the
// operating system looks like a loss.
func tellOtherMajors(root string, major int, log func(string)) {
	if _, err := os.Stat(filepath.Join(root, strconv.Itoa(major), "data")); err == nil {
		return
	}
	for _, m := range majorsIn(root) {
		if m != major {
			log("PostgreSQL " + strconv.Itoa(major) + " begins with an empty database; the data of PostgreSQL " +
				strconv.Itoa(m) + " stays in " + filepath.Join(root, strconv.Itoa(m)))
		}
	}
}

// sweepEphemeral removes what keepers that were killed left under temp: directories whose lock is free. It leaves those
// of the last minute, since their keepers may be about to take it.
func sweepEphemeral(temp string, now time.Time) {
	dirs, _ := filepath.Glob(filepath.Join(temp, "postern-pg-*"))
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || now.Sub(info.ModTime()) < time.Minute {
			continue
		}
		f, err := os.OpenFile(filepath.Join(dir, "keeper"), os.O_RDWR|syscall.O_NOFOLLOW, 0)
		if err != nil {
			continue // not ours, or not for us
		}
		pm, ok := readPostmaster(dir)
		if taken, err := tryLock(f, true); err == nil && taken && !(ok && alive(pm.pid)) {
			os.RemoveAll(dir)
		}
		f.Close()
	}
}
