package domains_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/domains"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/sequencer"
)

// posted is a pair of nodes whose core has a public transaction that was not sent, and the next process of this one:
// there is no other one in the row of the seat.
func posted(t *testing.T) (w *world, next *stores.Store, n pg.Node) {
	t.Helper()
	w = newPair(t)
	w.post("one")
	for posted := 0; posted == 0; posted, _ = w.publics() {
		w.Must(w.turn(w.Ctx, w.S, w.node))
	}
	w.down()
	next, n = w.Another(2), w.Node("next")
	next.Domains.Self = func() int64 { return n.ID }
	return w, next, n
}

// claims says how many a process finds to send.
func (w *world) claims(s *stores.Store, n pg.Node) int {
	w.T.Helper()
	leases, _, err := s.Claim(w.Ctx, n, pgworld.Everything())
	w.Must(err)
	return len(leases)
}

// greeted has the other node greet, and a process act on it.
func (w *world) greeted(next *stores.Store, n pg.Node) {
	w.T.Helper()
	var image []byte
	w.Scan(`SELECT image FROM postern.coord_state`, &image)
	var d coord.Domain
	w.Must(json.Unmarshal(image, &d))
	w.arrives(domains.Parcel{Message: coord.Message{Kind: coord.Greeting, Beat: 1, Echo: d.Seat.GapTo}})
	w.Must(w.turn(w.Ctx, next, n))
	w.Must(w.turn(w.Ctx, next, n))
}

// goesOutGreeted has the other node greet, and wants the one public transaction to go out then.
func (w *world) goesOutGreeted(next *stores.Store, n pg.Node) {
	w.T.Helper()
	w.greeted(next, n)
	if found := w.claims(next, n); found != 1 {
		w.T.Errorf("%d go out behind the greetings: %v", found, w.history())
	}
}

// Where all processes were down, what the core has of a domain waits until the other nodes have greeted it, also for a
// second process that begins meanwhile. Then it goes out.
func TestWhatTheCoreHasWaitsForTheGreetings(t *testing.T) {
	w, next, n := posted(t)
	w.Must(next.Domains.Begin(w.Ctx))
	second, m := w.Another(2), w.Node("second")
	second.Domains.Self = func() int64 { return m.ID }
	w.Must(second.Domains.Begin(w.Ctx))
	w.Must(w.turn(w.Ctx, next, n))
	if found := w.claims(next, n) + w.claims(second, m); found != 0 {
		t.Fatalf("%d go out before the greetings", found)
	}
	if by := w.Lines(`SELECT coalesce(reason, '') FROM postern.mark WHERE kind = 'suspended'`); len(by) != 1 {
		t.Errorf("it is suspended by %v", by)
	}
	w.goesOutGreeted(next, n)
}

// What the core of a store has that has lost something is taken back before it goes out: others may have overtaken it
// in the life that is lost.
func TestWhatAStoreHadBeforeALossIsTakenBackFirst(t *testing.T) {
	w, next, n := posted(t)
	w.Exec(`UPDATE postern.store SET life = life + 1`) // as the end of a quarantine behind a loss
	w.Must(next.Domains.Begin(w.Ctx))
	_, err := next.Domains.PostActivities(w.Ctx, 0)
	w.Must(err)
	if found := w.claims(next, n); found != 0 {
		t.Errorf("%d go out", found)
	}
	if state := w.Lines(`SELECT state FROM postern.outcome`); len(state) != 1 || state[0] != "CANCELLED" {
		t.Errorf("it is %v", state)
	}
}

// One that an operator has suspended stays so.
func TestWhatAnOperatorSuspendedStaysSo(t *testing.T) {
	w, next, n := posted(t)
	_, err := w.S.Suspend(w.Ctx, w.By, w.public())
	w.Must(err)
	w.Must(next.Domains.Begin(w.Ctx))
	w.Exec(`UPDATE postern.coord_state SET still = false, image = image #- '{Seat,HelloAt}', step = step + 1`)
	w.Must(w.turn(w.Ctx, next, n))
	if found := w.claims(next, n); found != 0 {
		t.Errorf("%d go out", found)
	}
}

