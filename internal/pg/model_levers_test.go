package pg_test

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
)

func (m *model) later(rt *rapid.T) {
	m.world.Later(rapid.SampledFrom([]time.Duration{time.Second, 3 * time.Second, 6 * time.Second,
		31 * time.Second}).Draw(rt, "by"))
}

func (m *model) wake(rt *rapid.T) {
	n := m.node(rt)
	w, err := m.S.Wake(m.Ctx, n.Node, 100, 100)
	m.ok(err)
	leases := map[string]*pg.Lease{}
	for _, l := range slices.Concat(w.Leases, w.Polls) {
		leases[l.Queue] = l
	}
	for _, q := range m.sorted() {
		l := leases[q.name]
		delete(leases, q.name)
		due := !q.due.IsZero() && !q.due.After(m.Now)
		wants := due && !n.dead && (q.mode == modePoll || q.mode == modeAsk || q.mode == modeDelay)
		if wants != (l != nil) {
			rt.Fatalf("%s in %s, due %s: woken with %+v", q.name, q.mode, q.due.Sub(m.Now), l)
		}
		switch {
		case !due:
		case q.mode == modeHeld:
			q.mode, q.due = modeReady, time.Time{}
		case q.mode == modeElapsed:
			q.due = m.Now.Add(30 * time.Second)
		case n.dead: // or it does not know of a quarantine: it asks nothing, either
			q.due = m.Now.Add(100 * time.Millisecond)
		case q.mode == modePoll:
			q.lease, q.due = l, m.Now.Add(n.TTL)
			if l.ID() != q.cur.id || l.Attempt != q.cur.attempt {
				rt.Fatalf("polls %s attempt %d, want %s attempt %d", l.ID(), l.Attempt, q.cur.id, q.cur.attempt)
			}
		default:
			q.take(n, l)
		}
	}
	if len(leases) > 0 {
		rt.Fatalf("woke what the model does not know: %+v", leases)
	}
}

func (m *model) cancel(rt *rapid.T) {
	x := m.tx(rt, func(*mTx) bool { return true })
	r, err := m.S.Cancel(m.Ctx, m.By, x.id)
	switch x.state {
	case outbox.WAITING:
		m.ok(err)
		x.q.cancelled(x)
	case outbox.RETRY:
		m.ok(err)
		if !r.Pending {
			rt.Fatalf("%+v", r)
		}
		if !x.cancelling && (x.q.mode == modeDelay || x.q.mode == modeParked) {
			x.q.mode, x.q.due = modeDelay, m.Now
		}
		x.cancelling = true
	case outbox.CANCELLED:
		m.ok(err)
		if r.Changed {
			rt.Fatalf("cancel of %s, which is cancelled: %+v", x.uid, r)
		}
	default:
		if fault.KindOf(err) != fault.Conflict {
			rt.Fatalf("cancel of %s in %s: %v", x.uid, x.state, err)
		}
	}
}

func (m *model) abandon(rt *rapid.T) {
	x := m.tx(rt, func(x *mTx) bool { return !x.state.Terminal() })
	_, err := m.S.Abandon(m.Ctx, m.By, x.id)
	if x.state == outbox.WAITING || x.state == outbox.RETRY && !x.cancelling {
		if fault.KindOf(err) != fault.Conflict {
			rt.Fatalf("abandon of %s in %s: %v", x.uid, x.state, err)
		}
		return
	}
	m.ok(err)
	for _, account := range []string{"acct-1", "acct-2"} { // so that the pool does not run dry
		_, err := m.S.UnblockSender(m.Ctx, m.By, account)
		m.ok(err)
	}
	x.state = outbox.UNRESOLVED
	x.q.lose()
	x.q.rest()
}

// suspend suspends a transaction, or resumes one that is.
func (m *model) suspend(rt *rapid.T) {
	x := m.tx(rt, func(*mTx) bool { return true })
	q := x.q
	if x.state.Terminal() {
		if _, err := m.S.Suspend(m.Ctx, m.By, x.id); fault.KindOf(err) != fault.Conflict {
			rt.Fatalf("%s is suspended in %s: %v", x.uid, x.state, err)
		}
		return
	}
	pull := m.S.Suspend
	if x.suspended {
		pull = m.S.Resume
	}
	r, err := pull(m.Ctx, m.By, x.id)
	m.ok(err)
	if x.suspended = !x.suspended; !r.Changed || r.Pending != (x.suspended && x.state != outbox.WAITING) {
		rt.Fatalf("%s in %s: %+v", x.uid, x.state, r)
	}
	switch {
	case q.cur == nil && q.head() == x:
		q.rest()
	case q.cur == x && q.mode == modeParked && !x.suspended:
		q.due = m.Now
		if q.mode = modeAsk; x.state == outbox.RETRY {
			q.mode = modeDelay
		}
	}
}

