package domains_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/domains"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// newPair is a domain of this installation and a node bob, whom the test plays. This one coordinates.
func newPair(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	w := &world{World: pgworld.New(t), inputs: map[string][]string{}}
	w.Dispatcher("TOK", func(d *outbox.Dispatcher) { d.Slots = 10 })
	w.node = w.Node("core")
	w.Exec(`INSERT INTO postern.peer (context_id, name, url) VALUES ($1, 'bob', 'http://127.0.0.1:1/')`, w.ID)
	set := domains.Default()
	set.Types, set.ServiceURL = []string{"TOK"}, "http://127.0.0.1:1"
	set.Nodes, set.Mode, set.Static = []string{"self", "bob"}, "STATIC", "self"
	set.Heartbeat, set.RequestTimeout, set.StateTimeout = second, second, 3*second
	_, err := w.S.Domains.Put(w.Ctx, w.By, "tok", set, 0)
	w.Must(err)
	w.begun()
	return w
}

// begun has a process of the node work, and be greeted: those of the test have no node.
func (w *world) begun() {
	w.T.Helper()
	w.Exec(`UPDATE postern.node SET ttl = '10 days'`)
	w.Exec(`UPDATE postern.coord_state SET lives = ARRAY[$1::bigint]`, w.node.ID)
}

// down has no process of the node work any more.
func (w *world) down() {
	w.T.Helper()
	w.Exec(`UPDATE postern.coord_state SET lives = '{}'`)
}

// arrives has bob say something, under his first install unless it names another.
func (w *world) arrives(p domains.Parcel) {
	w.T.Helper()
	p.Domain, p.From, p.To, p.Install = "tok", "bob", "self", max(p.Install, 1)
	raw, err := json.Marshal(p)
	w.Must(err)
	_, err = w.S.Domains.Arrive(w.Ctx, w.ID, "bob", []json.RawMessage{raw})
	w.Must(err)
}

func (w *world) step() domains.Stepped {
	w.T.Helper()
	out, err := w.S.Domains.Step(w.Ctx, w.id(), nil)
	w.Must(err)
	return out
}

func kinds(list []*domains.Mail) string {
	var all []string
	for _, m := range list {
		all = append(all, string(m.Kind))
	}
	return strings.Join(all, " ")
}

// A message is leased to one process. A newer one that takes its slot meanwhile stays when the first is delivered.
func TestAMessageIsLeasedToOneProcess(t *testing.T) {
	w := newPair(t)
	w.arrives(domains.Parcel{Message: coord.Message{Kind: coord.DelegationRequest, Beat: 5,
		Delegations: []coord.Delegation{{ID: "0190c1e6-0000-7000-8000-000000000001", Generation: 1}}}})
	w.step() // it becomes Active, and says so
	o := w.Other()
	var mine []*domains.Mail
	said, _ := w.Beside(func() (err error) {
		mine, err = w.S.Domains.ClaimMail(w.Ctx, nil, 10)
		return err
	}, func() string {
		list, err := o.S.Domains.ClaimMail(w.Ctx, nil, 10)
		return fmt.Sprint(len(list), err)
	})
	if said != "0 <nil>" || len(mine) == 0 {
		t.Fatalf("the second process has %s, the first %s", said, kinds(mine))
	}
	w.Later(1100 * time.Millisecond)
	w.step() // the next heartbeat takes the slot of the one before
	w.Must(w.S.Domains.Delivered(w.Ctx, mine))
	next, err := o.S.Domains.ClaimMail(w.Ctx, nil, 10)
	w.Must(err)
	if !strings.Contains(kinds(next), "Heartbeat") {
		t.Errorf("the newer message is gone: %q", kinds(next))
	}
	busy, err := w.S.Domains.ClaimMail(w.Ctx, []domains.Busy{{Context: w.ID, Node: "bob"}}, 10)
	w.Must(err)
	w.Must(o.S.Domains.Undelivered(w.Ctx, next, "no way"))
	again, err := w.S.Domains.ClaimMail(w.Ctx, nil, 10)
	w.Must(err)
	if len(busy) != 0 || kinds(again) != kinds(next) {
		t.Errorf("busy: %q, undelivered: %q of %q", kinds(busy), kinds(again), kinds(next))
	}
	w.Later(2 * time.Minute)
	if old, err := w.S.Domains.ClaimMail(w.Ctx, nil, 10); err != nil || len(old) != 0 {
		t.Errorf("what is old is sent: %q %v", kinds(old), err)
	}
}

