package domains_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/pg/domains"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// forgets has retention run a month later, and says which intents it leaves.
func (w *world) forgets(want ...string) {
	w.T.Helper()
	w.Later(30 * 24 * time.Hour)
	w.Must(w.S.Refresh(w.Ctx))
	_, err := w.S.Retain(w.Ctx, 48*time.Hour)
	w.Must(err)
	w.Same(w.receipts(), want...)
}

// A public transaction whose outcome the core does not know has ended once an operator says what became of it, also for
// a process that had read the core's word before: retention does not keep its intent.
func TestWhatEndsByAnotherWordIsForgotten(t *testing.T) {
	w := newWorld(t)
	i := w.post("a")
	for range 8 {
		w.Must(w.turn(w.Ctx, w.S, w.node))
	}
	leases, _, err := w.core.Claim(w.Ctx, w.node, pgworld.Everything())
	w.Must(err)
	_, err = w.S.Abandon(w.Ctx, w.By, leases[0].Task.ID)
	w.Must(err)
	o := w.Other()
	late, err := o.S.Domains.Words(w.Ctx)
	w.Must(err)
	if len(late[w.id()]) == 0 {
		t.Fatal("the core says nothing")
	}
	w.Must(w.turn(w.Ctx, w.S, w.node))
	const open = `SELECT state || ' ' || (ended_at IS NULL) FROM postern.coord_activity`
	w.Same(w.Lines(open), "unknown true")
	said, waited := w.Beside(func() error {
		_, err := w.S.Domains.Release(w.Ctx, w.By, "tok", i.ID, true)
		return err
	}, func() string {
		_, err := o.S.Domains.StepInLine(w.Ctx, w.id(), late[w.id()])
		return fmt.Sprint(err)
	})
	if said != "<nil>" || !waited {
		t.Error(said, waited)
	}
	w.Same(w.Lines(open), "unknown false")
	for range 6 {
		w.Must(w.turn(w.Ctx, w.S, w.node))
		w.Later(time.Second)
	}
	w.forgets()
	w.Same(w.Lines(`SELECT 'a payload' FROM postern.coord_payload`))
}

// A service that is told no more what has settled is not called for it, also where a step adds such a call while the
// settings change.
func TestAServiceThatIsNotToldAnyMoreKeepsNoIntent(t *testing.T) {
	w := newWorld(t)
	put := func(on *stores.Store, calls ...string) error {
		set := w.settings()
		set.ServiceCalls = calls
		_, err := on.Domains.Put(w.Ctx, w.By, "tok", set, 0)
		return err
	}
	w.Must(put(w.S, domains.CallSettled))
	w.post("a")
	for range 8 {
		w.Must(w.turn(w.Ctx, w.S, w.node))
	}
	w.send()
	words, err := w.S.Domains.Words(w.Ctx)
	w.Must(err)
	o := w.Other()
	said, waited := w.Beside(func() error {
		_, err := w.S.Domains.Step(w.Ctx, w.id(), words[w.id()])
		return err
	}, func() string { return says(put(o.S)) })
	if said != "nothing" || !waited {
		t.Error(said, waited)
	}
	w.Same(w.receipts(), "success ")
	w.Same(w.Lines(`SELECT kind FROM postern.coord_call`))
	for range 6 {
		w.Must(w.turn(w.Ctx, w.S, w.node))
		w.Later(time.Second)
	}
	w.forgets()
}