// move places a transaction before or after another one of its queue, or first of those that wait.
func (m *model) move(rt *rapid.T) {
	x := m.tx(rt, func(x *mTx) bool { return len(x.q.txs) > 1 })
	q := x.q
	y := rapid.SampledFrom(q.txs).Draw(rt, "another")
	to, behind := pg.Place{Before: &y.id}, 0
	switch rapid.IntRange(0, 2).Draw(rt, "place") {
	case 0:
		to, behind = pg.Place{After: &y.id}, 1
	case 1:
		if to, y = (pg.Place{}), nil; q.cur != nil {
			y, behind = q.cur, 1
		}
	}
	_, err := m.S.Move(m.Ctx, m.By, x.id, to)
	head := q.head()
	out := head != nil && (q.cur == head || head.called) // it went out first, and stays first
	switch {
	case x.state != outbox.WAITING, y == x, y != nil && y.state.Terminal(), q.cur != nil && y == q.cur && behind == 0:
		if err == nil {
			rt.Fatalf("%s, %s, is placed by %s", x.uid, x.state, y.uid)
		}
		return
	case err != nil && out && head == q.cur, err != nil && !out:
		m.ok(err)
	case err != nil: // it keeps its turn
		if x != head && y != head || fault.CodeOf(err) != "wrong_state" {
			m.ok(err)
		}
		return
	}
	rest := slices.DeleteFunc(slices.Clone(q.order), func(z *mTx) bool { return z == x })
	at := slices.IndexFunc(rest, func(z *mTx) bool { return !z.state.Terminal() })
	if y != nil {
		at = slices.Index(rest, y) + behind
	} else if x != head && head.called { // right behind one that has been out
		at++
	}
	if at < 0 {
		return // it is alone
	}
	was := q.head()
	q.order = slices.Insert(rest, at, x)
	if q.cur == nil && q.head() != was {
		q.rest()
	}
}

func (m *model) pause(rt *rapid.T) {
	list := m.sorted()
	if len(list) == 0 {
		rt.Skip("no queue")
	}
	q := rapid.SampledFrom(list).Draw(rt, "queue")
	r, err := m.S.PauseQueue(m.Ctx, m.By, q.name, !q.paused)
	m.ok(err)
	if q.paused = !q.paused; !r.Changed {
		rt.Fatalf("%+v", r)
	}
}

func (m *model) beat(rt *rapid.T) { m.revive(m.node(rt)) }

func (m *model) revive(n *mNode) {
	alive, err := m.S.Beat(m.Ctx, n.Node, pg.NodeLoad{})
	m.ok(err)
	if alive == n.dead {
		m.rt.Fatalf("%s beats: %v", n.Name, alive)
	}
	if n.dead {
		n.Node, err = m.S.Reincarnate(m.Ctx, n.Node)
		m.ok(err)
	}
	n.beat, n.dead = m.Now, false
}

// crash lets one node die while the other lives, and its queues be released.
func (m *model) crash(rt *rapid.T) {
	dead := m.node(rt)
	m.world.Later(11 * time.Second)
	for _, n := range m.nodes {
		if n != dead {
			m.revive(n)
		}
	}
	m.bury(rt)
	m.release(rt)
	m.revive(dead)
}

func (m *model) bury(rt *rapid.T) {
	buried, err := m.S.Bury(m.Ctx)
	m.ok(err)
	for _, n := range m.nodes {
		if !n.dead && n.beat.Add(n.TTL).Before(m.Now) {
			n.dead = true
			buried--
		}
	}
	if buried != 0 {
		rt.Fatalf("%d nodes too many were buried", buried)
	}
}

func (m *model) release(rt *rapid.T) {
	n, err := m.S.Release(m.Ctx)
	m.ok(err)
	for _, q := range m.sorted() {
		if o := q.owner; o != nil && (o.dead || o.Epoch != q.epoch) {
			q.orphan()
			n--
		}
	}
	if n != 0 {
		rt.Fatalf("%d queues too many were released", n)
	}
}

func (m *model) giveUp(rt *rapid.T) {
	node := m.node(rt)
	n, err := m.S.GiveUpAll(m.Ctx, node.Node)
	m.ok(err)
	for _, q := range m.sorted() {
		if q.owner == node && q.epoch == node.Epoch {
			q.orphan()
			n--
		}
	}
	if n != 0 {
		rt.Fatalf("%d queues too many were given up", n)
	}
}

func (m *model) reap(rt *rapid.T) {
	n, err := m.S.Reap(m.Ctx, m.Now.Add(time.Hour), 100)
	m.ok(err)
	idle := 0
	for _, q := range m.sorted() {
		if q.head() == nil && !q.paused {
			idle++
		}
	}
	if n > idle {
		rt.Fatalf("reaped %d queues, of which %d are idle", n, idle)
	}
}
