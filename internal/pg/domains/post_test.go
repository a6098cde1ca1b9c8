package domains_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/domains"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// A public transaction may land once an attempt of it went out, also when a later one, which has a nonce and no hash,
// is rejected: its intent gets no failure receipt. Where no attempt went out, it has failed.
func TestARejectedAttemptSaysNothingOfThoseBeforeIt(t *testing.T) {
	for first, want := range map[string]string{"'0x1'": "unknown", "NULL": "reverted"} {
		t.Run(want, func(t *testing.T) {
			w := newWorld(t)
			w.post("one")
			for n := 0; n == 0; n, _ = w.publics() {
				w.Must(w.turn(w.Ctx, w.S, w.node))
			}
			w.Must(w.core.Refresh(w.Ctx))
			for _, l := range w.Claim(w.node, pgworld.Everything()) {
				w.Settle(w.Answer(l, outbox.Answer{Class: outbox.ClassRejected, Code: "nonce", Message: "nonce used"}))
			}
			w.Exec(`INSERT INTO postern.attempt (queue_id, seq, day, attempt, fence, step, nonce, hash)
				SELECT o.queue_id, o.seq, o.day, 1, 0, 'dispatch', '7', ` + first + ` FROM postern.outcome o
				UNION ALL SELECT o.queue_id, o.seq, o.day, 2, 0, 'dispatch', '7', NULL FROM postern.outcome o`)
			for range 3 {
				w.Must(w.turn(w.Ctx, w.S, w.node))
			}
			if ended := w.open() == 0; ended != (want == "reverted") {
				t.Errorf("it has ended: %v, %v", ended, w.receipts())
			}
			w.Same(w.Lines(`SELECT state FROM postern.coord_activity`), want)
		})
	}
}

// A process reads the words of a nonce and of a hash at once, and may end between them: the hash is read again, and the
// receipt has it.
func TestAHashIsReadAgainWhereOnlyItsNonceWasTaken(t *testing.T) {
	w := newUnposted(t)
	w.posts(w.S)
	w.Must(w.core.Refresh(w.Ctx))
	leases := w.Claim(w.node, pgworld.Everything())
	w.Exec(`INSERT INTO postern.attempt (queue_id, seq, day, attempt, fence, step, nonce, hash)
		SELECT i.queue_id, i.seq, i.day, 1, 0, 'dispatch', '7', '0x1'
		FROM postern.coord_activity a
		JOIN postern.idempotency i ON i.key = a.uid`)
	words, err := w.S.Domains.Words(w.Ctx)
	w.Must(err)
	list := words[w.id()]
	if len(list) != 2 || list[0].Core.State != coord.CoreNonce || list[1].Core.State != coord.CoreSubmitted {
		t.Fatalf("%+v", list)
	}
	_, err = w.S.Domains.Step(w.Ctx, w.id(), list[:1])
	w.Must(err)
	for range 2 {
		w.Must(w.turn(w.Ctx, w.S, w.node))
	}
	w.Same(w.Lines(`SELECT concat_ws(' ', state, nonce, hash) FROM postern.coord_activity`), "submitted 7 0x1")
	for _, l := range leases {
		w.Settle(w.Answer(l, pgworld.Done()))
	}
	w.finish()
	w.Same(w.receipts(), "success 0x1")
}

// newUnposted has one intent whose public transaction is to be posted.
func newUnposted(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.post("one")
	for n := 0; n == 0; _, n = w.publics() {
		w.Must(w.steps(w.Ctx, w.S, w.node))
	}
	return w
}

// A public transaction is posted in the commit that notes it: no backup, and no standby, has one without the other.
func TestAPostIsNotedInItsCommit(t *testing.T) {
	w := newUnposted(t)
	w.Exec(`ALTER TABLE postern.coord_activity ADD CONSTRAINT planted CHECK (posted_at IS NULL) NOT VALID`)
	if _, err := w.S.Domains.PostActivities(w.Ctx, 0); err == nil {
		t.Fatal("it is noted against the schema")
	}
	if n, _ := w.publics(); n != 0 {
		t.Errorf("%d are posted, and not noted", n)
	}
	w.Exec(`ALTER TABLE postern.coord_activity DROP CONSTRAINT planted`)
	w.finish()
	w.Same(w.receipts(), "success ")
}

// Two processes post one once, and one of them does not write an error to what the other has posted.
func TestTwoProcessesPostOnce(t *testing.T) {
	w := newUnposted(t)
	o := w.Other()
	_, waited := w.Beside(func() error {
		_, err := w.S.Domains.PostActivities(w.Ctx, 0)
		return err
	}, func() string { w.posts(o.S); return "" })
	if n, _ := w.publics(); n != 1 || !waited {
		t.Errorf("%d are posted; waited: %v", n, waited)
	}
	w.Same(w.Lines(`SELECT (posted_at IS NOT NULL) || ' ' || error FROM postern.coord_activity`), "true ")
}

