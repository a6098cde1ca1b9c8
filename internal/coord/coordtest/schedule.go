package coordtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/coord"
)

// order is an intent as its client knows it.
type order struct {
	id, node  string
	dependsOn []string
	bad, park bool
	resumed   bool
	posted    bool
	stored    bool // false: its store went back to a time before it was submitted
	receipt   *coord.Receipt
}

func (w *World) orderOf(id string) *order {
	for _, o := range w.orders {
		if o.id == id {
			return o
		}
	}
	return nil
}

// submit has the clients submit intents while things go wrong.
func (w *World) submit() {
	last := map[string]string{}
	for i := range 3 + w.rng.IntN(7) {
		n := w.nodes[w.rng.IntN(len(w.nodes))]
		o := &order{id: fmt.Sprintf("i%d", i+1), node: n.name}
		o.bad, o.park = w.chance(0.08), w.chance(0.1)
		if last[n.name] != "" && w.chance(0.25) {
			o.dependsOn = []string{last[n.name]}
		}
		last[n.name] = o.id
		w.orders = append(w.orders, o)
		at := w.between(time.Second, w.Plan.Chaos*6/10)
		if w.Plan.Boundary {
			at = w.between(time.Second, 1010*time.Millisecond)
		}
		w.after(at, func() { w.post(o) })
	}
}

// post submits an intent, and again while its node does not answer.
func (w *World) post(o *order) {
	n := w.node(o.node)
	if !n.up || n.frozen.After(w.now) || n.store.image.Paused {
		w.after(time.Second, func() { w.post(o) })
		return
	}
	for _, id := range o.dependsOn {
		if n.store.image.Intent(id) == nil {
			o.dependsOn = nil // unknown: the door refuses it, and the client asks without
		}
	}
	n.handle(coord.Event{Created: &coord.Intent{ID: o.id, DependsOn: o.dependsOn}, Named: true})
	o.posted = true
	o.stored = n.store.image.Intent(o.id) != nil
	w.tell("%s has intent %s, behind %v", n.name, o.id, o.dependsOn)
	if w.chance(0.04) {
		w.after(w.between(0, 5*time.Second), func() { n.handle(coord.Event{Lever: coord.Cancel, ID: o.id}) })
	}
	w.after(20*time.Second, func() { o.resumed = true })
	if o.park {
		w.after(w.between(3*time.Second, 8*time.Second), func() { o.resumed = true })
	}
}

// trouble draws what goes wrong.
func (w *World) trouble() {
	one := func() *Node { return w.nodes[w.rng.IntN(len(w.nodes))] }
	w.times(5, w.cut)
	w.times(4, func() {
		if n := one(); n.up {
			w.tell("%s is killed", n.name)
			n.die(w.between(500*time.Millisecond, 8*time.Second))
		}
	})
	w.times(3, func() { one().freeze(w.between(time.Second, 6*time.Second)) })
	w.times(3, func() { one().lag, w.moving = int64(w.rng.IntN(25)), w.now })
	w.restores()
}

// times has something happen up to so many times less one, until all is whole.
func (w *World) times(n int, f func()) {
	for range w.rng.IntN(n) {
		w.after(w.between(time.Second, w.Plan.Chaos-2*time.Second), func() {
			if !w.whole {
				f()
			}
		})
	}
}

// restores draws which stores go back in time. Where no operator tells the node, only one goes back, the others can
// be reached when it starts for good, and have heard something of the life that is lost: nothing else can be known.
func (w *World) restores() {
	switch w.Plan.Restores {
	case "known":
		for range 1 + w.rng.IntN(2) {
			n := w.nodes[w.rng.IntN(len(w.nodes))]
			w.after(w.between(w.Plan.Chaos/3, w.Plan.Chaos-2*time.Second), func() { n.restore(true) })
		}
	case "cold":
		n := w.nodes[w.rng.IntN(len(w.nodes))]
		w.after(w.between(w.Plan.Chaos/2, w.Plan.Chaos-2*time.Second), func() {
			if w.Plan.Restarts == 0 {
				w.heal()
			}
			n.restore(false)
		})
	}
}

// heard says whether another node has heard a word of a node behind a beat.
func (w *World) heard(n *Node, beat int64) bool {
	for _, other := range w.nodes {
		for _, p := range other.store.image.Peers {
			if other != n && p.Node == n.name && p.Beat > beat {
				return true
			}
		}
	}
	return false
}

// moments keeps what each store is, for restores.
func (w *World) moments() {
	if w.whole {
		return
	}
	for _, n := range w.nodes {
		n.moments = append(n.moments, n.store.copied())
	}
	w.after(time.Second, w.moments)
}

