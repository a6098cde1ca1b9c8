package pg_test

import (
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

func TestOneAfterAnotherThroughAFreeSender(t *testing.T) {
	w := newWorld(t)
	w.Dispatcher("T", func(d *outbox.Dispatcher) { d.Pool = "p" })
	w.Sender("p", "acct-1")
	ids := w.Post("q", "T", "a", "b", "c")
	n := w.Node("n")
	l := w.Claim(n, pgworld.Everything())
	if len(l) != 1 || l[0].ID() != ids[0] || l[0].Account != "acct-1" {
		t.Fatalf("claimed %+v", l)
	}
	if again := w.Claim(n, pgworld.Everything()); len(again) != 0 {
		t.Fatalf("claimed twice: %+v", again)
	}
	if w.State(ids[0]) != outbox.DISPATCHING || w.State(ids[1]) != outbox.WAITING {
		t.Fatal(w.State(ids[0]), w.State(ids[1]))
	}
	for i := range ids {
		out := w.Settle(w.Answer(l[0], pgworld.Done()))
		if out[0].Fenced {
			t.Fatal("fenced")
		}
		if w.State(ids[i]) != outbox.DONE {
			t.Fatal(w.State(ids[i]))
		}
		if i < 2 {
			if out[0].Next == nil || out[0].Next.ID() != ids[i+1] {
				t.Fatalf("next is %+v", out[0].Next)
			}
			if w.State(ids[i+1]) != outbox.DISPATCHING {
				t.Fatal(w.State(ids[i+1]))
			}
			l[0] = out[0].Next
		} else if out[0].Next != nil {
			t.Fatal("something after the last")
		}
	}
	s, err := w.S.Sender(w.Ctx, w.ID, "acct-1")
	w.Must(err)
	if s.State != "FREE" || s.LastUsedAt == nil {
		t.Fatalf("%+v", s)
	}
}
