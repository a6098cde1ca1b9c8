package batches_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/batches"
	"github.com/postern-dev/postern/internal/pg/db"
	"github.com/postern-dev/postern/internal/pg/reads"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/processor"
	"github.com/postern-dev/postern/internal/sequencer"
)

func refusing(text string) outbox.Answer {
	return outbox.Answer{Class: outbox.ClassRetry, Code: "500", Message: text}
}

// work lets the core execute what waits there, and brings the processor on. It returns the data of the calls.
func (p *plant) work(answer outbox.Answer) (data []string) {
	p.T.Helper()
	data = p.execute(answer)
	p.Must(p.S.Batches.AdvanceProcessor(p.Ctx, p.ID, "main"))
	return data
}

// execute lets the core execute what waits there, and answers each call.
func (p *plant) execute(answer outbox.Answer) (data []string) {
	p.T.Helper()
	for _, l := range p.Claim(p.node, pgworld.Everything()) {
		var v any // the database spells it in its own way
		p.Must(json.Unmarshal(l.Task.Data, &v))
		text, err := json.Marshal(v)
		p.Must(err)
		data = append(data, string(text))
		a := p.Answer(l, answer)
		a.Step = sequencer.Dispatched(l.Flight(*l.Task.MaxRetries), answer, l.Dispatcher.Dispatcher, 0.5)
		p.Settle(a)
	}
	return data
}

// tick ticks, lets the core answer, and says what the tick did.
func (p *plant) tick(answer outbox.Answer) string {
	p.T.Helper()
	out, err := p.S.Batches.Tick(p.Ctx, p.By, "main")
	if err != nil {
		return fault.As(err).Detail
	}
	if out.Outcome != batches.TickExecuting {
		return fmt.Sprint(out.Outcome, " ", out.Batch.ID)
	}
	data := p.work(answer)
	return fmt.Sprint("executed ", out.Batch.ID, " ", strings.Join(data, " "))
}

func (p *plant) ticks(answer outbox.Answer, want ...string) {
	p.T.Helper()
	for _, w := range want {
		if got := p.tick(answer); got != w {
			p.T.Fatalf("tick: %s, want %s", got, w)
		}
	}
}

// S4.4: two High and two Med batches go H, H, M, M; each action needs a tick of its own, and goes to the back between.
func TestATickLooksAtHighBeforeMed(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	m := p.enqueue(processor.Med, 1, true, nil)
	h := p.enqueue(processor.High, 2, false, nil)
	k := p.enqueue(processor.High, 1, false, nil)
	n := p.enqueue(processor.Med, 2, true, nil)
	p.ticks(pgworld.Done(), `executed 2 {"add":{"i":0}}`, `executed 3 {"add":{"i":0}}`, `executed 2 {"add":{"i":1}}`,
		`executed 1 [{"add":{"i":0}}]`, `executed 4 [{"add":{"i":0}},{"add":{"i":1}}]`, "There is currently nothing to process")
	for _, v := range []*batches.Batch{m, h, k, n} {
		p.ended(v, processor.Result{Kind: processor.Executed})
	}
	list, _, err := p.S.Reads.ListTransactions(p.Ctx, p.ID, reads.ListFilter{Limit: 10})
	p.Must(err)
	if len(list) != 5 {
		t.Errorf("%d transactions, want 5", len(list))
	}
}

// S4: Amount(5), atomic: exactly six ticks, then Rejected.
func TestAnAtomicBatchIsRetriedAsAWhole(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	v := p.enqueue(processor.Med, 3, true, retries(5, time.Second))
	for range 6 {
		p.ticks(refusing("no room"), `executed 1 [{"add":{"i":0}},{"add":{"i":1}},{"add":{"i":2}}]`)
		p.Later(time.Second)
	}
	p.ended(v, processor.Result{Kind: processor.Rejected, Reason: "no room"})
	p.ticks(pgworld.Done(), "There is currently nothing to process")
}