// public is the id of the one public transaction.
func (w *world) public() outbox.ID {
	w.T.Helper()
	id, err := w.S.ByUID(w.Ctx, w.ID, w.Lines(`SELECT uid FROM postern.coord_activity`)[0])
	w.Must(err)
	return id
}

// One that an operator suspends while its domain holds it back is his from then on: another process that begins leaves
// it to him, it stays suspended behind the greetings, and he resumes it.
func TestWhatAnOperatorSuspendsWhileItIsHeldBackStaysSo(t *testing.T) {
	w, next, n := posted(t)
	w.Must(next.Domains.Begin(w.Ctx))
	for _, changed := range []bool{true, false} {
		if r, err := w.S.Suspend(w.Ctx, w.By, w.public()); err != nil || r.Changed != changed {
			t.Errorf("to suspend it says %+v %v, want changed: %v", r, err, changed)
		}
	}
	w.Must(w.Another(2).Domains.Begin(w.Ctx))
	const mark = `SELECT actor || ': ' || reason FROM postern.mark WHERE kind = 'suspended'`
	w.Same(w.Lines(mark), "test: because")
	w.greeted(next, n)
	if found := w.claims(next, n); found != 0 {
		t.Errorf("%d go out against the operator", found)
	}
	w.Same(w.Lines(mark), "test: because")
	w.Same(w.Lines(`SELECT held_back::text FROM postern.coord_activity`), "false")
	if r, err := w.S.Resume(w.Ctx, w.By, w.public()); err != nil || !r.Changed {
		t.Errorf("to resume it says %+v %v", r, err)
	}
	if found := w.claims(next, n); found != 1 {
		t.Errorf("%d go out once he has resumed it", found)
	}
}

// An operator who suspends while a domain lets go waits for it, and it for him: in either order his suspension stays.
func TestWhatAnOperatorSuspendsWhileItIsLetGoStaysSo(t *testing.T) {
	suspend := func(w *world, s *stores.Store) error {
		r, err := s.Suspend(w.Ctx, w.By, w.public())
		if err == nil && !r.Changed {
			err = errors.New("it was suspended already")
		}
		return err
	}
	letGo := func(w *world, s *stores.Store) error {
		_, err := s.Domains.PostActivities(w.Ctx, 0)
		return err
	}
	for name, order := range map[string][2]func(*world, *stores.Store) error{
		"the operator first": {suspend, letGo},
		"the domain first":   {letGo, suspend},
	} {
		t.Run(name, func(t *testing.T) {
			w, next, n := posted(t)
			w.Must(next.Domains.Begin(w.Ctx))
			w.Exec(`UPDATE postern.coord_state SET still = false`)
			_, waited := w.Beside(func() error { return order[0](w, w.S) }, func() string {
				w.Must(order[1](w, next))
				return ""
			})
			if !waited {
				t.Error("both change it at once")
			}
			if found := w.claims(next, n); found != 0 {
				t.Errorf("%d go out against the operator", found)
			}
			w.Same(w.Lines(`SELECT actor FROM postern.mark WHERE kind = 'suspended'`), "test")
			w.Same(w.Lines(`SELECT held_back::text FROM postern.coord_activity`), "false")
		})
	}
}

// The core's transactions of a domain that an operator paused, and whose processes were down, wait for the greetings.
func TestAPausedDomainIsHeldBackAsWell(t *testing.T) {
	w, next, n := posted(t)
	_, err := w.S.Domains.SetPaused(w.Ctx, w.By, "tok", true)
	w.Must(err)
	w.Must(next.Domains.Begin(w.Ctx))
	if found := w.claims(next, n); found != 0 {
		t.Errorf("%d go out while it is paused", found)
	}
	_, err = next.Domains.SetPaused(w.Ctx, w.By, "tok", false)
	w.Must(err)
	_, err = next.Domains.PostActivities(w.Ctx, 0) // before anybody takes a step
	w.Must(err)
	if found := w.claims(next, n); found != 0 {
		t.Errorf("%d go out before the greetings", found)
	}
	w.goesOutGreeted(next, n)
}

