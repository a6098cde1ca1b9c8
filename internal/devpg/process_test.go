package devpg

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// parentEnv makes this test binary a parent: a process that starts a server, says so and waits for the end of its
// input.
const parentEnv = "POSTERN_DEVPG_TEST_PARENT"

func maybeParent() {
	text, ok := os.LookupEnv(parentEnv)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := Start(ctx, Options{StateDir: text, Log: func(string) {}})
	if err != nil {
		fmt.Println(`{"URL":"` + strings.ReplaceAll(err.Error(), `"`, "'") + `"}`)
		os.Exit(1)
	}
	json.NewEncoder(os.Stdout).Encode(s)
	io.Copy(io.Discard, os.Stdin)
	if err := s.Close(); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// parent is another process with a server.
type parent struct {
	Server
	cmd   *exec.Cmd
	stdin io.Closer
}

// beginParent starts a server from another process, as the user, and waits until it is there. "" is ourselves.
func beginParent(t *testing.T, as, state string) *parent {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	if _, err := os.Stat(cmd.Path); err != nil {
		cmd = exec.Command(os.Args[0])
	}
	cmd.Env = append(os.Environ(), parentEnv+"="+state)
	cmd.Dir = "/"
	if as != "" {
		uid, gid := account0(t, as)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &parent{cmd: cmd, stdin: stdin}
	t.Cleanup(p.end)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the other process said %q: %v", line, err)
	}
	if err := json.Unmarshal([]byte(line), &p.Server); err != nil || p.DataDir == "" {
		t.Fatalf("the other process said %q: %v", line, err)
	}
	return p
}

// end lets the process close its server and waits for it.
func (p *parent) end() {
	p.stdin.Close()
	p.cmd.Wait()
}

// kill ends the process without a chance to do anything.
func (p *parent) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

func account0(t *testing.T, name string) (uid, gid int) {
	t.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		t.Skipf("there is no user %s here", name)
	}
	uid, _ = strconv.Atoi(u.Uid)
	gid, _ = strconv.Atoi(u.Gid)
	return uid, gid
}

// users runs a test as ourselves and, if we are root, as a user without rights. state is a directory of that user.
func users(t *testing.T, test func(t *testing.T, as, state string)) {
	t.Run("ourselves", func(t *testing.T) { t.Parallel(); test(t, "", stateDir(t)) })
	t.Run("nobody", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("only root can run a process as nobody: run the tests as root to see this")
		}
		t.Parallel()
		state := stateDir(t)
		uid, gid := account0(t, "nobody")
		if err := os.Chown(state, uid, gid); err != nil {
			t.Fatal(err)
		}
		test(t, "nobody", state)
	})
}

// pidOf is the process of the running server.
func pidOf(t *testing.T, data string) int {
	t.Helper()
	pm, ok := readPostmaster(filepath.Dir(data))
	if !ok {
		t.Fatalf("no server runs on %s", data)
	}
	return pm.pid
}

// Each of these ends with a server that has stopped, on whose data the next one begins: there is one initdb for all.
func TestServersOfOtherProcesses(t *testing.T) {
	users(t, func(t *testing.T, as, state string) {
		t.Run("a killed parent takes its server along", func(t *testing.T) { aKilledParentTakesItsServerAlong(t, as, state) })
		t.Run("a start right after a kill gets a server", func(t *testing.T) { aStartRightAfterAKillGetsAServer(t, as, state) })
		t.Run("a killed keeper takes its server along", func(t *testing.T) { aKilledKeeperTakesItsServerAlong(t, as, state) })
		t.Run("a second process joins and outlives the first", func(t *testing.T) { aSecondProcessJoinsAndOutlivesTheFirst(t, as, state) })
	})
}

func aKilledParentTakesItsServerAlong(t *testing.T, as, state string) {
	p := beginParent(t, as, state)
	tell(t, p.URL, "CREATE TABLE kept AS SELECT 'here' AS a")
	p.kill()
	eventually(t, "postgres has ended", func() bool { return gone(p.DataDir) })
	again := beginParent(t, as, state)
	if again.Joined {
		t.Error("joined a server that had ended")
	}
	if got := ask(t, again.URL, "SELECT a FROM kept"); got != "here" {
		t.Errorf("kept row: %q", got)
	}
}

func aStartRightAfterAKillGetsAServer(t *testing.T, as, state string) {
	for range 3 {
		p := beginParent(t, as, state)
		ask(t, p.URL, "SELECT ''")
		p.kill() // the next one meets a server that runs, stops, or has stopped
	}
	p := beginParent(t, as, state)
	ask(t, p.URL, "SELECT ''")
}

func aKilledKeeperTakesItsServerAlong(t *testing.T, as, state string) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("only Linux tells a process that its parent has ended")
	}
	p := beginParent(t, as, state)
	pid := pidOf(t, p.DataDir)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndex(string(stat), ")")+1:]))
	keeper, err := strconv.Atoi(fields[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(keeper, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "postgres has ended", func() bool { return gone(p.DataDir) })
	p.end()
	ask(t, beginParent(t, as, state).URL, "SELECT ''")
}

func aSecondProcessJoinsAndOutlivesTheFirst(t *testing.T, as, state string) {
	first := beginParent(t, as, state)
	second := beginParent(t, as, state)
	if first.Joined || !second.Joined || first.URL != second.URL || second.Version != first.Version {
		t.Fatalf("first %+v, second %+v", first.Server, second.Server)
	}
	first.end()
	ask(t, second.URL, "SELECT ''")
	third := beginParent(t, as, state)
	if !third.Joined {
		t.Error("the third did not join")
	}
	second.kill()
	ask(t, third.URL, "SELECT ''")
	third.end()
	eventually(t, "postgres has ended after its last user", func() bool { return gone(third.DataDir) })
}
