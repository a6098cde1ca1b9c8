package pg_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// A queue that was held until a time stands, when that has come, where its settings of now put it.
func TestAHeldQueueStandsInTheLaneOfItsSettingsOfNow(t *testing.T) {
	settings := map[string]func(w *world){
		"the queue has another pool": func(w *world) {
			q := pg.Queue{Name: "q", Pool: "p2", WhenFull: "refuse", OnFailure: "continue"}
			_, err := w.S.PutQueue(w.Ctx, w.By, q, 0)
			w.Must(err)
		},
		"the type has another pool": func(w *world) {
			w.Dispatcher("T", func(d *outbox.Dispatcher) { d.Pool = "p2" })
		},
	}
	for name, put := range settings {
		t.Run(name, func(t *testing.T) {
			w, n := heldUntilLater(t, func(d *outbox.Dispatcher) { d.Pool = "p1" }, "q")
			w.Sender("p1", "one")
			w.Sender("p2", "two")
			_, err := w.S.PauseSender(w.Ctx, w.By, "one", true)
			w.Must(err)
			put(w)
			if l := w.wakesAndClaims(n); len(l) != 1 || l[0].Account != "two" {
				t.Errorf("claimed %v, want q by the free sender of its pool", taken(l))
			}
			pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
		})
	}
}

// Of a type that became exclusive while its queues were held one at a time goes out, also before any sweep.
func TestHeldQueuesOfATypeThatBecameExclusiveGoOutOneAfterTheOther(t *testing.T) {
	for name, exclusive := range map[string]outbox.Exclusive{"the type": "type", "a value": "field:/same"} {
		t.Run(name, func(t *testing.T) {
			w, n := heldUntilLater(t, nil, "q", "r")
			w.Dispatcher("T", func(d *outbox.Dispatcher) { d.Exclusive = exclusive })
			l := w.wakesAndClaims(n)
			if len(l) != 1 {
				t.Fatalf("claimed %v, want one of them", taken(l))
			}
			w.Settle(w.Answer(l[0], pgworld.Done()))
			if l = w.Claim(n, pgworld.Everything()); len(l) != 1 {
				t.Errorf("claimed %v behind the first, want the other", taken(l))
			}
			pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
		})
	}
	t.Run("and back", func(t *testing.T) {
		w, n := heldUntilLater(t, func(d *outbox.Dispatcher) { d.Exclusive = "type" }, "q", "r")
		w.Dispatcher("T", nil)
		if l := w.wakesAndClaims(n); len(l) != 2 {
			t.Errorf("claimed %v, want both", taken(l))
		}
		pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	})
}

// heldUntilLater is a world whose queues hold one each that may not go out within the hour, and a node for them.
func heldUntilLater(t *testing.T, change func(*outbox.Dispatcher), queues ...string) (*world, pg.Node) {
	t.Parallel()
	w := newWorld(t)
	w.Later(0)
	w.Dispatcher("T", change)
	for _, q := range queues {
		s := w.Sub(q, "T", q)
		s.Data, s.NotBefore = []byte(`{"same": 1}`), w.Now.Add(time.Hour)
		w.Ingest(w.S, s)
	}
	return w, w.Node("n")
}

// wakesAndClaims lets the time pass until which queues are held.
func (w *world) wakesAndClaims(n pg.Node) []*pg.Lease {
	w.T.Helper()
	w.Later(2 * time.Hour)
	_, err := w.S.Beat(w.Ctx, n, pg.NodeLoad{})
	w.Must(err)
	woken, err := w.S.Wake(w.Ctx, n, 10, 10)
	if w.Must(err); woken.Due == 0 {
		w.T.Fatal("no timer is due")
	}
	return w.Claim(n, pgworld.Everything())
}
