package coord

import (
	"slices"
	"strconv"
	"time"
)

// key names a request of the present generation. It is derived, so that each resend has the same one; that makes it
// known to others, and so an answer counts only from the node that was asked.
func (t *turn) key(w *Work, kind Kind) string {
	return w.ID + "." + t.d.Self + "." + strconv.FormatInt(w.Generation, 10) + "." + string(kind)
}

// askAssemble begins a new generation and asks the originator for it.
func (t *turn) askAssemble(w *Work) {
	w.Generation = max(t.beat(), w.Generation+1)
	w.Install, w.Tried = t.d.Seat.Install, true
	w.Assembled, w.Needs, w.Prepared, w.UID, w.Nonce, w.Hash = Assembled{}, nil, false, "", 0, ""
	w.Reason, w.Retry, w.Unknown = "", false, false
	w.Offered, w.Barred = t.pending() // once: a resend is the same text
	w.Asks = []*Ask{{Kind: AssembleRequest, Node: w.Origin, Key: t.key(w, AssembleRequest)}}
	t.nudge(w)
}

// askEndorsements asks all parties that have not answered.
func (t *turn) askEndorsements(w *Work) { t.nudge(w) }

// askPermit asks the originator whether this generation may go out. It asks only once the domain's service has prepared
// the public transaction, so that a work with a permit can go at once.
func (t *turn) askPermit(w *Work) {
	w.Prepared = true
	if !slices.ContainsFunc(w.Asks, func(a *Ask) bool { return a.Kind == ConfirmationRequest }) {
		w.Asks = append(w.Asks, &Ask{Kind: ConfirmationRequest, Node: w.Origin, Key: t.key(w, ConfirmationRequest)})
	}
	t.nudge(w)
}

// nudge sends each request that was never sent, or long ago, and has no answer.
func (t *turn) nudge(w *Work) {
	for _, a := range w.Asks {
		if a.Answer != "" || !w.waitsFor(a) || !a.First.IsZero() && t.now.Sub(a.Last) < t.d.Settings.RequestTimeout {
			continue
		}
		if a.First.IsZero() {
			a.First = t.now
		}
		a.Last = t.now
		m := Message{
			Kind:       a.Kind,
			To:         a.Node,
			ID:         w.ID,
			Key:        a.Key,
			Generation: w.Generation,
			Name:       a.Name,
			Party:      a.Party,
			Hash:       w.Assembled.Hash,
		}
		switch a.Kind {
		case AssembleRequest:
			m.Pending, m.Spent = w.Offered, w.Barred
		case EndorsementRequest:
			m.Assembled = w.Assembled
		}
		t.send(m)
	}
}

// waitsFor says whether a request belongs to the state of its work.
func (w *Work) waitsFor(a *Ask) bool {
	switch a.Kind {
	case AssembleRequest:
		return w.State == Assembling
	case EndorsementRequest:
		return w.State == Gathering
	}
	return w.State == ConfirmingDispatch
}

// over says whether a work has waited for its answers for too long.
func (t *turn) over(w *Work) bool { return t.now.Sub(w.Since) >= t.d.Settings.StateTimeout }

// backOff has a work wait longer after each try in which something did not answer: a try is a generation, with rows and
// data of its own at each node.
func (t *turn) backOff(w *Work, _ fact) {
	first := t.d.Settings.RequestTimeout
	w.NotBefore = t.now.Add(min(first<<(min(w.Errors, 6)-1), max(first, backOffMost)))
}

const backOffMost = time.Minute

// MostPending is how many bytes the states may have that are assembled, and not on the ledger yet: all may go along
// with a request to assemble. A call of a peer has at most 1 MiB, and one more assembly at most 512 KiB.
const MostPending = 256 << 10

// Full says whether nothing is assembled before some of what is on its way is over.
func (d *Domain) Full() bool {
	size := 0
	for _, w := range d.Works {
		if w.pending() {
			size += w.Assembled.Size
		}
	}
	return size >= MostPending
}

