package coord

import (
	"slices"
	"time"
)

// Permit is the yes of an intent's originator (S3.18): this node, of this install, may post the public transaction of
// this generation. While it is open, none is given to another.
//
// It is closed when its dispatch has ended and the holder says so, when the ledger has the intent, or by an operator.
// Those end it, too. On a ledger that refuses the second public transaction of an intent, it is also closed when its
// holder is silent, and then has not ended: its dispatch may still land, and so the intent may not fail.
type Permit struct {
	ID         string
	Generation int64 // 0: presumed; the node may have got one, and this store has lost the row
	Node       string
	Install    int64
	Beat       int64 // of the request; of one that is presumed: our own when it was
	GivenAt    time.Time
	AskedAt    time.Time
	ClosedAt   time.Time
	ClosedBy   string
	Ended      bool
}

// Open says whether a permit keeps its intent from getting another.
func (p *Permit) Open() bool { return p.ClosedAt.IsZero() }

// permits calls f for each permit of an intent that has not ended.
func (t *turn) permits(id string, f func(*Permit)) {
	for _, p := range t.d.Permits {
		if p.ID == id && !p.Ended {
			f(p)
		}
	}
}

// blocking says whether a permit keeps its intent from going elsewhere.
func (t *turn) blocking(p *Permit) bool {
	return !p.Ended && (p.Open() || t.d.Settings.Once == Hold)
}

// free says whether an intent may be given to any node.
func (t *turn) free(i *Intent) bool {
	free := true
	t.permits(i.ID, func(p *Permit) { free = free && !t.blocking(p) })
	return free || t.planted(TwoPermits)
}

// endsKnown says whether each dispatch of an intent that may have been has ended.
func (t *turn) endsKnown(i *Intent) bool {
	known := true
	t.permits(i.ID, func(*Permit) { known = false })
	return known || t.planted(FailsWhileOthersGo)
}

// mayConfirm says whether a yes to a confirmation request is right: none is out, or the one to this same request.
func (t *turn) mayConfirm(i *Intent, m *Message) bool {
	if m.From != i.Delegate || m.Key == "" || m.Hash != i.Assembled.Hash || m.Generation != i.Generation {
		return false
	}
	may := true
	t.permits(i.ID, func(p *Permit) {
		same := p.Node == m.From && p.Install == m.Install && p.Generation == m.Generation
		may = may && (same || !t.blocking(p))
	})
	return may || t.planted(TwoPermits)
}

// give writes the permit. It is in the row before the answer leaves.
func (t *turn) give(i *Intent, m *Message) {
	for _, p := range t.d.Permits {
		if p.ID == i.ID && p.Node == m.From && p.Install == m.Install && p.Generation == m.Generation {
			return
		}
	}
	t.d.Permits = append(t.d.Permits, &Permit{
		ID:         i.ID,
		Generation: m.Generation,
		Node:       m.From,
		Install:    m.Install,
		Beat:       m.Beat,
		GivenAt:    t.now,
	})
}

// presume writes a permit for each node, since this store may have lost one.
func (t *turn) presume(i *Intent) {
	for _, p := range t.d.Peers {
		install := p.Install
		if p.Node == t.d.Self {
			install = -1 // of the life that is lost: no node can say that it ended
		}
		t.presumed(i.ID, p.Node, 0, install)
	}
}

// repeatedFor is how long after a loss an intent with a uid may be one that its client had submitted before.
const repeatedFor = 24 * time.Hour

// mayBeKnown says whether an intent with a uid that is submitted now may have been submitted in a life that is lost.
func (t *turn) mayBeKnown() bool {
	lost := t.d.Seat.LostAt
	return !lost.IsZero() && t.now.Sub(lost) < repeatedFor && !t.planted(RepeatsBelieved)
}

// madeGood ends the permits of the own life that is lost: an operator says that nothing of it is on its way any more.
func (t *turn) madeGood() {
	t.d.Seat.LostAt = noTime
	for _, i := range t.d.Intents {
		ended := false
		t.permits(i.ID, func(p *Permit) {
			if p.Install == -1 {
				t.end(p, "released")
				ended = true
			}
		})
		if ended {
			t.permitsEnded(i)
		}
	}
}

