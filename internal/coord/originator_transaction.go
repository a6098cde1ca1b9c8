package coord

import (
	"slices"

	"github.com/postern-dev/postern/internal/machine"
)

var (
	liveIntents = []State{Pending, Delegated, Assembling, Signing, EndorsementGathering, Prepared, Dispatched,
		Sequenced, Submitted, Parked}
	delegatedIntents = []State{Delegated, Assembling, Signing, EndorsementGathering, Prepared, Dispatched,
		Sequenced, Submitted}
	assembledIntents = []State{Assembling, Signing, EndorsementGathering, Prepared}
	outIntents       = []State{Dispatched, Sequenced, Submitted}
)

// CancelledIn are the states in which an intent may be cancelled, unless a permit for it may still be used. A
// coordinator that has it assembled, endorsed or prepared meanwhile gets no permit behind its end, and so posts
// nothing: its next request is answered with TransactionUnknown, which ends its work.
var CancelledIn = []State{Pending, Delegated, Parked, Assembling, Signing, EndorsementGathering}

// OriginatorTransaction is the life of an intent (S3.11).
var OriginatorTransaction = table("originator_transaction", Pending, []State{Confirmed, Reverted},
	map[State][]string{Confirmed: {"succeed"}, Reverted: {"fail"}, Assembling: {"call_assemble"}},
	[]machine.Rule{
		rule(machine.Start, OnCreated, "dependency_failed", Reverted),
		rule(machine.Start, OnCreated, "", Pending),
		rule(Pending, OnDelegated, "", Delegated),
		rule(Pending, OnDependencyFailed, "ends_known", Reverted),
		rule(Delegated, OnAssembleRequestReceived, "request_counts", Assembling, "begin"),
		rule(Delegated, OnAssembleRequestReceived, "", Delegated, "reject"),
		rule(Delegated, OnDispatched, "", Dispatched),
		rule(Assembling, OnAssembled, "local_signature", Signing, "call_sign"),
		rule(Assembling, OnAssembled, "", Assembling, "signed"),
	},
	slices.Concat(
		each([]State{Assembling, Signing}, OnAssembleAndSignSuccess, "", EndorsementGathering, "answer"),
		each([]State{Assembling, Signing}, OnAssembleRevert, "ends_known", Reverted, "answer"),
		each([]State{Assembling, Signing}, OnAssembleRevert, "", Delegated, "keep_failure", "answer_error"),
		each([]State{Assembling, Signing}, OnAssemblePark, "", Parked, "answer"),
		each([]State{Assembling, Signing}, OnAssembleError, "", Delegated, "answer_error"),
		each(assembledIntents, OnAssembleRequestReceived, "answered", "", "answer_again"),
		each(assembledIntents, OnAssembleRequestReceived, "in_work", ""),
		[]machine.Rule{ // from Assembling to Assembling: the entry is no entry
			rule(Assembling, OnAssembleRequestReceived, "request_counts", Assembling, "begin", "call_assemble"),
		},
		each([]State{Signing, EndorsementGathering, Prepared}, OnAssembleRequestReceived, "request_counts", Assembling,
			"begin"),
		each(assembledIntents, OnAssembleRequestReceived, "", "", "reject"),
		each(outIntents, OnAssembleRequestReceived, "request_counts", Assembling, "begin"),
		each(outIntents, OnAssembleRequestReceived, "", "", "reject"),
		each([]State{EndorsementGathering, Prepared}, OnConfirmationRequestReceived, "may_confirm", Prepared, "permit"),
		each([]State{EndorsementGathering, Prepared}, OnConfirmationRequestReceived, "not_delegate", "",
			"reject_confirmation"),
		each([]State{EndorsementGathering, Prepared}, OnConfirmationRequestReceived, "", ""),
	),
	[]machine.Rule{
		rule(Prepared, OnDispatched, "", Dispatched),
		rule(Dispatched, OnNonceAssigned, "", Sequenced, "keep_nonce"),
	},
	each(outIntents, OnSubmitted, "", Submitted, "keep_hash"),
	each(liveIntents, OnConfirmedSuccess, "", Confirmed),
	each(liveIntents, OnFulfilled, "", Confirmed),
	each(liveIntents, OnConfirmedReverted, "failed_for_good", Reverted),
	each(liveIntents, OnConfirmedReverted, "failed", "", "look"),
	each(delegatedIntents, OnConfirmedReverted, "", Delegated, "delegate_again"),
	each(delegatedIntents, OnCoordinatorChanged, "permit_free", Delegated, "delegate_anew"),
	each(delegatedIntents, OnCoordinatorChanged, "", ""),
	[]machine.Rule{rule(Pending, OnCoordinatorChanged, "", Pending, "delegate_again")},
	each(CancelledIn, OnCancelled, "ends_known", Reverted),
	[]machine.Rule{
		rule(Parked, OnResumed, "", Pending, "forget"),
		rule(Parked, OnAssembleRequestReceived, "answered", Parked, "answer_again"),
		rule(Parked, OnAssembleRequestReceived, "", Parked, "reject"),
		rule(Parked, OnCoordinatorChanged, "", Parked),
	},
)

