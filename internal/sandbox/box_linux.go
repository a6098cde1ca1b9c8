package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Box runs scripts, each in a box of its own.
type Box struct {
	config  Config
	level   Level
	why     string // not a higher level
	cgroup  string
	cleared int
}

// New makes the directory of the state, removes what earlier runners left there, and probes what the kernel gives by
// building a box. It returns an error that says the next step where that is less than c.Least.
func New(ctx context.Context, c Config) (*Box, error) {
	c = c.withDefaults()
	if !filepath.IsAbs(c.State) {
		return nil, fmt.Errorf("the state directory %q: want an absolute path", c.State)
	}
	b := &Box{config: c, level: Off}
	if err := b.makeState(); err != nil {
		return nil, err
	}
	b.cleared = b.sweep()
	if c.Least == Off {
		return b, nil
	}
	b.level = Partial
	if err := b.probe(ctx); err != nil {
		return nil, fmt.Errorf("this machine gives no box for scripts: %w\n%s", err, remedy(err))
	}
	if b.cgroup, b.why = openCgroup(c.Cgroup); b.cgroup != "" {
		b.level = Strict
	}
	if b.level == Partial && c.Least == Strict {
		return nil, fmt.Errorf("isolation strict needs a cgroup: %s\n"+
			"Give one with --cgroup (systemd: Delegate=yes), or take --isolation partial", b.why)
	}
	return b, nil
}

// makeState makes the directory of the state where it is not there, and the one of all contexts.
func (b *Box) makeState() error {
	state := b.config.State
	if _, err := os.Stat(state); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(state), 0o755); err != nil {
			return err
		}
		if err := makePassable(state); err != nil {
			return err
		}
	}
	return makePassable(filepath.Join(state, "contexts"))
}

// remedy says what helps where a box cannot be built.
func remedy(err error) string {
	const off = "Or run scripts without a box: --isolation off. They may then do what the user of the runner may do."
	switch text := err.Error(); {
	case strings.Contains(text, "enter the directory"):
		return "Let others pass the directories above --state: chmod o+x. " + off
	case strings.Contains(text, "mount proc"):
		return "Parts of /proc are hidden here. In a container: unmask /proc " +
			"(Docker: --security-opt systempaths=unconfined). " + off
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EACCES):
		return "User namespaces are forbidden here. Allow them (sysctl user.max_user_namespaces, " +
			"kernel.apparmor_restrict_unprivileged_userns=0; Docker: --security-opt seccomp=unconfined or a profile " +
			"that allows clone, unshare, mount and pivot_root). " + off
	}
	return off
}

// probe builds a box with all its limits and runs nothing in it.
func (b *Box) probe(ctx context.Context) error {
	s := Script{Context: "probe", Name: fmt.Sprintf("probe-%d", os.Getpid()), Timeout: 30 * time.Second}
	p, err := b.start(s, Interpreter{}, "", func(Line) {})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, p.Kill)()
	if o := p.Wait(); o.Code != "" {
		return failure(o.Code, "%s", o.Error)
	}
	return ctx.Err()
}

// Level is under which scripts run here, and what a higher one lacks.
func (b *Box) Level() (level Level, why string) { return b.level, b.why }

// Swept is how many directories of earlier runners New has removed.
func (b *Box) Swept() int { return b.cleared }

// Start starts a script. It returns a *Failure where that cannot be done. out gets the lines of the script, one after
// the other; it must not block.
func (b *Box) Start(s Script, out func(Line)) (*Process, error) {
	i, path, err := b.config.find(s.Type)
	if err != nil {
		return nil, err
	}
	return b.start(s, i, path, out)
}
