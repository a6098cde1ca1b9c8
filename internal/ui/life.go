package ui

import (
	"slices"
	"strings"
)

// life is how a machine says which levers fit a thing: its state is in a member of the thing, and levers are events of
// the machine. One that is none fits while the thing has not ended; after its end redrive alone, from one state.
type life struct {
	machine, member string
	events          map[string]string
	redriven        string
}

// lives are those of nouns; that of transactions is in the file of their page.
var lives = map[string]life{
	"events":   {"event", "status", nil, "Dead"},
	"flows":    {"flow", "status", map[string]string{"cancel": "Cancelled", "start": "Released"}, "error"},
	"jobs":     {"job", "status", map[string]string{"cancel": "Aborted"}, ""},
	"messages": {"message", "status", map[string]string{"cancel": "Refused"}, ""},
	"intents": {"originator_transaction", "state",
		map[string]string{"cancel": "Cancelled", "resume": "Resumed"}, ""},
}

// ofOwners are the levers that the owner of a thing alone may pull, with the member that names the owner; where it is
// empty, each may whom the API lets.
var ofOwners = map[string]string{
	"processors pause": "owner", "processors resume": "owner", "flows start": "caller_id",
}

// foreign says whether a lever is for the owner of a thing alone, and the visitor is another actor.
func (v *visit) foreign(path string) bool {
	at := strings.LastIndexByte(path, '/')
	parts := strings.Split(path, "/")
	member, has := ofOwners[parts[max(0, len(parts)-3)]+" "+parts[len(parts)-1]]
	if !has || v.who == nil {
		return false
	}
	thing, err := v.get(path[:at])
	if err != nil {
		return false // then the API says what it is
	}
	owner := str(thing.doc, member)
	return owner != "" && owner != v.who.Name()
}

// suits says whether a lever may fit the thing of a path as it is, by its machine where it has one.
func (v *visit) suits(path, verb string, thing doc) bool {
	if verb == "enable" || verb == "disable" {
		off := thing["enabled"] == false || str(thing, "state") == "Disabled"
		return off == (verb == "enable")
	}
	parts := strings.Split(path, "/")
	l, has := lives[parts[max(0, len(parts)-2)]]
	if !has {
		return true
	}
	machine, err := v.get("/machines/" + l.machine)
	if err != nil {
		return true // then the API says whether it does
	}
	state := str(thing, l.member)
	if verb == "release" { // of an intent: an operator's word about what may be under way
		return str(thing, "permit") != "" || thing["unknown"] == true
	}
	if verb == "redrive" {
		return state == l.redriven && str(thing, "redriven_by") == ""
	}
	if event := l.events[verb]; event != "" {
		return moves(machine.doc, state, event)
	}
	return !slices.Contains(texts(machine.doc["terminal"]), state)
}

// moves says whether a machine has a rule for an event in a state.
func moves(machine doc, state, event string) bool {
	return slices.ContainsFunc(docs(machine["rules"]), func(r doc) bool {
		return str(r, "from") == state && str(r, "on") == event
	})
}
