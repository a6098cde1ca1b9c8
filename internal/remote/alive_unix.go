//go:build unix

package remote

import "syscall"

// hungUp looks, without waiting and without taking anything, whether the other side has closed.
func hungUp(raw syscall.RawConn) bool {
	var dead bool
	err := raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		switch err {
		case nil:
			dead = n == 0
		case syscall.EAGAIN, syscall.EINTR:
		default:
			dead = true
		}
	})
	return err != nil || dead
}