// A domain that cannot begin is paused, and keeps no process from its claims. What the core has of it waits.
func TestADomainThatCannotBeginIsPaused(t *testing.T) {
	w, next, n := posted(t)
	w.Exec(`ALTER TABLE postern.coord_state ADD CONSTRAINT planted CHECK (step < 0) NOT VALID`)
	w.Must(next.Domains.Begin(w.Ctx))
	if paused := w.Lines(`SELECT paused::text FROM postern.domain`); paused[0] != "true" {
		t.Errorf("paused: %v", paused)
	}
	if found := w.claims(next, n); found != 0 {
		t.Errorf("%d go out", found)
	}
}

// A process that ended between the mark and the suspension leaves nothing that goes out, nor what stands: the next one
// suspends it, a third one changes nothing, and it is resumed behind the greetings.
func TestWhatWasMarkedAndNotSuspendedIsHeldBack(t *testing.T) {
	w, next, n := posted(t)
	w.Exec(`UPDATE postern.coord_activity SET held_back = true`)
	w.Must(next.Domains.Begin(w.Ctx))
	w.Must(next.Domains.Begin(w.Ctx))
	if found := w.claims(next, n); found != 0 {
		t.Errorf("%d go out", found)
	}
	if held := w.Lines(`SELECT held_back::text FROM postern.coord_activity`); held[0] != "true" {
		t.Error("it is suspended, and would never be resumed")
	}
}

// A transaction that is in flight when all processes end is asked about, and does not go out again where its worker
// never saw it: others may have gone on without it. Behind the greetings of a store that has lost nothing it does.
func TestWhatWasInFlightWaitsForTheGreetings(t *testing.T) {
	w, next, n := posted(t)
	if found := w.claims(w.S, w.node); found != 1 {
		t.Fatalf("%d are in flight", found)
	}
	w.Must(next.Domains.Begin(w.Ctx))
	_, err := w.S.GiveUpAll(w.Ctx, w.node)
	w.Must(err)
	for range 3 {
		leases, _, err := next.Claim(w.Ctx, n, pgworld.Everything())
		w.Must(err)
		for _, l := range leases {
			if !l.Resume {
				t.Fatalf("it goes out: %+v", l)
			}
			a := &pg.Answer{Lease: l, StartedAt: w.Now, Continue: true, Step: sequencer.Asked(l.Flight(2),
				outbox.Status{State: outbox.StatusUnknown}, l.Dispatcher.Dispatcher, 0.5)}
			out, err := next.Settle(w.Ctx, []*pg.Answer{a})
			w.Must(err)
			if out[0].Next != nil {
				t.Fatalf("it goes out at once: %+v", out[0].Next)
			}
		}
	}
	w.greeted(next, n)
	woken, err := next.Wake(w.Ctx, n, 10, 10)
	w.Must(err)
	if len(woken.Leases) != 1 {
		t.Errorf("%d go on behind the greetings: %v", len(woken.Leases), w.history())
	}
}

