package coordtest

import (
	"slices"
	"time"

	"github.com/postern-dev/postern/internal/coord"
)

// Node is one installation. Its processes are one here: when that is down, all are.
type Node struct {
	name    string
	w       *World
	store   store
	moments []store // the store at earlier times
	up      bool
	life    int // rises when it dies: whatever is under way then is lost
	frozen  time.Time
	inbox   []coord.Event
	offset  time.Duration
	lag     int64
	wake    time.Time
}

// store is what survives a process, and what a restore takes back: the rows of the domain, and those of the core.
type store struct {
	image *coord.Domain // never changed, only replaced
	core  []coreTx
}

func (s store) copied() store {
	s.core = slices.Clone(s.core)
	return s
}

func (n *Node) clock() time.Time { return n.w.now.Add(n.offset) }

// handle runs events, stores what they lead to, and sends what goes out. A process may die between the two.
func (n *Node) handle(events ...coord.Event) {
	if !n.up {
		return
	}
	if n.frozen.After(n.w.now) {
		n.inbox = append(n.inbox, events...)
		return
	}
	n.w.Steps++
	step, err := coord.Handle(n.store.image, events, n.clock(), int64(n.w.ledger.height)-n.lag)
	if err != nil {
		n.w.breaks("%s: %v", n.name, err)
		return
	}
	still := n.store.image.Still()
	n.store.image = step.Domain
	n.told(step)
	if !n.w.whole && !n.w.Plan.Perfect && n.w.chance(0.0005) {
		n.w.tell("%s dies behind a commit", n.name)
		n.die(n.w.between(time.Second, 6*time.Second))
		return
	}
	for _, m := range step.Messages {
		n.w.send(m)
	}
	if !step.Domain.Still() {
		for _, c := range step.Calls {
			n.serve(c)
		}
	}
	for _, p := range step.Posts {
		n.post(p)
	}
	for _, uid := range step.Recalls {
		n.recall(uid)
	}
	if still && !step.Domain.Still() {
		n.again()
	}
	n.sleep(step.Due)
}

// told says in the trace what a step did.
func (n *Node) told(s coord.Step) {
	for _, r := range s.Receipts {
		n.w.receipt(n, r)
	}
	for _, m := range s.Moves {
		n.w.Visited[m.Machine+": "+string(m.From)+" -> "+string(m.To)] = true
		if m.From == coord.Active && m.To == coord.Flush && m.Node != "" {
			n.w.yield(n.name, m.Node)
		}
	}
	if n.w.Trace == nil {
		return
	}
	for _, m := range s.Moves {
		n.w.tell("%s %s %s: %s -> %s by %s from %s %s", n.name, m.Machine, m.ID, m.From, m.To, m.On, m.Node, m.Reason)
	}
}

// sleep has the node look again when something is due.
func (n *Node) sleep(due time.Time) {
	if due.IsZero() {
		return
	}
	at := due.Add(-n.offset)
	if !at.After(n.w.now) {
		at = n.w.now.Add(time.Millisecond)
	}
	if n.wake.After(n.w.now) && !at.Before(n.wake) {
		return
	}
	n.wake = at
	life := n.life
	n.w.after(at.Sub(n.w.now), func() {
		if n.life == life && n.wake.Equal(at) {
			n.wake = time.Time{}
			n.handle()
		}
	})
}

// start begins a life of the node: calls and posts that are open are made again.
func (n *Node) start() {
	if n.up {
		return
	}
	n.up, n.wake, n.frozen = true, time.Time{}, time.Time{}
	n.life++
	n.w.tell("%s starts", n.name)
	n.handle(coord.Event{Started: true})
	if !n.store.image.Still() {
		n.again()
	}
}

// again calls and posts what the rows say is under way.
func (n *Node) again() {
	for _, c := range n.store.image.Calls {
		n.serve(c)
	}
	for _, w := range n.store.image.Works {
		if w.State == coord.Dispatched {
			n.post(n.store.image.Post(w, n.w.fault == coord.ProducersForgotten))
		}
	}
}

