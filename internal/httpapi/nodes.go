package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/postern-dev/postern/internal/pg"
)

func (a *API) nodeRoutes() {
	const tag = "nodes"
	get(a, tag, "/nodes", "list-nodes", "List the processes that dispatch", a.listNodes)
	get(a, tag, "/nodes/{name}", "get-node", "Read one node", a.getNode)
	post(a, tag, "/nodes/{name}/drain", "drain-node",
		"Hand back what it holds, claim nothing more", turned(a.Store.DrainNode, true), 200, 202)
	post(a, tag, "/nodes/{name}/resume", "resume-node",
		"Let a drained node claim again", turned(a.Store.DrainNode, false), 200)
	post(a, tag, "/nodes/{name}/bury", "bury-node",
		"Take a node for dead now, and let others go on with its queues", onNamed(a.Store.BuryNode), 200)
}

// nodeView is a process that dispatches, as clients read it.
type nodeView struct {
	Name         string     `json:"name" doc:"not unique: of several, calls by name mean the newest that is not dead"`
	Version      string     `json:"version" doc:"of the program"`
	Epoch        int32      `json:"epoch" doc:"rises when it is buried"`
	State        string     `json:"state" enum:"live,silent,dead" doc:"silent: its heartbeat is older than its TTL, and somebody will bury it"`
	Draining     bool       `json:"draining" doc:"it claims nothing"`
	TTL          string     `json:"ttl" example:"10s"`
	HeartbeatAt  time.Time  `json:"heartbeat_at"`
	HeartbeatAge float64    `json:"heartbeat_age_seconds"`
	StartedAt    time.Time  `json:"started_at"`
	DeadAt       *time.Time `json:"dead_at"`
	AllowCIDR    []string   `json:"worker_allow_cidr" nullable:"true" doc:"private ranges that it may call"`
	Types        []string   `json:"types" doc:"that it works on; none: all"`
	Concurrency  int        `json:"concurrency" doc:"how many calls it may have out; 0: it has not said so yet"`
	Calls        int        `json:"calls" doc:"that it had out at its last heartbeat"`
	Queues       int64      `json:"queues" doc:"that it holds, as of as_of"`
	AsOf         *time.Time `json:"as_of" doc:"of the sample, taken every 15 s; null before the first one"`
}

func viewNode(n *pg.NodeView) nodeView {
	return nodeView{Name: n.Name, Version: n.Release, Epoch: n.Epoch, State: n.State, Draining: n.Draining,
		TTL: n.TTL.String(), HeartbeatAt: n.HeartbeatAt.UTC(),
		HeartbeatAge: n.Age.Seconds(), StartedAt: n.StartedAt.UTC(), DeadAt: utc(n.DeadAt),
		AllowCIDR: n.AllowCIDR, Queues: n.Queues, AsOf: utc(n.AsOf),
		Types: n.Types, Concurrency: n.Concurrency, Calls: n.Calls}
}

type listNodesInput struct {
	State  []string `query:"state,explode" enum:"live,silent,dead"`
	Limit  int      `query:"limit" minimum:"1" maximum:"500" default:"50"`
	Cursor string   `query:"cursor" doc:"next of the page before."`
}

// listNodes lists the newest first. A node that has stopped stays in the list for a day.
func (a *API) listNodes(ctx context.Context, in *listNodesInput) (*pageOf[nodeView], error) {
	var err error
	out, filters := &pageOf[nodeView]{}, []any{"nodes"}
	for _, state := range in.State {
		filters = append(filters, state)
	}
	out.Body, out.Link, err = listBy(ctx, a, &namedPage{in.Limit, in.Cursor}, filters,
		func(olderThan int64, limit int) ([]*pg.NodeView, error) {
			return a.Store.Nodes(ctx, in.State, olderThan, limit)
		},
		func(v *pg.NodeView) int64 { return v.ID }, plainly(viewNode))
	return out, err
}

type nodeOutput struct {
	Status int
	ETag   string `header:"ETag"`
	Body   nodeView
}

func (a *API) getNode(ctx context.Context, in *Named) (*nodeOutput, error) {
	n, err := a.Store.Node(ctx, string(in.Name))
	if err != nil {
		return nil, err
	}
	return &nodeOutput{Status: http.StatusOK, ETag: etag(n.Version()), Body: viewNode(n)}, nil
}
