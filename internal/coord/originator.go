package coord

import "github.com/postern-dev/postern/internal/machine"

// Originator is the life of what a node does for its own intents of a domain (S3.12).
var Originator = table("originator", Idle, nil, nil,
	[]machine.Rule{
		rule(Idle, OnHeartbeatReceived, "sender_lives", Observing),
		rule(Idle, OnTransactionCreated, "", Sending, "delegate"),
		rule(Idle, OnNewBlock, "", Idle),
		rule(Observing, OnHeartbeatInterval, "all_silent", Idle),
		rule(Observing, OnHeartbeatReceived, "", Observing),
		rule(Observing, OnTransactionCreated, "", Sending, "delegate"),
		rule(Observing, OnNewBlock, "", Observing),
		rule(Sending, OnTransactionCreated, "", Sending, "delegate"),
		rule(Sending, OnBaseLedgerReverted, "", Sending, "delegate"),
		rule(Sending, OnHeartbeatReceived, "", Sending, "learn", "follow", "delegate"),
		rule(Sending, OnHeartbeatInterval, "", Sending, "close_silent", "ask", "look", "follow", "delegate"),
		rule(Sending, OnDelegateTimeout, "", Sending, "delegate"),
		rule(Sending, OnDelegationRejected, "", Sending, "take_back", "delegate"),
		rule(Sending, OnTransactionConfirmed, "none_left", Observing),
		rule(Sending, OnNewBlock, "", Sending),
	},
)

var originators binding[*Seat]

func init() {
	originators = binding[*Seat]{table: &Originator, guards: originatorGuards, effects: originatorEffects}
}

var originatorGuards = map[string]func(*turn, *Seat, fact) bool{
	"sender_lives": func(_ *turn, _ *Seat, f fact) bool { return lives(f.m.State) },
	"all_silent": func(t *turn, _ *Seat, _ fact) bool {
		for _, p := range t.d.Peers {
			if t.live(p) {
				return false
			}
		}
		return true
	},
	"none_left": func(t *turn, _ *Seat, _ fact) bool {
		for _, i := range t.d.Intents {
			if !i.Ended() && i.State != Parked {
				return false
			}
		}
		return true
	},
}

var originatorEffects = map[string]func(*turn, *Seat, fact){
	"delegate": func(t *turn, _ *Seat, _ fact) { t.delegateSoon() },
	"learn": func(t *turn, _ *Seat, f fact) {
		t.onTold(f.p, f.m)
		t.dropped(f.p, f.m)
	},
	"follow":       func(t *turn, _ *Seat, _ fact) { t.raise(t.followed) },
	"close_silent": func(t *turn, _ *Seat, _ fact) { t.silent() },
	"ask":          func(t *turn, _ *Seat, _ fact) { t.ask() },
	"look":         func(t *turn, _ *Seat, _ fact) { t.lookFor() },
	"take_back":    func(t *turn, _ *Seat, f fact) { t.rejected(f.p.Node, f.m.IDs, true) },
}
