package actors_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/actors"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/peers"
	"github.com/postern-dev/postern/internal/pg/stores"
)

// shop makes the context shop, with the admins ann and bob, and returns its id.
func (w *world) shop() int32 {
	w.T.Helper()
	w.actor("ann", key(1))
	w.actor("bob", key(2))
	_, err := w.S.PutContext(w.Ctx, w.By, pg.Tenant{Context: pg.Context{Name: "shop", MaxDepth: 1},
		Members: pg.Members{Admins: []string{"ann", "bob"}}}, 0)
	w.Must(err)
	return w.S.Context("shop").ID
}

// as is who was let in by what it has shown.
func as(s *stores.Store, in int32, actor string, shown []byte) db.By {
	return db.By{Context: in, Actor: actor, Via: "test", Still: s.Actors.Still(actor, shown)}
}

// drawnKey is an API key of an admin that is not stored yet.
func drawnKey() actors.Key {
	id := uuid.New()
	return actors.Key{ID: id, Prefix: id.String()[:8], Name: "k", Role: pg.Admin, Only: []string{}}
}

// An admin was let in, and is taken out while its lever waits: it gives itself nothing that outlasts that.
func TestWhoIsTakenOutGivesItselfNoAccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in := w.shop()
	have := drawnKey()
	_, _, err := w.S.Actors.CreateKey(w.Ctx, db.By{Context: in, Actor: "test"}, have, []byte("secret"), db.Once{})
	w.Must(err)
	out := func() error { _, err := w.S.SetMember(w.Ctx, w.By, "shop", "ann", nil); return err }
	for name, lever := range map[string]func(s *stores.Store, by db.By) error{
		"put a member": func(s *stores.Store, by db.By) error {
			_, err := s.SetMember(w.Ctx, by, "shop", "ann", []string{pg.Admin})
			return err
		},
		"put the context": func(s *stores.Store, by db.By) error {
			_, err := s.PutContext(w.Ctx, by, pg.Tenant{Context: pg.Context{Name: "shop", MaxDepth: 1},
				Members: pg.Members{Admins: []string{"ann"}}}, 0)
			return err
		},
		"put it as its own": func(s *stores.Store, by db.By) error {
			_, err := s.MakeContext(w.Ctx, by, pg.Tenant{Context: pg.Context{Name: "shop", MaxDepth: 1}}, 0)
			if fault.CodeOf(err) == "in_use" {
				return fault.New(fault.Forbidden, "forbidden", "%s", err)
			}
			return err
		},
		"make a key": func(s *stores.Store, by db.By) error {
			_, _, err := s.Actors.CreateKey(w.Ctx, by, drawnKey(), []byte("more"), db.Once{})
			return err
		},
		"rotate a key": func(s *stores.Store, by db.By) error {
			return s.Actors.RotateKey(w.Ctx, by, have.ID, []byte("more"), 0)
		},
		"put a peer": func(s *stores.Store, by db.By) error {
			_, err := s.Installations.PutPeer(w.Ctx, by, peers.Settings{Name: "far", Secret: make([]byte, 32)}, 0)
			return err
		},
	} {
		first, second := w.meanwhile(out, func(s *stores.Store) error { return lever(s, as(s, in, "ann", key(1))) })
		w.Must(first)
		if fault.CodeOf(second) != "forbidden" {
			t.Errorf("%s: %v", name, second)
		}
		v, err := w.S.Tenant(w.Ctx, "shop")
		w.Must(err)
		if len(v.Admins) != 1 {
			t.Errorf("%s: the admins are %v", name, v.Admins)
		}
		w.Must(lever(w.S, as(w.S, in, "bob", key(2)))) // bob, who stays, may
		_, err = w.S.PutContext(w.Ctx, w.By, pg.Tenant{Context: pg.Context{Name: "shop", MaxDepth: 1},
			Members: pg.Members{Admins: []string{"ann", "bob"}}}, 0)
		w.Must(err)
	}
}

