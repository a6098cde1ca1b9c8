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
	Kind     Kind
	From, To string
	Install  int64
	Beat     int64
	Height   int64
	Digest   string

	ID         string
	Generation int64
	Key        string
	For        int64 // the install of the one that asked
	Name       string
	Party      string
	Hash       string
	Result     string
	Reason     string
	Assembled  Assembled
	Pending    []string
	Spent      []string

	Delegations []Delegation
	IDs         []string // taken, asked for, or acknowledged
	Refused     []string // no room
	Entries     []Entry
	Echo        int64 // the beat of the question
	State       State // the coordinator's
	Tenure      time.Duration
	Successor   string
	Points      []string

	GapFrom, GapTo    int64 // no beat between the two was said by the sender's present life
	Seen, SeenInstall int64 // of Greeting: the highest that was heard before the gap ended
}

// Delegation is one intent that is handed to a coordinator, in the order of its originator.
type Delegation struct {
	ID         string
	Generation int64
}

// Entry is a coordinator's word about one intent.
type Entry struct {
	ID         string
	State      State // "": it has no such work
	Generation int64
	Install    int64 // that of the generation
	Nonce      int64
	Hash       string
	Outcome    string
	Reason     string
}

// Slot is the place of a message among those that wait for their peer: a newer one takes the place of the older.
func (m *Message) Slot() string {
	return string(m.Kind) + "/" + m.ID + "/" + m.Name + "/" + m.Party
}

// send marks a message and sends it. A message to this node itself is handled in the same step.
func (t *turn) send(m Message) {
	s := &t.d.Seat
	m.From, m.Height, m.Digest = t.d.Self, t.d.Height, t.d.digest()
	m.Install, m.Beat, m.GapFrom, m.GapTo = s.Install, t.beat(), s.GapFrom, s.GapTo
	if m.To == t.d.Self {
		t.raise(func() { t.receive(&m) })
		return
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
	if m.Height > p.Height {
		p.Height = m.Height
	}
	p.Digest = m.Digest
	if !t.d.Seat.HelloAt.IsZero() {
		return "hello"
	}
	return ""
}
