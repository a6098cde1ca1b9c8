package devpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lockFile takes the flock of a file, alone or shared, and waits for it until ctx ends. Closing the file, or the end of
// the process, gives it back. It asks again and again, since a waiting flock cannot be given up.
func lockFile(ctx context.Context, path string, alone bool) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		taken, err := tryLock(f, alone)
		if taken {
			return f, nil
		}
		if err == nil {
			select {
			case <-ctx.Done():
				err = fmt.Errorf("another process holds %s: %w", path, ctx.Err())
			case <-time.After(20 * time.Millisecond):
				continue
			}
		}
		f.Close()
		return nil, err
	}
}

// tryLock takes the flock if it is free now.
func tryLock(f *os.File, alone bool) (bool, error) {
	how := syscall.LOCK_SH
	if alone {
		how = syscall.LOCK_EX
	}
	err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
		return false, nil
	}
	return err == nil, err
}