func (t *turn) presumed(id, node string, generation, install int64) {
	t.d.Permits = append(t.d.Permits, &Permit{
		ID:         id,
		Generation: generation,
		Node:       node,
		Install:    install,
		Beat:       t.d.Seat.Beat,
		GivenAt:    t.now,
		ClosedAt:   t.now,
		ClosedBy:   "presumed",
	})
}

// recall writes the permit that a node must have had, as its word shows, where this store has no row of it: it was
// given in a life that is lost.
func (t *turn) recall(i *Intent, node string, e Entry) {
	sent := e.Outcome == Success || e.State == Dispatched || e.State == Submitted
	known := slices.ContainsFunc(t.d.Permits, func(p *Permit) bool {
		return p.ID == i.ID && p.Node == node && p.Install == e.Install &&
			(p.Generation == e.Generation || p.Generation == 0)
	})
	if sent && !known && !t.d.Seat.LostAt.IsZero() && !t.planted(RepeatsBelieved) {
		t.presumed(i.ID, node, e.Generation, e.Install)
	}
}

// end closes a permit whose dispatch has ended.
func (t *turn) end(p *Permit, by string) {
	if p.Open() {
		p.ClosedAt = t.now
	}
	p.ClosedBy, p.Ended = by, true
}

// silent closes the permits of holders that are silent, where the ledger refuses the second of two.
func (t *turn) silent() {
	if t.d.Settings.Once != Ledger {
		return
	}
	for _, p := range t.d.Permits {
		if !p.Open() || p.Ended || p.Node == t.d.Self {
			continue
		}
		heard := p.GivenAt
		if q := t.d.peer(p.Node); q != nil { // else it has left the domain
			heard = later(q.HeardAt, heard)
		}
		if t.now.Sub(heard) > t.d.Settings.grace() {
			p.ClosedAt, p.ClosedBy = t.now, "silent"
			if i := t.d.Intent(p.ID); i != nil {
				t.intent(i, OnCoordinatorChanged, fact{text: p.Node + " is silent"})
			}
		}
	}
}

// release ends all permits of an intent: an operator says that nothing of it is on its way.
func (t *turn) release(i *Intent) {
	t.permits(i.ID, func(p *Permit) { t.end(p, "released") })
	t.permitsEnded(i)
}

// permitsEnded lets an intent go on that waited for the end of a dispatch.
func (t *turn) permitsEnded(i *Intent) {
	if i.Failed != "" && t.endsKnown(i) {
		t.intent(i, OnConfirmedReverted, fact{text: i.Failed})
		return
	}
	if why := t.dependencyFailed(i); why != "" {
		t.intent(i, OnDependencyFailed, fact{text: why})
	}
	if !i.Ended() {
		t.intent(i, OnCoordinatorChanged, fact{text: "its permit has ended"})
	}
}

// ask asks each holder of a permit that has not ended what became of it, for ever: one that is Idle sends no
// heartbeat, and the last words of one that closed may be lost.
func (t *turn) ask() {
	if t.planted(NeverAsks) {
		return
	}
	for _, q := range t.d.Peers {
		var ids []string
		for _, p := range t.d.Permits {
			i := t.d.Intent(p.ID)
			if !p.Ended && p.Node == q.Node && i != nil && !i.Ended() && !slices.Contains(ids, p.ID) {
				ids = append(ids, p.ID)
			}
		}
		if len(ids) > 0 {
			t.send(Message{Kind: Asked, To: q.Node, IDs: ids})
		}
	}
}

// lookFor asks the ledger about intents that may have landed through a holder that does not say so.
func (t *turn) lookFor() {
	if !t.d.Settings.Look {
		return
	}
	for _, i := range t.d.Intents {
		if i.Ended() || t.now.Sub(i.LookedAt) < t.d.Settings.grace() {
			continue
		}
		t.permits(i.ID, func(p *Permit) {
			if t.now.Sub(p.GivenAt) > t.d.Settings.grace() && i.LookedAt != t.now {
				i.LookedAt = t.now
				t.call(Call{Key: i.ID + ".look", Kind: "look", ID: i.ID})
			}
		})
	}
}
