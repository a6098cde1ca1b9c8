package actors_test

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/actors"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// key is the public key of a number.
func key(n byte) ed25519.PublicKey {
	seed := make([]byte, ed25519.SeedSize)
	seed[0] = n
	return ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
}

func (w *world) actor(id string, keys ...ed25519.PublicKey) {
	w.T.Helper()
	a := actors.NewActor{Actor: actors.Actor{ID: id, Address: []string{}}, Keys: keys}
	_, _, err := w.S.Actors.CreateActor(w.Ctx, w.By, a, db.Once{})
	w.Must(err)
}

// meanwhile does one thing while another, which does it first, has not committed, and returns both errors.
func (w *world) meanwhile(first func() error, second func(*stores.Store) error) (error, error) {
	w.T.Helper()
	other, err := stores.Open(w.Ctx, w.Second(2), pgworld.Quiet)
	w.Must(err)
	said := make(chan error, 1)
	var once sync.Once
	w.S.HoldCommits(func(context.Context, uint32) error {
		once.Do(func() {
			go func() { said <- second(other) }()
			w.UntilBlocked(1)
		})
		return nil
	})
	err = first()
	return err, <-said
}

func TestOfTwoActorsThatBringOneKeyOneHasIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	bring := func(s *stores.Store, id string) error {
		a := actors.NewActor{Actor: actors.Actor{ID: id, Address: []string{}}, Keys: []ed25519.PublicKey{key(1)}}
		_, _, err := s.Actors.CreateActor(w.Ctx, w.By, a, db.Once{})
		return err
	}
	first, second := w.meanwhile(
		func() error { return bring(w.S, "ann") },
		func(s *stores.Store) error { return bring(s, "bob") })
	w.Must(first)
	if fault.KindOf(second) != fault.Conflict || fault.CodeOf(second) != "in_use" {
		t.Errorf("the second one has the key, too: %v", second)
	}
	if _, err := w.S.Actors.Actor(w.Ctx, "bob"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("something of the second one is stored: %v", err)
	}
}

// A key of an actor that was removed, or that is being removed at this moment, names no other one, compromised or not.
func TestAKeyOfARemovedActorNamesNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.actor("ann", key(1))
	w.actor("eve", key(9))
	_, err := w.S.Actors.AddKey(w.Ctx, w.By, "ann", key(2))
	w.Must(err)
	_, err = w.S.Actors.RetireKey(w.Ctx, w.By, "ann", key(2), true)
	w.Must(err)
	bring := func(s *stores.Store, keys ...ed25519.PublicKey) error {
		a := actors.NewActor{Actor: actors.Actor{ID: "bob", Address: []string{}}, Keys: keys}
		_, _, err := s.Actors.CreateActor(w.Ctx, w.By, a, db.Once{})
		return err
	}
	first, second := w.meanwhile(
		func() error { return w.S.Actors.RemoveActor(w.Ctx, w.By, "ann") },
		func(s *stores.Store) error { return bring(s, key(3), key(1)) })
	w.Must(first)
	refused := func(err error, at string) {
		t.Helper()
		if f := fault.As(err); f == nil || f.Code != "in_use" || len(f.Fields) != 1 || f.Fields[0].Pointer != at {
			t.Errorf("%v, want in_use at %s", err, at)
		}
	}
	refused(second, "/public_keys/1")
	refused(bring(w.S, key(2)), "/public_keys/0")
	refused(bring(w.S, key(9)), "/public_keys/0")
	_, err = w.S.Actors.AddKey(w.Ctx, w.By, "eve", key(2))
	refused(err, "/public_key")
	w.actor("ann", key(3))
	_, err = w.S.Actors.AddKey(w.Ctx, w.By, "ann", key(1)) // of that name, and another one
	refused(err, "/public_key")
	_, err = w.S.Actors.AddKey(w.Ctx, w.By, "ann", key(9))
	refused(err, "/public_key")
}

func TestOfTwoNewKeysBesideOneTheSecondIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.actor("ann", key(1))
	add := func(s *stores.Store, n byte) error { _, err := s.Actors.AddKey(w.Ctx, w.By, "ann", key(n)); return err }
	first, second := w.meanwhile(func() error { return add(w.S, 2) }, func(s *stores.Store) error { return add(s, 3) })
	w.Must(first)
	if fault.CodeOf(second) != "wrong_state" {
		t.Errorf("three keys are live: %v", second)
	}
	_, err := w.S.Actors.RetireKey(w.Ctx, w.By, "ann", key(1), false)
	w.Must(err)
	w.Must(add(w.S, 3)) // into the slot that is free
	list, err := w.S.Actors.PublicKeysOf(w.Ctx, "ann")
	w.Must(err)
	if len(list) != 3 || !list[0].Live() || !list[1].Live() || list[2].Live() || !list[2].Key.Equal(key(1)) {
		t.Errorf("%+v", list)
	}
}

// Of two processes that see one nonce the second waits for the commit of the first.
func TestOfTwoUsesOfANonceOneHolds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	sig := actors.Signed{Key: key(1), Nonce: "n", Expires: w.Now.Add(time.Minute)}
	use := func(s *stores.Store) error { return s.Actors.Use(w.Ctx, sig) }
	first, second := w.meanwhile(func() error { return use(w.S) }, use)
	w.Must(first)
	if fault.CodeOf(second) != "replayed_signature" {
		t.Errorf("the nonce was used twice: %v", second)
	}
	w.Must(w.S.Actors.Use(w.Ctx, actors.Signed{Key: key(2), Nonce: "n", Expires: sig.Expires})) // of another key
}

func TestNoncesThatHoldNoMoreAreForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	use := func(nonce string) {
		w.Must(w.S.Actors.Use(w.Ctx, actors.Signed{Key: key(1), Nonce: nonce, Expires: w.Now.Add(time.Minute)}))
	}
	for i := range 10 {
		use(fmt.Sprint(i))
	}
	w.Now = w.Now.Add(time.Hour)
	for i := range 3 {
		use(fmt.Sprint("later-", i))
	}
	var n int
	w.Must(w.S.Pool().QueryRow(w.Ctx, `SELECT count(*) FROM postern.nonce`).Scan(&n))
	if n != 3 {
		t.Errorf("%d nonces are kept, want 3", n)
	}
}

// A message is believed by when it was made, when it came, and what became of the key.
func TestARetiredKeyIsBelievedForWhatWasUnderWay(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		retired           *time.Time
		compromised       bool
		created, received time.Duration
		believed          bool
	}{
		"live":                       {created: time.Hour, received: time.Hour, believed: true},
		"before, and at once":        {retired: &at, created: -time.Minute, received: time.Minute, believed: true},
		"before, and within the day": {retired: &at, created: -time.Hour, received: 24 * time.Hour, believed: true},
		"before, and a day later":    {retired: &at, created: -time.Hour, received: 24*time.Hour + time.Second},
		"after":                      {retired: &at, created: time.Second, received: time.Minute},
		"compromised":                {retired: &at, compromised: true, created: -time.Hour, received: time.Second},
	} {
		k := actors.PublicKey{Actor: "ann", Key: key(1), RetiredAt: c.retired, Compromised: c.compromised}
		if err := k.Believes(at.Add(c.created), at.Add(c.received)); (err == nil) != c.believed {
			t.Errorf("%s: %v", name, err)
		}
	}
}
