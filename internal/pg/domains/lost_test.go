package domains_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/pg/domains"
)

// An intent that is submitted under a uid after the store has lost rows may have been sent by this node in the time
// that is lost: it waits, and says for what, until an operator has said that nothing of that is on its way.
func TestWhatIsSubmittedAgainAfterALossWaitsForAWord(t *testing.T) {
	w := newWorld(t)
	w.post("before")
	w.finish()
	w.Exec(`UPDATE postern.coord_state SET image = jsonb_set(image, '{Paused}', 'true'), step = step + 1`)
	release := func(madeGood bool) bool {
		t.Helper()
		r, err := w.S.Domains.ReleaseDomain(w.Ctx, w.By, "tok", madeGood)
		w.Must(err)
		return r.Changed
	}
	if !release(false) || release(false) {
		t.Error("a domain is released once")
	}
	w.post("again")
	why, err := w.S.Domains.WhyIntent(w.Ctx, w.ID, "tok", "again")
	w.Must(err)
	b := why.Blockers[len(why.Blockers)-1]
	if b.Kind != "permit_held" || b.Object != "/domains/tok" || len(b.Levers) != 2 || why.Moving {
		t.Errorf("%+v", why)
	}
	for range 5 {
		w.Must(w.turn(w.Ctx, w.S, w.node))
		w.send()
		w.Later(time.Second)
	}
	if n, _ := w.publics(); n != 1 || w.open() != 1 {
		t.Errorf("%d public transactions, and %d intents are open: %v", n, w.open(), w.history())
	}
	if !release(true) || release(true) {
		t.Error("that word is taken once")
	}
	w.finish()
	if got := strings.Join(w.receipts(), ", "); strings.Count(got, "success") != 2 {
		t.Error(got)
	}
}

// The word of a delegate shows which permit it had in a life that is lost: under another install than the one that was
// presumed. Another process of this node knows that too, and takes what the delegate says of its end.
func TestAPermitThatIsRecalledIsThatOfEachProcess(t *testing.T) {
	w := newPair(t)
	set := w.settings()
	set.Static = "bob"
	_, err := w.S.Domains.Put(w.Ctx, w.By, "tok", set, 0)
	w.Must(err)
	says := func(m coord.Message) {
		t.Helper()
		w.Later(time.Second)
		m.Install, m.Beat = 2, w.Now.UnixMicro()
		w.arrives(domains.Parcel{Message: m})
		w.step()
	}
	says(coord.Message{Kind: coord.Heartbeat, State: coord.Active})
	i := w.post("a")
	said := coord.Entry{ID: i.ID, Generation: 1, Install: 1, State: coord.Dispatched} // of bob's life before
	says(coord.Message{Kind: coord.DelegationResponse, IDs: []string{i.ID}})
	w.Exec(`UPDATE postern.store SET life = life + 1`) // as the end of a quarantine behind a loss
	w.step()
	_, err = w.S.Domains.ReleaseDomain(w.Ctx, w.By, "tok", true)
	w.Must(err)
	permit := func(want string) {
		t.Helper()
		w.Same(w.Lines(`SELECT concat_ws(' ', node, generation, install, closed_by) FROM postern.coord_permit
			WHERE node <> 'self'`), want)
	}
	permit("bob 0 2 presumed")
	says(coord.Message{Kind: coord.Told, Entries: []coord.Entry{said}})
	permit("bob 1 1 presumed")
	second := w.Another(2)
	if got, want := w.image(w.S, true), w.image(second, false); got != want {
		t.Errorf("it has\n%s\nand one that reads all\n%s", got, want)
	}
	said.State, said.Outcome, said.Reason = coord.Reverted, coord.Failure, "refused for good"
	w.S = second
	says(coord.Message{Kind: coord.Told, Entries: []coord.Entry{said}})
	w.Same(w.receipts(), "failure refused for good")
}

// A domain is not removed while a node is to be told of an end, or a permit may be used.
func TestADomainIsRemovedOnceEachEndIsTold(t *testing.T) {
	w := newPair(t)
	w.step()
	for state, member := range map[string]string{"Ready_For_Dispatch": "dispatched", "Confirmed": "untold"} {
		w.Exec(`DELETE FROM postern.coord_work`)
		w.Exec(`INSERT INTO postern.coord_work (domain_id, intent_id, place, was, state, since, generation, image)
			VALUES ($1, gen_random_uuid(), 1, $3, $2, now(), 1, '{"Told": false}')`, w.id(), state,
			map[string]string{"Confirmed": "Submitted", "Ready_For_Dispatch": "Confirming_Dispatch"}[state])
		err := w.S.Domains.Remove(w.Ctx, w.By, "tok")
		f := fault.As(err)
		if err == nil || f.Code != "in_use" || f.Extra[member] == nil || len(f.Extra[member].([]string)) != 1 {
			t.Errorf("with a work that is %s: %v", state, err)
		}
	}
	w.Exec(`DELETE FROM postern.coord_work`)
	w.Must(w.S.Domains.Remove(w.Ctx, w.By, "tok"))
}
