package coordtest

import (
	"time"

	"github.com/postern-dev/postern/internal/coord"
)

// send puts a message on the wire: it may be lost, doubled, late, or behind others that were sent later.
func (w *World) send(m *coord.Message) {
	w.Sent++
	if w.watch != nil {
		w.watch(m)
	}
	if m.Kind == coord.Hello || m.Kind == coord.Greeting {
		w.tell("%s says %s to %s: gap %d to %d, seen %d", m.From, m.Kind, m.To, m.GapFrom, m.GapTo, m.Seen)
	}
	if w.Plan.Perfect || w.whole {
		w.deliver(m, w.between(time.Millisecond, 30*time.Millisecond))
		return
	}
	if until, cut := w.cuts[[2]string{m.From, m.To}]; cut && until.After(w.now) {
		if w.chance(0.3) { // it stands in a buffer until the wire is there again
			w.deliver(m, until.Sub(w.now)+w.between(0, time.Second))
		}
		return
	}
	if w.chance(w.Plan.Loss) {
		return
	}
	copies := 1
	if w.chance(0.15) {
		copies = 2
	}
	for range copies {
		delay := w.between(time.Millisecond, 150*time.Millisecond)
		if w.chance(w.Plan.Late) {
			delay = w.between(time.Second, 12*time.Second)
		}
		w.deliver(m, delay)
	}
	if w.Plan.Forger && m.Kind == coord.ConfirmationRequest && len(w.nodes) > 2 {
		w.forge(m)
	}
}

func (w *World) deliver(m *coord.Message, delay time.Duration) {
	w.after(delay, func() { w.node(m.To).handle(coord.Event{Message: m}) })
}

// forge has a third node answer a confirmation request: the keys can be known, and its signature is its own.
func (w *World) forge(m *coord.Message) {
	for _, n := range w.nodes {
		if n.name == m.From || n.name == m.To || !n.up || n.store.image.Still() { // one that waits says hello alone
			continue
		}
		peer := n.store.image.Seat
		yes := &coord.Message{
			Kind:       coord.DispatchConfirmed,
			From:       n.name,
			To:         m.From,
			Install:    peer.Install,
			Beat:       peer.Beat,
			Height:     m.Height,
			Digest:     m.Digest,
			ID:         m.ID,
			Generation: m.Generation,
			Key:        m.Key,
			For:        m.Install,
		}
		w.deliver(yes, w.between(0, 20*time.Millisecond))
		return
	}
}

// cut breaks the wire from one node to another for a while, and often not the way back.
func (w *World) cut() {
	a, b := w.nodes[w.rng.IntN(len(w.nodes))], w.nodes[w.rng.IntN(len(w.nodes))]
	if a == b {
		return
	}
	until := w.now.Add(w.between(time.Second, 8*time.Second))
	w.cuts[[2]string{a.name, b.name}] = until
	if w.chance(0.4) {
		w.cuts[[2]string{b.name, a.name}] = until
	}
	w.tell("the wire from %s to %s is cut until %.3f", a.name, b.name, until.Sub(epoch).Seconds())
}
