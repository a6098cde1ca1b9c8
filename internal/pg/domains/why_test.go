package domains_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/domains"
	"github.com/postern-dev/postern/internal/pg/reads"
)

// begun is a pair whose node waits no longer for a greeting.
func begun(t *testing.T, static string) *world {
	t.Helper()
	w := newPair(t)
	set := w.settings()
	set.Static = static
	_, err := w.S.Domains.Put(w.Ctx, w.By, "tok", set, 0)
	w.Must(err)
	w.step()
	w.Later(3 * time.Second)
	w.step()
	w.plan = `[]`
	return w
}

// says has bob say something later than all before, and takes a step with it.
func (w *world) says(m coord.Message) {
	w.T.Helper()
	w.Later(time.Millisecond)
	m.Beat = w.Now.UnixMicro()
	w.arrives(domains.Parcel{Message: m})
	w.step()
}

// answers has the service of this node answer all its calls.
func (w *world) answers() {
	w.T.Helper()
	calls, err := w.S.Domains.ClaimCalls(w.Ctx, w.node.ID, nil, 10)
	w.Must(err)
	var events []domains.Event
	for _, c := range calls {
		events = append(events, w.answer(c))
	}
	_, err = w.S.Domains.Step(w.Ctx, w.id(), events)
	w.Must(err)
}

func (w *world) asked(kind coord.Kind) *domains.Mail {
	w.T.Helper()
	list, err := w.S.Domains.ClaimMail(w.Ctx, nil, 100)
	w.Must(err)
	for _, m := range list {
		if m.Kind == kind {
			return m
		}
	}
	w.T.Fatalf("bob is told %q, and not %s", kinds(list), kind)
	return nil
}

// An intent that another node holds says what that said last, and when.
func TestAnIntentThatIsHeldHasTheLastWordsOfItsHolder(t *testing.T) {
	w := begun(t, "bob")
	id := w.post("a").ID
	ids := []string{id}
	w.says(coord.Message{Kind: coord.DelegationResponse, IDs: ids})
	w.says(coord.Message{Kind: coord.AssembleRequest, ID: id, Key: "k", Generation: 5})
	w.answers()
	i, err := w.S.Domains.Intent(w.Ctx, w.ID, "tok", id)
	w.Must(err)
	w.says(coord.Message{Kind: coord.ConfirmationRequest, ID: id, Key: "c", Generation: 5,
		Hash: i.Image.Assembled.Hash})
	for _, e := range []coord.Entry{
		{ID: id, State: coord.Dispatched, Generation: 5, Install: 1, Nonce: 7},
		{ID: id, State: coord.Submitted, Generation: 5, Install: 1, Nonce: 7, Hash: "0xfeed"},
	} {
		w.says(coord.Message{Kind: coord.Heartbeat, State: coord.Active, Entries: []coord.Entry{e}})
	}
	why, err := w.S.Domains.WhyIntent(w.Ctx, w.ID, "tok", id)
	w.Must(err)
	for _, want := range []string{"Submitted", "nonce 7", "hash 0xfeed", "heard ", "ago"} {
		if !strings.Contains(why.Summary, want) {
			t.Errorf("%q is not in %q", want, why.Summary)
		}
	}
}

