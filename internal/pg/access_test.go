package pg_test

import (
	"context"
	"sync"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
)

// Two admins leave at once, each because the other one stays: the context's row is locked first, so that the
// second sees what the first committed, and stays.
func TestOfTwoAdminsWhoLeaveAtOnceOneStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, id := range []string{"ann", "bob"} {
		_, _, err := w.s.CreateActor(w.ctx, w.by, pg.Actor{ID: id, PublicKeys: []string{}, Address: []string{}}, "", pg.Once{})
		w.must(err)
	}
	_, err := w.s.PutContext(w.ctx, w.by, pg.Tenant{Context: pg.Context{Name: "shop", MaxDepth: 1}, Members: pg.Members{Admins: []string{"ann", "bob"}}}, 0)
	w.must(err)
	other, err := stores.Open(w.ctx, w.second(2), quiet)
	w.must(err)
	second := make(chan error, 1)
	var once sync.Once
	w.s.HoldCommits(func(context.Context, uint32) error {
		once.Do(func() { // ann has gone and not committed: bob begins, and has to wait
			go func() { _, err := other.SetMember(w.ctx, w.by, "shop", "bob", nil); second <- err }()
			w.untilBlocked(1)
		})
		return nil
	})
	_, err = w.s.SetMember(w.ctx, w.by, "shop", "ann", nil)
	w.must(err)
	if err := <-second; fault.CodeOf(err) != "wrong_state" {
		t.Errorf("the last admin left: %v", err)
	}
	v, err := w.s.Tenant(w.ctx, "shop")
	w.must(err)
	if len(v.Admins) != 1 || v.Admins[0] != "bob" {
		t.Errorf("%+v", v.Members)
	}
}

// An actor becomes a member while it is being forgotten: the foreign key makes the one wait for the other.
func TestAnActorDoesNotBecomeAMemberWhileItGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, _, err := w.s.CreateActor(w.ctx, w.by, pg.Actor{ID: "ann", PublicKeys: []string{}, Address: []string{}}, "", pg.Once{})
	w.must(err)
	_, err = w.s.PutContext(w.ctx, w.by, pg.Tenant{Context: pg.Context{Name: "shop", MaxDepth: 1}}, 0)
	w.must(err)
	other, err := stores.Open(w.ctx, w.second(2), quiet)
	w.must(err)
	second := make(chan error, 1)
	var once sync.Once
	w.s.HoldCommits(func(context.Context, uint32) error {
		once.Do(func() {
			go func() { _, err := other.SetMember(w.ctx, w.by, "shop", "ann", []string{pg.Reader}); second <- err }()
			w.untilBlocked(1)
		})
		return nil
	})
	w.must(w.s.RemoveActor(w.ctx, w.by, "ann"))
	if err := <-second; fault.KindOf(err) != fault.Conflict {
		t.Errorf("a member that is no actor: %v", err)
	}
}

// Two first processes store two first keys: the second waits for the context's row and finds one.
func TestOfTwoFirstKeysOneIsStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other, err := stores.Open(w.ctx, w.second(2), quiet)
	w.must(err)
	type result struct {
		stored bool
		err    error
	}
	second := make(chan result, 1)
	var once sync.Once
	w.s.HoldCommits(func(context.Context, uint32) error {
		once.Do(func() {
			go func() { s, err := other.BootstrapKey(w.ctx, "bbbbbbbb", []byte("b")); second <- result{s, err} }()
			w.untilBlocked(1)
		})
		return nil
	})
	stored, err := w.s.BootstrapKey(w.ctx, "aaaaaaaa", []byte("a"))
	w.must(err)
	if r := <-second; r.err != nil || !stored || r.stored {
		t.Errorf("first stored %v, second %+v", stored, r)
	}
}

// A post that was on its way when its context was deleted is stored, and there when the context comes back.
func TestWhatArrivesForADeletedContextIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.s.PutContext(w.ctx, w.by, pg.Tenant{Context: pg.Context{Name: "shop", MaxDepth: 10}}, 0)
	w.must(err)
	in := w.by
	in.Context = w.s.Context("shop").ID
	d := outbox.DefaultDispatcher()
	d.Type, d.WorkerURL = "T", "noop:"
	_, err = w.s.PutDispatcher(w.ctx, in, d, 0)
	w.must(err)
	late, err := stores.Open(w.ctx, w.second(2), quiet)
	w.must(err)
	late.SetNow(&w.now)
	w.must(w.s.RemoveDispatcher(w.ctx, in, "T", false))
	w.must(w.s.RemoveContext(w.ctx, in, "shop"))
	sub := w.sub("q", "T", "u")
	sub.ContextID = in.Context
	out, err := late.Ingest(w.ctx, []*pg.Submission{sub}, false)
	w.must(err)
	w.must(out[0].Err)
	_, err = w.s.PutContext(w.ctx, w.by, pg.Tenant{Context: pg.Context{Name: "shop", MaxDepth: 10}}, 0)
	w.must(err)
	if _, err := w.s.Transaction(w.ctx, w.s.Context("shop").ID, out[0].ID); err != nil {
		t.Error(err)
	}
	if err := w.s.RemoveContext(w.ctx, in, "shop"); fault.CodeOf(err) != "in_use" {
		t.Errorf("it holds a transaction: %v", err)
	}
}

// untilBlocked waits until n sessions wait for a lock.
func (w *world) untilBlocked(n int) {
	for blocked := 0; blocked < n && w.ctx.Err() == nil; {
		w.must(w.s.Pool().QueryRow(w.ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0`).Scan(&blocked))
	}
}

func TestAPausedContextSendsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	ids := w.post("q", "T", "a", "b")
	w.post("r", "T", "c")
	n := w.node("n")
	leases := w.claim(n, room(1))
	r, err := w.s.PauseContext(w.ctx, w.by, "default", true)
	w.must(err)
	if !r.Changed {
		t.Error("it was paused already")
	}
	// what is out ends; the node does not go on with the next of its queue, and nobody takes another
	if s := w.settle(w.answer(leases[0], done())); s[0].Next != nil {
		t.Errorf("a node went on: %+v", s[0].Next)
	}
	if l := w.claim(n, everything()); len(l) != 0 {
		t.Errorf("claimed %d queues of a paused context", len(l))
	}
	w.post("q", "T", "d") // ingest goes on
	why, err := w.s.Why(w.ctx, w.id, ids[1])
	w.must(err)
	if b := why.Blockers[0]; b.Kind != "context_paused" || b.Object != "/contexts/default" || b.Levers[0].Path != "/contexts/default/resume" ||
		b.Detail != "paused by test: because" || why.Moving {
		t.Errorf("%+v", why)
	}
	w.dispatcher("U", nil) // a type that comes later
	w.post("u", "U", "e")
	if l := w.claim(n, everything()); len(l) != 0 {
		t.Errorf("claimed %d queues of a paused context", len(l))
	}
	_, err = w.s.PauseContext(w.ctx, w.by, "default", false)
	w.must(err)
	if l := w.claim(n, everything()); len(l) != 3 {
		t.Errorf("claimed %d queues after it, want 3", len(l))
	}
}
