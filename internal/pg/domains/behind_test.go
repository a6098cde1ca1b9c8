package domains_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/coord"
	"github.com/postern-dev/postern/internal/pg/domains"
	"github.com/postern-dev/postern/internal/pg/stores"
)

// newDependent has two intents whose public transactions are not posted: the second spends what the first makes, whose
// type the core does not take.
func newDependent(t *testing.T) (w *world, a *domains.Intent) {
	t.Helper()
	w = newWorld(t)
	a = w.post("a")
	w.inputs["b"] = []string{"of " + a.ID}
	w.post("b")
	for n := 0; n < 2; _, n = w.publics() {
		w.Must(w.steps(w.Ctx, w.S, w.node))
		w.Later(300 * time.Millisecond)
	}
	w.Exec(`UPDATE postern.coord_payload SET data = '{"type": "GONE", "data": {}}'
		WHERE part = 'prepared' AND intent_id = $1::text::uuid`, a.ID)
	return w, a
}

// posts posts what is to be posted, and says which of it were refused for good.
func (w *world) posts(s *stores.Store) []domains.Event {
	w.T.Helper()
	refused, err := s.Domains.PostActivities(w.Ctx, 0)
	w.Must(err)
	return refused[w.id()]
}

// What depends on a public transaction that the core refuses waits until that is posted, and is charged no revert.
func TestADependentOfWhatIsRefusedWaits(t *testing.T) {
	w, _ := newDependent(t)
	for range 3 {
		if refused := w.posts(w.S); len(refused) != 0 {
			t.Errorf("%+v", refused[0].Core)
		}
	}
	const errors = `SELECT (posted_at IS NOT NULL) || ' ' || (error <> '') FROM postern.coord_activity ORDER BY n`
	w.Same(w.Lines(errors), "false true", "false true")
	w.Exec(`UPDATE postern.coord_payload SET data = '{"type": "TOK", "data": {}}' WHERE part = 'prepared'`)
	w.posts(w.S)
	w.Same(w.Lines(errors), "true false", "true false")
	w.finish()
	w.Same(w.receipts(), "success ", "success ")
	w.Same(w.Lines(`SELECT DISTINCT coalesce(image->>'reverts', '0') FROM postern.coord_work`), "0")
}

// What depends on a public transaction that has ended without being posted is undone, also where another process posts
// it while that end is being committed.
func TestADependentOfWhatWasNotPostedIsUndone(t *testing.T) {
	w, a := newDependent(t)
	var uid string
	w.Scan(`SELECT work_uid FROM postern.coord_activity ORDER BY n LIMIT 1`, &uid)
	o := w.Other()
	var refused []domains.Event
	_, waited := w.Beside(func() error {
		_, err := w.S.Domains.Step(w.Ctx, w.id(), []domains.Event{{
			Event: coord.Event{Core: &coord.CoreWord{ID: a.ID, UID: uid, State: coord.CoreUndone}},
			Word:  &domains.Word{UID: uid, State: coord.CoreUndone, Ended: true}}})
		return err
	}, func() string { refused = w.posts(o.S); return "" })
	if !waited || len(refused) != 1 || refused[0].Core.State != coord.CoreUndone {
		t.Fatalf("waited: %v; %+v", waited, refused)
	}
	_, err := w.S.Domains.Step(w.Ctx, w.id(), refused)
	w.Must(err)
	w.finish()
	w.Same(w.receipts(), "success ", "success ")
	w.Same(w.Lines(`SELECT DISTINCT coalesce(image->>'reverts', '0') FROM postern.coord_work`), "0")
}
