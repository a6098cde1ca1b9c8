package devpg

import "syscall"

// selfPath starts this program again. Not os.Executable: what `go run` builds lies in a directory closed to others, and
// the kernel's own link passes.
func selfPath() (string, error) { return "/proc/self/exe", nil }

// dieWithParent asks the kernel to stop a child (a fast shutdown for postgres) when the thread that started it ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGINT }

// roomIn is how many bytes are free in the file system of dir, 0 if it cannot be told.
func roomIn(dir string) uint64 {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0
	}
	return st.Bavail * uint64(st.Bsize)
}