// S4: Amount(5) on the second function: exactly seven ticks, PartiallyExecuted(1, error).
func TestAnActionIsRetriedByItself(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.authorize("pay", func(a *processor.Authorization) {
		a.Mode = processor.Mode{Limits: map[string]int64{"ann": 1}}
		a.Actions, _ = adding(2, false, retries(5, time.Second))
	})
	_, m := adding(2, false, nil)
	v, err := p.S.Batches.Send(p.Ctx, p.as("ann"), "pay", m, 0, db.Once{})
	p.Must(err)
	p.ticks(pgworld.Done(), `executed 1 {"add":{"i":0}}`)
	for range 6 {
		p.ticks(refusing("no"), `executed 1 {"add":{"i":1}}`)
		p.Later(time.Second)
	}
	p.ended(v, processor.Result{Kind: processor.PartiallyExecuted, N: 1, Reason: "no"})
	if running, spent := p.count("pay", "ann"); running != 0 || spent != 1 {
		t.Errorf("%d run, %d spent: want the call burned", running, spent)
	}
}

// S4.4, S4.10: a batch of High in its cooldown goes to the back, one per tick, and keeps Med waiting unless the
// processor is fair.
func TestWhatCoolsIsRotated(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.enqueue(processor.High, 1, false, retries(1, time.Minute))
	p.ticks(refusing("no"), `executed 1 {"add":{"i":0}}`)
	p.enqueue(processor.High, 1, true, nil)
	p.enqueue(processor.Med, 1, true, nil)
	p.ticks(pgworld.Done(), "rotated 1", `executed 2 [{"add":{"i":0}}]`, "rotated 1", "rotated 1")
	_, err := p.S.Batches.PutProcessor(p.Ctx, p.By, batches.Processor{Name: "main", Owner: "owner", Fair: true}, 0)
	p.Must(err)
	p.ticks(pgworld.Done(), `executed 3 [{"add":{"i":0}}]`, "rotated 1")
	p.Later(time.Minute)
	p.ticks(pgworld.Done(), `executed 1 {"add":{"i":0}}`)
	if got := p.line(processor.High); got != "[]" {
		t.Errorf("High is %s", got)
	}
}

func TestACooldownOfBlocksEndsWithTheHeight(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	p.enqueue(processor.Med, 1, true, &processor.RetryLogic{Interval: processor.Interval{Blocks: amount(3)}})
	p.Must(p.S.Batches.SetHeight(p.Ctx, p.By, "main", 10))
	p.ticks(refusing("no"), `executed 1 [{"add":{"i":0}}]`)
	p.Later(time.Hour)
	p.Must(p.S.Batches.SetHeight(p.Ctx, p.By, "main", 12))
	p.ticks(pgworld.Done(), "rotated 1")
	if err := p.S.Batches.SetHeight(p.Ctx, p.By, "main", 11); fault.KindOf(err) != fault.Invalid {
		t.Errorf("a height fell: %v", err)
	}
	p.Must(p.S.Batches.SetHeight(p.Ctx, p.By, "main", 13))
	p.ticks(pgworld.Done(), `executed 1 [{"add":{"i":0}}]`)
}

// S4: after one executed function Expired(1), of an atomic batch Expired(0).
func TestWhatExpiresIsRemovedByATick(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	until := p.Now.Add(time.Minute)
	var list []*batches.Batch
	for _, atomic := range []bool{false, true} {
		a, m := adding(2, atomic, nil)
		v, err := p.S.Batches.Enqueue(p.Ctx, p.By, "main", batches.NewBatch{Actions: a, Messages: m, Priority: processor.Med, Expiration: &until})
		p.Must(err)
		list = append(list, v)
	}
	p.ticks(pgworld.Done(), `executed 1 {"add":{"i":0}}`)
	p.Later(time.Minute + time.Microsecond)
	p.ticks(pgworld.Done(), "finished 2", "finished 1")
	p.ended(list[0], processor.Result{Kind: processor.Expired, N: 1})
	p.ended(list[1], processor.Result{Kind: processor.Expired})
}

