//go:build !linux

package wire

import "syscall"

// Unsent cannot count here.
func Unsent(syscall.RawConn) int { return 0 }
