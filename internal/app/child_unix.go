//go:build unix

package app

import (
	"os/exec"
	"syscall"
)

// detach puts a child into a process group of its own.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