// One that has ended is not posted by a process that has read it before.
func TestWhatHasEndedIsNotPosted(t *testing.T) {
	w := newUnposted(t)
	o := w.Other()
	var id, uid string
	w.Scan(`SELECT intent_id, work_uid FROM postern.coord_activity`, &id, &uid)
	_, waited := w.Beside(func() error {
		_, err := w.S.Domains.Step(w.Ctx, w.id(), []domains.Event{{
			Event: coord.Event{Core: &coord.CoreWord{ID: id, UID: uid, State: coord.CoreUndone}},
			Word:  &domains.Word{UID: uid, State: coord.CoreUndone, Ended: true}}})
		return err
	}, func() string { w.posts(o.S); return "" })
	if n, _ := w.publics(); n != 0 || !waited {
		t.Errorf("%d are posted; waited: %v", n, waited)
	}
}

// A refusal counts for nothing where another process posts before a step takes it: the intent is not assembled anew
// beside it.
func TestAnOldRefusalOfWhatIsPostedChangesNothing(t *testing.T) {
	w, a := newDependent(t)
	w.Exec(`UPDATE postern.coord_activity SET ended_at = clock_timestamp() WHERE intent_id = $1::text::uuid`, a.ID)
	refused := w.posts(w.S)
	if len(refused) != 1 || refused[0].Core.State != coord.CoreUndone {
		t.Fatalf("%+v", refused)
	}
	w.Exec(`UPDATE postern.coord_activity SET ended_at = NULL`)
	w.Exec(`UPDATE postern.coord_payload SET data = '{"type": "TOK", "data": {}}' WHERE part = 'prepared'`)
	w.posts(w.S)
	_, err := w.S.Domains.Step(w.Ctx, w.id(), refused)
	w.Must(err)
	w.finish()
	w.Same(w.receipts(), "success ", "success ")
	if n, _ := w.publics(); n != 2 {
		t.Errorf("%d public transactions of two intents", n)
	}
}

// A value that the database cannot store is refused for good, and holds up nothing.
func TestAValueThatCannotBeStoredIsRefused(t *testing.T) {
	w := newUnposted(t)
	w.Exec(`UPDATE postern.coord_payload SET data = '{"type": "TOK", "data": {"a": "\u0000"}}' WHERE part = 'prepared'`)
	refused := w.posts(w.S)
	if len(refused) != 1 || refused[0].Core.State != coord.CoreReverted {
		t.Errorf("%+v", refused)
	}
	if n, _ := w.publics(); n != 0 {
		t.Errorf("%d are posted", n)
	}
}

// A domain is served behind very many public transactions of one whose context is in quarantine: its own is posted, and
// the word of the core is heard.
func TestADomainIsServedBehindOneInQuarantine(t *testing.T) {
	w := newUnposted(t)
	id := w.id()
	_, err := w.S.PutContext(w.Ctx, w.By, pg.Tenant{Context: pg.Context{Name: "shop", MaxDepth: 10}}, 0)
	w.Must(err)
	shop := w.S.Context("shop").ID
	w.Exec(`INSERT INTO postern.domain (context_id, name, settings)
		SELECT $1, name, settings FROM postern.domain`, shop)
	w.Exec(`INSERT INTO postern.coord_activity OVERRIDING SYSTEM VALUE
		SELECT (jsonb_populate_record(a, jsonb_build_object('domain_id', d.domain_id, 'intent_id', gen_random_uuid(),
			'n', -k))).*
		FROM postern.coord_activity a, postern.domain d, generate_series(1, 500) k
		WHERE d.context_id = $1`, shop)
	w.Exec(`INSERT INTO postern.coord_payload (domain_id, intent_id, generation, part, data, at)
		SELECT a.domain_id, a.intent_id, a.generation, p.part, p.data, p.at
		FROM postern.coord_activity a, postern.coord_payload p
		WHERE a.n < 0 AND p.part = 'prepared'`)
	w.Must(w.S.EnterQuarantine(w.Ctx, w.By, pg.Quarantine{Context: "shop", Reason: "test"}))
	w.posts(w.S)
	if n, _ := w.publics(); n != 1 {
		t.Fatalf("%d are posted, want 1", n)
	}
	w.Exec(`UPDATE postern.coord_activity SET posted_at = at WHERE n < 0`)
	w.send()
	words, err := w.S.Domains.Words(w.Ctx)
	w.Must(err)
	if len(words) != 1 || len(words[id]) == 0 {
		t.Errorf("%d domains hear of the core, and the one that may go on hears %v", len(words), words[id])
	}
}

// That a public transaction is unknown, since retention has dropped it, is heard once.
func TestWhatRetentionHasDroppedIsHeardOnce(t *testing.T) {
	w := newUnposted(t)
	w.posts(w.S)
	w.Exec(`DELETE FROM postern.idempotency`)
	for _, want := range []int{1, 0} {
		words, err := w.S.Domains.Words(w.Ctx)
		w.Must(err)
		if got := len(words[w.id()]); got != want {
			t.Fatalf("%d words, want %d", got, want)
		}
		_, err = w.S.Domains.Step(w.Ctx, w.id(), words[w.id()])
		w.Must(err)
	}
	w.Same(w.Lines(`SELECT state FROM postern.coord_activity`), "unknown")
}
