package work_test

import (
	"encoding/json"
	"testing"

	"github.com/postern-dev/postern/internal/leader"
	"github.com/postern-dev/postern/internal/remotetest"
)

// A drain works off what is there: an event that was accepted before it calls its tool once, and its workflow is told.
func TestADrainWorksOffTheEventsThatItFinds(t *testing.T) {
	t.Parallel()
	for what, drain := range map[string]func(*house) error{
		"the context": func(h *house) error {
			_, err := h.s.DrainContext(h.ctx, h.by, "default")
			return err
		},
		"tools": func(h *house) error {
			_, err := h.s.DrainDispatcher(h.ctx, h.by, leader.TypeTool)
			return err
		},
		"results": func(h *house) error {
			_, err := h.s.DrainDispatcher(h.ctx, h.by, leader.TypeResult)
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.workflow(1, nil)
			h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch}, remotetest.Done("ok"))
			tool := h.tool("xyz.labs.add@1", func(string, int) (int, string) { return 200, `{"ok": {"sum": 1}}` })
			h.source(leader.Source{Name: "app", Kind: "push", Map: leader.SourceMap{FQN: "/tool"}})
			body := json.RawMessage(`{"tool": "xyz.labs.add@1"}`)
			_, err := h.s.Events.PushEvents(h.ctx, h.by, "app",
				[]leader.Item{{Identity: "a", JSON: body, FQN: "xyz.labs.add@1"}}, nil)
			h.must(err)
			h.must(drain(h))
			h.engine("n", withTools(h))
			if e := h.ends(1)["a"]; e.Status != leader.EventSuccessful {
				t.Errorf("the event is %s: %s %s", e.Status, e.Code, e.Error)
			}
			var calls, results int
			h.must(h.s.Pool().QueryRow(h.ctx, `SELECT count(*) FILTER (WHERE t.type = $1),
					count(*) FILTER (WHERE t.type = $2 AND o.state = 'DONE')
				FROM postern.task t
				LEFT JOIN postern.outcome o USING (queue_id, seq, day)`, leader.TypeTool, leader.TypeResult).
				Scan(&calls, &results))
			if tool.mu.Lock(); calls != 1 || results != 1 || len(tool.tokens) != 1 {
				t.Errorf("%d calls were posted, %d went out, %d results were told", calls, len(tool.tokens), results)
			}
			tool.mu.Unlock()
		})
	}
}
