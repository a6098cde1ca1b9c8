package work_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/remotetest"
)

var dispatches = remotetest.Match{Op: remotetest.OpDispatch}

func TestSubmittedIsWatchedUntilIncluded(t *testing.T) {
	h := newHouse(t)
	h.dispatcher("T", func(d *outbox.Dispatcher) { d.Pool = "p" })
	h.sender("p", "a1", "a2")
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, UID: "x"}, remotetest.Accept("0xx"))
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, UID: "y"}, remotetest.Accept("0xy"))
	h.engine("n1", nil)
	ids := h.post("q", "T", "x", "y")
	h.await(ids[:1], soon, outbox.REVISION)
	if got := h.await(ids, soon, outbox.REVISION, outbox.WAITING); got[ids[1]].State != outbox.WAITING {
		t.Fatalf("the second of the queue is %s while the first is out", got[ids[1]].State)
	}
	h.fake.SetStatus("0xx", outbox.Status{State: outbox.StatusIncluded, Hash: "0xx", BlockHeight: "7", Confirmations: 1})
	tx := h.await(ids[:1], soon, outbox.DONE)[ids[0]]
	if tx.BlockHeight != "7" || tx.Hash != "0xx" || tx.SubmittedAt == nil {
		t.Errorf("%+v", tx)
	}
	h.fake.SetStatus("0xy", outbox.Status{State: outbox.StatusIncluded, Hash: "0xy", BlockHeight: "8", Confirmations: 1})
	h.await(ids, soon, outbox.DONE)
	ctx, cancel := context.WithTimeout(h.ctx, soon)
	defer cancel()
	for _, uid := range []string{"x", "y"} {
		if _, err := h.fake.WaitCall(ctx, remotetest.Match{Op: remotetest.OpOnSuccess, UID: uid}); err != nil {
			t.Errorf("on-success of %s: %v", uid, err)
		}
	}
}

func TestAFailedCallIsRetriedBySameSenderWithAHigherFee(t *testing.T) {
	h := newHouse(t)
	h.dispatcher("T", func(d *outbox.Dispatcher) { d.Pool, d.Fee.Initial = "p", "100" })
	h.sender("p", "a1", "a2", "a3")
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, UID: "x"}, remotetest.Fail(20203, "sending"), remotetest.Fail(20203, "sending"), remotetest.Done("ok"))
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, UID: "y"}, remotetest.Fail(20203, "sending"))
	h.engine("n1", nil)
	ids := h.post("q", "T", "x", "y")
	all := h.await(ids, soon, outbox.DONE, outbox.FAILED)
	if all[ids[0]].State != outbox.DONE || all[ids[0]].Retries != 2 || all[ids[1]].State != outbox.FAILED || all[ids[1]].Code != "20203" {
		t.Fatalf("%+v\n%+v", all[ids[0]], all[ids[1]])
	}
	calls := h.fake.Calls(remotetest.Match{Op: remotetest.OpDispatch, UID: "x"})
	for i, fee := range []string{"100", "110", "121"} {
		if calls[i].Fee != fee || calls[i].Account != calls[0].Account || calls[i].Attempt != i+1 {
			t.Errorf("attempt %d: fee %s by %s", calls[i].Attempt, calls[i].Fee, calls[i].Account)
		}
	}
	ctx, cancel := context.WithTimeout(h.ctx, soon)
	defer cancel()
	if _, err := h.fake.WaitCall(ctx, remotetest.Match{Op: remotetest.OpOnFailure, UID: "y"}); err != nil {
		t.Error(err)
	}
}

func TestALostAnswerIsAskedForByItsToken(t *testing.T) {
	h := newHouse(t)
	h.dispatcher("T", nil)
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, UID: "x"}, remotetest.Accept("0xx").ThenDrop())
	h.fake.Script(remotetest.Match{Op: remotetest.OpDispatch, UID: "y"}, remotetest.Drop(), remotetest.Done("ok"))
	h.fake.IncludeAll(true)
	h.engine("n1", nil)
	ids := h.post("q", "T", "x", "y")
	h.await(ids, soon, outbox.DONE)
	if n := len(h.fake.Calls(remotetest.Match{Op: remotetest.OpDispatch, UID: "x"})); n != 1 {
		t.Errorf("what the worker had executed was sent %d times", n)
	}
	y := h.fake.Calls(remotetest.Match{Op: remotetest.OpDispatch, UID: "y"})
	if len(y) != 2 || y[0].Token != y[1].Token {
		t.Errorf("what the worker never saw: %d calls", len(y))
	}
	for _, id := range ids { // the lost answer has a row, although it decided nothing
		var class, code string
		h.must(h.s.Pool().QueryRow(h.ctx, `SELECT class, code FROM postern.attempt WHERE queue_id = $1 AND seq = $2 AND step = 'unknown'`, id.Queue, id.Seq).Scan(&class, &code))
		if class != "ambiguous" || code == "" {
			t.Errorf("%s: class %q, code %q", id, class, code)
		}
	}
}

