package coord

import (
	"slices"

	"github.com/postern-dev/postern/internal/machine"
)

var waitingSeats = []State{Standby, Elect, Prepared}

// Coordinator is the life of a node's seat as a coordinator (S3.13).
var Coordinator = table("coordinator", Idle, nil,
	map[State][]string{
		Elect:     {"ask_handover", "beat"},
		Standby:   {"beat"},
		Prepared:  {"beat", "check_points"},
		Active:    {"begin", "beat", "select"},
		Flush:     {"drop_early", "beat", "check_flushed"},
		Closing:   {"drop_early", "beat"},
		Observing: {"drop_early"},
		Idle:      {"beat"},
	},
	[]machine.Rule{
		rule(Idle, OnTransactionsDelegated, "too_far_behind", Idle, "reject"),
		rule(Idle, OnTransactionsDelegated, "not_of_the_list", Idle, "reject"),
		rule(Idle, OnTransactionsDelegated, "", Active, "pool"),
		rule(Idle, OnHeartbeatReceived, "sender_lives", Observing),
		rule(Idle, OnEndorsementRequested, "", Observing),
		rule(Observing, OnTransactionsDelegated, "not_of_the_list", Observing, "reject"),
		rule(Observing, OnTransactionsDelegated, "outranked", Observing, "reject"),
		rule(Observing, OnTransactionsDelegated, "behind", Standby, "find_rival", "pool"),
		rule(Observing, OnTransactionsDelegated, "", Elect, "find_rival", "pool"),
		rule(Observing, OnHeartbeatInterval, "all_silent", Idle),
		rule(Observing, OnHeartbeatReceived, "", Observing),
		rule(Standby, OnNewBlock, "near", Elect),
		rule(Standby, OnHeartbeatInterval, "rival_silent", Elect),
		rule(Standby, OnHeartbeatInterval, "", Standby, "beat"),
		rule(Elect, OnHandoverReceived, "no_points", Active),
		rule(Elect, OnHandoverReceived, "", Prepared),
		rule(Elect, OnHeartbeatReceived, "names_another", Observing),
		rule(Elect, OnHeartbeatReceived, "rival_gone", Active),
		rule(Elect, OnHeartbeatReceived, "rival_flushes", Prepared, "take_points"),
		rule(Elect, OnHeartbeatInterval, "rival_silent", Active),
		rule(Elect, OnHeartbeatInterval, "waited_long", Observing),
		rule(Elect, OnHeartbeatInterval, "", Elect, "beat", "ask_handover"),
		rule(Prepared, OnTransactionConfirmed, "no_points", Active),
		rule(Prepared, OnHeartbeatReceived, "names_another", Observing),
		rule(Prepared, OnHeartbeatReceived, "rival_gone", Active),
		rule(Prepared, OnHeartbeatInterval, "rival_silent", Active),
		rule(Prepared, OnHeartbeatInterval, "flushed_long", Active),
		rule(Prepared, OnHeartbeatInterval, "", Prepared, "beat"),
		rule(Active, OnTransactionsDelegated, "", Active, "pool", "select"),
		rule(Active, OnHeartbeatInterval, "nothing_in_flight", Idle),
		rule(Active, OnHeartbeatInterval, "", Active, "beat", "select", "collect"),
		rule(Active, OnHeartbeatReceived, "outranked_by_active", Flush, "yield"),
		rule(Active, OnTransactionStateTransition, "", Active, "select", "collect"),
		rule(Active, OnTransactionConfirmed, "nothing_in_flight", Idle),
		rule(Active, OnHandoverRequestReceived, "asker_outranks", Flush, "yield", "hand_over"),
		rule(Active, OnAway, "something_dispatched", Flush),
		rule(Active, OnAway, "", Closing),
		rule(Flush, OnTransactionConfirmed, "nothing_dispatched", Closing),
		rule(Flush, OnFlushed, "nothing_dispatched", Closing),
		rule(Flush, OnHeartbeatInterval, "nothing_dispatched", Closing),
		rule(Flush, OnHeartbeatInterval, "", Flush, "beat"),
		rule(Flush, OnHandoverRequestReceived, "names_asker", Flush, "hand_over"),
		rule(Flush, OnTransactionsDelegated, "none_to_follow", Active, "pool"),
		rule(Flush, OnTransactionsDelegated, "", Flush, "reject"),
		rule(Closing, OnHeartbeatInterval, "closed_long", Idle),
		rule(Closing, OnHeartbeatInterval, "", Closing, "count_closed", "beat"),
		rule(Closing, OnHandoverRequestReceived, "names_asker", Closing, "hand_over"),
		rule(Closing, OnTransactionsDelegated, "others_live", Closing, "reject"),
		rule(Closing, OnTransactionsDelegated, "not_of_the_list", Closing, "reject"),
		rule(Closing, OnTransactionsDelegated, "", Active, "pool"),
	},
	each(waitingSeats, OnTransactionsDelegated, "", "", "pool"),
	each([]State{Idle, Observing}, OnHandoverRequestReceived, "", "", "hand_over"),
)

