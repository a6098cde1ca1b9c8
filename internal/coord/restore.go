package coord

// A store may go back in time under its node: it is restored, or fails over to a standby that lacks commits. Others
// have heard words that the node does not know any more. Permits make that dangerous: a holder that has forgotten its
// dispatch would dispatch again, and an originator that has forgotten its yes would give another.
//
// So a node that starts after all its processes were down does nothing before it has said hello. It tells the others
// which beats it cannot have used: those between the last one that its store knows and now. A node that has heard one
// of those says so: then the store has lost something. The others drop messages that still come from the gap.
//
// All its processes may be down again before the others have greeted it. Then it asks anew, from the same beat on: a
// node that waits says nothing but hellos and greetings, so the gap holds no word of this life, and a hello raises no
// beat that others have heard.
//
// A node that learns that it has lost something stops, and goes on under a new install once an operator says so. Others
// keep the permits that the old install holds: words of the new one about them count only where it still has the row.
// And for each live intent of its own it presumes that every node holds a permit, itself too, until that node says that
// it does not.
//
// An intent that its client submits again, since its row is lost, is as one that was live: for a day an intent with a
// uid counts as one that each node may hold a permit for: the others are asked, and an operator says what this node had
// posted. A word of its delegate that only the holder of a permit can say shows that there was one.
//
// This has a limit. If no operator and no witness tells a node that its store was restored, and those who have heard of
// the life that is lost cannot be reached for the grace after its start, it goes on and may dispatch a second time.

// started says hello to all others. One that waits already keeps what it knew when its wait began.
func (t *turn) started() {
	s := &t.d.Seat
	first := s.HelloAt.IsZero() || t.planted(GapForgotten)
	from := s.GapFrom
	if first {
		from = s.Beat
	}
	s.GapFrom, s.GapTo = from, t.beat()
	if s.GapTo == from+1 {
		s.GapTo = from // the clock stands behind: there is no gap to tell of
	}
	if t.planted(RestoreNotNoticed) {
		return
	}
	s.HelloAt, s.Anew = t.now, 0
	if first {
		s.DownAt = s.TickedAt
	}
	for _, p := range t.d.Peers {
		if p.Greeted = p.Node == t.d.Self; first {
			p.AtLoss = p.Install
		}
	}
	t.hello()
}

// hello is said to each that has not answered.
func (t *turn) hello() {
	for _, p := range t.d.Peers {
		if !p.Greeted && p.Node != t.d.Self && t.d.Seat.GapTo > 0 {
			t.send(Message{Kind: Hello, To: p.Node})
		}
	}
}

// mostAnew is how often no step for a while has the wait begin anew: on a machine that is always late it has an end.
const mostAnew = 3

// heardAgain has the wait begin anew where no hello went out: an operator had paused the domain, or the processes that
// send were down, or no process has taken a step for longer than others have to answer.
func (t *turn) heardAgain() {
	s := &t.d.Seat
	hushed := s.Hushed || t.hushed
	if s.Hushed = t.hushed; s.HelloAt.IsZero() || t.d.Paused {
		return
	}
	late := s.Anew < mostAnew && t.now.Sub(later(s.TickedAt, s.HelloAt)) > t.d.Settings.grace()
	if late {
		s.Anew++
	}
	if late || hushed {
		s.HelloAt = t.now
		t.hello()
	}
}

// greeted ends the wait when all have answered, or the grace is over.
func (t *turn) greeted() {
	s := &t.d.Seat
	if s.HelloAt.IsZero() || t.d.Paused {
		return
	}
	for _, p := range t.d.Peers {
		if !p.Greeted && t.now.Sub(s.HelloAt) < t.d.Settings.grace() {
			return
		}
	}
	s.HelloAt = noTime
	t.awaySince(s.DownAt)
	t.blocks() // the heights of the wait were left out
	t.delegateSoon()
}

