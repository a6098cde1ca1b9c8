package sandbox

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// fails runs a script that tries what it must not be able to do. The script prints "DONE" at its end; each line before
// that is something that it could do.
func fails(t *testing.T, b *Box, text string) {
	t.Helper()
	o, lines := outcome(t, b, text)
	if got := lines.text("stdout"); o.Code != "" || got != "DONE\n" {
		t.Errorf("the script could do this:\n%soutcome %+v", got, o)
	}
}

func TestAScriptHasNoNetworkUnlessItMay(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	b := newBox(t, Config{})
	text := fmt.Sprintf(`
import socket
try:
    socket.create_connection(("127.0.0.1", %d), 5); print("connected")
except OSError as e:
    print("refused")`, l.Addr().(*net.TCPAddr).Port)
	for network, want := range map[bool]string{false: "refused\n", true: "connected\n"} {
		p, lines := python(t, b, Script{Text: text, Network: network})
		if o := p.Wait(); lines.text("stdout") != want {
			t.Errorf("network %v: %q %+v, want %q", network, lines.text("stdout"), o, want)
		}
	}
}

// sockets listens on UNIX sockets where other servers do, and returns how they are called.
func sockets(t *testing.T) (names []string) {
	t.Helper()
	abstract := fmt.Sprintf("@postern-sandbox-test-%d", os.Getpid())
	for _, dir := range []string{"/tmp", "/run", ""} {
		name := abstract
		if dir != "" {
			name = fmt.Sprintf("%s/postern-sandbox-test-%d.sock", dir, os.Getpid())
		}
		l, err := net.Listen("unix", name)
		if err != nil {
			if dir == "/run" && os.Geteuid() != 0 {
				continue
			}
			t.Fatal(err)
		}
		if dir != "" {
			os.Chmod(name, 0o777)
		}
		t.Cleanup(func() { l.Close() })
		names = append(names, name)
	}
	return names
}

func TestAScriptReachesNoUNIXSocketOfTheHost(t *testing.T) {
	names := sockets(t)
	fails(t, newBox(t, Config{}), fmt.Sprintf(`
import socket
for name in "%s".split():
    s = socket.socket(socket.AF_UNIX)
    try:
        s.connect(name.replace("@", "\0")); print(name)
    except OSError:
        pass
print("DONE")`, strings.Join(names, " ")))
}

func TestAScriptSeesNoFileOfOthers(t *testing.T) {
	b := newBox(t, Config{})
	os.MkdirAll(filepath.Join(b.config.State, "contexts"), 0o755)
	secret := filepath.Join(os.TempDir(), fmt.Sprintf("postern-sandbox-secret-%d", os.Getpid()))
	if err := os.WriteFile(secret, []byte("secret"), 0o666); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(secret) })
	other, lines := python(t, b, Script{Context: "other", Slot: 1, Text: `
import os, time
os.chmod("/job", 0o777); open("/job/secret-of-other", "w").write("secret")
print("there", flush=True); time.sleep(600)`})
	waitUntil(t, "the other script has written", func() bool { return lines.text("stdout") != "" })
	fails(t, b, fmt.Sprintf(`
import os
for top, dirs, files in os.walk("/"):
    dirs[:] = [d for d in dirs if os.path.join(top, d) not in ("/usr", "/proc")]
    for f in files:
        if "secret" in f: print(os.path.join(top, f))
inits = ["/proc/1/" + f for f in ("root/etc/shadow", "cwd/..", "environ", "mem", "fd/3")]
for path in %q.split() + inits:
    try:
        os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(1)
        print(path)
    except OSError:
        pass
print("DONE")`, secret+" /etc/shadow /root /home /run /var /sys /mnt /boot "+b.config.State))
	other.Kill()
	other.Wait()
}