// S4: the two texts.
func TestAPausedProcessorIsNotTicked(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	for _, paused := range []bool{true, true, false, false} {
		_, err := p.S.Batches.PauseProcessor(p.Ctx, p.By, "main", paused)
		p.Must(err)
		p.ticks(pgworld.Done(), map[bool]string{true: "Processor is currently paused", false: "There is currently nothing to process"}[paused])
	}
}

// S4.5: an execution that the core refuses at once has failed.
func TestATypeThatIsGoneIsARejection(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	v, w := p.enqueue(processor.Med, 1, false, nil), p.enqueue(processor.Med, 1, true, nil)
	p.Must(p.S.RemoveDispatcher(p.Ctx, p.By, "ADD", true))
	p.ticks(pgworld.Done(), "executed 1 ", "executed 2 ")
	p.ended(v, processor.Result{Kind: processor.Rejected, Reason: `type "ADD" has no dispatcher: PUT /dispatchers/ADD first`})
	p.ended(w, processor.Result{Kind: processor.Rejected, Reason: `type "ADD" executes nothing atomically: want one whose dispatcher has the capability atomic`})
}

// confirmed is a batch of two actions; the oracle confirms the first.
func (p *plant) confirmed(logic *processor.RetryLogic) *batches.Batch {
	p.T.Helper()
	a, m := adding(2, false, logic)
	a.NonAtomic.Functions[0].Callback = &processor.Confirmation{ContractAddress: "oracle", CallbackMessage: json.RawMessage(`{"ok":true}`)}
	v, err := p.S.Batches.Enqueue(p.Ctx, p.By, "main", batches.NewBatch{Actions: a, Messages: m, Priority: processor.Med})
	p.Must(err)
	return v
}

func (p *plant) confirm(actor string, id int64, payload string) string {
	out, err := p.S.Batches.Confirm(p.Ctx, p.as(actor), "main", id, json.RawMessage(payload))
	if err != nil {
		return fault.As(err).Detail
	}
	return out.Outcome
}

// S4.8: the waiting batch is in no queue; a wrong callback re-queues; the right one lets it go on.
func TestAnActionWaitsForItsCallback(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	v := p.confirmed(retries(1, 0))
	p.ticks(pgworld.Done(), `executed 1 {"add":{"execution_id":1,"i":0}}`, "There is currently nothing to process")
	if got := p.batch(1); got.State != processor.WaitingCallback {
		t.Errorf("it is %s", got.State)
	}
	for _, c := range []struct{ actor, payload, want string }{
		{"eve", `{"ok":true}`, "Invalid callback sender"},
		{"oracle", `{"ok":false}`, batches.TickRequeued},
		{"oracle", `{"ok":true}`, "Pending callback not found"},
	} {
		if got := p.confirm(c.actor, v.ID, c.payload); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.actor, c.payload, got, c.want)
		}
	}
	p.ticks(pgworld.Done(), `executed 1 {"add":{"execution_id":1,"i":0}}`)
	if got := p.confirm("oracle", 1, `{ "ok": true }`); got != batches.TickRequeued {
		t.Error(got)
	}
	p.ticks(pgworld.Done(), `executed 1 {"add":{"i":1}}`)
	p.ended(v, processor.Result{Kind: processor.Executed})
}

