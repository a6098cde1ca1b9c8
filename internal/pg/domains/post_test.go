package domains_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// A public transaction may land once an attempt of it went out, also when a later one, which has a nonce and no hash,
// is rejected: its intent gets no failure receipt. Where no attempt went out, it has failed.
func TestARejectedAttemptSaysNothingOfThoseBeforeIt(t *testing.T) {
	for first, want := range map[string]string{"'0x1'": "unknown", "NULL": "reverted"} {
		t.Run(want, func(t *testing.T) {
			w := newWorld(t)
			w.post("one")
			for n := 0; n == 0; n, _ = w.publics() {
				w.Must(w.turn(w.Ctx, w.S, w.node))
			}
			w.Must(w.core.Refresh(w.Ctx))
			for _, l := range w.Claim(w.node, pgworld.Everything()) {
				w.Settle(w.Answer(l, outbox.Answer{Class: outbox.ClassRejected, Code: "nonce", Message: "nonce used"}))
			}
			w.Exec(`INSERT INTO postern.attempt (queue_id, seq, day, attempt, fence, step, nonce, hash)
				SELECT o.queue_id, o.seq, o.day, 1, 0, 'dispatch', '7', ` + first + ` FROM postern.outcome o
				UNION ALL SELECT o.queue_id, o.seq, o.day, 2, 0, 'dispatch', '7', NULL FROM postern.outcome o`)
			for range 3 {
				w.Must(w.turn(w.Ctx, w.S, w.node))
			}
			if ended := w.open() == 0; ended != (want == "reverted") {
				t.Errorf("it has ended: %v, %v", ended, w.receipts())
			}
			w.Same(w.Lines(`SELECT state FROM postern.coord_activity`), want)
		})
	}
}
