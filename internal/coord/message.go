package coord

import "time"

// Kind is what a coordination message says.
type Kind string

// The kinds of messages between the nodes of a domain.
const (
	DelegationRequest    Kind = "DelegationRequest"
	DelegationResponse   Kind = "DelegationResponse"
	DelegationRejected   Kind = "DelegationRejected"
	AssembleRequest      Kind = "AssembleRequest"
	AssembleResponse     Kind = "AssembleResponse"
	AssembleError        Kind = "AssembleError"
	AssembleRejected     Kind = "AssembleRejected"
	EndorsementRequest   Kind = "EndorsementRequest"
	EndorsementResponse  Kind = "EndorsementResponse"
	EndorsementRejected  Kind = "EndorsementRejected"
	EndorsementError     Kind = "EndorsementError" // no answer came of it
	ConfirmationRequest  Kind = "DispatchConfirmationRequest"
	DispatchConfirmed    Kind = "DispatchConfirmed"
	ConfirmationRejected Kind = "DispatchConfirmationRejected"
	Heartbeat            Kind = "Heartbeat"
	Told                 Kind = "Told"         // words about some intents: when one changes, and in answer to Asked
	Asked                Kind = "Ask"          // what became of these
	Acknowledged         Kind = "Acknowledged" // the outcomes of these are stored
	HandoverRequest      Kind = "HandoverRequest"
	Handover             Kind = "Handover"
	Hello                Kind = "Hello" // all processes were down
	Greeting             Kind = "Greeting"
)

// The reasons of rejections.
const (
	HeightTolerance    = "BLOCK_HEIGHT_TOLERANCE"
	NotCurrentDelegate = "NOT_CURRENT_DELEGATE"
	TransactionUnknown = "TRANSACTION_UNKNOWN"
	NotActive          = "NOT_ACTIVE"
)

