package messages_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/message"
	"github.com/postern-dev/postern/internal/pg/flows"
	"github.com/postern-dev/postern/internal/pg/messages"
)

// jobs is a message with jobs, by their refs.
func (w *world) jobs(refs ...int) messages.Posted {
	var list []string
	for _, ref := range refs {
		list = append(list, fmt.Sprintf(`{"ref": %d, "script": "print(%d)", "script_type": "python"}`, ref, ref))
	}
	return w.chat("", func(p *messages.Posted) {
		p.Type, p.Jobs = message.Job, json.RawMessage("["+strings.Join(list, ",")+"]")
	})
}

// end ends jobs of the shop by a lever: the first that is asked for.
func (w *world) end(message uuid.UUID, n int) {
	w.T.Helper()
	list, err := w.S.Flows.JobsOfMessage(w.Ctx, message)
	w.Must(err)
	for _, j := range list[:n] {
		_, err := w.S.Flows.Cancel(w.Ctx, w.shop, j.ID)
		w.Must(err)
	}
}

func (w *world) settle() (n int) {
	w.T.Helper()
	n, err := w.S.Messages.Settle(w.Ctx)
	w.Must(err)
	return n
}

// A message of type job makes its jobs in the commit of its delivery, and ends when all of them have.
func TestAMessageOfJobsEndsWithThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.post(w.jobs(1, 2))[0]
	w.route()
	if got := w.stands(id); got != "acknowledged" {
		t.Fatal(got)
	}
	list, err := w.S.Flows.JobsOfMessage(w.Ctx, id)
	w.Must(err)
	if len(list) != 2 || list[0].Tx == "" || list[1].Tx == "" || *list[0].Message != id {
		t.Fatalf("%+v", list)
	}
	if got, err := w.receive(w.S, 5); err != nil || len(got) != 0 {
		t.Errorf("a receiver is handed jobs: %v %v", got, err)
	}
	w.end(id, 1)
	if n := w.settle(); n != 0 || w.stands(id) != "acknowledged" {
		t.Errorf("settled %d with a job open: %s", n, w.stands(id))
	}
	w.end(id, 2)
	if n := w.settle(); n != 1 || w.stands(id) != "processed" {
		t.Errorf("settled %d: %s", n, w.stands(id))
	}
	r, err := w.S.Messages.ResultOf(w.Ctx, id)
	w.Must(err)
	var ends messages.Ends
	w.Must(json.Unmarshal(r.Result, &ends))
	if len(ends.Jobs) != 2 || *ends.Jobs[0].Ref != 1 || ends.Jobs[1].Status != "error" ||
		ends.Jobs[1].Error.Code != flow.CodeCancelled {
		t.Errorf("%+v", ends)
	}
	if n := w.settle(); n != 0 {
		t.Errorf("settled %d again", n)
	}
}

// A ref that names another job at the target refuses all jobs of a message. One with the same content joins it.
func TestJobsOfAMessageAreMadeAllOrNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ref := int64(2)
	taken, err := w.S.Flows.PostJob(w.Ctx, w.shop, flow.Spec{Ref: &ref, Script: "other", ScriptType: "python",
		Timeout: time.Minute, NeedTimeout: flow.DefaultNeedTimeout}, "")
	w.Must(err)
	id := w.post(w.jobs(1, 2))[0]
	w.route()
	if got := w.stands(id); got != "error idempotency_conflict" {
		t.Error(got)
	}
	list, _, err := w.S.Flows.ListJobs(w.Ctx, w.shop.Context, flows.JobFilter{Limit: 9})
	if err != nil || len(list) != 1 {
		t.Errorf("%d jobs, want the one of before: %v", len(list), err)
	}
	_ = taken

	ref = 3
	same, err := w.S.Flows.PostJob(w.Ctx, w.shop, flow.Spec{Ref: &ref, Script: "print(3)", ScriptType: "python",
		Timeout: flow.DefaultTimeout, NeedTimeout: flow.DefaultNeedTimeout}, "")
	w.Must(err)
	joins := w.post(w.jobs(3))[0]
	w.route()
	if list, err := w.S.Flows.JobsOfMessage(w.Ctx, joins); err != nil || len(list) != 1 || list[0].ID != same.ID {
		t.Errorf("%+v %v", list, err)
	}
	second := w.post(w.jobs(3))[0]
	w.route()
	if got := w.stands(second); got != "error idempotency_conflict" {
		t.Errorf("a job of another message: %s", got)
	}
	w.end(joins, 1)
	if w.settle(); w.stands(joins) != "processed" {
		t.Error(w.stands(joins))
	}
}

// After its deadline the result of a message is late: its jobs go on, and change nothing.
func TestJobsOutliveTheDeadlineOfTheirMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.jobs(1)
	p.Timeouts.Result = 10 * time.Second
	id := w.post(p)[0]
	w.route()
	w.Later(10 * time.Second)
	_, err := w.S.Messages.Expire(w.Ctx)
	w.Must(err)
	w.end(id, 1)
	w.settle()
	if got := w.stands(id); got != "error timeout_result" || fmt.Sprint(w.late(id)) != "[ResultReceived]" {
		t.Errorf("%s, late %v", got, w.late(id))
	}
	if n := w.settle(); n != 0 {
		t.Errorf("settled %d again", n)
	}
}

// Two processes that settle at one time take different messages.
func TestTwoProcessesSettleAMessageOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.post(w.jobs(1))[0]
	w.route()
	w.end(id, 1)
	other := w.Another(4)
	second, waited := w.Beside(func() error { _, err := w.S.Messages.Settle(w.Ctx); return err }, func() string {
		n, err := other.Messages.Settle(w.Ctx)
		return fmt.Sprint(n, " ", said(err))
	})
	if second != "0 ok" || waited || w.stands(id) != "processed" {
		t.Errorf("the second settles %q, and waited %v: %s", second, waited, w.stands(id))
	}
}

// A message that ended is forgotten with retention, and one that did not stays.
func TestMessagesAreForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	done, open := w.sent(), w.sent()
	m := w.one()
	if m.ID != done {
		t.Fatalf("%s was received first", m.ID)
	}
	_, err := w.S.Messages.Answered(w.Ctx, w.shop, done, m.Fence, messages.Reply{Format: "text", Body: "x"})
	w.Must(err)
	w.Later(48 * time.Hour)
	w.Must(w.S.Refresh(w.Ctx))
	_, err = w.S.Retain(w.Ctx, 24*time.Hour)
	w.Must(err)
	if _, err := w.S.Messages.Get(w.Ctx, w.ID, open); err != nil {
		t.Error(err)
	}
	if _, err := w.S.Messages.Get(w.Ctx, w.ID, done); said(err) != "not_found" {
		t.Error(said(err))
	}
	if left := w.Lines(`SELECT count(*)::text FROM postern.message_step s
		WHERE NOT EXISTS (SELECT FROM postern.message m WHERE m.message_id = s.message_id)`); left[0] != "0" {
		t.Errorf("%s steps of no message", left[0])
	}
}
