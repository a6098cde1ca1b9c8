package main

import "time"

// fates returns by tokens when their hashes were first said to be included, or to have failed, to a poll.
func (e *evidence) fates() map[string]time.Time {
	fates := map[string]time.Time{}
	for _, c := range e.calls {
		if at, known := fates[c.Token]; c.Did == "polled" && (c.Said == "included" || c.Said == "failed") &&
			(!known || c.At.Before(at)) {
			fates[c.Token] = c.At
		}
	}
	return fates
}

// checkHashes: a transaction that was answered with a hash is DONE once the worker has said that it is included, and the
// next of its queue is not called before the worker has said what became of it. An operator's word ends it, too, and
// what is posted again behind a restore has another token.
func (e *evidence) checkHashes(byUID map[string]row, say found) {
	const invariant = "a hash is no end until it is included"
	other := map[string]bool{}
	for _, p := range e.posts {
		other[p.UID] = p.Repeated || e.said[p.UID]
	}
	fates, last := e.fates(), map[string]call{} // the last of each queue that has a hash
	for _, c := range e.begun() {
		if other[c.UID] || c.Did == "stale" {
			continue
		}
		b, some := last[c.Queue]
		if at := fates[b.Token]; some && b.UID != c.UID && byUID[b.UID].position < byUID[c.UID].position &&
			(at.IsZero() || c.At.Before(at)) {
			say(invariant, "in %s %s was called at %s, and what became of %s of %s was said at %s", c.Queue, c.UID,
				clock(c.At), b.Token, b.UID, clock(at))
		}
		if c.hashed() && c.Queue != "" {
			last[c.Queue] = c
		}
		r, at := byUID[c.UID], fates[c.Token]
		if c.Did == "sent" && r.state == "DONE" && (at.IsZero() || !e.clocks && r.ended.Before(at)) {
			say(invariant, "%s is DONE since %s, and %s was said to be included at %s", c.UID, clock(r.ended), c.Token,
				clock(at))
		}
	}
}
