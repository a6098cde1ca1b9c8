//go:build !linux

package devpg

import (
	"os"
	"syscall"
)

// selfPath starts this program again.
func selfPath() (string, error) { return os.Executable() }

// dieWithParent has no counterpart here: a server whose keeper was killed is joined by the next Start.
func dieWithParent(*syscall.SysProcAttr) {}

// roomIn is not asked here: there is no memory file system that everybody has.
func roomIn(string) uint64 { return 0 }
