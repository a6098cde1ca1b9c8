package pgworld

import (
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/sequencer"
)

// Own makes senders that have an address of their own.
func (w *World) Own(pool string, accounts ...string) {
	w.T.Helper()
	for _, a := range accounts {
		v := pg.Sender{Account: a, Pool: pool, WorkerURL: "http://127.0.0.1:2/" + a}
		_, err := w.S.PutSender(w.Ctx, w.By, v, 0)
		w.Must(err)
	}
}

// Blocks lets a lease end as a call that was answered by another than its worker, which blocks its queue alone.
func (w *World) Blocks(l *pg.Lease) {
	w.T.Helper()
	a := w.Answer(l, outbox.Answer{
		Class:   outbox.ClassBlocked,
		Scope:   outbox.ScopeQueue,
		Code:    "http_404",
		Message: "no such path",
	})
	a.Gate = sequencer.MoveNone
	w.Settle(a)
}

// Unasked lets a lease end as a call whose answer is lost and whose worker cannot be asked: it is held.
func (w *World) Unasked(l *pg.Lease) {
	w.T.Helper()
	a := w.Answer(l, NobodyKnows())
	unsupported := outbox.Status{State: outbox.StatusUnsupported}
	a.Step = sequencer.Asked(l.Flight(0), unsupported, l.Dispatcher.Dispatcher, 0.5)
	w.Settle(a)
}

// Unread lets a lease end as a call whose answer is lost, and whose worker was asked for it and answered this.
func (w *World) Unread(l *pg.Lease, answered string) {
	w.T.Helper()
	heard := NobodyKnows()
	heard.StartedAt = w.Now
	a := w.Answer(l, heard)
	a.Unclear = &heard
	s := outbox.Status{State: outbox.StatusUnreachable, Message: answered}
	if answered == sequencer.AtWork {
		s = outbox.Status{State: outbox.StatusPending}
	}
	a.Step = sequencer.Asked(l.Flight(0), s, l.Dispatcher.Dispatcher, 0.5)
	w.Settle(a)
}

// closes closes the gate of what the type T calls, or that of a sender.
func (w *World) closes(sender string) {
	w.T.Helper()
	if sender != "" {
		w.Exec(`
			UPDATE postern.sender
			SET gate_failures = 1, gate_reason = 'refused', blocked_until = $2::timestamptz + interval '1 min',
				block_reason = 'worker_unreachable'
			WHERE account = $1`, sender, w.Now)
		return
	}
	w.Exec(`
		UPDATE postern.dispatcher
		SET gate_failures = 1, gate_reason = 'refused', gate_until = $1::timestamptz + interval '1 min'`, w.Now)
}

// pooled makes the type S, whose transactions go out by the senders of the pool p.
func (w *World) pooled() {
	w.T.Helper()
	w.Dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "p" })
}

