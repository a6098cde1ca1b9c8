package pg_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/sequencer"
)

// TestTheRowsAreWhatPlainSlicesSay runs random commands against the real SQL and against queues that are
// slices (model_queue_test.go); after each step the states that a reader sees must be those of the model,
// and the invariants must hold. Time is set, never slept. POSTERN_MODEL_STEPS is how many steps.
func TestTheRowsAreWhatPlainSlicesSay(t *testing.T) {
	steps, each := 2000, 100
	if n, err := strconv.Atoi(os.Getenv("POSTERN_MODEL_STEPS")); err == nil {
		steps = n
	}
	for name, value := range map[string]string{"rapid.checks": fmt.Sprint(max(1, steps/each)), "rapid.steps": fmt.Sprint(each), "rapid.nofailfile": "true"} {
		was := flag.Lookup(name).Value.String()
		pgworld.OK(t, flag.Set(name, value))
		defer flag.Set(name, was)
	}
	w := newWorld(t)
	w.atNoon()
	oneDay(t, w)
	w.Dispatcher("T", func(d *outbox.Dispatcher) { d.Pool = "p" })
	w.Dispatcher("U", nil)
	w.Dispatcher("X", func(d *outbox.Dispatcher) { d.Pool, d.Exclusive = "p", "type" })
	w.Sender("p", "acct-1", "acct-2")
	k := keep(t, w.Ctx, w.S.Pool())
	begin := w.Now
	rapid.Check(t, func(rt *rapid.T) {
		k.back(t, w.Ctx)
		w.At(begin)
		w.Must(w.S.Refresh(w.Ctx)) // a sender that was blocked, or changed, before is not now
		m := &model{world: w, rt: rt, queues: map[string]*mQueue{}, uids: map[string]*mTx{}}
		m.nodes = []*mNode{{Node: w.Node("n1"), beat: w.Now}, {Node: w.Node("n2"), beat: w.Now}}
		rt.Repeat(map[string]func(*rapid.T){
			"submit": m.submit, "submit again": m.submitAgain, "claim": m.claim, "answer": m.answer, "answer late": m.answerLate, "wake": m.wake,
			"claim more": m.claim, "answer more": m.answer, "answer a run": m.answerRun, "wake more": m.wake, "crash": m.crash, "give up more": m.giveUp, // what moves it on comes more often
			"later": m.later, "cancel": m.cancel, "abandon": m.abandon, "pause": m.pause, "suspend": m.suspend, "move": m.move, "beat": m.beat, "bury": m.bury, "release": m.release,
			"give up": m.giveUp, "reap": m.reap, "": m.check,
		})
	})
}

// model is what the database should hold, and the leases that were handed out.
type model struct {
	*world
	rt     *rapid.T
	queues map[string]*mQueue
	uids   map[string]*mTx
	nodes  []*mNode
	late   []*pg.Lease // lost by their nodes
	made   int
}

type mNode struct {
	pg.Node
	beat time.Time
	dead bool
}

func (m *model) ok(err error) {
	if err != nil {
		m.rt.Fatalf("%+v", err)
	}
}

func (m *model) node(rt *rapid.T) *mNode { return rapid.SampledFrom(m.nodes).Draw(rt, "node") }

// tx draws one transaction of those that fit.
func (m *model) tx(rt *rapid.T, fits func(*mTx) bool) *mTx {
	var list []*mTx
	for _, q := range m.sorted() {
		for _, x := range q.txs {
			if fits(x) {
				list = append(list, x)
			}
		}
	}
	if len(list) == 0 {
		rt.Skip("no such transaction")
	}
	return rapid.SampledFrom(list).Draw(rt, "transaction")
}

func (m *model) sorted() (list []*mQueue) {
	for _, name := range []string{"q1", "q2", "q3"} {
		if q := m.queues[name]; q != nil {
			list = append(list, q)
		}
	}
	return list
}

