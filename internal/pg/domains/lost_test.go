package domains_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
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
