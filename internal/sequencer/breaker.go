package sequencer

import (
	"github.com/postern-dev/postern/internal/outbox"
)

// Verdict is what the answer to one dispatch says about the address that was called.
type Verdict string

const (
	VerdictNone    Verdict = ""        // it speaks of this transaction alone
	VerdictReached Verdict = "reached" // the worker itself has answered
	VerdictNothing Verdict = "nothing" // it came to nothing: another's answer, or none
	VerdictAway    Verdict = "away"    // no other call would get through either
)

// Judge says what an answer tells about the address. sends says whether a sender signs: without one there is none
// that could be blocked.
func Judge(a outbox.Answer, sends bool) Verdict {
	wide := a.Scope == outbox.ScopeWorker || a.Scope == outbox.ScopeSender && sends
	switch {
	case a.Class == outbox.ClassBlocked && wide:
		return VerdictAway
	case a.Told, a.Class == "" && (a.Result.Done != nil || a.Result.Hash != ""), a.Class == outbox.ClassRejected:
		return VerdictReached
	case a.Class == outbox.ClassRetry, a.Code == "http_409":
		return VerdictNone
	}
	return VerdictNothing
}

// Move is what becomes of the gate of an address.
type Move string

const (
	MoveNone  Move = ""      // it stays as it is
	MoveClose Move = "close" // it closes, or stays closed for longer
	MoveOpen  Move = "open"  // it opens, if this was its probe
	MovePass  Move = "pass"  // it stays closed, and another may be its probe at once
)

// Heard is one answer as a breaker hears it.
type Heard struct {
	Verdict Verdict
	Queue   int64
	Probe   bool   // it went out while the gate was closed, to see whether it may open
	Again   bool   // this head came to nothing before, and has not got through since
	Unsent  bool   // not one byte was written: there was no connection, whatever the head is
	Code    string // of a rejection; "" of any other answer
}

// Breaker decides when the gate of one address closes (S2.8). It counts in the memory of its process: an answer that
// counts is one that came here, so that a process cut off from the address closes the gate by what it sees itself, and
// one that starts anew begins to count anew, which costs it a few calls. The gate itself is a row, which all processes
// go by.
//
// A head that came to nothing counts once, until it gets through: a fault of one transaction must not keep
// closing the gate for all others. That there is no connection is no fault of a transaction. The zero Breaker has
// heard nothing.
type Breaker struct {
	queues   []int64 // whose last answers came to nothing
	rejected []int64 // queues whose last answers were rejections by one code
	code     string
	said     bool // that these are many
}

// Hear takes one answer in, and says what becomes of the gate: no call that gets through closes it at once, and so do
// the answers to limit different queues which came to nothing with none between that the worker gave; limit 0: however
// many there are. rejections says that as many queues have now been rejected by one code, once for each row of them.
func (b *Breaker) Hear(h Heard, limit int) (move Move, rejections bool) {
	switch h.Verdict {
	case VerdictReached:
		b.queues = nil
		return MoveOpen, b.reject(h, limit)
	case VerdictAway:
		if b.queues = nil; h.Unsent || h.Probe || !h.Again {
			return MoveClose, false
		}
	case VerdictNothing:
		switch {
		case limit == 0:
			return MoveOpen, false
		case h.Probe:
			b.queues = nil
			return MoveClose, false
		case h.Again:
			return MoveNone, false
		}
		if b.queues = another(b.queues, h.Queue); len(b.queues) >= limit {
			b.queues = nil
			return MoveClose, false
		}
	}
	return MoveNone, false
}

// reject counts the queues that were rejected one after the other by the same code.
func (b *Breaker) reject(h Heard, limit int) bool {
	if h.Code != b.code || h.Code == "" {
		b.rejected, b.code, b.said = nil, h.Code, false
	}
	if h.Code == "" || b.said || limit == 0 {
		return false
	}
	b.rejected = another(b.rejected, h.Queue)
	b.said = len(b.rejected) >= limit
	return b.said
}

// another adds a queue to a list that has each once.
func another(list []int64, queue int64) []int64 {
	for _, q := range list {
		if q == queue {
			return list
		}
	}
	return append(list, queue)
}
