// Package cut stands between a process and its PostgreSQL in tests, reads the protocol, and ends a connection at one
// exact point of one exact statement: before it, after it, with the commit done and its answer lost. It is how a crash
// at any point of any statement is tried on the real SQL.
package cut

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

// Where says at which side of a statement a connection ends.
type Where int

const (
	// Before: the server never sees the statement.
	Before Where = iota
	// After: the server has done it, and what would commit it does not come. A COMMIT that is a statement of its own
	// has committed.
	After
	// Answered: the server has done the statement and all that was sent with it, and has said so, and the client does
	// not hear it. Where the statement is the last of its transaction, that is committed.
	Answered
)

func (w Where) String() string { return [...]string{"before", "after", "with the answer lost, at"}[w] }

// Point is where a connection ends.
type Point struct {
	Statement int // counted from 1 since Arm, over all connections; preparing is none
	Where     Where
	// the server seems to end the session with an error, as pg_terminate_backend does; else it is just gone
	Fatal bool
}

// Cutter passes on what comes on its port to a server, and cuts where it is told to.
type Cutter struct {
	listener net.Listener
	target   string

	telling sync.Mutex // held while idle is called, and before mu

	mu     sync.Mutex
	armed  bool
	point  *Point
	seen   int                              // statements since Arm
	idle   func(heard bool, statements int) // called at each end of a transaction, before the client hears of it
	killed []uint32
	pairs  map[*pair]bool
	over   bool
}

