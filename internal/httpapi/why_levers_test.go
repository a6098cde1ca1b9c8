package httpapi_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/db"
)

// The lever that `why` names can be pulled as it is printed, and what it named is not in the way any more.
func TestTheLeversOfWhyCanBePulledAsPrinted(t *testing.T) {
	for _, c := range []struct {
		name, kind string
		make       func(d *door)
	}{
		{"an empty pool", "no_free_sender", func(d *door) {
			d.node()
			d.want(200, "PUT", "/dispatchers/pay", `{"worker_url": "http://127.0.0.1:1/", "pool": "p"}`)
		}},
		{"a paused queue", "queue_paused", func(d *door) {
			d.node()
			d.want(200, "POST", "/queues/q/pause", "")
		}},
		{"a removed dispatcher", "no_dispatcher", func(d *door) {
			d.node()
			if err := d.store.RemoveDispatcher(d.t.Context(), d.by(), "pay", true); err != nil {
				d.t.Fatal(err)
			}
		}},
		{"a drained node", "no_live_node", func(d *door) {
			d.node()
			if a := d.call("POST", "/nodes/n/drain", ""); a.status/100 != 2 {
				d.t.Fatal(a.raw)
			}
		}},
		{"a call", "in_worker", func(d *door) { d.claimFirst(d.node()) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDoor(t)
			d.dispatcher("pay")
			d.want(201, "POST", "/transactions", `{"type": "pay", "queue": "q", "uid": "a"}`)
			c.make(d)
			var said struct {
				Blockers []struct {
					Kind   string
					Levers []struct {
						Method, Path string
						Body         json.RawMessage
					}
				}
			}
			a := d.want(200, "GET", "/queues/q/why", "")
			if err := json.Unmarshal([]byte(a.raw), &said); err != nil || said.Blockers[0].Kind != c.kind {
				t.Fatalf("%v: %s", err, a.raw)
			}
			l := said.Blockers[0].Levers[0]
			if b := d.call(l.Method, l.Path, string(l.Body)); b.status/100 != 2 {
				t.Fatalf("%s %s %s answered %d: %s", l.Method, l.Path, l.Body, b.status, b.raw)
			}
			a = d.want(200, "GET", "/transactions/by-uid/a/why", "")
			if err := json.Unmarshal([]byte(a.raw), &said); err != nil || said.Blockers[0].Kind == c.kind {
				t.Errorf("%v: it is in the way still: %s", err, a.raw)
			}
		})
	}
}

func (d *door) by() db.By {
	return db.By{Context: d.store.Context("default").ID, Actor: "test", Via: "test", Reason: "because"}
}

// claimFirst takes the first that is ready.
func (d *door) claimFirst(node pg.Node) {
	d.t.Helper()
	for end := time.Now().Add(patience); ; {
		leases, _, err := d.store.Claim(d.t.Context(), node, pg.Room{
			Total: 1,
			Slots: func(*pg.Dispatcher) int { return 1 },
		})
		if err != nil {
			d.t.Fatal(err)
		}
		if len(leases) == 1 && leases[0].Phase == outbox.PhaseDispatching {
			return
		}
		if time.Now().After(end) {
			d.t.Fatal("nothing is ready")
		}
	}
}