// While a node does not know what its store has lost, an intent is neither cancelled nor released: in the life that is
// lost there may have been a permit for it. Behind the greetings it is.
func TestNothingIsCancelledBeforeTheGreetings(t *testing.T) {
	w := newPair(t)
	w.fails = map[string]string{"assemble": "the service answers 500"}
	w.post("one")
	for range 3 {
		w.Must(w.turn(w.Ctx, w.S, w.node))
	}
	refused := func(when string, s *stores.Store) {
		t.Helper()
		by := w.By
		by.Reason = "it is stuck"
		_, err := s.Domains.Cancel(w.Ctx, by, "tok", "one")
		if f := fault.As(err); err == nil || f.Code != "wrong_state" || !strings.Contains(f.Detail, "has lost") {
			t.Errorf("%s a cancel says %v", when, err)
		}
	}
	next, n := w.Another(2), w.Node("next")
	serve := w.Another(2) // which has no node
	w.Exec(`UPDATE postern.node SET dead_at = clock_timestamp() WHERE node_id = $1`, w.node.ID)
	refused("while no process works", serve)
	next.Domains.Self = func() int64 { return n.ID }
	refused("before it has begun", next)
	w.Must(next.Domains.Begin(w.Ctx))
	refused("before the greetings", next)
	refused("before the greetings", serve)
	why, err := next.Domains.WhyIntent(w.Ctx, w.ID, "tok", "one")
	w.Must(err)
	for _, b := range why.Blockers {
		if len(b.Levers) > 0 {
			t.Errorf("%s offers %v", b.Kind, b.Levers)
		}
	}
	w.greeted(next, n)
	if r, err := serve.Domains.Cancel(w.Ctx, w.By, "tok", "one"); err != nil || !r.Changed {
		t.Errorf("behind the greetings a cancel says %+v %v", r, err)
	}
	w.Same(w.receipts(), "failure cancelled")
}

// A process that has no node takes requests while all others are down. The domain waits from its first step on, as long
// as it is alone, and the process that begins then asks the others about all that this store does not know.
func TestAStepWhileNoProcessWorksHidesNoLoss(t *testing.T) {
	w, next, n := posted(t)
	serve := w.Another(2)
	image := func() (d coord.Domain) {
		var image []byte
		w.Scan(`SELECT image FROM postern.coord_state`, &image)
		w.Must(json.Unmarshal(image, &d))
		return d
	}
	before := image().Seat.Beat
	for k := range 6 {
		_, err := w.submit(serve, fmt.Sprint("later ", k))
		w.Must(err)
		if d := image(); !d.Still() || d.Seat.GapFrom != before {
			t.Fatalf("behind request %d: still %v, and it asks from %d on, not from %d", k, d.Still(), d.Seat.GapFrom,
				before)
		}
		w.Later(3 * time.Second)
	}
	w.Must(next.Domains.Begin(w.Ctx))
	d := image()
	if d.Seat.GapFrom != before {
		t.Errorf("the process that begins asks from %d on, not from %d", d.Seat.GapFrom, before)
	}
	w.arrives(domains.Parcel{Message: coord.Message{Kind: coord.Greeting, Beat: 1, Echo: d.Seat.GapTo,
		Seen: before + 1, SeenInstall: d.Seat.Install}})
	w.Must(w.turn(w.Ctx, next, n))
	if !image().Paused {
		t.Error("the loss is not noticed")
	}
}

// A domain that is paused before any process of its node has looked at it is looked at once, so that its intents can be
// cancelled. Nothing is asked or sent for it.
func TestAPausedDomainIsLookedAtOnce(t *testing.T) {
	w := newWorld(t)
	serve := w.Another(2) // which has no node
	_, err := w.submit(serve, "one")
	w.Must(err)
	_, err = serve.Domains.SetPaused(w.Ctx, w.By, "tok", true)
	w.Must(err)
	if _, err := serve.Domains.Cancel(w.Ctx, w.By, "tok", "one"); fault.CodeOf(err) != "wrong_state" {
		t.Errorf("before a process works a cancel says %v", err)
	}
	for range 3 {
		w.Must(w.turn(w.Ctx, w.S, w.node))
	}
	var steps int64
	w.Scan(`SELECT step FROM postern.coord_state`, &steps)
	w.Must(w.turn(w.Ctx, w.S, w.node))
	w.Same(w.Lines(`SELECT step FROM postern.coord_state`), fmt.Sprint(steps))
	w.Same(w.Lines(`SELECT key FROM postern.coord_call WHERE tries > 0`))
	if r, err := serve.Domains.Cancel(w.Ctx, w.By, "tok", "one"); err != nil || !r.Changed {
		t.Errorf("then a cancel says %+v %v", r, err)
	}
	w.Same(w.receipts(), "failure cancelled")
}