// New starts a cutter before the server of a database URL, which must be reached over TCP. It ends with the test.
func New(t testing.TB, database string) *Cutter {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil || u.Host == "" {
		t.Fatalf("the database %q is not reached over TCP: %v", database, err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Cutter{listener: l, target: u.Host, pairs: map[*pair]bool{}}
	go c.accept()
	t.Cleanup(c.close)
	return c
}

// URL is a database URL that leads through the cutter, without TLS.
func (c *Cutter) URL(database string) string {
	u, err := url.Parse(database)
	if err != nil {
		return database
	}
	u.Host = c.listener.Addr().String()
	q := u.Query()
	q.Set("sslmode", "disable")
	u.RawQuery = q.Encode()
	return u.String()
}

// Arm begins to count statements, and cuts at a point; nil: nowhere. idle, if there is one, is called whenever a
// session has ended a transaction, before its client hears of that, with whether it will, and how many
// statements have come so far.
func (c *Cutter) Arm(p *Point, idle func(heard bool, statements int)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed, c.point, c.idle = true, p, idle
	c.seen, c.killed = 0, nil
}

// Disarm ends that, and waits for a call of idle that is under way. It returns the process ids of the sessions that
// were cut; none: the point was not reached.
func (c *Cutter) Disarm() []uint32 {
	c.telling.Lock()
	defer c.telling.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed, c.point, c.idle = false, nil, nil
	return c.killed
}

func (c *Cutter) accept() {
	for {
		client, err := c.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", c.target)
		if err != nil {
			client.Close()
			continue
		}
		p := &pair{c: c, client: client, server: server, asked: 1} // a server is ready for more after the startup, too
		p.moved = sync.NewCond(&p.mu)
		c.mu.Lock()
		if c.over {
			client.Close()
			server.Close()
		}
		c.pairs[p] = true
		c.mu.Unlock()
		go p.toServer()
		go p.toClient()
	}
}

func (c *Cutter) close() {
	c.listener.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	for p := range c.pairs {
		p.client.Close()
		p.server.Close()
	}
}

// statement counts one, and returns where it is to be cut, nil for nowhere.
func (c *Cutter) statement() *Point {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.armed {
		return nil
	}
	c.seen++
	if c.point != nil && c.point.Statement == c.seen {
		return c.point
	}
	return nil
}

// ended tells of the end of a transaction, of one session after the other.
func (c *Cutter) ended(heard bool) {
	c.telling.Lock()
	defer c.telling.Unlock()
	c.mu.Lock()
	idle, seen := c.idle, c.seen
	c.mu.Unlock()
	if idle != nil {
		idle(heard, seen)
	}
}

// pair is one connection of a client, and that to the server which belongs to it.
type pair struct {
	c              *Cutter
	client, server net.Conn

	mu    sync.Mutex
	moved *sync.Cond
	pid   uint32
	sent  int  // statements
	done  int  // of these, those that the server has answered
	ready int  // how often the server was ready for more
	asked int  // how often it will be
	deaf  bool // the client hears nothing more
	gone  bool // the server has closed
}

// message reads one message: its kind, and all of it.
func message(r *bufio.Reader) (kind byte, whole []byte, err error) {
	head, err := r.Peek(5)
	if err != nil {
		return 0, nil, err
	}
	whole = make([]byte, 1+binary.BigEndian.Uint32(head[1:]))
	_, err = io.ReadFull(r, whole)
	return head[0], whole, err
}

// toServer passes on what the client says, and cuts.
func (p *pair) toServer() {
	defer p.hangUp()
	r := bufio.NewReaderSize(p.client, 64<<10)
	head, err := r.Peek(4) // the startup message has no kind
	if err != nil {
		return
	}
	if _, err := io.CopyN(p.server, r, int64(binary.BigEndian.Uint32(head))); err != nil {
		return
	}
	var cut *Point // after the group that is being sent
	for {
		kind, whole, err := message(r)
		if err != nil {
			return
		}
		switch kind {
		case 'E', 'Q': // Execute, Query
			at := p.c.statement()
			if at != nil && at.Where == Before {
				p.end(at)
				return
			}
			if at != nil {
				p.silence()
			}
			if !p.send(kind, whole) {
				return
			}
			if at != nil && at.Where == After {
				if kind == 'E' {
					p.send('H', []byte{'H', 0, 0, 0, 4}) // Flush: the server does it now
					p.await(func() bool { return p.done >= p.sent })
				} else {
					p.await(func() bool { return p.ready >= p.asked })
				}
				p.end(at)
				return
			}
			if at != nil {
				cut = at
			}
		default:
			if !p.send(kind, whole) {
				return
			}
		}
		if cut != nil && (kind == 'Q' || kind == 'S') {
			p.await(func() bool { return p.ready >= p.asked })
			p.end(cut)
			return
		}
	}
}

func (p *pair) send(kind byte, whole []byte) bool {
	p.mu.Lock()
	switch kind {
	case 'E':
		p.sent++
	case 'Q', 'S':
		p.asked++
	}
	p.mu.Unlock()
	_, err := p.server.Write(whole)
	return err == nil
}

// silence has the client hear nothing more.
func (p *pair) silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = true
}

// await returns when the server has got so far, or is gone.
func (p *pair) await(so func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !so() && !p.gone {
		p.moved.Wait()
	}
}

// end cuts both sides.
func (p *pair) end(at *Point) {
	p.silence()
	p.c.mu.Lock()
	p.c.killed = append(p.c.killed, p.pid)
	p.c.mu.Unlock()
	if at.Fatal {
		said := pgproto3.ErrorResponse{
			Severity:            "FATAL",
			SeverityUnlocalized: "FATAL",
			Code:                "57P01",
			Message:             "terminating connection due to administrator command",
		}
		if text, err := said.Encode(nil); err == nil {
			p.client.Write(text) //nolint:errcheck // it may be gone
		}
	}
}

func (p *pair) hangUp() {
	p.client.Close()
	p.server.Close()
	p.c.mu.Lock()
	delete(p.c.pairs, p)
	p.c.mu.Unlock()
}

// toClient passes on what the server says, and notes how far it has got.
func (p *pair) toClient() {
	defer func() {
		p.mu.Lock()
		deaf := p.deaf
		p.gone = true
		p.moved.Broadcast()
		p.mu.Unlock()
		if !deaf { // else toServer ends both
			p.hangUp()
		}
	}()
	r := bufio.NewReaderSize(p.server, 64<<10)
	for {
		kind, whole, err := message(r)
		if err != nil {
			return
		}
		p.mu.Lock()
		deaf := p.deaf
		p.mu.Unlock()
		if kind == 'Z' && whole[5] == 'I' {
			p.c.ended(!deaf)
		}
		p.mu.Lock()
		switch kind {
		case 'K': // BackendKeyData
			p.pid = binary.BigEndian.Uint32(whole[5:])
		case 'C', 'I', 's': // CommandComplete, EmptyQueryResponse, PortalSuspended
			p.done++
		case 'E': // ErrorResponse: what follows up to Sync is left out
			p.done = p.sent
		case 'Z': // ReadyForQuery
			p.ready++
			p.done = p.sent
		}
		p.moved.Broadcast()
		p.mu.Unlock()
		if deaf {
			continue
		}
		if _, err := p.client.Write(whole); err != nil {
			return
		}
	}
}