// The node that coordinates an intent of another one says what its own work waits for: there the public transaction is,
// and the lever where nothing is known of it.
func TestTheCoordinatorSaysWhatAWorkWaitsFor(t *testing.T) {
	w := begun(t, "self")
	const id = "0190c1e6-0000-7000-8000-000000000001"
	if _, err := w.S.Domains.WhyIntent(w.Ctx, w.ID, "tok", id); fault.KindOf(err) != fault.NotFound {
		t.Error("of nothing it says", err)
	}
	w.says(coord.Message{Kind: coord.DelegationRequest, Delegations: []coord.Delegation{{ID: id, Generation: 1}}})
	asked := w.asked(coord.AssembleRequest)
	why, err := w.S.Domains.WhyIntent(w.Ctx, w.ID, "tok", id)
	w.Must(err)
	if why.State != "Assembling" || !strings.Contains(fmt.Sprint(why.Blockers), "answer_missing") {
		t.Errorf("%+v", why)
	}
	made := json.RawMessage(`{"assembled": 1, "inputs": [], "outputs": [], "plan": []}`)
	w.arrives(domains.Parcel{Made: made, Of: "ben@bob", Message: coord.Message{Kind: coord.AssembleResponse, Beat: 6,
		ID: id, Key: asked.Key, Generation: asked.Generation, Result: coord.OK, Hash: coord.HashOf(made)}})
	w.step()
	w.answers()
	asked = w.asked(coord.ConfirmationRequest)
	w.says(coord.Message{Kind: coord.DispatchConfirmed, ID: id, Key: asked.Key, Generation: asked.Generation})
	var uid string
	w.Scan(`SELECT work_uid FROM postern.coord_activity`, &uid)
	_, err = w.S.Domains.Step(w.Ctx, w.id(), []domains.Event{{Event: coord.Event{ID: id,
		Core: &coord.CoreWord{ID: id, UID: uid, State: coord.CoreUnknown}}}})
	w.Must(err)
	released := func(list []reads.Blocker) bool {
		return slices.ContainsFunc(list, func(b reads.Blocker) bool {
			return b.Kind == "public_unknown" && strings.Contains(fmt.Sprint(b.Levers), id)
		})
	}
	if why, err = w.S.Domains.WhyIntent(w.Ctx, w.ID, "tok", id); err != nil || !released(why.Blockers) || why.Moving {
		t.Errorf("%+v %v", why, err)
	}
	if why, err = w.S.Domains.WhyDomain(w.Ctx, w.ID, "tok"); err != nil || !released(why.Blockers) {
		t.Errorf("%+v %v", why, err)
	}
}

// An intent that waits since its coordinator takes no more says so, and names that node.
func TestAnIntentThatWaitsForRoomSaysWhoHasNone(t *testing.T) {
	w := begun(t, "bob")
	none := 0
	w.says(coord.Message{Kind: coord.Heartbeat, State: coord.Active, Room: &none})
	id := w.post("a").ID
	why, err := w.S.Domains.WhyIntent(w.Ctx, w.ID, "tok", id)
	w.Must(err)
	if !strings.Contains(why.Summary, "node bob takes no more intents of this node now") || !why.Moving ||
		why.Blockers[0].Next == nil {
		t.Errorf("%+v", why)
	}
	w.Later(time.Minute)
	if why, err = w.S.Domains.WhyIntent(w.Ctx, w.ID, "tok", id); err != nil || why.Moving {
		t.Errorf("bob is silent for a minute: %+v %v", why, err)
	}
}

// An intent that is not assembled since too many states wait for the ledger says so, and is, once they are there.
func TestAnIntentThatWaitsForTheLedgerToHaveStatesSaysSo(t *testing.T) {
	w := newWorld(t)
	w.post("a")
	for n := 0; n == 0; n, _ = w.publics() {
		w.Must(w.turn(w.Ctx, w.S, w.node))
	}
	w.Exec(`UPDATE postern.coord_work SET image = jsonb_set(image, '{Assembled,size}', '262144')`)
	w.Exec(`UPDATE postern.coord_state SET step = step + 1`)
	w.post("b")
	for range 5 {
		w.Must(w.turn(w.Ctx, w.S, w.node))
		w.Later(time.Second)
	}
	why, err := w.S.Domains.WhyIntent(w.Ctx, w.ID, "tok", "b")
	if err != nil || !strings.Contains(why.Summary, "none while 256 KiB of states wait for the ledger") || !why.Moving {
		t.Errorf("%+v %v", why, err)
	}
	w.finish()
	w.Same(w.receipts(), "success ", "success ")
}
