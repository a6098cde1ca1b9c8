package remotetest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// Mycelium is a network of fake nodes. Each has the HTTP API that threefoldtech/mycelium documents in docs/api.yaml,
// and holds its callers to it: what no node would take fails the test, and is answered as a node does. Messages between
// the nodes arrive at once; those to a key without a node never do.
type Mycelium struct {
	t     testing.TB
	mu    sync.Mutex
	nodes map[string]*MyceliumNode
}

// MyceliumNode is one node. As a released node does, it answers one request for messages at a time: while one waits for
// a message to come, it answers no push and no reply.
type MyceliumNode struct {
	Key string // public key, 64 hex digits

	net    *Mycelium
	server *httptest.Server
	turn   chan struct{} // the lock of the node

	mu      sync.Mutex
	inbox   []letter
	came    chan struct{} // closed and renewed with every message that comes
	replies map[string]chan letter
	taken   map[string]string // sender of each message that was taken and not replied to, by id
	lose    int
	lost    int
	taking  int // requests for messages
	pushed  int
	unheard int // so many replies get lost on their way to it
	instead func(http.ResponseWriter, *http.Request) bool
	forge   func(*letter)
}

// letter is a message within the network.
type letter struct {
	id, src, dst string
	topic, data  []byte
}

// NewMycelium is a network without nodes.
func NewMycelium(t testing.TB) *Mycelium { return &Mycelium{t: t, nodes: map[string]*MyceliumNode{}} }

// Node starts a node on a free port; it stops at the end of the test.
func (m *Mycelium) Node() *MyceliumNode {
	n := &MyceliumNode{
		Key:     drawn(32),
		net:     m,
		turn:    make(chan struct{}, 1),
		came:    make(chan struct{}),
		replies: map[string]chan letter{},
		taken:   map[string]string{},
	}
	n.server = httptest.NewServer(n.api())
	m.t.Cleanup(n.Stop)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes[n.Key] = n
	return n
}

// URL is the address of its API.
func (n *MyceliumNode) URL() string { return n.server.URL }

// Worker is the URL of what answers behind the node.
func (n *MyceliumNode) Worker() string { return "mycelium:" + n.Key }

// Stop closes the API: connections are refused from now on.
func (n *MyceliumNode) Stop() {
	n.server.CloseClientConnections()
	n.server.Close()
}

// Lose has the next messages that are taken get lost behind the queue, as where the taker dies.
func (n *MyceliumNode) Lose(count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lose = count
}

// LoseReplies has the next replies to messages of this node get lost, though those were taken and answered.
func (n *MyceliumNode) LoseReplies(count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unheard = count
}

// Counts are how many messages were lost, how often messages were asked for, and how many were pushed.
func (n *MyceliumNode) Counts() (lost, taking, pushed int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lost, n.taking, n.pushed
}

// Instead has f answer requests to the API, where it returns true.
func (n *MyceliumNode) Instead(f func(http.ResponseWriter, *http.Request) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.instead = f
}

// forges changes the replies that come to this node.
func (n *MyceliumNode) forges(f func(*letter)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forge = f
}

// FromAnother has replies name another sender than the key that was called.
func (n *MyceliumNode) FromAnother() { n.forges(func(l *letter) { l.src = drawn(32) }) }

// Garbled has replies carry another payload.
func (n *MyceliumNode) Garbled(payload string) {
	n.forges(func(l *letter) { l.data = []byte(payload) })
}

// deliver brings a message to the node of a key.
func (m *Mycelium) deliver(l letter, reply bool) {
	m.mu.Lock()
	n := m.nodes[l.dst]
	m.mu.Unlock()
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if reply && n.unheard > 0 {
		n.unheard--
		return
	}
	if reply && n.forge != nil {
		n.forge(&l)
	}
	if waits := n.replies[l.id]; reply && waits != nil {
		delete(n.replies, l.id)
		waits <- l
		return
	}
	n.inbox = append(n.inbox, l)
	close(n.came)
	n.came = make(chan struct{})
}

// take waits for a message of a topic, nil for any, and takes it unless it only looks. It returns false when ctx ends.
func (n *MyceliumNode) take(ctx context.Context, topic []byte, filtered, look bool) (letter, bool) {
	for {
		n.mu.Lock()
		for i := 0; i < len(n.inbox); i++ {
			l := n.inbox[i]
			if filtered && string(l.topic) != string(topic) {
				continue
			}
			if look {
				n.mu.Unlock()
				return l, true
			}
			n.inbox = append(n.inbox[:i:i], n.inbox[i+1:]...)
			if n.lose > 0 {
				n.lose, n.lost, i = n.lose-1, n.lost+1, i-1
				continue
			}
			n.taken[l.id] = l.src
			n.mu.Unlock()
			return l, true
		}
		came := n.came
		n.mu.Unlock()
		select {
		case <-ctx.Done():
			return letter{}, false
		case <-came:
		}
	}
}

// drawn is so many random bytes in hex.
func drawn(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}
