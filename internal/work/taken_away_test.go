package work_test

import (
	"slices"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/remotetest"
)

// A call whose transaction was abandoned takes no room of its node any more, also while it goes on; its late
// answer is recorded.
func TestAbandonFreesTheRoomOfTheNode(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.dispatcher("T", nil)
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, UID: "x"}, remotetest.Done("late"))
	h.engine("n1", func(c *parts) { c.Concurrency = 1 })
	h.fake.IncludeAll(true)
	called, release := h.holds("HELD")
	x := h.post("q", "HELD", "x")[0]
	<-called
	y := h.post("r", "T", "y")
	s := h.store()
	by := db.By{Context: s.Context("default").ID, Actor: "test", Via: "test", Reason: "it hangs"}
	_, err := s.Abandon(h.ctx, by, x)
	h.must(err)
	h.await(y, soon, outbox.DONE)
	release()
	attempts := func() (list []string) {
		got, err := s.Reads.Attempts(h.ctx, s.Context("default").ID, x, 0, 500)
		h.must(err)
		for _, a := range got {
			list = append(list, a.Step)
		}
		return list
	}
	for end := time.Now().Add(soon); !slices.Contains(attempts(), "late"); {
		time.Sleep(50 * time.Millisecond)
		if time.Now().After(end) {
			t.Fatalf("the late answer is not recorded: %v", attempts())
		}
	}
	z := h.post("s", "T", "z1", "z2", "z3") // the room was given once
	h.await(z, soon, outbox.DONE)
}

// A node says with its heartbeat what it works on and how many calls it has out.
func TestANodeSaysWhatItWorksOn(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.dispatcher("T", nil)
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, UID: "x"}, remotetest.Hang())
	h.engine("n1", func(c *parts) { c.Concurrency, c.Types = 3, []string{"T", "U"} })
	h.post("q", "T", "x")
	s := h.store()
	for end := time.Now().Add(soon); ; time.Sleep(50 * time.Millisecond) {
		n, err := s.Node(h.ctx, "n1")
		if err == nil && n.Calls == 1 && n.Concurrency == 3 && len(n.Types) == 2 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%+v %v", n, err)
		}
	}
}
