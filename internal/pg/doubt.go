package pg

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/twin"
)

// Fenced is a queue under a fence.
type Fenced struct{ Queue, Fence int64 }

// Doubtful is the error of a claim, or of a post that takes its queue, whose commit has an unknown end. The node may
// own these queues, and does not work on them: GiveUp them.
type Doubtful struct {
	error
	Node   Node
	Queues []Fenced
}

// Unwrap returns the error of the commit: its code is "commit_unknown".
func (d *Doubtful) Unwrap() error { return d.error }

// doubtful makes a Doubtful of an error that means it, and leaves others as they are.
func doubtful(node Node, rows []*QueueRow, err error) error {
	if len(rows) == 0 || fault.CodeOf(err) != "commit_unknown" {
		return err
	}
	d := &Doubtful{error: err, Node: node}
	for _, q := range rows {
		d.Queues = append(d.Queues, Fenced{q.ID, q.Fence})
	}
	return d
}

// GiveUp takes queues from a node that has them by its row and does not work on them: the end of its last commit is
// unknown to it, or it lost what a commit had leased. It returns how many those were, and those that have to be asked
// for again: their rows are not there, since a queue without a name begins with the transaction that is in doubt,
// which may still be under way, or another session holds them just now.
//
// Why no other queue is taken: owner, epoch and fence are compared in the locked row, by nothing else, and each lease
// of a queue raises its fence. Position and phase are not compared: in a lazy run the row tells them late (see
// Settle), so handBack reads them from the outcomes, behind the lock. Why it waits for no lock: the holder may be the
// session of a settlement whose caller has gone, for as long as a standby is away, and the other queues of the list
// go on meanwhile. The next try sees what that settlement has committed.
func (s *Store) GiveUp(ctx context.Context, n Node, list []Fenced) (total int, left []Fenced, err error) {
	err = s.Run(ctx, func(t *db.Txn) error {
		left = nil
		var ids []int64
		for _, h := range list {
			ids = append(ids, h.Queue)
		}
		rows := map[int64]*QueueRow{}
		e := newEffects(s)
		b := &pgx.Batch{}
		lockQueues(b, lockSkipping, ids, nil, rows)
		s.ReadNow(b, &e.now)
		if err := t.Send(ctx, b); err != nil {
			return err
		}
		var ours []*QueueRow
		for _, h := range list {
			switch q := rows[h.Queue]; {
			case q == nil:
				left = append(left, h)
			case q.Node == n.ID && q.NodeEpoch == n.Epoch &&
				(q.Fence == h.Fence || twin.Planted("hand_back_without_fence")):
				ours = append(ours, q)
			}
		}
		if total = len(ours); total == 0 {
			return t.Rollback(ctx)
		}
		return e.handBack(ctx, t, ours)
	})
	return total, left, err
}

// NotOwned says which of these queues are not the node's under their fences, by their rows. It locks nothing: its
// answer was true a moment ago, and stays true, since a fence never comes back.
func (s *Store) NotOwned(ctx context.Context, n Node, list []Fenced) (gone []Fenced, err error) {
	ids, fences := make([]int64, len(list)), make([]int64, len(list))
	for i, f := range list {
		ids[i], fences[i] = f.Queue, f.Fence
	}
	rows, err := s.Looks.Query(ctx, `
		SELECT f.queue_id, f.fence
		FROM ROWS FROM (unnest($1::bigint[]), unnest($2::bigint[])) f(queue_id, fence)
		LEFT JOIN LATERAL (SELECT * FROM postern.queue y WHERE y.queue_id = f.queue_id OFFSET 0) q ON true
		WHERE (q.fence, q.node_id, q.node_epoch) IS DISTINCT FROM (f.fence, $3::bigint, $4::int)`,
		ids, fences, n.ID, n.Epoch)
	if err != nil {
		return nil, db.Known(err)
	}
	gone, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Fenced])
	return gone, db.Known(err)
}

// ownedSQL reads a chunk of queue along its key: of those that the node has, queue and fence; and last, how many
// rows it read and up to which key. There is no index on the owner: every claim and every end would have to write
// it.
const ownedSQL = `WITH c AS MATERIALIZED (SELECT queue_id, fence, node_id, node_epoch FROM postern.queue
		WHERE queue_id > $1 ORDER BY queue_id
		LIMIT $2)
	SELECT queue_id, fence, false FROM c WHERE node_id = $3 AND node_epoch = $4
	UNION ALL SELECT coalesce(max(queue_id), 0), count(*), true FROM c`

// Owned says which queues behind a key are the node's by their rows, among the next so many, and where to go on; 0:
// those were all. It locks nothing: its answer was true a moment ago.
func (s *Store) Owned(ctx context.Context, n Node, after int64, chunk int) (mine []Fenced, next int64, err error) {
	rows, err := s.Looks.Query(ctx, ownedSQL, after, chunk, n.ID, n.Epoch)
	if err != nil {
		return nil, 0, db.Known(err)
	}
	var one Fenced
	var end bool
	_, err = pgx.ForEachRow(rows, []any{&one.Queue, &one.Fence, &end}, func() error {
		switch {
		case !end:
			mine = append(mine, one)
		case one.Fence == int64(chunk):
			next = one.Queue
		}
		return nil
	})
	return mine, next, db.Known(err)
}
