package main

import (
	"encoding/binary"
	"net"
	"strings"
	"sync"
	"time"
)

// proxy stands between a process and PostgreSQL, or another server. What it does to connections can be changed while they are open.
type proxy struct {
	listener net.Listener
	target   string

	mu       sync.Mutex
	open     map[*pipe]bool
	requests bool          // swallows what clients send, on new connections too
	answers  bool          // swallows what the server sends, on new connections too
	delay    time.Duration // before each answer
	commits  int           // how many commits are still to be broken
	lose     bool          // the commit gets to the server and its answer is lost; false: it does not get there
	broken   int           // commits that were broken
	touched  int           // how often it has swallowed or delayed what it read
}

// pipe is one connection through the proxy. What it swallows it has read, and it goes nowhere.
type pipe struct {
	client, server    net.Conn
	mu                sync.Mutex
	requests, answers bool
}

func newProxy(target string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, target: target, open: map[*pipe]bool{}}
	go p.serve()
	return p, nil
}

func (p *proxy) port() int { return p.listener.Addr().(*net.TCPAddr).Port }

func (p *proxy) serve() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.join(c)
	}
}

func (p *proxy) join(c net.Conn) {
	s, err := net.Dial("tcp", p.target)
	if err != nil {
		c.Close()
		return
	}
	p.mu.Lock()
	l := &pipe{client: c, server: s, requests: p.requests, answers: p.answers}
	p.open[l] = true
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.forward(l) })
	both.Go(func() { p.back(l) })
	both.Wait()
	l.close() // both sides have closed theirs
	p.mu.Lock()
	delete(p.open, l)
	p.mu.Unlock()
}

// back carries what the server sends.
func (p *proxy) back(l *pipe) {
	defer l.part()
	buf := make([]byte, 32<<10)
	for {
		n, err := l.server.Read(buf)
		if n > 0 {
			p.mu.Lock()
			delay := p.delay
			p.mu.Unlock()
			p.touch(delay > 0)
			time.Sleep(delay)
			l.mu.Lock()
			swallow := l.answers
			l.mu.Unlock()
			p.touch(swallow)
			if !swallow {
				l.give(l.client, buf[:n])
			}
		}
		if err != nil {
			return
		}
	}
}

// forward carries what the client sends, and reads along: where commits are to be broken, the next one is.
func (p *proxy) forward(l *pipe) {
	defer l.part()
	buf := make([]byte, 32<<10)
	reader := &wire{statements: map[string]kind{}}
	for {
		n, err := l.client.Read(buf)
		if n > 0 {
			commits := reader.read(buf[:n])
			l.mu.Lock()
			swallow := l.requests
			l.mu.Unlock()
			if commits && p.breaks(l, buf[:n]) {
				return
			}
			p.touch(swallow)
			if !swallow {
				l.give(l.server, buf[:n])
			}
		}
		if err != nil {
			return
		}
	}
}

// touch counts what was read, if that was swallowed or delayed.
func (p *proxy) touch(was bool) {
	if !was {
		return
	}
	p.mu.Lock()
	p.touched++
	p.mu.Unlock()
}

// breaks resets a connection at a commit, if one is to be broken: before the server has it, or behind that.
func (p *proxy) breaks(l *pipe, request []byte) bool {
	p.mu.Lock()
	hit, lose := p.commits > 0, p.lose
	if hit {
		p.commits--
		p.broken++
	}
	p.mu.Unlock()
	if !hit {
		return false
	}
	if lose {
		l.mu.Lock()
		l.answers = true
		l.mu.Unlock()
		l.server.Write(request)
		time.Sleep(50 * time.Millisecond) // the server commits
	}
	l.reset()
	return true
}

// part tells both ends that the connection is over. An end that hears nothing does not hear that either: a server
// keeps the session of a client that is gone, and a client waits for a session that has ended.
func (l *pipe) part() {
	l.mu.Lock()
	requests, answers := l.requests, l.answers
	l.mu.Unlock()
	if !answers {
		l.client.Close()
	}
	if !requests {
		l.server.Close()
	}
}

// give writes to one end, which may be gone.
func (l *pipe) give(to net.Conn, b []byte) {
	if _, err := to.Write(b); err != nil {
		l.part()
	}
}

func (l *pipe) close() {
	l.client.Close()
	l.server.Close()
}

// reset closes both ends so that the client sees a reset.
func (l *pipe) reset() {
	if t, ok := l.client.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
	l.close()
}

