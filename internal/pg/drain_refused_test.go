package pg_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
)

// A transaction that submit accepted and that is refused when it is drained ends FAILED, in whatever state its queue
// is, and holds up no other one.
func TestWhatIsRefusedInTheDrainEndsFailedAtTheEndOfItsQueue(t *testing.T) {
	t.Parallel()
	refusals := map[string]func(w *world){
		"queue_full": func(w *world) {
			_, err := w.S.PutQueue(w.Ctx, w.By, pg.Queue{Name: "q", MaxDepth: 1, Priority: "Med", WhenFull: "refuse", OnFailure: "continue"}, 0)
			w.Must(err)
		},
		"queue_draining": func(w *world) {
			_, err := w.S.DrainQueue(w.Ctx, w.By, "q")
			w.Must(err)
		},
		"schema_mismatch": func(w *world) {
			w.Dispatcher("U", func(d *outbox.Dispatcher) { d.Schema = json.RawMessage(`{"required": ["never"]}`) })
		},
		"unknown_type": func(w *world) { w.Must(w.S.RemoveDispatcher(w.Ctx, w.By, "U", true)) },
	}
	states := map[string]func(w *world, n pg.Node) []*pg.Lease{
		"idle":    func(*world, pg.Node) []*pg.Lease { return nil },
		"waiting": func(w *world, _ pg.Node) []*pg.Lease { w.Post("q", "T", "w"); return nil },
		"in a lazy run": func(w *world, n pg.Node) []*pg.Lease {
			w.Post("q", "T", "w1", "w2", "w3")
			l := w.Claim(n, pgworld.Everything())[0]
			return []*pg.Lease{w.Settle(w.Answer(l, pgworld.Done()))[0].Next}
		},
	}
	for code, refuse := range refusals {
		for state, set := range states {
			t.Run(code+" "+state, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.Dispatcher("T", nil)
				w.Dispatcher("U", nil)
				app := w.app(1)
				n := w.Node("n")
				w.Post("q", "T", "0")
				w.work(n)
				for _, uid := range []string{"a", "b"} {
					w.Must(w.submit(app, "q", "U", uid))
				}
				w.Must(w.submit(app, "r", "T", "r"))
				flying := set(w, n)
				refuse(w)
				want := pg.Drained{Rows: 3, Refused: 2}
				if code == "queue_full" && state == "idle" {
					want.Refused = 1 // one has room
				}
				if out := w.drainAll(w.S); out != want {
					t.Errorf("drained %+v, want %+v", out, want)
				}
				pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
				b := w.ByUID("b")
				if b.State != outbox.FAILED || b.Code != code || b.Error == "" || b.Queue != "q" || b.ID.Seq < 3 {
					t.Errorf("%+v", b)
				}
				h, err := w.S.Reads.History(w.Ctx, w.ID, b.ID)
				w.Must(err)
				if last := h[len(h)-1]; last.Event != "Refused" || last.From != "WAITING" || last.To != "FAILED" || !strings.Contains(last.Detail, code) {
					t.Errorf("%+v", last)
				}
				if code != "unknown_type" { // staged again, it is the same, and stays FAILED
					w.Must(w.submit(app, "q", "U", "b"))
					w.drainAll(w.S)
				}
				for _, l := range flying {
					for ; l != nil; l = w.Settle(w.Answer(l, pgworld.Done()))[0].Next {
					}
				}
				w.work(n)
				pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
				var open int
				w.Scan(`SELECT count(*) FROM postern.tx WHERE state NOT IN ('DONE', 'FAILED')`, &open)
				if open != 0 || w.ByUID("r").State != outbox.DONE {
					t.Errorf("%d are held up, r is %s", open, w.ByUID("r").State)
				}
			})
		}
	}
}

func TestAnUnorderedOneIsRefusedUnderAnIDOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("U", nil)
	app := w.app(1)
	_, err := app.Exec(w.Ctx, `SELECT postern.submit(NULL, 'U', '{}', uid => 'x'), postern.submit(NULL, 'U', '{}', uid => 'y')`)
	w.Must(err)
	w.Must(w.S.RemoveDispatcher(w.Ctx, w.By, "U", true))
	if out := w.drainAll(w.S); out != (pg.Drained{Rows: 2, Refused: 2}) {
		t.Errorf("drained %+v", out)
	}
	if x := w.ByUID("x"); x.State != outbox.FAILED || x.Code != "unknown_type" || x.Queue != "" || x.ID.Seq != 1 {
		t.Errorf("%+v", x)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

func TestAFullQueueThatDropsItsOldestTakesWhatIsStaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("T", nil)
	_, err := w.S.PutQueue(w.Ctx, w.By, pg.Queue{Name: "q", MaxDepth: 2, Priority: "Med", WhenFull: "drop_oldest", OnFailure: "continue"}, 0)
	w.Must(err)
	app := w.app(1)
	for _, uid := range []string{"a", "b", "c", "d"} {
		w.Must(w.submit(app, "q", "T", uid))
	}
	if out := w.drainAll(w.S); out != (pg.Drained{Rows: 4}) {
		t.Errorf("drained %+v", out)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
	if got := fmt.Sprint(w.work(w.Node("n"))); got != "[c d]" {
		t.Errorf("went out %s", got)
	}
}

// A transaction that is refused in the drain tells the callback that it names, as any end does. One that went past the
// checks of the table tells none, since its address was not judged.
func TestWhatIsRefusedInTheDrainTellsItsCallback(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("U", nil)
	app := w.app(1)
	_, err := app.Exec(w.Ctx, `
		SELECT postern.submit('q', 'U', '{}', uid => 'told', callback => '{"url": "http://told.example/"}'),
			postern.submit(NULL, 'U', '{}', uid => 'loose', callback => '{"url": "http://told.example/"}'),
			postern.submit('q', 'U', '{}', uid => 'ends-well',
				callback => '{"url": "http://told.example/", "on": ["DONE"]}'),
			postern.submit('q', 'U', '{}', uid => 'names-none')`)
	w.Must(err)
	w.Must(w.S.RemoveDispatcher(w.Ctx, w.By, "U", true))
	w.unjudged("q", "unjudged", "U", `'{}'`, "max_retries, callback", `-1, '{"url": "http://told.example/"}'`)
	if out := w.drainAll(w.S); out.Refused != 5 {
		t.Errorf("drained %+v", out)
	}
	w.Same(w.Lines(`
		SELECT concat_ws(' ', coalesce(t.uid, ''), d.event, d.url)
		FROM postern.delivery d
		JOIN postern.task t USING (queue_id, seq, day)
		WHERE d.subscription_id = -1
		ORDER BY 1`),
		"loose failed http://told.example/",
		"told failed http://told.example/")
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}