// pending says whether a work is assembled, and the ledger does not have it.
func (w *Work) pending() bool { return !w.over() && slices.Contains(assembledWorks, w.State) }

// pending is what an assembler may use though the ledger does not have it, and what it may not though it has.
func (t *turn) pending() (outputs, spent []string) {
	spent = slices.Clone(t.d.Seat.Spent)
	for _, w := range t.d.Works {
		if w.pending() {
			outputs = append(outputs, w.Assembled.Outputs...)
			spent = append(spent, w.Assembled.Inputs...)
		}
	}
	outputs = slices.DeleteFunc(outputs, func(o string) bool { return slices.Contains(spent, o) })
	return outputs, spent
}

// stale says whether an answer is not to the request that waits for one, or not from the node that was asked, or was
// meant for the life before.
func (t *turn) stale(w *Work, m *Message) bool {
	if m.From != w.Origin && !t.planted(ForeignYesBelieved) {
		return true
	}
	if m.For != 0 && m.For != t.d.Seat.Install && !t.planted(OldInstallBelieved) {
		return true
	}
	for _, a := range w.Asks {
		if a.Key == m.Key && a.Answer == "" && w.waitsFor(a) {
			return false
		}
	}
	return !t.planted(StaleKeyBelieved)
}

func (t *turn) onAssembleAnswer(_ *Peer, m *Message) {
	w := t.d.Work(m.ID)
	if w == nil {
		t.ignore(string(m.Kind), "unknown")
		return
	}
	on := map[Kind]On{AssembleError: OnAssembleError, AssembleRejected: OnAssembleRejected}[m.Kind]
	if m.Kind == AssembleResponse {
		on = map[string]On{
			OK:     OnAssembleSuccess,
			Revert: OnAssembleRevertResponse,
			Park:   OnAssembleParkResponse,
		}[m.Result]
	}
	t.work(w, on, fact{m: m, text: m.Reason})
}

func (t *turn) onConfirmation(_ *Peer, m *Message) {
	w := t.d.Work(m.ID)
	if w == nil {
		t.ignore(string(m.Kind), "unknown")
		return
	}
	on := OnDispatchConfirmed
	if m.Kind == ConfirmationRejected {
		on = OnConfirmationRejected
	}
	t.work(w, on, fact{m: m, text: m.Reason})
}

func (t *turn) onEndorsement(p *Peer, m *Message) {
	w := t.d.Work(m.ID)
	if w == nil || w.State != Gathering {
		t.ignore(string(m.Kind), "stale")
		return
	}
	for _, a := range w.Asks {
		if a.Key != m.Key || a.Node != p.Node || a.Answer != "" {
			continue
		}
		if m.Kind == EndorsementResponse {
			a.Answer = "yes"
			t.work(w, OnEndorsed, fact{m: m})
		} else {
			a.Answer = "no"
			t.work(w, OnEndorsedRejected, fact{m: m, text: m.Reason})
		}
		return
	}
	t.ignore(string(m.Kind), "stale")
}

// onEndorsementError keeps why an endorser has not answered. It is no refusal: the endorser is asked again, and later
// the work is assembled anew.
func (t *turn) onEndorsementError(p *Peer, m *Message) {
	if w := t.d.Work(m.ID); w != nil && w.State == Gathering {
		for _, a := range w.Asks {
			if a.Key == m.Key && a.Node == p.Node && a.Answer == "" {
				a.Error = m.Reason
				return
			}
		}
	}
	t.ignore(string(m.Kind), "stale")
}

// onEndorsementRequest has the domain's service asked, for whichever node coordinates.
func (t *turn) onEndorsementRequest(p *Peer, m *Message) {
	if p.Node != t.d.Self && t.d.Settings.Mode != Sender {
		t.coordinator(OnEndorsementRequested, fact{m: m, p: p})
	}
	// One that began the generation anew waits for no answer about an older one.
	t.d.Calls = slices.DeleteFunc(t.d.Calls, func(c *Call) bool {
		return c.Kind == "endorse" && c.Node == p.Node && c.ID == m.ID && c.Name == m.Name && c.Party == m.Party &&
			c.Generation < m.Generation
	})
	t.call(Call{
		Key:        m.Key,
		Kind:       "endorse",
		ID:         m.ID,
		Generation: m.Generation,
		Node:       p.Node,
		Name:       m.Name,
		Party:      m.Party,
		Assembled:  m.Assembled,
	})
}

