package events_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// hears looks for what was lost, as a node does each second, and returns how many events grew stale.
func (w *world) hears() int {
	w.T.Helper()
	list, _, err := w.S.Events.LostEvents(w.Ctx, uuid.UUID{})
	w.Must(err)
	out, err := w.S.Events.AdvanceEvents(w.Ctx, "n", list)
	w.Must(err)
	return out.Stale
}

// An event is given up for a call that hangs in a node that lives, and for nothing else: not behind a pause or a
// quarantine, however long, and not for a call of a node that died, about which the next one asks (S1.6).
func TestOnlyACallThatHangsGrowsStale(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.Node("n")
	id := w.pushed(1)[0]
	w.takes(w.S, n)
	_, err := w.S.PauseDispatcher(w.Ctx, w.By, leader.TypeTool, true)
	w.Must(err)
	w.Later(2 * time.Hour)
	w.Beats(n, pg.NodeLoad{})
	if k := w.hears(); k != 0 {
		t.Errorf("%d grew stale behind a pause", k)
	}
	_, err = w.S.PauseDispatcher(w.Ctx, w.By, leader.TypeTool, false)
	w.Must(err)
	if k := w.hears(); k != 0 {
		t.Errorf("%d grew stale when it was resumed", k)
	}
	if leases := w.Claim(n, pgworld.Everything()); len(leases) != 1 {
		t.Fatalf("%d calls go out", len(leases))
	}
	if k := w.hears(); k != 0 {
		t.Errorf("%d grew stale as they were called", k)
	}
	w.Later(31 * time.Minute)
	if k := w.hears(); k != 0 {
		t.Errorf("%d grew stale since the node that called has not been heard of", k)
	}
	w.Beats(n, pg.NodeLoad{})
	if k := w.hears(); k != 1 {
		t.Errorf("%d grew stale whose call hangs in a node that lives", k)
	}
	if e := w.event(id); e.Outcome != leader.OutcomeStale {
		t.Errorf("%+v", e)
	}
}

// While nothing is called, of a type that is paused or in quarantine, no event is taken: it keeps no room from others.
func TestNoEventIsTakenWhileNothingIsCalled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.Node("n")
	w.pushed(2)
	_, err := w.S.PauseDispatcher(w.Ctx, w.By, leader.TypeTool, true)
	w.Must(err)
	if k := w.takes(w.S, n); k != 0 {
		t.Errorf("%d are taken of a paused type", k)
	}
	_, err = w.S.PauseDispatcher(w.Ctx, w.By, leader.TypeTool, false)
	w.Must(err)
	q := pg.Quarantine{Type: leader.TypeTool, Reason: "test"}
	w.Must(w.S.EnterQuarantine(w.Ctx, w.By, q))
	if k := w.takes(w.S, n); k != 0 {
		t.Errorf("%d are taken in quarantine", k)
	}
	_, err = w.S.ReleaseQuarantine(w.Ctx, w.By, q, true)
	w.Must(err)
	if k := w.takes(w.S, n); k != 2 {
		t.Errorf("%d are taken, want both", k)
	}
}
