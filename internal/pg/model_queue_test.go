package pg_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/verify"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/sequencer"
)

// mTx is a transaction of the model.
type mTx struct {
	q          *mQueue
	id         outbox.ID
	uid, typ   string
	state      outbox.State
	attempt    int
	retries    int
	notBefore  time.Time
	cancelling bool
	suspended  bool
	tried      bool // went out before, so that it may be pinned to its sender
	called     bool // a call of it may have had an effect, so that nothing goes ahead of it
}

// mQueue is a queue of the model: its transactions in order, and what it is doing with the first that
// has not ended.
type mQueue struct {
	m         *model
	name      string
	txs       []*mTx // by position
	order     []*mTx // as they go out
	cur       *mTx
	mode      string
	paused    bool
	owner     *mNode
	epoch     int32
	lease     *pg.Lease // in hand: of the owner, or a poll
	due       time.Time
	notBefore time.Time
}

const (
	modeIdle    = ""
	modeHeld    = "held"
	modeReady   = "ready"
	modeCall    = "call"    // DISPATCHING, with an owner
	modeResume  = "resume"  // DISPATCHING, in the lane of that name
	modeAsk     = "ask"     // DISPATCHING, waits to ask
	modePoll    = "poll"    // REVISION
	modeDelay   = "delay"   // RETRY
	modeElapsed = "elapsed" // RETRY, with an owner
	modeParked  = "parked"  // in flight, and suspended before it would go out again
)

func (q *mQueue) head() *mTx {
	for _, x := range q.order {
		if !x.state.Terminal() {
			return x
		}
	}
	return nil
}

func (q *mQueue) append(x *mTx) {
	q.txs, q.order = append(q.txs, x), append(q.order, x)
	if q.mode == modeIdle {
		q.rest()
	}
}

// lose takes the lease away from its node, whose answers are late from now on.
func (q *mQueue) lose() {
	if q.lease != nil {
		q.m.late = append(q.m.late, q.lease)
	}
	q.lease, q.owner = nil, nil
}

// rest lets the queue stand where its head says.
func (q *mQueue) rest() {
	q.cur, q.owner, q.lease, q.due = nil, nil, nil, time.Time{}
	switch h := q.head(); {
	case h == nil:
		q.mode = modeIdle
	case h.suspended:
		q.mode = modeHeld
	case h.notBefore.After(q.m.Now):
		q.mode, q.due = modeHeld, h.notBefore
	default:
		q.mode = modeReady
	}
}

// take gives the queue to a node, as its lease says.
func (q *mQueue) take(n *mNode, l *pg.Lease) {
	was := q.mode
	if q.cur == nil {
		q.cur = q.head()
		q.cur.state, q.cur.tried = outbox.DISPATCHING, true
	}
	q.owner, q.epoch, q.lease, q.due, q.mode = n, n.Epoch, l, time.Time{}, modeCall
	if was == modeDelay {
		q.mode, q.due = modeElapsed, q.m.Now.Add(30*time.Second)
	}
	x := q.cur
	if l.ID() != x.id || l.Attempt != x.attempt || l.Retries != x.retries || l.Cancelling != x.cancelling || l.Resume != (was == modeResume || was == modeAsk) {
		q.m.rt.Fatalf("lease of %s in %s: %s attempt %d retries %d cancelling %v resume %v, want %s %d %d %v",
			q.name, was, l.ID(), l.Attempt, l.Retries, l.Cancelling, l.Resume, x.id, x.attempt, x.retries, x.cancelling)
	}
}