// Two processes come to one message: a step takes it, and the other finds it gone. One that comes meanwhile stays.
func TestAMessageOfAnotherNodeIsTakenOnce(t *testing.T) {
	w := newPair(t)
	const id = "0190c1e6-0000-7000-8000-000000000001"
	w.step()
	w.Later(3 * time.Second)
	w.step() // it waits no longer for a greeting
	delegate := domains.Parcel{Message: coord.Message{Kind: coord.DelegationRequest, Beat: 5,
		Delegations: []coord.Delegation{{ID: id, Generation: 1}}}}
	w.arrives(delegate)
	delegate.Beat = 4
	w.arrives(delegate) // a late one
	held, release := pgworld.Hold(w.S, 1)
	first := make(chan error, 1)
	go func() { _, err := w.S.Domains.Step(w.Ctx, w.id(), nil); first <- err }()
	<-held
	o := w.Other()
	if out, err := o.S.Domains.Step(w.Ctx, w.id(), nil); err != nil || out.Taken {
		t.Errorf("a second process takes it as well: %+v %v", out, err)
	}
	release(nil)
	w.Must(<-first)
	w.Same(w.Lines(`SELECT state FROM postern.coord_work`), "Assembling")
	w.Same(w.Lines(`SELECT count(*)::text FROM postern.coord_in`), "0")
	due, _, err := w.S.Domains.Due(w.Ctx)
	w.Must(err)
	delegate.Beat = 6
	w.arrives(delegate)
	if now, _, err := w.S.Domains.Due(w.Ctx); err != nil || len(due) != 0 || len(now) != 1 {
		t.Errorf("due are %v, and with a message %v %v", due, now, err)
	}
}

// What the schema refuses of another node is put aside, and other messages are taken.
func TestAMessageThatTheSchemaRefusesIsPutAside(t *testing.T) {
	w := newPair(t)
	const id = "0190c1e6-0000-7000-8000-000000000001"
	w.step()
	w.Later(3 * time.Second)
	w.step()
	w.arrives(domains.Parcel{Message: coord.Message{Kind: coord.DelegationRequest, Beat: 5,
		Delegations: []coord.Delegation{{ID: id, Generation: 1}}}})
	w.step()
	list, err := w.S.Domains.ClaimMail(w.Ctx, nil, 10)
	w.Must(err)
	var asked *domains.Mail
	for _, m := range list {
		if m.Kind == coord.AssembleRequest {
			asked = m
		}
	}
	if asked == nil {
		t.Fatalf("nothing is to be assembled: %q", kinds(list))
	}
	w.Exec(`INSERT INTO postern.coord_spend VALUES ($1, 'taken', gen_random_uuid())`, w.id())
	made := json.RawMessage(`{"assembled": 1, "inputs": ["taken"], "outputs": [], "plan": []}`)
	w.arrives(domains.Parcel{Message: coord.Message{Kind: coord.AssembleResponse, Beat: 6, ID: id, Key: asked.Key,
		Generation: asked.Generation, Result: coord.OK, Hash: coord.HashOf(made)}, Made: made, Of: "ben@bob"})
	const other = "0190c1e6-0000-7000-8000-000000000002"
	w.arrives(domains.Parcel{Message: coord.Message{Kind: coord.DelegationRequest, Beat: 7,
		Delegations: []coord.Delegation{{ID: other, Generation: 1}}}})
	w.step()
	w.Same(w.Lines(`SELECT state FROM postern.coord_work ORDER BY place`), "Assembling", "Pooled")
	w.Same(w.Lines(`SELECT message->>'kind' FROM postern.coord_in WHERE error <> ''`), "AssembleResponse")
	w.Same(w.Lines(`SELECT action || ' ' || object FROM postern.audit WHERE action = 'set_aside'`),
		"set_aside /domains/tok")
}