// call asks the domain's service, unless it is being asked under this key.
func (t *turn) call(c Call) {
	if slices.ContainsFunc(t.d.Calls, func(open *Call) bool { return open.Key == c.Key }) {
		return
	}
	t.d.Calls = append(t.d.Calls, &c)
	t.step.Calls = append(t.step.Calls, &c)
}

func (t *turn) callPrepare(w *Work) {
	t.call(Call{
		Key:        t.key(w, "prepare"),
		Kind:       "prepare",
		ID:         w.ID,
		Generation: w.Generation,
		Assembled:  w.Assembled,
	})
}

// look asks whether the ledger has the intent of a work.
func (t *turn) look(w *Work) {
	if !t.d.Settings.Look {
		return
	}
	w.LookedAt = t.now
	t.call(Call{Key: t.key(w, "look"), Kind: "look", ID: w.ID, Generation: w.Generation})
}

// answered takes what the domain's service says. An answer to a call that is not open is late.
func (t *turn) answered(a *Answer) {
	at := slices.IndexFunc(t.d.Calls, func(c *Call) bool { return c.Key == a.Key })
	if at < 0 || t.d.Still() {
		t.ignore("answer", "stale") // of a domain that is still: it is called again
		return
	}
	c := t.d.Calls[at]
	t.d.Calls = slices.Delete(t.d.Calls, at, at+1)
	i, w := t.d.Intent(c.ID), t.d.Work(c.ID)
	f := fact{ans: a, text: a.Reason}
	switch {
	case c.Kind == "endorse":
		m := Message{Kind: EndorsementResponse, To: c.Node, ID: c.ID, Key: c.Key, Generation: c.Generation,
			Name: c.Name, Party: c.Party}
		switch a.Result {
		case OK:
		case Err:
			m.Kind, m.Reason = EndorsementError, a.Reason
		default:
			m.Kind, m.Reason = EndorsementRejected, a.Reason
		}
		t.send(m)
	case c.Kind == "look" && c.Generation == 0:
		if i != nil && a.Result == Fulfilled {
			t.intent(i, OnFulfilled, f)
		}
	case c.Kind == "look" && w != nil && w.Generation == c.Generation:
		t.work(w, OnLooked, f)
		if w.over() {
			t.raise(func() { t.coordinator(OnTransactionConfirmed, fact{}) })
		}
	case c.Kind == "prepare" && w != nil && w.Generation == c.Generation && w.State == ConfirmingDispatch:
		t.work(w, map[bool]On{true: OnPrepareDone, false: OnPrepareError}[a.Result == OK], f)
	case (c.Kind == "assemble" || c.Kind == "sign") && i != nil && i.Generation == c.Generation:
		t.assembled(i, c, f)
	default:
		t.ignore("answer", "stale")
	}
}

func (t *turn) assembled(i *Intent, c *Call, f fact) {
	on := map[string]On{OK: OnAssembleAndSignSuccess, Revert: OnAssembleRevert, Park: OnAssemblePark}[f.ans.Result]
	switch {
	case on == "":
		on = OnAssembleError
	case c.Kind == "assemble" && i.State != Assembling || c.Kind == "sign" && i.State != Signing:
		t.ignore("answer", "stale")
		return
	case on == OnAssembleAndSignSuccess && c.Kind == "assemble":
		i.Assembled, on = f.ans.Assembled, OnAssembled
	}
	t.intent(i, on, f)
	if i.State == Parked && f.ans.After > 0 {
		i.ResumeAt = t.now.Add(f.ans.After)
	}
}
