package pg_test

import (
	"context"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/pg"
)

// TestWhoWaitsForTheFirstOfAKindHearsOfIt: at once in the process that made it, and in another with its next reading of the
// configuration; what is of another kind wakes nobody for good.
func TestWhoWaitsForTheFirstOfAKindHearsOfIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := w.other().s
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	awaits := func(s *pg.Store, of pg.Kind) chan bool {
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
	if p := see(a); p != (pg.Peers{Others: 1}) {
		t.Errorf("two that live: %+v", p)
	}
	w.later(11 * time.Second)
	_, err := w.s.Beat(w.ctx, a)
	w.must(err)
	if p := see(a); p != (pg.Peers{Others: 1, Silent: true}) {
		t.Errorf("one is silent: %+v", p)
	}
	_, err = w.s.Bury(w.ctx)
	w.must(err)
	if p := see(a); p != (pg.Peers{}) {
		t.Errorf("the silent one is buried: %+v", p)
	}
	if p := see(b); p != (pg.Peers{Others: 1, Buried: true}) {
		t.Errorf("the look of who is buried: %+v", p)
	}
}
