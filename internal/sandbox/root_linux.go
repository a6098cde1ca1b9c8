package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"unsafe"
)

// Of mount_setattr(2), which is in Linux since 5.12 and has one number on all architectures.
const (
	sysMountSetattr = 442
	atRecursive     = 0x8000
	attrReadOnly    = 1
	attrNoSuid      = 2
	attrNoDev       = 4
	attrNoExec      = 8
)

// Files of /etc that a box shows, where they are there; resolver only where the script has a network.
var (
	shownEtc = []string{"passwd", "group", "ld.so.cache", "nsswitch.conf", "ssl", "pki/tls", "pki/ca-trust",
		"alternatives", "localtime"}
	resolver = []string{"resolv.conf", "hosts"}
)

var devices = []string{"null", "zero", "full", "random", "urandom"}

// inside is the directory of the script as the script sees it.
func (o order) inside() string {
	if o.Box {
		return "/job"
	}
	return o.Dir
}

// rooter builds the root of a box below dir. The first error stops it.
type rooter struct {
	dir string
	err error
}

// buildRoot makes a new root, the only one that there is from then on. The process is pid 1 of new namespaces.
func buildRoot(o order) error {
	r := &rooter{dir: o.Dir}
	r.do("enter the directory of the script", func() error { return os.Chdir(o.Dir) })
	r.mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
	// The new root hides the directory of the script at its path; it stays in reach as the working directory.
	r.mount("tmpfs", o.Dir, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "mode=755,size=1m,nr_inodes=4096")
	r.make("/job", 0o755)
	r.mount(".", r.dir+"/job", "", syscall.MS_BIND, "") // with what lies below it, the new root would come along
	r.attributes(r.dir+"/job", attrNoSuid|attrNoDev, 0)
	for _, path := range slices.Concat(shown, o.ReadOnly) {
		r.show(path)
	}
	etc := shownEtc
	if o.Network {
		etc = slices.Concat(etc, resolver)
	}
	for _, name := range etc {
		if _, err := os.Stat("/etc/" + name); err == nil {
			r.bind("/etc/"+name, "/etc/"+name, attrReadOnly|attrNoSuid|attrNoDev)
		}
	}
	for _, name := range devices {
		r.bind("/dev/"+name, "/dev/"+name, attrReadOnly|attrNoSuid|attrNoExec)
	}
	for _, link := range [][2]string{{"/proc/self/fd", "/dev/fd"}, {"/proc/self/fd/0", "/dev/stdin"},
		{"/proc/self/fd/1", "/dev/stdout"}, {"/proc/self/fd/2", "/dev/stderr"}, {"/tmp", "/dev/shm"}} {
		r.do("link", func() error { return os.Symlink(link[0], r.dir+link[1]) })
	}
	r.make("/tmp", 0o777|fs.ModeSticky)
	r.mount("tmpfs", r.dir+"/tmp", "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV,
		"mode=1777,nr_inodes=16384,size="+strconv.FormatInt(o.Limits.Tmp, 10))
	r.make("/proc", 0o755)
	r.mount("proc", r.dir+"/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, "")
	r.enter()
	return r.err
}

// enter makes the new root the root, forgets the old one, and closes what was open while it was built.
func (r *rooter) enter() {
	r.do("enter the new root", func() error { return os.Chdir(r.dir) })
	r.do("pivot_root", func() error { return syscall.PivotRoot(".", ".") })
	r.do("forget the old root", func() error { return syscall.Unmount(".", syscall.MNT_DETACH) })
	r.do("enter the new root", func() error { return os.Chdir("/") })
	r.do("name the host", func() error { return syscall.Sethostname([]byte("postern")) })
	r.do("forbid nested user namespaces", func() error {
		return os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0)
	})
	r.attributes("/proc", attrReadOnly, 0)
	r.attributes("/", attrReadOnly|attrNoSuid|attrNoDev, 0)
}

func (r *rooter) do(what string, f func() error) {
	if r.err == nil {
		if err := f(); err != nil {
			r.err = fmt.Errorf("%s: %w", what, err)
		}
	}
}

func (r *rooter) mount(source, target, kind string, flags uintptr, data string) {
	r.do("mount "+kind+" on "+target, func() error { return syscall.Mount(source, target, kind, flags, data) })
}

func (r *rooter) make(path string, mode fs.FileMode) {
	r.do("make "+path, func() error { return os.MkdirAll(r.dir+path, mode) })
}

// show binds a path of the host to the same path, read-only. It shows a symlink as one, and leaves out
// a path that is not there.
func (r *rooter) show(path string) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		r.do("show "+path, func() error { return err })
	case info.Mode()&fs.ModeSymlink != 0:
		r.make(filepath.Dir(path), 0o755)
		r.do("show "+path, func() error {
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(to, r.dir+path)
		})
	default:
		r.bind(path, path, attrReadOnly|attrNoSuid|attrNoDev)
	}
}

// bind shows a directory or file of the host in the box, with all that is mounted below it.
func (r *rooter) bind(source, target string, attributes uint64) {
	r.do("show "+target, func() error {
		info, err := os.Stat(source)
		if err != nil {
			return err
		}
		if info.IsDir() {
			return os.MkdirAll(r.dir+target, 0o755)
		}
		if err := os.MkdirAll(filepath.Dir(r.dir+target), 0o755); err != nil {
			return err
		}
		f, err := os.Create(r.dir + target)
		if err != nil {
			return err
		}
		return f.Close()
	})
	r.mount(source, r.dir+target, "", syscall.MS_BIND|syscall.MS_REC, "")
	r.attributes(r.dir+target, attributes, atRecursive)
}

// attributes takes away what may be done on a mount.
func (r *rooter) attributes(path string, set uint64, flags uintptr) {
	r.do("take rights on "+path, func() error {
		const cwd = ^uintptr(99) // AT_FDCWD, -100
		attr := struct{ set, clear, propagation, userns uint64 }{set: set}
		name, err := syscall.BytePtrFromString(path)
		if err != nil {
			return err
		}
		_, _, errno := syscall.Syscall6(sysMountSetattr, cwd, uintptr(unsafe.Pointer(name)), flags,
			uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
		return as("mount_setattr", errno)
	})
}
