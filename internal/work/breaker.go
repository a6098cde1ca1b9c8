package work

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/safe"
	"github.com/postern-dev/postern/internal/sequencer"
	"github.com/postern-dev/postern/internal/telemetry"
)

// breakers hears the answers of workers and decides when the gate of what was called closes. There is one for each
// address: of a sender that has its own, else of a type.
//
// They count in memory. So an answer that gets through costs no statement, and a lock for some nanoseconds. Of two
// processes each counts what it hears itself, and both go by the gate, which is a row. A process that starts anew
// begins at zero: it makes a few calls more until the gate closes, and each is blocked or asked about as it would be.
type breakers struct {
	log     *slog.Logger
	metrics *telemetry.Metrics
	of      sync.Map // address -> *breaker
	bell    func()   // more calls may go out to a worker than before
}

// address names what was called.
type address struct{ dispatcher, sender int32 }

func addressOf(l *pg.Lease) address {
	if l.SenderURL != "" {
		return address{sender: l.SenderID}
	}
	return address{dispatcher: l.Dispatcher.ID}
}

// breaker is that of one address, and what the log was told of it since its worker last answered.
type breaker struct {
	sync.Mutex
	sequencer.Breaker
	closed  time.Time // since when its gate is closed; zero: it is not
	nothing time.Time // when a call first came to nothing

	// troubled is whether it has anything to forget: while all answers get through, hearing one takes no lock.
	troubled atomic.Bool
	met      atomic.Bool  // its worker has answered, or has been waited for
	began    atomic.Int64 // when the first call went out; unix ns
}

// A worker that has never answered this process is called by few at first. After a start of processes, one that is ill
// then gives firstCalls answers that come to nothing, and its gate closes; else each of its queues would get one, all
// of them would be recorded in one second, and transactions of other workers would wait for that. After firstWaits the
// others go out to a worker that has not answered yet: it may take long for each.
const (
	firstCalls = 5
	firstWaits = 2 * time.Second
)

// own is the breaker of an address.
func (b *breakers) own(at address) *breaker {
	v, known := b.of.Load(at)
	if !known {
		v, _ = b.of.LoadOrStore(at, &breaker{})
	}
	return v.(*breaker)
}

// slots is how many calls of a dispatcher without senders may be out.
func (b *breakers) slots(d *pg.Dispatcher) int {
	if d.Slots > firstCalls && !b.own(address{dispatcher: d.ID}).met.Load() {
		return firstCalls
	}
	return d.Slots
}

// begin notes that a call of a dispatcher goes out.
func (b *breakers) begin(d *pg.Dispatcher) {
	own := b.own(address{dispatcher: d.ID})
	if !own.met.Load() && own.began.CompareAndSwap(0, time.Now().UnixNano()) {
		time.AfterFunc(firstWaits, safe.Func("first calls", func() { b.meet(own) }))
	}
}

// meet has all calls go out to a worker from now on.
func (b *breakers) meet(own *breaker) {
	if !own.met.Swap(true) {
		b.bell()
	}
}

// hear says what the answer to the dispatch of a lease means for its gate.
func (b *breakers) hear(l *pg.Lease, a outbox.Answer) (sequencer.Verdict, sequencer.Move) {
	h := sequencer.Heard{
		Verdict: sequencer.Judge(a, l.SenderID != 0),
		Queue:   l.ID().Queue,
		Probe:   l.Probe && l.SenderURL == "" || l.ProbeSender && (l.SenderURL != "" || a.Scope == outbox.ScopeSender),
		Again:   !l.Blocked.IsZero(),
		Unsent:  a.Unsent,
	}
	if a.Class == outbox.ClassRejected {
		h.Code = a.Code
	}
	own := b.own(addressOf(l))
	if h.Verdict == sequencer.VerdictReached && !own.met.Load() {
		b.meet(own)
	}
	through := h.Verdict == sequencer.VerdictReached && h.Code == ""
	if through && !own.troubled.Load() {
		return h.Verdict, sequencer.MoveOpen
	}
	own.Lock()
	own.troubled.Store(!through)
	move, rejections := own.Hear(h, l.Dispatcher.Breaker)
	since, nothing := own.closed, own.nothing
	switch {
	case move == sequencer.MoveClose && since.IsZero():
		own.closed = time.Now()
	case h.Verdict == sequencer.VerdictReached:
		own.closed, own.nothing = time.Time{}, time.Time{}
	case h.Verdict == sequencer.VerdictNothing && nothing.IsZero():
		own.nothing = time.Now()
	}
	own.Unlock()
	b.tell(l, a, h, move, since)
	if h.Verdict == sequencer.VerdictNothing && nothing.IsZero() && move != sequencer.MoveClose {
		b.log.Warn("a call came to nothing: its queue waits (told once until its worker answers)",
			"type", l.Task.Type, "sender", l.Account, "queue", l.Queue, "code", a.Code, "error", a.Message)
	}
	if rejections {
		b.metrics.RejectedInARow(l.Task.Type)
		b.log.Warn("several queues in a row were rejected by one code: is that the transactions, or their worker?",
			"type", l.Task.Type, "sender", l.Account, "queues", l.Dispatcher.Breaker,
			"code", a.Code, "error", a.Message)
	}
	return h.Verdict, move
}

// tell says once that a gate has closed, and that it is open again.
func (b *breakers) tell(l *pg.Lease, a outbox.Answer, h sequencer.Heard, move sequencer.Move, since time.Time) {
	switch {
	case move == sequencer.MoveClose && since.IsZero():
		b.log.Warn("nothing came of calls to a worker: its transactions wait, and probes go out until one gets through",
			"type", l.Task.Type, "sender", l.Account, "code", a.Code, "error", a.Message)
	case h.Verdict == sequencer.VerdictReached && !since.IsZero():
		b.log.Info("a worker can work again", "type", l.Task.Type, "sender", l.Account,
			"after", time.Since(since).Round(time.Second).String())
	}
}
