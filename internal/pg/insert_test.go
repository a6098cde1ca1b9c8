package pg_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/fault"
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
