package pg_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
)

// What was accepted by submit and is not any more when it is drained ends FAILED, in whatever state its queue
// is, and holds up nobody.
func TestWhatIsRefusedInTheDrainEndsFailedAtTheEndOfItsQueue(t *testing.T) {
	t.Parallel()
	refusals := map[string]func(w *world){
		"queue_full": func(w *world) {
			_, err := w.s.PutQueue(w.ctx, w.by, pg.Queue{Name: "q", MaxDepth: 1, Priority: "Med", WhenFull: "refuse", OnFailure: "continue"}, 0)
			w.must(err)
		},
		"queue_draining": func(w *world) {
			_, err := w.s.DrainQueue(w.ctx, w.by, "q")
			w.must(err)
		},
		"schema_mismatch": func(w *world) {
			w.dispatcher("U", func(d *outbox.Dispatcher) { d.Schema = json.RawMessage(`{"required": ["never"]}`) })
		},
		"unknown_type": func(w *world) { w.must(w.s.RemoveDispatcher(w.ctx, w.by, "U", true)) },
	}
	states := map[string]func(w *world, n pg.Node) []*pg.Lease{
		"idle":    func(*world, pg.Node) []*pg.Lease { return nil },
		"waiting": func(w *world, _ pg.Node) []*pg.Lease { w.post("q", "T", "w"); return nil },
		"in a lazy run": func(w *world, n pg.Node) []*pg.Lease {
			w.post("q", "T", "w1", "w2", "w3")
			l := w.claim(n, everything())[0]
			return []*pg.Lease{w.settle(w.answer(l, done()))[0].Next}
		},
	}
	for code, refuse := range refusals {
		for state, set := range states {
			t.Run(code+" "+state, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.dispatcher("T", nil)
				w.dispatcher("U", nil)
				app := w.app(1)
				n := w.node("n")
				w.post("q", "T", "0")
				w.work(n)
				for _, uid := range []string{"a", "b"} {
					w.must(w.submit(app, "q", "U", uid))
				}
				w.must(w.submit(app, "r", "T", "r"))
				flying := set(w, n)
				refuse(w)
				want := pg.Drained{Rows: 3, Refused: 2}
				if code == "queue_full" && state == "idle" {
					want.Refused = 1 // one has room
				}
				if out := w.drainAll(w.s); out != want {
					t.Errorf("drained %+v, want %+v", out, want)
				}
				holdsTrue(t, w.ctx, w.s.Pool())
				b := w.byUID("b")
				if b.State != outbox.FAILED || b.Code != code || b.Error == "" || b.Queue != "q" || b.ID.Seq < 3 {
					t.Errorf("%+v", b)
				}
				h, err := w.s.History(w.ctx, w.id, b.ID)
				w.must(err)
				if last := h[len(h)-1]; last.Event != "Refused" || last.From != "WAITING" || last.To != "FAILED" || !strings.Contains(last.Detail, code) {
					t.Errorf("%+v", last)
				}
				if code != "unknown_type" { // staged again, it is the same, and stays FAILED
					w.must(w.submit(app, "q", "U", "b"))
					w.drainAll(w.s)
				}
				for _, l := range flying {
					for ; l != nil; l = w.settle(w.answer(l, done()))[0].Next {
					}
				}
				w.work(n)
				holdsTrue(t, w.ctx, w.s.Pool())
				var open int
				w.scan(`SELECT count(*) FROM postern.tx WHERE state NOT IN ('DONE', 'FAILED')`, &open)
				if open != 0 || w.byUID("r").State != outbox.DONE {
					t.Errorf("%d are held up, r is %s", open, w.byUID("r").State)
				}
			})
		}
	}
}

func TestAnUnorderedOneIsRefusedUnderAnIDOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("U", nil)
	app := w.app(1)
	_, err := app.Exec(w.ctx, `SELECT postern.submit(NULL, 'U', '{}', uid => 'x'), postern.submit(NULL, 'U', '{}', uid => 'y')`)
	w.must(err)
	w.must(w.s.RemoveDispatcher(w.ctx, w.by, "U", true))
	if out := w.drainAll(w.s); out != (pg.Drained{Rows: 2, Refused: 2}) {
		t.Errorf("drained %+v", out)
	}
	if x := w.byUID("x"); x.State != outbox.FAILED || x.Code != "unknown_type" || x.Queue != "" || x.ID.Seq != 1 {
		t.Errorf("%+v", x)
	}
	holdsTrue(t, w.ctx, w.s.Pool())
}

func TestAFullQueueThatDropsItsOldestTakesWhatIsStaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dispatcher("T", nil)
	_, err := w.s.PutQueue(w.ctx, w.by, pg.Queue{Name: "q", MaxDepth: 2, Priority: "Med", WhenFull: "drop_oldest", OnFailure: "continue"}, 0)
	w.must(err)
	app := w.app(1)
	for _, uid := range []string{"a", "b", "c", "d"} {
		w.must(w.submit(app, "q", "T", uid))
	}
	if out := w.drainAll(w.s); out != (pg.Drained{Rows: 4}) {
		t.Errorf("drained %+v", out)
	}
	holdsTrue(t, w.ctx, w.s.Pool())
	if got := fmt.Sprint(w.work(w.node("n"))); got != "[c d]" {
		t.Errorf("went out %s", got)
	}
}
