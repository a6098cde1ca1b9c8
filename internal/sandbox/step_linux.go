package sandbox

import (
	"bufio"
	"errors"
	"os"
	"runtime"
	"strings"
	"syscall"
)

// Of close_range(2), prctl(2), capabilities(7), setrlimit(2) and keyctl(2).
const (
	sysCloseRange    = 436 // on all architectures
	closeRangeOnExec = 4
	prCapbsetDrop    = 24
	prSetSecurebits  = 28
	prSetNoNewPrivs  = 38
	noRootLocked     = 0x2f // NOROOT, NO_SETUID_FIXUP, KEEP_CAPS_LOCKED and their locks
	lastCapability   = 63
	rlimitNPROC      = 6
	keyctlJoin       = 1
	ownFilesOnly     = 0o022
	threadsOfInit    = 16 // they count for the same user
)

// runStep gives up every right, sets the limits and becomes the script. It returns on failure, and where there is
// nothing to become.
func runStep() int {
	runtime.LockOSThread() // rights belong to threads, and the one that calls exec decides
	// What the runner itself had inherited goes no further either.
	_, _, errno := syscall.RawSyscall(sysCloseRange, 3, ^uintptr(0), closeRangeOnExec)
	reports := os.NewFile(reportFD, "report")
	if errno != 0 {
		writeLine(reports, report{Code: CodeSandbox, Error: as("close_range", errno).Error()})
		return 1
	}
	code, err := becomeScript()
	if err != nil {
		writeLine(reports, report{Code: code, Error: err.Error()})
		return 1
	}
	return 0 // a probe
}

func becomeScript() (code string, err error) {
	o, err := readOrder(bufio.NewReader(os.NewFile(orderFD, "order")))
	if err != nil {
		return CodeSandbox, err
	}
	if err := giveUpRights(o.Box); err != nil {
		return CodeSandbox, err
	}
	if o.Box {
		if err := setLimits(o); err != nil {
			return CodeSandbox, err
		}
	}
	if o.Path == "" {
		return "", nil
	}
	syscall.Umask(ownFilesOnly)
	err = &os.PathError{Op: "execute", Path: o.Path, Err: syscall.Exec(o.Path, o.Argv, o.Env)}
	switch {
	case errors.Is(err, syscall.E2BIG):
		return CodeBadEnvironment, err
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.ENOEXEC):
		return CodeNoInterpreter, err
	}
	return CodeSandbox, err
}

// giveUpRights leaves the process without capabilities that it could ever have again. The session keyring of the runner
// stays behind.
func giveUpRights(box bool) error {
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetNoNewPrivs, 1, 0, 0, 0, 0); errno != 0 {
		return as("forbid new privileges", errno)
	}
	syscall.RawSyscall(syscall.SYS_KEYCTL, keyctlJoin, 0, 0) // where there are no keyrings, there is nothing to leave
	if !box {
		return nil
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetSecurebits, noRootLocked, 0); errno != 0 {
		return as("lock the secure bits", errno)
	}
	for c := uintptr(0); c <= lastCapability; c++ {
		_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prCapbsetDrop, c, 0)
		if errno != 0 && errno != syscall.EINVAL { // EINVAL: the kernel has no such capability
			return as("drop a capability", errno)
		}
	}
	return filterCalls()
}

// setLimits comes last: this program itself needs more address space than many scripts may have.
func setLimits(o order) error {
	l := o.Limits
	limits := []struct {
		name  string
		which int
		most  uint64
	}{
		{"core", syscall.RLIMIT_CORE, 0},
		{"file size", syscall.RLIMIT_FSIZE, uint64(l.FileSize)},
		{"open files", syscall.RLIMIT_NOFILE, uint64(l.Files)},
		{"processes", rlimitNPROC, uint64(l.Processes) + threadsOfInit},
		{"address space", syscall.RLIMIT_AS, uint64(l.Memory)},
	}
	if o.Unmapped {
		limits = limits[:len(limits)-1]
	}
	for _, l := range limits {
		if err := syscall.Setrlimit(l.which, &syscall.Rlimit{Cur: l.most, Max: l.most}); err != nil {
			return &os.SyscallError{Syscall: strings.Join([]string{"limit", l.name}, " "), Err: err}
		}
	}
	return nil
}
