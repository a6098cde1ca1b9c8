package messages_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/messages"
)

// A message that an older version has taken, and whose jobs are refused now, ends, and those behind it go on. So does
// one whose jobs are for queues that its target does not take.
func TestJobsThatAreRefusedNowEndTheirMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	of := func(queue string) messages.Posted {
		return w.chat("", func(p *messages.Posted) {
			p.Type = message.Job
			p.Jobs = json.RawMessage(`[{"script": "1", "script_type": "python", "queue": "` + queue + `"}]`)
		})
	}
	list := w.post(of(strings.Repeat("q", 3000)), of("peer:far:dev"), of("fine"))
	w.route()
	w.Same([]string{w.stands(list[0]), w.stands(list[1]), w.stands(list[2])}, "error invalid", "error forbidden",
		"acknowledged")
	_, err := w.S.PutContext(w.Ctx, w.By, pg.Tenant{Context: pg.Context{Name: "shop", MaxDepth: 10,
		DeclaredQueues: true}}, 0)
	w.Must(err)
	w.Must(w.S.Refresh(w.Ctx))
	more := w.post(of("another"))
	w.route()
	w.Same([]string{w.stands(more[0])}, "error unknown_queue")
}
