package pg_test

import (
	"context"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/batches"
	"github.com/postern-dev/postern/internal/pg/events"
	"github.com/postern-dev/postern/internal/pg/stores"
)

// TestWhoWaitsForTheFirstOfAKindHearsOfIt: at once in the process that made it, and in another process with its next
// reading of the configuration. A thing of another kind ends no wait.
func TestWhoWaitsForTheFirstOfAKindHearsOfIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := w.Other().S
	ctx, cancel := context.WithCancel(w.Ctx)
	defer cancel()
	awaits := func(s *stores.Store, of pg.Kind) chan bool {
		c := make(chan bool, 1)
		go func() { c <- s.Await(ctx, of) }()
		return c
	}
	processors := batches.Processors
	sources := events.Sources
	tools := events.Tools
	here, there, source, tool := awaits(w.S, processors), awaits(other, processors),
		awaits(w.S, sources), awaits(w.S, tools)

	_, err := w.S.Batches.PutProcessor(w.Ctx, w.By, batches.Processor{Name: "main", Owner: "owner"}, 0)
	w.Must(err)
	if !<-here {
		t.Error("who waited for a processor in this process was told that the time is over")
	}
	w.Must(other.Refresh(w.Ctx))
	if !<-there {
		t.Error("who waited for a processor in another process was told that the time is over")
	}
	_, err = w.S.Events.PutSource(w.Ctx, w.By,
		leader.Source{Name: "app", Kind: "push", Map: leader.SourceMap{FQN: "/tool"}}.WithDefaults(), 0)
	w.Must(err)
	if !<-source || !w.S.Await(ctx, sources) {
		t.Error("who waited for a source was told that the time is over")
	}
	cancel()
	if <-tool {
		t.Error("who waited for a tool heard of one that is not there")
	}

	again, end := context.WithCancel(w.Ctx)
	end()
	if w.S.Await(again, processors) {
		t.Error("a time that is over is not over where there is a processor")
	}
}

// TestANodeSeesSilentOnesAndItsOwnBurial by one look at all nodes.
func TestANodeSeesSilentOnesAndItsOwnBurial(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.Node("a"), w.Node("b")
	see := func(n pg.Node) pg.Peers {
		p, err := w.S.Peers(w.Ctx, n)
		w.Must(err)
		return p
	}
	if p := see(a); len(p.Others) != 1 || p.Others[0].Silent || p.Others[0].ID != b.ID || p.Buried {
		t.Errorf("two that live: %+v", p)
	}
	w.Later(11 * time.Second)
	_, err := w.S.Beat(w.Ctx, a, pg.NodeLoad{})
	w.Must(err)
	seen := see(a).Others
	if len(seen) != 1 || !seen[0].Silent {
		t.Errorf("one is silent: %+v", seen)
	}
	beats := []pg.Peer{{ID: b.ID, Beats: seen[0].Beats - 1, Silent: true}}
	if n, err := w.S.BuryThose(w.Ctx, beats); n > 0 || err != nil {
		t.Errorf("one that has beaten since it was seen is buried: %d %v", n, err)
	}
	n, err := w.S.BuryThose(w.Ctx, seen)
	w.Must(err)
	if p := see(a); n != 1 || len(p.Others) > 0 || p.Buried {
		t.Errorf("the silent one is buried: %d %+v", n, p)
	}
	if p := see(b); len(p.Others) != 1 || p.Others[0].Silent || !p.Buried {
		t.Errorf("the look of who is buried: %+v", p)
	}
}
