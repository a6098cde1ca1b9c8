package main

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// What is swallowed in a direction is also the end of a connection: the other side hears it where it hears anything.
func TestAnEndIsHeardWhereAnythingIs(t *testing.T) {
	for _, c := range []struct {
		name              string
		requests, answers bool // are swallowed
		server            bool // closes, and not the client
		heard             bool
	}{
		{"the server's, by a client that hears it", true, false, true, true},
		{"the server's, behind a black hole", true, true, true, false},
		{"the server's, whose answers are lost", false, true, true, false},
		{"the client's, by a server that hears it", false, true, false, true},
		{"the client's, behind a black hole", true, true, false, false},
		{"the client's, whose requests are lost", true, false, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, client, server := through(t)
			if n := p.hole(c.requests, c.answers); n != 1 {
				t.Fatalf("%d connections are a hole, want 1", n)
			}
			closes, hears := client, server
			if c.server {
				closes, hears = server, client
			}
			closes.Close()
			if got := hearsTheEnd(hears, 100*time.Millisecond); got != c.heard {
				t.Errorf("it is heard: %t, want %t", got, c.heard)
			}
			p.cut()
			if !hearsTheEnd(hears, 10*time.Second) {
				t.Error("a connection that is cut goes on")
			}
		})
	}
}

// A server keeps a session whose requests are lost, also if what it sends finds its client gone.
func TestAnAnswerToAClientThatIsGoneEndsNoSession(t *testing.T) {
	p, client, server := through(t)
	p.hole(true, false)
	client.Close()
	for range 20 {
		if _, err := server.Write([]byte("answer")); err != nil {
			t.Fatal(err)
		}
		if hearsTheEnd(server, 10*time.Millisecond) {
			t.Fatal("the server has heard of it")
		}
	}
}

// through opens a connection through a proxy, and returns both ends of it.
func through(t *testing.T) (p *proxy, client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if p, err = newProxy(l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if client, err = net.Dial("tcp", p.listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.listener.Close()
		client.Close()
		server.Close()
	})
	if _, err := client.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Read(make([]byte, 5)); err != nil { // the proxy knows the connection
		t.Fatal(err)
	}
	return p, client, server
}

// hearsTheEnd says whether a connection ends within a time.
func hearsTheEnd(c net.Conn, d time.Duration) bool {
	c.SetReadDeadline(time.Now().Add(d))
	_, err := c.Read(make([]byte, 1))
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}
