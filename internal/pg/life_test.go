package pg_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
)

func TestOneAfterAnotherThroughAFreeSender(t *testing.T) {
	w := newWorld(t)
	w.dispatcher("T", func(d *outbox.Dispatcher) { d.Pool = "p" })
	w.sender("p", "acct-1")
	ids := w.post("q", "T", "a", "b", "c")
	n := w.node("n")
	l := w.claim(n, everything())
	if len(l) != 1 || l[0].ID() != ids[0] || l[0].Account != "acct-1" {
		t.Fatalf("claimed %+v", l)
	}
	if again := w.claim(n, everything()); len(again) != 0 {
		t.Fatalf("claimed twice: %+v", again)
	}
	if w.state(ids[0]) != outbox.DISPATCHING || w.state(ids[1]) != outbox.WAITING {
		t.Fatal(w.state(ids[0]), w.state(ids[1]))
	}
	for i := range ids {
		out := w.settle(w.answer(l[0], done()))
		if out[0].Fenced {
			t.Fatal("fenced")
		}
		if w.state(ids[i]) != outbox.DONE {
			t.Fatal(w.state(ids[i]))
		}
		if i < 2 {
			if out[0].Next == nil || out[0].Next.ID() != ids[i+1] {
				t.Fatalf("next is %+v", out[0].Next)
			}
			if w.state(ids[i+1]) != outbox.DISPATCHING {
				t.Fatal(w.state(ids[i+1]))
			}
			l[0] = out[0].Next
		} else if out[0].Next != nil {
			t.Fatal("something after the last")
		}
	}
	s, err := w.s.Sender(w.ctx, w.id, "acct-1")
	w.must(err)
	if s.State != "FREE" || s.LastUsedAt == nil {
		t.Fatalf("%+v", s)
	}
}
