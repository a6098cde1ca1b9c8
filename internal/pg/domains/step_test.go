package domains_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/domains"
	"github.com/postern-dev/postern/internal/pg/verify"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

func TestIntentsEndWithOneReceiptEach(t *testing.T) {
	w := newWorld(t)
	a := w.post("a")
	w.inputs["b"] = []string{"of " + a.ID}
	w.post("b", "a")
	w.finish()
	w.Same(w.receipts(), "success ", "success ")
	if n, activities := w.publics(); n != 2 || activities != 2 {
		t.Errorf("%d public transactions of %d activities", n, activities)
	}
	var rest int
	w.Scan(`SELECT (SELECT count(*) FROM postern.coord_spend) + (SELECT count(*) FROM postern.coord_call)
		+ (SELECT count(*) FROM postern.coord_permit WHERE closed_at IS NULL)`, &rest)
	if rest != 0 {
		t.Errorf("%d spends, calls and open permits are left", rest)
	}
	for range 10 { // it comes to its rest
		w.Later(time.Second)
		w.Must(w.turn(w.Ctx, w.S, w.node))
	}
	var due *time.Time
	w.Scan(`SELECT due FROM postern.coord_state`, &due)
	if due != nil {
		t.Error("a domain with nothing to do is due at", due)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

// A seat says how many intents and works are not over, by state, at each commit.
func TestWhatIsOpenIsCountedWithEachStep(t *testing.T) {
	w := newWorld(t)
	w.post("a")
	w.post("b", "a")
	open := func(want string) {
		t.Helper()
		d, err := w.S.Domains.Domain(w.Ctx, w.ID, "tok")
		w.Must(err)
		if have := fmt.Sprint(d.Intents); have != want {
			t.Errorf("open are %s, want %s", have, want)
		}
		pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	}
	open("map[Assembling:1 Pending:1]")
	for range 3 {
		w.Must(w.turn(w.Ctx, w.S, w.node))
		pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	}
	w.finish()
	open("map[]")
	w.Exec(`UPDATE postern.coord_state SET works = '{"Pooled": 1}'`)
	found, err := verify.Violations(w.Ctx, w.S.Pool())
	w.Must(err)
	if len(found) != 1 || !strings.Contains(found[0], "what is open in a domain is counted") {
		t.Error("a count that is wrong is not seen: ", found)
	}
}

// Two processes come to one seat: the loop of the second leaves it alone, and a post waits, and then sees what the
// first has committed.
func TestTwoProcessesTakeStepsOneAfterTheOther(t *testing.T) {
	w := newWorld(t)
	w.post("a")
	o := w.Other()
	held, release := pgworld.Hold(w.S, 1)
	first := make(chan error, 1)
	go func() { _, err := w.S.Domains.Step(w.Ctx, w.id(), nil); first <- err }()
	<-held
	out, err := o.S.Domains.Step(w.Ctx, w.id(), nil)
	if err != nil || out.Taken {
		t.Errorf("a second process takes the seat as well: %+v %v", out, err)
	}
	second := make(chan error, 1)
	go func() { _, err := w.submit(o.S, "b"); second <- err }()
	w.AwaitBlocked(o.PID)
	release(nil)
	w.Must(<-first)
	w.Must(<-second)
	w.finish()
	w.Same(w.receipts(), "success ", "success ")
}

// The same uid comes twice at once: it is one intent.
func TestAUIDMakesOneIntentWhicheverProcessIsFirst(t *testing.T) {
	w := newWorld(t)
	o := w.Other()
	said, waited := w.Beside(func() error { _, err := w.submit(w.S, "a"); return err },
		func() string { i, err := w.submit(o.S, "a"); return fmt.Sprint(i != nil && i.Replay, err) })
	if said != "true <nil>" || !waited {
		t.Error(said, waited)
	}
	w.finish()
	w.Same(w.receipts(), "success ")
}

// A call is leased to one process. When the lease is over, another one calls, and what the first says then changes
// nothing.
func TestALateAnswerToACallChangesNothing(t *testing.T) {
	w := newWorld(t)
	w.post("a")
	o := w.Other()
	var calls []*domains.Call
	claim := func() error {
		list, err := w.S.Domains.ClaimCalls(w.Ctx, w.node.ID, nil, 10)
		calls = append(calls, list...)
		return err
	}
	said, _ := w.Beside(claim, func() string {
		list, err := o.S.Domains.ClaimCalls(w.Ctx, 7, nil, 10)
		return fmt.Sprint(len(list), err)
	})
	if said != "0 <nil>" || len(calls) != 1 {
		t.Fatalf("the second process has %s, the first %d", said, len(calls))
	}
	w.Later(16 * time.Second)
	list, err := o.S.Domains.ClaimCalls(w.Ctx, 7, nil, 10)
	w.Must(err)
	if len(list) != 1 || list[0].Key != calls[0].Key || list[0].Fence <= calls[0].Fence {
		t.Fatalf("behind the lease there are %d calls", len(list))
	}
	w.Later(-16 * time.Second) // no timeout gets in between
	before := len(w.history())
	late, err := w.S.Domains.Step(w.Ctx, w.id(), []domains.Event{w.answer(calls[0])})
	w.Must(err)
	if !late.Taken || len(w.history()) != before {
		t.Error("a late answer has moved", late.Moves)
	}
	w.Must(w.S.Domains.Postpone(w.Ctx, calls[0], "late", time.Hour))
	got, err := o.S.Domains.Step(w.Ctx, w.id(), []domains.Event{w.answer(list[0])})
	w.Must(err)
	if len(got.Moves) == 0 {
		t.Error("the answer of the lease that holds moves nothing")
	}
	w.finish()
	w.Same(w.receipts(), "success ")
}

// What the schema refuses is put aside, and others go on.
func TestAnEventThatTheSchemaRefusesIsPutAside(t *testing.T) {
	w := newWorld(t)
	bad := w.post("bad")
	w.post("good")
	w.inputs["bad"] = []string{"taken"}
	w.Exec(`INSERT INTO postern.coord_spend VALUES ($1, 'taken', gen_random_uuid())`, w.id())
	for range 12 {
		w.Must(w.turn(w.Ctx, w.S, w.node))
		w.send()
		w.Later(time.Second)
	}
	if got := w.Lines(`SELECT uid || ' ' || coalesce(receipt, '') FROM postern.coord_intent
		ORDER BY seq`); got[1] != "good success" {
		t.Error(got, strings.Join(w.history(), "\n"))
	}
	aside := w.Lines(`SELECT object FROM postern.audit WHERE action = 'set_aside'`)
	if len(aside) == 0 || aside[0] != "/domains/tok/intents/"+bad.ID {
		t.Error("aside are", aside)
	}
	var paused bool
	w.Scan(`SELECT paused FROM postern.domain`, &paused)
	if paused {
		t.Error("the domain is paused")
	}
}

// A step that the schema refuses whatever came pauses its domain once. Nothing that came is put aside: it is taken once
// the domain goes on.
func TestAStepThatFailsByItselfPutsNothingAside(t *testing.T) {
	w := newPair(t)
	w.core = w.Another(2)
	w.post("one")
	for posted := 0; posted == 0; posted, _ = w.publics() {
		w.Must(w.turn(w.Ctx, w.S, w.node))
	}
	w.send()
	w.arrives(domains.Parcel{Message: coord.Message{Kind: coord.Heartbeat, Beat: 5, State: coord.Idle}})
	w.Exec(`ALTER TABLE postern.coord_state ADD CONSTRAINT planted CHECK (step < 0) NOT VALID`)
	for n := range 3 { // once it is paused, nothing fails any more: other domains and the process do not suffer
		if err := w.turn(w.Ctx, w.S, w.node); (err == nil) != (n > 0) {
			t.Errorf("turn %d: %v", n, err)
		}
	}
	w.Same(w.Lines(`SELECT action || ' ' || object FROM postern.audit WHERE via = 'domains'`), "pause /domains/tok")
	w.Same(w.Lines(`SELECT error FROM postern.coord_activity UNION ALL SELECT error FROM postern.coord_in`), "", "")
	w.Exec(`ALTER TABLE postern.coord_state DROP CONSTRAINT planted`)
	_, err := w.S.Domains.SetPaused(w.Ctx, w.By, "tok", false)
	w.Must(err)
	w.finish()
	w.Same(w.receipts(), "success ")
	w.Same(w.Lines(`SELECT slot FROM postern.coord_in`))
}

var errKilled = errors.New("the process was killed")

// A process dies at each of the commits of an intent's life: with the commit, or behind it. Another one goes on.
func TestAProcessIsKilledAtEachCommitOfAnIntentsLife(t *testing.T) {
	w := newWorld(t)
	last := 0
	for k := 1; last == 0; k++ {
		uid := fmt.Sprint("at ", k)
		commits, killed := 0, false
		victim := w.Another(2)
		victim.HoldCommits(func(context.Context, uint32) error {
			if commits++; commits >= k {
				killed = true
				return errKilled
			}
			return nil
		})
		if _, err := w.submit(victim, uid); err != nil {
			w.post(uid)
		}
		for n := 0; n < 12 && !killed; n++ {
			_ = w.turn(w.Ctx, victim, w.node)
			w.send()
		}
		if !killed {
			last = k
		}
		w.finish()
		var one, activities, moved int
		w.Scan(`SELECT (SELECT count(*) FROM postern.task WHERE uid LIKE ':coord:%' || i.intent_id || '%'),
				(SELECT count(*) FROM postern.coord_activity a WHERE a.intent_id = i.intent_id),
				(SELECT count(*) FROM postern.coord_step s WHERE s.object = i.intent_id::text AND s.state = 'Confirmed'
					AND s.machine = 'originator_transaction')
			FROM postern.coord_intent i ORDER BY i.seq DESC LIMIT 1`, &one, &activities, &moved)
		if one != 1 || activities != 1 || moved != 1 {
			t.Errorf("killed at commit %d: %d public transactions, %d activities, confirmed %d times", k, one,
				activities, moved)
		}
	}
	if last < 10 {
		t.Errorf("a life has %d commits", last)
	}
	for _, r := range w.receipts() {
		if r != "success " {
			t.Error(r)
		}
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

// A release takes an operator's word, with who and why, and is refused where nothing waits for it.
func TestAReleaseIsForWhatWaitsForIt(t *testing.T) {
	w := newWorld(t)
	i := w.post("a")
	if _, err := w.S.Domains.Release(w.Ctx, w.By, "tok", i.ID, true); err == nil {
		t.Error("what has no permit is released")
	}
	for range 8 {
		w.Must(w.turn(w.Ctx, w.S, w.node))
	}
	if _, err := w.S.Domains.Release(w.Ctx, w.By, "tok", i.ID, true); err == nil {
		t.Error("what the core has is released")
	}
	_, err := w.S.Domains.Cancel(w.Ctx, w.By, "tok", i.ID)
	if err == nil {
		t.Error("what is dispatched is cancelled")
	}
	leases, _, err := w.core.Claim(w.Ctx, w.node, pgworld.Everything())
	w.Must(err)
	if len(leases) != 1 {
		t.Fatalf("the core has %d", len(leases))
	}
	_, err = w.S.Abandon(w.Ctx, w.By, leases[0].Task.ID)
	w.Must(err)
	w.Must(w.turn(w.Ctx, w.S, w.node))
	if got, err := w.S.Domains.Intent(w.Ctx, w.ID, "tok", i.ID); err != nil || !got.Unknown || got.Receipt != "" {
		t.Errorf("%+v %v", got, err)
	}
	_, err = w.S.Domains.Release(w.Ctx, w.By, "tok", i.ID, true)
	w.Must(err)
	w.Same(w.receipts(), "success ")
	w.Same(w.Lines(`SELECT action || ' by ' || actor || ' ' || reason FROM postern.audit WHERE action = 'release'`),
		"release by test because")
}

// A store went back to where a public transaction was decided and not posted: in the life that is lost it may have been
// sent, so that it is not posted, and what became of it is unknown.
func TestWhatMayHaveBeenSentIsNotPostedAfterALoss(t *testing.T) {
	w := newWorld(t)
	i := w.post("a")
	for range 8 {
		w.Must(w.turn(w.Ctx, w.S, w.node))
	}
	w.Exec(`UPDATE postern.coord_activity SET posted_at = NULL, recalled = true`)
	said, err := w.S.Domains.PostActivities(w.Ctx, 0)
	w.Must(err)
	_, err = w.S.Domains.Step(w.Ctx, w.id(), said[w.id()])
	w.Must(err)
	var posted bool
	w.Scan(`SELECT bool_or(posted_at IS NOT NULL) FROM postern.coord_activity`, &posted)
	if got, err := w.S.Domains.Intent(w.Ctx, w.ID, "tok", i.ID); err != nil || posted || !got.Unknown {
		t.Errorf("posted: %v; %+v %v", posted, got, err)
	}
	if again, err := w.S.Domains.PostActivities(w.Ctx, 0); err != nil || len(again) != 0 {
		t.Errorf("it is said again: %v %v", again, err)
	}
	_, err = w.S.Domains.Release(w.Ctx, w.By, "tok", i.ID, true)
	w.Must(err)
	w.Same(w.receipts(), "success ")
}

// What became of the public transaction of an intent of another node is not known here: an operator of this node says
// it, by the id of the intent, and the seat is free again.
func TestTheWorkOfAnotherNodeIsReleased(t *testing.T) {
	for _, done := range []bool{true, false} {
		t.Run(fmt.Sprint("done ", done), func(t *testing.T) {
			w := newWorld(t)
			i := w.post("a")
			for range 8 {
				w.Must(w.turn(w.Ctx, w.S, w.node))
			}
			leases, _, err := w.core.Claim(w.Ctx, w.node, pgworld.Everything())
			w.Must(err)
			w.Exec(`DELETE FROM postern.coord_intent`) // it is another node's
			s := w.Another(2)
			if _, err := s.Domains.Release(w.Ctx, w.By, "tok", i.ID, done); fault.KindOf(err) != fault.Conflict {
				t.Errorf("what the core has is released: %v", err)
			}
			_, err = w.S.Abandon(w.Ctx, w.By, leases[0].Task.ID)
			w.Must(err)
			w.Must(w.turn(w.Ctx, s, w.node))
			r, err := s.Domains.Release(w.Ctx, w.By, "tok", i.ID, done)
			w.Must(err)
			want := map[bool]string{true: "Confirmed", false: "Pooled"}[done]
			if got := w.Lines(`SELECT state FROM postern.coord_work`); !r.Changed || len(got) != 1 || got[0] != want {
				t.Errorf("behind a release with done %v its work is %v, want %s", done, got, want)
			}
			_, err = s.Domains.Release(w.Ctx, w.By, "tok", "00000000-0000-7000-8000-000000000000", done)
			if fault.KindOf(err) != fault.NotFound {
				t.Errorf("the work of no intent: %v", err)
			}
		})
	}
}

// A process that is the first of its installation takes no answer before it has been greeted: the call of such an
// answer is made again at once, not behind its lease.
func TestACallWhoseAnswerIsNotTakenIsMadeAgainAtOnce(t *testing.T) {
	w := newWorld(t)
	w.S.Domains.Self = nil
	w.post("a")
	claim := func() []*domains.Call {
		list, err := w.S.Domains.ClaimCalls(w.Ctx, w.node.ID, nil, 10)
		w.Must(err)
		return list
	}
	first := claim()
	if len(first) != 1 {
		t.Fatalf("%d calls are claimed", len(first))
	}
	w.S.Domains.Self = func() int64 { return w.node.ID }
	answer := func(c *domains.Call) domains.Stepped {
		out, err := w.S.Domains.Step(w.Ctx, w.id(), []domains.Event{w.answer(c)})
		w.Must(err)
		return out
	}
	if out := answer(first[0]); len(out.Moves) > 0 || out.Calls != 1 {
		t.Fatalf("at the start of a process %+v, %d calls", out.Moves, out.Calls)
	}
	w.Exec(`UPDATE postern.coord_state SET still = true`)
	if list := claim(); len(list) != 0 {
		t.Errorf("%d calls of a domain that is still are claimed", len(list))
	}
	w.Exec(`UPDATE postern.coord_state SET still = false`)
	second := claim()
	if len(second) != 1 || second[0].Key != first[0].Key {
		t.Fatalf("%d calls are claimed behind that", len(second))
	}
	if out := answer(first[0]); len(out.Moves) > 0 {
		t.Error("the late answer has moved", out.Moves)
	}
	if out := answer(second[0]); len(out.Moves) == 0 {
		t.Error("the answer has moved nothing: ", out.Ignored)
	}
}

// The first process of a node waits for the others' greeting, and calls no service until then: the grace ends it.
func TestADomainThatIsStillCallsNoService(t *testing.T) {
	t.Parallel()
	p := newTwo(t)
	ann := p.nodes["ann"]
	for range 12 { // they greet each other
		ann.Must(p.turn())
	}
	i := ann.post("a")
	ann.Exec(`INSERT INTO postern.coord_call (domain_id, key, kind, intent_id, generation, call, makers, due)
		VALUES ($1, 'k', 'look', $2, 0, '{}', '{}', $3)`, ann.id(), i.ID, ann.Now)
	calls := func() int {
		list, err := ann.S.Domains.ClaimCalls(ann.Ctx, ann.node.ID, nil, 10)
		ann.Must(err)
		return len(list)
	}
	if calls() == 0 {
		t.Fatal("there is no call to make")
	}
	ann.down()
	ann.S.Domains.Self = func() int64 { return ann.node.ID }
	step := func() (still bool) {
		_, err := ann.S.Domains.Step(ann.Ctx, ann.id(), nil)
		ann.Must(err)
		ann.Scan(`SELECT still FROM postern.coord_state`, &still)
		return still
	}
	if !step() {
		t.Fatal("a process that starts does not wait for a greeting")
	}
	ann.Later(20 * time.Second) // the leases are over, and the grace is not looked at yet
	if n := calls(); n != 0 {
		t.Errorf("%d calls of a domain that is still are claimed", n)
	}
	if !step() {
		t.Error("it goes on, though no process was there to hear an answer")
	}
	for range 20 {
		ann.Later(time.Second)
		step()
	}
	if step() {
		t.Error("it waits when the grace is over")
	}
}

// A call whose data is gone holds up no other that is claimed with it, and ends as an error of the service.
func TestACallThatCannotBeMadeHoldsUpNoOther(t *testing.T) {
	w := newWorld(t)
	w.post("a")
	w.Exec(`INSERT INTO postern.coord_call (domain_id, key, kind, intent_id, generation, call, makers, due)
		SELECT domain_id, 'poison', 'endorse', gen_random_uuid(), 7, '{"Key": "poison", "Kind": "endorse",
			"ID": "0192f5f0-0000-7000-8000-000000000009", "Generation": 7, "Node": "self"}', '{}',
			clock_timestamp() - interval '1 day'
		FROM postern.domain`)
	list, err := w.S.Domains.ClaimCalls(w.Ctx, w.node.ID, nil, 10)
	w.Must(err)
	var poison *domains.Call
	made := 0
	for _, c := range list {
		if c.Key == "poison" {
			poison = c
		} else if c.Err == nil && len(c.Requests) == 1 {
			made++
		}
	}
	if poison == nil || !poison.Lost() || len(poison.Requests) != 0 || made != 1 {
		t.Fatalf("%d calls were claimed, %d of them made", len(list), made)
	}
	_, err = w.Another(2).Domains.Step(w.Ctx, w.id(), []domains.Event{poison.Failed(poison.Err.Error())})
	w.Must(err)
	if left := w.Lines(`SELECT key FROM postern.coord_call WHERE key = 'poison'`); len(left) != 0 {
		t.Error("it is left, and would be claimed for ever")
	}
	w.finish()
	w.Same(w.receipts(), "success ")
}

// A uid may be a UUID. Such a name means the intent of that id, else the one of that uid.
func TestAnIntentIsCalledByAUIDThatLooksLikeAnID(t *testing.T) {
	w := newWorld(t)
	const uid = "0190c1e6-0000-7000-8000-000000000001"
	i := w.post(uid)
	other := w.post(i.ID) // its uid is the id of the first
	for called, want := range map[string]string{uid: i.ID, i.ID: i.ID, other.ID: other.ID} {
		got, err := w.S.Domains.Intent(w.Ctx, w.ID, "tok", called)
		if err != nil || got.ID != want {
			t.Errorf("%s is %+v %v, want %s", called, got, err, want)
		}
	}
	w.finish()
	if why, err := w.S.Domains.WhyIntent(w.Ctx, w.ID, "tok", uid); err != nil || why.State != "Confirmed" {
		t.Error(why, err)
	}
	if steps, err := w.S.Domains.History(w.Ctx, w.ID, "tok", uid); err != nil || len(steps) == 0 {
		t.Error(steps, err)
	}
	parked := "0190c1e6-0000-7000-8000-000000000002"
	w.post(parked)
	if r, err := w.S.Domains.Resume(w.Ctx, w.By, "tok", parked); err != nil || r.Changed {
		t.Error(r, err)
	}
	if _, err := w.S.Domains.Release(w.Ctx, w.By, "tok", parked, true); fault.KindOf(err) != fault.Conflict {
		t.Error("a release says", err)
	}
	if _, err := w.S.Domains.Cancel(w.Ctx, w.By, "tok", parked); fault.KindOf(err) == fault.NotFound {
		t.Error("a cancel says", err)
	}
}
