package sandbox

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"
)

// machine is what a filter of system calls must know of an architecture.
type machine struct {
	arch   uint32 // AUDIT_ARCH_*
	socket uint32
	denied []uint32
}

// machines names the system calls that no script needs and that lead around the box: memory that belongs to no process
// and has no limit (memfd_create, memfd_secret, shmget, msgget), keyrings, which no namespace keeps apart (add_key,
// request_key, keyctl), and doors to the kernel (bpf, userfaultfd, perf_event_open, io_uring_setup). They fail with
// ENOSYS, as in a kernel that lacks them.
var machines = map[string]machine{
	"amd64": {0xc000003e, 41, []uint32{319, 447, 29, 68, 248, 249, 250, 321, 323, 298, 425}},
	"arm64": {0xc00000b7, 198, []uint32{279, 447, 194, 186, 217, 218, 219, 280, 282, 241, 425}},
}

// families are the kinds of sockets that a script may have: UNIX, IPv4, IPv6, netlink. A network namespace keeps these
// apart; it does not keep apart vsock, which leads to the host of a virtual machine.
var families = []uint32{syscall.AF_UNIX, syscall.AF_INET, syscall.AF_INET6, syscall.AF_NETLINK}

// Of bpf(2) and seccomp(2).
const (
	load, jumpEqual, jumpGreater, answer = 0x20, 0x15, 0x35, 0x06
	allow, kill, refuse                  = 0x7fff0000, 0x80000000, 0x00050000 // refuse carries an errno
	atNumber, atArch, atFirstArgument    = 0, 4, 16
	otherNumbers                         = 0x40000000 // x32 on amd64
	prSetSeccomp, modeFilter             = 22, 2
)

// filterCalls forbids the system calls above to this thread and to what it becomes.
func filterCalls() error {
	m, ok := machines[runtime.GOARCH]
	if !ok {
		return fmt.Errorf("no filter of system calls is known for %s: want amd64 or arm64", runtime.GOARCH)
	}
	type instruction struct {
		code    uint16
		yes, no uint8
		k       uint32
	}
	program := []instruction{
		{load, 0, 0, atArch},
		{jumpEqual, 1, 0, m.arch},
		{answer, 0, 0, kill},
		{load, 0, 0, atNumber},
		{jumpGreater, 0, 1, otherNumbers},
		{answer, 0, 0, refuse | uint32(syscall.ENOSYS)},
	}
	denied := instruction{answer, 0, 0, refuse | uint32(syscall.ENOSYS)}
	for _, n := range m.denied {
		program = append(program, instruction{jumpEqual, 0, 1, n}, denied)
	}
	program = append(program, instruction{jumpEqual, 1, 0, m.socket}, instruction{answer, 0, 0, allow},
		instruction{load, 0, 0, atFirstArgument})
	for _, f := range families {
		program = append(program, instruction{jumpEqual, 0, 1, f}, instruction{answer, 0, 0, allow})
	}
	program = append(program, instruction{answer, 0, 0, refuse | uint32(syscall.EAFNOSUPPORT)})
	whole := struct {
		n     uint16
		first *instruction
	}{uint16(len(program)), &program[0]}
	_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetSeccomp, modeFilter, uintptr(unsafe.Pointer(&whole)))
	return as("filter system calls", errno)
}