// asked are those whose worker was called, and is away, or is asked.
var asked = []Stand{
	{"its worker cannot be asked what came of a call", "status_unreachable",
		"the worker that has to be asked cannot be reached: refused", "/dispatchers/T",
		func(w *World) outbox.ID {
			id := w.Post("q", "T", "a")[0]
			w.Settle(w.Answer(w.Claim(w.Node("n"), Everything())[0], NobodyKnows()))
			w.closes("")
			return id
		}},
	{"its worker seems to have no /status", "outcome_unknown", "what came of attempt 1 is not known", "/dispatchers/T",
		func(w *World) outbox.ID {
			id := w.Post("q", "T", "a")[0]
			w.Settle(w.Answer(w.Claim(w.Node("n"), Everything())[0], NobodyKnows()))
			w.Exec(`UPDATE postern.timer SET said = 'give type T ' || $1`, outbox.NoStatus)
			return id
		}},
	{"its sender's worker cannot be asked what came of a call", "status_unreachable",
		"the worker that has to be asked cannot be reached: refused", "/senders/acct-1",
		func(w *World) outbox.ID {
			w.pooled()
			w.Own("p", "acct-1")
			id := w.Post("q", "S", "a")[0]
			w.Settle(w.Answer(w.Claim(w.Node("n"), Everything())[0], NobodyKnows()))
			w.closes("acct-1")
			return id
		}},
	{"its worker cannot be asked whether it is included", "status_unreachable",
		"the worker that has to be asked cannot be reached: refused", "/dispatchers/T",
		func(w *World) outbox.ID {
			id := w.Post("q", "T", "a")[0]
			w.Settle(w.Answer(w.Claim(w.Node("n"), Everything())[0], Hashed()))
			w.closes("")
			return id
		}},
	{"its sender's worker cannot be asked whether it is included", "status_unreachable",
		"the worker that has to be asked cannot be reached: refused", "/senders/acct-1",
		func(w *World) outbox.ID {
			w.pooled()
			w.Own("p", "acct-1")
			id := w.Post("q", "S", "a")[0]
			w.Settle(w.Answer(w.Claim(w.Node("n"), Everything())[0], Hashed()))
			w.closes("acct-1")
			return id
		}},
	{"the worker of its sender is away", "worker_unreachable",
		"the only sender of pool p, acct-1, may not be used", "/senders/acct-1/unblock",
		func(w *World) outbox.ID {
			w.pooled()
			w.Own("p", "acct-1")
			id := w.Post("q", "S", "a")[0]
			w.Settle(w.Answer(w.Claim(w.Node("n"), Everything())[0], Lost()))
			w.closes("acct-1")
			return id
		}},
	{"it is blocked, and was called by a sender with an address of its own", "queue_blocked",
		"no such path (http_404); it is tried again at", "/retry",
		func(w *World) outbox.ID {
			w.pooled()
			w.Own("p", "acct-1")
			id := w.Post("q", "S", "a")[0]
			w.Blocks(w.Claim(w.Node("n"), Everything())[0])
			return id
		}},
	{"it is not included in time", "inclusion_overdue", "not included by", "/abandon", func(w *World) outbox.ID {
		id := w.Post("q", "T", "a")[0]
		w.Settle(w.Answer(w.Claim(w.Node("n"), Everything())[0], Hashed()))
		w.Later(5 * time.Hour)
		return id
	}},
	{"its node is gone", "resuming", "its node is gone: the next one asks the worker for token", "/abandon",
		func(w *World) outbox.ID {
			n := w.Node("n")
			w.Node("m")
			id := w.Post("q", "T", "a")[0]
			w.Claim(n, Everything())
			w.Lever(w.S.BuryNode(w.Ctx, w.By, "n"))
			_, err := w.S.Release(w.Ctx)
			w.Must(err)
			return id
		}},
	{"its worker does not say what came of a call", "outcome_unknown",
		`when it was asked last: the worker's status has state "maybe"`, "/abandon",
		func(w *World) outbox.ID {
			id := w.Post("q", "T", "a")[0]
			w.Unread(w.Claim(w.Node("n"), Everything())[0], `the worker's status has state "maybe"`)
			return id
		}},
	{"it is held for an operator", "outcome_unknown", "held until somebody says what came of it", "/was-done",
		func(w *World) outbox.ID {
			id := w.Post("q", "T", "a")[0]
			w.Unasked(w.Claim(w.Node("n"), Everything())[0])
			return id
		}},
	{"it is retried, and somebody wants it cancelled", "retry_delay", "is CANCELLED", "/abandon",
		func(w *World) outbox.ID {
			id := w.Post("q", "T", "a")[0]
			w.Settle(w.Answer(w.Claim(w.Node("n"), Everything())[0], Failed()))
			w.Lever(w.S.Cancel(w.Ctx, w.By, id))
			return id
		}},
	{"its node has lost it", "overdue", "it should have left DISPATCHING by now", "/nodes/n/bury",
		func(w *World) outbox.ID {
			id := w.Post("q", "T", "a")[0]
			w.Claim(w.Node("n"), Everything())
			w.Exec(`UPDATE postern.queue SET entered_at = clock_timestamp() - interval '14 min'`)
			return id
		}},
	{"no process looks at its timer", "overdue", "it should have left", "/abandon", func(w *World) outbox.ID {
		id := w.Post("q", "T", "a")[0]
		w.Settle(w.Answer(w.Claim(w.Node("n"), Everything())[0], Hashed()))
		w.Exec(`UPDATE postern.timer SET due_at = clock_timestamp() - interval '4 min'`)
		return id
	}},
}
