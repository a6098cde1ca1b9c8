package coord

import (
	"cmp"
	"slices"
)

// created takes a new intent. One that is known already changes nothing.
func (t *turn) created(n *Intent, named bool) {
	if t.d.Intent(n.ID) != nil {
		t.ignore("Created", "known")
		return
	}
	i := &Intent{ID: n.ID, DependsOn: n.DependsOn, Named: named, Since: t.now}
	if len(t.d.Intents) > 0 {
		i.Seq = t.d.Intents[len(t.d.Intents)-1].Seq + 1
	}
	t.d.Intents = append(t.d.Intents, i)
	t.intent(i, OnCreated, fact{})
	if !i.Ended() && t.mayBeKnown(i) {
		t.presume(i)
		t.askSoon()
	}
	if !i.Ended() {
		t.originator(OnTransactionCreated, fact{})
	}
}

// dependencyFailed says which failed intent keeps another from ever going out, or "".
func (t *turn) dependencyFailed(i *Intent) string {
	for _, id := range i.DependsOn {
		if d := t.d.Intent(id); d != nil && d.Receipt == Failure {
			return "dependency failed: " + id
		}
	}
	return ""
}

// dependenciesMet says whether all that an intent depends on have succeeded.
func (t *turn) dependenciesMet(i *Intent) bool {
	for _, id := range i.DependsOn {
		if d := t.d.Intent(id); (d == nil || d.Receipt != Success) && !t.planted(DependentsNotHeld) {
			return false
		}
	}
	return true
}

// receipt ends an intent: this is the only place where one is written. Those that depend on it go, or end with it.
func (t *turn) receipt(i *Intent, outcome, text string) {
	if i.Ended() {
		return
	}
	i.Receipt, i.Text, i.EndedAt = outcome, text, t.now
	t.step.Receipts = append(t.step.Receipts, Receipt{i.ID, outcome, text})
	t.permits(i.ID, func(p *Permit) {
		if outcome == Success {
			t.end(p, "fulfilled")
		}
	})
	t.raise(func() { t.dependents(i) })
	t.raise(t.settled)
}

func (t *turn) dependents(i *Intent) {
	for _, d := range t.d.Intents {
		if d.Ended() || !slices.Contains(d.DependsOn, i.ID) {
			continue
		}
		if i.Receipt == Failure {
			t.intent(d, OnDependencyFailed, fact{text: "dependency failed: " + i.ID})
		}
	}
	t.delegateSoon()
}

// settled lets the originator rest when nothing is left to send.
func (t *turn) settled() { t.originator(OnTransactionConfirmed, fact{}) }

// reverted hands over what came back.
func (t *turn) reverted() { t.originator(OnBaseLedgerReverted, fact{}) }

// delegateSoon has delegate run behind what has been raised so far. One run is enough for all that is so by then.
func (t *turn) delegateSoon() {
	t.raiseOnce(&t.delegating, t.delegate)
}

// delegate hands over what may go: in the order of arrival, in one message to each node, and to each no more than fits
// one message while it has not said that it has them.
func (t *turn) delegate() {
	if t.d.Paused || !t.d.Seat.HelloAt.IsZero() {
		return
	}
	var to []string
	chosen, room := "", 0
	batches, open := map[string][]Delegation{}, t.unacknowledged()
	for _, i := range t.inLine() {
		first := (i.State == Pending || i.State == Delegated) && i.Delegate == "" && !i.NotBefore.After(t.now)
		if !first && !t.delegateAgain(i) || i.Failed != "" {
			continue
		}
		if first && chosen == "" {
			chosen = t.choose()
			room = t.roomAt(chosen)
		}
		if first && open[chosen] >= room || !t.free(i) || !t.dependenciesMet(i) {
			continue
		}
		node := i.Delegate
		if first {
			node = chosen
			open[node]++
			i.Delegate, i.GivenAt, i.Generation = node, t.now, max(i.Generation, 1)
		}
		i.DelegatedAt = t.now
		if !slices.Contains(to, node) {
			to = append(to, node)
		}
		batches[node] = append(batches[node], Delegation{i.ID, i.Generation, i.Counts})
		if i.State == Pending {
			t.intent(i, OnDelegated, fact{text: node})
		}
	}
	for _, node := range to {
		t.send(Message{Kind: DelegationRequest, To: node, Delegations: batches[node]})
	}
}