// die ends a life, and begins the next one later.
func (n *Node) die(for_ time.Duration) {
	n.up, n.inbox = false, nil
	n.life++
	life := n.life
	n.w.after(for_, func() {
		if n.life == life { // it was not restored meanwhile
			n.start()
		}
	})
}

// freeze stops a node for a while, as a debugger or a hypervisor does.
func (n *Node) freeze(for_ time.Duration) {
	if !n.up {
		return
	}
	n.frozen = n.w.now.Add(for_)
	life := n.life
	n.w.tell("%s is frozen for %s", n.name, for_)
	n.w.after(for_, func() {
		events := n.inbox
		n.inbox = nil
		if n.life == life {
			n.handle(events...)
		}
	})
}

// restore takes the store back to an earlier moment. known: an operator says so, and it begins in quarantine.
func (n *Node) restore(known bool) {
	if len(n.moments) == 0 {
		return
	}
	back := n.moments[n.w.rng.IntN(len(n.moments))].copied()
	if !known && !n.w.heard(n, back.image.Seat.Beat) {
		return
	}
	n.w.tell("%s is restored, known: %v", n.name, known)
	n.up, n.inbox = false, nil
	n.life++
	n.store = back
	coord.Plant(n.store.image, n.w.fault)
	n.w.forget(n)
	n.w.after(n.w.between(time.Second, 4*time.Second), func() {
		if known {
			n.up, n.frozen = true, time.Time{}
			n.handle(coord.Event{Lever: coord.Quarantine})
			n.up = false
			n.start()
			return
		}
		n.restart(n.w.Plan.Restarts)
	})
	if n.w.Plan.Serves && !known {
		n.w.after(n.w.between(0, 6*time.Second), n.serveAlone)
	}
}

// restart has a node start so many times that ends again before the others can have greeted it, and once more when all
// is whole.
func (n *Node) restart(times int) {
	if times == 0 {
		n.w.heal()
		n.startAmongAll()
		return
	}
	n.start()
	n.w.after(n.w.between(0, time.Second), func() {
		n.w.tell("%s ends", n.name)
		n.up, n.inbox = false, nil
		n.life++
		n.w.after(n.w.between(500*time.Millisecond, 3*time.Second), func() { n.restart(times - 1) })
	})
}

// serveAlone has a process that only answers requests take a step, while none of those runs that call and send.
func (n *Node) serveAlone() {
	if n.up {
		return
	}
	events := []coord.Event{{Hushed: true}}
	if n.store.image.Seat.HelloAt.IsZero() && n.w.fault != coord.StepsUnstarted {
		events = append(events, coord.Event{Started: true})
	}
	n.w.tell("%s takes a step while it is down", n.name)
	step, err := coord.Handle(n.store.image, events, n.clock(), int64(n.w.ledger.height)-n.lag)
	if err != nil {
		n.w.breaks("%s: %v", n.name, err)
		return
	}
	n.store.image = step.Domain
	n.told(step)
	n.w.after(n.w.between(0, 2*time.Second), n.serveAlone)
}

// startAmongAll starts a node once all others are there.
func (n *Node) startAmongAll() {
	for _, other := range n.w.nodes {
		if other != n && (!other.up || other.frozen.After(n.w.now) || other.store.image.Still()) {
			n.w.after(500*time.Millisecond, n.startAmongAll)
			return
		}
	}
	n.start()
}

// serve has the domain's service answer a call.
func (n *Node) serve(c *coord.Call) {
	life := n.life
	delay := n.w.between(2*time.Millisecond, 60*time.Millisecond)
	if !n.w.whole && n.w.chance(0.03) {
		delay = n.w.between(time.Second, 5*time.Second)
	}
	n.w.after(delay, func() {
		if n.life == life {
			a := n.w.answer(n, c)
			n.handle(coord.Event{Answer: &a})
		}
	})
}