var coordinators binding[*Seat]

func init() {
	coordinators = binding[*Seat]{table: &Coordinator, guards: coordinatorGuards, effects: coordinatorEffects}
}

var coordinatorGuards = map[string]func(*turn, *Seat, fact) bool{
	"too_far_behind": func(t *turn, _ *Seat, f fact) bool {
		return t.d.believed(f.m.Height) > t.d.Height+t.d.Settings.BlockHeightTolerance
	},
	"not_of_the_list": func(t *turn, _ *Seat, _ fact) bool {
		return !slices.Contains(t.d.list(t.d.Height), t.d.Self)
	},
	"none_to_follow": func(t *turn, s *Seat, _ fact) bool { return t.noneToFollow(s) },
	"sender_lives":   func(_ *turn, _ *Seat, f fact) bool { return lives(f.m.State) },
	"outranked": func(t *turn, _ *Seat, _ fact) bool {
		a := t.other(Active)
		return a != nil && t.outranks(a.Node, t.d.Self, a)
	},
	"behind": func(t *turn, _ *Seat, _ fact) bool { return t.behind(t.other(Active)) },
	"near": func(t *turn, s *Seat, _ fact) bool {
		return !t.behind(t.d.peer(s.Rival))
	},
	"all_silent":    func(t *turn, _ *Seat, _ fact) bool { return !t.othersLive() },
	"others_live":   func(t *turn, _ *Seat, _ fact) bool { return t.othersLive() },
	"rival_silent":  func(t *turn, s *Seat, _ fact) bool { return t.rivalSilent(s) },
	"no_points":     func(_ *turn, s *Seat, _ fact) bool { return len(s.Points) == 0 },
	"names_another": func(t *turn, _ *Seat, f fact) bool { return t.namesAnother(f) },
	"rival_gone":    func(_ *turn, s *Seat, f fact) bool { return f.p.Node == s.Rival && gone(f.m.State) },
	"rival_flushes": func(_ *turn, s *Seat, f fact) bool { return f.p.Node == s.Rival && f.m.State == Flush },
	"waited_long":   func(t *turn, s *Seat, _ fact) bool { return t.now.Sub(s.RivalAt) > t.d.Settings.StateTimeout },
	"flushed_long": func(t *turn, s *Seat, _ fact) bool {
		return t.now.Sub(s.CoordinatorSince) > t.d.Settings.FlushGrace
	},
	"nothing_in_flight": func(t *turn, _ *Seat, _ fact) bool {
		return !slices.ContainsFunc(t.d.Works, func(w *Work) bool { return !w.over() })
	},
	"outranked_by_active": func(t *turn, _ *Seat, f fact) bool {
		return f.m.State == Active && t.outranks(f.p.Node, t.d.Self, f.p)
	},
	"asker_outranks": func(t *turn, s *Seat, f fact) bool {
		tenure, least := t.now.Sub(s.CoordinatorSince), t.d.Settings.HeartbeatInterval*nanos(t.d.Settings.MinTenure)
		return t.outranks(f.p.Node, t.d.Self, f.p) && tenure >= least
	},
	"something_dispatched": func(t *turn, _ *Seat, _ fact) bool { return t.anyDispatched() },
	"nothing_dispatched":   func(t *turn, _ *Seat, _ fact) bool { return !t.anyDispatched() },
	"names_asker":          func(_ *turn, s *Seat, f fact) bool { return s.Successor == f.p.Node },
	"closed_long":          func(t *turn, s *Seat, _ fact) bool { return s.Closed+1 >= t.d.Settings.ClosingGrace },
}

