package sandbox

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a script that was started.
type Process struct {
	box      *Box
	script   Script
	dir      *directory
	cgroup   *cgroup
	cmd      *exec.Cmd // the init
	commands *os.File
	reading  []*os.File
	out      *output
	began    time.Time

	reports        chan report // what the init and the step say; closed at their end
	stdout, stderr chan string // the last bytes
	stop, kill     func()
	stopped        chan struct{}
	killed         chan struct{}
	over           chan struct{}
	outcome        Outcome
}

// start builds the box and starts what was found as the interpreter.
func (b *Box) start(s Script, i Interpreter, path string, sink func(Line)) (_ *Process, err error) {
	p := &Process{
		box:     b,
		script:  s,
		began:   time.Now(),
		out:     &output{sink: sink, left: b.config.Limits.Log},
		reports: make(chan report, 2),
		stdout:  make(chan string, 1),
		stderr:  make(chan string, 1),
		stopped: make(chan struct{}),
		killed:  make(chan struct{}),
		over:    make(chan struct{}),
	}
	p.stop = sync.OnceFunc(func() { close(p.stopped) })
	p.kill = sync.OnceFunc(func() { close(p.killed) })
	o, err := p.order(i, path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.clear())
		}
	}()
	if p.dir, err = makeDirectory(b.config.State, s, i.Ext, b.uid(s.Slot)); err != nil {
		return nil, err
	}
	if b.level == Strict {
		if p.cgroup, err = b.makeCgroup(s.Name); err != nil {
			return nil, err
		}
	}
	if err := p.launch(o); err != nil {
		return nil, err
	}
	go p.supervise()
	return p, nil
}

// order is what the init of this script is told.
func (p *Process) order(i Interpreter, path string) (order, error) {
	c, boxed := p.box.config, p.box.level != Off
	o := order{
		Box:      boxed,
		Dir:      place(c.State, p.script),
		ReadOnly: c.ReadOnly,
		Network:  p.script.Network,
		Path:     path,
		Unmapped: i.Unmapped,
		Bounded:  p.box.level == Strict,
		Limits:   c.Limits,
	}
	for _, a := range i.Argv {
		o.Argv = append(o.Argv, strings.ReplaceAll(a, "{file}", o.inside()+"/script"+i.Ext))
	}
	tmp := o.inside()
	if boxed {
		tmp = "/tmp"
	}
	var err error
	o.Env, err = environment(p.script, o.inside(), tmp)
	return o, err
}

// uid is the user of a slot on the host, or -1 for that of the runner.
func (b *Box) uid(slot int) int {
	if b.level == Off || os.Geteuid() != 0 {
		return -1
	}
	return b.config.FirstUID + slot
}

// attributes are the namespaces of the init and its user.
func (p *Process) attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setsid: true}
	if p.box.level == Off {
		return a
	}
	a.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC |
		syscall.CLONE_NEWUTS | syscall.CLONE_NEWCGROUP
	if !p.script.Network {
		a.Cloneflags |= syscall.CLONE_NEWNET
	}
	uid, gid := os.Geteuid(), os.Getegid()
	a.Credential = &syscall.Credential{NoSetGroups: true} // uid 0 inside
	if slot := p.box.uid(p.script.Slot); slot >= 0 {
		uid, gid = slot, slot
		a.GidMappingsEnableSetgroups, a.Credential.NoSetGroups = true, false // forget the groups of root
	}
	a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
	a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
	if p.cgroup != nil {
		a.UseCgroupFD, a.CgroupFD = true, int(p.cgroup.dir.Fd())
	}
	return a
}

// pipe is one way between the runner and a child.
type pipe struct{ r, w *os.File }

func pipes(n int) (made []pipe, err error) {
	for range n {
		var p pipe
		if p.r, p.w, err = os.Pipe(); err != nil {
			closeAll(made)
			return nil, err
		}
		made = append(made, p)
	}
	return made, nil
}

func closeAll(ps []pipe) {
	for _, p := range ps {
		p.r.Close()
		p.w.Close()
	}
}

// launch starts the init, gives it its order, and begins to read what it and the script say.
func (p *Process) launch(o order) error {
	all, err := pipes(4)
	if err != nil {
		return err
	}
	orders, reports, stdout, stderr := all[0], all[1], all[2], all[3]
	p.cmd = exec.Command("/proc/self/exe")
	p.cmd.Args = []string{"postern-sandbox"}
	p.cmd.Env = []string{stageVariable + "=init"}
	p.cmd.Dir = "/"
	p.cmd.Stdout, p.cmd.Stderr = stdout.w, stderr.w
	p.cmd.ExtraFiles = []*os.File{orders.r, reports.w}
	p.cmd.SysProcAttr = p.attributes()
	if err := p.cmd.Start(); err != nil {
		closeAll(all)
		return err
	}
	for _, f := range []*os.File{orders.r, reports.w, stdout.w, stderr.w} {
		f.Close()
	}
	p.commands, p.reading = orders.w, []*os.File{reports.r, stdout.r, stderr.r}
	go p.readReports(reports.r)
	go func() { p.stdout <- p.out.read("stdout", stdout.r, keptStdout) }()
	go func() { p.stderr <- p.out.read("stderr", stderr.r, keptStderr) }()
	writeLine(p.commands, o) // an init that has ended before it read all of this has reported why
	return nil
}

// readReports reads what the init and the step say.
func (p *Process) readReports(r *os.File) {
	defer close(p.reports)
	reportsIn(r, func(said report) { p.reports <- said })
}

// reportsIn hands over the reports in r. A line that is none is left out, and so is one of more than 64 KiB: those
// behind it are read all the same, since one of them says how the script ended.
func reportsIn(r io.Reader, take func(report)) {
	lines := bufio.NewReaderSize(r, 64<<10)
	for err := error(nil); err == nil || errors.Is(err, bufio.ErrBufferFull); {
		var line []byte
		long := errors.Is(err, bufio.ErrBufferFull) // line goes on what was too long
		line, err = lines.ReadSlice('\n')
		var said report
		if !long && !errors.Is(err, bufio.ErrBufferFull) && json.Unmarshal(line, &said) == nil {
			take(said)
		}
	}
}