// cut resets all connections, and returns how many.
func (p *proxy) cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.open {
		l.reset()
	}
	return len(p.open)
}

// brokenSoFar is how many commits it has broken.
func (p *proxy) brokenSoFar() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.broken
}

// touchedSoFar is how often it has swallowed or delayed what it read.
func (p *proxy) touchedSoFar() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.touched
}

// hole swallows for good what established connections send, what they are sent, or both, and returns of how many. New
// ones pass. No end hears that the other has closed.
func (p *proxy) hole(requests, answers bool) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.open {
		l.mu.Lock()
		if requests && !l.requests || answers && !l.answers {
			n++
		}
		l.requests, l.answers = l.requests || requests, l.answers || answers
		l.mu.Unlock()
	}
	return n
}

// drop makes holes of established connections and of new ones, until heal, and returns of how many.
func (p *proxy) drop(requests, answers bool) int {
	p.mu.Lock()
	p.requests, p.answers = requests, answers
	p.mu.Unlock()
	return p.hole(requests, answers)
}

// slow delays each answer, and returns of how many connections.
func (p *proxy) slow(d time.Duration) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
	return len(p.open)
}

// breakCommits has the next n commits broken.
func (p *proxy) breakCommits(n int, lose bool) {
	p.mu.Lock()
	p.commits, p.lose = n, lose
	p.mu.Unlock()
}

// heal lets everything pass again. Connections that were a hole are reset.
func (p *proxy) heal() {
	p.mu.Lock()
	holes := p.requests || p.answers
	p.requests, p.answers, p.delay, p.commits = false, false, 0, 0
	p.mu.Unlock()
	if holes {
		p.cut()
	}
}

// kind is what a statement means for the end of the SQL transaction that it is in.
type kind byte

const (
	reads kind = iota
	writes
	begins
	commits
)

// wire reads what a client of PostgreSQL sends, as far as it has to know where a commit is: a COMMIT, or the Sync
// behind writes outside of BEGIN, which commits them.
type wire struct {
	rest       []byte
	started    bool
	statements map[string]kind
	open       bool // behind BEGIN
	wrote      bool // since the last Sync
	ends       bool // a COMMIT since the last Sync
}

// read takes the next bytes and says whether they hold the end of a transaction that wrote.
func (w *wire) read(b []byte) (commit bool) {
	w.rest = append(w.rest, b...)
	for {
		head := 1
		if !w.started {
			head = 0
		}
		if len(w.rest) < head+4 {
			return commit
		}
		n := head + int(binary.BigEndian.Uint32(w.rest[head:]))
		if len(w.rest) < n || n < head+4 {
			return commit
		}
		message := w.rest[:n]
		w.rest = w.rest[n:]
		if !w.started {
			w.started = n >= 8 && binary.BigEndian.Uint16(message[4:]) == 3
			continue
		}
		commit = w.message(message[0], message[5:]) || commit
	}
}

func (w *wire) message(typ byte, body []byte) (commit bool) {
	text := func(from []byte) (string, []byte) {
		s, rest, _ := strings.Cut(string(from), "\x00")
		return s, []byte(rest)
	}
	switch typ {
	case 'P': // Parse: name, text
		name, rest := text(body)
		sql, _ := text(rest)
		w.statements[name] = kindOf(sql)
	case 'B': // Bind: portal, name
		_, rest := text(body)
		name, _ := text(rest)
		w.does(w.statements[name])
	case 'Q':
		sql, _ := text(body)
		w.does(kindOf(sql))
		return w.sync()
	case 'S':
		return w.sync()
	}
	return false
}

func (w *wire) does(k kind) {
	switch k {
	case begins:
		w.open = true
	case commits:
		w.open, w.ends = false, true
	case writes:
		w.wrote = true
	}
}

// sync says whether what was sent since the last one commits.
func (w *wire) sync() (commit bool) {
	commit = w.ends || w.wrote && !w.open
	w.wrote, w.ends = false, false
	return commit
}

func kindOf(sql string) kind {
	sql = strings.ToUpper(strings.TrimSpace(sql))
	word, _, _ := strings.Cut(sql, " ")
	switch word {
	case "BEGIN":
		return begins
	case "COMMIT":
		return commits
	case "INSERT", "UPDATE", "DELETE":
		return writes
	case "WITH":
		if strings.Contains(sql, "UPDATE POSTERN.") || strings.Contains(sql, "INSERT INTO") || strings.Contains(sql, "DELETE FROM") {
			return writes
		}
	}
	return reads
}
