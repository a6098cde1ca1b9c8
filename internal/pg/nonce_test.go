package pg_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/sequencer"
)

// TestAnEndKeepsTheNonceThatAnAnswerAboutItsHashDoesNotRepeat: a status need not tell the nonce
// (docs/worker-contract.md).
func TestAnEndKeepsTheNonceThatAnAnswerAboutItsHashDoesNotRepeat(t *testing.T) {
	t.Parallel()
	a := newArena(t)
	a.flying(0, "a")
	a.Settle(a.Answer(a.lease, outbox.Answer{Result: outbox.Result{Hash: "0xab", Nonce: "7"}}))
	a.Must(a.setTimer(a.Now))
	w, err := a.S.Wake(a.Ctx, a.n1, 10, 10)
	a.Must(err)
	l := w.Polls[0]
	included := outbox.Status{State: outbox.StatusIncluded, Hash: "0xab", BlockHeight: "12"}
	a.Settle(&pg.Answer{Lease: l, Gate: sequencer.MoveOpen, Result: outbox.Result{Hash: "0xab"},
		Step: sequencer.Polled(l.Flight(2), included, l.Dispatcher.Dispatcher, 0.5)})
	a.Same(a.Lines(`SELECT concat_ws(' ', state, hash, nonce) FROM postern.outcome ORDER BY queue_id`),
		"DONE", "DONE 0xab 7")
}
