package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
)

// NodeView is a process that dispatches, as people see it. One that has stopped stays for a day.
type NodeView struct {
	ID          int64
	Name        string
	Release     string // of the program
	Epoch       int32
	State       string // live; silent: its heartbeat is older than its TTL; dead
	Draining    bool
	TTL         time.Duration
	HeartbeatAt time.Time
	Age         time.Duration // of the heartbeat
	StartedAt   time.Time
	DeadAt      *time.Time
	Types       []string   // that it works on; none: all
	AllowCIDR   []string   // private ranges that it may call; nil: it has not said yet
	NodeLoad               // as of its last heartbeat
	Queues      int64      // that it holds, as of the sample
	AsOf        *time.Time // of the sample; nil before the first one
}

// Version changes whenever a lever does something to the node.
func (n *NodeView) Version() int64 {
	if n.Draining {
		return int64(n.Epoch)*2 + 1
	}
	return int64(n.Epoch) * 2
}

const nodesSQL = `SELECT n.node_id, n.name, n.version, n.epoch, x.state,
		n.draining, n.ttl, n.heartbeat_at, greatest(now.at - n.heartbeat_at, '0'), n.started_at, n.dead_at, n.worker_allow_cidr,
		coalesce(l.queues, 0), s.as_of, n.types, n.concurrency, n.calls
	FROM postern.node n CROSS JOIN (SELECT coalesce($1::timestamptz, clock_timestamp()) AS at) now
	CROSS JOIN LATERAL (SELECT CASE WHEN n.dead_at IS NOT NULL THEN 'dead'
		WHEN n.heartbeat_at + n.ttl < now.at THEN 'silent' ELSE 'live' END AS state) x
	LEFT JOIN postern.node_load l ON l.node_id = n.node_id LEFT JOIN (SELECT max(as_of) AS as_of FROM postern.node_load) s ON true
	WHERE n.kind = 'work' `

func scanNode(row pgx.CollectableRow) (*NodeView, error) {
	v := &NodeView{}
	return v, row.Scan(&v.ID, &v.Name, &v.Release, &v.Epoch, &v.State, &v.Draining, &v.TTL, &v.HeartbeatAt, &v.Age, &v.StartedAt, &v.DeadAt, &v.AllowCIDR,
		&v.Queues, &v.AsOf, &v.Types, &v.Concurrency, &v.Calls)
}

// Nodes lists up to limit nodes that are in some states, none for all, the newest first: those older than one, 0: all.
func (s *Store) Nodes(ctx context.Context, states []string, olderThan int64, limit int) ([]*NodeView, error) {
	rows, err := s.Db(ctx).Query(ctx, nodesSQL+`AND ($2::bigint = 0 OR n.node_id < $2)
		AND (coalesce(cardinality($4::text[]), 0) = 0 OR x.state = ANY ($4))
		ORDER BY n.node_id DESC LIMIT $3`, s.LeaseNow(), olderThan, limit, states)
	if err != nil {
		return nil, db.Known(err)
	}
	list, err := pgx.CollectRows(rows, scanNode)
	return list, db.Known(err)
}

// Node returns the node of that name, or NotFound: of several the newest that is not dead, else the newest.
func (s *Store) Node(ctx context.Context, name string) (*NodeView, error) {
	rows, err := s.Db(ctx).Query(ctx, nodesSQL+`AND n.name = $2 ORDER BY n.dead_at IS NOT NULL, n.node_id DESC LIMIT 1`, s.LeaseNow(), name)
	if err != nil {
		return nil, db.Known(err)
	}
	n, err := pgx.CollectOneRow(rows, scanNode)
	if db.IsNoRows(err) {
		return nil, fault.New(fault.NotFound, "not_found", "no node %q", fault.Clip(name))
	}
	return n, db.Known(err)
}

// DrainNode makes a node claim nothing more, or lets it again; it hears of it with its next heartbeat, and hands
// back each queue when the call that it has out for it ends.
func (s *Store) DrainNode(ctx context.Context, by db.By, name string, drain bool) (r LeverResult, err error) {
	verb := map[bool]string{true: "drain", false: "resume"}[drain]
	r, err = s.pullNode(ctx, by, verb, name, `UPDATE postern.node SET draining = $2 WHERE node_id = $1 AND draining <> $2`, drain)
	if r.Changed && drain {
		r.Pending, r.At = true, "when the calls that it has out have ended"
	}
	return r, err
}

// BuryNode ends a node now, as Bury does those that are silent, and releases its queues. A process that is alive all
// the same goes on under the new epoch; answers to calls that it has out count as late. The argument is that of Bury: a
// claim holds the key of the node's row, so it commits before and is released, or sees the end and takes nothing.
func (s *Store) BuryNode(ctx context.Context, by db.By, name string) (r LeverResult, err error) {
	r, err = s.pullNode(ctx, by, "bury", name, `UPDATE postern.node SET dead_at = coalesce($2::timestamptz, clock_timestamp()), epoch = epoch + 1
		WHERE node_id = $1 AND dead_at IS NULL`, s.LeaseNow())
	if err != nil || db.JointOf(ctx) != nil {
		return r, err
	}
	_, err = s.Release(ctx)
	s.RingHere()
	return r, err
}

// pullNode runs an update of the node of that name, with its audit row. A dead one can do nothing but be dead.
func (s *Store) pullNode(ctx context.Context, by db.By, verb, name, update string, value any) (r LeverResult, err error) {
	n, err := s.Node(ctx, name)
	switch {
	case err != nil:
		return r, err
	case n.DeadAt != nil && verb != "bury":
		return r, fault.New(fault.Conflict, "wrong_state", "node %s is dead since %s: it claims nothing", fault.Clip(name), n.DeadAt.UTC().Format(time.RFC3339))
	}
	err = s.Run(ctx, func(t *db.Txn) error {
		b := &pgx.Batch{}
		b.Queue(`SELECT epoch, draining FROM postern.node WHERE node_id = $1 FOR NO KEY UPDATE`, n.ID).
			QueryRow(func(row pgx.Row) error { return row.Scan(&n.Epoch, &n.Draining) })
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		if err := by.Seen(n.Version()); err != nil {
			return err
		}
		b = &pgx.Batch{}
		b.Queue(update, n.ID, value).Exec(func(tag pgconn.CommandTag) error {
			r.Changed = tag.RowsAffected() > 0
			return nil
		})
		s.AuditIn(b, by, verb, "/nodes/"+n.Name)
		return t.Commit(ctx, b)
	})
	return r, err
}
