package chaos

import "syscall"

// dieWithParent keeps nodes from outliving a test that is killed itself.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
