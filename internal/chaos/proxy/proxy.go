// Package proxy stands between a process and its PostgreSQL in tests, and does to their connections what networks do:
// it swallows what is said, holds it back, delays it, or takes new connections without a word. It counts the cancel
// requests that pass through it.
package proxy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"math/big"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Way is a direction, or both.
type Way int

const (
	ToServer Way = 1 << iota
	ToClient
	BothWays = ToServer | ToClient
)

// cancelRequest is the code with which a client asks a server to cancel what another connection does.
const cancelRequest = 80877102

// Proxy passes on what comes on its port to a server, until it is told otherwise.
type Proxy struct {
	listener net.Listener
	target   string
	cancels  atomic.Int64
	opened   atomic.Int64
	delay    atomic.Int64
	rate     atomic.Int64

	mu    sync.Mutex
	moved *sync.Cond // a connection is to be looked at anew
	pairs map[*pair]bool
	mute  bool // new connections are taken, and nothing is passed on
	over  bool

	tls *tls.Config // of the side of the clients; nil: none
}

// pair is one connection of a client, and that to the server which belongs to it.
type pair struct {
	client, server net.Conn
	swallows       Way
	held           bool // nothing is read from either side
}

// New starts a proxy before the server of a database URL, which must be reached over TCP. It ends with the test.
func New(t testing.TB, database string) *Proxy { return start(t, database, nil) }

// NewTLS is New for clients that use TLS.
func NewTLS(t testing.TB, database string) *Proxy {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return start(t, database,
		&tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
}

func start(t testing.TB, database string, c *tls.Config) *Proxy {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil || u.Host == "" {
		t.Fatalf("the database %q is not reached over TCP: %v", database, err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: l, target: u.Host, pairs: map[*pair]bool{}, tls: c}
	p.moved = sync.NewCond(&p.mu)
	go p.accept()
	t.Cleanup(p.close)
	return p
}

// URL is a database URL that leads through the proxy.
func (p *Proxy) URL(database string) string {
	u, err := url.Parse(database)
	if err != nil {
		return database
	}
	u.Host = p.listener.Addr().String()
	if p.tls != nil {
		q := u.Query()
		q.Set("sslmode", "require")
		u.RawQuery = q.Encode()
	}
	return u.String()
}

// Swallow makes all connections that are open now silent in these directions, for good: the proxy acknowledges bytes
// and passes none on, and neither side hears that the other has closed. New connections pass.
func (p *Proxy) Swallow(w Way) { p.each(func(c *pair) { c.swallows |= w }) }

// SwallowSome is Swallow for one connection in n.
func (p *Proxy) SwallowSome(w Way, n int) {
	i := 0
	p.each(func(c *pair) {
		if i++; i%n == 0 {
			c.swallows |= w
		}
	})
}

// Hold has all connections that are open now stand still, as a proxy that is frozen; Release lets everything pass on
// that was sent meanwhile.
func (p *Proxy) Hold() { p.each(func(c *pair) { c.held = true }) }

// Release ends Hold and Mute.
func (p *Proxy) Release() {
	p.mu.Lock()
	p.mute = false
	p.mu.Unlock()
	p.each(func(c *pair) { c.held = false })
}

// Mute has new connections be taken and stand still, until Release.
func (p *Proxy) Mute() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = true
}

// Delay has each answer of the server come later by d.
func (p *Proxy) Delay(d time.Duration) { p.delay.Store(int64(d)) }

// Rate has each connection that is open now take at most so many bytes a second from its client, as a narrow network
// does; 0: as many as come. What it has not taken lies in the buffers of the client.
func (p *Proxy) Rate(bytes int) {
	p.rate.Store(int64(bytes))
	p.each(func(c *pair) {
		if tcp, ok := c.client.(*net.TCPConn); ok && bytes > 0 {
			_ = tcp.SetReadBuffer(64 << 10)
		}
	})
}

// Cancels is how many cancel requests have come.
func (p *Proxy) Cancels() int64 { return p.cancels.Load() }

// Opened is how many connections have come.
func (p *Proxy) Opened() int64 { return p.opened.Load() }

func (p *Proxy) each(do func(*pair)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.pairs {
		do(c)
	}
	p.moved.Broadcast()
}

func (p *Proxy) close() {
	p.listener.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	for c := range p.pairs {
		c.client.Close()
		c.server.Close()
	}
	p.moved.Broadcast()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.opened.Add(1)
		go func() {
			client, err := p.secure(client)
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", p.target)
			if err != nil {
				client.Close()
				return
			}
			c := &pair{client: client, server: server}
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.over {
				client.Close()
				server.Close()
				return
			}
			c.held = p.mute
			p.pairs[c] = true
			go p.pass(c, client, server, ToServer)
			go p.pass(c, server, client, ToClient)
		}()
	}
}

// secure answers the request of a client for TLS, if the proxy speaks that.
func (p *Proxy) secure(client net.Conn) (net.Conn, error) {
	if p.tls == nil {
		return client, nil
	}
	var request [8]byte
	if _, err := io.ReadFull(client, request[:]); err != nil {
		client.Close()
		return nil, err
	}
	if _, err := client.Write([]byte{'S'}); err != nil {
		client.Close()
		return nil, err
	}
	return tls.Server(client, p.tls), nil
}

// chunk is what was read at once, and when it is to go on.
type chunk struct {
	at   time.Time
	text []byte
}

// pass passes on what from says to the other side. A side that closes closes the other, unless that is not to hear of
// it.
func (p *Proxy) pass(c *pair, from, to net.Conn, way Way) {
	queue := make(chan chunk, 1024)
	go func() {
		for k := range queue {
			time.Sleep(time.Until(k.at))
			if _, err := to.Write(k.text); err != nil {
				from.Close()
			}
		}
		if p.silent(c, way) {
			return
		}
		from.Close()
		to.Close()
		p.mu.Lock()
		delete(p.pairs, c)
		p.mu.Unlock()
	}()
	defer close(queue)
	for first := true; p.free(c); first = false {
		text := make([]byte, 32<<10)
		n, err := from.Read(text)
		if !p.free(c) {
			return
		}
		if first && way == ToServer && n >= 8 && binary.BigEndian.Uint32(text[4:8]) == cancelRequest {
			p.cancels.Add(1)
		}
		if n > 0 && !p.silent(c, way) {
			k := chunk{text: text[:n]}
			if way == ToClient {
				k.at = time.Now().Add(time.Duration(p.delay.Load()))
			}
			queue <- k
			if rate := p.rate.Load(); rate > 0 && way == ToServer {
				time.Sleep(time.Duration(n) * time.Second / time.Duration(rate))
			}
		}
		if err != nil {
			return
		}
	}
}

// free waits while a connection is held, and says whether the proxy goes on.
func (p *Proxy) free(c *pair) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c.held && !p.over {
		p.moved.Wait()
	}
	return !p.over
}

func (p *Proxy) silent(c *pair, way Way) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return c.swallows&way != 0
}
