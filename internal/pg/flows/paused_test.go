package flows_test

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/pg/flows"
)

// While a type or its context is paused no runner is handed more of it, by whichever process; what one holds goes on,
// and what it was handed in an answer that it did not get comes again. A resume hands the offers out.
func TestNothingIsHandedOutOfWhatIsPaused(t *testing.T) {
	t.Parallel()
	for what, pause := range map[string]func(w *world, paused bool) error{
		"type": func(w *world, paused bool) error {
			_, err := w.S.PauseDispatcher(w.Ctx, w.By, flow.Type("python"), paused)
			return err
		},
		"context": func(w *world, paused bool) error {
			_, err := w.S.PauseContext(w.Ctx, w.By, "default", paused)
			return err
		},
	} {
		w := newWorld(t)
		w.register("a", "b")
		w.post(0)
		v := w.one("a")
		_, err := w.claim(w.S, "a") // the answer that handed it out may be under way
		w.Must(err)
		w.Later(6 * time.Second)
		w.post(0)
		w.Must(pause(w, true))
		other := w.Another(2)
		for _, s := range []*flows.Store{w.S.Flows, other.Flows} {
			c, err := s.Claim(w.Ctx, w.ID, "b", w.epochs["b"], 2, nil)
			if err != nil || len(c.Taken) != 0 {
				t.Errorf("a paused %s: %+v %v", what, c, err)
			}
		}
		again, err := w.claim(w.S, "a")
		if err != nil || len(again) != 1 || again[0].ID != v.ID {
			t.Errorf("a paused %s: what was handed out does not come again: %+v %v", what, again, err)
		}
		if _, err := w.S.Flows.End(w.Ctx, w.ID, v.ID, v.Fence, finished("1")); err != nil {
			t.Errorf("a paused %s: what a runner holds does not end: %v", what, err)
		}
		w.Must(pause(w, false))
		if list, err := w.claim(w.S, "b"); err != nil || len(list) != 1 {
			t.Errorf("a %s that is resumed: %+v %v", what, list, err)
		}
	}
}
