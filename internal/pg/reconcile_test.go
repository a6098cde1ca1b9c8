package pg_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/sequencer"
)

// A poll that was out when the quarantine was entered and the questions of a reconciliation find the same hash. The one
// that comes first is recorded, and the other changes nothing, whether it waits for the first one's commit or not.
func TestAHashIsRecordedOnceByAPollOrAReconciliation(t *testing.T) {
	t.Parallel()
	included := outbox.Status{State: outbox.StatusIncluded, Hash: "0xabc", BlockHeight: "12", Confirmations: 1}
	for name, pollFirst := range map[string]bool{"the poll is first": true, "the reconciliation is first": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.Dispatcher("T", nil)
			n := w.Node("n")
			ids := w.Post("q", "T", "a", "b")
			w.Settle(w.Answer(w.Claim(n, pgworld.Everything())[0], pgworld.Hashed()))
			w.Later(time.Minute)
			_, err := w.S.Beat(w.Ctx, n, pg.NodeLoad{})
			w.Must(err)
			woken, err := w.S.Wake(w.Ctx, n, 10, 10)
			w.Must(err)
			poll := woken.Polls[0]
			w.Must(w.S.EnterQuarantine(w.Ctx, w.By, pg.Quarantine{Reason: "restored"}))
			v, err := w.S.ReconcileRound(w.Ctx, w.By, pg.Quarantine{}, true)
			w.Must(err)
			part, err := w.S.NextUnended(w.Ctx, v, 10)
			w.Must(err)
			found, err := w.S.Submitted(w.Ctx, part[0])
			w.Must(err)
			if behind, err := w.S.Submitted(w.Ctx, part[1]); err != nil || behind != nil {
				t.Fatalf("what stands behind waits for a hash: %v, %v", behind, err)
			}
			var out pg.Settled
			var moved bool
			polled := func() error {
				w.S.SetNow(&w.Now)
				a := &pg.Answer{Lease: poll, BlockHeight: "12", StartedAt: w.Now,
					Step: sequencer.Polled(poll.Flight(2), included, poll.Dispatcher.Dispatcher, 0.5)}
				settled, err := w.S.Settle(w.Ctx, []*pg.Answer{a})
				if err == nil {
					out = settled[0]
				}
				return err
			}
			other := w.Other()
			reconciled := func() (err error) {
				moved, err = other.S.ReconciledHash(w.Ctx, part[0], found, 2, included)
				return err
			}
			first, second := polled, reconciled
			if !pollFirst {
				first, second = reconciled, polled
				w.Must(first())
				w.Must(second())
			} else {
				said, waited := w.Beside(first, func() string { return errText(second()) })
				if said != "" || !waited {
					t.Errorf("the second said %q, waited %v", said, waited)
				}
			}
			if moved == pollFirst || out.Fenced == pollFirst {
				t.Errorf("the reconciliation was recorded: %v; the poll was too late: %v", moved, out.Fenced)
			}
			if a, b := w.State(ids[0]), w.State(ids[1]); a != outbox.DONE || b != outbox.WAITING {
				t.Errorf("they are %s and %s, want DONE and WAITING", a, b)
			}
			if !moved {
				w.Must(w.S.Reread(w.Ctx, part[0]))
			}
			if part[0].Goes && !moved {
				t.Error("what has ended goes out next")
			}
			pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
		})
	}
}

func errText(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}