func (m *model) submit(rt *rapid.T) {
	var subs []*pg.Submission
	var txs []*mTx
	kind := rapid.SampledFrom([]string{"T", "T", "U", "U", "X", ""}).Draw(rt, "type")
	for range rapid.IntRange(1, 5).Draw(rt, "n") {
		typ := kind
		if typ == "" {
			typ = rapid.SampledFrom([]string{"T", "U", "X"}).Draw(rt, "type of one")
		}
		name := rapid.SampledFrom([]string{"q1", "q1", "q1", "q2", "q3"}).Draw(rt, "queue")
		if m.queues[name] == nil {
			m.queues[name] = &mQueue{m: m, name: name}
		}
		m.made++
		x := &mTx{q: m.queues[name], uid: fmt.Sprint("u", m.made), state: outbox.WAITING, attempt: 1, typ: typ}
		if rapid.IntRange(0, 5).Draw(rt, "later") == 0 {
			x.notBefore = m.Now.Add(4 * time.Second)
		}
		sub := m.Sub(name, x.typ, x.uid)
		sub.NotBefore = x.notBefore
		subs, txs = append(subs, sub), append(txs, x)
	}
	out, err := m.S.Ingest(m.Ctx, subs, false)
	m.ok(err)
	for i, x := range txs {
		m.ok(out[i].Err)
		x.id = out[i].ID
		m.uids[x.uid] = x
		x.q.append(x)
		if int64(len(x.q.txs)) != x.id.Seq {
			rt.Fatalf("%s is at %d, want %d", x.uid, x.id.Seq, len(x.q.txs))
		}
	}
}

func (m *model) submitAgain(rt *rapid.T) {
	x := m.tx(rt, func(*mTx) bool { return true })
	out, err := m.S.Ingest(m.Ctx, []*pg.Submission{m.Sub(x.q.name, x.typ, x.uid)}, false)
	m.ok(err)
	if out[0].Err != nil || !out[0].Replay || out[0].ID != x.id {
		rt.Fatalf("%s again: %+v", x.uid, out[0])
	}
}

func (m *model) claim(rt *rapid.T) {
	n := m.node(rt)
	var ready, resumed []string
	for _, q := range m.sorted() {
		switch {
		case q.mode == modeResume:
			resumed = append(resumed, q.name)
		case q.mode == modeReady && !q.paused:
			ready = append(ready, q.name)
		}
	}
	if n.dead {
		ready, resumed = nil, nil
	}
	list, _, err := m.S.Claim(m.Ctx, n.Node, pgworld.Everything())
	m.ok(err)
	var got []string
	for _, l := range list {
		q := m.queues[l.Queue]
		want := ready
		if l.Resume {
			want = resumed
		}
		if !slices.Contains(want, l.Queue) {
			rt.Fatalf("%s was claimed in %s; ready are %v, in resume %v", l.Queue, q.mode, ready, resumed)
		}
		got = append(got, l.Queue)
		q.take(n, l)
	}
	for _, name := range resumed {
		if !slices.Contains(got, name) {
			rt.Fatalf("%s stands in resume and was left there", name)
		}
	}
	for _, name := range ready { // a head whose type needs nothing goes out
		if q := m.queues[name]; q.mode == modeReady && q.head().typ == "U" && !m.gated("U") {
			rt.Fatalf("%s is ready and was left there", name)
		}
	}
	m.fullPool(rt)
}

// fullPool says that a head which needs a sender waits only where none is free.
func (m *model) fullPool(rt *rapid.T) {
	if m.nodes[0].dead || m.nodes[1].dead || m.gated("T") {
		return
	}
	for _, q := range m.sorted() {
		if h := q.head(); q.mode == modeReady && !q.paused && h.typ == "T" && !h.tried && m.bound() < 2 && !m.gated("T") {
			rt.Fatalf("%s is ready, %d of 2 senders are bound, and it was left there", q.name, m.bound())
		}
	}
}

func (m *model) bound() (n int) {
	for _, q := range m.queues {
		if q.cur != nil && q.cur.typ != "U" {
			n++
		}
	}
	return n
}

func (m *model) gated(typ string) (yes bool) {
	m.ok(m.S.Pool().QueryRow(m.Ctx, `SELECT gate_failures > 0 FROM postern.dispatcher WHERE type = $1`, typ).Scan(&yes))
	return yes
}

// answer lets the worker answer one lease in hand.
func (m *model) answer(rt *rapid.T) {
	var list []*mQueue
	for _, q := range m.sorted() {
		if q.lease != nil {
			list = append(list, q)
		}
	}
	if len(list) == 0 {
		rt.Skip("nothing in hand")
	}
	q := rapid.SampledFrom(list).Draw(rt, "queue")
	q.settle(rt, m.said(rt, q.lease))
}