var coordinatorEffects = map[string]func(*turn, *Seat, fact){
	"beat":   func(t *turn, _ *Seat, _ fact) { t.raise(t.beatAll) },
	"pool":   func(t *turn, _ *Seat, f fact) { t.pool(f) },
	"reject": func(t *turn, _ *Seat, f fact) { t.reject(f) },
	"find_rival": func(t *turn, s *Seat, _ fact) {
		s.Rival, s.RivalAt, s.Points, s.Spent, s.PointsOf = "", t.now, nil, nil, ""
		if a := t.rival(); a != nil {
			s.Rival = a.Node
		}
	},
	"ask_handover": func(t *turn, s *Seat, _ fact) {
		if s.Rival != "" {
			t.send(Message{Kind: HandoverRequest, To: s.Rival})
		}
	},
	"begin": func(_ *turn, s *Seat, _ fact) {
		s.Rival, s.Successor, s.Closed = "", "", 0
		s.Before, s.Posted = s.Posted, 0
	},
	"take_points": func(_ *turn, s *Seat, f fact) {
		s.Points, s.Spent, s.PointsOf = f.m.Points, f.m.Spent, f.p.Node
	},
	"check_points": func(t *turn, _ *Seat, _ fact) {
		t.raise(func() { t.coordinator(OnTransactionConfirmed, fact{}) })
	},
	"drop_early": func(t *turn, s *Seat, _ fact) {
		s.Closed = 0
		t.dropEarly(func(*Work) bool { return true }, "its coordinator hands over")
	},
	"check_flushed": func(t *turn, _ *Seat, _ fact) { t.raise(func() { t.coordinator(OnFlushed, fact{}) }) },
	"yield":         func(_ *turn, s *Seat, f fact) { s.Successor = f.p.Node },
	"hand_over":     func(t *turn, _ *Seat, f fact) { t.handOver(f.p.Node) },
	"count_closed":  func(_ *turn, s *Seat, _ fact) { s.Closed++ },
	"select":        func(t *turn, _ *Seat, _ fact) { t.raise(t.selectNext) },
	"collect":       func(t *turn, _ *Seat, _ fact) { t.raise(t.collect) },
}

// led notes which node coordinates. Of two that do so, as long as a wire is cut, it is this one, else that of higher
// rank. A node that has nothing to coordinate any more is the last one still.
func (t *turn) led() {
	s := &t.d.Seat
	leader := t.d.Self
	if s.Coordinator != Active {
		p := t.best(Active)
		if p == nil || p.Node == t.d.Self {
			return
		}
		leader = p.Node
	}
	if s.Leader != leader && t.d.Settings.Mode != Sender {
		t.step.Led, s.Leader = s.Leader, leader
	}
}

func gone(s State) bool { return s == Closing || s == Idle || s == Observing }

// other returns the live node that outranks all others in a state, this node not among them.
func (t *turn) other(states ...State) *Peer {
	var best *Peer
	for _, p := range t.d.Peers {
		if p.Node != t.d.Self && t.live(p) && slices.Contains(states, p.State) &&
			(best == nil || t.outranks(p.Node, best.Node, p)) {
			best = p
		}
	}
	return best
}

// noneToFollow says whether a node that flushes is to go on: no other node may coordinate, or none does though the
// grace for the flush is over. A public transaction without a known outcome would stop all later intents else.
// Their permits keep what is dispatched from going out twice.
func (t *turn) noneToFollow(s *Seat) bool {
	list := t.d.list(t.d.Height)
	if slices.Equal(list, []string{t.d.Self}) {
		return true
	}
	return slices.Contains(list, t.d.Self) && t.now.Sub(s.CoordinatorSince) > t.d.Settings.FlushGrace &&
		t.other(Active, Elect, Standby, Prepared) == nil
}

