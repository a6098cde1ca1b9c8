package pgworld

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/sequencer"
)

func Everything() pg.Room { return Room(1000) }

func Room(n int) pg.Room {
	return pg.Room{Total: n, Slots: func(d *pg.Dispatcher) int { return d.Slots }}
}

func Done() outbox.Answer {
	return outbox.Answer{Result: outbox.Result{Done: json.RawMessage(`{"ok":true}`)}}
}

func (w *World) Dispatcher(typ string, change func(*outbox.Dispatcher)) {
	w.T.Helper()
	d := outbox.DefaultDispatcher()
	d.Type, d.WorkerURL = typ, "http://127.0.0.1:1/"
	if change != nil {
		change(&d)
	}
	_, err := w.S.PutDispatcher(w.Ctx, w.By, d, 0)
	w.Must(err)
}

func (w *World) Sender(pool string, accounts ...string) {
	w.T.Helper()
	for _, a := range accounts {
		_, err := w.S.PutSender(w.Ctx, w.By, pg.Sender{Account: a, Pool: pool}, 0)
		w.Must(err)
	}
}

func (w *World) Sub(queue, typ, uid string) *pg.Submission {
	return &pg.Submission{
		ContextID: w.ID,
		Queue:     queue,
		Poster:    outbox.SystemOf(typ),
		Type:      typ,
		UID:       uid,
		Hash:      []byte(uid),
		Data:      json.RawMessage(fmt.Sprintf(`{"uid":%q}`, uid)),
	}
}

func (w *World) Post(queue, typ string, uids ...string) []outbox.ID {
	w.T.Helper()
	var subs []*pg.Submission
	for _, u := range uids {
		subs = append(subs, w.Sub(queue, typ, u))
	}
	out, err := w.S.Ingest(w.Ctx, subs, false)
	w.Must(err)
	var ids []outbox.ID
	for _, a := range out {
		w.Must(a.Err)
		ids = append(ids, a.ID)
	}
	return ids
}

func (w *World) Node(name string) pg.Node {
	w.T.Helper()
	n, err := w.S.Register(w.Ctx, name, "test", 10*time.Second)
	w.Must(err)
	return n
}

func (w *World) Claim(n pg.Node, r pg.Room) []*pg.Lease {
	w.T.Helper()
	l, _, err := w.S.Claim(w.Ctx, n, r)
	w.Must(err)
	return l
}

func (w *World) Settle(a ...*pg.Answer) []pg.Settled {
	w.T.Helper()
	out, err := w.S.Settle(w.Ctx, a)
	w.Must(err)
	return out
}

// Answer decides about what a worker said of a lease.
func (w *World) Answer(l *pg.Lease, a outbox.Answer) *pg.Answer {
	verdict, gate := Heard(a)
	return &pg.Answer{Lease: l, Result: a.Result, Continue: true, Verdict: verdict, Gate: gate, StartedAt: w.Now,
		Step: sequencer.Dispatched(l.Flight(2), a, l.Dispatcher.Dispatcher, 0.5)}
}

func (w *World) State(id outbox.ID) outbox.State {
	w.T.Helper()
	t, err := w.S.Transaction(w.Ctx, w.ID, id)
	w.Must(err)
	return t.State
}

func (w *World) UID(uid string) outbox.ID {
	w.T.Helper()
	id, err := w.S.ByUID(w.Ctx, w.ID, uid)
	w.Must(err)
	return id
}

func (w *World) ByUID(uid string) *pg.Transaction {
	w.T.Helper()
	id, err := w.S.ByUID(w.Ctx, w.ID, uid)
	w.Must(err)
	t, err := w.S.Transaction(w.Ctx, w.ID, id)
	w.Must(err)
	return t
}

func (w *World) Ingest(s *stores.Store, subs ...*pg.Submission) []pg.Accepted {
	w.T.Helper()
	out, err := s.Ingest(w.Ctx, subs, false)
	w.Must(err)
	return out
}

// MoveTo moves what a uid names and returns its new id.
func (w *World) MoveTo(uid, queue string, to *pg.Place) outbox.ID {
	w.T.Helper()
	r, err := w.S.MoveTo(w.Ctx, w.By, w.UID(uid), queue, to)
	w.Must(err)
	HoldsTrue(w.T, w.Ctx, w.S.Pool())
	return *r.Moved
}

func (w *World) Lever(_ pg.LeverResult, err error) { w.T.Helper(); w.Must(err) }

func Lost() outbox.Answer {
	return outbox.Answer{Class: outbox.ClassBlocked, Code: "connection_refused", Message: "refused", Unsent: true}
}

func NobodyKnows() outbox.Answer {
	return outbox.Answer{Class: outbox.ClassAmbiguous, Code: "timeout", Message: "no answer within 10m0s"}
}

// Heard is what an answer does to the gate where no breaker counts: each blocked answer closes it.
func Heard(a outbox.Answer) (sequencer.Verdict, sequencer.Move) {
	if a.Class == outbox.ClassBlocked {
		return sequencer.VerdictAway, sequencer.MoveClose
	}
	return sequencer.VerdictReached, sequencer.MoveOpen
}
