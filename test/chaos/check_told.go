package main

import (
	"slices"
	"strings"
)

// checkTold: each end that somebody wants to hear of is told at least once, or will be; and what is told is right.
func (e *evidence) checkTold(byUID map[string]row, say found) {
	told := map[string]bool{}
	for _, c := range e.told() {
		told[c.UID] = true
	}
	for _, p := range e.posts {
		if r, there := byUID[p.UID]; p.Told && there && terminal[r.state] && !told[p.UID] && !e.later[p.UID] {
			say("callbacks arrive", "%s is %s, and its callback was never called, nor will it be", p.UID, r.state)
		}
	}
	e.checkWhatIsTold(byUID, say)
	e.checkToldOnce(say)
	e.checkTurns(byUID, say)
}

// told lists the callbacks in the order in which they came.
func (e *evidence) told() []call {
	calls := slices.DeleteFunc(slices.Clone(e.calls), func(c call) bool { return c.Did != "told" })
	slices.SortStableFunc(calls, func(a, b call) int { return a.At.Compare(b.At) })
	return calls
}

// checkWhatIsTold: a callback is of a transaction that is there and has ended before, and tells its end and its place as
// the rows have them. One that came before a restore may tell of what that took back.
func (e *evidence) checkWhatIsTold(byUID map[string]row, say found) {
	const invariant = "a callback tells what is recorded"
	wanted, again := map[string]bool{}, map[string]bool{}
	for _, p := range e.posts {
		wanted[p.UID], again[p.UID] = p.Told, p.Repeated
	}
	for _, c := range e.told() {
		if e.takenBack(c) || again[c.UID] {
			continue
		}
		r, there := byUID[c.UID]
		switch {
		case !there || !wanted[c.UID]:
			say(invariant, "%s tells of %q, which is there: %t, and wants to be told: %t", c.Token, c.UID, there, wanted[c.UID])
		case c.State != r.state || c.Event != "transaction."+strings.ToLower(r.state):
			say(invariant, "%s is %s, and %s tells %s of it, which is %s", c.UID, r.state, c.Token, c.Event, c.State)
		case c.ID != r.id || c.Queue != r.queue || c.Position != r.position:
			say(invariant, "%s is %+v, and %s tells %+v", c.UID, r, c.Token, c)
		case !e.clocks && c.At.Before(r.ended):
			say(invariant, "%s was told at %s, and ended at %s", c.UID, clock(c.At), clock(r.ended))
		}
	}
}

// checkToldOnce: however often an end is told, it is under one id, and under no other's. What happened anew behind a
// restore has another.
func (e *evidence) checkToldOnce(say found) {
	const invariant = "a callback has one id"
	again := map[string]bool{}
	for _, p := range e.posts {
		again[p.UID] = p.Repeated
	}
	type end struct{ uid, event string }
	ids, ends := map[end]string{}, map[string]end{}
	for _, c := range e.told() {
		if e.takenBack(c) || again[c.UID] {
			continue
		}
		is := end{c.UID, c.Event}
		if id, known := ids[is]; known && id != c.Token || c.Token == "" {
			say(invariant, "%s of %s was told under %q and %q", c.Event, c.UID, id, c.Token)
		}
		if of, known := ends[c.Token]; known && of != is {
			say(invariant, "%s tells %s of %s and %s of %s", c.Token, of.event, of.uid, is.event, is.uid)
		}
		ids[is], ends[c.Token] = c.Token, is
	}
}

// checkTurns: callbacks of one queue come for the first time in the order in which their transactions ended: all go to
// one URL.
func (e *evidence) checkTurns(byUID map[string]row, say found) {
	if e.unordered {
		return
	}
	came, last := map[string]bool{}, map[string]row{}
	for _, c := range e.told() {
		r, there := byUID[c.UID]
		if came[c.UID] || !there || r.queue == "" {
			continue
		}
		came[c.UID] = true
		before, some := last[r.queue]
		later := before.ended.Compare(r.ended)
		if some && (later > 0 || later == 0 && before.position > r.position) {
			say("callbacks of a queue keep their order", "in %s %s (%d, ended at %s) was told before %s (%d, %s)", r.queue,
				before.uid, before.position, clock(before.ended), r.uid, r.position, clock(r.ended))
			continue
		}
		last[r.queue] = r
	}
}