// Message is one word of a node to another. It may be lost, doubled and late.
type Message struct {
	Kind    Kind   `json:"kind"`
	From    string `json:"from"`
	To      string `json:"to"`
	Install int64  `json:"install"`
	Beat    int64  `json:"beat"`
	Height  int64  `json:"height"`
	Digest  string `json:"digest,omitempty"`

	ID         string    `json:"id,omitempty"`
	Generation int64     `json:"generation,omitempty"`
	Key        string    `json:"key,omitempty"`
	For        int64     `json:"for,omitempty"` // the install of the one that asked
	Name       string    `json:"name,omitempty"`
	Party      string    `json:"party,omitempty"`
	Hash       string    `json:"hash,omitempty"`
	Result     string    `json:"result,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Assembled  Assembled `json:"assembled,omitzero"`
	Pending    []string  `json:"pending,omitempty"`
	Spent      []string  `json:"spent,omitempty"`

	Delegations []Delegation  `json:"delegations,omitempty"`
	IDs         []string      `json:"ids,omitempty"`     // taken, asked for, or acknowledged
	Refused     []string      `json:"refused,omitempty"` // no room
	Room        *int          `json:"room,omitempty"`    // how many more works the sender takes now, of all nodes
	Entries     []Entry       `json:"entries,omitempty"`
	Echo        int64         `json:"echo,omitempty"`  // the beat of the question
	State       State         `json:"state,omitempty"` // the coordinator's
	Tenure      time.Duration `json:"tenure,omitempty"`
	Successor   string        `json:"successor,omitempty"`
	Points      []string      `json:"points,omitempty"`

	// No beat between the two was said by the sender's present life.
	GapFrom int64 `json:"gap_from,omitempty"`
	GapTo   int64 `json:"gap_to,omitempty"`
	// Of Greeting: the highest that was heard before the gap ended.
	Seen        int64 `json:"seen,omitempty"`
	SeenInstall int64 `json:"seen_install,omitempty"`
}

// Delegation is one intent that is handed to a coordinator, in the order of its originator.
type Delegation struct {
	ID         string `json:"id"`
	Generation int64  `json:"generation"`
	Counts     Counts `json:"counts,omitzero"` // so far
}

// Entry is a coordinator's word about one intent.
type Entry struct {
	ID         string `json:"id"`
	State      State  `json:"state,omitempty"` // "": it has no such work
	Generation int64  `json:"generation,omitempty"`
	Install    int64  `json:"install,omitempty"` // that of the generation
	Nonce      int64  `json:"nonce,omitempty"`
	Hash       string `json:"hash,omitempty"`
	Outcome    string `json:"outcome,omitempty"`
	Reason     string `json:"reason,omitempty"`
	Counts     Counts `json:"counts,omitzero"`
}

// Slot is the place of a message among those that wait for their peer: a newer one takes the place of the older. One
// that is about several intents stands in the place of the first of them.
func (m *Message) Slot() string {
	id := m.ID
	switch {
	case m.Kind == Heartbeat || id != "":
	case len(m.Delegations) > 0:
		id = m.Delegations[0].ID
	case len(m.Entries) > 0:
		id = m.Entries[0].ID
	case len(m.IDs) > 0:
		id = m.IDs[0]
	case len(m.Refused) > 0:
		id = m.Refused[0]
	}
	return string(m.Kind) + "/" + id + "/" + m.Name + "/" + m.Party
}

// Known says whether this version handles messages of a kind.
func (k Kind) Known() bool { return handlers[k] != nil }

// send marks a message and sends it. A message to this node itself is handled in the same step. A node that waits for
// greetings says nothing else: others would take a word of that time for one of a life that is lost.
func (t *turn) send(m Message) {
	s := &t.d.Seat
	if !s.HelloAt.IsZero() && m.Kind != Hello && m.Kind != Greeting {
		return
	}
	m.From, m.Height, m.Digest = t.d.Self, t.d.Height, t.d.digest()
	m.Install, m.Beat, m.GapFrom, m.GapTo = s.Install, t.beat(), s.GapFrom, s.GapTo
	if m.To == t.d.Self {
		t.raise(func() { t.receive(&m) })
		return
	}
	if t.d.peer(m.To) == nil {
		return // it has left the domain
	}
	t.step.Messages = append(t.step.Messages, &m)
}

// beat returns a number above all that this node has used, and not below its clock.
func (t *turn) beat() int64 {
	t.d.Seat.Beat = max(t.d.Seat.Beat+1, t.now.UnixMicro())
	return t.d.Seat.Beat
}

// handlers say what a message leads to.
var handlers map[Kind]func(*turn, *Peer, *Message)

func init() {
	handlers = map[Kind]func(*turn, *Peer, *Message){
		DelegationRequest:    (*turn).onDelegations,
		DelegationResponse:   (*turn).onDelegationResponse,
		DelegationRejected:   (*turn).onDelegationRejected,
		AssembleRequest:      (*turn).onAssembleRequest,
		AssembleResponse:     (*turn).onAssembleAnswer,
		AssembleError:        (*turn).onAssembleAnswer,
		AssembleRejected:     (*turn).onAssembleAnswer,
		EndorsementRequest:   (*turn).onEndorsementRequest,
		EndorsementResponse:  (*turn).onEndorsement,
		EndorsementRejected:  (*turn).onEndorsement,
		EndorsementError:     (*turn).onEndorsementError,
		ConfirmationRequest:  (*turn).onConfirmationRequest,
		DispatchConfirmed:    (*turn).onConfirmation,
		ConfirmationRejected: (*turn).onConfirmation,
		Heartbeat:            (*turn).onHeartbeat,
		Told:                 (*turn).onTold,
		Asked:                (*turn).onAsked,
		Acknowledged:         (*turn).onAcknowledged,
		HandoverRequest:      (*turn).onHandoverRequest,
		Handover:             (*turn).onHandover,
		Hello:                (*turn).onHello,
		Greeting:             (*turn).onGreeting,
	}
}

// receive takes a message: it is handled, or ignored with the reason. To ignore one is no error, since the wire may
// bring anything, late and twice.
func (t *turn) receive(m *Message) {
	p := t.d.peer(m.From)
	handle := handlers[m.Kind]
	switch {
	case p == nil || m.To != t.d.Self:
		t.ignore(string(m.Kind), "foreign")
		return
	case handle == nil:
		t.ignore(string(m.Kind), "unsupported")
		return
	case t.d.Paused:
		t.ignore(string(m.Kind), "paused")
		return
	}
	if m.From != t.d.Self && m.Kind != Hello && m.Kind != Greeting {
		if why := t.hear(p, m); why != "" {
			t.ignore(string(m.Kind), why)
			return
		}
	}
	t.roomTold(p, m)
	handle(t, p, m)
}

// heard takes note of a sign of life.
func (p *Peer) heard(now time.Time) { p.HeardAt, p.Silent, p.Silences = now, noTime, 0 }

// hear keeps what a message says of its sender, or returns why it does not count.
func (t *turn) hear(p *Peer, m *Message) string {
	believe := t.planted(OldInstallBelieved)
	switch {
	case m.Install < p.Install && !believe:
		return "old_install"
	case m.Install > p.Install:
		t.newInstall(p, m.Install)
	}
	switch t.gap(p, m); {
	case m.Beat > p.GapFrom && m.Beat < p.GapTo && !believe:
		return "lost_life"
	}
	p.heard(t.now)
	if m.Height > p.Height || t.d.believed(p.Height) != p.Height { // a height that was wrong does not stay
		p.Height = m.Height
	}
	p.Digest = m.Digest
	if !t.d.Seat.HelloAt.IsZero() {
		return "hello"
	}
	return ""
}