func (t *turn) onHello(p *Peer, m *Message) {
	if m.Install > p.Install {
		t.newInstall(p, m.Install)
	}
	if t.gap(p, m); m.Install == p.Install {
		p.heard(t.now)
	}
	t.send(Message{Kind: Greeting, To: p.Node, Seen: p.Before, SeenInstall: p.Install, Echo: m.Beat})
}

// gap keeps which beats a node says that it has not used, and the highest that was heard of it before it said so. A gap
// that begins before the one that it told of last shows that it knew of the beats up to that.
func (t *turn) gap(p *Peer, m *Message) {
	if m.Install != p.Install {
		return
	}
	if m.GapTo > p.GapTo {
		if p.Before = p.Beat; m.GapFrom < p.GapFrom {
			p.Before = max(p.Beat, p.GapFrom)
		}
		p.GapFrom, p.GapTo = m.GapFrom, m.GapTo
	}
	if m.Kind != Hello {
		p.Beat = max(p.Beat, m.Beat)
	}
}

// onGreeting takes the answer to a hello that its sender has not answered yet. Any other one is waited for by none, and
// could stop this node at any time.
func (t *turn) onGreeting(p *Peer, m *Message) {
	s := &t.d.Seat
	if p.Greeted || s.GapTo == 0 || m.Echo < s.GapTo || m.Echo > s.Beat {
		t.ignore(string(m.Kind), "stale")
		return
	}
	p.Greeted = true
	p.heard(t.now)
	if m.SeenInstall > s.Install || m.SeenInstall == s.Install && m.Seen > s.GapFrom && m.Seen < s.GapTo {
		t.quarantine()
		return
	}
	if m.Install > p.Install {
		t.newInstall(p, m.Install)
	}
	t.greeted()
}

// quarantine stops all: the store has lost something.
func (t *turn) quarantine() {
	if t.planted(RestoreNotNoticed) {
		return
	}
	for _, p := range t.d.Peers {
		if !t.d.Still() {
			p.AtLoss = p.Install
		}
	}
	t.d.Paused = true
}

// leave goes on behind a quarantine, under a new install.
func (t *turn) leave() {
	s := &t.d.Seat
	t.d.Paused, s.HelloAt = false, noTime
	s.Install, s.LostAt, s.MadeGood = max(s.Install+1, t.beat()), t.now, false
	for _, p := range t.d.Peers {
		p.Greeted = true
	}
	for _, i := range t.d.Intents {
		if !i.Ended() {
			t.presume(i)
		}
	}
	t.dropEarly(func(*Work) bool { return true }, "its coordinator has lost rows")
	t.seatAfterLoss()
	for _, w := range t.d.Works {
		if w.dispatched() {
			t.step.Recalls = append(t.step.Recalls, w.UID)
		}
	}
	t.askSoon()
}

// Still says whether a domain waits until the others have greeted it, or an operator released it. Its service is not
// called then. It posts none of its public transactions to the core, those that the core has are held back, and it
// hears nothing of them: the rows may have been overtaken in a life that is lost.
func (d *Domain) Still() bool { return d.Paused || !d.Seat.HelloAt.IsZero() }

// newInstall takes note that another node has lost something: what it handed over before is dropped where it is not
// dispatched, and what it had of ours and holds no permit for goes elsewhere.
func (t *turn) newInstall(p *Peer, install int64) {
	first := p.Install == 0
	p.Install, p.Beat, p.GapFrom, p.GapTo, p.Before, p.State, p.StateBeat = install, 0, 0, 0, 0, "", 0
	p.Room, p.RoomBeat = nil, 0
	if first {
		return
	}
	t.dropEarly(func(w *Work) bool { return w.Origin == p.Node }, "its originator has lost rows")
	for _, i := range t.d.Intents {
		if i.Delegate == p.Node {
			t.intent(i, OnCoordinatorChanged, fact{text: p.Node + " has lost rows"})
		}
	}
}
