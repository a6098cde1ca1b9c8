package work

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"sync"
	"time"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/remote"
)

// EventsConfig is how events reach what is outside.
type EventsConfig struct {
	// Fetch asks sources for pages; nil: this process reads none.
	Fetch func(context.Context, leader.Ask, func(io.Reader)) *leader.Trouble
	// Dial reaches databases of sources; nil: our own database alone is read.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Tools calls tools, and asks after them; nil: this process does neither.
	Tools Tools
}

// Tools calls tools, and fetches their inputs. *remote.Client is one.
type Tools interface {
	// Invoke calls a tool once; see remote.Client.
	Invoke(ctx context.Context, call remote.Call, token string, input json.RawMessage, most int) leader.Reply
	// Input fetches what a tool is to be given.
	Input(ctx context.Context, url string) leader.Reply
	// Meta asks a tool what it is, and Healthy whether it is ready: "" if it is.
	Meta(ctx context.Context, url string) ([]byte, error)
	Healthy(ctx context.Context, url string) (why string)
}

// Events looks after events: it reads sources, brings events on, calls their tools and asks after these.
type Events struct {
	*Node
	EventsConfig
	ledger ledger // knows of events what their rows do not say

	// largePage is held by the one look that reads a page which may be larger than others.
	largePage sync.Mutex
	// fewer are the sources whose pages were too large: fewer events than their page_size are asked for.
	fewer sync.Map
}

// NewEvents makes what looks after events in the process of an engine.
func NewEvents(e *Engine, c EventsConfig) *Events {
	return &Events{Node: e.Node, EventsConfig: c, ledger: ledger{bell: make(chan struct{}, 1)}}
}

// System is what the engine runs of it.
func (e *Events) System() System {
	s := System{
		Name:  "events",
		Loops: []Loop{e.lead()},
		Round: e.round,
		Ended: e.calledFor,
	}
	if e.Fetch != nil {
		s.Loops = append(s.Loops, e.listen())
	}
	if e.Tools != nil {
		s.Loops = append(s.Loops, e.probes())
		s.Workers = map[string]Call{leader.ToolURL: e.invoke}
	}
	return s
}

// round brings events on, and looks for what was lost at once.
func (e *Events) round(ctx context.Context) (int, error) {
	e.ledger.next = time.Time{}
	return e.LeadOnce(ctx)
}

// any waits for the first of a kind.
func (e *Events) any(kind pg.Kind) func(context.Context) bool {
	return func(ctx context.Context) bool { return e.Store.Await(ctx, kind) }
}
