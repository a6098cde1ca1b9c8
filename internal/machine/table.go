package machine

import (
	"fmt"
	"slices"
)

// Start stands in Rule.From for "there is nothing yet": the [*] of a diagram.
const Start = ""

// Table is one state machine. Every field is data; the strings keep the spelling of the published design.
type Table struct {
	Name     string   // as in labels and pages: "transaction"
	Follows  string   // the published design it follows: "2-sequencer.md"
	Initial  string   // the state in which a thing is born
	Terminal []string // the states that nothing leaves
	Events   []string // every event, in the order in which people read them
	Rules    []Rule   // in the order of the design; the first that matches wins
}

// Rule is one line of a table: in state From, on event On, if the guard named When holds (none named:
// always), go to state To and do what the names in Do stand for. To equal to From means that it stays.
type Rule struct {
	From, On, When, To string
	Do                 []string
}

// Illegal says that a table has no rule for an event in a state. Its caller turns it into a fault of
// kind Conflict; it is never silence (architecture, 3).
type Illegal struct {
	Table, State, Event string
}

// Error names table, state and event.
func (e *Illegal) Error() string {
	state := e.State
	if state == Start {
		state = "no state"
	}
	return fmt.Sprintf("%s: event %s means nothing in %s", e.Table, e.Event, state)
}

// Next returns the rule that answers event in state from; guard tells whether the guard of that name holds. Outcomes: a
// rule with To, the next state, and Do, what to do; a rule to the same state without effects, when the event is known
// there and no guard holds (S0.5: none = stay); *Illegal when the state knows no such event.
func (t Table) Next(from, event string, guard func(name string) bool) (Rule, error) {
	known := false
	for i := range t.Rules {
		r := &t.Rules[i]
		if r.From != from || r.On != event {
			continue
		}
		known = true
		if r.When == "" || guard(r.When) {
			return *r, nil
		}
	}
	if known {
		return Rule{From: from, On: event, To: from}, nil
	}
	return Rule{}, &Illegal{Table: t.Name, State: from, Event: event}
}

// States lists every state, the initial one first, then in the order in which rules name them.
func (t Table) States() []string {
	states := []string{t.Initial}
	add := func(s string) {
		if s != Start && !slices.Contains(states, s) {
			states = append(states, s)
		}
	}
	for _, r := range t.Rules {
		add(r.From)
		add(r.To)
	}
	return states
}

// Guards lists the names of guards, and Effects those of effects, each once, in the order of the rules.
func (t Table) Guards() []string {
	var names []string
	for _, r := range t.Rules {
		if r.When != "" && !slices.Contains(names, r.When) {
			names = append(names, r.When)
		}
	}
	return names
}

// Effects lists the names in Do, each once, in the order of the rules.
func (t Table) Effects() []string {
	var names []string
	for _, r := range t.Rules {
		for _, do := range r.Do {
			if !slices.Contains(names, do) {
				names = append(names, do)
			}
		}
	}
	return names
}
