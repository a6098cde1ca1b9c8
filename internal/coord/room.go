package coord

import "slices"

// mostWaiting is how many works of one node may wait for their first try: FirstRoom, or as many as were dispatched in
// this tenure or the one before. A tenure that ends soon gives back what waits, and each such work is then told and
// given anew. Works that were tried take none of this room: what cannot go out keeps out nothing else.
func (t *turn) mostWaiting() int {
	return max(t.d.Settings.FirstRoom, t.d.Seat.Posted, t.d.Seat.Before)
}

// waits says whether a work waits for its first try.
func (w *Work) waits() bool { return !w.Tried && (w.State == Pooled || w.State == PreAssemblyBlocked) }

// share is how many works each node may have here whatever the others have: half of max_inflight is dealt out so, and
// the rest goes to the node that comes first. A node with a backlog would leave the others nothing, the one that
// coordinates above all, which hears of room first.
func (t *turn) share() int {
	if t.d.Settings.Mode == Sender { // each coordinates its own
		return 0
	}
	return t.d.Settings.MaxInflight / (2 * len(t.d.Peers))
}

// roomFor is how many more works of a node this one takes. Works that wait for an originator which does not answer take
// no room.
func (t *turn) roomFor(node string) int {
	waiting, open, of := 0, 0, map[string]int{}
	for _, w := range t.d.Works {
		pooled := w.State == Pooled || w.State == PreAssemblyBlocked
		if w.over() || pooled && t.silentUntil(w.Origin).After(t.now) {
			continue
		}
		open++
		of[w.Origin]++
		if w.Origin == node && w.waits() {
			waiting++
		}
	}
	room, share := t.d.Settings.MaxInflight-open, t.share()
	if share == 0 && node == t.d.Self && t.anyRefused() {
		return 0
	}
	for _, p := range t.d.Peers {
		if p.Node != node {
			room -= max(0, share-of[p.Node])
		}
	}
	return max(0, min(room, t.mostWaiting()-waiting))
}

// anyRefused says whether another node was refused lately. Where there are too few places to deal out, the next one is
// that node's, or this one, which hears of it first, would take each.
func (t *turn) anyRefused() bool {
	return slices.ContainsFunc(t.d.Peers, func(p *Peer) bool {
		return p.Node != t.d.Self && t.now.Sub(p.RefusedAt) <= t.d.Settings.RequestTimeout
	})
}

// roomHere is roomFor as it is told, nil where this node takes works of no other. None is told as long as there is less
// room than a message is worth, so that not each place is told of.
func (t *turn) roomHere(node string) *int {
	if !takes(t.d.Seat.Coordinator) {
		return nil
	}
	room := t.roomFor(node)
	if room < t.worth(node) {
		room = 0
	}
	if p := t.d.peer(node); p != nil {
		p.Full = room == 0
	}
	return &room
}

// worth is how much room there is to be before a node that was told of none is told again: no more than it lacks of its
// share, which is all that it may find.
func (t *turn) worth(node string) int {
	worth, lacks := min(t.d.Settings.Batch, t.d.Settings.MaxInflight/4, t.mostWaiting()/4), t.share()
	for _, w := range t.d.Works {
		if w.Origin == node && !w.over() {
			lacks--
		}
	}
	if lacks > 0 {
		worth = min(worth, lacks)
	} else if t.share() > 0 {
		worth = min(worth, t.share())
	}
	return max(1, worth)
}

// roomSoon has roomAgain run behind what has been raised so far.
func (t *turn) roomSoon() { t.raiseOnce(&t.ringing, t.roomAgain) }

// roomAgain tells the nodes that were told of no room that there is some, once a work is tried, over, or waits for an
// originator that does not answer.
func (t *turn) roomAgain() {
	if !takes(t.d.Seat.Coordinator) {
		return
	}
	for _, p := range t.d.Peers {
		if p.Full && t.roomFor(p.Node) >= t.worth(p.Node) {
			t.beatTo(p.Node)
		}
	}
}
