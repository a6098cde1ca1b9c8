package coord

import (
	"slices"
	"strconv"
	"strings"
)

// nodeOf is the node of a party name@node.
func nodeOf(party string) string { return party[strings.LastIndexByte(party, '@')+1:] }

// over says whether a work is at an end of its own: nothing of it is on its way.
func (w *Work) over() bool {
	return w.State == Confirmed || w.State == Reverted || w.State == Final || w.State == Evicted
}

// dispatched says whether the core has the public transaction of a work, and no outcome of it.
func (w *Work) dispatched() bool { return w.State == Dispatched || w.State == Submitted }

// Spends lists the states that a work spends: from when it is assembled until it is over.
func (w *Work) Spends() []string {
	if !w.pending() {
		return nil
	}
	return w.Assembled.Inputs
}

// keepTrouble keeps why a try came to nothing: "" for answers that did not come in time.
func (w *Work) keepTrouble(why string) {
	if w.Trouble = why; why == "" {
		w.Trouble = w.late()
	}
}

// lateMost is how many answers that did not come are named.
const lateMost = 5

// late names the answers that a generation lacks.
func (w *Work) late() string {
	var list []string
	lacks := func(a Attestation) bool { return w.count(a, "yes") < a.needs() }
	endorsed := !slices.ContainsFunc(w.Assembled.Plan, lacks)
	for _, a := range w.Asks {
		if a.Answer == "" && (a.Kind != EndorsementRequest || !endorsed) && len(list) < lateMost {
			list = append(list, a.Who()+" "+a.Said())
		}
	}
	if len(list) == 0 {
		return "its public transaction was not prepared in time"
	}
	return strings.Join(list, ", ")
}

// Who names whom a request asks.
func (a *Ask) Who() string {
	if a.Party != "" {
		return "party " + a.Party + " (" + a.Name + ")"
	}
	return "node " + a.Node
}

// Said is what came of a request that has no answer.
func (a *Ask) Said() string {
	if a.Error != "" {
		return "answers " + string(a.Kind) + " with an error: " + a.Error
	}
	return "was sent " + string(a.Kind) + ", and has not answered"
}

// Work states by what they mean for those that depend on the work (S3.8).
var (
	assembledWorks = []State{Gathering, Blocked, ConfirmingDispatch, ReadyForDispatch, Dispatched, Submitted, Confirmed}
	readyWorks     = []State{ReadyForDispatch, Dispatched, Submitted, Confirmed}
)

// moved tells those that depend on a work where it went.
func (t *turn) moved(w *Work, from State) {
	assembled := slices.Contains(assembledWorks, w.State)
	back := w.Other || !assembled && slices.Contains(assembledWorks, from) && w.Outcome != Success
	for _, d := range t.d.Works {
		if d.After == w.ID && d.Origin == w.Origin && d != w {
			switch {
			case assembled || w.State == Pooled && w.Tried:
				t.raise(func() { t.work(d, OnDependencyAssembled, fact{}) })
			case w.State == Reverted:
				t.raise(func() { t.work(d, OnDependencyReverted, fact{}) })
				fallthrough
			case w.over():
				t.raise(func() { t.work(d, OnDependencyTerminated, fact{}) })
			}
		}
		if slices.Contains(d.Needs, w.ID) && d != w {
			if slices.Contains(readyWorks, w.State) && !w.Other {
				t.raise(func() { t.work(d, OnDependencyReady, fact{}) })
			} else if back && slices.Contains(earlyWorks, d.State) {
				t.raise(func() { t.work(d, OnDependencyReset, fact{text: w.ID + " went back"}) })
			}
		}
	}
}

// unassembledBefore says whether the work before this one in its delegation still waits to be assembled. One that was
// tried, and came back, holds up none: its service may be away for long.
func (t *turn) unassembledBefore(w *Work) bool {
	if w.After == "" {
		return false
	}
	before := t.d.Work(w.After)
	return before != nil && slices.Contains(poolWorks, before.State) && !(before.State == Pooled && before.Tried)
}

// producers are the works of this coordinator that make the inputs.
func (t *turn) producers(inputs []string) (ids []string) {
	for _, w := range t.d.Works {
		if w.over() || !slices.Contains(assembledWorks, w.State) {
			continue
		}
		if slices.ContainsFunc(w.Assembled.Outputs, func(o string) bool { return slices.Contains(inputs, o) }) {
			ids = append(ids, w.ID)
		}
	}
	return ids
}

// takenBy says which other work that is on its way spends one of the inputs, or "".
func (t *turn) takenBy(w *Work, inputs []string) string {
	for _, other := range t.d.Works {
		if other == w || other.over() || !slices.Contains(assembledWorks, other.State) {
			continue
		}
		for _, in := range other.Assembled.Inputs {
			if slices.Contains(inputs, in) {
				return other.ID
			}
		}
	}
	return ""
}

// gone says whether an input that was offered is made by no work any more: its work went back while this one was being
// assembled.
func (t *turn) gone(w *Work, inputs []string) bool {
	return !t.planted(GoneInputsTaken) && slices.ContainsFunc(inputs, func(in string) bool {
		return slices.Contains(w.Offered, in) && !slices.ContainsFunc(t.d.Works, func(p *Work) bool {
			made := slices.Contains(p.Assembled.Outputs, in)
			return made && !p.Other && (p.Outcome == Success || !p.over() && slices.Contains(assembledWorks, p.State))
		})
	})
}

