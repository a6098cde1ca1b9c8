package flows_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/flow"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg/deliveries"
	"github.com/postern-dev/postern/internal/pg/flows"
)

// told is what a subscription was told of jobs and flows, as a consumer fetches it: the event, and its ref.
func (w *world) told(name string, since time.Time) (list []string) {
	w.T.Helper()
	sub, err := w.S.Deliveries.Subscription(w.Ctx, w.ID, name)
	w.Must(err)
	_, err = w.S.Deliveries.Deliver(w.Ctx, sub.ID, nil, 100)
	w.Must(err)
	events, _, err := w.S.Deliveries.Feed(w.Ctx, sub.ID, sub.Include, 0, 100)
	w.Must(err)
	ids := map[string]bool{}
	for _, e := range events {
		var body struct {
			Event  string
			Ref    *int64
			Error  *struct{ Code string }
			Result json.RawMessage
		}
		w.Must(json.Unmarshal(e.Body, &body))
		text := body.Event
		if body.Ref != nil {
			text += fmt.Sprint(" ", *body.Ref)
		}
		if body.Error != nil {
			text += " " + body.Error.Code
		}
		if len(body.Result) > 0 && string(body.Result) != "null" {
			text += " " + string(body.Result)
		}
		if e.At.After(since) {
			list = append(list, text)
		}
		ids[e.ID.EventID(e.At, e.Event)] = true
	}
	if len(ids) != len(events) {
		w.T.Errorf("%d events have %d ids", len(events), len(ids))
	}
	return list
}

// does has a runner end the try that is offered, and the core and the job hear of that.
func (w *world) does(said flows.Said) {
	w.T.Helper()
	v := w.one("a")
	_, err := w.S.Flows.End(w.Ctx, w.ID, v.ID, v.Fence, said)
	w.Must(err)
	w.settleEnd()
	_, err = w.S.Flows.Advance(w.Ctx)
	w.Must(err)
	w.offer()
}

// Each end of a job and of a flow is one event for those that listen for it, in the order of the flow, the flow last.
func TestEveryEndOfAJobIsToldOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("a")
	for name, v := range map[string]outbox.Subscription{
		"all":    {Events: outbox.JobEvents, Include: []string{"result"}},
		"flows":  {Events: []outbox.Event{outbox.EventFlowFinished, outbox.EventFlowError}},
		"python": {Events: outbox.JobEvents, Filter: outbox.Filter{Type: []string{"job.python"}}},
		"sal":    {Events: outbox.JobEvents, Filter: outbox.Filter{Type: []string{"job.sal"}}},
		"core":   {Events: outbox.TransactionEvents},
	} {
		v.Name, v.Kind = name, "pull"
		w.Subscribe(v)
	}
	w.Later(time.Minute)
	ref := []int64{1, 2, 7}
	spec := flow.Spec{Ref: &ref[0], Script: "1", ScriptType: "python", Timeout: time.Minute, NeedTimeout: time.Hour}
	second := spec
	second.Ref, second.Dependends = &ref[1], []int64{1}
	f, err := w.S.Flows.PostFlow(w.Ctx, w.By, flows.FlowSpec{Ref: &ref[2], Jobs: []flow.Spec{spec, second},
		Start: true})
	w.Must(err)
	w.offer()
	w.does(finished("1"))
	w.does(finished("2"))
	if got := w.stands(f); got != "finished finished finished" {
		t.Fatal(got)
	}
	w.Same(w.told("all", time.Time{}), `job.finished 1 {"n": "1"}`, `job.finished 2 {"n": "2"}`,
		`flow.finished 7 {"1.n": "1", "2.n": "2"}`)
	w.Same(w.told("flows", time.Time{}), "flow.finished 7")
	w.Same(w.told("python", time.Time{}), "job.finished 1", "job.finished 2")
	w.Same(w.told("sal", time.Time{}))

	begun := w.Now
	w.Later(time.Second)
	f, err = w.S.Flows.PostFlow(w.Ctx, w.By, flows.FlowSpec{Jobs: []flow.Spec{spec, second}, Start: true})
	w.Must(err)
	w.offer()
	w.does(flows.Said{Code: "exit", Error: "no", Final: true})
	w.Same(w.told("all", begun), "job.error 1 exit", "job.error 2 dependency_failed", "flow.error exit")

	begun = w.Now
	w.Later(time.Second)
	j, err := w.S.Flows.PostJob(w.Ctx, w.By, flow.Spec{Ref: &ref[0], Script: "1", ScriptType: "python",
		Timeout: time.Minute}, "")
	w.Must(err)
	_, err = w.S.Flows.Cancel(w.Ctx, w.By, j.ID)
	w.Must(err)
	w.Same(w.told("all", begun), "job.error 1 cancelled")
	w.Same(w.told("flows", time.Time{}), "flow.finished 7", "flow.error exit")
	for name, want := range map[string]string{"all": j.ID.String(), "flows": f.ID.String()} {
		list, err := w.S.Deliveries.Deliveries(w.Ctx, w.ID, deliveries.DeliveryFilter{Subscription: []string{name},
			Limit: 1})
		w.Must(err)
		if len(list) != 1 || list[0].Of != want {
			t.Errorf("the last delivery of %s tells of %+v, want %s", name, list, want)
		}
		if id, err := deliveries.ParseDeliveryID(list[0].String()); err != nil || id != list[0].DeliveryID {
			t.Errorf("%s is read as %+v, %v", list[0], id, err)
		}
	}
	var jobs, whole int
	w.Scan(`SELECT count(*) FILTER (WHERE event LIKE 'job.%' AND uid IS NOT NULL AND transaction_id IS NOT NULL),
		count(*) FILTER (WHERE event LIKE 'flow.%' AND uid IS NULL AND transaction_id IS NULL)
		FROM postern.feed('all', 100)`, &jobs, &whole)
	if jobs != 5 || whole != 2 {
		t.Errorf("postern.feed fetches %d events of jobs and %d of flows", jobs, whole)
	}
	if _, err := w.S.Deliveries.Deliver(w.Ctx, 0, nil, 0); err != nil {
		t.Error(err)
	}
}

