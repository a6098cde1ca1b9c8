package messages_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg/messages"
	"github.com/postern-dev/postern/internal/pg/stores"
)

// brought is a message of the peer near for the context shop, as an actor wrote it that has a key here.
func (w *world) brought(change ...func(*message.Signed)) messages.Arrival {
	w.T.Helper()
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	w.Exec(`INSERT INTO postern.actor (actor_id) VALUES ('dev') ON CONFLICT DO NOTHING`)
	w.Exec(`INSERT INTO postern.actor_key (public_key, actor_id, slot, added_at) VALUES ($1, 'dev', 1, '2000-01-01')
		ON CONFLICT DO NOTHING`, []byte(key.Public().(ed25519.PublicKey)))
	us, err := w.S.Messages.Here(w.Ctx, "shop")
	w.Must(err)
	us.Peer = "near"
	s := message.Signed{Audience: us, CreatedAt: w.Now, Type: message.Chat, Body: uuid.NewString()}
	for _, c := range change {
		c(&s)
	}
	envelope, err := message.Write(s, key)
	w.Must(err)
	return messages.Arrival{Context: w.S.Context("shop"), Peer: "near", ID: uuid.New(), Envelope: envelope}
}

func (w *world) arrives(s *stores.Store, a messages.Arrival) string {
	_, known, err := s.Messages.Arrive(w.Ctx, a)
	if err == nil && known {
		return "known"
	}
	return said(err)
}

// there is what the message of an arrival has come to here.
func (w *world) there(a messages.Arrival) string {
	w.T.Helper()
	return strings.Join(w.Lines(`SELECT status || ' ' || error_code
		FROM postern.message
		WHERE peer_message = $1`, a.ID), ", ")
}

// The deadlines of a message from a peer end it here, too, a minute later: a peer that was restored to a time before
// it, or that is gone, tells of no end.
func TestTheDeadlinesOfAPeersMessageEndItHereToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	list := []messages.Arrival{
		w.brought(func(s *message.Signed) { s.Timeout, s.Ack = 1, 10 }),
		w.brought(func(s *message.Signed) { s.Ack, s.Result = 10, 20 }),
		w.brought(),
	}
	for _, a := range list {
		w.Same([]string{w.arrives(w.S, a), w.arrives(w.S, a)}, "ok", "known")
	}
	received, err := w.receive(w.S, 3)
	w.Must(err)
	_, err = w.S.Messages.Ack(w.Ctx, w.shop, received[1].ID, received[1].Fence)
	w.Must(err)
	after := func(d time.Duration, want ...string) {
		t.Helper()
		w.Later(d)
		_, err := w.S.Messages.Expire(w.Ctx)
		w.Must(err)
		w.Same([]string{w.there(list[0]), w.there(list[1]), w.there(list[2])}, want...)
	}
	after(69*time.Second, "dispatched ", "acknowledged ", "dispatched ")
	after(2*time.Second, "error timeout_ack", "acknowledged ", "dispatched ")
	after(10*time.Second, "error timeout_ack", "error timeout_result", "dispatched ")
	after(1000*time.Hour, "error timeout_ack", "error timeout_result", "dispatched ")
	_, err = w.S.Messages.Cancel(w.Ctx, w.By, received[2].ID) // of a context that it is not for
	w.Same([]string{said(err)}, "not_found")
	changed, err := w.S.Messages.Cancel(w.Ctx, w.shop, received[2].ID)
	if err != nil || !changed || w.there(list[2]) != "error rejected" {
		t.Error(changed, err, w.there(list[2]))
	}
}

// An envelope that is written otherwise, under another name, is the same message: its signature covers the payload
// alone.
func TestAnEnvelopeIsKnownAgainHoweverItIsWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.brought()
	w.Same([]string{w.arrives(w.S, first)}, "ok")
	var e message.Envelope
	w.Must(json.Unmarshal(first.Envelope, &e))
	for range 2 {
		e.Signatures[0].KeyID = uuid.NewString()
		again, err := json.MarshalIndent(e, "", "  ")
		w.Must(err)
		other := first
		other.ID, other.Envelope = uuid.New(), again
		w.Same([]string{w.arrives(w.S, other)}, "known")
	}
	var n int
	w.Scan(`SELECT count(*) FROM postern.message`, &n)
	if n != 1 {
		t.Errorf("%d messages were stored", n)
	}
}

// What a peer has had stopped is not stored when a process that was frozen brings it after all.
func TestWhatWasStoppedBeforeItArrivesIsNotStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before, at := w.brought(), w.brought()
	other := w.Another(4)
	stop := func(s *stores.Store, a messages.Arrival) error {
		return s.Messages.Stop(w.Ctx, w.shop.Context, "near", a.ID)
	}
	w.Must(stop(w.S, before))
	w.Must(stop(w.S, before))
	w.Same([]string{w.arrives(w.S, before), w.there(before)}, "wrong_state", "")

	second, waited := w.Beside(func() error { return stop(w.S, at) }, func() string { return w.arrives(other, at) })
	w.Same([]string{second, w.there(at)}, "wrong_state", "")
	if !waited {
		t.Error("an arrival did not wait for the stop beside it")
	}
	at = w.brought()
	second, waited = w.Beside(func() error { _, _, err := w.S.Messages.Arrive(w.Ctx, at); return err },
		func() string { return said(stop(other, at)) })
	w.Same([]string{second, w.there(at)}, "ok", "error cancelled")
	if !waited {
		t.Error("a stop did not wait for the arrival beside it")
	}
}

// An envelope may be as old as what is remembered here: retention notes how far that goes, before it forgets.
func TestAnEnvelopeThatWaitedForDaysIsTakenWhileItIsKnownAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.brought()
	w.Same([]string{w.arrives(w.S, first)}, "ok")
	waited := w.brought()
	w.Later(20 * 24 * time.Hour)
	w.Same([]string{w.arrives(w.S, waited), w.arrives(w.S, waited)}, "ok", "known")

	received, err := w.receive(w.S, 2)
	w.Must(err)
	for _, m := range received {
		_, err := w.S.Messages.Processed(w.Ctx, w.shop, m.ID, m.Fence)
		w.Must(err)
	}
	kept := w.brought(func(s *message.Signed) { s.CreatedAt = w.Now.Add(-48 * time.Hour) })
	w.Must(w.S.Refresh(w.Ctx)) // there are messages: retention asks for them
	w.Later(3 * 24 * time.Hour)
	_, err = w.S.Retain(w.Ctx, 2*24*time.Hour)
	w.Must(err)
	if left := w.there(first); left != "" {
		t.Fatal("nothing was forgotten:", left)
	}
	fresh := w.brought(func(s *message.Signed) { s.CreatedAt = w.Now.Add(-23 * time.Hour) })
	w.Same([]string{w.arrives(w.S, first), w.arrives(w.S, kept), w.arrives(w.S, fresh)}, "invalid", "invalid", "ok")
}