func TestAScriptSeesNoProcessOfTheHost(t *testing.T) {
	t.Setenv("DATABASE_URL", "postgres://marker-of-the-runner")
	b := newBox(t, Config{})
	fails(t, b, fmt.Sprintf(`
import os
for pid in [p for p in os.listdir("/proc") if p.isdigit()]:
    if pid != "1" and int(pid) != os.getpid(): print("sees process", pid)
    try:
        env = open("/proc/%%s/environ" %% pid).read()
        if "marker-of-the-runner" in env: print("reads the environment of", pid)
    except OSError: pass
for name in os.environ:
    if name not in "PATH HOME LANG LC_CTYPE TMPDIR POSTERN_RESULT POSTERN_INPUTS".split(): print("has", name)
for pid in (%d, %d):
    try: os.kill(pid, 0); print("may signal", pid) if pid > 2 else None
    except OSError: pass
fds = [f for f in os.listdir("/proc/self/fd") if int(f) > 3]
if fds: print("has files", fds)
print("DONE")`, os.Getpid(), os.Getppid()))
}

func TestAScriptWritesOnlyWhereItMay(t *testing.T) {
	b := newBox(t, Config{ReadOnly: []string{"/opt"}})
	o, lines := outcome(t, b, `
import os
seen = set()
for line in open("/proc/self/mountinfo"):
    at = line.split()[4]
    places = [at]
    if os.path.isdir(at):
        places = [os.path.join(at, "written")] + [os.path.join(at, d, "written") for d in os.listdir(at)[:200]]
    kernel = ["/proc/" + f for f in ("sys/kernel/core_pattern", "sysrq-trigger", "self/oom_score_adj")]
    for p in places + kernel + ["/etc/passwd"]:
        if p.startswith("/dev/") and not p.endswith("written"): continue
        if p.startswith("/job/script.py") or p.startswith("/job/inputs"): continue
        try:
            open(p, "a").write("x"); seen.add(os.path.realpath(os.path.dirname(p)))
        except OSError:
            pass
print(" ".join(sorted(seen)))`)
	got := strings.Fields(lines.text("stdout"))
	if o.Code != "" || !slices.Equal(got, []string{"/job", "/tmp"}) {
		t.Errorf("it wrote in %v (%+v): want /job and /tmp alone", got, o)
	}
}

func TestAScriptHasNoRights(t *testing.T) {
	fails(t, newBox(t, Config{}), `
import ctypes, os
status = dict(l.split(":", 1) for l in open("/proc/self/status"))
for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
    if int(status[name], 16): print(name, status[name])
if status["NoNewPrivs"].strip() != "1": print("new privileges are possible")
if status["Groups"].split() not in ([], ["65534"]) and os.getuid() == 0 and status["Uid"].split()[0] == "0":
    print("groups", status["Groups"])
libc = ctypes.CDLL(None, use_errno=True)
def tries(what, result):
    if result == 0: print(what)
tries("unshare user", libc.unshare(0x10000000))
tries("unshare mount", libc.unshare(0x00020000))
tries("mount", libc.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, None))
tries("remount", libc.mount(b"none", b"/usr", None, 32 | 4096, None))
tries("umount", libc.umount2(b"/proc", 2))
tries("ptrace of the init", libc.ptrace(16, 1, 0, 0))
tries("hostname", libc.sethostname(b"x", 1))
tries("chroot", libc.chroot(b"/job"))
import socket
for family in (40, 38, 17):
    try: socket.socket(family, socket.SOCK_STREAM); print("a socket of the family", family)
    except OSError: pass
for who in (1, -1):
    try: os.kill(1, 9)
    except OSError: pass
try: os.mknod("/job/device", 0o600 | 0o020000, os.makedev(1, 1)); print("mknod")
except OSError: pass
if os.getsid(0) != os.getpid(): print("session", os.getsid(0))
try: open("/dev/tty"); print("terminal")
except OSError: pass
print("DONE")`)
}

func TestScriptsOfRootAreOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("for root only")
	}
	b := newBox(t, Config{})
	p, lines := python(t, b, Script{Slot: 7, Text: `
import time; print("there", flush=True); time.sleep(600)`})
	waitUntil(t, "the script runs", func() bool { return lines.text("stdout") != "" })
	info, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil || !strings.Contains(string(info), "Uid:\t64007\t64007\t64007\t64007") ||
		!strings.Contains(string(info), "Groups:\t \n") {
		t.Errorf("the init runs as %v %s: want the user 64007 without groups", err, info)
	}
	p.Kill()
	if o := p.Wait(); o.Code != CodeStopped {
		t.Errorf("%+v: want stopped", o)
	}
}

// waitUntil waits for a condition with a generous limit.
func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after a minute still not: %s", what)
		}
	}
}
