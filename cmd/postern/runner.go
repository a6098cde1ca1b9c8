package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/internal/app"
	"github.com/postern-dev/postern/internal/runner"
	"github.com/postern-dev/postern/internal/sandbox"
)

// runnerFlags are those of `postern runner` that need reading.
type runnerFlags struct {
	name         string
	types        []string
	slots        int
	takeover     bool
	attached     bool
	isolation    string
	interpreters []string
	unlimited    []string
	memory       int64
	tmp          int64
	file         int64
	drain        time.Duration
	box          sandbox.Config
}

const runnerHelp = `
	Execute jobs of one context. The runner needs nothing but HTTP to the server, with a key of an executor;
	run as many as you like, each under a name of its own. It claims a job when a slot is free, and tells what
	the script writes, line by line, while it runs. Each heartbeat names all jobs that it holds. If the server
	does not answer for as long as the ttl, the runner kills its scripts, and the server gives them to others.

	Each script runs in a directory of its own, which is removed behind it, as /job in a box: new process,
	mount, network, IPC and user namespaces, a read-only view of /usr, /bin and /lib, its own /tmp and /proc,
	no other file, process or socket of this machine, and no network unless the job has network: true. It
	gets the variables of its job, PATH, HOME, LANG, TMPDIR and POSTERN_*, and nothing of the runner's
	environment. What it leaves running is killed with it, also when the runner dies.

	--isolation is the least that will do. strict: the box, and a cgroup that bounds memory and processes of a
	script with all that it starts. partial: the box, with limits for each process, and a look at the memory
	of all ten times a second. off: no box; scripts may do what the user of the runner may do. Where the
	machine gives less than that, the runner does not start. What was given is recorded on each try.
	strict needs a cgroup v2 of its own with memory and pids (systemd: Delegate=yes, and --cgroup); partial
	needs Linux 5.14 with user namespaces, in Docker a seccomp profile that allows them and
	systempaths=unconfined.

	A runner of root gives each slot a user of its own (--first-uid). Files that a script writes are bounded one
	by one, not together: give --state a file system of its own where that matters. With network: true a script
	has the network of the runner, and what listens there without a password, also UNIX sockets in the abstract
	namespace. The walls are those of one Linux kernel: against scripts of strangers, give each tenant a runner
	in a virtual machine.

	A script writes its result, a JSON object of strings, to the file that POSTERN_RESULT names; without one its
	result is {"stdout": "..."}. POSTERN_INPUTS names a file with the results of the jobs that it needed.
	POSTERN_TOKEN is the same when a job is executed again because its runner was lost: use it as a key where a
	script must not do something twice.

	  postern runner --types python --slots 4
	  postern runner --types sal --interpreter 'sal=/opt/sal/bin/sal run {file}' --read-only /opt/sal

	SIGTERM: it claims no more, waits for its scripts (--drain), and gives the others back to the server, which
	offers them anew. Killed with -9 it takes its scripts with it; they are offered anew at the end of the ttl.`

func runnerCommand() *cobra.Command {
	var r runnerFlags
	cmd := &cobra.Command{
		Use:   "runner",
		Short: "Execute jobs: take scripts from a server over HTTP, run each in a sandbox, tell their results",
		Long:  trim(runnerHelp),
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return r.run(cmd) },
	}
	r.flags(asClient(cmd))
	addSettings(cmd, nil, "log")
	return cmd
}

func (r *runnerFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&r.name, "name", "", "of this runner (POSTERN_RUNNER_NAME) [the host's name and a random suffix]")
	f.StringSliceVar(&r.types, "types", []string{"python"}, "script types that it executes")
	f.IntVar(&r.slots, "slots", 1, "scripts at once")
	f.BoolVar(&r.takeover, "takeover", false, "take the name from another process that is alive")
	f.BoolVar(&r.attached, "attached", false, "end when standard input does")
	f.MarkHidden("attached")
	f.DurationVar(&r.drain, "drain", 30*time.Second, "how long scripts may go on when the runner is to end")
	r.boxFlags(cmd)
}

// boxFlags are those of the sandbox.
func (r *runnerFlags) boxFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&r.isolation, "isolation", string(sandbox.Partial),
		"the least isolation that will do: strict, partial or off")
	f.StringArrayVar(&r.interpreters, "interpreter", nil,
		"TYPE=PROGRAM ARGUMENTS, {file} for the script [python=python3 -I {file}]")
	f.StringSliceVar(&r.box.ReadOnly, "read-only", nil,
		"paths of this machine that scripts may read besides /usr, /bin and /lib")
	f.StringVar(&r.box.State, "state", "",
		"directory for those of the scripts (POSTERN_STATE_DIR) [root: /var/lib/postern; else $XDG_STATE_HOME/postern]")
	f.Int64Var(&r.memory, "memory", 512,
		"MiB that a script may take, as the address space of each process and all together")
	f.StringSliceVar(&r.unlimited, "unlimited-address-space", nil,
		"script types whose processes may reserve more than they use (Go, V8); --memory bounds what they use")
	f.IntVar(&r.box.Limits.Processes, "processes", 64, "processes and threads of a script")
	f.Int64Var(&r.file, "file-size", 64, "MiB of the largest file that a script may write")
	f.Int64Var(&r.tmp, "tmp", 64, "MiB in /tmp of a script, which is memory")
	f.StringVar(&r.box.Cgroup, "cgroup", "", "directory of cgroup v2 for those of the scripts [that of this process]")
	f.IntVar(&r.box.FirstUID, "first-uid", 64000,
		"a runner of root gives each slot a user of its own, from this one on")
}