// inLine are the intents in the order in which they are handed over: that of their arrival, and one that came back
// behind those that were there by then.
func (t *turn) inLine() []*Intent {
	if !slices.ContainsFunc(t.d.Intents, func(i *Intent) bool { return i.Line > i.Seq }) {
		return t.d.Intents
	}
	list := slices.Clone(t.d.Intents)
	slices.SortStableFunc(list, func(a, b *Intent) int { return cmp.Compare(max(a.Line, a.Seq), max(b.Line, b.Seq)) })
	return list
}

// roomAt is how many intents a node may be brought before it has said that it has them: no more than fit one message,
// and than it has said it takes. What a node said that is silent now counts no more.
func (t *turn) roomAt(node string) int {
	p := t.d.peer(node)
	if p == nil || p.Room == nil || !t.live(p) {
		return t.d.Settings.Batch
	}
	return min(t.d.Settings.Batch, *p.Room)
}

// roomTold keeps how many more works a node takes, as its newest word about that says. Where there was no room and is
// some now, or is some still behind what it was brought, intents go there at once.
func (t *turn) roomTold(p *Peer, m *Message) {
	silent := m.Room == nil && (m.Kind == Heartbeat || m.Kind == DelegationRejected)
	if m.Beat < p.RoomBeat || m.Room == nil && !silent {
		return
	}
	if m.Room != nil && *m.Room > 0 && (p.Room != nil && *p.Room == 0 || m.Kind == DelegationResponse) {
		t.delegateSoon()
	}
	p.Room, p.RoomBeat = m.Room, m.Beat
}

// delegateAgain says whether the delegate of an intent has not said in time that it has it.
func (t *turn) delegateAgain(i *Intent) bool {
	return i.State == Delegated && i.Delegate != "" && i.Acked == 0 &&
		t.now.Sub(i.DelegatedAt) >= t.d.Settings.DelegateTimeout
}

// unacknowledged counts for each node the intents that it has not said it has.
func (t *turn) unacknowledged() map[string]int {
	n := map[string]int{}
	for _, i := range t.d.Intents {
		if i.Delegate != "" && i.Acked == 0 && i.State == Delegated && i.Failed == "" && t.free(i) {
			n[i.Delegate]++
		}
	}
	return n
}

func (t *turn) onDelegationResponse(p *Peer, m *Message) {
	for _, i := range t.d.Intents {
		if i.Delegate != p.Node || i.Acked != 0 {
			continue
		}
		if slices.Contains(m.IDs, i.ID) {
			i.Acked, i.Rejected, p.FailedAt = m.Beat, 0, noTime
		}
	}
	t.rejected(p.Node, m.Refused, m.Room == nil || !t.live(p))
}

func (t *turn) onDelegationRejected(p *Peer, m *Message) {
	p.FailedAt = t.now
	t.originator(OnDelegationRejected, fact{m: m, p: p})
}

// rejected takes back what a node did not accept. The second time in a row it may wait for an interval, so that nodes
// that know of no coordinator are not asked in turns as fast as the wire goes. One that is live, and has said that it
// has no room, says when it has.
func (t *turn) rejected(node string, ids []string, waits bool) {
	for _, i := range t.d.Intents {
		if i.Delegate != node || i.Acked != 0 || !slices.Contains(ids, i.ID) {
			continue
		}
		i.Rejected++
		if i.Rejected > 1 && waits {
			i.NotBefore = t.now.Add(t.d.Settings.HeartbeatInterval)
		}
		t.intent(i, OnCoordinatorChanged, fact{text: node + " does not take it"})
	}
}

