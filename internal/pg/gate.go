package pg

import (
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/sequencer"
)

// gate closes the gate of what was called, and opens it behind a probe that got through. A worker that blocks one
// sender closes the gate of that sender, also where the sender has no address of its own. A probe that its node may not
// make is left to another node at once: a claim keeps the gate closed for 30 s behind each probe.
func (st *settlement) gate(q *QueueRow, a *Answer) {
	l := a.Lease
	switch a.Gate {
	case sequencer.MoveClose:
		g := gate{Dispatcher: l.Dispatcher.ID, Until: a.Step.Until, Why: a.Step.Message, Node: q.Node}
		if u := a.Unclear; u != nil {
			g.Until, g.Why = u.Until, u.Message
		}
		if q.Sender != 0 && (l.SenderURL != "" || a.Step.Blocks == outbox.ScopeSender) {
			g.Dispatcher, g.Sender = 0, q.Sender
		}
		st.e.gates = append(st.e.gates, g)
	case sequencer.MovePass:
		if l.Probe {
			st.e.gates = append(st.e.gates, gate{Dispatcher: l.Dispatcher.ID, Pass: true})
		}
	case sequencer.MoveOpen:
		if l.ProbeSender {
			st.e.gates = append(st.e.gates, gate{Sender: q.Sender, Open: true})
		}
		if l.Probe {
			st.e.gates = append(st.e.gates, gate{Dispatcher: l.Dispatcher.ID, Open: true})
		}
	}
}

// heard keeps since when the calls of the head come to nothing: the next try waits as long again, such a head counts
// once for the gate, and people are told. A head that stays in DISPATCHING has not got through.
func (q *QueueRow) heard(a *Answer, now time.Time) {
	switch nothing := a.Verdict == sequencer.VerdictNothing || a.Verdict == sequencer.VerdictAway; {
	case a.Step.Blocks == "" && !nothing:
		if a.Verdict == sequencer.VerdictReached && a.Step.Phase != outbox.PhaseDispatching {
			q.Blocked = zeroTime
		}
	case q.Blocked.IsZero():
		q.Blocked = now
	}
}

// probesSeen is among how many of the first queues of a lane that for a probe is chosen.
const probesSeen = 8

// byProbe orders queues by whose head is to be the next probe of a closed gate: first those whose calls did not come to
// nothing, since what is wrong with one transaction says nothing about the address. Those that were tried stand behind
// the others of their lane by then, so that each probe is another queue's, where there is another.
func byProbe(a, b *QueueRow) int {
	switch before, after := a.Blocked.IsZero(), b.Blocked.IsZero(); {
	case before && !after:
		return -1
	case after && !before:
		return 1
	}
	return 0
}