// rival returns the node from which the seat is to be taken over, or nil.
func (t *turn) rival() *Peer {
	if p := t.other(Active); p != nil {
		return p
	}
	return t.other(Flush, Closing, Prepared, Elect, Standby)
}

func (t *turn) othersLive() bool {
	return slices.ContainsFunc(t.d.Peers, func(p *Peer) bool { return p.Node != t.d.Self && t.live(p) })
}

func (t *turn) behind(p *Peer) bool {
	return p != nil && t.d.Height < t.d.believed(p.Height)-t.d.Settings.BlockHeightTolerance
}

func (t *turn) rivalSilent(s *Seat) bool {
	p := t.d.peer(s.Rival)
	return p == nil || !t.live(p) && t.now.Sub(later(p.LiveAt, s.RivalAt)) > t.d.Settings.grace()
}

// namesAnother says whether a heartbeat tells one that waits for the seat that somebody else has it, or gets it.
func (t *turn) namesAnother(f fact) bool {
	s := &t.d.Seat
	switch {
	case f.m.State == Active && f.p.Node != s.Rival:
		return t.outranks(f.p.Node, t.d.Self, f.p)
	case f.m.State == Active && s.Coordinator == Elect:
		return false // it has not had the request, or keeps its seat for its tenure
	case f.m.State == Active:
		return true
	}
	return f.p.Node == s.Rival && f.m.Successor != "" && f.m.Successor != t.d.Self
}

func (t *turn) anyDispatched() bool {
	return slices.ContainsFunc(t.d.Works, func(w *Work) bool { return w.dispatched() })
}

// onDelegations lets the seat decide, and answers for each intent.
func (t *turn) onDelegations(p *Peer, m *Message) {
	t.coordinator(OnTransactionsDelegated, fact{m: m, p: p})
}

// pool takes the delegated intents in their order, as far as there is room.
func (t *turn) pool(f fact) {
	answer := Message{Kind: DelegationResponse, To: f.p.Node}
	room, before := t.roomFor(f.p.Node), ""
	for _, g := range f.m.Delegations {
		w := t.d.Work(g.ID)
		switch {
		case t.foreign(f.p.Node, g.ID, w):
			t.ignore(string(f.m.Kind), "foreign")
			continue
		case w != nil && !w.over():
		case w != nil && w.Outcome != "" && !passedBy(w, g):
			t.tell(w)
		case room <= 0:
			f.p.RefusedAt = t.now
			answer.Refused = append(answer.Refused, g.ID)
			continue
		default:
			room--
			f.p.RefusedAt = noTime
			t.birth(f, g, before)
		}
		answer.IDs, before = append(answer.IDs, g.ID), g.ID
	}
	answer.Room = t.roomHere(f.p.Node)
	t.send(answer)
}

// passedBy says whether an originator has begun a newer generation of an intent than the one of a work that failed: it
// has lost that failure, or could not take it, and no more word about it would end the intent.
func passedBy(w *Work, g Delegation) bool { return w.Outcome == Failure && g.Generation > w.Generation }

// foreign says whether an intent is another node's than the one that delegates it.
func (t *turn) foreign(from, id string, w *Work) bool {
	other := w != nil && w.Origin != from && (!w.over() || w.Outcome != "")
	return other || from != t.d.Self && t.d.Intent(id) != nil
}

// birth makes a work, at the back of the pool. The row of an earlier one that was given back goes.
func (t *turn) birth(f fact, g Delegation, before string) {
	t.d.Works = slices.DeleteFunc(t.d.Works, func(w *Work) bool { return w.ID == g.ID })
	t.d.Seat.Place++
	w := &Work{
		ID:         g.ID,
		Origin:     f.p.Node,
		Place:      t.d.Seat.Place,
		Since:      t.now,
		Generation: g.Generation,
		After:      before,
		Counts:     g.Counts,
	}
	t.d.Works = append(t.d.Works, w)
	t.work(w, OnReceived, fact{})
}

