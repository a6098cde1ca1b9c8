package messages_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg/messages"
)

// retainADay has retention let go of what ended more than a day ago.
func (w *world) retainADay() {
	w.T.Helper()
	w.Must(w.S.Refresh(w.Ctx))
	_, err := w.S.Retain(w.Ctx, 24*time.Hour)
	w.Must(err)
}

// advance brings jobs to their ends.
func (w *world) advance() {
	w.T.Helper()
	w.Must(w.S.Flows.TakeBack(w.Ctx))
	_, err := w.S.Flows.Advance(w.Ctx)
	w.Must(err)
}

// The jobs of a message that has not ended outlive retention: its result tells how each did.
func TestTheJobsOfAnOpenMessageAreKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.post(w.jobs(1, 2))[0]
	w.route()
	w.end(id, 1)
	w.advance()
	w.Later(72 * time.Hour)
	w.retainADay()
	w.end(id, 2) // the other one, too
	w.advance()
	w.settle()
	r, err := w.S.Messages.ResultOf(w.Ctx, id)
	w.Must(err)
	var ends messages.Ends
	w.Must(json.Unmarshal(r.Result, &ends))
	if len(ends.Jobs) != 2 {
		t.Errorf("the result of a message of two jobs tells of %d", len(ends.Jobs))
	}
	w.Later(72 * time.Hour)
	w.retainADay()
	w.Same(w.Lines(`SELECT count(*) FROM postern.job`), "0")
}

// A message of a peer keeps its jobs, too: the steps that the peer is told only rise, and its lines are counted by job.
func TestTheJobsOfAPeersMessageAreKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := w.brought(func(s *message.Signed) {
		s.Type, s.Body = message.Job, ""
		s.Jobs = json.RawMessage(`[{"ref":1,"script": "1", "script_type": "python"},
			{"ref":2,"script": "2", "script_type": "python"}]`)
	})
	w.Same([]string{w.arrives(w.S, at)}, "ok")
	list, _, err := w.S.Messages.List(w.Ctx, w.shop.Context, messages.Filter{Box: "in", Limit: 9})
	w.Must(err)
	jobs, err := w.S.Flows.JobsOfMessage(w.Ctx, list[0].ID)
	w.Must(err)
	cancel := func(n int) {
		_, err := w.S.Flows.Cancel(w.Ctx, w.shop, jobs[n].ID)
		w.Must(err)
		w.advance()
	}
	word := func() messages.Word {
		words, _, err := w.S.Messages.Words(w.Ctx, w.shop.Context, "near", []messages.Asked{{ID: at.ID}}, 0)
		w.Must(err)
		return words[0]
	}
	cancel(0)
	before := word()
	w.Later(72 * time.Hour)
	w.retainADay()
	if after := word(); after.Steps < before.Steps {
		t.Errorf("the peer is told %d steps, and was told %d", after.Steps, before.Steps)
	}
	cancel(1)
	w.settle()
	var ends messages.Ends
	w.Must(json.Unmarshal(word().Result.Result, &ends))
	if len(ends.Jobs) != 2 {
		t.Errorf("a peer is told of %d of two jobs", len(ends.Jobs))
	}
}

// A peer whose store has another life is told to stop what it processed in seven days, however short retention is.
func TestAPeersMessagesAreKeptForSevenDays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.far()
	w.lives(f, 7)
	id := w.toFar("hello")
	w.Must(w.S.Messages.Hear(w.Ctx, f, messages.Word{ID: id, Steps: 5, Status: string(message.Processed)}))
	w.Later(50 * time.Hour)
	w.retainADay()
	w.lives(f, 8)
	stop, _, err := w.S.Messages.ToStop(w.Ctx, f)
	w.Must(err)
	if len(stop) != 1 || stop[0] != id {
		t.Errorf("two days after it was processed, a peer with another life is to stop %v", stop)
	}
	w.Later(6 * 24 * time.Hour)
	w.retainADay()
	w.Same(w.Lines(`SELECT count(*) FROM postern.message`), "0")
}

// Numbers of a peer that no row has are refused where it asks, and taken for the greatest where it tells.
func TestNumbersThatNoRowHas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, a := range []messages.Asked{{Steps: math.MaxInt32 + 1}, {Steps: -1}, {Lines: []int{0, -1}},
		{Lines: []int{math.MaxInt64}}} {
		a.ID = uuid.UUID{1}
		_, _, err := w.S.Messages.Words(w.Ctx, w.shop.Context, "near", []messages.Asked{{ID: a.ID}, a}, 0)
		if f := fault.As(err); f == nil || f.Kind != fault.Invalid || f.Fields[0].Pointer != "/open/1" {
			t.Errorf("%+v: %v", a, err)
		}
	}
	f := w.far()
	id := w.toFar("hello")
	for _, steps := range []int{math.MinInt64, math.MaxInt64} {
		w.Must(w.S.Messages.Hear(w.Ctx, f, messages.Word{ID: id, Steps: steps, Status: string(message.Acknowledged)}))
	}
	w.Same(w.Lines(`SELECT status || ' ' || peer_steps FROM postern.message`), "acknowledged 2147483647")
}
