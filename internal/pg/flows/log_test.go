package flows_test

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/pg/flows"
)

// Each holder of a try may write as much as the limit allows, also behind one that had written that much and died; what
// the one before sends later is refused.
func TestEachFenceHasALogOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("a", "b")
	w.post(0)
	const piece = 16 << 10
	fill := func(v *flows.Taken) {
		t.Helper()
		for n := range flow.MaxLog/piece + 2 {
			line := flows.Line{N: n + 1, Stream: "stdout", Text: strings.Repeat("x", piece)}
			w.Must(w.S.Flows.AppendLog(w.Ctx, w.ID, v.ID, v.Fence, []flows.Line{line}))
		}
	}
	kept := func() (of string) {
		w.Scan(`SELECT string_agg(n::text, ' ' ORDER BY fence)
			FROM (SELECT fence, sum(octet_length(text)) AS n FROM postern.try_log GROUP BY fence) x`, &of)
		return of
	}
	first := w.one("a")
	fill(first)
	if got := kept(); got != "1048576" {
		t.Errorf("kept are %s bytes", got)
	}
	w.Later(silent)
	_, err := w.S.Flows.Lapse(w.Ctx)
	w.Must(err)
	second := w.one("b")
	fill(second)
	late := []flows.Line{{N: 100, Stream: "stdout", Text: "late"}}
	if err := w.S.Flows.AppendLog(w.Ctx, w.ID, first.ID, first.Fence, late); said(err) != "stale_fence" {
		t.Errorf("what had the try before writes on: %v", err)
	}
	if got := kept(); got != "1048576 1048576" {
		t.Errorf("kept are %s bytes of two fences", got)
	}
}
