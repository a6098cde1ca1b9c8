package pg_test

import (
	"context"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
)

// TestWhoWaitsForTheFirstOfAKindHearsOfIt: at once in the process that made it, and in another with its next reading of the
// configuration; what is of another kind wakes nobody for good.
func TestWhoWaitsForTheFirstOfAKindHearsOfIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := w.other().s
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	awaits := func(s *stores.Store, of pg.Kind) chan bool {
		c := make(chan bool, 1)
		go func() { c <- s.Await(ctx, of) }()
		return c
	}
	processors := pg.Processors
	sources := pg.Sources
	tools := pg.Tools
	here, there, source, tool := awaits(w.s, processors), awaits(other, processors), awaits(w.s, sources), awaits(w.s, tools)

	_, err := w.s.PutProcessor(w.ctx, w.by, pg.Processor{Name: "main", Owner: "owner"}, 0)
	w.must(err)
	if !<-here {
		t.Error("who waited for a processor in this process was told that the time is over")
	}
	w.must(other.Refresh(w.ctx))
	if !<-there {
		t.Error("who waited for a processor in another process was told that the time is over")
	}
	_, err = w.s.PutSource(w.ctx, w.by, leader.Source{Name: "app", Kind: "push", Map: leader.SourceMap{FQN: "/tool"}}.WithDefaults(), 0)
	w.must(err)
	if !<-source || !w.s.Await(ctx, sources) {
		t.Error("who waited for a source was told that the time is over")
	}
	cancel()
	if <-tool {
		t.Error("who waited for a tool heard of one that is not there")
	}

	again, end := context.WithCancel(w.ctx)
	end()
	if w.s.Await(again, processors) {
		t.Error("a time that is over is not over where there is a processor")
	}
}

// TestANodeSeesSilentOnesAndItsOwnBurial by one look at all nodes.
func TestANodeSeesSilentOnesAndItsOwnBurial(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.node("a"), w.node("b")
	see := func(n pg.Node) pg.Peers {
		p, err := w.s.Peers(w.ctx, n)
		w.must(err)
		return p
	}
	if p := see(a); len(p.Others) != 1 || p.Others[0].Silent || p.Others[0].ID != b.ID || p.Buried {
		t.Errorf("two that live: %+v", p)
	}
	w.later(11 * time.Second)
	_, err := w.s.Beat(w.ctx, a)
	w.must(err)
	seen := see(a).Others
	if len(seen) != 1 || !seen[0].Silent {
		t.Errorf("one is silent: %+v", seen)
	}
	beats := []pg.Peer{{ID: b.ID, Beats: seen[0].Beats - 1, Silent: true}}
	if n, err := w.s.BuryThose(w.ctx, beats); n > 0 || err != nil {
		t.Errorf("one that has beaten since it was seen is buried: %d %v", n, err)
	}
	n, err := w.s.BuryThose(w.ctx, seen)
	w.must(err)
	if p := see(a); n != 1 || len(p.Others) > 0 || p.Buried {
		t.Errorf("the silent one is buried: %d %+v", n, p)
	}
	if p := see(b); len(p.Others) != 1 || p.Others[0].Silent || !p.Buried {
		t.Errorf("the look of who is buried: %+v", p)
	}
}
