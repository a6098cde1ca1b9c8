package messages_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/messages"
	"github.com/postern-dev/postern/internal/pg/peers"
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
	r, err := w.S.Messages.Cancel(w.Ctx, w.shop, received[2].ID)
	if err != nil || !r.Changed || w.there(list[2]) != "error rejected" {
		t.Error(r, err, w.there(list[2]))
	}
}

// An envelope that is written otherwise, under its name or another one, is the same message: its signature covers the
// payload alone.
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
		other.Envelope = again
		w.Same([]string{w.arrives(w.S, other)}, "known")
		other.ID = uuid.New()
		w.Same([]string{w.arrives(w.S, other)}, "known")
		first.ID = other.ID // it is known under that from then on
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
		return s.Messages.Stop(w.Ctx, w.shop.Context, "near", []uuid.UUID{a.ID}, nil)
	}
	w.Must(stop(w.S, before))
	w.Must(stop(w.S, before))
	w.Same([]string{w.arrives(w.S, before), w.there(before)}, "wrong_state", "")
	_, _, err := w.S.Messages.Arrive(w.Ctx, before)
	if s := fmt.Sprint(err); !strings.Contains(s, "cancelled") || !strings.Contains(s, "restored from a backup") {
		t.Errorf("its sender is told %s", s)
	}

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

