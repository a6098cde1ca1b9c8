package verify_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest"
	"github.com/postern-dev/postern/internal/sequencer"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// opened makes an empty database with a store over it, and says who changes something in it.
func opened(t *testing.T) (*stores.Store, db.By) {
	t.Helper()
	s := pgtest.New(t).Store(t, 4)
	return s, db.By{Context: s.Context("default").ID, Actor: "ann", Via: "test"}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// busy makes a database with a bit of everything, made by the store alone: queue ended has three DONE; queue
// flying has one in DISPATCHING under node and sender a1, one cancelled and one waiting behind; queue waiting
// has one that was accepted, with sender a2; queue lone is READY; one unordered stands exclusively.
func busy(t *testing.T) *pgxpool.Pool {
	t.Helper()
	ctx := t.Context()
	s, by := opened(t)
	for _, typ := range []string{"T", "X"} {
		d := outbox.DefaultDispatcher()
		d.Type, d.WorkerURL, d.Pool = typ, "http://127.0.0.1:1/", "p"
		if typ == "X" {
			d.Exclusive = "type"
		}
		_, err := s.PutDispatcher(ctx, by, d, 0)
		ok(t, err)
	}
	for _, a := range []string{"a1", "a2", "a3"} {
		_, err := s.PutSender(ctx, by, pg.Sender{Account: a, Pool: "p"}, 0)
		ok(t, err)
	}
	n, err := s.Register(ctx, "n", "test", time.Hour)
	ok(t, err)
	room := pg.Room{Total: 1, Slots: func(*pg.Dispatcher) int { return 1 }}
	post := func(queue, typ string, uids ...string) (ids []outbox.ID) {
		t.Helper()
		var subs []*pg.Submission
		for _, u := range uids {
			subs = append(subs, &pg.Submission{ContextID: by.Context, Queue: queue, Type: typ, UID: u,
				Hash: []byte(u), Data: json.RawMessage(`{}`)})
		}
		out, err := s.Ingest(ctx, subs, true)
		ok(t, err)
		for _, a := range out {
			ok(t, a.Err)
			ids = append(ids, a.ID)
		}
		return ids
	}
	claim := func() *pg.Lease {
		t.Helper()
		l, _, err := s.Claim(ctx, n, room)
		ok(t, err)
		if len(l) != 1 {
			t.Fatalf("claimed %d", len(l))
		}
		return l[0]
	}
	settle := func(l *pg.Lease, a outbox.Answer) *pg.Lease {
		t.Helper()
		out, err := s.Settle(ctx, []*pg.Answer{{Lease: l, Result: a.Result, StartedAt: time.Now(),
			Gate: sequencer.MoveOpen, Continue: true,
			Step: sequencer.Dispatched(l.Flight(2), a, l.Dispatcher.Dispatcher, 0.5)}})
		ok(t, err)
		return out[0].Next
	}
	done := outbox.Answer{Result: outbox.Result{Done: json.RawMessage(`{"ok":true}`)}}

	post("ended", "T", "e1", "e2", "e3")
	for l := claim(); l != nil; {
		l = settle(l, done)
	}
	post("waiting", "T", "w1")
	settle(claim(), outbox.Answer{Result: outbox.Result{Hash: "0xw"}})
	post("", "X", "x")
	claim()
	ids := post("flying", "T", "f1", "f2", "f3", "f4")
	l := settle(claim(), done) // lazily: the row says f1, f2 is in flight
	if l == nil {
		t.Fatal("nothing follows f1")
	}
	_, err = s.Cancel(ctx, by, ids[2])
	ok(t, err)
	post("lone", "T", "l1")
	return s.Pool()
}
