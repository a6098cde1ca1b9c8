package devpg

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// keeperEnv marks a process as a keeper and holds its order.
const keeperEnv = "POSTERN_DEVPG_KEEPER"

// order tells a keeper what to run.
type order struct {
	Dir        string // data, log, password, port lie below
	Binaries   string
	Major      int
	Download   bool
	Repository string
	Port       int
	Unsafe     bool
	Ephemeral  bool
	Settings   map[string]string
}

// said is one line of a keeper to its parent; one field is set.
type said struct {
	Log   string
	Ready *readiness
	Error string
	Kept  bool // the parent is gone, the server stays for its other users
}

// readiness is what a parent must know to use the server.
type readiness struct {
	Port     int
	Database string
	Version  string
}

var childChecked bool

// MaybeChild must be the first call of main (and of TestMain, where pgtest does it). In a process that Start made it
// never returns: that process is a keeper. In every other it does nothing.
func MaybeChild() {
	childChecked = true
	if text, ok := os.LookupEnv(keeperEnv); ok {
		os.Exit(keep(text))
	}
}

// keeperProcess is a keeper seen by its parent.
type keeperProcess struct {
	cmd   *exec.Cmd
	stdin io.Closer
	lines *bufio.Scanner
}

// runKeeper starts this program again as a keeper and returns when its server is ready.
func runKeeper(ctx context.Context, who account, log func(string), o order) (*keeperProcess, *readiness, error) {
	self, err := selfPath()
	if err != nil {
		return nil, nil, err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(self)
	cmd.Dir = "/"
	cmd.Env = append(keeperEnvironment(o.Download), keeperEnv+"="+string(text))
	// A process group of its own: Ctrl-C on the terminal reaches us, and we stop the server in our order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: who.credential()}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("start the keeper as %s: %w", who.name, err)
	}
	k := &keeperProcess{cmd: cmd, stdin: stdin, lines: bufio.NewScanner(stdout)}
	giveUp := context.AfterFunc(ctx, func() { stdin.Close() })
	ready, err := k.await(log)
	if !giveUp() && ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, nil, errors.Join(err, k.stop())
	}
	return k, ready, nil
}

// keeperEnvironment is all that a keeper gets of ours: the proxy, and only if it downloads.
func keeperEnvironment(download bool) []string {
	env := []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
	if download {
		for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
			"SSL_CERT_FILE", "SSL_CERT_DIR"} {
			if v, ok := os.LookupEnv(name); ok {
				env = append(env, name+"="+v)
			}
		}
	}
	return env
}

// await reads what the keeper says until its server is ready.
func (k *keeperProcess) await(log func(string)) (*readiness, error) {
	for k.lines.Scan() {
		var s said
		if err := json.Unmarshal(k.lines.Bytes(), &s); err != nil {
			return nil, fmt.Errorf("the keeper said %q: does main call devpg.MaybeChild first?", k.lines.Text())
		}
		switch {
		case s.Ready != nil:
			return s.Ready, nil
		case s.Error != "":
			return nil, errors.New(s.Error)
		default:
			log(s.Log)
		}
	}
	return nil, errors.New("the keeper ended before its server was ready")
}

// stop closes the keeper's input and returns when it has stopped the server, or has said that others still use it.
func (k *keeperProcess) stop() error {
	k.stdin.Close()
	for k.lines.Scan() {
		var s said
		if json.Unmarshal(k.lines.Bytes(), &s) == nil && s.Kept {
			return nil // it goes on without us
		}
	}
	err := k.cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil // it has said why, or was killed; either way it is gone
	}
	return err
}
