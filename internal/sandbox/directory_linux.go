package sandbox

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

var plainName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$`)

// directory is that of one script. It is locked for as long as its runner lives.
type directory struct {
	path string
	lock *os.File
}

// place is the path of the directory of a script.
func place(state string, s Script) string {
	return filepath.Join(state, "contexts", plain(s.Context), plain(s.Name))
}

// plain is a name as a directory can have it: itself, or a digest.
func plain(name string) string {
	if plainName.MatchString(name) {
		return name
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(name)))
}

// makeDirectory makes the directory of a script with its files. Those above it belong to the runner, so that a script
// cannot replace them.
func makeDirectory(state string, s Script, ext string, uid int) (d *directory, err error) {
	d = &directory{path: place(state, s)}
	if err := makePassable(filepath.Dir(d.path)); err != nil {
		return nil, err
	}
	if err := os.Mkdir(d.path, 0o700); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			d.remove()
		}
	}()
	if d.lock, err = lock(d.path); err != nil {
		return nil, err
	}
	inputs := s.Inputs
	if len(inputs) == 0 {
		inputs = []byte("{}")
	}
	for name, text := range map[string][]byte{"script" + ext: []byte(s.Text), inputsFile: inputs} {
		path := filepath.Join(d.path, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return nil, err
		}
		if err := os.Chown(path, uid, uid); err != nil && uid >= 0 {
			return nil, err
		}
	}
	if uid >= 0 {
		return d, os.Chown(d.path, uid, uid)
	}
	return d, nil
}

// makePassable makes a directory of the runner, which others may pass but not list, whatever the umask is.
func makePassable(path string) error {
	if err := os.Mkdir(path, 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Chmod(path, 0o711)
}

// lock says that the directory is in use, until the file is closed or the process ends.
func lock(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("the directory %s is in use: %w", path, err)
	}
	return f, nil
}

// remove removes the directory with all that the script left there.
func (d *directory) remove() error {
	if d.lock != nil {
		defer d.lock.Close()
	}
	return removeAll(d.path)
}

// removeAll removes a tree also where the script took away the rights on it. It follows no symlink.
func removeAll(path string) error {
	if os.RemoveAll(path) == nil {
		return nil
	}
	filepath.WalkDir(path, func(p string, e fs.DirEntry, err error) error {
		if e != nil && e.IsDir() {
			os.Chmod(p, 0o700)
		}
		return nil
	})
	return os.RemoveAll(path)
}

// sweep removes the directories of scripts whose runner is gone, and returns how many there were.
func (b *Box) sweep() (n int) {
	found, _ := filepath.Glob(filepath.Join(b.config.State, "contexts", "*", "*"))
	for _, path := range found {
		if strings.HasPrefix(filepath.Base(path), ".") {
			continue
		}
		f, err := lock(path)
		if err != nil {
			if os.IsPermission(err) && os.Chmod(path, 0o700) == nil {
				f, err = lock(path)
			}
			if err != nil {
				continue // of a runner that is alive
			}
		}
		if removeAll(path) == nil {
			n++
		}
		f.Close()
	}
	return n
}
