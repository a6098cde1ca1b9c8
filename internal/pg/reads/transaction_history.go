package reads

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/sequencer"
)

// Transition is one line of a transaction's history.
type Transition struct {
	At      time.Time
	Machine string // transaction, or lever where a person's action is no event of the machine
	From    string
	Event   string // as internal/sequencer names it
	To      string
	By      string // an actor, or the node that did it
	Attempt int
	Detail  string
}

// History lists every transition of a transaction, oldest first, or NotFound. It is put together from its
// body, attempts, outcome, queue row and audit; nothing is stored for it. Of a transaction that was called very often
// it leaves out what came between the first calls and the last ones, and says so where it goes on.
func (s *Store) History(ctx context.Context, contextID int32, id outbox.ID) ([]Transition, error) {
	p, err := s.past(ctx, contextID, id, nil)
	if err != nil {
		return nil, err
	}
	h := &history{p: p, state: outbox.WAITING}
	h.list = append(h.list, Transition{At: p.t.ReceivedAt, Machine: "transaction", Event: string(sequencer.Posted),
		To: string(outbox.WAITING), By: p.t.Actor})
	for i := range p.recorded {
		h.foundNotDone(began(&p.recorded[i]))
		told := len(h.list)
		h.attempt(&p.recorded[i])
		if i == historyEnds && p.left > 0 && len(h.list) > told {
			left := fmt.Sprintf("%d calls before this one are left out: GET %s/attempts lists them",
				p.left, pg.TxPath(p.t.ID))
			h.list[told].Detail = joined(left, h.list[told].Detail)
		}
	}
	h.foundNotDone(time.Time{})
	h.end()
	if p.current != nil && p.outcome == nil && h.state != outbox.DISPATCHING {
		h.bound(&p.current.Attempt, *p.current.StartedAt)
	}
	if p.held != nil && p.outcome == nil {
		h.hold(p.held.at, p.held.reason)
	}
	h.levers()
	return h.list, nil
}

type history struct {
	p     *past
	list  []Transition
	state outbox.State
}

// move adds a transition and goes on from there.
func (h *history) move(at time.Time, on sequencer.Event, to outbox.State, by string, attempt int, detail string) {
	h.list = append(h.list, Transition{At: at, Machine: "transaction", From: string(h.state), Event: string(on),
		To: string(to), By: by, Attempt: attempt, Detail: detail})
	h.state = to
}

// bound is how an attempt begins: with a sender in WAITING, or at the end of a delay.
func (h *history) bound(a *pg.Attempt, at time.Time) {
	on := sequencer.SenderBound
	if h.state == outbox.RETRY {
		on = sequencer.DelayElapsed
	}
	detail := ""
	if a.Sender != "" {
		detail = "sender " + a.Sender
	}
	if a.Fee != "" {
		detail = joined(detail, "fee "+a.Fee)
	}
	h.move(at, on, outbox.DISPATCHING, a.Node, a.Attempt, detail)
}

// hold is that it became held: its outcome is unknown, and nothing can tell it.
func (h *history) hold(at time.Time, reason string) {
	by, attempt := "", 0
	if last := h.lastCall(); last != nil {
		by, attempt = last.Node, last.Attempt
	}
	detail := pg.Because("held until somebody says what came of it", reason)
	h.move(at, sequencer.Unresolvable, outbox.DISPATCHING, by, attempt, detail)
}

// lastCall is what is recorded of the last call whose outcome is unknown, as far as the history is told.
func (h *history) lastCall() *pg.Attempt {
	now := h.list[len(h.list)-1].At
	for i := range slices.Backward(h.p.recorded) {
		if a := &h.p.recorded[i]; a.Step == "unknown" && !a.AnsweredAt.After(now) {
			return a
		}
	}
	return nil
}

// foundNotDone tells, of people who said that what is held was not done, those before a moment, zero: all of them. When
// it became held is not kept behind that: it was when its call was answered, or lost, or a question later.
func (h *history) foundNotDone(before time.Time) {
	rest := h.p.audit[:0:0]
	for _, a := range h.p.audit {
		if a.action != "was-not-done" || !before.IsZero() && a.at.After(before) || h.state != outbox.DISPATCHING {
			rest = append(rest, a)
			continue
		}
		if last := h.lastCall(); last != nil {
			h.hold(last.AnsweredAt, "")
		}
		h.move(a.at, sequencer.FoundNotDone, outbox.WAITING, a.actor, h.list[len(h.list)-1].Attempt, a.reason)
	}
	h.p.audit = rest
}

// joined puts a comma between two parts.
func joined(a, b string) string {
	if a == "" {
		return b
	}
	return a + ", " + b
}

// began is when the call of an attempt began, as far as that is known: else when it ended.
func began(a *pg.Attempt) time.Time {
	if a.StartedAt != nil && !a.StartedAt.IsZero() {
		return *a.StartedAt
	}
	return a.AnsweredAt
}

