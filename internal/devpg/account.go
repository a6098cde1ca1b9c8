package devpg

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
)

// rootState is where root keeps state that the server's user must reach; a variable for tests.
var rootState = "/var/lib/postern"

// account is the user that the server runs as.
type account struct {
	uid, gid int
	name     string
	switched bool // we are root and it is somebody else
}

// serverUser says who runs the server: our own user, or for root the first that exists of two unprivileged ones.
func serverUser() (account, error) {
	if os.Geteuid() != 0 {
		return account{uid: os.Geteuid(), gid: os.Getegid(), name: strconv.Itoa(os.Geteuid())}, nil
	}
	if runtime.GOOS != "linux" {
		return account{}, fmt.Errorf("PostgreSQL does not run as root: run this as another user, or name a server in DATABASE_URL")
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		if err1 == nil && err2 == nil && uid != 0 {
			return account{uid: uid, gid: gid, name: name, switched: true}, nil
		}
	}
	return account{}, fmt.Errorf("PostgreSQL does not run as root, and there is neither a user postgres nor nobody: run this as another user")
}

// mayEnter tells whether the account can pass through dir and everything above it.
func (a account) mayEnter(dir string) bool { return a.may(dir, 1) }

// mayRun tells whether the account can reach and run a file.
func (a account) mayRun(file string) bool { return a.may(file, 5) && a.mayEnter(filepath.Dir(file)) }

// may tells whether the account has the permission bits on path, and may enter every directory above. It passes over
// directories that do not exist yet. If we do not switch users it says yes, and the system itself will tell.
func (a account) may(path string, bits os.FileMode) bool {
	if !a.switched {
		return true
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return false
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if info, err := os.Stat(path); err == nil {
		mode := info.Mode().Perm()
		st, _ := info.Sys().(*syscall.Stat_t)
		switch {
		case st != nil && int(st.Uid) == a.uid:
			mode >>= 6
		case st != nil && int(st.Gid) == a.gid:
			mode >>= 3
		}
		if mode&bits != bits {
			return false
		}
	}
	parent := filepath.Dir(path)
	return parent == path || a.may(parent, 1)
}

// stateRoot returns the directory that holds a directory per major, made if it is missing. For root it is under
// /var/lib/postern if the wanted one is closed to the account, and that is said.
func (a account) stateRoot(o Options) (string, error) {
	state := o.StateDir
	if state == "" {
		state = os.Getenv("XDG_STATE_HOME")
		if state == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return "", fmt.Errorf("no state directory: set XDG_STATE_HOME or HOME: %w", err)
			}
			state = filepath.Join(home, ".local", "state")
		}
		state = filepath.Join(state, "postern")
	}
	state, err := filepath.Abs(state)
	if err != nil {
		return "", err
	}
	if !a.mayEnter(state) {
		o.Log(fmt.Sprintf("%s is closed to the user %s, which runs the server for root: its data goes to %s", state, a.name, rootState))
		state = rootState
	}
	root := filepath.Join(state, "pg")
	mode := os.FileMode(0o700)
	if a.switched {
		mode = 0o755 // the account must pass; the directories of the majors are closed
	}
	return root, os.MkdirAll(root, mode)
}

// mkdir makes a closed directory of the account. One that belongs to somebody else is refused.
func (a account) mkdir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err == nil {
		return a.own(dir)
	} else if !os.IsExist(err) {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != a.uid {
		return fmt.Errorf("%s belongs to the user %d, the server would run as %s: run this as that user, or name another state directory", dir, st.Uid, a.name)
	}
	return nil
}

// tempDir is where an ephemeral server lies. Data that may be lost goes to memory if there is plenty: a clone of a
// database is half a thousand new files, measured at 20 ms there and 40 to 400 ms on a disk.
func (a account) tempDir(mayBeLost bool) string {
	const memory, plenty = "/dev/shm", 2 << 30
	if mayBeLost && roomIn(memory) >= plenty && a.mayEnter(memory) {
		return memory
	}
	if dir := os.TempDir(); a.mayEnter(dir) {
		return dir
	}
	return "/tmp"
}

// ownerOf is the account that owns the data of root's server in dir already. A user postgres that is installed later
// does not take over data that the other user owns.
func (a account) ownerOf(dir string) account {
	info, err := os.Stat(dir)
	if err != nil || !a.switched {
		return a
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 {
		a.uid, a.gid, a.name = int(st.Uid), int(st.Gid), strconv.Itoa(int(st.Uid))
	}
	return a
}

// credential starts a process as the account; nil if that is who we are.
func (a account) credential() *syscall.Credential {
	if !a.switched {
		return nil
	}
	return &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
}

// own gives a path to the account.
func (a account) own(path string) error {
	if !a.switched {
		return nil
	}
	return os.Lchown(path, a.uid, a.gid)
}

// shareUsers takes the shared lock that says we use the server of dir.
func (a account) shareUsers(ctx context.Context, dir string) (*os.File, error) {
	path := filepath.Join(dir, "users")
	f, err := lockFile(ctx, path, false)
	if err != nil {
		return nil, err
	}
	return f, a.own(path) // the keeper locks it as the account
}
