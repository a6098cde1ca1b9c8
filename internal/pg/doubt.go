package pg

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/postern-dev/postern/internal/fault"
)

// Fenced is a queue under a fence.
type Fenced struct{ Queue, Fence int64 }

// Doubtful is the error of a claim, or of a post that takes its queue, of which nobody knows whether it was committed. The
// node may own these queues, and does not work on them: Renounce them.
type Doubtful struct {
	error
	Node   Node
	Queues []Fenced
}

func (d *Doubtful) Unwrap() error { return d.error }

// doubtful makes a Doubtful of an error that means it, and leaves others as they are.
func doubtful(node Node, rows []*queueRow, err error) error {
	if len(rows) == 0 || fault.CodeOf(err) != "commit_unknown" {
		return err
	}
	d := &Doubtful{error: err, Node: node}
	for _, q := range rows {
		d.Queues = append(d.Queues, Fenced{q.ID, q.Fence})
	}
	return d
}

// Renounce gives up those of the queues that the node owns under the fence in question, like GiveUp, and returns those whose row
// is not there: without a name a queue begins with the transaction that is in doubt, and that may still be under way, for as
// long as a statement may take. Of the others the lock waits for it.
func (s *Store) Renounce(ctx context.Context, d *Doubtful) (left []Fenced, err error) {
	err = s.run(ctx, func(t *txn) error {
		left = nil
		var ids []int64
		for _, h := range d.Queues {
			ids = append(ids, h.Queue)
		}
		rows := map[int64]*queueRow{}
		e := newEffects(s)
		b := &pgx.Batch{}
		t.lockQueues(b, ids, rows)
		s.readNow(b, &e.now)
		if err := t.send(ctx, b); err != nil {
			return err
		}
		var ours []*queueRow
		for _, h := range d.Queues {
			switch q := rows[h.Queue]; {
			case q == nil:
				left = append(left, h)
			case q.Node == d.Node.ID && q.NodeEpoch == d.Node.Epoch && q.Fence == h.Fence:
				ours = append(ours, q)
			}
		}
		if len(ours) == 0 {
			return t.rollback(ctx)
		}
		return e.handBack(ctx, t, ours)
	})
	return left, err
}