// forget takes back what a client was told by rows that a restore has lost. Every second client of an intent that is
// lost posts it again, under its uid, once its node works again.
func (w *World) forget(n *Node) {
	for at, o := range w.orders {
		if o.node != n.name {
			continue
		}
		i := n.store.image.Intent(o.id)
		o.stored, o.receipt = i != nil, nil
		if i != nil && i.Ended() {
			o.receipt = &coord.Receipt{ID: i.ID, Outcome: i.Receipt, Text: i.Text}
		}
		if i == nil && o.posted && at%2 == 0 {
			o.posted = false
			w.after(time.Duration(5+at)*time.Second, func() { w.post(o) })
		}
	}
}

// heal makes wires and nodes whole. Heights still differ a little, and clocks as much as before.
func (w *World) heal() {
	if w.whole {
		return
	}
	w.whole, w.moving = true, w.now
	w.tell("all is whole")
	for _, n := range w.nodes {
		n.lag = int64(w.rng.IntN(3))
		if w.Plan.Perfect {
			n.lag = 0
		}
	}
	w.after(time.Second, w.operate)
}

// operate does the work of people: they resume parked intents, end quarantines, and say how dispatches ended that no
// node can know of. Without restores and timeouts the last is not needed.
func (w *World) operate() {
	w.after(time.Second, w.operate)
	for _, n := range w.nodes {
		if !n.up || n.frozen.After(w.now) {
			continue
		}
		if n.store.image.Paused {
			w.tell("%s leaves quarantine", n.name)
			n.handle(coord.Event{Lever: coord.LeaveIt})
		}
		for _, i := range n.store.image.Intents {
			if o := w.orderOf(i.ID); i.State == coord.Parked && o.resumed {
				n.handle(coord.Event{Lever: coord.Resume, ID: i.ID})
			}
		}
		if seat := &n.store.image.Seat; !seat.LostAt.IsZero() && !seat.MadeGood && w.madeGood(n) {
			w.tell("an operator says that nothing of the lost life of %s is on its way", n.name)
			n.handle(coord.Event{Lever: coord.MadeGood})
		}
		if w.now.Sub(epoch) > w.Plan.Chaos+25*time.Second && (w.Plan.Restores != "none" || w.Plan.Timeouts) {
			w.tellTruth(n)
		}
	}
}

// madeGood says whether of what a node has posted for its own intents nothing is on its way, and each that has landed
// has its receipt.
func (w *World) madeGood(n *Node) bool {
	for _, tx := range w.ledger.order {
		o := w.orderOf(tx.id)
		own := o.node == n.name && strings.HasPrefix(tx.uid, o.id+"."+n.name+".")
		if own && (!w.ledger.final(tx) || tx.ok && o.receipt == nil) {
			return false
		}
	}
	return true
}

// tellTruth has an operator say what became of dispatches that no node can know of.
func (w *World) tellTruth(n *Node) {
	for _, x := range n.store.image.Works {
		if !x.Unknown || w.ledger.pool(x.ID) {
			continue
		}
		lever := coord.WasNotDone
		if w.ledger.has(x.ID, true) {
			lever = coord.WasDoneWork
		}
		w.Levers++
		n.handle(coord.Event{Lever: lever, ID: x.ID})
	}
	for _, p := range n.store.image.Permits {
		i := n.store.image.Intent(p.ID)
		if p.Ended || i == nil || i.Ended() || w.now.Sub(epoch) < w.Plan.Chaos+35*time.Second {
			continue
		}
		if w.ledger.has(i.ID, true) {
			w.Levers++
			w.tell("an operator says that %s was done", i.ID)
			n.handle(coord.Event{Lever: coord.ItWasDone, ID: i.ID})
		} else if w.over(i.ID) {
			w.Levers++
			w.tell("an operator releases %s", i.ID)
			n.handle(coord.Event{Lever: coord.ReleaseIt, ID: i.ID})
		}
	}
}

// mayGo are states from which a work may have its public transaction go out without another yes.
var mayGo = map[coord.State]bool{
	coord.ConfirmingDispatch: true,
	coord.ReadyForDispatch:   true,
	coord.Dispatched:         true,
	coord.Submitted:          true,
}

// over says whether nothing of an intent is on its way, in any core and on the ledger.
func (w *World) over(id string) bool {
	for _, n := range w.nodes {
		if x := n.store.image.Work(id); x != nil && mayGo[x.State] {
			return false
		}
		for _, x := range n.store.core {
			if x.post.ID == id && x.state == "waiting" {
				return false
			}
		}
	}
	return !w.ledger.pool(id)
}
