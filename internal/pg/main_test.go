package pg_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/sequencer"
)

var quiet = slog.New(slog.DiscardHandler)

func TestMain(m *testing.M) { pgtest.Main(m) }

// world is a store over a database of its own, with a clock that only the test moves.
type world struct {
	t   *testing.T
	s   *stores.Store
	now time.Time
	ctx context.Context
	by  pg.By
	id  int32
	due []*pg.Delivery // what take handed out last
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := worldOver(t, pgtest.New(t).Store(t, 8))
	w.at(time.Now().UTC().Truncate(time.Microsecond))
	return w
}

// worldOver is a world over a store with the clock of its database.
func worldOver(t *testing.T, s *stores.Store) *world {
	w := &world{t: t, s: s, ctx: t.Context(), id: s.Context("default").ID}
	w.by = pg.By{Context: w.id, Actor: "test", Via: "test", Reason: "because"}
	return w
}

// in is the same world in a subtest.
func (w *world) in(t *testing.T) *world {
	one := *w
	one.t = t
	return &one
}

func (w *world) at(t time.Time)        { w.now = t; w.s.SetNow(&w.now) }
func (w *world) later(d time.Duration) { w.at(w.now.Add(d)) }
func (w *world) must(err error)        { w.t.Helper(); ok(w.t, err) }
func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%+v", err)
	}
}
func everything() pg.Room { return room(1000) }
func room(n int) pg.Room {
	return pg.Room{Total: n, Slots: func(d *pg.Dispatcher) int { return d.Slots }, Takes: func(string) bool { return true }}
}

func (w *world) dispatcher(typ string, change func(*outbox.Dispatcher)) {
	w.t.Helper()
	d := outbox.DefaultDispatcher()
	d.Type, d.WorkerURL = typ, "http://127.0.0.1:1/"
	if change != nil {
		change(&d)
	}
	_, err := w.s.PutDispatcher(w.ctx, w.by, d, 0)
	w.must(err)
}

func (w *world) sender(pool string, accounts ...string) {
	w.t.Helper()
	for _, a := range accounts {
		_, err := w.s.PutSender(w.ctx, w.by, pg.Sender{Account: a, Pool: pool}, 0)
		w.must(err)
	}
}

func (w *world) sub(queue, typ, uid string) *pg.Submission {
	return &pg.Submission{ContextID: w.id, Queue: queue, Type: typ, UID: uid, Hash: []byte(uid), Data: json.RawMessage(fmt.Sprintf(`{"uid":%q}`, uid))}
}

func (w *world) post(queue, typ string, uids ...string) []outbox.ID {
	w.t.Helper()
	var subs []*pg.Submission
	for _, u := range uids {
		subs = append(subs, w.sub(queue, typ, u))
	}
	out, err := w.s.Ingest(w.ctx, subs, false)
	w.must(err)
	var ids []outbox.ID
	for _, a := range out {
		w.must(a.Err)
		ids = append(ids, a.ID)
	}
	return ids
}

func (w *world) node(name string) pg.Node {
	w.t.Helper()
	n, err := w.s.Register(w.ctx, name, "test", 10*time.Second)
	w.must(err)
	return n
}

func (w *world) claim(n pg.Node, r pg.Room) []*pg.Lease {
	w.t.Helper()
	l, _, err := w.s.Claim(w.ctx, n, r)
	w.must(err)
	return l
}

func (w *world) settle(a ...*pg.Answer) []pg.Settled {
	w.t.Helper()
	out, err := w.s.Settle(w.ctx, a)
	w.must(err)
	return out
}

// answer decides about what a worker said of a lease.
func (w *world) answer(l *pg.Lease, a outbox.Answer) *pg.Answer {
	return &pg.Answer{Lease: l, Result: a.Result, Continue: true, Reachable: a.Class != outbox.ClassBlocked, StartedAt: w.now,
		Step: sequencer.Dispatched(l.Flight(outbox.DefaultMaxRetries), a, l.Dispatcher.Dispatcher, 0.5)}
}

func done() outbox.Answer {
	return outbox.Answer{Result: outbox.Result{Done: json.RawMessage(`{"ok":true}`)}}
}

func (w *world) state(id outbox.ID) outbox.State {
	w.t.Helper()
	t, err := w.s.Transaction(w.ctx, w.id, id)
	w.must(err)
	return t.State
}
