package wire

import (
	"syscall"
	"unsafe"
)

// Unsent counts the bytes that were written and that the other side has not acknowledged; 0 where that cannot be told.
func Unsent(raw syscall.RawConn) int {
	var n int32
	_ = raw.Control(func(fd uintptr) {
		_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCOUTQ, uintptr(unsafe.Pointer(&n)))
	})
	return int(n)
}