func TestADeadWorkerConsumesNoRetryAndBlocksNobodyElse(t *testing.T) {
	h := newHouse(t)
	h.dispatcher("T", func(d *outbox.Dispatcher) { d.Pool = "p" })
	other := remotetest.NewFake(t)
	other.Script(dispatches, remotetest.Done("ok"))
	h.dispatcher("U", func(d *outbox.Dispatcher) { d.Pool, d.WorkerURL = "p", other.URL() })
	h.sender("p", "a1")
	h.fake.Script(dispatches, remotetest.Done("ok"))
	h.fake.Refuse()
	h.engine("n1", nil)
	ids := h.post("q", "T", "x")
	var others []outbox.ID
	for i := range 20 {
		others = append(others, h.post(fmt.Sprintf("u%d", i), "U", fmt.Sprintf("u%d", i))...)
	}
	h.await(others, soon, outbox.DONE)
	if tx := h.await(ids, soon, outbox.WAITING, outbox.DISPATCHING)[ids[0]]; tx.Retries != 0 {
		t.Errorf("retries %d", tx.Retries)
	}
	h.fake.Listen(t)
	if tx := h.await(ids, soon, outbox.DONE)[ids[0]]; tx.Retries != 0 || tx.Attempt != 1 {
		t.Errorf("%+v", tx)
	}
}

func TestStoppingHandsBackAtOnceAndLetsCallsEnd(t *testing.T) {
	h := newHouse(t)
	h.dispatcher("T", nil)
	h.fake.Script(dispatches, remotetest.Done("ok"))
	stop := h.engine("n1", nil)
	var ids []outbox.ID
	for q := range 20 {
		for i := range 10 {
			ids = append(ids, h.post(fmt.Sprintf("q%d", q), "T", fmt.Sprintf("q%d-%d", q, i))...)
		}
	}
	ctx, cancel := context.WithTimeout(h.ctx, soon)
	defer cancel()
	_, err := h.fake.WaitCall(ctx, dispatches) // the node is at work
	h.must(err)
	stop()
	if owned := h.held(); owned != 0 {
		t.Errorf("%d queues still belong to the node that stopped", owned)
	}
	h.engine("n2", nil)
	h.await(ids, soon, outbox.DONE)
	seen := map[string]int{}
	for _, c := range h.fake.Calls(dispatches) {
		if seen[c.Token]++; seen[c.Token] > 1 {
			t.Errorf("%s was sent again although its call had ended", c.UID)
		}
	}
}

// TestStoppingHandsBackWhatIsInNoCallWhileCallsHaveTheirGrace: the node keeps only what is with a worker, which ends.
func TestStoppingHandsBackWhatIsInNoCallWhileCallsHaveTheirGrace(t *testing.T) {
	h := newHouse(t)
	h.fake.Script(dispatches, remotetest.Done("ok"))
	h.dispatcher("T", nil)
	stop := h.engine("n1", func(c *parts) { c.Grace = 5 * time.Minute })
	called, release := h.holds("SLOW")
	held := h.post("slow", "SLOW", "s")
	for q := range 20 {
		var uids []string
		for i := range 500 {
			uids = append(uids, fmt.Sprintf("q%d-%d", q, i))
		}
		h.post(fmt.Sprintf("q%d", q), "T", uids...)
	}
	<-called
	told, stopped := time.Now(), make(chan struct{})
	go func() { stop(); close(stopped) }()
	h.until("everything but the call is handed back", func() bool { return h.held() == 1 })
	t.Logf("everything but the call was handed back %s after the node was told to stop",
		time.Since(told).Round(time.Millisecond))
	select {
	case <-stopped:
		t.Errorf("the call had no grace")
	default:
	}
	release()
	<-stopped
	h.await(held, soon, outbox.DONE)
}

func TestWhatWasCutOffIsResumedByAnotherNodeUnderTheSameSenderAndToken(t *testing.T) {
	h := newHouse(t)
	h.dispatcher("T", func(d *outbox.Dispatcher) { d.Pool = "p" })
	h.sender("p", "a1", "a2")
	h.fake.Script(dispatches, remotetest.Accept("0xx").ThenHang())
	h.fake.IncludeAll(true)
	stop := h.engine("n1", func(c *parts) { c.Grace = 50 * time.Millisecond })
	ids := h.post("q", "T", "x")
	ctx, cancel := context.WithTimeout(h.ctx, soon)
	defer cancel()
	first, err := h.fake.WaitCall(ctx, dispatches)
	h.must(err)
	stop()
	h.engine("n2", nil)
	tx := h.await(ids, soon, outbox.DONE)[ids[0]]
	if tx.Sender != first.Account || tx.Attempt != 1 {
		t.Errorf("ended by %s at attempt %d, began with %s", tx.Sender, tx.Attempt, first.Account)
	}
	if n := len(h.fake.Calls(dispatches)); n != 1 {
		t.Errorf("sent %d times", n)
	}
}

// A worker that breaks off is asked and called once more at once, and then after a wait of a second at least.
func TestAWorkerThatBreaksOffIsNotCalledInATightLoop(t *testing.T) {
	h := newHouse(t)
	h.dispatcher("T", nil)
	h.fake.Script(dispatches, remotetest.Drop(), remotetest.Drop(), remotetest.Done("ok"))
	h.engine("n1", nil)
	ids := h.post("q", "T", "x")
	if tx := h.await(ids, soon, outbox.DONE)[ids[0]]; tx.Retries != 0 || tx.Attempt != 1 {
		t.Errorf("%+v", tx)
	}
	calls := h.fake.Calls(dispatches)
	if len(calls) != 3 {
		t.Fatalf("called %d times", len(calls))
	}
	if wait := calls[2].At.Sub(calls[1].At); wait < 900*time.Millisecond {
		t.Errorf("the third call came %s after the second", wait)
	}
}
