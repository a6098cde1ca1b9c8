package machine

import (
	"errors"
	"fmt"
	"slices"
)

// Check tells everything that is wrong with a table, or nil: a missing name or initial state, a
// duplicate rule, a rule hidden behind an unguarded one, a state that nothing reaches, a terminal state
// that is left, a state that nothing leaves and that is not declared terminal, an event that is not
// declared, twice declared or not used.
func (t Table) Check() error {
	var errs []error
	say := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf(t.Name+": "+format, args...))
	}
	if t.Name == "" || t.Initial == "" {
		say("a table needs a name and an initial state, here %q and %q", t.Name, t.Initial)
	}
	t.checkRules(say)
	t.checkStates(say)
	for i, e := range t.Events {
		if slices.Contains(t.Events[:i], e) {
			say("event %s is declared twice", e)
		}
		if !slices.ContainsFunc(t.Rules, func(r Rule) bool { return r.On == e }) {
			say("event %s is declared, but no rule uses it", e)
		}
	}
	return errors.Join(errs...)
}

func (t Table) checkRules(say func(string, ...any)) {
	for i, r := range t.Rules {
		if r.On == "" || r.To == "" {
			say("rule %d lacks its event or its target: %+v", i+1, r)
		}
		if !slices.Contains(t.Events, r.On) {
			say("rule %d: event %s is not declared", i+1, r.On)
		}
		for _, before := range t.Rules[:i] {
			switch {
			case before.From != r.From || before.On != r.On:
			case before.When == r.When:
				say("two rules for %s on %s when %q", r.From, r.On, r.When)
			case before.When == "":
				say("the rule for %s on %s when %q is hidden behind one without guard", r.From, r.On, r.When)
			}
		}
	}
}

func (t Table) checkStates(say func(string, ...any)) {
	births, declared := 0, 0
	left := map[string]bool{}
	reached := map[string]bool{t.Initial: true}
	for _, r := range t.Rules {
		if r.From == Start {
			births++
			reached[r.To] = true
			if r.To == t.Initial {
				declared++
			}
		}
		left[r.From] = true
	}
	if births > 0 && declared == 0 {
		say("nothing is born in the initial state %s", t.Initial)
	}
	for grew := true; grew; {
		grew = false
		for _, r := range t.Rules {
			if reached[r.From] && !reached[r.To] {
				reached[r.To], grew = true, true
			}
		}
	}
	for _, s := range t.States() {
		if !reached[s] {
			say("nothing reaches state %s", s)
		}
		switch terminal := slices.Contains(t.Terminal, s); {
		case terminal && left[s]:
			say("terminal state %s is left by a rule", s)
		case !terminal && !left[s]:
			say("nothing leaves state %s: declare it terminal", s)
		}
	}
	for _, s := range t.Terminal {
		if !slices.Contains(t.States(), s) {
			say("terminal state %s is in no rule", s)
		}
	}
}