// A store that an operator lets go after a quarantine may have lost something: its domains go on under a new install,
// and presume that any node may have a permit.
func TestADomainGoesOnAfterAQuarantineUnderANewInstall(t *testing.T) {
	w := newPair(t)
	w.step()
	var before, after int64
	install := `SELECT (image->'Seat'->>'Install')::bigint FROM postern.coord_state`
	w.Scan(install, &before)
	w.Exec(`UPDATE postern.store SET life = life + 1`)
	w.Later(time.Second)
	w.step()
	w.Scan(install, &after)
	if after <= before {
		t.Errorf("the install is %d, and was %d", after, before)
	}
	w.step()
	w.Scan(install, &before)
	if before != after {
		t.Error("each step draws a new install")
	}
}

// A domain whose store has lost something, as another node says, stands until somebody lets it go.
func TestADomainIsReleasedWithAReason(t *testing.T) {
	w := newPair(t)
	w.step()
	w.Exec(`UPDATE postern.coord_state SET image = jsonb_set(image, '{Paused}', 'true'), step = step + 1`)
	why, err := w.S.Domains.WhyDomain(w.Ctx, w.ID, "tok")
	w.Must(err)
	if len(why.Blockers) == 0 || why.Blockers[0].Kind != "domain_quarantined" {
		t.Errorf("%+v", why)
	}
	silent := w.By
	silent.Reason = ""
	if _, err := w.S.Domains.ReleaseDomain(w.Ctx, silent, "tok", false); err == nil {
		t.Error("it is released without a reason")
	}
	for _, changed := range []bool{true, false} {
		if r, err := w.S.Domains.ReleaseDomain(w.Ctx, w.By, "tok", false); err != nil || r.Changed != changed {
			t.Errorf("%+v %v, want changed: %v", r, err, changed)
		}
	}
	if d, err := w.S.Domains.Domain(w.Ctx, w.ID, "tok"); err != nil || d.Quarantined {
		t.Errorf("%+v %v", d, err)
	}
	w.Same(w.Lines(`SELECT action || ' by ' || actor || ' ' || reason FROM postern.audit
		WHERE action = 'release' LIMIT 1`), "release by test because")
}

// An intent says what it waits for: that it depends on another, which is parked, and at last how it ended.
func TestAnIntentSaysWhatItWaitsFor(t *testing.T) {
	w := newWorld(t)
	w.post("a")
	w.post("b", "a")
	kinds := func(uid string) string {
		why, err := w.S.Domains.WhyIntent(w.Ctx, w.ID, "tok", uid)
		w.Must(err)
		var all []string
		for _, b := range why.Blockers {
			all = append(all, b.Kind)
			if b.Object == "" || b.Since.IsZero() || b.Detail == "" {
				t.Errorf("%+v", b)
			}
		}
		return strings.Join(all, " ")
	}
	seen := map[string]bool{}
	for range 30 {
		seen[kinds("a")], seen[kinds("b")] = true, true
		w.Must(w.turn(w.Ctx, w.S, w.node))
		if n, _ := w.publics(); n == 1 && seen["intent_depends public_transaction unclaimed"] {
			break
		}
		w.Later(100 * time.Millisecond)
	}
	for _, paused := range []bool{true, false} { // a domain that is paused is the root, and nothing moves
		_, err := w.S.Domains.SetPaused(w.Ctx, w.By, "tok", paused)
		w.Must(err)
		why, err := w.S.Domains.WhyIntent(w.Ctx, w.ID, "tok", "b")
		w.Must(err)
		root := why.Blockers[len(why.Blockers)-1]
		said := why.Moving || !strings.Contains(why.Summary, "paused")
		if paused != (root.Kind == "domain_paused") || paused && said {
			t.Errorf("paused is %v: %+v", paused, why)
		}
	}
	w.finish()
	if a, b := kinds("a"), kinds("b"); a != "terminal" || b != "terminal" {
		t.Error(a, b)
	}
	if !seen["service_call"] || !seen["intent_depends service_call"] {
		t.Errorf("the chains were %v", seen)
	}
}

// A peer that has open permits of a domain is not removed, also once it is none of its nodes any more.
func TestAPeerWithPermitsIsNotRemoved(t *testing.T) {
	w := newWorld(t)
	i := w.post("a")
	w.Must(w.S.Domains.NoNode(w.Ctx, w.S.Pool(), w.ID, "gone"))
	w.Exec(`INSERT INTO postern.coord_permit (domain_id, intent_id, n, generation, node, install, beat, given_at)
		SELECT domain_id, intent_id, 9, 1, 'gone', 1, 1, now() FROM postern.coord_intent`)
	err := w.S.Domains.NoNode(w.Ctx, w.S.Pool(), w.ID, "gone")
	if fault.KindOf(err) != fault.Conflict || !strings.Contains(fmt.Sprint(fault.As(err).Extra), i.ID) {
		t.Errorf("%v %+v", err, fault.As(err))
	}
}