// reject says that this node does not coordinate, and who does.
func (t *turn) reject(f fact) {
	m := Message{Kind: DelegationRejected, To: f.p.Node, State: t.d.Seat.Coordinator, Successor: t.d.Seat.Successor,
		Reason: NotActive}
	if t.d.believed(f.m.Height) > t.d.Height+t.d.Settings.BlockHeightTolerance {
		m.Reason = HeightTolerance
	}
	for _, g := range f.m.Delegations {
		m.IDs = append(m.IDs, g.ID)
	}
	t.send(m)
}

// selectNext has the work that has waited longest assembled, if none is being assembled. Works of an originator that
// is silent wait until it is heard: each would hold the one slot until its time is over.
func (t *turn) selectNext() {
	if t.d.Seat.Coordinator != Active || t.d.Full() {
		return
	}
	var next *Work
	for _, w := range t.d.Works {
		if w.State == Assembling {
			return
		}
		may := w.State == Pooled && !w.NotBefore.After(t.now) && !t.silentUntil(w.Origin).After(t.now)
		if may && (next == nil || w.Place < next.Place) {
			next = w
		}
	}
	if next != nil {
		t.d.Seat.Place++
		next.Place = t.d.Seat.Place // one that comes back stands behind the others
		t.work(next, OnSelected, fact{})
	}
}

// collect hands over to the core what has its permit.
func (t *turn) collect() {
	for _, w := range t.d.Works {
		if w.State == ReadyForDispatch {
			t.work(w, OnCollected, fact{})
		}
	}
}

// leaveSilent leaves the works of an originator that did not answer alone, longer each time, or until it is heard. The
// one that it did not answer for goes behind those that came while it had the slot.
func (t *turn) leaveSilent(w *Work, _ fact) {
	t.d.Seat.Place++
	w.Place = t.d.Seat.Place
	if p := t.d.peer(w.Origin); p != nil && w.Origin != t.d.Self {
		p.Silences++
		p.Silent = t.now.Add(t.d.Settings.StateTimeout << min(p.Silences, 6))
		t.roomSoon()
	}
}

func (t *turn) onHandoverRequest(p *Peer, m *Message) {
	t.coordinator(OnHandoverRequestReceived, fact{m: m, p: p})
}

// handOver tells the successor what is still dispatched here, and what that spends.
func (t *turn) handOver(to string) {
	m := Message{Kind: Handover, To: to, State: t.d.Seat.Coordinator, Successor: to}
	for _, w := range t.d.Works {
		if w.dispatched() {
			m.Points, m.Spent = append(m.Points, w.UID), append(m.Spent, w.Assembled.Inputs...)
		}
	}
	t.send(m)
}

// onHandover counts only from the node that was asked.
func (t *turn) onHandover(p *Peer, m *Message) {
	s := &t.d.Seat
	if p.Node != s.Rival || m.Successor != t.d.Self || s.Coordinator != Elect {
		t.ignore(string(m.Kind), "foreign")
		return
	}
	s.Points, s.Spent, s.PointsOf = m.Points, m.Spent, p.Node
	t.coordinator(OnHandoverReceived, fact{m: m, p: p})
}

// tickOff removes the flush points that the one before does not name any more, also those that this node has not waited
// for until it was Active. One that is Active itself names none.
func (t *turn) tickOff(p *Peer, m *Message) {
	s := &t.d.Seat
	if p.Node != s.PointsOf || s.Coordinator != Prepared && m.State == Active {
		return
	}
	s.Points = slices.DeleteFunc(s.Points, func(uid string) bool { return !slices.Contains(m.Points, uid) })
	if len(s.Points) > 0 {
		return
	}
	s.Spent, s.PointsOf = nil, ""
	if s.Coordinator == Prepared {
		t.raise(func() { t.coordinator(OnTransactionConfirmed, fact{}) })
	}
}

// seatAfterLoss puts the seat where a node that has lost rows begins: it watches its public transactions, and
// coordinates nothing.
func (t *turn) seatAfterLoss() {
	s := &t.d.Seat
	if s.Coordinator == Active {
		t.coordinator(OnAway, fact{text: "rows were lost"})
	} else if takes(s.Coordinator) {
		s.Coordinator, s.CoordinatorSince = Observing, t.now
	}
}
