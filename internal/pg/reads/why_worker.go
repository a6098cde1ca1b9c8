package reads

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
)

// ownAddress is that of a sender whose worker is not that of the type, with its gate.
type ownAddress struct {
	account, url string
	until        *time.Time // its gate is closed until then; nil: it is open
	why          string
}

// readOwnAddress reads the address of the sender that the head is bound to, waits for, or was called by last.
func (x *explain) readOwnAddress() error {
	id, own := x.head.ID, &ownAddress{}
	err := x.s.Pool().QueryRow(x.ctx, `
		SELECT s.account, s.worker_url, CASE WHEN s.block_reason = 'worker_unreachable' THEN s.blocked_until END,
			s.gate_reason
		FROM postern.sender s
		WHERE s.worker_url <> '' AND s.sender_id = coalesce(nullif($1, 0), (
			SELECT a.sender_id
			FROM postern.attempt a
			WHERE (a.queue_id, a.seq, a.day) = ($2, $3, $4) AND a.step <> 'late'
			ORDER BY a.attempt DESC, a.answered_at DESC
			LIMIT 1))`, cmp.Or(x.q.Sender, x.q.Pin), id.Queue, id.Seq, id.Day.Time()).
		Scan(&own.account, &own.url, &own.until, &own.why)
	if db.IsNoRows(err) {
		return nil
	}
	x.own = own
	return db.Known(err)
}

// closedGate is the gate of what the head called, or is to call, which is closed.
type closedGate struct{ object, why string }

// gate is the closed gate of what the head calls; nil: it is open.
func (x *explain) gate() *closedGate {
	switch {
	case x.own != nil:
		if x.own.until != nil && x.own.until.After(x.now) {
			return &closedGate{"/senders/" + x.own.account, x.own.why}
		}
	case x.d != nil && x.d.GateUntil != nil && x.d.Failures > 0:
		return &closedGate{"/dispatchers/" + x.head.Type, x.d.GateWhy}
	}
	return nil
}

// worker is the lever that gives what the head calls another address, which only the caller knows: the one that is
// there is in trouble.
func (x *explain) worker() Lever {
	if x.own != nil {
		return workerOfSender(x.own.account)
	}
	return x.workerOfType()
}

// workerOfSender is that lever of a sender with an address of its own.
func workerOfSender(account string) Lever {
	return NewLever("PATCH", "admin", "senders", account).With("worker_url", AnyWorker)
}

// workerOfType is that lever of the type of the head. A worker that is built in keeps its name.
func (x *explain) workerOfType() Lever {
	l := NewLever("PATCH", "admin", "dispatchers", x.head.Type)
	if x.d != nil && !strings.HasPrefix(x.d.WorkerURL, "http") {
		return l.With("slots", x.d.Slots)
	}
	return l.With("worker_url", AnyWorker)
}

// noStatus is the lever for a worker that has no /status: its type says so, and it is never asked again. There is none
// unless an answer to a question made that likely.
func (x *explain) noStatus(said string) []Lever {
	if x.d == nil || !strings.Contains(said, outbox.NoStatus) {
		return nil
	}
	can := append(slices.Clone(x.d.Capabilities), "no_status")
	return []Lever{NewLever("PATCH", "admin", "dispatchers", x.head.Type).With("capabilities", can)}
}
