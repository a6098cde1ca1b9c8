package remote

import (
	"errors"
	"net"
	"sync/atomic"
	"syscall"

	"github.com/postern-dev/postern/internal/wire"
)

// errHungUp is the failure of a write that did not begin.
var errHungUp = errors.New("the worker has closed the connection")

// countingConn counts the bytes that were handed to the network, so that "nothing was sent" is known
// and not guessed. A kept connection that the worker has closed meanwhile is found out before the first
// byte: else every restart of a worker would leave ambiguous calls behind.
type countingConn struct {
	net.Conn
	raw     syscall.RawConn // nil if there is no such view
	written atomic.Int64
}

func newCountingConn(conn net.Conn) *countingConn {
	c := &countingConn{Conn: conn}
	if sc, ok := conn.(syscall.Conn); ok {
		c.raw, _ = sc.SyscallConn()
	}
	return c
}

// Write counts before it writes: a write that failed half-way may have arrived.
func (c *countingConn) Write(p []byte) (int, error) {
	if c.raw != nil && wire.Look(c.raw) == wire.Gone {
		return 0, errHungUp
	}
	c.written.Add(int64(len(p)))
	return c.Conn.Write(p)
}
