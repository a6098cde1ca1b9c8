//go:build unix

package worker

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// lockFile keeps a second process out until the returned one is closed, or this process ends.
func lockFile(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(errors.New("another worker has it open: one store is for one process"), f.Close())
	}
	return f, nil
}
