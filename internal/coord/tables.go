package coord

import (
	"slices"
	"time"

	"github.com/postern-dev/postern/internal/machine"
)

var noTime time.Time

// Tables lists the machines of domains.
func Tables() []machine.Table {
	return []machine.Table{Originator, OriginatorTransaction, Coordinator, CoordinatorTransaction}
}

// Meanings says in one line what each state means, under "table.state".
var Meanings = meanings(map[string]map[State]string{
	"originator": {
		Idle:      "Has nothing to send, and knows of no node that coordinates.",
		Observing: "Has nothing to send, and knows of a node that coordinates.",
		Sending:   "Has intents without a receipt: they are, or are to be, with a coordinator.",
	},
	"originator_transaction": {
		Pending:              "Stored. Waits for what it depends on, for its permit to end, or for a coordinator.",
		Delegated:            "Handed to the node that coordinates. That asks for it when its turn comes.",
		Assembling:           "The coordinator has asked for it to be assembled; the domain's service is called.",
		Signing:              "Assembled; the domain's service is called for the signature of this node's party.",
		EndorsementGathering: "Assembled and answered; the coordinator gathers endorsements.",
		Prepared:             "The coordinator has the permit to post its public transaction.",
		Dispatched:           "The coordinator has posted its public transaction.",
		Sequenced:            "Its public transaction has a nonce.",
		Submitted:            "Its public transaction has gone out. Waits for finality.",
		Confirmed:            "Ended well.",
		Reverted:             "Ended badly; the receipt says why.",
		Parked:               "The domain's service is not ready for it. Others overtake it until it is resumed.",
	},
	"coordinator": {
		Idle:      "Does not coordinate, and knows of no node that does.",
		Observing: "Another node coordinates.",
		Standby:   "Is to coordinate, and waits until its height has come near that of the node before it.",
		Elect:     "Is to coordinate, and has asked the node before it to hand over.",
		Prepared:  "The node before it has handed over; what that has dispatched is not all confirmed.",
		Active:    "Selects, has assembled, endorsed and confirmed, and dispatches.",
		Flush:     "Dispatches nothing more; waits for the end of what is dispatched.",
		Closing:   "Has flushed, and says so for some heartbeats.",
	},
	"coordinator_transaction": {
		Pooled:             "Waits for its turn to be assembled.",
		PreAssemblyBlocked: "Waits until the one before it in its delegation is assembled.",
		Assembling:         "Its originator was asked to assemble it. One of a domain is here at a time.",
		Gathering:          "Assembled; parties are asked to endorse it.",
		Blocked:            "Endorsed; waits for those that make its inputs.",
		ConfirmingDispatch: "Prepared, or being prepared; its originator is asked for the permit.",
		ReadyForDispatch:   "Has the permit; waits for room among what is dispatched.",
		Dispatched:         "Its public transaction is with the core.",
		Submitted:          "Its public transaction has gone out at least once.",
		Confirmed:          "Its public transaction has succeeded; the originator is told until it says that it knows.",
		Reverted:           "Ended badly; the originator is told until it says that it knows.",
		Final:              "Over: nothing is told any more unless somebody asks.",
		Evicted:            "Given back to its originator: it was not dispatched.",
	},
})

func meanings(tables map[string]map[State]string) map[string]string {
	all := map[string]string{}
	for table, states := range tables {
		for state, text := range states {
			all[table+"."+string(state)] = text
		}
	}
	return all
}

// rule is one line of a table.
func rule(from State, on On, when string, to State, do ...string) machine.Rule {
	return machine.Rule{From: string(from), On: string(on), When: when, To: string(to), Do: do}
}

// each is the same line for several states. An empty target means that it stays.
func each(from []State, on On, when string, to State, do ...string) []machine.Rule {
	rules := make([]machine.Rule, 0, len(from))
	for _, s := range from {
		target := to
		if target == "" {
			target = s
		}
		rules = append(rules, rule(s, on, when, target, do...))
	}
	return rules
}

// table puts the lines together. The entry actions of a state are added to each line that enters it from another one,
// so that they can be read where they happen.
func table(
	name string, initial State, terminal []State, entry map[State][]string, parts ...[]machine.Rule,
) machine.Table {
	t := machine.Table{Name: name, Follows: "the distributed sequencer of Paladin", Initial: string(initial)}
	for _, s := range terminal {
		t.Terminal = append(t.Terminal, string(s))
	}
	for _, r := range slices.Concat(parts...) {
		if r.From != r.To {
			r.Do = slices.Concat(r.Do, entry[State(r.To)])
		}
		t.Rules = append(t.Rules, r)
		if !slices.Contains(t.Events, r.On) {
			t.Events = append(t.Events, r.On)
		}
	}
	return t
}
