package pg_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/sequencer"
)

func failed() outbox.Answer {
	return outbox.Answer{Class: outbox.ClassRetry, Code: "20203", Message: "sending"}
}

func hashed() outbox.Answer {
	return outbox.Answer{Result: outbox.Result{Hash: "0xabc", Nonce: "7", Fee: "110"}}
}

func lost() outbox.Answer {
	return outbox.Answer{Class: outbox.ClassBlocked, Code: "connection_refused", Message: "refused", Unsent: true}
}

func nobodyKnows() outbox.Answer {
	return outbox.Answer{Class: outbox.ClassAmbiguous, Code: "timeout", Message: "no answer within 10m0s"}
}

func (w *world) lever(_ pg.LeverResult, err error) { w.t.Helper(); w.must(err) }

// Each case puts a real queue into a state and says what is in the way of the transaction it returns.
func TestWhyNamesWhatIsInTheWay(t *testing.T) {
	for _, c := range []struct {
		name   string
		kinds  string // in order, from the transaction to the root
		detail string // a part of the last one's
		next   string // a part of the last one's next, "" for none
		lever  string // the last one's first, "" for none
		moving bool
		make   func(w *world) outbox.ID
	}{
		{"terminal", "terminal", "DONE", "", "", false, func(w *world) outbox.ID {
			ids := w.post("q", "T", "a")
			w.settle(w.answer(w.claim(w.node("n"), everything())[0], done()))
			return ids[0]
		}},
		{"cancelled", "terminal", "CANCELLED", "", "redrive", false, func(w *world) outbox.ID {
			ids := w.post("q", "T", "a", "b")
			w.lever(w.s.Cancel(w.ctx, w.by, ids[1]))
			return ids[1]
		}},
		{"its turn", "lane_turn", "nothing is in its way", "", "", true, func(w *world) outbox.ID {
			w.node("n")
			return w.post("q", "T", "a")[0]
		}},
		{"others of its lane first", "lane_turn", "1 others", "", "", true, func(w *world) outbox.ID {
			w.node("n")
			w.post("q", "T", "a")
			w.later(time.Second)
			return w.post("r", "T", "b")[0]
		}},
		{"nobody works", "no_live_node", "start one", "", "", false, func(w *world) outbox.ID { return w.post("q", "T", "a")[0] }},
		{"the node stopped beating", "no_live_node", "start one", "", "", false, func(w *world) outbox.ID {
			w.node("n")
			id := w.post("q", "T", "a")[0]
			w.later(time.Minute)
			return id
		}},
		{"held", "not_before", "its own", "may go out", "cancel", false, func(w *world) outbox.ID {
			w.node("n")
			sub := w.sub("q", "T", "a")
			sub.NotBefore = w.now.Add(time.Hour)
			out, err := w.s.Ingest(w.ctx, []*pg.Submission{sub}, false)
			w.must(err)
			return out[0].ID
		}},
		{"queue paused", "queue_paused", "paused by test: because", "", "/queues/q/resume", false, func(w *world) outbox.ID {
			w.node("n")
			id := w.post("q", "T", "a")[0]
			w.lever(w.s.PauseQueue(w.ctx, w.by, "q", true))
			return id
		}},
		{"paused by a failure", "queue_paused", "after a failure", "", "/queues/q/resume", false, func(w *world) outbox.ID {
			_, err := w.s.PutQueue(w.ctx, w.by, pg.Queue{Name: "q", WhenFull: "refuse", OnFailure: "pause"}, 0)
			w.must(err)
			ids := w.post("q", "T", "a", "b")
			l := w.claim(w.node("n"), everything())
			w.settle(w.answer(l[0], outbox.Answer{Class: outbox.ClassRejected, Code: "422", Message: "never"}))
			return ids[1]
		}},
		{"dispatcher paused", "dispatcher_paused", "paused by test", "", "/dispatchers/T/resume", false, func(w *world) outbox.ID {
			w.node("n")
			id := w.post("q", "T", "a")[0]
			w.lever(w.s.PauseDispatcher(w.ctx, w.by, "T", true))
			return id
		}},
		{"both paused", "queue_paused,dispatcher_paused", "", "", "/dispatchers/T/resume", false, func(w *world) outbox.ID {
			w.node("n")
			id := w.post("q", "T", "a")[0]
			w.lever(w.s.PauseQueue(w.ctx, w.by, "q", true))
			w.lever(w.s.PauseDispatcher(w.ctx, w.by, "T", true))
			return id
		}},
		{"dispatcher removed", "no_dispatcher", "has no dispatcher", "", "/dispatchers/T", false, func(w *world) outbox.ID {
			w.node("n")
			id := w.post("q", "T", "a")[0]
			w.must(w.s.RemoveDispatcher(w.ctx, w.by, "T", true))
			return id
		}},
		{"worker away", "worker_unreachable", "did not answer 1 times", "probe", "/dispatchers/T", false, func(w *world) outbox.ID {
			id := w.post("q", "T", "a")[0]
			w.settle(w.answer(w.claim(w.node("n"), everything())[0], lost()))
			return id
		}},
		{"no senders", "no_free_sender", "has no senders", "", "/senders/{account}", false, func(w *world) outbox.ID {
			w.node("n")
			w.dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "p" })
			return w.post("q", "S", "a")[0]
		}},
		{"senders serve others", "no_free_sender", "1 serve other queues and 0", "", "", false, func(w *world) outbox.ID {
			w.dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "p" })
			w.sender("p", "acct-1")
			w.post("q", "S", "a")
			w.claim(w.node("n"), everything())
			return w.post("r", "S", "b")[0]
		}},
		{"all senders blocked", "sender_blocked", "acct-2: it is blocked until", "acct-2 may be used", "/senders/acct-2/unblock", false, func(w *world) outbox.ID {
			w.node("n")
			w.dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "p" })
			w.sender("p", "acct-1", "acct-2")
			w.lever(w.s.BlockSender(w.ctx, w.by, "acct-1", w.now.Add(2*time.Hour)))
			w.lever(w.s.BlockSender(w.ctx, w.by, "acct-2", w.now.Add(time.Hour)))
			return w.post("q", "S", "a")[0]
		}},
		{"the only sender is paused", "sender_blocked", "the only sender of pool p, acct-1, may not be used: it is paused", "", "/senders/acct-1/resume", false, func(w *world) outbox.ID {
			w.node("n")
			w.dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "p" })
			w.sender("p", "acct-1")
			w.lever(w.s.PauseSender(w.ctx, w.by, "acct-1", true))
			return w.post("q", "S", "a")[0]
		}},
		{"pinned sender busy", "pinned_sender_busy", "only acct-1 may take it, and it serves queue q", "", "", false, func(w *world) outbox.ID {
			w.dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "p" })
			w.sender("p", "acct-1", "acct-2")
			sub := w.sub("q", "S", "a")
			sub.Sender = "acct-1"
			_, err := w.s.Ingest(w.ctx, []*pg.Submission{sub}, false)
			w.must(err)
			w.claim(w.node("n"), everything())
			sub = w.sub("r", "S", "b")
			sub.Sender = "acct-1"
			out, err := w.s.Ingest(w.ctx, []*pg.Submission{sub}, false)
			w.must(err)
			return out[0].ID
		}},
		{"pinned sender blocked", "sender_blocked", "only acct-1 may take it, and it is blocked until somebody", "", "unblock", false, func(w *world) outbox.ID {
			w.node("n")
			w.dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "p" })
			w.sender("p", "acct-1", "acct-2")
			w.lever(w.s.BlockSender(w.ctx, w.by, "acct-1", pg.Forever))
			sub := w.sub("r", "S", "b")
			sub.Sender = "acct-1"
			out, err := w.s.Ingest(w.ctx, []*pg.Submission{sub}, false)
			w.must(err)
			return out[0].ID
		}},
		{"exclusive", "exclusive_busy", "is in flight", "", "", false, func(w *world) outbox.ID {
			w.dispatcher("X", func(d *outbox.Dispatcher) { d.Exclusive = "type" })
			w.post("q", "X", "a")
			w.claim(w.node("n"), everything())
			return w.post("r", "X", "b")[0]
		}},
		{"every slot taken", "no_free_slot", "1 of 1 calls of type L are in flight", "", "", false, func(w *world) outbox.ID {
			w.dispatcher("L", func(d *outbox.Dispatcher) { d.Slots = 1 })
			w.post("q", "L", "a")
			w.claim(w.node("n"), everything())
			return w.post("r", "L", "b")[0]
		}},
		{"slots of the other node", "lane_turn", "nothing is in its way", "", "", true, func(w *world) outbox.ID {
			w.dispatcher("L", func(d *outbox.Dispatcher) { d.Slots = 1 })
			w.post("q", "L", "a")
			w.claim(w.node("n"), everything())
			w.node("m")
			return w.post("r", "L", "b")[0]
		}},
		{"slots beside those of a dead node", "lane_turn", "nothing is in its way", "", "", true, func(w *world) outbox.ID {
			w.dispatcher("L", func(d *outbox.Dispatcher) { d.Slots = 1 })
			w.post("q", "L", "a")
			w.claim(w.node("n"), everything())
			_, err := w.s.Pool().Exec(w.ctx, `UPDATE postern.node SET dead_at = clock_timestamp()`)
			w.must(err)
			w.node("m")
			return w.post("r", "L", "b")[0]
		}},
		{"the sender's own worker is away", "worker_unreachable", "acct-1, may not be used", "acct-1 may be used again", "/senders/acct-1/unblock", false, func(w *world) outbox.ID {
			w.dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "p" })
			_, err := w.s.PutSender(w.ctx, w.by, pg.Sender{Account: "acct-1", Pool: "p", WorkerURL: "http://127.0.0.1:2/"}, 0)
			w.must(err)
			id := w.post("q", "S", "a")[0]
			w.settle(w.answer(w.claim(w.node("n"), everything())[0], lost()))
			return id
		}},
		{"in its worker", "in_worker", "attempt 1 is with its worker, called by node n", "unknown", "abandon", true, func(w *world) outbox.ID {
			id := w.post("q", "T", "a")[0]
			w.claim(w.node("n"), everything())
			return id
		}},
		{"in its worker, written lazily", "in_worker", "attempt 1", "unknown", "abandon", true, func(w *world) outbox.ID {
			ids := w.post("q", "T", "a", "b", "c")
			l := w.claim(w.node("n"), everything())
			w.later(time.Second)
			w.settle(w.answer(l[0], done()))
			return ids[1]
		}},
		{"behind the head, written lazily", "head_of_line,in_worker", "", "unknown", "abandon", true, func(w *world) outbox.ID {
			ids := w.post("q", "T", "a", "b", "c")
			w.settle(w.answer(w.claim(w.node("n"), everything())[0], done()))
			return ids[2]
		}},
		{"behind the head, and its own hold", "head_of_line,not_before,lane_turn", "", "", "", true, func(w *world) outbox.ID {
			w.node("n")
			w.post("q", "T", "a")
			sub := w.sub("q", "T", "b")
			sub.NotBefore = w.now.Add(time.Hour)
			out, err := w.s.Ingest(w.ctx, []*pg.Submission{sub}, false)
			w.must(err)
			return out[0].ID
		}},
		{"outcome unknown", "outcome_unknown", "nobody knows what came of attempt 1", "asked", "abandon", true, func(w *world) outbox.ID {
			id := w.post("q", "T", "a")[0]
			w.settle(w.answer(w.claim(w.node("n"), everything())[0], nobodyKnows()))
			return id
		}},
		{"its node died", "resuming", "its node n is gone", "", "abandon", true, func(w *world) outbox.ID {
			id := w.post("q", "T", "a")[0]
			w.claim(w.node("n"), everything())
			w.later(time.Minute)
			w.node("m")
			return id
		}},
		{"its node died and was buried", "resuming,no_live_node", "start one", "", "", false, func(w *world) outbox.ID {
			id := w.post("q", "T", "a")[0]
			w.claim(w.node("n"), everything())
			w.later(time.Minute)
			_, err := w.s.Bury(w.ctx)
			w.must(err)
			n, err := w.s.Release(w.ctx)
			w.must(err)
			if n != 1 {
				w.t.Fatalf("released %d", n)
			}
			return id
		}},
		{"waits for inclusion", "inclusion_pending", "not included yet", "asked again", "", true, func(w *world) outbox.ID {
			id := w.post("q", "T", "a")[0]
			w.settle(w.answer(w.claim(w.node("n"), everything())[0], hashed()))
			return id
		}},
		{"inclusion overdue", "inclusion_overdue", "retried as soon as", "asked again", "abandon", false, func(w *world) outbox.ID {
			id := w.post("q", "T", "a")[0]
			w.settle(w.answer(w.claim(w.node("n"), everything())[0], hashed()))
			w.later(5 * time.Hour)
			w.node("m")
			return id
		}},
		{"held for an operator", "inclusion_overdue", "for an operator", "asked again", "abandon", false, func(w *world) outbox.ID {
			w.dispatcher("R", func(d *outbox.Dispatcher) { d.Replaceable = false })
			id := w.post("q", "R", "a")[0]
			w.settle(w.answer(w.claim(w.node("n"), everything())[0], hashed()))
			w.later(5 * time.Hour)
			w.node("m")
			return id
		}},
		{"retry", "retry_delay", "attempt 1 failed: sending (20203)", "attempt 2", "retry", false, func(w *world) outbox.ID {
			id := w.post("q", "T", "a")[0]
			w.settle(w.answer(w.claim(w.node("n"), everything())[0], failed()))
			return id
		}},
		{"retry with a sender", "retry_delay", "", "attempt 2 by sender acct-1", "retry", false, func(w *world) outbox.ID {
			w.dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "p" })
			w.sender("p", "acct-1")
			id := w.post("q", "S", "a")[0]
			w.settle(w.answer(w.claim(w.node("n"), everything())[0], failed()))
			return id
		}},
		{"retry with the fee of what follows", "retry_delay", "", "attempt 2 with fee 110", "retry", false, func(w *world) outbox.ID {
			w.dispatcher("F", func(d *outbox.Dispatcher) { d.Fee.Initial = "100" })
			id := w.post("q", "F", "a")[0]
			w.settle(w.answer(w.claim(w.node("n"), everything())[0], failed()))
			return id
		}},
		{"second behind a retry", "head_of_line,retry_delay", "", "attempt 2", "retry", false, func(w *world) outbox.ID {
			ids := w.post("q", "T", "a", "b")
			w.settle(w.answer(w.claim(w.node("n"), everything())[0], failed()))
			return ids[1]
		}},
		{"cancel pending", "retry_delay", "wants it cancelled", "CANCELLED", "abandon", false, func(w *world) outbox.ID {
			id := w.post("q", "T", "a")[0]
			w.settle(w.answer(w.claim(w.node("n"), everything())[0], failed()))
			w.lever(w.s.Cancel(w.ctx, w.by, id))
			return id
		}},
		{"unordered", "lane_turn", "nothing", "", "", true, func(w *world) outbox.ID {
			w.node("n")
			return w.post("", "T", "a")[0]
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.dispatcher("T", nil)
			id := c.make(w)
			y, err := w.s.Why(w.ctx, w.id, id)
			w.must(err)
			var kinds []string
			for _, b := range y.Blockers {
				kinds = append(kinds, b.Kind)
				if b.Object == "" || b.Since.IsZero() || b.Since.After(w.now.Add(time.Millisecond)) { // a queue's times rise by microseconds

					t.Errorf("%s: object %q since %s", b.Kind, b.Object, b.Since)
				}
			}
			if got := strings.Join(kinds, ","); got != c.kinds {
				t.Fatalf("%s, want %s: %+v", got, c.kinds, y)
			}
			root := y.Blockers[len(y.Blockers)-1]
			if !strings.Contains(root.Detail, c.detail) {
				t.Errorf("detail %q, want %q", root.Detail, c.detail)
			}
			if root.Next != nil && root.Next.At.Before(w.now) {
				t.Errorf("%s was to happen at %s", root.Next.What, root.Next.At)
			}
			if (root.Next != nil) != (c.next != "") || c.next != "" && (!strings.Contains(root.Next.What, c.next) || root.Next.At.IsZero()) {
				t.Errorf("next %+v, want %q", root.Next, c.next)
			}
			if (len(root.Levers) > 0) != (c.lever != "") || c.lever != "" && !strings.HasSuffix(root.Levers[0].Path, c.lever) {
				t.Errorf("levers %+v, want %q", root.Levers, c.lever)
			}
			if y.Moving != c.moving {
				t.Errorf("moving %v: %+v", y.Moving, y)
			}
			if len(y.Summary) < 10 || y.State != string(w.state(id)) {
				t.Errorf("%s: %q", y.State, y.Summary)
			}
		})
	}
}

