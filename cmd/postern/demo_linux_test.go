package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/postern-dev/postern/internal/pgtest"
)

// terminal opens a pair of a pseudo-terminal: ours, and the one that a process has.
func terminal(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this machine has no pseudo-terminals: %v", err)
	}
	t.Cleanup(func() { ours.Close() })
	var unlock, number int32
	for _, c := range []struct {
		request uintptr
		arg     *int32
	}{{syscall.TIOCSPTLCK, &unlock}, {syscall.TIOCGPTN, &number}} {
		if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, ours.Fd(), c.request, uintptr(unsafe.Pointer(c.arg))); e != 0 {
			t.Fatal(e)
		}
	}
	if theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

func TestCtrlCEndsMakeDemoWellOnATerminal(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("make is not installed")
	}
	ours, theirs := terminal(t)
	built, err := os.ReadFile(binary) // make does not link a program again that is built already
	if err != nil {
		t.Fatal(err)
	}
	os.Remove("../../bin/postern")
	if err := os.MkdirAll("../../bin", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("../../bin/postern", built, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("make", "demo", "ARGS=--ephemeral")
	cmd.Dir = "../.."
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "DATABASE_URL=") && !strings.HasPrefix(v, "PG") && !strings.HasPrefix(v, "MAKE") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	deadline := time.AfterFunc(5*time.Minute, func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); ours.Close() })
	defer deadline.Stop()
	var said bytes.Buffer
	for chunk, pressed := make([]byte, 4096), false; ; {
		n, err := ours.Read(chunk)
		said.Write(chunk[:n])
		if !pressed && bytes.Contains(said.Bytes(), []byte("\x1b[J")) { // the table stands
			pressed = true
			ours.Write([]byte{3})
		}
		if err != nil { // no process holds the other side any more
			break
		}
	}
	if err := cmd.Wait(); err != nil || strings.Contains(said.String(), "***") {
		t.Errorf("Ctrl-C ended make demo with %v:\n%s", err, said.String())
	}
}

// A person at a terminal who waits for a transaction is told what it waits for; a pipe gets the end alone.
func TestPostTellsATerminalWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	_, at := serving(t, append(database(pgtest.New(t).URL), "POSTERN_AUTH=none"), "serve")
	postern(t, []string{at}, "api", "PUT", "/dispatchers/HI", "-d", `{"worker_url": "noop:"}`).want(t, 0)
	args := []string{"post", "HI", "-q", "a", "--wait", "4s"}
	if r := postern(t, []string{at}, args...); strings.Contains(r.stderr, "no live node") {
		t.Errorf("a pipe is told of the way: %s", r.stderr)
	}
	ours, theirs := terminal(t)
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), at)
	cmd.Stderr = theirs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	said := make(chan string)
	go func() {
		var all bytes.Buffer
		all.ReadFrom(ours) // an error: no process holds the other side any more
		said <- all.String()
	}()
	cmd.Wait()
	if s := <-said; strings.Count(s, "is WAITING: ") != 1 || !strings.Contains(s, "no live node") {
		t.Errorf("it says\n%s", s)
	}
}