// answerRun lets one queue work off a few, one after another, under one lease.
func (m *model) answerRun(rt *rapid.T) {
	for _, q := range m.sorted() {
		for n := rapid.IntRange(0, 3).Draw(rt, "n"); n > 0 && q.mode == modeCall && !q.lease.Resume; n-- {
			q.settle(rt, &pg.Answer{Lease: q.lease, Gate: sequencer.MoveOpen, StartedAt: m.Now, Continue: true,
				Result: pgworld.Done().Result,
				Step:   sequencer.Dispatched(q.lease.Flight(2), pgworld.Done(), q.lease.Dispatcher.Dispatcher, 0.5)})
		}
	}
}

func (q *mQueue) settle(rt *rapid.T, a *pg.Answer) {
	out := q.m.world.Settle(a)[0]
	if out.Fenced {
		rt.Fatalf("the answer of %s was fenced", q.name)
	}
	q.apply(a, out)
}

// answerLate lets one answer come under a lease that its node has lost.
func (m *model) answerLate(rt *rapid.T) {
	if len(m.late) == 0 {
		rt.Skip("nobody is late")
	}
	a := m.said(rt, rapid.SampledFrom(m.late).Draw(rt, "lease"))
	if out := m.Settle(a)[0]; !out.Fenced || out.Next != nil {
		rt.Fatalf("a late answer was recorded: %+v", out)
	}
}

// said draws what the worker says to a lease, and decides.
func (m *model) said(rt *rapid.T, l *pg.Lease) *pg.Answer {
	f, d := l.Flight(2), l.Dispatcher.Dispatcher
	a := &pg.Answer{Lease: l, StartedAt: m.Now, Continue: rapid.IntRange(0, 3).Draw(rt, "continue") > 0, Yield: rapid.IntRange(0, 5).Draw(rt, "yield") == 0}
	status := func(states ...outbox.StatusState) outbox.Status {
		st := outbox.Status{State: rapid.SampledFrom(states).Draw(rt, "status")}
		if st.State != outbox.StatusUnknown {
			st.Hash = fmt.Sprintf("0x%d", l.Attempt)
		}
		if st.State == outbox.StatusIncluded {
			st.BlockHeight = "1"
		}
		a.Result.Hash = st.Hash
		return st
	}
	switch {
	case l.Phase == outbox.PhaseDelay:
		var earlier []outbox.Status
		if len(l.Hashes()) > 0 {
			earlier = append(earlier, status(outbox.StatusFailed, outbox.StatusIncluded, outbox.StatusPending, outbox.StatusUnreachable))
		}
		a.Step = sequencer.Elapsed(f, earlier, d, 0.5)
	case l.Phase != outbox.PhaseDispatching:
		a.Step = sequencer.Polled(f, status(outbox.StatusIncluded, outbox.StatusFailed, outbox.StatusPending), d, 0.5)
	case l.Resume:
		a.Step = sequencer.Asked(f, status(outbox.StatusUnknown, outbox.StatusFailed, outbox.StatusIncluded, outbox.StatusPending, outbox.StatusUnreachable), d, 0.5)
	default:
		got := map[string]outbox.Answer{
			"done": pgworld.Done(), "accept": {Result: outbox.Result{Hash: fmt.Sprintf("0x%d", l.Attempt)}}, "retry": {Class: outbox.ClassRetry, Code: "20203", Told: true},
			"rejected": {Class: outbox.ClassRejected, Code: "500"}, "ambiguous": {Class: outbox.ClassAmbiguous}, "blocked": {Class: outbox.ClassBlocked},
			"refused": {Class: outbox.ClassBlocked, Unsent: true}, "429": {Class: outbox.ClassRetry, Code: "http_429"},
		}[rapid.SampledFrom([]string{"done", "done", "done", "accept", "retry", "rejected", "ambiguous", "blocked", "refused", "429"}).Draw(rt, "answer")]
		a.Result = got.Result
		a.Verdict, a.Gate = pgworld.Heard(got)
		a.Step = sequencer.Dispatched(f, got, d, 0.5)
	}
	if a.Step.Err != nil {
		rt.Fatalf("%+v", a.Step.Err)
	}
	return a
}