// followed moves intents away from nodes that are silent, or do not coordinate any more.
func (t *turn) followed() {
	for _, i := range t.d.Intents {
		if i.Delegate == "" || i.Ended() || i.State == Parked || i.State == Pending || !t.free(i) {
			continue
		}
		p := t.d.peer(i.Delegate)
		if p == nil {
			t.intent(i, OnCoordinatorChanged, fact{text: i.Delegate + " has left the domain"})
			continue
		}
		if t.now.Sub(later(p.LiveAt, i.GivenAt)) > t.d.Settings.grace() {
			p.FailedAt = t.now
			t.intent(i, OnCoordinatorChanged, fact{text: p.Node + " is silent"})
		} else if i.Acked != 0 && p.StateBeat > i.Acked && !takes(p.State) {
			t.intent(i, OnCoordinatorChanged, fact{text: p.Node + " hands over"})
		}
	}
}

// dropped hands over anew what its delegate does not list any more. Where that could not have it assembled, and takes
// works still, it goes behind all that wait: very many of them would else keep these out.
func (t *turn) dropped(p *Peer, m *Message) {
	for _, i := range t.d.Intents {
		listed := func() bool { return slices.ContainsFunc(m.Entries, func(e Entry) bool { return e.ID == i.ID }) }
		if i.Delegate == p.Node && i.Acked != 0 && m.Beat > i.Acked && !i.Ended() && !listed() {
			if i.Trouble != "" && takes(m.State) {
				i.Line = t.d.Intents[len(t.d.Intents)-1].Seq + 1
			}
			t.intent(i, OnCoordinatorChanged, fact{m: m, text: p.Node + " does not have it"})
		}
	}
}

func (t *turn) onAssembleRequest(p *Peer, m *Message) {
	i := t.d.Intent(m.ID)
	if i == nil || i.Ended() {
		if i != nil && i.Response != nil && i.Response.Key == m.Key {
			t.send(*i.Response)
			return
		}
		t.send(Message{Kind: AssembleRejected, To: p.Node, ID: m.ID, Key: m.Key, Generation: m.Generation,
			Reason: TransactionUnknown})
		return
	}
	t.intent(i, OnAssembleRequestReceived, fact{m: m, p: p})
	if i.State == Pending {
		t.send(Message{Kind: AssembleRejected, To: p.Node, ID: m.ID, Key: m.Key, Generation: m.Generation,
			Reason: NotCurrentDelegate})
	}
}

func (t *turn) onConfirmationRequest(p *Peer, m *Message) {
	i := t.d.Intent(m.ID)
	if i == nil || i.Ended() || i.State == Parked || i.State == Pending {
		t.send(Message{Kind: ConfirmationRejected, To: p.Node, ID: m.ID, Key: m.Key, Generation: m.Generation,
			For: m.Install, Reason: TransactionUnknown})
		return
	}
	t.intent(i, OnConfirmationRequestReceived, fact{m: m, p: p})
}

// onTold learns what a coordinator says of single intents.
func (t *turn) onTold(p *Peer, m *Message) {
	var known []string
	for _, e := range m.Entries {
		if t.learn(p, m, e) {
			known = append(known, e.ID)
		}
	}
	if len(known) > 0 {
		t.send(Message{Kind: Acknowledged, To: p.Node, IDs: known})
	}
}

