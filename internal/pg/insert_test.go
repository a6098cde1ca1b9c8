package pg_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// A type without a dispatcher is refused as such, also where the post and its place are one commit.
func TestAPlacedPostOfAnUnknownTypeIsRefused(t *testing.T) {
	w := pgworld.New(t)
	first := w.Ingest(w.S, w.Sub("q", "T", "x"))[0].ID
	sub := w.Sub("q", "GONE", "y")
	sub.Insertion = &pg.Insertion{Place: pg.Place{Before: &first}, By: w.By}
	out, err := pg.NewIngester(w.S.Store).SubmitBatch(w.Ctx, []*pg.Submission{sub}, false)
	if err != nil || fault.CodeOf(out[0].Err) != "unknown_type" {
		t.Errorf("%v %+v", err, out)
	}
}

// Where one of a batch with a place cannot be stored for now, those before it are told as stored: who repeats all of
// the batch would store them twice.
func TestABatchWithAPlaceTellsWhatItHasStored(t *testing.T) {
	t.Parallel()
	w := pgworld.New(t)
	w.Dispatcher("T", nil)
	w.Post("b", "T", "first")
	held := w.Begin(w.S.Pool())
	if _, err := held.Exec(w.Ctx, `SELECT FROM postern.queue q
		JOIN postern.queue_name n USING (queue_id)
		WHERE n.name = 'b' FOR UPDATE OF q`); err != nil {
		t.Fatal(err)
	}
	placed := w.Sub("b", "T", "y")
	placed.Insertion = &pg.Insertion{By: w.By}
	subs := []*pg.Submission{w.Sub("a", "T", "x"), placed, w.Sub("c", "T", "z")}
	out, err := pg.NewIngester(w.S.Store).SubmitBatch(w.Ctx, subs, false)
	w.Must(held.Rollback(w.Ctx))
	if err != nil {
		t.Fatalf("the first is stored, and all are told to have failed: %v", err)
	}
	if len(out) != 3 || out[0].Err != nil || fault.KindOf(out[1].Err) != fault.Retry ||
		fault.KindOf(out[2].Err) != fault.Retry {
		t.Fatalf("%+v", out)
	}
	w.Same(w.Lines(`SELECT uid FROM postern.tx ORDER BY uid`), "first", "x")
	if w.State(out[0].ID) != outbox.WAITING {
		t.Error(w.State(out[0].ID))
	}
}
