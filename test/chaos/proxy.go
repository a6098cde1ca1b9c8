package main

import (
	"io"
	"net"
	"sync"
	"time"
)

// proxy stands between a process and PostgreSQL. What it does to connections can be changed while they are open.
type proxy struct {
	listener net.Listener
	target   string

	mu      sync.Mutex
	open    map[*pipe]bool
	swallow bool          // of new connections too: nothing passes, nothing is refused
	delay   time.Duration // before each answer
}

type pipe struct {
	client, server net.Conn
	mu             sync.Mutex
	swallow        bool
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
	l := &pipe{client: c, server: s, swallow: p.swallow}
	p.open[l] = true
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.copy(l, s, c, false) })
	both.Go(func() { p.copy(l, c, s, true) })
	both.Wait()
	p.mu.Lock()
	delete(p.open, l)
	p.mu.Unlock()
}

// copy carries one direction until either end closes. What is swallowed was read and goes nowhere.
func (p *proxy) copy(l *pipe, to, from net.Conn, answers bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			l.mu.Lock()
			swallow := l.swallow
			l.mu.Unlock()
			p.mu.Lock()
			delay := p.delay
			p.mu.Unlock()
			if answers && delay > 0 {
				time.Sleep(delay)
			}
			if !swallow {
				if _, err := to.Write(buf[:n]); err != nil {
					return
				}
			}
		}
		if err != nil {
			if err == io.EOF {
				return
			}
			return
		}
	}
}

// cut resets all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.open {
		if t, ok := l.client.(*net.TCPConn); ok {
			t.SetLinger(0)
		}
		l.client.Close()
		l.server.Close()
	}
}

// blackHole swallows all that established connections send, for good: new ones pass.
func (p *proxy) blackHole() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.open {
		l.mu.Lock()
		l.swallow = true
		l.mu.Unlock()
	}
}

// drop makes new connections a black hole as well, or ends that.
func (p *proxy) drop(on bool) {
	p.mu.Lock()
	p.swallow = on
	p.mu.Unlock()
	if on {
		p.blackHole()
	} else {
		p.cut()
	}
}

// slow delays each answer.
func (p *proxy) slow(d time.Duration) {
	p.mu.Lock()
	p.delay = d
	p.mu.Unlock()
}
