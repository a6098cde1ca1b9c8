package pg_test

import (
	"encoding/json"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// Data is judged by the schema that the type has now, not by the one that this process knows: another process has just
// made the type, or changed it.
func TestDataFitsTheSchemaThatAnotherProcessHasPut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	late, err := stores.Open(w.Ctx, w.Second(4), pgworld.Quiet)
	w.Must(err)
	strict := func(d *outbox.Dispatcher) { d.Schema = json.RawMessage(`{"required": ["cents"]}`) }
	w.Dispatcher("new", strict)
	post := func(how func(sub *pg.Submission) (pg.Accepted, error), uid string, want string) {
		t.Helper()
		sub := w.Sub("q", "new", uid)
		late.Judge(sub)
		a, err := how(sub)
		if err == nil {
			err = a.Err
		}
		if fault.CodeOf(err) != want {
			t.Errorf("%s: %v, want %q", uid, err, want)
		}
	}
	one := func(sub *pg.Submission) (pg.Accepted, error) {
		out, err := late.Ingest(w.Ctx, []*pg.Submission{sub}, false)
		return out[0], err
	}
	post(one, "a", "schema_mismatch")

	w.Dispatcher("new", nil)
	post(one, "b", "schema_mismatch") // up to a second late: nothing was there to tell that it is
	w.Must(late.Refresh(w.Ctx))
	post(one, "b", "")

	w.Dispatcher("new", strict)
	post(func(sub *pg.Submission) (pg.Accepted, error) { // read between the check and the commit
		w.Must(late.Refresh(w.Ctx))
		return one(sub)
	}, "c", "schema_mismatch")
	post(one, "b", "") // accepted before

	w.Dispatcher("drained", strict)
	w.Must(w.submit(w.app(1), "q", "drained", "d"))
	if out := w.drainAll(late); out.Refused != 1 || w.ByUID("d").Code != "schema_mismatch" {
		t.Errorf("%+v %+v", out, w.ByUID("d"))
	}
}
