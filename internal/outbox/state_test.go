package outbox_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
)

// TestStatesHaveTheCodesOfTheReference: S2.2.
func TestStatesHaveTheCodesOfTheReference(t *testing.T) {
	t.Parallel()
	codes := map[outbox.State]int{"WAITING": 101, "REVISION": 102, "DONE": 103, "RETRY": 104, "FAILED": 105, "UNRESOLVED": 106, "DISPATCHING": 107, "CANCELLED": 108}
	if len(outbox.States) != len(codes) {
		t.Errorf("%d states, want %d", len(outbox.States), len(codes))
	}
	for _, s := range outbox.States {
		terminal := s == "DONE" || s == "FAILED" || s == "UNRESOLVED" || s == "CANCELLED"
		if s.Code() != codes[s] || s.Terminal() != terminal {
			t.Errorf("%s has code %d, want %d; terminal %v, want %v", s, s.Code(), codes[s], s.Terminal(), terminal)
		}
	}
	queue := map[outbox.QueueState]int{"FREE": 201, "BLOCKED": 202, "RETRY": 203, "DELAY": 204, "INCLUSION": 205, "WAITING_INCLUSION": 206}
	if len(outbox.QueueStates) != len(queue) {
		t.Errorf("%d queue states, want %d", len(outbox.QueueStates), len(queue))
	}
	for _, s := range outbox.QueueStates {
		if s.Code() != queue[s] {
			t.Errorf("%s has code %d, want %d", s, s.Code(), queue[s])
		}
	}
	if outbox.State("").Code() != 0 || outbox.QueueState("").Code() != 0 {
		t.Error("what is no state has a code")
	}
}

// TestAPhaseTellsTheStatesOfQueueAndTransaction: S2.3.
func TestAPhaseTellsTheStatesOfQueueAndTransaction(t *testing.T) {
	t.Parallel()
	want := map[outbox.Phase]struct {
		queue       outbox.QueueState
		transaction outbox.State
	}{
		"IDLE": {"FREE", "WAITING"}, "READY": {"FREE", "WAITING"}, "HELD": {"FREE", "WAITING"}, "DISPATCHING": {"BLOCKED", "DISPATCHING"},
		"INCLUSION": {"INCLUSION", "REVISION"}, "WAITING_INCLUSION": {"WAITING_INCLUSION", "REVISION"}, "RETRY": {"RETRY", "RETRY"}, "DELAY": {"DELAY", "RETRY"},
	}
	if len(outbox.Phases) != len(want) {
		t.Errorf("%d phases, want %d", len(outbox.Phases), len(want))
	}
	for _, p := range outbox.Phases {
		w, known := want[p]
		if !known || p.Queue() != w.queue || p.Transaction() != w.transaction || p.InFlight() != (w.queue != "FREE") {
			t.Errorf("%s: queue %s, transaction %s, in flight %v; want %+v", p, p.Queue(), p.Transaction(), p.InFlight(), w)
		}
	}
}