func (t *turn) producersReady(w *Work, m *Message) bool {
	needs := w.Needs
	if w.State == Assembling {
		needs = t.producers(m.Assembled.Inputs)
	}
	return t.all(needs, readyWorks)
}

// producersOut says whether the core has the public transactions that make the inputs of a work.
func (t *turn) producersOut(w *Work) bool {
	return t.planted(ProducersForgotten) || t.all(w.Needs, []State{Dispatched, Submitted, Confirmed})
}

func (t *turn) all(ids []string, states []State) bool {
	for _, id := range ids {
		if p := t.d.Work(id); p == nil || p.Other || p.Outcome != Success && !slices.Contains(states, p.State) {
			return false
		}
	}
	return true
}

// keepAssembled takes what the assembler made, and the requests for endorsements that follow from it.
func (t *turn) keepAssembled(w *Work, f fact) {
	w.Assembled, w.Needs, w.Asks = f.m.Assembled, t.producers(f.m.Assembled.Inputs), nil
	for _, a := range w.Assembled.Plan {
		for _, party := range a.Parties {
			if a.Type == "sign" && nodeOf(party) == w.Origin {
				continue // signed before it was answered
			}
			w.Asks = append(w.Asks, &Ask{
				Kind:  EndorsementRequest,
				Node:  nodeOf(party),
				Name:  a.Name,
				Party: party,
				Key:   t.key(w, EndorsementRequest) + "." + a.Name + "." + party,
			})
		}
	}
}

// count returns how many parties of an attestation have said yes, or may still.
func (w *Work) count(a Attestation, answers ...string) int {
	n := 0
	for _, party := range a.Parties {
		signed := true
		for _, ask := range w.Asks {
			if ask.Name == a.Name && ask.Party == party {
				signed = slices.Contains(answers, ask.Answer)
			}
		}
		if signed {
			n++
		}
	}
	return n
}

func (a Attestation) needs() int {
	if a.Threshold > 0 {
		return min(a.Threshold, len(a.Parties))
	}
	return len(a.Parties)
}

// planOpen says whether signatures or endorsements are missing.
func (w *Work) planOpen(m *Message) bool {
	if w.State == Assembling {
		for _, a := range m.Assembled.Plan {
			for _, p := range a.Parties {
				if a.Type != "sign" || nodeOf(p) != w.Origin {
					return true
				}
			}
		}
		return false
	}
	return slices.ContainsFunc(w.Assembled.Plan, func(a Attestation) bool { return w.count(a, "yes") < a.needs() })
}

// possible says whether enough parties have not refused.
func (w *Work) possible() bool {
	return !slices.ContainsFunc(w.Assembled.Plan, func(a Attestation) bool { return w.count(a, "yes", "") < a.needs() })
}

func (t *turn) revertsLeft(w *Work, f fact) bool {
	retry := w.Retry
	if f.core != nil {
		retry = f.core.Retry
	}
	return retry && w.Reverts < t.d.Settings.BaseLedgerRevertThreshold
}

// room says whether the core may be handed one more.
func (t *turn) room() bool {
	n := 0
	for _, w := range t.d.Works {
		if w.dispatched() {
			n++
		}
	}
	return n < t.d.Settings.MaxDispatchAhead
}

// post hands the public transaction to the core, behind those that make its inputs.
func (t *turn) post(w *Work) {
	w.UID = w.ID + "." + t.d.Self + "." + strconv.FormatInt(w.Generation, 10)
	t.d.Seat.Posted++
	t.step.Posts = append(t.step.Posts, t.d.Post(w, t.planted(ProducersForgotten)))
	t.tell(w)
}

// Post is the public transaction of a work that is dispatched. A process that starts posts them again: the core knows
// them by their uids.
func (d *Domain) Post(w *Work, alone bool) Post {
	p := Post{
		ID:         w.ID,
		UID:        w.UID,
		Generation: w.Generation,
		Hash:       w.Assembled.Hash,
		Inputs:     w.Assembled.Inputs,
		Outputs:    w.Assembled.Outputs,
	}
	for _, id := range w.Needs {
		if n := d.Work(id); n != nil && n.UID != "" && n.Outcome != Success && !alone {
			p.DependsOn = append(p.DependsOn, n.UID)
		}
	}
	return p
}

// said takes the core's word about a public transaction. One about another generation is late.
func (t *turn) said(c *CoreWord) {
	w := t.d.Work(c.ID)
	if w == nil || w.UID != c.UID {
		t.ignore("core", "stale")
		return
	}
	f := fact{core: c, text: c.Reason}
	switch c.State {
	case CoreNonce:
		t.work(w, OnNonceAllocated, f)
	case CoreSubmitted:
		t.work(w, OnSubmitted, f)
	case CoreUndone:
		t.work(w, OnDispatchUndone, f)
	default:
		t.work(w, OnConfirmed, f)
	}
	if w.over() {
		t.raise(func() { t.coordinator(OnTransactionConfirmed, fact{}) })
	}
}

// dropOwn gives back the work of an intent that this node coordinates itself: it has its permit, and would go out
// behind the word that ends that.
func (t *turn) dropOwn(i *Intent) {
	t.dropEarly(func(w *Work) bool { return w.ID == i.ID && w.Origin == t.d.Self }, "its permit was released")
}

// dropEarly gives back works that are not dispatched.
func (t *turn) dropEarly(which func(*Work) bool, why string) {
	for _, w := range t.d.Works {
		if !w.over() && !w.dispatched() && which(w) {
			t.work(w, OnDropped, fact{text: why})
		}
	}
}
