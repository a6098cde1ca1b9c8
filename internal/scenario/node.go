package scenario

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/remote"
	"github.com/postern-dev/postern/internal/work"
)

// ttl is that of the nodes' leases: as long as by default.
const ttl = 10 * time.Second

// node is one process that dispatches, moved by hand.
type node struct {
	id       int64
	store    *stores.Store
	engine   *work.Engine
	events   *work.Events
	channels *work.Channels
	client   *remote.Client
	valve    *valve
	alive    bool // its heartbeats go on

	kill  context.CancelFunc // of the round that is frozen
	ended chan error         // of the round that is frozen, nil if none is
}

// signingKey is that of all nodes of all stories.
var signingKey = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))

// node returns the node of that name; one that is new, or died, begins now.
func (s *story) node(name string) (*node, error) {
	if n := s.nodes[name]; n != nil {
		if n.ended != nil {
			return nil, fmt.Errorf("%s is frozen: thaw it", name)
		}
		if n.alive {
			return n, nil
		}
	}
	store, err := s.open()
	if err != nil {
		return nil, err
	}
	n := &node{store: store, alive: true,
		client: remote.New(remote.Config{AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
			SigningKey: signingKey})}
	s.t.Cleanup(n.client.Close)
	n.valve = &valve{Worker: remote.Mux{Next: n.client}, tools: n.client}
	n.engine = work.New(work.Config{Store: store, Worker: n.valve, NodeName: name, TTL: ttl})
	n.events = work.NewEvents(n.engine, work.EventsConfig{Fetch: n.client.Fetch, Tools: n.valve})
	n.channels = work.NewChannels(n.engine)
	nodes := work.NewPeers(n.engine, work.PeersConfig{Call: s.wire(n.client.CallPeer)})
	n.engine.Add(work.NewDomains(n.engine, n.client, nodes).System())
	n.engine.Add(work.NewDeliveries(n.engine, work.DeliveriesConfig{}).System(), n.events.System(), n.channels.System())
	if err := n.engine.Manual(s.ctx); err != nil {
		return nil, err
	}
	s.nodes[name] = n
	return n, s.pool.QueryRow(s.ctx, `SELECT max(node_id) FROM postern.node WHERE name = $1`, name).Scan(&n.id)
}

// round lets a node do everything that it can do now.
func (s *story) round(name string) error {
	n, err := s.node(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
	defer cancel()
	return n.engine.Round(ctx)
}

// freeze lets a node begin a round, until it is at a point in each of its calls. Its heartbeats stop there.
func (s *story) freeze(name, at, uid string) error {
	n, err := s.node(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(s.ctx)
	reached := n.valve.close(at, uid)
	n.kill, n.ended, n.alive = cancel, make(chan error, 1), false
	go func() { n.ended <- n.engine.Round(ctx) }()
	select {
	case <-reached:
		return nil
	case err := <-n.ended:
		n.ended <- err
		return fmt.Errorf("%s came to no %s before its round was over (%v)", name, at, err)
	}
}

// thaw lets a frozen node go on. It has missed its heartbeats, so that this round is its last: the next command that
// names it starts it anew.
func (s *story) thaw(name string) error {
	n := s.nodes[name]
	if n == nil || n.ended == nil {
		return fmt.Errorf("%s is not frozen", name)
	}
	n.valve.open()
	err := <-n.ended
	n.ended = nil
	n.kill()
	return err
}

// die ends a node without a word: what it has in hand stays as it is.
func (n *node) die() {
	n.alive = false
	if n.ended == nil {
		return
	}
	n.kill()
	<-n.ended
	n.ended = nil
}

// valve stands between a node and its workers. Closed, it holds calls: before they are made ("call"), when
// their answers are there ("answer"), when the worker is to be asked about something ("question"),
// or when what it knows is there ("reply").
type valve struct {
	remote.Worker
	tools   work.Tools
	mu      sync.Mutex
	at, uid string // uid: only the calls of that transaction
	reached chan struct{}
	opened  chan struct{}
}

func (v *valve) close(at, uid string) (reached <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.at, v.uid, v.reached, v.opened = at, uid, make(chan struct{}), make(chan struct{})
	return v.reached
}

func (v *valve) open() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.at = ""
	close(v.opened)
}

// pass holds a call at the point where the valve is closed; false if its node died there.
func (v *valve) pass(ctx context.Context, at, uid string) bool {
	v.mu.Lock()
	closed, opened := v.at == at && (v.uid == "" || v.uid == uid), v.opened
	if closed {
		select {
		case <-v.reached:
		default:
			close(v.reached)
		}
	}
	v.mu.Unlock()
	if !closed {
		return true
	}
	select {
	case <-opened:
		return true
	case <-ctx.Done():
		return false
	}
}

func (v *valve) Dispatch(ctx context.Context, c remote.Call) outbox.Answer {
	nobody := outbox.Answer{Class: outbox.ClassAmbiguous}
	if !v.pass(ctx, "call", c.UID) {
		return nobody
	}
	a := v.Worker.Dispatch(ctx, c)
	if !v.pass(ctx, "answer", c.UID) {
		return nobody
	}
	return a
}

func (v *valve) Status(ctx context.Context, baseURL, typ, byToken, byHash string) outbox.Status {
	v.pass(ctx, "question", "")
	st := v.Worker.Status(ctx, baseURL, typ, byToken, byHash)
	v.pass(ctx, "reply", "")
	return st
}

func (v *valve) StatusBatch(ctx context.Context, baseURL, typ string, hashes []string) []outbox.Status {
	v.pass(ctx, "question", "")
	list := v.Worker.StatusBatch(ctx, baseURL, typ, hashes)
	v.pass(ctx, "reply", "")
	return list
}

func (v *valve) Invoke(ctx context.Context, c remote.Call, token string, input json.RawMessage, most int) leader.Reply {
	nobody := leader.Reply{Code: "cancelled"}
	if !v.pass(ctx, "call", c.UID) {
		return nobody
	}
	r := v.tools.Invoke(ctx, c, token, input, most)
	if !v.pass(ctx, "answer", c.UID) {
		return nobody
	}
	return r
}

func (v *valve) Input(ctx context.Context, url string) leader.Reply { return v.tools.Input(ctx, url) }

func (v *valve) Meta(ctx context.Context, url string) ([]byte, error) { return v.tools.Meta(ctx, url) }

func (v *valve) Healthy(ctx context.Context, url string) string { return v.tools.Healthy(ctx, url) }