func TestWhyOfAQueueIsThatOfItsHead(t *testing.T) {
	w := newWorld(t)
	w.dispatcher("T", nil)
	w.post("q", "T", "a")
	l := w.claim(w.node("n"), everything())
	y, err := w.s.WhyQueue(w.ctx, w.id, "q")
	w.must(err)
	if y.Blockers[0].Kind != "in_worker" {
		t.Errorf("%+v", y)
	}
	w.settle(w.answer(l[0], done()))
	y, err = w.s.WhyQueue(w.ctx, w.id, "q")
	w.must(err)
	if len(y.Blockers) != 0 || !strings.Contains(y.Summary, "nothing waits") {
		t.Errorf("%+v", y)
	}
}

func TestHistoryAndAttemptsTellTheWholeLife(t *testing.T) {
	w := newWorld(t)
	w.dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "p"; d.Retry.Kind = "fixed" })
	w.sender("p", "acct-1")
	id := w.post("q", "S", "a")[0]
	n := w.node("n")
	events := func() string {
		t.Helper()
		h, err := w.s.History(w.ctx, w.id, id)
		w.must(err)
		var list []string
		state := ""
		for i, x := range h {
			list = append(list, x.Event+">"+x.To)
			if x.From != state || i > 0 && x.At.Before(h[i-1].At) {
				t.Errorf("line %d goes on from %q at %s: %+v", i, state, x.At, h)
			}
			state = x.To
		}
		if state != string(w.state(id)) {
			t.Errorf("the history ends in %s, the transaction is %s", state, w.state(id))
		}
		return strings.Join(list, " ")
	}
	want := func(list string, attempts int) {
		t.Helper()
		if got := events(); got != list {
			t.Errorf("history\n%s, want\n%s", got, list)
		}
		d, err := w.s.Attempts(w.ctx, w.id, id)
		w.must(err)
		if len(d) != attempts {
			t.Errorf("%d attempts, want %d: %+v", len(d), attempts, d)
		}
	}
	want("Posted>WAITING", 0)
	l := w.claim(n, everything())
	want("Posted>WAITING SenderBound>DISPATCHING", 1)
	w.later(time.Second)
	w.settle(w.answer(l[0], failed()))
	story := "Posted>WAITING SenderBound>DISPATCHING DispatchError>RETRY"
	want(story, 1)
	w.later(time.Minute)
	wk, err := w.s.Wake(w.ctx, n, 10, 10)
	w.must(err)
	if len(wk.Leases) != 1 {
		t.Fatalf("woken: %+v", wk)
	}
	step := sequencer.Elapsed(wk.Leases[0].Flight(outbox.DefaultMaxRetries), nil, wk.Leases[0].Dispatcher.Dispatcher, 0.5)
	out := w.settle(&pg.Answer{Lease: wk.Leases[0], Step: step, Continue: true})
	if out[0].Next == nil {
		t.Fatalf("%+v", out)
	}
	story += " DelayElapsed>DISPATCHING"
	want(story, 2)
	w.later(time.Second)
	w.settle(w.answer(out[0].Next, hashed()))
	story += " Accepted>REVISION"
	want(story, 2)
	w.later(time.Minute)
	_, err = w.s.Abandon(w.ctx, w.by, id)
	w.must(err)
	story += " Abandoned>UNRESOLVED"
	want(story, 2)
	list, err := w.s.Attempts(w.ctx, w.id, id)
	w.must(err)
	if d := list[1]; d.Answered == nil || d.Answered.Sub(*d.StartedAt) >= time.Minute {
		t.Errorf("its worker accepted it a minute before it was abandoned: %+v", d)
	}
	h, err := w.s.History(w.ctx, w.id, id)
	w.must(err)
	if last := h[len(h)-1]; last.By != "test" || last.Detail != "because" {
		t.Errorf("who abandoned it: %+v", last)
	}
	acc, err := w.s.Redrive(w.ctx, w.by, id, pg.Redrive{})
	w.must(err)
	if h, err = w.s.History(w.ctx, w.id, id); err != nil || !strings.Contains(h[len(h)-1].Detail, acc.ID.String()) || h[len(h)-1].Event != "redrive" {
		t.Errorf("%+v %v", h[len(h)-1], err)
	}
	if _, err = w.s.Redrive(w.ctx, w.by, id, pg.Redrive{}); err == nil || !strings.Contains(err.Error(), acc.ID.String()) {
		t.Errorf("redriven twice: %v", err)
	}
}