// A domain that has no other nodes any more has no messages of them, also none that comes while it loses them: no step
// reads those, and so it would be due for ever.
func TestADomainWithoutOtherNodesIsNotDueForTheirMessages(t *testing.T) {
	w := newPair(t)
	w.step()
	w.Later(3 * time.Second)
	w.step()
	word := domains.Parcel{Message: coord.Message{Kind: coord.Heartbeat, Beat: 5, State: coord.Idle}}
	w.arrives(word)
	word.Kind, word.Domain, word.From, word.To, word.Install = coord.Hello, "tok", "bob", "self", 1
	late, err := json.Marshal(word)
	w.Must(err)
	alone := domains.Default()
	alone.Types, alone.ServiceURL, alone.Nodes = []string{"TOK"}, "http://127.0.0.1:1", []string{"self"}
	o := w.Other()
	said, waited := w.Beside(func() error { _, err := w.S.Domains.Put(w.Ctx, w.By, "tok", alone, 0); return err },
		func() string {
			_, err := o.S.Domains.Arrive(w.Ctx, w.ID, "bob", []json.RawMessage{late})
			return fmt.Sprint(err)
		})
	if said != "<nil>" || !waited {
		t.Error(said, waited)
	}
	w.Same(w.Lines(`SELECT slot FROM postern.coord_in`))
	for range 3 {
		w.step()
		w.Later(time.Minute)
	}
	if due, _, err := w.S.Domains.Due(w.Ctx); err != nil || len(due) != 0 {
		t.Error("due are", due, err)
	}
}

// A domain that is paused, or for which too many messages wait, takes none, and holds up none of another domain that
// came in the same call.
func TestADomainThatTakesNoMessagesHoldsUpNoOther(t *testing.T) {
	w := newPair(t)
	set := domains.Default()
	set.Types, set.ServiceURL, set.Nodes = []string{"TOK"}, "http://127.0.0.1:1", []string{"self", "bob"}
	_, err := w.S.Domains.Put(w.Ctx, w.By, "other", set, 0)
	w.Must(err)
	var counted []string
	w.S.Domains.Counted = func(kind coord.Kind, outcome string) { counted = append(counted, string(kind)+" "+outcome) }
	beat := int64(0)
	arrive := func(want ...string) {
		t.Helper()
		var list []json.RawMessage
		for _, domain := range []string{"tok", "other"} {
			beat++
			raw, err := json.Marshal(domains.Parcel{Domain: domain, Message: coord.Message{Kind: coord.Heartbeat,
				From: "bob", To: "self", Install: 1, Beat: beat, State: coord.Idle}})
			w.Must(err)
			list = append(list, raw)
		}
		_, err := w.S.Domains.Arrive(w.Ctx, w.ID, "bob", list)
		w.Must(err)
		w.Same(w.Lines(`SELECT d.name FROM postern.coord_in i JOIN postern.domain d USING (domain_id)
			WHERE i.slot NOT LIKE 'full %' ORDER BY 1`), want...)
		w.Exec(`DELETE FROM postern.coord_in WHERE slot NOT LIKE 'full %'`)
	}
	arrive("other", "tok")
	_, err = w.S.Domains.SetPaused(w.Ctx, w.By, "tok", true)
	w.Must(err)
	arrive("other")
	_, err = w.S.Domains.SetPaused(w.Ctx, w.By, "tok", false)
	w.Must(err)
	const full = `INSERT INTO postern.coord_in (domain_id, node, slot, beat, message)
		SELECT d.domain_id, 'bob', 'full ' || n, 1, '{}' FROM postern.domain d, generate_series($1::int, $2::int) n
		WHERE d.name = 'tok'`
	w.Exec(full, 1, 10_000)
	arrive("other", "tok")
	w.Exec(full, 10_001, 10_001)
	arrive("other")
	w.Same(counted, "Heartbeat dropped", "Heartbeat dropped")
}