// A process that begins while another one lets go of what waited suspends it once more, and it is let go once more.
func TestWhatIsHeldBackLateIsLetGoAgain(t *testing.T) {
	w, next, n := posted(t)
	w.Must(next.Domains.Begin(w.Ctx))
	late := w.Another(2)
	w.Must(late.Domains.HoldsBackLate(w.Ctx, w.ID, func() { w.greeted(next, n) }))
	if found := w.claims(next, n); found != 0 {
		t.Fatalf("%d go out: it was not suspended again", found)
	}
	_, err := next.Domains.PostActivities(w.Ctx, 0)
	w.Must(err)
	if found := w.claims(next, n); found != 1 {
		t.Errorf("%d go out: it is suspended for ever", found)
	}
}

// A word of the core that a domain takes once it goes on does not keep its loop busy until then.
func TestADomainThatIsStillReadsNoWordOfTheCore(t *testing.T) {
	w, next, n := posted(t)
	for _, l := range w.Claim(w.node, pgworld.Everything()) {
		w.Settle(w.Answer(l, outbox.Answer{Result: outbox.Result{Done: json.RawMessage(`{}`)}}))
	}
	w.Must(next.Domains.Begin(w.Ctx))
	if words, err := next.Domains.Words(w.Ctx); err != nil || len(words) != 0 {
		t.Errorf("words %v %v", words, err)
	}
	w.greeted(next, n)
	if words := w.Lines(`SELECT state FROM postern.coord_activity`); words[0] != coord.CoreSuccess {
		t.Errorf("behind the greetings the word is %v", words)
	}
}

// A domain that is paused while its processes start asks the others once it goes on, and waits for them as long as
// ever.
func TestAPausedDomainWaitsOnceItGoesOn(t *testing.T) {
	w, next, n := posted(t)
	_, err := w.S.Domains.SetPaused(w.Ctx, w.By, "tok", true)
	w.Must(err)
	w.Must(next.Domains.Begin(w.Ctx))
	for range 5 {
		w.Later(3 * time.Second)
		w.Must(w.turn(w.Ctx, next, n))
	}
	_, err = next.Domains.SetPaused(w.Ctx, w.By, "tok", false)
	w.Must(err)
	w.Must(w.turn(w.Ctx, next, n))
	w.Must(w.turn(w.Ctx, next, n))
	if found := w.claims(next, n); found != 0 {
		t.Errorf("%d go out before the others were asked", found)
	}
	why, err := next.Domains.WhyIntent(w.Ctx, w.ID, "tok", "one")
	w.Must(err)
	for _, b := range why.Blockers {
		for _, l := range b.Levers {
			t.Errorf("%s offers %s", b.Kind, l.Path)
		}
	}
	w.goesOutGreeted(next, n)
}

// A domain that learns of its loss behind the wait for the greetings holds back what the core has of it, until an
// operator lets it go on: then it is taken back.
func TestWhatTheCoreHasIsHeldBackOnceALossIsKnown(t *testing.T) {
	w, next, n := posted(t)
	w.Later(3 * time.Second) // in which the life that is lost used beats
	w.Must(next.Domains.Begin(w.Ctx))
	var image []byte
	for still := true; still; w.Scan(`SELECT still, image FROM postern.coord_state`, &still, &image) {
		w.Later(3 * time.Second)
		w.Must(w.turn(w.Ctx, next, n))
	}
	var d coord.Domain
	w.Must(json.Unmarshal(image, &d))
	w.arrives(domains.Parcel{Message: coord.Message{Kind: coord.Greeting, Beat: 1, Echo: d.Seat.GapTo,
		Seen: d.Seat.GapTo - 1, SeenInstall: d.Seat.Install}})
	w.Must(w.turn(w.Ctx, next, n))
	if found := w.claims(next, n); found != 0 {
		t.Fatalf("%d go out behind the news of a loss", found)
	}
	w.Exec(`UPDATE postern.store SET life = life + 1`) // as the end of a quarantine behind a loss
	w.Must(next.Domains.Begin(w.Ctx))
	_, err := next.Domains.PostActivities(w.Ctx, 0)
	w.Must(err)
	w.Same(w.Lines(`SELECT state FROM postern.outcome`), "CANCELLED")
}

