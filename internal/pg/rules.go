package pg

import (
	"context"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/twin"
)

// These are the moves of a queue row. Each keeps what belongs to a phase in step with it: the ready row, the timer,
// the bound sender and the held lane. The caller holds the row's lock.

// enter changes the phase and the time of its beginning.
func (e *effects) enter(q *QueueRow, p outbox.Phase) {
	q.Was, q.Phase = q.Phase, p
	q.EnteredAt = later(e.now, q.EnteredAt)
}

// key is the place of a queue in its lane, or in resume if its transaction is in flight.
func (e *effects) key(q *QueueRow) readyKey {
	k := readyKey{Lane: q.Lane, Prio: q.Prio, Since: q.EnteredAt, Queue: q.ID, Era: q.Era}
	if q.Phase.InFlight() {
		k.Lane = e.s.Conf.Resume
	}
	return k
}

// leave removes the ready row or timer that a queue has in its phase, before the phase changes.
func (e *effects) leave(q *QueueRow) {
	switch q.Phase {
	case outbox.PhaseIdle:
	case outbox.PhaseReady:
		if !q.Paused {
			e.readyDel = append(e.readyDel, e.key(q))
		}
	case outbox.PhaseDispatching: // without an owner it is in resume, or waits to ask: one of them
		if q.Node == 0 {
			e.readyDel = append(e.readyDel, e.key(q))
			e.timerDel = append(e.timerDel, q.ID)
		}
	default:
		e.timerDel = append(e.timerDel, q.ID)
	}
}

// own makes a node the owner of a queue that has none, and fences the owner before it.
func (e *effects) own(q *QueueRow, n Node) {
	q.Node, q.NodeEpoch = n.ID, n.Epoch
	q.Fence = e.s.Fence(q.Fence, e.now)
}

// dispatch lets the transaction go out that is to go out next.
func (e *effects) dispatch(q *QueueRow) {
	q.Cur, q.Next = q.First(), 0
	e.enter(q, outbox.PhaseDispatching)
}

// free lets go of the owner, the sender and the exclusive lane of a queue.
func (e *effects) free(q *QueueRow, nonce string, block bool) {
	if q.Sender != 0 && !twin.Planted("sender_not_given_back") {
		e.senderFree = append(e.senderFree, senderFree{Sender: q.Sender, Nonce: nonce, Block: block})
	}
	if _, shared := e.s.Conf.shared.Load(q.Lane); q.Cur != 0 && !shared {
		e.holdersFree = append(e.holdersFree, q.ID)
	}
	q.Node, q.NodeEpoch, q.Sender, q.Cur = 0, 0, 0, 0
}

// First is the position that goes out next.
func (q *QueueRow) First() int64 {
	if q.Next != 0 {
		return q.Next
	}
	return q.Head
}

// advance moves the head up to the one that was read with a task, and the marks of what is passed are counted no more.
// The task forgets it: the head may have moved on when the task comes back.
func (q *QueueRow) advance(next *Task) {
	q.Head, q.HeadDay, q.Marks = next.Head, next.HeadDay, q.Marks-next.Passed
	next.Head, next.Passed = 0, 0
}

// turn lets a task be what goes out next. With marks the row has the head already, unless the task was read
// together with it.
func (q *QueueRow) turn(next *Task) {
	switch {
	case next.Head != 0:
		q.advance(next)
	case q.Marks == 0:
		q.Head, q.HeadDay = next.ID.Seq, next.ID.Day
	}
	if q.Next = 0; next.ID.Seq != q.Head {
		q.Next = next.ID.Seq
	}
}

// rest puts a queue without owner, sender and position in flight where its next transaction says: IDLE
// without one, HELD before its time or by a mark, else READY in the lane of its type, with a ready row unless paused.
// The attempt counters belong to the head and begin anew only with fresh.
func (e *effects) rest(q *QueueRow, next *Task, fresh bool) error {
	if fresh {
		q.Attempt, q.Retries, q.Fee, q.Pin, q.Blocked = 1, 0, "", 0, zeroTime
	}
	q.NotBefore = zeroTime
	if next == nil {
		q.Head = q.Tail + 1
		q.HeadDay = q.TailDay
		q.Marks, q.Next = 0, 0
		q.Lane = 0
		e.enter(q, outbox.PhaseIdle)
		return nil
	}
	q.turn(next)
	if q.Pin == 0 {
		q.Pin = next.SenderID
	}
	lane, err := e.laneOf(q, next)
	if err != nil {
		return err
	}
	q.Lane = lane
	if next.Held { // the lever that lifts the hold moves the queue on
		e.enter(q, outbox.PhaseHeld)
		return nil
	}
	if next.NotBefore.After(e.now) {
		q.NotBefore = next.NotBefore
		e.enter(q, outbox.PhaseHeld)
		e.timerSet[q.ID] = next.NotBefore
		return nil
	}
	e.stand(q)
	return nil
}

// stand makes a queue READY and puts it at the end of its lane.
func (e *effects) stand(q *QueueRow) {
	e.enter(q, outbox.PhaseReady)
	if !q.Paused {
		e.readyAdd = append(e.readyAdd, e.key(q))
	}
}

// laneOf finds the lane in which a queue's head has to stand.
func (e *effects) laneOf(q *QueueRow, head *Task) (int32, error) {
	d := e.view.dispatcherOf(q.Context, head.Type)
	if d == nil {
		return 0, &dispatcherMissing{e.s, head.Type}
	}
	return e.s.Conf.lane(e.s.Conf.need(d, q.Pool, q.Pin, head.Data))
}

// dispatcherMissing asks run to read the configuration again: another process accepted a type that this
// one has not heard of yet.
type dispatcherMissing struct {
	s   *Store
	typ string
}

func (e *dispatcherMissing) Error() string { return "no dispatcher is known for type " + e.typ }

// Mend reads the configuration again.
func (e *dispatcherMissing) Mend(ctx context.Context) error { return e.s.Refresh(ctx) }

// Elsewhere is true: the configuration is read on a connection of its own.
func (e *dispatcherMissing) Elsewhere() bool { return true }

var zeroTime time.Time