// A flow that ends with its jobs in one commit is told behind them.
func TestACancelledFlowIsToldBehindItsJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Subscribe(outbox.Subscription{Name: "all", Kind: "pull", Events: outbox.JobEvents})
	ref := []int64{1, 2}
	spec := flow.Spec{Ref: &ref[0], Script: "1", ScriptType: "python", Timeout: time.Minute}
	second := spec
	second.Ref, second.Dependends = &ref[1], []int64{1}
	f, err := w.S.Flows.PostFlow(w.Ctx, w.By, flows.FlowSpec{Jobs: []flow.Spec{spec, second}, Start: true})
	w.Must(err)
	_, err = w.S.Flows.CancelFlow(w.Ctx, w.By, f.ID)
	w.Must(err)
	w.Same(w.told("all", time.Time{}), "job.error 1 flow_aborted", "job.error 2 flow_aborted", "flow.error cancelled")
}

// Retention leaves a job and its flow until everybody was told of them.
func TestWhatIsToBeToldIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.register("a")
	hook := w.Subscribe(outbox.Subscription{Name: "hook", Kind: "webhook", Events: outbox.JobEvents})
	w.Later(time.Minute)
	ref := int64(1)
	_, err := w.S.Flows.PostFlow(w.Ctx, w.By, flows.FlowSpec{Jobs: []flow.Spec{{Ref: &ref, Script: "1",
		ScriptType: "python", Timeout: time.Minute}}, Start: true})
	w.Must(err)
	w.offer()
	w.does(finished("1"))
	w.Later(50 * time.Hour)
	left := func() (n int) {
		w.T.Helper()
		_, err := w.S.Retain(w.Ctx, 48*time.Hour)
		w.Must(err)
		w.Scan(`SELECT (SELECT count(*) FROM postern.job) + (SELECT count(*) FROM postern.flow)`, &n)
		return n
	}
	if n := left(); n != 2 {
		t.Errorf("%d are left of a job and its flow before they were told", n)
	}
	var receipts []deliveries.Receipt
	for n, want := range []int{2, 1} { // the job is told, then the flow
		h, err := w.S.Deliveries.Deliver(w.Ctx, hook.ID, receipts, 10)
		w.Must(err)
		if len(h.Due) != 1 || h.Due[0].Body == nil {
			t.Fatalf("%d: %+v", n, h)
		}
		if got := left(); got != want {
			t.Errorf("%d are left, want %d", got, want)
		}
		receipts = []deliveries.Receipt{{Delivery: h.Due[0], State: "delivered"}}
	}
	_, err = w.S.Deliveries.Deliver(w.Ctx, hook.ID, receipts, 0)
	w.Must(err)
	if n := left(); n != 0 {
		t.Errorf("%d are left", n)
	}
}

// The data of a transaction that carries a job is told without the values of its environment.
func TestTheEnvironmentOfAJobIsNotTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	sub := w.Subscribe(outbox.Subscription{Name: "all", Kind: "pull", Include: []string{"data"}})
	w.Later(time.Minute)
	w.post(0) // makes the dispatchers
	s := w.Sub("", "job.python", "mine")
	s.Poster = outbox.ByAdmin
	s.Data = json.RawMessage(`{"script": "1", "env_vars": {"TOKEN": "secret", "B": "secret"}}`)
	w.Ingest(w.S, s)
	w.Number(w.S, sub.ID)
	events, _, err := w.S.Deliveries.Feed(w.Ctx, sub.ID, []string{"data"}, 0, 100)
	w.Must(err)
	last := string(events[len(events)-1].Body)
	if strings.Contains(last, "secret") || !strings.Contains(last, `"env_vars": {"B": "***", "TOKEN": "***"}`) {
		t.Error(last)
	}
}

// A sample counts what is offered and who takes it: an offer whose runner is silent, or paused, has none.
func TestASampleTellsOfOffersAndRunners(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lapses := 0
	w.S.Flows.Lapsed = func(n int) { lapses += n }
	sample := func() string {
		t.Helper()
		v, err := w.S.Flows.TakeSample(w.Ctx)
		w.Must(err)
		return fmt.Sprint(v.Offers["python"], " ", v.Oldest["python"] > 0, " ", v.Stranded["python"] > 0, " ",
			v.Runners["live"], v.Runners["paused"], v.Runners["silent"])
	}
	w.post(0)
	w.post(0)
	w.Must(w.S.Refresh(w.Ctx))
	w.Later(time.Second)
	if got := sample(); got != "2 true true 0 0 0" {
		t.Errorf("without a runner: %s", got)
	}
	w.register("a")
	if got := sample(); got != "2 true false 1 0 0" {
		t.Errorf("with a runner: %s", got)
	}
	if _, err := w.claim(w.S, "a"); err != nil {
		t.Error(err)
	}
	w.Later(silent)
	_, err := w.S.Flows.Lapse(w.Ctx)
	w.Must(err)
	if got := sample(); got != "2 true true 0 0 1" || lapses != 2 {
		t.Errorf("with one that is silent: %s, %d lapses", got, lapses)
	}
}
