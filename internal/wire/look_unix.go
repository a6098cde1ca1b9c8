//go:build unix

package wire

import "syscall"

// Look looks at a connection without waiting and without taking anything.
func Look(raw syscall.RawConn) State {
	state := Quiet
	err := raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		switch {
		case err == syscall.EAGAIN || err == syscall.EINTR:
		case err == nil && n > 0:
			state = Talking
		default:
			state = Gone
		}
	})
	if err != nil {
		return Gone
	}
	return state
}