// attempt tells what a recorded answer did.
func (h *history) attempt(a *pg.Attempt) {
	if a.Step == "late" {
		return
	}
	detail := a.Error
	if a.Code != "" {
		detail = fmt.Sprintf("%s (%s)", a.Error, a.Code)
	}
	if a.Step == "inclusion" {
		on := sequencer.InclusionFailed
		if a.Code == sequencer.CodeTimeout {
			on = sequencer.InclusionTimeout
		}
		h.move(a.AnsweredAt, on, outbox.RETRY, a.Node, a.Attempt, detail)
		return
	}
	if h.state != outbox.DISPATCHING {
		h.bound(a, began(a))
	}
	switch a.Class {
	case outbox.ClassBlocked:
		h.move(a.AnsweredAt, sequencer.WorkerLost, outbox.WAITING, a.Node, a.Attempt, detail)
	case outbox.ClassRetry:
		h.move(a.AnsweredAt, sequencer.DispatchError, outbox.RETRY, a.Node, a.Attempt, detail)
	case outbox.ClassAmbiguous:
		on := sequencer.DispatchTimeout
		switch a.Code {
		case sequencer.CodeNodeLost:
			on = sequencer.NodeLost
		case sequencer.CodeHandedBack:
			on = sequencer.Restarted
		}
		h.move(a.AnsweredAt, on, outbox.DISPATCHING, a.Node, a.Attempt, detail)
	default:
		h.move(a.AnsweredAt, sequencer.Accepted, outbox.REVISION, a.Node, a.Attempt, "hash "+a.Hash)
	}
}

// end tells the outcome, and who decided it where a person did.
func (h *history) end() {
	o := h.p.outcome
	if o == nil {
		return
	}
	if o.Was == outbox.DISPATCHING && h.state != outbox.DISPATCHING {
		at := o.DoneAt
		if o.StartedAt != nil && !o.StartedAt.IsZero() {
			at = *o.StartedAt
		}
		h.bound(&o.Attempt, at)
	}
	on := h.ending(o)
	if last := h.lastCall(); h.p.held != nil {
		h.hold(h.p.held.at, h.p.held.reason)
	} else if on == sequencer.FoundDone && last != nil { // its mark is gone
		h.hold(last.AnsweredAt, "")
	}
	by, detail := o.Node, o.Error
	if o.Code != "" && o.Code != detail {
		detail = pg.Because(o.Code, detail)
	}
	if o.Hash != "" && o.State == outbox.DONE {
		detail = "hash " + o.Hash
	}
	if action := map[sequencer.Event]string{sequencer.Cancel: "cancel", sequencer.Abandoned: "abandon",
		sequencer.FoundDone: "was-done"}[on]; action != "" && (o.Was == outbox.WAITING || action != "cancel") {
		if i := slices.IndexFunc(h.p.audit, func(a auditRow) bool { return a.action == action }); i >= 0 {
			by, detail = h.p.audit[i].actor, h.p.audit[i].reason
			h.p.audit = slices.Delete(slices.Clone(h.p.audit), i, i+1)
		}
	}
	h.state = o.Was
	h.move(o.DoneAt, on, o.State, by, o.Attempt.Attempt, detail)
}

// ending finds the event of S2.5 that led from one state to the outcome.
func (h *history) ending(o *outcomePast) sequencer.Event {
	switch {
	case o.Code == "abandoned":
		return sequencer.Abandoned
	case o.Code == pg.CodeDependency:
		return sequencer.DependencyFailed
	case o.State == outbox.FAILED && o.Was == outbox.WAITING:
		return sequencer.Refused
	case o.State == outbox.CANCELLED:
		return sequencer.Cancel
	case o.State == outbox.UNRESOLVED:
		return sequencer.Unresolvable
	case o.State == outbox.DONE && o.Was == outbox.DISPATCHING && h.p.pulled("was-done"):
		return sequencer.FoundDone
	case o.State == outbox.DONE && o.Was == outbox.DISPATCHING:
		return sequencer.Completed
	case o.State == outbox.DONE && o.Was == outbox.REVISION:
		return sequencer.Included
	case o.State == outbox.DONE:
		if h.p.pulled("cancel") {
			return sequencer.Cancel
		}
		return sequencer.DelayElapsed
	case o.Was == outbox.DISPATCHING && o.Class == outbox.ClassRejected:
		return sequencer.Rejected
	case o.Was == outbox.DISPATCHING:
		return sequencer.DispatchError
	case o.Was == outbox.REVISION && o.Code == sequencer.CodeTimeout:
		return sequencer.InclusionTimeout
	case o.Was == outbox.REVISION:
		return sequencer.InclusionFailed
	}
	return sequencer.RetryStarted
}

// levers adds what people did that is not told yet, each in the state that it found.
func (h *history) levers() {
	for _, a := range h.p.audit {
		t := Transition{At: a.at, Machine: "lever", Event: a.action, By: a.actor, Detail: a.reason}
		if a.action == "cancel" {
			t.Machine, t.Event = "transaction", string(sequencer.Cancel)
		}
		if a.action == "redrive" && h.p.t.RedrivenBy != "" {
			t.Detail = pg.Because("redriven as "+h.p.t.RedrivenBy, a.reason)
		}
		i, _ := slices.BinarySearchFunc(h.list, a.at, func(x Transition, at time.Time) int {
			if x.At.After(at) {
				return 1
			}
			return -1
		})
		if i > 0 {
			t.From, t.To, t.Attempt = h.list[i-1].To, h.list[i-1].To, h.list[i-1].Attempt
		}
		h.list = slices.Insert(h.list, i, t)
	}
}
