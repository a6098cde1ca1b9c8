package leader

import "github.com/postern-dev/postern/internal/machine"

// The states of a message of a high-integrity channel (S1.15). The seed's two sets are Queued with Offered,
// and Active.
const (
	MessageQueued  = "Queued"
	MessageOffered = "Offered"
	MessageActive  = "Active"
	MessageAcked   = "Acked"
	MessageDropped = "Dropped"
)

// What happens to a message.
const (
	MessageSent     = "Sent"     // its sender brings it
	MessageReceived = "Received" // a receiver takes it
	MessageOk       = "Ok"       // its receiver has processed it
	MessageErr      = "Err"      // its receiver could not
	MessageDrawn    = "Drawn"    // the retrier met it
	MessageStale    = "Stale"    // the sweeper found it held for too long, or by who is dead
)

// Message is the life of a message, as both diagrams of the seed tell it together.
var Message = machine.Table{
	Name: "channel_message", Seed: "1-leader.md", Initial: MessageQueued, Terminal: []string{MessageAcked, MessageDropped},
	Events: []string{MessageSent, MessageReceived, MessageOk, MessageErr, MessageDrawn, MessageStale},
	Rules: []machine.Rule{
		// the sender: what exists is not sent again, and is stored before there is room for it
		{From: machine.Start, On: MessageSent, When: "room", To: MessageOffered, Do: []string{"store"}},
		{From: machine.Start, On: MessageSent, To: MessageQueued, Do: []string{"store"}},
		{From: MessageQueued, On: MessageSent, To: MessageQueued},
		{From: MessageOffered, On: MessageSent, To: MessageOffered},
		{From: MessageActive, On: MessageSent, To: MessageActive},
		// the receiver
		{From: MessageOffered, On: MessageReceived, To: MessageActive, Do: []string{"raise_fence"}},
		{From: MessageActive, On: MessageOk, To: MessageAcked, Do: []string{"record"}},
		{From: MessageActive, On: MessageErr, To: MessageQueued, Do: []string{"count_retry", "draw_anew"}},
		// the retrier
		{From: MessageQueued, On: MessageDrawn, When: "max_retries_reached", To: MessageDropped, Do: []string{"record", "tell_owner"}},
		{From: MessageQueued, On: MessageDrawn, When: "room", To: MessageOffered},
		{From: MessageQueued, On: MessageDrawn, To: MessageQueued},
		// the sweeper
		{From: MessageActive, On: MessageStale, To: MessageQueued, Do: []string{"raise_fence", "draw_anew"}},
	},
}

// MessageFacts is what a decision about a message goes by.
type MessageFacts struct {
	Retries, MaxRetries int
	Room                bool // fewer are offered than the channel holds
}

// MessageStep is what is to be done about a message.
type MessageStep struct {
	To         string
	Store      bool // it is new
	RaiseFence bool // who held it holds it no longer
	CountRetry bool
	DrawAnew   bool // the retrier is to meet it somewhere else
	Record     bool // it has ended: remove it, and write down how
	TellOwner  bool
}

var messageGuards = map[string]func(MessageFacts) bool{
	"room":                func(f MessageFacts) bool { return f.Room },
	"max_retries_reached": func(f MessageFacts) bool { return f.Retries >= f.MaxRetries },
}

var messageEffects = map[string]func(*MessageStep){
	"store":       func(s *MessageStep) { s.Store = true },
	"raise_fence": func(s *MessageStep) { s.RaiseFence = true },
	"count_retry": func(s *MessageStep) { s.CountRetry = true },
	"draw_anew":   func(s *MessageStep) { s.DrawAnew = true },
	"record":      func(s *MessageStep) { s.Record = true },
	"tell_owner":  func(s *MessageStep) { s.TellOwner = true },
}

// NextMessage decides what an event does to a message in a state, machine.Start for one that does not exist.
// *machine.Illegal: it means nothing there.
func NextMessage(state, event string, f MessageFacts) (MessageStep, error) {
	r, err := Message.Next(state, event, func(name string) bool { return messageGuards[name](f) })
	if err != nil {
		return MessageStep{}, err
	}
	s := MessageStep{To: r.To}
	for _, name := range r.Do {
		messageEffects[name](&s)
	}
	return s, nil
}
