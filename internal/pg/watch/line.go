package watch

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/postern-dev/postern/internal/twin"
	"github.com/postern-dev/postern/internal/wire"
)

// link is the socket of one connection. pgx reads and writes on it, under TLS if there is any; the watch sees how long
// it has waited, and may close it at any time.
type link struct {
	net.Conn
	moves   atomic.Uint64 // reads and writes that have begun or ended on it
	busy    atomic.Int32  // writes that are under way, and reads that somebody waits for
	heard   atomic.Bool   // a hearing says when an answer is waited for
	listens atomic.Bool   // its read waits for a notification, not for an answer
	ended   atomic.Pointer[error]
	onClose func()

	pinged  atomic.Uint64          // moves, when it was pinged last
	used    atomic.Int64           // when it last moved but for a ping, in nanoseconds of Unix
	session atomic.Pointer[string] // the server's, "" if it cannot be told; nil: it is being opened
	limit   atomic.Int64           // how long it may wait where nothing is known of it

	seen wait // the watch's own
}

// wait is how long nothing has moved on a line, as the watch sees it.
type wait struct {
	moves uint64
	sent  int       // bytes that the other side had not acknowledged
	since time.Time // zero: it waits for nothing
	known time.Time // when the server was last known to work on it, or since
	dead  time.Time // when it is closed unless something moves; zero: nothing speaks for that

	rested  uint64 // moves, when it was last looked at whether it rests
	resting bool
}

// errSilent ends a wait on a connection that the server does not answer on.
var errSilent = errors.New("the server does not answer on this connection")

// Read and Write pass on, and say that they do. Once there is a hearing, a read here may be one that pgx leaves behind
// a slow write, and that waits for nothing: it stays until the answer to a later question.
func (l *link) Read(b []byte) (int, error) {
	if !l.heard.Load() {
		l.busy.Add(1)
		defer l.busy.Add(-1)
	}
	l.moves.Add(1)
	n, err := l.Conn.Read(b)
	l.moves.Add(1)
	return n, l.why(err)
}

// hearing reads what the server says, and says that an answer is waited for.
type hearing struct {
	link *link
	from io.Reader
}

func (h hearing) Read(b []byte) (int, error) {
	h.link.moves.Add(1)
	h.link.busy.Add(1)
	defer h.link.busy.Add(-1)
	return h.from.Read(b)
}

// frontend has answers be read by a hearing.
func frontend(build pgconn.BuildFrontendFunc) pgconn.BuildFrontendFunc {
	return func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		if l := linkUnder(w); l != nil {
			l.heard.Store(true)
			r = hearing{l, r}
		}
		return build(r, w)
	}
}

func (l *link) Write(b []byte) (n int, err error) {
	l.busy.Add(1)
	defer l.busy.Add(-1)
	for {
		l.moves.Add(1)
		part, err := l.Conn.Write(b[n:min(n+writeAtOnce, len(b))])
		l.moves.Add(1)
		n += part
		if err != nil || n == len(b) {
			return n, l.why(err)
		}
	}
}

// writeAtOnce is how many bytes are written between two moves, so that a long text that a slow network takes bit by bit
// is seen to move.
const writeAtOnce = 32 << 10

// why is why the line was closed, where it was.
func (l *link) why(err error) error {
	if err == nil {
		return nil
	}
	if ended := l.ended.Load(); ended != nil {
		return &net.OpError{Op: "read", Net: l.Conn.RemoteAddr().Network(), Addr: l.Conn.RemoteAddr(), Err: *ended}
	}
	return err
}

// reset closes the line at once. Bytes that have not arrived at the server never do, and no answer is waited for.
func (l *link) reset(why error) {
	if l.ended.CompareAndSwap(nil, &why) {
		if tcp, ok := l.Conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = l.Close()
	}
}

// Close closes the line, and takes it from the watch.
func (l *link) Close() error {
	l.onClose()
	return l.Conn.Close()
}

// RemoteAddr names no address that can be dialled: pgx would send a cancel request there whenever a wait is ended.
func (l *link) RemoteAddr() net.Addr { return nowhere{l.Conn.RemoteAddr()} }

// nowhere is the address of a server to which no cancel request is sent.
type nowhere struct{ net.Addr }

const noCancel = "no cancel requests"

func (nowhere) Network() string { return noCancel }

// SyscallConn is for those who look at the socket.
func (l *link) SyscallConn() (syscall.RawConn, error) {
	if c, ok := l.Conn.(syscall.Conn); ok {
		return c.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// talking says whether bytes have come that this process has not read: then it is slow, and not the server.
func (l *link) talking() bool {
	raw, err := l.SyscallConn()
	return err == nil && wire.Look(raw) == wire.Talking
}

// unsent is how many bytes are still on their way to the other side: those move although nothing is written or read.
func (l *link) unsent() int {
	raw, err := l.SyscallConn()
	if err != nil {
		return 0
	}
	return wire.Unsent(raw)
}

// linkOf returns the link under a connection, under TLS if there is any; nil: the connection is not watched.
func linkOf(c *pgconn.PgConn) *link { return linkUnder(c.Conn()) }

func linkUnder(conn any) *link {
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = t.NetConn()
	}
	l, _ := conn.(*link)
	return l
}

// ender ends waits whose context ends: it closes the socket. A wait for a notification has asked for nothing, and is
// ended by a deadline.
type ender struct{ conn *pgconn.PgConn }

func (e ender) HandleCancel(context.Context) {
	if twin.Planted("cancel_at_commit") {
		ctx, end := context.WithTimeout(context.Background(), time.Second)
		defer end()
		_ = e.conn.CancelRequest(ctx)
		return
	}
	l := linkOf(e.conn)
	if l == nil || l.listens.Load() {
		_ = e.conn.Conn().SetDeadline(time.Now())
		return
	}
	l.reset(os.ErrDeadlineExceeded)
}

func (e ender) HandleUnwatchAfterCancel() { _ = e.conn.Conn().SetDeadline(time.Time{}) }