// S4.5: a confirmation comes before the end of its execution is known, too late, or never.
func TestACallbackComesEarlyOrNever(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	v := p.confirmed(nil)
	_, err := p.S.Batches.Tick(p.Ctx, p.By, "main")
	p.Must(err)
	if got := p.confirm("oracle", v.ID, `{"ok":true}`); got != batches.TickWaiting {
		t.Error(got)
	}
	p.work(pgworld.Done())
	if got := p.line(processor.Med); got != "[1]" {
		t.Errorf("confirmed early, and Med is %s", got)
	}
	p.ticks(pgworld.Done(), `executed 1 {"add":{"i":1}}`)
	p.ended(v, processor.Result{Kind: processor.Executed})

	never := p.confirmed(nil)
	p.ticks(pgworld.Done(), `executed 2 {"add":{"execution_id":2,"i":0}}`)
	p.Later(24 * time.Hour)
	p.Must(p.S.Batches.AdvanceProcessor(p.Ctx, p.ID, "main"))
	if got := p.batch(never.ID); got.State != processor.WaitingCallback {
		t.Errorf("it is %s before its time", got.State)
	}
	p.Later(time.Microsecond)
	p.Must(p.S.Batches.AdvanceProcessor(p.Ctx, p.ID, "main"))
	p.ended(never, processor.Result{Kind: processor.Rejected, Reason: "callback timed out"})
	if got := p.confirm("oracle", never.ID, `{"ok":true}`); got != "Pending callback not found" {
		t.Error(got)
	}

	a, m := adding(1, false, nil) // S4.5: how long, is said per action
	a.NonAtomic.Functions[0].Callback = &processor.Confirmation{ContractAddress: "oracle", CallbackMessage: json.RawMessage(`1`), CallbackTimeout: amount(60)}
	short, err := p.S.Batches.Enqueue(p.Ctx, p.By, "main", batches.NewBatch{Actions: a, Messages: m, Priority: processor.Med})
	p.Must(err)
	p.ticks(pgworld.Done(), `executed 3 {"add":{"execution_id":3,"i":0}}`)
	p.Later(time.Minute + time.Microsecond)
	p.Must(p.S.Batches.AdvanceProcessor(p.Ctx, p.ID, "main"))
	p.ended(short, processor.Result{Kind: processor.Rejected, Reason: "callback timed out"})

	gone := p.confirmed(nil)
	p.ticks(pgworld.Done(), `executed 4 {"add":{"execution_id":4,"i":0}}`)
	_, err = p.S.Batches.Evict(p.Ctx, p.By, "main", batches.Eviction{ID: gone.ID})
	p.Must(err)
	p.ended(gone, processor.Result{Kind: processor.RemovedByOwner})
	if got := p.confirm("oracle", gone.ID, `{"ok":true}`); got != "Pending callback not found" {
		t.Error(got)
	}
}

// S4.15: the process that ticked dies between the commit of the tick and the post of the transaction, or after both.
func TestAnExecutionThatBeganIsBroughtOnOnce(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	v := p.enqueue(processor.Med, 1, false, nil)
	dead := fmt.Errorf("the process is gone")
	held, finish := pgworld.Hold(p.S, 2) // the first commit is the tick's, the second the core's
	said := make(chan error, 1)
	go func() { _, err := p.S.Batches.Tick(p.Ctx, p.By, "main"); said <- err }()
	<-held
	finish(dead)
	pgworld.OK(t, <-said)
	if got := p.batch(v.ID); got.State != processor.Executing || got.Runs != 1 {
		t.Fatalf("it is %s after %d runs", got.State, got.Runs)
	}
	if _, err := p.S.Batches.Evict(p.Ctx, p.By, "main", batches.Eviction{ID: v.ID}); fault.CodeOf(err) != "wrong_state" {
		t.Errorf("evicted while it is executed: %v", err)
	}
	if err := p.S.Batches.RemoveProcessor(p.Ctx, p.By, "main"); fault.CodeOf(err) != "in_use" {
		t.Errorf("removed while it executes: %v", err)
	}
	o := p.Other()
	p.Must(o.S.Batches.AdvanceProcessor(p.Ctx, p.ID, "main"))
	p.Must(p.S.Batches.AdvanceProcessor(p.Ctx, p.ID, "main"))
	if got := p.tick(pgworld.Done()); got != "batch 1 is being executed" {
		t.Error(got)
	}
	if data := p.work(pgworld.Done()); len(data) != 1 {
		t.Errorf("%d calls, want 1", len(data))
	}
	p.ended(v, processor.Result{Kind: processor.Executed})
}

