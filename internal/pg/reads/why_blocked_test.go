package reads_test

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/sequencer"
)

// A head that waits by itself since its call came to nothing is told with what was answered, since when, and when it is
// tried again.
func TestWhyNamesWhatBlocksAQueueAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	id := w.Post("q", "T", "a")[0]
	begun := w.Now
	a := w.Answer(w.Claim(w.Node("n"), pgworld.Everything())[0], outbox.Answer{
		Class:   outbox.ClassBlocked,
		Scope:   outbox.ScopeQueue,
		Code:    "http_404",
		Message: "no such path",
	})
	a.Gate = sequencer.MoveNone
	w.Settle(a)
	why, err := w.S.Reads.Why(w.Ctx, w.ID, id)
	w.Must(err)
	b := why.Blockers[0]
	if len(why.Blockers) != 1 || b.Kind != "queue_blocked" || !strings.Contains(b.Detail, "no such path (http_404)") ||
		!b.Since.Equal(begun) || b.Next == nil || !b.Next.At.Equal(begun.Add(a.Step.Delay)) {
		t.Errorf("%+v, next %+v", why.Blockers, b.Next)
	}
}
