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
	for _, p := range t.permitsOf(id) {
		if !p.Ended {
			f(p)
		}
	}
}

// permitsOf lists all permits of an intent. After a loss there may be some for each of very many.
func (t *turn) permitsOf(id string) []*Permit {
	if t.byIntent == nil {
		t.byIntent = map[string][]*Permit{}
		for _, p := range t.d.Permits {
			t.byIntent[p.ID] = append(t.byIntent[p.ID], p)
		}
	}
	return t.byIntent[id]
}

func (t *turn) addPermit(p *Permit) {
	t.byIntent[p.ID] = append(t.permitsOf(p.ID), p)
	t.d.Permits = append(t.d.Permits, p)
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
	for _, p := range t.permitsOf(i.ID) {
		if p.Node == m.From && p.Install == m.Install && p.Generation == m.Generation {
			return
		}
	}
	t.addPermit(&Permit{
		ID:         i.ID,
		Generation: m.Generation,
		Node:       m.From,
		Install:    m.Install,
		Beat:       m.Beat,
		GivenAt:    t.now,
	})
}

// ofLostLife is the install of a permit of this node in a life that is lost: no node can say that it ended.
const ofLostLife = -1

// presume writes a permit for each node, since this store may have lost one. It is of the install that was known when
// the rows were lost: a node that has lost rows itself since then cannot say that it ended.
func (t *turn) presume(i *Intent) {
	for _, p := range t.d.Peers {
		switch {
		case p.Node != t.d.Self:
			t.presumed(i.ID, p.Node, 0, p.AtLoss, t.d.Seat.Beat)
		case !t.d.Seat.MadeGood:
			t.presumed(i.ID, p.Node, 0, ofLostLife, t.d.Seat.Beat)
		}
	}
}

// repeatedFor is how long after a loss an intent with a uid may be one that its client had submitted before.
const repeatedFor = 24 * time.Hour

// mayBeKnown says whether an intent that is submitted now may have been submitted in a life that is lost.
func (t *turn) mayBeKnown(i *Intent) bool {
	lost := t.d.Seat.LostAt
	return i.Named && !lost.IsZero() && t.now.Sub(lost) < repeatedFor && !t.planted(RepeatsBelieved)
}

// madeGood ends the permits of this node in the life that is lost: an operator says that nothing of it is on its way
// any more, and what was done has been told. Other nodes may hold permits of that life still.
func (t *turn) madeGood() {
	t.d.Seat.MadeGood = true
	for _, i := range t.d.Intents {
		ended := false
		t.permits(i.ID, func(p *Permit) {
			if p.Install == ofLostLife {
				t.end(p, "released")
				ended = true
			}
		})
		if ended {
			t.permitsEnded(i)
		}
	}
}

func (t *turn) presumed(id, node string, generation, install, beat int64) {
	t.addPermit(&Permit{
		ID:         id,
		Generation: generation,
		Node:       node,
		Install:    install,
		Beat:       beat,
		GivenAt:    t.now,
		ClosedAt:   t.now,
		ClosedBy:   "presumed",
	})
}

// recall writes the permit that the delegate of an intent must have had, as its word shows, where this store has no row
// of it: it was given in a life that is lost. Of several it keeps the newest.
func (t *turn) recall(i *Intent, p *Peer, m *Message, e Entry) {
	sent := e.Outcome == Success || e.State == Dispatched || e.State == Submitted
	if !sent || !i.Named || p.Node != i.Delegate || e.Install < 1 || e.Install > p.Install ||
		t.d.Seat.LostAt.IsZero() || t.planted(RepeatsBelieved) {
		return
	}
	var recalled *Permit
	for _, q := range t.permitsOf(i.ID) {
		switch {
		case q.Node != p.Node:
		case q.Install == e.Install && (q.Generation == e.Generation || q.Generation == 0):
			return
		case q.ClosedBy == "presumed" && !q.Ended:
			recalled = q
		}
	}
	if recalled == nil {
		t.presumed(i.ID, p.Node, e.Generation, e.Install, m.Beat)
	} else if e.Generation > recalled.Generation {
		recalled.Generation, recalled.Install, recalled.Beat = e.Generation, e.Install, m.Beat
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

// askSoon has ask run behind what has been raised so far.
func (t *turn) askSoon() {
	t.raiseOnce(&t.asking, t.ask)
}

// mostAsked is of how many intents a node is asked in one message.
const mostAsked = 1000

// ask asks each holder of a permit that has not ended what became of it, for ever: one that is Idle sends no
// heartbeat, and the last words of one that closed may be lost.
func (t *turn) ask() {
	if t.planted(NeverAsks) {
		return
	}
	ids, asked := map[string][]string{}, map[[2]string]bool{}
	for _, p := range t.d.Permits {
		at := [2]string{p.Node, p.ID}
		if p.Ended || p.Install == ofLostLife || asked[at] {
			continue
		}
		if i := t.d.Intent(p.ID); i != nil && !i.Ended() {
			ids[p.Node], asked[at] = append(ids[p.Node], p.ID), true
		}
	}
	for _, q := range t.d.Peers {
		for part := range slices.Chunk(ids[q.Node], mostAsked) {
			t.send(Message{Kind: Asked, To: q.Node, IDs: part})
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