var intents binding[*Intent]

func init() {
	intents = binding[*Intent]{table: &OriginatorTransaction, guards: intentGuards, effects: intentEffects}
}

var intentGuards = map[string]func(*turn, *Intent, fact) bool{
	"dependency_failed": func(t *turn, i *Intent, _ fact) bool { return t.dependencyFailed(i) != "" },
	"ends_known":        func(t *turn, i *Intent, _ fact) bool { return t.endsKnown(i) },
	"permit_free":       func(t *turn, i *Intent, _ fact) bool { return i.Failed == "" && t.free(i) },
	"request_counts":    func(t *turn, i *Intent, f fact) bool { return t.refusal(i, f.m) == "" },
	"answered":          func(_ *turn, i *Intent, f fact) bool { return f.m.Key == i.Key && i.Response != nil },
	"in_work":           func(_ *turn, i *Intent, f fact) bool { return f.m.Key == i.Key },
	"local_signature":   func(t *turn, i *Intent, _ fact) bool { return i.signer(t.d.Self) != "" },
	"may_confirm":       func(t *turn, i *Intent, f fact) bool { return t.mayConfirm(i, f.m) },
	"not_delegate":      func(_ *turn, i *Intent, f fact) bool { return f.m.From != i.Delegate },
	"failed":            func(_ *turn, i *Intent, _ fact) bool { return i.Failed != "" },
	"failed_for_good": func(t *turn, i *Intent, _ fact) bool {
		return i.Failed != "" && t.endsKnown(i)
	},
}

var intentEffects = map[string]func(*turn, *Intent, fact){
	"succeed":       func(t *turn, i *Intent, f fact) { t.receipt(i, Success, f.text) },
	"fail":          func(t *turn, i *Intent, f fact) { t.receipt(i, Failure, t.whyFailed(i, f)) },
	"begin":         (*turn).begin,
	"call_assemble": (*turn).callAssemble,
	"call_sign":     (*turn).callSign,
	"signed": func(t *turn, i *Intent, f fact) {
		t.raise(func() { t.intent(i, OnAssembleAndSignSuccess, f) })
	},
	"answer":       (*turn).answerAssemble,
	"keep_failure": func(_ *turn, i *Intent, f fact) { i.Failed = f.text },
	"answer_error": (*turn).answerError,
	"answer_again": func(t *turn, i *Intent, _ fact) { t.send(*i.Response) },
	"reject": func(t *turn, i *Intent, f fact) {
		t.send(Message{Kind: AssembleRejected, To: f.m.From, ID: i.ID, Key: f.m.Key, Generation: f.m.Generation,
			Reason: t.refusal(i, f.m)})
	},
	"permit": func(t *turn, i *Intent, f fact) {
		t.give(i, f.m)
		i.Trouble = ""
		t.send(Message{Kind: DispatchConfirmed, To: f.m.From, ID: i.ID, Key: f.m.Key, Generation: f.m.Generation,
			For: f.m.Install})
	},
	"reject_confirmation": func(t *turn, i *Intent, f fact) {
		t.send(Message{Kind: ConfirmationRejected, To: f.m.From, ID: i.ID, Key: f.m.Key, Generation: f.m.Generation,
			For: f.m.Install, Reason: NotCurrentDelegate})
	},
	"keep_nonce":     func(_ *turn, i *Intent, f fact) { i.Nonce = f.entry.Nonce },
	"keep_hash":      func(_ *turn, i *Intent, f fact) { i.Hash = f.entry.Hash },
	"look":           func(t *turn, _ *Intent, _ fact) { t.lookFor() },
	"delegate_again": func(t *turn, _ *Intent, _ fact) { t.raise(t.reverted) },
	"delegate_anew": func(t *turn, i *Intent, _ fact) {
		i.forget()
		t.delegateSoon()
	},
	"forget": func(_ *turn, i *Intent, _ fact) { i.forget() },
}

