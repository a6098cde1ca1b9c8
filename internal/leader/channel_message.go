package leader

import "github.com/postern-dev/postern/internal/machine"

// The states of a message of a high-integrity channel (S1.15). The published design has two sets: Queued with Offered,
// and Active.
const (
	ChannelMessageQueued  = "Queued"
	ChannelMessageOffered = "Offered"
	ChannelMessageActive  = "Active"
	ChannelMessageAcked   = "Acked"
	ChannelMessageDropped = "Dropped"
)

// Events of a channel message.
const (
	ChannelMessageSent     = "Sent"     // its sender brings it
	ChannelMessageReceived = "Received" // a receiver takes it
	ChannelMessageOk       = "Ok"       // its receiver has processed it
	ChannelMessageErr      = "Err"      // its receiver could not
	ChannelMessageDrawn    = "Drawn"    // the retrier met it
	ChannelMessageStale    = "Stale"    // the sweeper found it held for too long, or by who is dead
)

// ChannelMessage is the life of a message of a channel.
var ChannelMessage = machine.Table{
	Name:     "channel_message",
	Follows:  "the leader of Talus Nexus",
	Initial:  ChannelMessageQueued,
	Terminal: []string{ChannelMessageAcked, ChannelMessageDropped},
	Events:   []string{ChannelMessageSent, ChannelMessageReceived, ChannelMessageOk, ChannelMessageErr, ChannelMessageDrawn, ChannelMessageStale},
	Rules: []machine.Rule{
		// the sender: what exists is not sent again, and is stored before there is room for it
		{From: machine.Start, On: ChannelMessageSent, When: "room", To: ChannelMessageOffered, Do: []string{"store"}},
		{From: machine.Start, On: ChannelMessageSent, To: ChannelMessageQueued, Do: []string{"store"}},
		{From: ChannelMessageQueued, On: ChannelMessageSent, To: ChannelMessageQueued},
		{From: ChannelMessageOffered, On: ChannelMessageSent, To: ChannelMessageOffered},
		{From: ChannelMessageActive, On: ChannelMessageSent, To: ChannelMessageActive},
		// the receiver
		{From: ChannelMessageOffered, On: ChannelMessageReceived, To: ChannelMessageActive, Do: []string{"raise_fence"}},
		{From: ChannelMessageActive, On: ChannelMessageOk, To: ChannelMessageAcked, Do: []string{"record"}},
		{From: ChannelMessageActive, On: ChannelMessageErr, To: ChannelMessageQueued, Do: []string{"count_retry", "draw_anew"}},
		// the retrier
		{From: ChannelMessageQueued, On: ChannelMessageDrawn, When: "max_retries_reached", To: ChannelMessageDropped, Do: []string{"record", "tell_owner"}},
		{From: ChannelMessageQueued, On: ChannelMessageDrawn, When: "room", To: ChannelMessageOffered},
		{From: ChannelMessageQueued, On: ChannelMessageDrawn, To: ChannelMessageQueued},
		// the sweeper
		{From: ChannelMessageActive, On: ChannelMessageStale, To: ChannelMessageQueued, Do: []string{"raise_fence", "draw_anew"}},
	},
}

// ChannelMessageFacts is what a decision about a message goes by.
type ChannelMessageFacts struct {
	Retries, MaxRetries int
	Room                bool // fewer are offered than the channel holds
}

// ChannelMessageStep is what is to be done about a message.
type ChannelMessageStep struct {
	To         string
	Store      bool // it is new
	RaiseFence bool // its holder holds it no longer
	CountRetry bool
	DrawAnew   bool // the retrier is to meet it somewhere else
	Record     bool // it has ended: remove it, and write down how
	TellOwner  bool
}

var channelMessageGuards = map[string]func(ChannelMessageFacts) bool{
	"room":                func(f ChannelMessageFacts) bool { return f.Room },
	"max_retries_reached": func(f ChannelMessageFacts) bool { return f.Retries >= f.MaxRetries },
}

var channelMessageEffects = map[string]func(*ChannelMessageStep){
	"store":       func(s *ChannelMessageStep) { s.Store = true },
	"raise_fence": func(s *ChannelMessageStep) { s.RaiseFence = true },
	"count_retry": func(s *ChannelMessageStep) { s.CountRetry = true },
	"draw_anew":   func(s *ChannelMessageStep) { s.DrawAnew = true },
	"record":      func(s *ChannelMessageStep) { s.Record = true },
	"tell_owner":  func(s *ChannelMessageStep) { s.TellOwner = true },
}

// NextChannelMessage decides what an event does to a message in a state, machine.Start for one that does not exist.
// *machine.Illegal: it means nothing there.
func NextChannelMessage(state, event string, f ChannelMessageFacts) (ChannelMessageStep, error) {
	r, err := ChannelMessage.Next(state, event, func(name string) bool { return channelMessageGuards[name](f) })
	if err != nil {
		return ChannelMessageStep{}, err
	}
	s := ChannelMessageStep{To: r.To}
	for _, name := range r.Do {
		channelMessageEffects[name](&s)
	}
	return s, nil
}