// A context is deleted while one of its admins puts it: an admin of system alone would make it anew.
func TestADeletedContextDoesNotComeBackByItsAdmin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in := w.shop()
	put := func(s *stores.Store) error {
		v := pg.Tenant{Context: pg.Context{Name: "shop", MaxDepth: 1}, Members: pg.Members{Admins: []string{"ann"}}}
		_, err := s.PutContext(w.Ctx, as(s, in, "ann", key(1)), v, 0)
		return err
	}
	first, second := w.meanwhile(func() error { return w.S.RemoveContext(w.Ctx, w.By, "shop") }, put)
	w.Must(first)
	if fault.KindOf(second) != fault.NotFound {
		t.Errorf("it was put: %v", second)
	}
	_, err := w.S.PutContext(w.Ctx, w.By, pg.Tenant{Context: pg.Context{Name: pg.System, MaxDepth: 1},
		Members: pg.Members{Admins: []string{"ann"}}}, 0)
	w.Must(err)
	w.Must(put(w.S))
}

// A credential is revoked while the lever waits by which it would make itself a successor.
func TestACredentialThatEndsMakesNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in := w.shop()
	k := drawnKey()
	_, _, err := w.S.Actors.CreateKey(w.Ctx, db.By{Context: in, Actor: "test"}, k, []byte("secret"), db.Once{})
	w.Must(err)
	holder := "key:" + k.Prefix
	create := func(s *stores.Store) error {
		_, _, err := s.Actors.CreateKey(w.Ctx, as(s, in, holder, []byte("secret")), drawnKey(), []byte("b"), db.Once{})
		return err
	}
	w.Must(create(w.S))
	of := db.By{Context: in, Actor: "test"}
	first, second := w.meanwhile(
		func() error { return w.S.Actors.RotateKey(w.Ctx, of, k.ID, []byte("next"), 0) }, create)
	w.Must(first)
	if fault.CodeOf(second) != "unauthenticated" {
		t.Errorf("by the secret before a rotation: %v", second)
	}
	add := func(n byte) func(s *stores.Store) error {
		return func(s *stores.Store) error {
			_, err := s.Actors.AddKey(w.Ctx, as(s, in, "ann", key(1)), "ann", key(n))
			return err
		}
	}
	w.Must(add(3)(w.S))
	_, err = w.S.Actors.RetireKey(w.Ctx, w.By, "ann", key(3), false)
	w.Must(err)
	retire := func() error { _, err := w.S.Actors.RetireKey(w.Ctx, w.By, "ann", key(1), true); return err }
	first, second = w.meanwhile(retire, add(4))
	w.Must(first)
	if fault.CodeOf(second) != "unauthenticated" {
		t.Errorf("by a compromised key: %v", second)
	}
}

// An admin of system is taken out while it gives somebody else's actor a key of its own, or its own identity.
func TestWhoIsNoAdminOfSystemAnyMoreTakesNoActor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shop()
	system := w.S.Context(pg.System).ID
	for n, lever := range []func(s *stores.Store, by db.By) error{
		func(s *stores.Store, by db.By) error {
			_, err := s.Actors.AddKey(w.Ctx, by, "bob", key(3))
			return err
		},
		func(s *stores.Store, by db.By) error {
			a := actors.Actor{ID: "bob", Address: []string{}, Issuer: "https://id.example", Subject: "ann"}
			return s.Actors.PutActor(w.Ctx, by, a, 0)
		},
		func(s *stores.Store, by db.By) error {
			a := actors.NewActor{Actor: actors.Actor{ID: "next", Address: []string{}}, Own: "shops"}
			_, _, err := s.Actors.CreateActor(w.Ctx, by, a, db.Once{})
			return err
		},
	} {
		_, err := w.S.PutContext(w.Ctx, w.By, pg.Tenant{Context: pg.Context{Name: pg.System, MaxDepth: 1},
			Members: pg.Members{Admins: []string{"ann", "bob"}}}, 0)
		w.Must(err)
		first, second := w.meanwhile(
			func() error { _, err := w.S.SetMember(w.Ctx, w.By, pg.System, "ann", nil); return err },
			func(s *stores.Store) error { return lever(s, as(s, system, "ann", key(1))) })
		w.Must(first)
		if fault.CodeOf(second) != "forbidden" {
			t.Errorf("lever %d: %v", n, second)
		}
	}
}