// forget is what an intent does with all that belongs to a coordinator that it leaves.
func (i *Intent) forget() {
	i.Delegate, i.Acked, i.Key, i.Response, i.Assembled = "", 0, "", nil, Assembled{}
	i.Said, i.SaidWhy = "", ""
}

// signer is the attestation that is to be signed by a party of a node, or "".
func (i *Intent) signer(node string) string {
	for _, a := range i.Assembled.Plan {
		for _, party := range a.Parties {
			if a.Type == "sign" && nodeOf(party) == node {
				return a.Name
			}
		}
	}
	return ""
}

// refusal says why a request to assemble does not count, or "".
func (t *turn) refusal(i *Intent, m *Message) string {
	ahead, most := m.Height-t.d.Height, t.d.Settings.BlockHeightTolerance
	switch {
	case i.State == Parked || i.State == Pending:
		return TransactionUnknown
	case m.From != i.Delegate || m.Generation <= i.Generation && !t.planted(GenerationNotCompared):
		return NotCurrentDelegate
	case ahead > most || ahead < -most:
		return HeightTolerance
	}
	why := ""
	t.permits(i.ID, func(p *Permit) {
		if t.blocking(p) && !t.overBy(p, m) {
			why = NotCurrentDelegate
		}
	})
	if t.planted(TwoPermits) {
		return ""
	}
	return why
}

// overBy says whether a request for a newer generation means that the dispatch of a permit is over: the holder asks
// only then. A presumed permit may be of any generation, and a request, which may be an old one, does not end it.
func (t *turn) overBy(p *Permit, m *Message) bool {
	newer := m.Generation > p.Generation || t.planted(GenerationNotCompared)
	return p.Generation != 0 && p.Node == m.From && p.Install == m.Install && newer
}

// begin takes the request of a new generation.
func (t *turn) begin(i *Intent, f fact) {
	t.permits(i.ID, func(p *Permit) {
		if t.overBy(p, f.m) {
			t.end(p, "assembled anew")
		}
	})
	i.Generation, i.Key, i.Response, i.Assembled, i.Failed = f.m.Generation, f.m.Key, nil, Assembled{}, ""
}

func (t *turn) callAssemble(i *Intent, f fact) {
	t.call(Call{
		Key:        i.Key,
		Kind:       "assemble",
		ID:         i.ID,
		Generation: i.Generation,
		Pending:    f.m.Pending,
		Spent:      f.m.Spent,
	})
}

func (t *turn) callSign(i *Intent, _ fact) {
	t.call(Call{
		Key:        i.Key + ".sign",
		Kind:       "sign",
		ID:         i.ID,
		Generation: i.Generation,
		Name:       i.signer(t.d.Self),
		Assembled:  i.Assembled,
	})
}

// answerAssemble sends what came of an assemble request and keeps it, so that the same request gets it again.
func (t *turn) answerAssemble(i *Intent, f fact) {
	m := Message{Kind: AssembleResponse, To: i.Delegate, ID: i.ID, Key: i.Key, Generation: i.Generation, Result: OK}
	switch i.State {
	case Reverted:
		m.Result, m.Reason = Revert, f.text
	case Parked:
		m.Result, m.Reason = Park, f.text
	default:
		m.Assembled, m.Hash = i.Assembled, i.Assembled.Hash
	}
	i.Response = &m
	t.send(m)
	if i.State == Parked {
		t.raise(t.settled)
	}
}

func (t *turn) answerError(i *Intent, f fact) {
	t.send(Message{Kind: AssembleError, To: i.Delegate, ID: i.ID, Key: i.Key, Generation: i.Generation, Reason: f.text})
	i.Key, i.Trouble = "", f.text
	t.raise(t.lookFor)
}

func (t *turn) whyFailed(i *Intent, f fact) string {
	if f.text == "" {
		return t.dependencyFailed(i)
	}
	return f.text
}