// apply does what was decided about an answer.
func (q *mQueue) apply(a *pg.Answer, out pg.Settled) {
	x, step := q.cur, a.Step
	x.called = x.called || !step.NothingDone
	x.state, x.attempt, x.retries = step.State, step.Attempt, step.Retries
	switch step.Then {
	case sequencer.ThenEnd:
		polled := q.owner == nil || a.Lease.Phase != outbox.PhaseDispatching
		owner, epoch := q.owner, q.epoch
		q.rest()
		next := q.head()
		follows := next != nil && q.mode == modeReady && !polled && a.Continue && !q.paused && next.typ == x.typ && x.typ != "X"
		if follows != (out.Next != nil) {
			q.m.rt.Fatalf("%s ended %s in %s: next is %+v, want one: %v", x.uid, x.state, q.name, out.Next, follows)
		}
		if follows {
			q.take(&mNode{Node: owner.Node}, out.Next)
			q.owner, q.epoch = owner, epoch
		}
	case sequencer.ThenCall:
		if x.cancelling && !a.Lease.Cancelling && a.Lease.Phase == outbox.PhaseDelay { // since the lease was read: it is looked at anew
			x.state, x.attempt, x.retries = outbox.RETRY, a.Lease.Attempt, a.Lease.Retries
			q.owner, q.lease, q.due, q.mode = nil, nil, q.m.Now, modeDelay
			if out.Next != nil {
				q.m.rt.Fatalf("%s is to be cancelled, and goes on with %+v", x.uid, out.Next)
			}
			return
		}
		if x.suspended {
			was := a.Lease
			x.state, x.attempt, x.retries = was.Phase.Transaction(), was.Attempt, was.Retries
			q.owner, q.lease, q.due, q.mode = nil, nil, time.Time{}, modeParked
			if out.Next != nil {
				q.m.rt.Fatalf("%s is suspended, and goes on with %+v", x.uid, out.Next)
			}
			return
		}
		q.mode, q.due, q.lease = modeCall, time.Time{}, out.Next
		if out.Next == nil || out.Next.ID() != x.id {
			q.m.rt.Fatalf("%s goes on with %+v", x.uid, out.Next)
		}
	case sequencer.ThenBack:
		x.state = outbox.WAITING
		q.rest()
		alone := step.Blocks != "" && a.Gate != sequencer.MoveClose // the others of its type go on
		if alone && !x.suspended {
			if at := q.m.Now.Add(step.Delay); at.After(q.due) && at.After(q.m.Now) {
				q.mode, q.due = modeHeld, at
			}
		}
	default:
		q.owner, q.lease, q.due = nil, nil, q.m.Now.Add(step.Delay)
		q.notBefore = q.due
		switch step.State {
		case outbox.DISPATCHING:
			q.mode = modeAsk
		case outbox.REVISION:
			q.mode = modePoll
		case outbox.RETRY:
			if q.mode = modeDelay; a.Lease.Cancelling {
				q.notBefore = time.Time{}
			}
		}
	}
}

// cancelled ends what waits.
func (q *mQueue) cancelled(x *mTx) {
	first := q.head() == x
	x.state = outbox.CANCELLED
	if first {
		q.rest()
	}
}

// orphan takes the queue from its owner.
func (q *mQueue) orphan() {
	was := q.mode
	q.lose()
	q.mode, q.due = modeResume, time.Time{}
	if was == modeElapsed {
		q.mode, q.due = modeDelay, q.notBefore
		if q.due.Before(q.m.Now) {
			q.due = q.m.Now
		}
	}
}

// check compares what a reader sees with the model, and asks for the invariants.
func (m *model) check(rt *rapid.T) {
	var want []string
	for _, q := range m.sorted() {
		for i, x := range q.txs {
			line := fmt.Sprintf("%s %d %s %s", q.name, i+1, x.uid, x.state)
			if x.suspended && !x.state.Terminal() {
				line += " suspended"
			}
			want = append(want, line)
		}
	}
	rows, err := m.S.Pool().Query(m.Ctx, `SELECT concat_ws(' ', queue, position, uid, state, CASE WHEN suspended THEN 'suspended' END) FROM postern.transactions ORDER BY queue, position`)
	m.ok(err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	m.ok(err)
	if a, b := strings.Join(want, "\n"), strings.Join(got, "\n"); a != b {
		rt.Fatalf("a reader sees something else than the model:%s", difference(a, b))
	}
	for _, q := range m.sorted() {
		var depth int64
		for _, x := range q.txs {
			if !x.state.Terminal() {
				depth++
			}
		}
		v, err := m.S.Queue(m.Ctx, m.ID, q.name)
		m.ok(err)
		if v.Depth != depth || v.Paused != q.paused {
			rt.Fatalf("%s: depth %d paused %v, want %d %v", q.name, v.Depth, v.Paused, depth, q.paused)
		}
	}
	found, err := verify.Violations(m.Ctx, m.S.Pool())
	m.ok(err)
	_, differ, err := pgworld.OfTheirDays(m.Ctx, m.S.Pool())
	m.ok(err)
	if found = append(found, differ...); len(found) > 0 {
		rt.Fatalf("%s", strings.Join(found, "\n"))
	}
}
