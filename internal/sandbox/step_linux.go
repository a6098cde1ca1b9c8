package sandbox

import (
	"bufio"
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"unsafe"
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

// runStep gives up every right, sets the limits and becomes the script. It returns on failure.
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
	writeLine(reports, report{Code: code, Error: err.Error()})
	return 1
}

func becomeScript() (code string, err error) {
	o, err := readOrder(bufio.NewReader(os.NewFile(orderFD, "order")))
	if err != nil {
		return CodeSandbox, err
	}
	if err := giveUpRights(o.Box); err != nil {
		return CodeSandbox, err
	}
	syscall.Umask(ownFilesOnly)
	err = execute(o)
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

// limit is a bound that the script has, and this program before it.
type limit struct {
	name  string
	which uintptr
	to    syscall.Rlimit
}

// limitsOf are those of a box. Address space comes last.
func limitsOf(o order) (list []limit) {
	if !o.Box {
		return nil
	}
	add := func(name string, which uintptr, most uint64) {
		list = append(list, limit{name, which, syscall.Rlimit{Cur: most, Max: most}})
	}
	l := o.Limits
	add("core", syscall.RLIMIT_CORE, 0)
	add("file size", syscall.RLIMIT_FSIZE, uint64(l.FileSize))
	add("open files", syscall.RLIMIT_NOFILE, uint64(l.Files))
	add("processes", rlimitNPROC, uint64(l.Processes)+threadsOfInit)
	if !o.Unmapped {
		add("address space", syscall.RLIMIT_AS, uint64(l.Memory))
	}
	return list
}

// execute sets the limits and becomes the script, or ends where there is none, as in a probe. It returns what failed.
//
// This program has more address space than many scripts may have. With the limits nothing of its runtime can take
// memory or begin a thread any more, and dies of it. So between them and the script there is nothing but system calls:
// all that they need is made before, and with one processor no other goroutine runs meanwhile.
func execute(o order) error {
	failed := func(err error) error { return &os.PathError{Op: "execute", Path: o.Path, Err: err} }
	path, err := syscall.BytePtrFromString(o.Path)
	if err != nil {
		return failed(err)
	}
	argv, err := syscall.SlicePtrFromStrings(o.Argv) // with nil behind them, also where there are none
	if err != nil {
		return failed(err)
	}
	env, err := syscall.SlicePtrFromStrings(o.Env)
	if err != nil {
		return failed(err)
	}
	limits := limitsOf(o)
	debug.SetGCPercent(-1)
	runtime.GOMAXPROCS(1)
	for i := range limits {
		_, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, 0, limits[i].which,
			uintptr(unsafe.Pointer(&limits[i].to)), 0, 0, 0)
		if errno != 0 {
			return &os.SyscallError{Syscall: "limit " + limits[i].name, Err: errno}
		}
	}
	if o.Path == "" {
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
	}
	_, _, errno := syscall.RawSyscall(syscall.SYS_EXECVE, uintptr(unsafe.Pointer(path)),
		uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&env[0])))
	return failed(errno)
}
