package coordtest

import (
	"slices"
	"time"

	"github.com/postern-dev/postern/internal/coord"
)

// coreTx is a public transaction in the core of a node.
type coreTx struct {
	post   coord.Post
	state  string // waiting, sent, or as the core's word says
	sentAt time.Time
	nonce  int64
}

// post hands a public transaction to the core: once for each uid.
func (n *Node) post(p coord.Post) {
	if !slices.ContainsFunc(n.store.core, func(x coreTx) bool { return x.post.UID == p.UID }) {
		n.store.core = append(slices.Clone(n.store.core), coreTx{post: p, state: "waiting"})
	}
}

// recall cancels what the worker has never had.
func (n *Node) recall(uid string) {
	for i, x := range n.store.core {
		if x.post.UID != uid || x.state != "waiting" {
			continue
		}
		if n.w.ledger.txs[uid] != nil {
			n.store.core[i].state, n.store.core[i].sentAt = "sent", n.w.now
			continue
		}
		n.store.core[i].state = coord.CoreUndone
		n.handle(coord.Event{Core: &coord.CoreWord{ID: x.post.ID, UID: uid, State: coord.CoreUndone}})
	}
}

// look lets the core of a node go on, and tells the domain what it finds. What it has of a domain that is still is held
// back, and what it says is read once the domain goes on.
func (n *Node) look() {
	if !n.up || n.frozen.After(n.w.now) || n.store.image.Still() {
		return
	}
	var events []coord.Event
	core := slices.Clone(n.store.core)
	for i := range core {
		for _, word := range n.advance(core, &core[i]) {
			events = append(events, coord.Event{Core: &word})
		}
	}
	n.store.core = core
	if len(events) > 0 {
		n.handle(events...)
	}
}

// advance moves one public transaction on.
func (n *Node) advance(core []coreTx, x *coreTx) (words []coord.CoreWord) {
	word := func(state, reason string, retry bool) {
		words = append(words, coord.CoreWord{ID: x.post.ID, UID: x.post.UID, State: state, Nonce: x.nonce,
			Hash: "0x" + x.post.UID, Reason: reason, Retry: retry})
	}
	switch x.state {
	case "waiting":
		switch ready(core, x.post.DependsOn) {
		case "no":
			x.state = coord.CoreUndone
			word(coord.CoreUndone, "dependency_failed", false)
		case "yes":
			n.w.ledger.send(x.post)
			x.state, x.sentAt, x.nonce = "sent", n.w.now, int64(len(core))
			n.w.tell("%s sends %s", n.name, x.post.UID)
			word(coord.CoreNonce, "", false)
			if n.w.chance(0.5) { // else it is told that it went out with its end
				word(coord.CoreSubmitted, "", false)
			}
		}
	case "sent":
		tx := n.w.ledger.txs[x.post.UID]
		switch {
		case tx != nil && n.w.ledger.final(tx) && tx.ok:
			x.state = coord.CoreSuccess
			word(coord.CoreSuccess, "", false)
		case tx != nil && n.w.ledger.final(tx):
			x.state = coord.CoreReverted
			word(coord.CoreReverted, tx.reason, tx.retry)
		case n.w.Plan.Timeouts && n.w.now.Sub(x.sentAt) > 1500*time.Millisecond && n.w.chance(0.1):
			x.state = coord.CoreUnknown
			word(coord.CoreUnknown, "no inclusion in time", false)
		}
	}
	return words
}

// ended are the ends after which the core ends what waits.
var ended = []string{coord.CoreReverted, coord.CoreUndone, coord.CoreUnknown}

// ready says whether all that a public transaction waits for has succeeded.
func ready(core []coreTx, uids []string) string {
	for _, uid := range uids {
		at := slices.IndexFunc(core, func(x coreTx) bool { return x.post.UID == uid })
		if at < 0 || slices.Contains(ended, core[at].state) {
			return "no"
		}
		if core[at].state != coord.CoreSuccess {
			return "wait"
		}
	}
	return "yes"
}
