package actors_test

import (
	"context"
	"sync"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/actors"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// Two admins leave at once, each because the other one stays: the context's row is locked first, so that the
// second sees what the first committed, and stays.
func TestOfTwoAdminsWhoLeaveAtOnceOneStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, id := range []string{"ann", "bob"} {
		_, _, err := w.S.Actors.CreateActor(w.Ctx, w.By, actors.NewActor{Actor: actors.Actor{ID: id, Address: []string{}}}, db.Once{})
		w.Must(err)
	}
	_, err := w.S.PutContext(w.Ctx, w.By, pg.Tenant{Context: pg.Context{Name: "shop", MaxDepth: 1}, Members: pg.Members{Admins: []string{"ann", "bob"}}}, 0)
	w.Must(err)
	other, err := stores.Open(w.Ctx, w.Second(2), pgworld.Quiet)
	w.Must(err)
	second := make(chan error, 1)
	var once sync.Once
	w.S.HoldCommits(func(context.Context, uint32) error {
		once.Do(func() { // ann has gone and not committed: bob begins, and has to wait
			go func() { _, err := other.SetMember(w.Ctx, w.By, "shop", "bob", nil); second <- err }()
			w.UntilBlocked(1)
		})
		return nil
	})
	_, err = w.S.SetMember(w.Ctx, w.By, "shop", "ann", nil)
	w.Must(err)
	if err := <-second; fault.CodeOf(err) != "wrong_state" {
		t.Errorf("the last admin left: %v", err)
	}
	v, err := w.S.Tenant(w.Ctx, "shop")
	w.Must(err)
	if len(v.Admins) != 1 || v.Admins[0] != "bob" {
		t.Errorf("%+v", v.Members)
	}
}

// An actor becomes a member while it is being forgotten: the foreign key makes the one wait for the other.
func TestAnActorDoesNotBecomeAMemberWhileItGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, _, err := w.S.Actors.CreateActor(w.Ctx, w.By, actors.NewActor{Actor: actors.Actor{ID: "ann", Address: []string{}}}, db.Once{})
	w.Must(err)
	_, err = w.S.PutContext(w.Ctx, w.By, pg.Tenant{Context: pg.Context{Name: "shop", MaxDepth: 1}}, 0)
	w.Must(err)
	other, err := stores.Open(w.Ctx, w.Second(2), pgworld.Quiet)
	w.Must(err)
	second := make(chan error, 1)
	var once sync.Once
	w.S.HoldCommits(func(context.Context, uint32) error {
		once.Do(func() {
			go func() { _, err := other.SetMember(w.Ctx, w.By, "shop", "ann", []string{pg.Reader}); second <- err }()
			w.UntilBlocked(1)
		})
		return nil
	})
	w.Must(w.S.Actors.RemoveActor(w.Ctx, w.By, "ann"))
	if err := <-second; fault.KindOf(err) != fault.Conflict {
		t.Errorf("a member that is no actor: %v", err)
	}
}

// Two first processes store two first keys: the second waits for the context's row and finds one.
func TestOfTwoFirstKeysOneIsStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other, err := stores.Open(w.Ctx, w.Second(2), pgworld.Quiet)
	w.Must(err)
	type result struct {
		stored bool
		err    error
	}
	second := make(chan result, 1)
	var once sync.Once
	w.S.HoldCommits(func(context.Context, uint32) error {
		once.Do(func() {
			go func() { s, err := other.Actors.BootstrapKey(w.Ctx, "bbbbbbbb", []byte("b")); second <- result{s, err} }()
			w.UntilBlocked(1)
		})
		return nil
	})
	stored, err := w.S.Actors.BootstrapKey(w.Ctx, "aaaaaaaa", []byte("a"))
	w.Must(err)
	if r := <-second; r.err != nil || !stored || r.stored {
		t.Errorf("first stored %v, second %+v", stored, r)
	}
}

// A post that was on its way when its context was deleted is stored, and there when the context comes back.
func TestWhatArrivesForADeletedContextIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.S.PutContext(w.Ctx, w.By, pg.Tenant{Context: pg.Context{Name: "shop", MaxDepth: 10}}, 0)
	w.Must(err)
	in := w.By
	in.Context = w.S.Context("shop").ID
	d := outbox.DefaultDispatcher()
	d.Type, d.WorkerURL = "T", "noop:"
	_, err = w.S.PutDispatcher(w.Ctx, in, d, 0)
	w.Must(err)
	late, err := stores.Open(w.Ctx, w.Second(2), pgworld.Quiet)
	w.Must(err)
	late.SetNow(&w.Now)
	w.Must(w.S.RemoveDispatcher(w.Ctx, in, "T", false))
	w.Must(w.S.RemoveContext(w.Ctx, in, "shop"))
	sub := w.Sub("q", "T", "u")
	sub.ContextID = in.Context
	out, err := late.Ingest(w.Ctx, []*pg.Submission{sub}, false)
	w.Must(err)
	w.Must(out[0].Err)
	_, err = w.S.PutContext(w.Ctx, w.By, pg.Tenant{Context: pg.Context{Name: "shop", MaxDepth: 10}}, 0)
	w.Must(err)
	if _, err := w.S.Transaction(w.Ctx, w.S.Context("shop").ID, out[0].ID); err != nil {
		t.Error(err)
	}
	if err := w.S.RemoveContext(w.Ctx, in, "shop"); fault.CodeOf(err) != "in_use" {
		t.Errorf("it holds a transaction: %v", err)
	}
}

func TestAPausedContextSendsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	ids := w.Post("q", "T", "a", "b")
	w.Post("r", "T", "c")
	n := w.Node("n")
	leases := w.Claim(n, pgworld.Room(1))
	r, err := w.S.PauseContext(w.Ctx, w.By, "default", true)
	w.Must(err)
	if !r.Changed {
		t.Error("it was paused already")
	}
	// a transaction in flight ends; its node does not go on with the next of the queue, and no claim takes another
	// queue
	if s := w.Settle(w.Answer(leases[0], pgworld.Done())); s[0].Next != nil {
		t.Errorf("a node went on: %+v", s[0].Next)
	}
	if l := w.Claim(n, pgworld.Everything()); len(l) != 0 {
		t.Errorf("claimed %d queues of a paused context", len(l))
	}
	w.Post("q", "T", "d") // ingest goes on
	why, err := w.S.Reads.Why(w.Ctx, w.ID, ids[1])
	w.Must(err)
	if b := why.Blockers[0]; b.Kind != "context_paused" || b.Object != "/contexts/default" || b.Levers[0].Path != "/contexts/default/resume" ||
		b.Detail != "paused by test: because" || why.Moving {
		t.Errorf("%+v", why)
	}
	w.Dispatcher("U", nil) // a type that comes later
	w.Post("u", "U", "e")
	if l := w.Claim(n, pgworld.Everything()); len(l) != 0 {
		t.Errorf("claimed %d queues of a paused context", len(l))
	}
	_, err = w.S.PauseContext(w.Ctx, w.By, "default", false)
	w.Must(err)
	if l := w.Claim(n, pgworld.Everything()); len(l) != 3 {
		t.Errorf("claimed %d queues after it, want 3", len(l))
	}
}