func TestATimedBlockKeepsItsReason(t *testing.T) {
	w := newWorld(t)
	w.sender("p", "acct-1")
	for _, until := range []time.Time{w.now.Add(time.Hour), pg.Forever} {
		w.lever(w.s.BlockSender(w.ctx, w.by, "acct-1", until))
		v, err := w.s.Sender(w.ctx, w.id, "acct-1")
		w.must(err)
		if v.BlockReason != "blocked: because" || v.BlockedUntil == nil || !v.BlockedUntil.Equal(until) {
			t.Errorf("until %s: %q, %v", until, v.BlockReason, v.BlockedUntil)
		}
	}
}

func TestWhyCountsInEnglish(t *testing.T) {
	w := newWorld(t)
	w.dispatcher("T", nil)
	ids := w.post("q", "T", "a", "b", "c")
	for i, want := range []string{"WAITING; 1 stands before this one", "WAITING; 2 stand before this one"} {
		y, err := w.s.Why(w.ctx, w.id, ids[i+1])
		w.must(err)
		if y.Blockers[0].Detail != want {
			t.Errorf("%q, want %q", y.Blockers[0].Detail, want)
		}
	}
}

func TestRetryNowSaysWhatItChanged(t *testing.T) {
	w := newWorld(t)
	w.dispatcher("T", func(d *outbox.Dispatcher) { d.Retry.Kind = "fixed" })
	ids := w.post("q", "T", "a")
	ids = append(ids, w.post("r", "T", "b")...)
	for _, l := range w.claim(w.node("n"), everything()) {
		w.settle(w.answer(l, failed()))
	}
	for i, want := range []bool{true, false} { // the second time its delay is over already
		if r, err := w.s.RetryNow(w.ctx, w.by, ids[0]); err != nil || r.Changed != want {
			t.Errorf("%d: %+v %v", i, r, err)
		}
	}
	w.lever(w.s.Cancel(w.ctx, w.by, ids[1]))
	if r, err := w.s.RetryNow(w.ctx, w.by, ids[1]); err != nil || r.Changed {
		t.Errorf("one that is to be cancelled: %+v %v", r, err)
	}
}

func TestNextAtIsTheNextQuestion(t *testing.T) {
	w := newWorld(t)
	w.dispatcher("T", nil)
	next := func(id outbox.ID) time.Duration {
		t.Helper()
		v, err := w.s.Transaction(w.ctx, w.id, id)
		w.must(err)
		q, err := w.s.Queue(w.ctx, w.id, v.Queue)
		w.must(err)
		if v.NextAt == nil || q.NextAt == nil || !q.NextAt.Equal(*v.NextAt) {
			t.Fatalf("%s: %v, its queue: %v", v.State, v.NextAt, q.NextAt)
		}
		return v.NextAt.Sub(w.now)
	}
	a, b := w.post("q", "T", "a")[0], w.post("r", "T", "b")[0]
	for _, l := range w.claim(w.node("n"), everything()) {
		if l.ID() == a {
			w.settle(w.answer(l, hashed()))
		} else {
			x := w.answer(l, nobodyKnows())
			x.Step.Delay = 8 * time.Second
			w.settle(x)
		}
	}
	if got := next(a); got != 10*time.Second {
		t.Errorf("the next poll is in %s", got)
	}
	if got := next(b); got != 8*time.Second {
		t.Errorf("the worker is asked again in %s", got)
	}
}