// run opens the sandbox, and executes jobs until the command is to end.
func (r *runnerFlags) run(cmd *cobra.Command) error {
	cfg, _, err := settings(cmd)
	if err != nil {
		return err
	}
	log := app.Logger(cfg, os.Stderr)
	if err := r.read(cmd); err != nil {
		return usage(cmd, err)
	}
	d, err := dial(cmd)
	if err != nil {
		return err
	}
	d.HTTP.Transport = runnerTransport()
	types, missing := r.box.Types(r.types)
	for _, t := range r.types {
		if why := missing[t]; why != "" {
			log.Warn("a script type cannot be executed here", "script_type", t, "because", why)
		}
	}
	if len(types) == 0 {
		return &failure{exitBad, "", fmt.Errorf("no script type can be executed here: %s", missing[r.types[0]])}
	}
	box, err := sandbox.New(cmd.Context(), r.box)
	if err != nil {
		return &failure{exitBad, "", err}
	}
	level, why := box.Level()
	log.Info("sandbox", "isolation", level, "not more because", why, "directory", r.box.State, "swept", box.Swept())
	ctx, stop := attach(cmd.Context(), r.attached)
	defer stop()
	err = runner.New(runner.Config{
		Name:     r.name,
		Instance: uuid.NewString(),
		API:      d.Client,
		Box:      box,
		Types:    types,
		Missing:  missing,
		Slots:    r.slots,
		Takeover: r.takeover,
		Version:  version(),
		Drain:    r.drain,
		Log:      log,
	}).Run(ctx)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// runnerTransport goes through the proxy of the environment: the runner may stand in a network of its own. A connection
// that is dead is found out before the ttl ends.
func runnerTransport() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: 3 * time.Second, PingTimeout: 2 * time.Second}
	return t
}

// read checks the flags and fills in what was left out.
func (r *runnerFlags) read(cmd *cobra.Command) error {
	if r.name == "" {
		r.name = cmp.Or(os.Getenv("POSTERN_RUNNER_NAME"), runnerName())
	}
	if r.slots < 1 || r.slots > 1000 {
		return fmt.Errorf("--slots %d: want 1 to 1000", r.slots)
	}
	if len(r.types) == 0 || slices.Contains(r.types, "") {
		return errors.New("--types: want names of script types, such as python")
	}
	return r.readBox(cmd)
}

// readBox checks the flags of the sandbox and fills in what was left out.
func (r *runnerFlags) readBox(cmd *cobra.Command) (err error) {
	if r.box.Least, err = sandbox.ParseLevel(r.isolation); err != nil {
		return fmt.Errorf("--%w", err)
	}
	l := &r.box.Limits
	for flag, n := range map[string]int64{
		"memory":    r.memory,
		"file-size": r.file,
		"tmp":       r.tmp,
		"processes": int64(l.Processes),
	} {
		if n < 1 || n > 1<<30 {
			return fmt.Errorf("--%s %d: want at least 1", flag, n)
		}
	}
	l.Memory, l.FileSize, l.Tmp = r.memory<<20, r.file<<20, r.tmp<<20
	for _, p := range r.box.ReadOnly {
		if !filepath.IsAbs(p) || filepath.Clean(p) != p || p == "/" {
			return fmt.Errorf("--read-only %q: want an absolute path below /", p)
		}
	}
	if r.box.State = setting(cmd, "state", "POSTERN_STATE_DIR"); r.box.State == "" {
		r.box.State = runnerState()
	}
	if r.box.State, err = filepath.Abs(r.box.State); err != nil {
		return err
	}
	return r.readInterpreters()
}

// readInterpreters reads TYPE=PROGRAM ARGUMENTS.
func (r *runnerFlags) readInterpreters() error {
	r.box.Interpreters = sandbox.DefaultInterpreters()
	for _, s := range r.interpreters {
		name, argv, ok := strings.Cut(s, "=")
		if fields := strings.Fields(argv); ok && name != "" && slices.ContainsFunc(fields, func(a string) bool {
			return strings.Contains(a, "{file}")
		}) {
			r.box.Interpreters[name] = sandbox.Interpreter{Argv: fields, Ext: "." + name}
			continue
		}
		return fmt.Errorf("--interpreter %q: want TYPE=PROGRAM ARGUMENTS with {file} among them", s)
	}
	for _, t := range r.unlimited {
		i, ok := r.box.Interpreters[t]
		if !ok {
			return fmt.Errorf("--unlimited-address-space %s: no interpreter is given for it", t)
		}
		i.Unmapped = true
		r.box.Interpreters[t] = i
	}
	return nil
}

// runnerName is one that no other runner has.
func runnerName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "runner"
	}
	return host + "-" + strings.ToLower(rand.Text()[:6])
}

// runnerState is where the directories of the scripts are. Every user may pass those above: the scripts of root have
// users of their own.
func runnerState() string {
	if os.Geteuid() == 0 {
		return "/var/lib/postern"
	}
	if dir := os.Getenv("XDG_STATE_HOME"); dir != "" {
		return filepath.Join(dir, "postern")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = os.TempDir()
	}
	return filepath.Join(home, ".local", "state", "postern")
}