// A message that arrives while those before it are stopped is not stored, or its job is cancelled with them.
func TestAJobThatArrivesBesideItsStopIsNotExecuted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	jobs := func(s *message.Signed) {
		s.Type, s.Body, s.Jobs = message.Job, "", json.RawMessage(`[{"script": "1", "script_type": "python"}]`)
	}
	there, late := w.brought(jobs), w.brought(jobs)
	w.Same([]string{w.arrives(w.S, there)}, "ok")
	hold := w.Begin(w.S.Pool())
	defer func() { _ = hold.Rollback(w.Ctx) }()
	var pid int
	w.Must(hold.QueryRow(w.Ctx, `SELECT pg_backend_pid() FROM postern.job FOR UPDATE`).Scan(&pid))
	ended := make(chan error, 1)
	other := w.Another(4)
	both := []uuid.UUID{late.ID, there.ID}
	go func() { ended <- other.Messages.Stop(w.Ctx, w.shop.Context, "near", both, both) }()
	for waits, end := false, time.Now().Add(time.Minute); !waits && time.Now().Before(end); {
		w.Must(w.S.Pool().QueryRow(w.Ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND $1::int = ANY (pg_blocking_pids(pid)))`, pid).Scan(&waits))
	}
	w.arrives(w.S, late)
	w.Must(hold.Rollback(w.Ctx))
	w.Must(<-ended)
	w.Same(w.Lines(`SELECT status || ' ' || error_code FROM postern.job`), "error cancelled")
	w.Same([]string{w.there(there), w.there(late)}, "error cancelled", "")
}

// So many messages one call stops, and no more: it ends each of them, and its job, in a commit.
func TestOneCallStopsSoManyMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.far()
	w.crowd()
	for _, want := range []int{100, 51, 0} {
		stop, _, err := w.S.Messages.ToStop(w.Ctx, f)
		w.Must(err)
		if len(stop) != want {
			t.Errorf("%d are to be stopped, want %d", len(stop), want)
		}
		w.Must(w.S.Messages.Stopped(w.Ctx, f, stop, 0))
	}
}

// A message that answers one of the other installation names it there as it is called there: what its actor signed has
// the name that it has where it was written. A name of no message to the peer is left as it was signed.
func TestAnAnswerNamesItsMessageAsItIsCalledThere(t *testing.T) {
	t.Parallel()
	there, here := newWorld(t), newWorld(t)
	there.far()
	asked := there.leave("are you there?")[0]
	question := here.brought()
	question.ID = asked
	m, _, err := here.S.Messages.Arrive(here.Ctx, question)
	here.Must(err)
	_, err = here.S.Installations.PutPeer(here.Ctx, here.shop, peers.Settings{Name: "near",
		Secret: []byte(strings.Repeat("s", 32)), URL: "https://near.example/contexts/default/peers/far"}, 0)
	here.Must(err)
	answer, err := here.S.Messages.Post(here.Ctx, here.shop, here.chat("yes", func(p *messages.Posted) {
		p.Target, p.To, p.ReplyTo = 0, message.To{Peer: "near", Context: "default"}, &m.ID
	}))
	here.Must(err)
	names, err := here.S.Messages.AnswersAt(here.Ctx, answer)
	if err != nil || names == nil || *names != asked {
		t.Fatalf("it answers %v there, want %v: %v", names, asked, err)
	}
	foreign := uuid.New()
	for named, want := range map[*uuid.UUID]uuid.UUID{names: asked, &foreign: m.ID, nil: m.ID} {
		a := there.brought(func(s *message.Signed) {
			s.Audience.Context, s.Audience.Peer, s.ReplyTo = "default", "far", m.ID.String()
		})
		a.Context, a.Peer, a.ReplyTo = there.S.Context("default"), "far", named
		got, _, err := there.S.Messages.Arrive(there.Ctx, a)
		there.Must(err)
		if *got.ReplyTo != want {
			t.Errorf("named %v: it answers %s, want %s", named, got.ReplyTo, want)
		}
	}
	list, _, err := there.S.Messages.List(there.Ctx, there.ID, messages.Filter{Box: messages.In, ReplyTo: &asked,
		Limit: 10})
	if err != nil || len(list) != 1 {
		t.Errorf("%d messages answer it: %v", len(list), err)
	}
}

// A sender that was restored posts a ref again, signed anew: with the same content it is the message that is there,
// under its new id from then on. Another content, or one for another audience, is refused as before.
func TestARefThatIsSignedAnewIsKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ref := int64(5)
	at := w.Now
	says := func(body string, change ...func(*message.Signed)) messages.Arrival {
		at = at.Add(time.Second)
		return w.brought(append(change, func(s *message.Signed) {
			if s.Ref, s.CreatedAt = &ref, at; s.Type == message.Chat {
				s.Body = body
			}
		})...)
	}
	jobs := func(script string) func(s *message.Signed) {
		return func(s *message.Signed) {
			ref = 6
			s.Type, s.Body = message.Job, ""
			s.Jobs = json.RawMessage(`[{"script": "` + script + `", "script_type": "python"}]`)
		}
	}
	first, again := says("hello"), says("hello")
	w.Same([]string{w.arrives(w.S, first), w.arrives(w.S, again), w.arrives(w.S, again)}, "ok", "known", "known")
	w.Same([]string{w.arrives(w.S, says("other"))}, "idempotency_conflict")
	w.Same([]string{w.arrives(w.S, says("hello", func(s *message.Signed) { s.Topic = "t" }))}, "idempotency_conflict")
	w.Same([]string{w.arrives(w.S, says("hello", func(s *message.Signed) { s.Format = "text" }))}, "known")
	w.Same([]string{w.arrives(w.S, says("", jobs("1"))), w.arrives(w.S, says("", jobs("1")))}, "ok", "known")
	w.Same([]string{w.arrives(w.S, says("", jobs("2")))}, "idempotency_conflict")
	w.Same(w.Lines(`SELECT type || ' ' || count(*)
		FROM postern.message
		GROUP BY type
		ORDER BY type`), "chat 1", "job 1")
	w.Same(w.Lines(`SELECT count(*)::text FROM postern.job`), "1")
}

// A context that is drained takes no message, its own or a peer's. One that it has taken before has its answer, and a
// message that was posted before is delivered.
func TestADrainedContextTakesNoMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.brought()
	w.Same([]string{w.arrives(w.S, before)}, "ok")
	ref := int64(7)
	posted := w.chat("before", func(p *messages.Posted) { p.Ref = &ref })
	id := w.post(posted)[0]
	post := func(body string) string {
		_, err := w.S.Messages.Post(w.Ctx, w.By, w.chat(body))
		return said(err)
	}
	for name, by := range map[string]db.By{"shop": w.shop, "default": w.By} {
		_, err := w.S.DrainContext(w.Ctx, by, name)
		w.Must(err)
		w.Must(w.S.Refresh(w.Ctx))
		w.Same([]string{post("new")}, "queue_draining")
		again, err := w.S.Messages.Post(w.Ctx, w.By, posted)
		if err != nil || !again.Replay {
			t.Errorf("what was posted before context %s was drained is posted again: %v", name, err)
		}
		if name == "shop" {
			w.Same([]string{w.arrives(w.S, before), w.arrives(w.S, w.brought())}, "known", "queue_draining")
			w.route()
			w.Same([]string{w.stands(id)}, "dispatched")
		}
		_, err = w.S.PauseContext(w.Ctx, by, name, false)
		w.Must(err)
		w.Must(w.S.Refresh(w.Ctx))
	}
	w.Same([]string{post("new"), w.arrives(w.S, w.brought())}, "ok", "ok")
}