// S4.4: two ticks at once look at two batches, one after the other; two that learn of an end count it once.
func TestTwoTicksNeverExecuteTheSameBatch(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	o := p.Other()
	p.enqueue(processor.Med, 1, false, nil)
	p.enqueue(processor.Med, 1, false, nil)
	both := func(a, b func(s *stores.Store) error) (error, error) {
		held, finish := pgworld.Hold(p.S, 1)
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- a(p.S) }()
		<-held
		go func() { second <- b(o.S) }()
		p.AwaitBlocked(o.PID)
		finish(nil)
		return <-first, <-second
	}
	tick := func(s *stores.Store) error { _, err := s.Batches.TickDue(p.Ctx, p.By, "main"); return err }
	byHand := func(s *stores.Store) error { _, err := s.Batches.Tick(p.Ctx, p.By, "main"); return err }
	advance := func(s *stores.Store) error { return s.Batches.AdvanceProcessor(p.Ctx, p.ID, "main") }
	a, b := both(tick, byHand)
	pgworld.OK(t, a)
	if fault.CodeOf(b) != "busy" {
		t.Errorf("the second tick said %v", b)
	}
	for _, l := range p.Claim(p.node, pgworld.Everything()) {
		p.Settle(p.Answer(l, pgworld.Done()))
	}
	a, b = both(advance, advance)
	pgworld.OK(t, a)
	pgworld.OK(t, b)
	p.ended(p.batch(1), processor.Result{Kind: processor.Executed})
	history, err := p.S.Batches.BatchHistory(p.Ctx, p.ID, "main", 1)
	p.Must(err)
	if len(history) != 3 {
		t.Errorf("%d steps, want Enqueued, Tick, Succeeded: %+v", len(history), history)
	}
	p.Must(tick(p.S)) // not due
	if got := p.line(processor.Med); got != "[2]" {
		t.Errorf("Med is %s", got)
	}
	p.Later(time.Second)
	p.Must(tick(p.S))
	if got := p.line(processor.Med); got != "[]" {
		t.Errorf("Med is %s", got)
	}
	p.enqueue(processor.Med, 1, false, nil)
	p.execute(pgworld.Done())
	p.Later(time.Second)
	a, b = both(tick, tick) // each of them would end one and begin the other
	pgworld.OK(t, a)
	pgworld.OK(t, b)
	p.ended(p.batch(2), processor.Result{Kind: processor.Executed})
	if got := p.batch(3); got.State != processor.Executing || got.Runs != 1 {
		t.Errorf("it is %s after %d runs", got.State, got.Runs)
	}
	if history, err = p.S.Batches.BatchHistory(p.Ctx, p.ID, "main", 2); err != nil || len(history) != 3 {
		t.Errorf("%+v %v", history, err)
	}
}

// A processor that ticks by itself ends what it executed in the commit in which the next execution begins, and both are
// as if one had come after the other.
func TestADueTickEndsWhatWasExecutedAndGoesOn(t *testing.T) {
	t.Parallel()
	for _, fair := range []bool{false, true} {
		p := newPlant(t)
		_, err := p.S.Batches.PutProcessor(p.Ctx, p.By, batches.Processor{Name: "main", Owner: "owner", TickInterval: time.Second, Fair: fair}, 0)
		p.Must(err)
		two := p.enqueue(processor.Med, 2, false, nil)
		whole := p.enqueue(processor.Med, 2, true, nil)
		high := p.enqueue(processor.High, 1, false, retries(1, 0))
		for i, c := range []struct {
			answer outbox.Answer
			want   string
		}{
			{refusing("no"), `executing 3 {"add":{"i":0}}`}, {pgworld.Done(), `executing 3 {"add":{"i":0}}`}, {pgworld.Done(), `executing 1 {"add":{"i":0}}`},
			{pgworld.Done(), `executing 2 [{"add":{"i":0}},{"add":{"i":1}}]`}, {pgworld.Done(), `executing 1 {"add":{"i":1}}`}, {pgworld.Done(), "finished 1 "},
		} {
			if p.Later(time.Second); i == 5 {
				// a batch that was begun ends all the same
				_, err := p.S.Batches.PauseProcessor(p.Ctx, p.By, "main", fair)
				p.Must(err)
			}
			out, err := p.S.Batches.TickDue(p.Ctx, p.By, "main")
			p.Must(err)
			var id int64
			if out.Batch != nil {
				id = out.Batch.ID
			}
			if got := fmt.Sprint(out.Outcome, " ", id, " ", strings.Join(p.execute(c.answer), " ")); got != c.want {
				t.Errorf("fair %v, tick %d: %s, want %s", fair, i, got, c.want)
			}
			pgworld.HoldsTrue(t, p.Ctx, p.S.Pool())
		}
		for _, v := range []*batches.Batch{two, whole, high} {
			p.ended(v, processor.Result{Kind: processor.Executed})
		}
	}
}

