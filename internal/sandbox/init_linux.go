package sandbox

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"
)

const prSetChildSubreaper, prSetDumpable = 36, 4

// runInit is the init of one script. In a box it is pid 1: when it ends, the kernel kills what is left. Without a box
// it adopts what loses its parent, and kills it itself.
func runInit() int {
	debug.SetGCPercent(-1) // it lives for one script
	syscall.CloseOnExec(orderFD)
	syscall.CloseOnExec(reportFD)
	runner := bufio.NewReader(os.NewFile(orderFD, "order"))
	reports := os.NewFile(reportFD, "report")
	fail := func(code string, err error) int {
		writeLine(reports, report{Code: code, Error: err.Error()})
		return 1
	}
	// A signal to the group of the runner, or one that the script sends to pid 1, is not for us. They are caught rather
	// than ignored, since an ignored signal stays ignored in the script.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGTSTP, syscall.SIGTTIN,
		syscall.SIGTTOU)
	o, err := readOrder(runner)
	if err != nil {
		return fail(CodeSandbox, err)
	}
	os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0) // where memory ends, a script goes before a server
	if err := build(o); err != nil {
		return fail(CodeSandbox, err)
	}
	pid, err := startStep(o)
	if err != nil {
		return fail(CodeSandbox, err)
	}
	i := &initProcess{order: o, pid: pid, runner: runner, ended: make(chan syscall.WaitStatus, 1)}
	writeLine(reports, i.watch())
	return 0
}

// build makes what the script will see.
func build(o order) error {
	if !o.Box {
		_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0)
		return as("adopt orphans", errno)
	}
	if err := buildRoot(o); err != nil {
		return err
	}
	// No process of the same uid may look into this one.
	_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetDumpable, 0, 0)
	return as("hide the memory of the init", errno)
}

func as(what string, errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return &os.SyscallError{Syscall: what, Err: errno}
}

// startStep starts the process that becomes the script, in a session of its own, and leaves it the output alone.
func startStep(o order) (pid int, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	pid, err = syscall.ForkExec("/proc/self/exe", []string{"postern-sandbox"}, &syscall.ProcAttr{
		Dir:   o.inside(),
		Env:   []string{stageVariable + "=step"},
		Files: []uintptr{0, 1, 2, r.Fd(), reportFD},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	r.Close()
	if err != nil {
		return 0, &os.SyscallError{Syscall: "start the script's process", Err: err}
	}
	go func() {
		writeLine(w, o)
		w.Close()
	}()
	for fd := 1; fd <= 2; fd++ { // else the output would not end with the script
		if err := syscall.Dup3(0, fd, 0); err != nil {
			return 0, err
		}
	}
	return pid, nil
}

// initProcess watches over one script.
type initProcess struct {
	order  order
	pid    int // of the script
	runner *bufio.Reader
	ended  chan syscall.WaitStatus // of the script; closed when no child is left
	memory bool
}

// watch returns when nothing of the script is alive.
func (i *initProcess) watch() report {
	commands := make(chan byte)
	go func() {
		for {
			c, err := i.runner.ReadByte()
			if err != nil {
				i.orphaned()
			}
			commands <- c
		}
	}()
	go i.reap()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case c := <-commands:
			if c == commandTerm {
				syscall.Kill(-i.pid, syscall.SIGTERM)
			} else {
				i.killAll()
			}
		case <-look.C:
			if i.order.Box && !i.order.Bounded && overMemory(i.order.Limits.Memory) {
				i.memory = true
				i.killAll()
			}
		case status := <-i.ended:
			i.bury()
			return i.account(status)
		}
	}
}

// orphaned ends the process: the runner is gone. In a box the kernel kills all others with it.
func (i *initProcess) orphaned() {
	if !i.order.Box {
		for until := time.Now().Add(5 * time.Second); time.Now().Before(until) && descendants() > 0; {
			i.killAll()
			time.Sleep(time.Millisecond)
		}
	}
	os.Exit(1)
}

// reap waits for all children, also those that were adopted.
func (i *initProcess) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case pid == i.pid:
			i.ended <- status
		case errors.Is(err, syscall.ECHILD):
			close(i.ended)
			return
		}
	}
}

// bury kills what the script has left behind, and returns when all of it is gone.
func (i *initProcess) bury() {
	for {
		i.killAll()
		select {
		case _, more := <-i.ended:
			if !more {
				return
			}
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// killAll kills all that is left of the script, in whatever group or session it is.
func (i *initProcess) killAll() {
	if i.order.Box {
		syscall.Kill(-1, syscall.SIGKILL)
		return
	}
	syscall.Kill(-i.pid, syscall.SIGKILL)
	descendants()
}

func (i *initProcess) account(status syscall.WaitStatus) report {
	var used syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_CHILDREN, &used)
	r := report{
		Ended:  true,
		Exit:   -1,
		Memory: i.memory,
		CPU:    used.Utime.Nano() + used.Stime.Nano(),
		MaxRSS: used.Maxrss << 10,
	}
	if status.Exited() {
		r.Exit = status.ExitStatus()
	} else {
		r.Signal = int(status.Signal())
	}
	return r
}

// descendants kills all processes below this one, and returns how many it found.
func descendants() (n int) {
	parents := map[int]int{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range files {
		text, _ := os.ReadFile(f)
		// pid (name) state parent: the name may hold anything
		if _, rest, ok := bytes.Cut(text[max(0, bytes.LastIndexByte(text, ')')):], []byte(") ")); ok {
			fields := bytes.Fields(rest)
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			if len(fields) > 1 && fields[0][0] != 'Z' {
				parents[pid], _ = strconv.Atoi(string(fields[1]))
			}
		}
	}
	self := os.Getpid()
	for pid := range parents {
		for at := pid; at > 1; at = parents[at] {
			if parents[at] == self {
				syscall.Kill(pid, syscall.SIGKILL)
				n++
				break
			}
		}
	}
	return n
}
