package coord

import (
	"slices"
	"strings"
	"time"
)

// beatAll sends each node its heartbeat: the state of this coordinator, and what it knows of that node's own intents.
func (t *turn) beatAll() {
	for _, p := range t.d.Peers {
		if p.Node == t.d.Self || t.d.Settings.Mode != Sender {
			t.beatTo(p.Node)
		}
	}
}

func (t *turn) beatTo(node string) {
	s := &t.d.Seat
	m := Message{Kind: Heartbeat, To: node, State: s.Coordinator, Successor: s.Successor}
	if s.Coordinator == Active {
		m.Tenure = t.now.Sub(s.CoordinatorSince)
	}
	m.Room = t.roomHere(node)
	for _, w := range t.d.Works {
		if w.Origin == node && (!w.over() || w.State != Final && w.Outcome != "" && !w.Told) {
			m.Entries = append(m.Entries, w.entry())
		}
		if w.dispatched() && (s.Coordinator == Flush || s.Coordinator == Closing) {
			if m.Points = append(m.Points, w.UID); node == s.Successor {
				m.Spent = append(m.Spent, w.Assembled.Inputs...)
			}
		}
	}
	t.send(m)
}

// entry is the word about a work.
func (w *Work) entry() Entry {
	e := Entry{
		ID:         w.ID,
		State:      w.State,
		Generation: w.Generation,
		Install:    w.Install,
		Nonce:      w.Nonce,
		Hash:       w.Hash,
		Counts:     w.Counts,
		Reason:     w.Trouble,
	}
	if w.State == Confirmed || w.State == Reverted || w.State == Final {
		e.Outcome, e.Reason = w.Outcome, w.Reason
	}
	e.Reason = clipped(e.Reason)
	return e
}

// mostReason is how many bytes of a reason are told: what others have said stands in it, and a message has an end.
const mostReason = 1000

func clipped(text string) string {
	if len(text) <= mostReason {
		return text
	}
	return strings.ToValidUTF8(text[:mostReason], "") + "..."
}

// tell says to the originator at once what became of a work.
func (t *turn) tell(w *Work) {
	t.send(Message{Kind: Told, To: w.Origin, Entries: []Entry{w.entry()}, Room: t.roomHere(w.Origin)})
}

// onAsked answers for each intent asked about, also that it has none.
func (t *turn) onAsked(p *Peer, m *Message) {
	answer := Message{Kind: Told, To: p.Node, Echo: m.Beat}
	for _, id := range m.IDs {
		e := Entry{ID: id}
		if w := t.d.Work(id); w != nil && w.Origin == p.Node {
			e = w.entry()
		}
		answer.Entries = append(answer.Entries, e)
	}
	t.send(answer)
}

func (t *turn) onAcknowledged(p *Peer, m *Message) {
	for _, w := range t.d.Works {
		if w.Origin == p.Node && slices.Contains(m.IDs, w.ID) && w.Outcome != "" {
			w.Told = true
		}
	}
}

// onHeartbeat keeps what a heartbeat says of its sender's seat, and lets both machines of ours answer. One that is
// older than the last counts for nothing but the permits.
func (t *turn) onHeartbeat(p *Peer, m *Message) {
	if m.Beat <= p.StateBeat && !t.planted(OldBeatBelieved) {
		t.ignore(string(m.Kind), "older")
		return
	}
	p.State, p.StateBeat, p.Tenure, p.Successor, p.HeardAt = m.State, m.Beat, m.Tenure, m.Successor, t.now
	if lives(m.State) {
		p.LiveAt, p.FailedAt = t.now, noTime
	}
	f := fact{m: m, p: p}
	if t.d.Seat.Originator != Sending {
		t.onTold(p, m)
	}
	t.originator(OnHeartbeatReceived, f)
	if p.Node != t.d.Self {
		t.tickOff(p, m)
		t.coordinator(OnHeartbeatReceived, f)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// nanos counts intervals.
func nanos(n int) time.Duration { return time.Duration(n) }