// learn takes a coordinator's word about an intent, and says whether it is an outcome that is known now.
func (t *turn) learn(p *Peer, m *Message, e Entry) (known bool) {
	i := t.d.Intent(e.ID)
	if i == nil || i.Ended() {
		return e.Outcome != ""
	}
	if p.Node == i.Delegate {
		i.Said, i.SaidWhy = e.State, e.Reason
		if e.Outcome == "" && (e.Reason != "" || out(e.State)) { // else what failed here is the last word
			i.Trouble = e.Reason
		}
		i.Counts.raise(e.Counts)
	}
	t.recall(i, p, m, e)
	permit := t.holds(i, p.Node, e)
	switch {
	case e.Outcome == Success && t.held(i, p.Node, e):
		t.intent(i, OnConfirmedSuccess, fact{m: m, text: e.Hash})
		return true
	case e.Outcome == Failure && permit != nil:
		i.Failed = e.Reason
		t.end(permit, "reverted")
		t.permitsEnded(i)
		return true
	case e.Outcome == Failure && p.Node == i.Delegate && e.Generation >= i.Generation && t.free(i):
		// Refused by its endorsers, before anything was dispatched. A newer generation is of a life that is lost.
		i.Failed = e.Reason
		t.intent(i, OnConfirmedReverted, fact{m: m, text: e.Reason})
		return true
	case e.Outcome != "":
		t.ignore("outcome", "foreign")
	case permit != nil && out(e.State):
		t.progress(i, permit, m, e)
	default:
		t.givenBack(i, p, m, e)
	}
	return false
}

// holds returns the permit that a word about a generation is about, or nil.
func (t *turn) holds(i *Intent, node string, e Entry) *Permit {
	var found *Permit
	t.permits(i.ID, func(p *Permit) {
		presumed := p.Generation == 0 && p.Install != -1
		same := p.Generation == e.Generation && p.Install == e.Install
		if p.Node == node && (same || found == nil && presumed && e.Install == p.Install) {
			found = p
		}
	})
	return found
}

// held says whether a node has ever had the permit for a generation: a success counts, whatever became of the permit.
func (t *turn) held(i *Intent, node string, e Entry) bool {
	return slices.ContainsFunc(t.permitsOf(i.ID), func(p *Permit) bool {
		return p.Node == node && (p.Generation == e.Generation || p.Generation == 0)
	})
}

// out says whether a work in this state may have posted its public transaction.
func out(s State) bool {
	return s == ReadyForDispatch || s == Dispatched || s == Submitted || s == ConfirmingDispatch
}

// progress follows a public transaction.
func (t *turn) progress(i *Intent, permit *Permit, m *Message, e Entry) {
	if e.State != Dispatched && e.State != Submitted {
		return
	}
	if permit.Generation == 0 {
		permit.Generation, permit.Beat = e.Generation, m.Beat
	}
	if i.Delegate == "" || i.State == Pending {
		return
	}
	f := fact{m: m, entry: e}
	if i.State == Prepared || i.State == Delegated {
		t.intent(i, OnDispatched, f)
	}
	if e.Nonce != 0 && i.State == Dispatched {
		t.intent(i, OnNonceAssigned, f)
	}
	if e.State == Submitted && slices.Contains(outIntents, i.State) && i.Hash != e.Hash {
		t.intent(i, OnSubmitted, f)
	}
}

// givenBack ends the permits of a node that says, later than it asked for them, that it has the intent anew or not at
// all. Only a node that has lost nothing since can say that.
func (t *turn) givenBack(i *Intent, p *Peer, m *Message, e Entry) {
	absent := e.State == "" || e.State == Evicted || e.State == Final
	ended := false
	t.permits(i.ID, func(q *Permit) {
		if q.Node != p.Node || q.Install != m.Install && !t.planted(OldInstallBelieved) {
			return
		}
		after := m.Beat > q.Beat
		if q.Generation == 0 {
			after = m.Echo > q.Beat
		}
		back := absent || e.State == Pooled || e.State == PreAssemblyBlocked || e.Generation > q.Generation
		if q.Generation == 0 {
			back = !out(e.State) || e.State == ConfirmingDispatch
		}
		if (after || t.planted(OldBeatBelieved)) && back {
			t.end(q, "given back")
			ended = true
		}
	})
	switch {
	case ended && !absent && i.Delegate == p.Node && slices.Contains(outIntents, i.State):
		t.intent(i, OnConfirmedReverted, fact{m: m, text: "will be assembled anew"})
	case ended:
		t.permitsEnded(i)
	}
}
