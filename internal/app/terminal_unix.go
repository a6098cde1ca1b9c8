//go:build linux || darwin

package app

import (
	"os"
	"syscall"
	"unsafe"
)

// Terminal returns the size of the terminal that f is, and whether it is one.
func Terminal(f *os.File) (columns, rows int, ok bool) {
	var size struct{ rows, columns, x, y uint16 }
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size)))
	return int(size.columns), int(size.rows), errno == 0
}