// A public transaction that is held back while its work ends is taken back, and does not stand suspended.
func TestWhatEndsWhileItIsHeldBackIsTakenBack(t *testing.T) {
	w, next, n := posted(t)
	w.Must(next.Domains.Begin(w.Ctx))
	w.Exec(`UPDATE postern.coord_activity SET ended_at = clock_timestamp()`)
	w.greeted(next, n)
	w.Same(w.Lines(`SELECT state FROM postern.outcome`), "CANCELLED")
	w.Same(w.Lines(`SELECT held_back::text FROM postern.coord_activity`), "false")
}

// A suspension and its mark are one commit, and so is their end: a process that lets go waits for one that suspends.
func TestWhatIsHeldBackIsMarkedInOneCommit(t *testing.T) {
	w, next, n := posted(t)
	w.Exec(`ALTER TABLE postern.coord_activity ADD CONSTRAINT planted CHECK (NOT held_back) NOT VALID`)
	w.Exec(`UPDATE postern.coord_state SET still = true`)
	if _, err := next.Domains.PostActivities(w.Ctx, 0); err == nil {
		t.Fatal("it is marked against the schema")
	}
	w.Same(w.Lines(`SELECT reason FROM postern.mark WHERE kind = 'suspended'`))
	w.Exec(`ALTER TABLE postern.coord_activity DROP CONSTRAINT planted`)
	_, waited := w.Beside(func() error {
		_, err := w.S.Domains.PostActivities(w.Ctx, 0)
		return err
	}, func() string {
		w.Must(next.Domains.HoldsBackLate(w.Ctx, w.ID, func() {}))
		return ""
	})
	if !waited {
		t.Error("two suspend at once")
	}
	w.Exec(`UPDATE postern.coord_state SET still = false`)
	_, err := next.Domains.PostActivities(w.Ctx, 0)
	w.Must(err)
	if found := w.claims(next, n); found != 1 {
		t.Errorf("%d go out", found)
	}
}

// What an operator has suspended, and what has ended, is left alone however often a domain that is still is looked at.
func TestADomainThatIsStillWritesNothingAgain(t *testing.T) {
	w := newPair(t)
	w.post("one")
	w.post("two")
	for posted := 0; posted < 2; posted, _ = w.publics() {
		w.Must(w.turn(w.Ctx, w.S, w.node))
	}
	for _, l := range w.Claim(w.node, pgworld.Everything())[:1] {
		w.Settle(w.Answer(l, outbox.Answer{Result: outbox.Result{Done: json.RawMessage(`{}`)}}))
	}
	open := w.Lines(`SELECT uid FROM postern.coord_activity a WHERE NOT EXISTS (SELECT FROM postern.idempotency i
		JOIN postern.outcome o USING (queue_id, seq, day) WHERE i.key = a.uid)`)
	id, err := w.S.ByUID(w.Ctx, w.ID, open[0])
	w.Must(err)
	_, err = w.S.Suspend(w.Ctx, w.By, id)
	w.Must(err)
	w.Exec(`UPDATE postern.coord_state SET still = true`)
	const written = `SELECT count(*) || ' ' || (SELECT string_agg(xmin::text, ' ' ORDER BY n)
			FROM postern.coord_activity)
		FROM postern.audit`
	before := w.Lines(written)
	for range 3 {
		_, err := w.S.Domains.PostActivities(w.Ctx, 0)
		w.Must(err)
	}
	w.Same(w.Lines(written), before...)
}
