package reads

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/pg/db"
)

// nodeFacts is a live process that dispatches, as its row says.
type nodeFacts struct {
	id                 int64
	name               string
	types              []string
	concurrency, calls int
	draining           bool
}

func (n *nodeFacts) takes(typ string) bool { return len(n.types) == 0 || slices.Contains(n.types, typ) }

// full says whether the node has no room for another call, as of its last heartbeat.
func (n *nodeFacts) full() bool { return n.concurrency > 0 && n.calls >= n.concurrency }

// readNodes reads the processes that are alive.
func (x *explain) readNodes() error {
	rows, err := x.s.Pool().Query(x.ctx, `
		SELECT node_id, name, types, concurrency, calls, draining
		FROM postern.node
		WHERE dead_at IS NULL AND heartbeat_at + ttl >= coalesce($1::timestamptz, clock_timestamp())
		ORDER BY name, node_id`, x.s.LeaseNow())
	if err != nil {
		return db.Known(err)
	}
	x.nodes, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (n nodeFacts, err error) {
		return n, row.Scan(&n.id, &n.name, &n.types, &n.concurrency, &n.calls, &n.draining)
	})
	for _, n := range x.nodes {
		if !n.draining {
			x.live++
		}
	}
	return db.Known(err)
}

// needNode adds why no process takes the next step, and says whether it added anything: none is alive, or none
// that is works on the type. room asks for one that may make another call now, too.
func (x *explain) needNode(room bool) (bool, error) {
	if x.live == 0 {
		return true, x.noLiveNode()
	}
	var takers, full, drained []nodeFacts
	for _, n := range x.nodes {
		switch {
		case !n.takes(x.head.Type):
		case n.draining:
			drained = append(drained, n)
		default:
			if takers = append(takers, n); n.full() {
				full = append(full, n)
			}
		}
	}
	switch {
	case len(takers) == 0:
		x.noNodeForType(drained)
	case room && len(full) == len(takers):
		return true, x.nodesFull(full)
	default:
		return false, nil
	}
	return true, nil
}

// noLiveNode adds that no process is there for the next step.
func (x *explain) noLiveNode() error {
	b := Blocker{
		Kind:   "no_live_node",
		Object: "/nodes",
		Since:  x.since,
		Detail: "no process that dispatches is alive: start `postern work`",
	}
	for _, n := range x.nodes {
		if n.draining {
			b.Object = "/nodes/" + n.name
			b.Detail = "every process that dispatches is draining: resume one, or start another"
			b.Levers = []Lever{NewLever("POST", "system admin", "nodes", n.name, "resume")}
			break
		}
	}
	var last *time.Time
	if err := x.s.Pool().QueryRow(x.ctx, `SELECT max(heartbeat_at) FROM postern.node`).Scan(&last); err != nil {
		return db.Known(err)
	}
	if last != nil {
		b.Since = *last
	}
	x.add(b)
	return nil
}

// noNodeForType adds that no live process works on the type of the head.
func (x *explain) noNodeForType(drained []nodeFacts) {
	b := Blocker{Kind: "no_node_for_type", Object: "/nodes", Since: x.since}
	if len(drained) > 0 {
		b.Object = "/nodes/" + drained[0].name
		b.Detail = fmt.Sprintf("every process that works on type %s is draining: resume one, or start another",
			x.head.Type)
		b.Levers = []Lever{NewLever("POST", "system admin", "nodes", drained[0].name, "resume")}
		x.add(b)
		return
	}
	var others []string
	for _, n := range x.nodes[:min(len(x.nodes), 5)] {
		others = append(others, n.name+" takes "+strings.Join(n.types, ", "))
	}
	b.Detail = fmt.Sprintf("no live process works on type %s (%s): start `postern work --types %s`, "+
		"or one without --types", x.head.Type, strings.Join(others, "; "), x.head.Type)
	x.add(b)
}

// nodesFull adds that each process that works on the type makes as many calls as it may, with the call that is
// out for longest.
func (x *explain) nodesFull(full []nodeFacts) error {
	b := Blocker{Kind: "node_full", Object: "/nodes", Since: x.since}
	var ids []int64
	var said []string
	for _, n := range full {
		ids = append(ids, n.id)
		if len(said) < 5 {
			said = append(said, fmt.Sprintf("%s has %d of %d out", n.name, n.calls, n.concurrency))
		}
	}
	if len(full) == 1 {
		b.Object = "/nodes/" + full[0].name
	}
	b.Detail = fmt.Sprintf("each process that works on type %s makes as many calls as it may: %s",
		x.head.Type, strings.Join(said, "; "))
	oldest, err := x.holder(`q.node_id = ANY ($1)`, ids)
	if err != nil {
		return err
	}
	if oldest != nil {
		b.Detail += ". The oldest call is that of " + x.named(oldest)
	}
	x.add(b)
	return x.followHolder(oldest)
}
