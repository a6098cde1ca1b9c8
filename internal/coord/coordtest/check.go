package coordtest

import (
	"slices"
	"time"

	"github.com/postern-dev/postern/internal/coord"
)

// receipt keeps a receipt. An intent has one.
func (w *World) receipt(n *Node, r coord.Receipt) {
	w.tell("%s: receipt of %s: %s %s", n.name, r.ID, r.Outcome, r.Text)
	o := w.orderOf(r.ID)
	if o.receipt != nil {
		w.breaks("%s has two receipts: %s %q, then %s %q", r.ID, o.receipt.Outcome, o.receipt.Text, r.Outcome, r.Text)
	}
	o.receipt = &r
}

// yield is a node that gives the seat up for another.
type yield struct {
	from, to string
	at       time.Time
}

// yield keeps who gave up for whom. While no height changes, two nodes do not give up for one another.
func (w *World) yield(from, to string) {
	latest := 13 * time.Second // a message is not later
	if w.Plan.Perfect {
		latest = 100 * time.Millisecond
	}
	for _, y := range w.yields {
		if y.from == to && y.to == from && w.now.Sub(y.at) < 3*time.Second && w.moving.Before(y.at.Add(-latest)) {
			w.breaks("%s and %s give the seat up for one another", from, to)
		}
	}
	w.yields = append(w.yields, yield{from, to, w.now})
}

// settled says whether all that is stored has its receipt, and nothing is on its way.
func (w *World) settled() bool {
	if !w.whole || w.now.Sub(epoch) < w.Plan.Chaos {
		return false
	}
	for _, o := range w.orders {
		if o.receipt == nil && (o.stored || !o.posted) {
			return false
		}
	}
	for _, n := range w.nodes {
		if !n.up {
			return false
		}
	}
	return !w.ledger.busy()
}

// check says which promises were broken.
func (w *World) check() {
	for _, o := range w.orders {
		landed := slices.DeleteFunc(slices.Clone(w.ledger.order), func(tx *ledgerTx) bool {
			return tx.id != o.id || !tx.ok || tx.block == 0
		})
		if len(landed) > 1 {
			w.breaks("%s is on the ledger %d times", o.id, len(landed))
		}
		switch {
		case o.receipt == nil && o.stored:
			w.breaks("%s stands still: %s", o.id, w.why(o))
		case o.receipt == nil:
		case o.receipt.Outcome == coord.Failure && len(landed) > 0:
			w.breaks("%s failed (%s), and is on the ledger", o.id, o.receipt.Text)
		case o.receipt.Outcome == coord.Success && len(landed) == 0:
			w.breaks("%s succeeded, and is not on the ledger", o.id)
		}
		for _, tx := range landed {
			w.checkOrder(o, tx)
		}
	}
}

// checkOrder says whether what landed did so before something that it needs.
func (w *World) checkOrder(o *order, tx *ledgerTx) {
	for _, other := range w.ledger.order {
		before := other.ok && other.block > 0 && other.place < tx.place
		makes := slices.ContainsFunc(other.outputs, func(s string) bool { return slices.Contains(tx.inputs, s) })
		if makes && !before {
			w.breaks("%s is on the ledger without, or before, %s, which makes its input", tx.uid, other.uid)
		}
	}
	for _, id := range o.dependsOn {
		first := slices.IndexFunc(w.ledger.order, func(other *ledgerTx) bool {
			return other.id == id && other.ok && other.block > 0 && other.place < tx.place
		})
		if first < 0 {
			w.breaks("%s is on the ledger without, or before, %s, on which it depends", tx.id, id)
		}
	}
}

// why says where an intent stands that got no receipt.
func (w *World) why(o *order) string {
	n := w.node(o.node)
	i := n.store.image.Intent(o.id)
	if i == nil {
		return "its node does not have it"
	}
	s := string(i.State) + ", delegate " + i.Delegate
	for _, p := range n.store.image.Permits {
		if p.ID == o.id && !p.Ended {
			s += ", permit of " + p.Node + " " + p.ClosedBy
		}
	}
	for _, n := range w.nodes {
		s += "; " + n.name + " is " + string(n.store.image.Seat.Coordinator)
		if x := n.store.image.Work(o.id); x != nil {
			s += " and has it " + string(x.State)
		}
	}
	return s
}