// Two ends in one commit are told in their order, whichever batch is older.
func TestWhatADueTickEndsIsToldInOrder(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	_, err := p.S.Deliveries.PutSubscription(p.Ctx, p.By, outbox.Subscription{Name: "results", Kind: "pull", OnError: "skip", Events: []outbox.Event{outbox.EventResult}}, nil, 0)
	p.Must(err)
	sub, err := p.S.Deliveries.Subscription(p.Ctx, p.ID, "results")
	p.Must(err)
	p.Later(3 * time.Second)
	soon := p.Now.Add(time.Second)
	actions, messages := adding(1, true, nil)
	_, err = p.S.Batches.Enqueue(p.Ctx, p.By, "main", batches.NewBatch{Actions: actions, Messages: messages, Priority: processor.Med, Expiration: &soon})
	p.Must(err)
	p.enqueue(processor.High, 1, true, nil)
	for range 2 {
		_, err := p.S.Batches.TickDue(p.Ctx, p.By, "main")
		p.Must(err)
		p.execute(pgworld.Done())
		p.Later(2 * time.Second)
	}
	_, err = p.S.Deliveries.Deliver(p.Ctx, sub.ID, nil, 0)
	p.Must(err)
	list, _, err := p.S.Deliveries.Feed(p.Ctx, sub.ID, nil, sub.Cursor, 9)
	p.Must(err)
	var ids []int64
	for _, e := range list {
		ids = append(ids, e.ID.Seq)
	}
	if fmt.Sprint(ids) != "[2 1]" {
		t.Errorf("told of %v, want 2, which was executed, and then 1, which expired", ids)
	}
}

// Only the processor tries the execution of a batch again: a redrive of its transaction is refused.
func TestAnExecutionIsNotRedrivenBesideItsBatch(t *testing.T) {
	t.Parallel()
	p := newPlant(t)
	v := p.enqueue(processor.Med, 1, false, retries(1, 0))
	for _, lever := range []string{"POST /processors/main/tick", "POST /processors/main/batches"} {
		p.ticks(refusing("no"), `executed 1 {"add":{"i":0}}`)
		id, err := p.S.ByUID(p.Ctx, p.ID, fmt.Sprintf(":processor:%d:%d", v.ID, p.batch(v.ID).Runs))
		p.Must(err)
		if w, err := p.S.Reads.Why(p.Ctx, p.ID, id); err != nil || len(w.Blockers) != 1 || len(w.Blockers[0].Levers) != 0 {
			t.Errorf("%+v %v", w, err)
		}
		_, err = p.S.Redrive(p.Ctx, p.By, id, pg.Redrive{})
		if f := fault.As(err); f.Code != "wrong_state" || f.Extra["lever"] != lever || f.Extra["batch"] != "/processors/main/batches/1" || !strings.Contains(f.Detail, lever) {
			t.Errorf("%s: %v", lever, f)
		}
		p.Later(time.Second)
	}
	p.ended(v, processor.Result{Kind: processor.Rejected, Reason: "no"})
}
