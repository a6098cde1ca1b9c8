package messages_test

import (
	"slices"
	"testing"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
)

// A queue of messages to a peer drops none, whatever it is set to: those behind it wait.
func TestAFullQueueDropsNoMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.far()
	queue := outbox.PeerQueue("far", w.By.Actor)
	_, err := w.S.PutQueue(w.Ctx, w.By, pg.Queue{Name: queue, Priority: "Med", MaxDepth: 2, WhenFull: "drop_oldest",
		OnFailure: "continue"}, 0)
	w.Must(err)
	ids := w.leave("1", "2", "3")
	for range 2 {
		if _, err := w.S.Messages.Carry(w.Ctx); err != nil || !slices.Equal(w.carried(), ids[:2]) {
			t.Errorf("%v go to the peer, want %v: %v", w.carried(), ids[:2], err)
		}
	}
	for _, id := range ids {
		if got := w.stands(id); got != "dispatched" {
			t.Error(got)
		}
	}
	var dropped int
	w.Scan(`SELECT count(*) FROM postern.outcome`, &dropped)
	if dropped != 0 {
		t.Errorf("%d transactions of messages have ended", dropped)
	}
	out, err := w.S.Ingest(w.Ctx, []*pg.Submission{w.Sub(queue, "peer.far", "other")}, false)
	w.Must(err)
	if fault.CodeOf(out[0].Err) != "queue_full" {
		t.Errorf("another one is told %v", out[0].Err)
	}
}
