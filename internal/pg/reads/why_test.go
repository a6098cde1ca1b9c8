package reads_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/sequencer"
)

// waits are ways in which a transaction can wait, as they are told a moment later.
var waits = []struct {
	name   string
	kinds  string // in order, from the transaction to the root
	detail string // a part of the last one's
	next   string // a part of the last one's next, "" for none
	lever  string // the last one's first, "" for none
	moving bool
	make   func(w *world) outbox.ID
}{
	{"terminal", "terminal", "DONE", "", "", false, func(w *world) outbox.ID {
		ids := w.Post("q", "T", "a")
		w.Settle(w.Answer(w.Claim(w.Node("n"), pgworld.Everything())[0], pgworld.Done()))
		return ids[0]
	}},
	{"cancelled", "terminal", "CANCELLED", "", "redrive", false, func(w *world) outbox.ID {
		ids := w.Post("q", "T", "a", "b")
		w.Lever(w.S.Cancel(w.Ctx, w.By, ids[1]))
		return ids[1]
	}},
	{"its turn", "lane_turn", "nothing is in its way", "", "", true, func(w *world) outbox.ID {
		w.Node("n")
		return w.Post("q", "T", "a")[0]
	}},
	{"others of its lane first", "lane_turn", "another of its lane", "", "", true, func(w *world) outbox.ID {
		w.Node("n")
		w.Post("q", "T", "a")
		w.Later(time.Second)
		return w.Post("r", "T", "b")[0]
	}},
	{"no process works", "no_live_node", "start `postern work`", "", "", false, func(w *world) outbox.ID {
		return w.Post("q", "T", "a")[0]
	}},
	{"the node stopped beating", "no_live_node", "start `postern work`", "", "", false, func(w *world) outbox.ID {
		w.Node("n")
		id := w.Post("q", "T", "a")[0]
		w.Later(time.Minute)
		return id
	}},
	{"held", "not_before", "posted with not_before", "may go out", "cancel", false, func(w *world) outbox.ID {
		w.Node("n")
		sub := w.Sub("q", "T", "a")
		sub.NotBefore = w.Now.Add(time.Hour)
		out, err := w.S.Ingest(w.Ctx, []*pg.Submission{sub}, false)
		w.Must(err)
		return out[0].ID
	}},
	{"queue paused", "queue_paused", "paused by test: because", "", "/queues/q/resume", false,
		func(w *world) outbox.ID {
			w.Node("n")
			id := w.Post("q", "T", "a")[0]
			w.Lever(w.S.PauseQueue(w.Ctx, w.By, "q", true))
			return id
		}},
	{"paused by a failure", "queue_paused", "ended FAILED: never (422)", "", "/queues/q/resume", false,
		func(w *world) outbox.ID {
			_, err := w.S.PutQueue(w.Ctx, w.By, pg.Queue{Name: "q", WhenFull: "refuse", OnFailure: "pause"}, 0)
			w.Must(err)
			ids := w.Post("q", "T", "a", "b")
			l := w.Claim(w.Node("n"), pgworld.Everything())
			w.Settle(w.Answer(l[0], outbox.Answer{Class: outbox.ClassRejected, Code: "422", Message: "never"}))
			return ids[1]
		}},
	{"dispatcher paused", "dispatcher_paused", "paused by test", "", "/dispatchers/T/resume", false,
		func(w *world) outbox.ID {
			w.Node("n")
			id := w.Post("q", "T", "a")[0]
			w.Lever(w.S.PauseDispatcher(w.Ctx, w.By, "T", true))
			return id
		}},
	{"both paused", "queue_paused,dispatcher_paused", "", "", "/dispatchers/T/resume", false, func(w *world) outbox.ID {
		w.Node("n")
		id := w.Post("q", "T", "a")[0]
		w.Lever(w.S.PauseQueue(w.Ctx, w.By, "q", true))
		w.Lever(w.S.PauseDispatcher(w.Ctx, w.By, "T", true))
		return id
	}},
	{"dispatcher removed", "no_dispatcher", "has no dispatcher", "", "/dispatchers/T", false, func(w *world) outbox.ID {
		w.Node("n")
		id := w.Post("q", "T", "a")[0]
		w.Must(w.S.RemoveDispatcher(w.Ctx, w.By, "T", true))
		return id
	}},
	{"worker away", "worker_unreachable", "come to nothing (1 try, since ", "probe", "/dispatchers/T", false,
		func(w *world) outbox.ID {
			id := w.Post("q", "T", "a")[0]
			w.Settle(w.Answer(w.Claim(w.Node("n"), pgworld.Everything())[0], pgworld.Lost()))
			return id
		}},
	{"no senders", "no_free_sender", "has no senders", "", "/senders/ACCOUNT", false, func(w *world) outbox.ID {
		w.Node("n")
		w.Dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "p" })
		return w.Post("q", "S", "a")[0]
	}},
	{"senders serve others", "no_free_sender,in_worker", "", "unknown", "abandon", true, func(w *world) outbox.ID {
		w.Dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "p" })
		w.Sender("p", "acct-1")
		w.Post("q", "S", "a")
		w.Claim(w.Node("n"), pgworld.Everything())
		return w.Post("r", "S", "b")[0]
	}},
	{"all senders blocked", "sender_blocked", "acct-2: it is blocked until", "acct-2 may be used", "/senders/acct-2/unblock", false,
		func(w *world) outbox.ID {
			w.Node("n")
			w.Dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "p" })
			w.Sender("p", "acct-1", "acct-2")
			w.Lever(w.S.BlockSender(w.Ctx, w.By, "acct-1", w.Now.Add(2*time.Hour)))
			w.Lever(w.S.BlockSender(w.Ctx, w.By, "acct-2", w.Now.Add(time.Hour)))
			return w.Post("q", "S", "a")[0]
		}},
	{"the only sender is paused", "sender_blocked", "the only sender of pool p, acct-1, may not be used: it is paused", "", "/senders/acct-1/resume", false,
		func(w *world) outbox.ID {
			w.Node("n")
			w.Dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "p" })
			w.Sender("p", "acct-1")
			w.Lever(w.S.PauseSender(w.Ctx, w.By, "acct-1", true))
			return w.Post("q", "S", "a")[0]
		}},
	{"pinned sender busy", "pinned_sender_busy,in_worker", "", "unknown", "abandon", true, func(w *world) outbox.ID {
		w.Dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "p" })
		w.Sender("p", "acct-1", "acct-2")
		sub := w.Sub("q", "S", "a")
		sub.Sender = "acct-1"
		_, err := w.S.Ingest(w.Ctx, []*pg.Submission{sub}, false)
		w.Must(err)
		w.Claim(w.Node("n"), pgworld.Everything())
		sub = w.Sub("r", "S", "b")
		sub.Sender = "acct-1"
		out, err := w.S.Ingest(w.Ctx, []*pg.Submission{sub}, false)
		w.Must(err)
		return out[0].ID
	}},
	{"pinned sender blocked", "sender_blocked", "only acct-1 may take it, and it is blocked until somebody", "", "unblock", false,
		func(w *world) outbox.ID {
			w.Node("n")
			w.Dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "p" })
			w.Sender("p", "acct-1", "acct-2")
			w.Lever(w.S.BlockSender(w.Ctx, w.By, "acct-1", pg.Forever))
			sub := w.Sub("r", "S", "b")
			sub.Sender = "acct-1"
			out, err := w.S.Ingest(w.Ctx, []*pg.Submission{sub}, false)
			w.Must(err)
			return out[0].ID
		}},
	{"exclusive", "exclusive_busy,in_worker", "", "unknown", "abandon", true, func(w *world) outbox.ID {
		w.Dispatcher("X", func(d *outbox.Dispatcher) { d.Exclusive = "type" })
		w.Post("q", "X", "a")
		w.Claim(w.Node("n"), pgworld.Everything())
		return w.Post("r", "X", "b")[0]
	}},
	{"every slot taken", "no_free_slot,in_worker", "", "unknown", "abandon", true, func(w *world) outbox.ID {
		w.Dispatcher("L", func(d *outbox.Dispatcher) { d.Slots = 1 })
		w.Post("q", "L", "a")
		w.Claim(w.Node("n"), pgworld.Everything())
		return w.Post("r", "L", "b")[0]
	}},
	{"slots of the other node", "lane_turn", "nothing is in its way", "", "", true, func(w *world) outbox.ID {
		w.Dispatcher("L", func(d *outbox.Dispatcher) { d.Slots = 1 })
		w.Post("q", "L", "a")
		w.Claim(w.Node("n"), pgworld.Everything())
		w.Node("m")
		return w.Post("r", "L", "b")[0]
	}},
	{"slots beside those of a dead node", "lane_turn", "nothing is in its way", "", "", true, func(w *world) outbox.ID {
		w.Dispatcher("L", func(d *outbox.Dispatcher) { d.Slots = 1 })
		w.Post("q", "L", "a")
		w.Claim(w.Node("n"), pgworld.Everything())
		_, err := w.S.Pool().Exec(w.Ctx, `UPDATE postern.node SET dead_at = clock_timestamp()`)
		w.Must(err)
		w.Node("m")
		return w.Post("r", "L", "b")[0]
	}},
	{"the sender's own worker is away", "worker_unreachable", "acct-1, may not be used", "acct-1 may be used again", "/senders/acct-1/unblock", false,
		func(w *world) outbox.ID {
			w.Dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "p" })
			own := pg.Sender{Account: "acct-1", Pool: "p", WorkerURL: "http://127.0.0.1:2/"}
			_, err := w.S.PutSender(w.Ctx, w.By, own, 0)
			w.Must(err)
			id := w.Post("q", "S", "a")[0]
			w.Settle(w.Answer(w.Claim(w.Node("n"), pgworld.Everything())[0], pgworld.Lost()))
			return id
		}},
	{"in its worker", "in_worker", "attempt 1 is with its worker, called by node n", "unknown", "abandon", true,
		func(w *world) outbox.ID {
			id := w.Post("q", "T", "a")[0]
			w.Claim(w.Node("n"), pgworld.Everything())
			return id
		}},
	{"in its worker, written lazily", "in_worker", "attempt 1", "unknown", "abandon", true, func(w *world) outbox.ID {
		ids := w.Post("q", "T", "a", "b", "c")
		l := w.Claim(w.Node("n"), pgworld.Everything())
		w.Later(time.Second)
		w.Settle(w.Answer(l[0], pgworld.Done()))
		return ids[1]
	}},
	{"behind the head, written lazily", "head_of_line,in_worker", "", "unknown", "abandon", true,
		func(w *world) outbox.ID {
			ids := w.Post("q", "T", "a", "b", "c")
			w.Settle(w.Answer(w.Claim(w.Node("n"), pgworld.Everything())[0], pgworld.Done()))
			return ids[2]
		}},
	{"behind the head, and its own hold", "head_of_line,not_before,lane_turn", "", "", "", true,
		func(w *world) outbox.ID {
			w.Node("n")
			w.Post("q", "T", "a")
			sub := w.Sub("q", "T", "b")
			sub.NotBefore = w.Now.Add(time.Hour)
			out, err := w.S.Ingest(w.Ctx, []*pg.Submission{sub}, false)
			w.Must(err)
			return out[0].ID
		}},
	{"outcome unknown", "outcome_unknown", "what came of attempt 1 is not known", "asked", "abandon", true,
		func(w *world) outbox.ID {
			id := w.Post("q", "T", "a")[0]
			w.Settle(w.Answer(w.Claim(w.Node("n"), pgworld.Everything())[0], pgworld.NobodyKnows()))
			return id
		}},
	{"its node died", "resuming", "its node n is gone", "", "abandon", true, func(w *world) outbox.ID {
		id := w.Post("q", "T", "a")[0]
		w.Claim(w.Node("n"), pgworld.Everything())
		w.Later(time.Minute)
		w.Node("m")
		return id
	}},
	{"its node died and was buried", "no_live_node,resuming", "its node is gone", "", "abandon", false,
		func(w *world) outbox.ID {
			id := w.Post("q", "T", "a")[0]
			w.Claim(w.Node("n"), pgworld.Everything())
			w.Later(time.Minute)
			_, err := w.S.Bury(w.Ctx)
			w.Must(err)
			n, err := w.S.Release(w.Ctx)
			w.Must(err)
			if n != 1 {
				w.T.Fatalf("released %d", n)
			}
			return id
		}},
	{"waits for inclusion", "inclusion_pending", "not included yet", "asked again", "/abandon", true,
		func(w *world) outbox.ID {
			id := w.Post("q", "T", "a")[0]
			w.Settle(w.Answer(w.Claim(w.Node("n"), pgworld.Everything())[0], pgworld.Hashed()))
			return id
		}},
	{"inclusion overdue", "inclusion_overdue", "retried as soon as", "asked again", "abandon", false,
		func(w *world) outbox.ID {
			id := w.Post("q", "T", "a")[0]
			w.Settle(w.Answer(w.Claim(w.Node("n"), pgworld.Everything())[0], pgworld.Hashed()))
			w.Later(5 * time.Hour)
			w.Node("m")
			return id
		}},
	{"held for an operator", "inclusion_overdue", "for an operator", "asked again", "abandon", false,
		func(w *world) outbox.ID {
			w.Dispatcher("R", func(d *outbox.Dispatcher) { d.Replaceable = false })
			id := w.Post("q", "R", "a")[0]
			w.Settle(w.Answer(w.Claim(w.Node("n"), pgworld.Everything())[0], pgworld.Hashed()))
			w.Later(5 * time.Hour)
			w.Node("m")
			return id
		}},
	{"retry", "retry_delay", "attempt 1 failed: sending (20203)", "attempt 2", "retry", false,
		func(w *world) outbox.ID {
			id := w.Post("q", "T", "a")[0]
			w.Settle(w.Answer(w.Claim(w.Node("n"), pgworld.Everything())[0], pgworld.Failed()))
			return id
		}},
	{"retry with a sender", "retry_delay", "", "attempt 2 by sender acct-1", "retry", false, func(w *world) outbox.ID {
		w.Dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "p" })
		w.Sender("p", "acct-1")
		id := w.Post("q", "S", "a")[0]
		w.Settle(w.Answer(w.Claim(w.Node("n"), pgworld.Everything())[0], pgworld.Failed()))
		return id
	}},
	{"retry with the fee of what follows", "retry_delay", "", "attempt 2 with fee 110", "retry", false,
		func(w *world) outbox.ID {
			w.Dispatcher("F", func(d *outbox.Dispatcher) { d.Fee.Initial = "100" })
			id := w.Post("q", "F", "a")[0]
			w.Settle(w.Answer(w.Claim(w.Node("n"), pgworld.Everything())[0], pgworld.Failed()))
			return id
		}},
	{"second behind a retry", "head_of_line,retry_delay", "", "attempt 2", "retry", false, func(w *world) outbox.ID {
		ids := w.Post("q", "T", "a", "b")
		w.Settle(w.Answer(w.Claim(w.Node("n"), pgworld.Everything())[0], pgworld.Failed()))
		return ids[1]
	}},
	{"cancel pending", "retry_delay", "wants it cancelled", "CANCELLED", "abandon", false, func(w *world) outbox.ID {
		id := w.Post("q", "T", "a")[0]
		w.Settle(w.Answer(w.Claim(w.Node("n"), pgworld.Everything())[0], pgworld.Failed()))
		w.Lever(w.S.Cancel(w.Ctx, w.By, id))
		return id
	}},
	{"unordered", "lane_turn", "nothing", "", "", true, func(w *world) outbox.ID {
		w.Node("n")
		return w.Post("", "T", "a")[0]
	}},
}

// Each case puts a real queue into a state and says what is in the way of the transaction it returns.
func TestWhyNamesWhatIsInTheWay(t *testing.T) {
	for _, c := range waits {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Dispatcher("T", nil)
			id := c.make(w)
			y, err := w.S.Reads.Why(w.Ctx, w.ID, id)
			w.Must(err)
			var kinds []string
			for _, b := range y.Blockers {
				kinds = append(kinds, b.Kind)
				if b.Object == "" || b.Since.IsZero() || b.Since.After(w.Now.Add(time.Millisecond)) { // a queue's times rise by microseconds

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
			if root.Next != nil && root.Next.At.Before(w.Now) {
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
			if len(y.Summary) < 10 || y.State != string(w.State(id)) {
				t.Errorf("%s: %q", y.State, y.Summary)
			}
		})
	}
}

func TestWhyOfAQueueIsThatOfItsHead(t *testing.T) {
	w := newWorld(t)
	w.Dispatcher("T", nil)
	w.Post("q", "T", "a")
	l := w.Claim(w.Node("n"), pgworld.Everything())
	y, err := w.S.Reads.WhyQueue(w.Ctx, w.ID, "q")
	w.Must(err)
	if y.Blockers[0].Kind != "in_worker" {
		t.Errorf("%+v", y)
	}
	w.Settle(w.Answer(l[0], pgworld.Done()))
	y, err = w.S.Reads.WhyQueue(w.Ctx, w.ID, "q")
	w.Must(err)
	if len(y.Blockers) != 0 || !strings.Contains(y.Summary, "nothing waits") {
		t.Errorf("%+v", y)
	}
}

func TestHistoryAndAttemptsTellTheWholeLife(t *testing.T) {
	w := newWorld(t)
	w.Dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "p"; d.Retry.Kind = "fixed" })
	w.Sender("p", "acct-1")
	id := w.Post("q", "S", "a")[0]
	n := w.Node("n")
	events := func() string {
		t.Helper()
		h, err := w.S.Reads.History(w.Ctx, w.ID, id)
		w.Must(err)
		var list []string
		state := ""
		for i, x := range h {
			list = append(list, x.Event+">"+x.To)
			if x.From != state || i > 0 && x.At.Before(h[i-1].At) {
				t.Errorf("line %d goes on from %q at %s: %+v", i, state, x.At, h)
			}
			state = x.To
		}
		if state != string(w.State(id)) {
			t.Errorf("the history ends in %s, the transaction is %s", state, w.State(id))
		}
		return strings.Join(list, " ")
	}
	want := func(list string, attempts int) {
		t.Helper()
		if got := events(); got != list {
			t.Errorf("history\n%s, want\n%s", got, list)
		}
		d, err := w.S.Reads.Attempts(w.Ctx, w.ID, id, 0, 500)
		w.Must(err)
		if len(d) != attempts {
			t.Errorf("%d attempts, want %d: %+v", len(d), attempts, d)
		}
	}
	want("Posted>WAITING", 0)
	l := w.Claim(n, pgworld.Everything())
	want("Posted>WAITING SenderBound>DISPATCHING", 1)
	w.Later(time.Second)
	w.Settle(w.Answer(l[0], pgworld.Failed()))
	story := "Posted>WAITING SenderBound>DISPATCHING DispatchError>RETRY"
	want(story, 1)
	w.Later(time.Minute)
	wk, err := w.S.Wake(w.Ctx, n, 10, 10)
	w.Must(err)
	if len(wk.Leases) != 1 {
		t.Fatalf("woken: %+v", wk)
	}
	step := sequencer.Elapsed(wk.Leases[0].Flight(2), nil, wk.Leases[0].Dispatcher.Dispatcher, 0.5)
	out := w.Settle(&pg.Answer{Lease: wk.Leases[0], Step: step, Continue: true})
	if out[0].Next == nil {
		t.Fatalf("%+v", out)
	}
	story += " DelayElapsed>DISPATCHING"
	want(story, 2)
	w.Later(time.Second)
	w.Settle(w.Answer(out[0].Next, pgworld.Hashed()))
	story += " Accepted>REVISION"
	want(story, 2)
	w.Later(time.Minute)
	_, err = w.S.Abandon(w.Ctx, w.By, id)
	w.Must(err)
	story += " Abandoned>UNRESOLVED"
	want(story, 2)
	list, err := w.S.Reads.Attempts(w.Ctx, w.ID, id, 0, 500)
	w.Must(err)
	if d := list[1]; d.Answered == nil || d.Answered.Sub(*d.StartedAt) >= time.Minute {
		t.Errorf("its worker accepted it a minute before it was abandoned: %+v", d)
	}
	h, err := w.S.Reads.History(w.Ctx, w.ID, id)
	w.Must(err)
	if last := h[len(h)-1]; last.By != "test" || last.Detail != "because" {
		t.Errorf("who abandoned it: %+v", last)
	}
	acc, err := w.S.Redrive(w.Ctx, w.By, id, pg.Redrive{})
	w.Must(err)
	if h, err = w.S.Reads.History(w.Ctx, w.ID, id); err != nil || !strings.Contains(h[len(h)-1].Detail, acc.ID.String()) || h[len(h)-1].Event != "redrive" {
		t.Errorf("%+v %v", h[len(h)-1], err)
	}
	if _, err = w.S.Redrive(w.Ctx, w.By, id, pg.Redrive{}); err == nil || !strings.Contains(err.Error(), acc.ID.String()) {
		t.Errorf("redriven twice: %v", err)
	}
}

func TestATimedBlockKeepsItsReason(t *testing.T) {
	w := newWorld(t)
	w.Sender("p", "acct-1")
	for _, until := range []time.Time{w.Now.Add(time.Hour), pg.Forever} {
		w.Lever(w.S.BlockSender(w.Ctx, w.By, "acct-1", until))
		v, err := w.S.Sender(w.Ctx, w.ID, "acct-1")
		w.Must(err)
		if v.BlockReason != "blocked: because" || v.BlockedUntil == nil || !v.BlockedUntil.Equal(until) {
			t.Errorf("until %s: %q, %v", until, v.BlockReason, v.BlockedUntil)
		}
	}
}

func TestWhyCountsInEnglish(t *testing.T) {
	w := newWorld(t)
	w.Dispatcher("T", nil)
	ids := w.Post("q", "T", "a", "b", "c")
	for i, want := range []string{"WAITING; 1 stands before this one", "WAITING; 2 stand before this one"} {
		y, err := w.S.Reads.Why(w.Ctx, w.ID, ids[i+1])
		w.Must(err)
		if y.Blockers[0].Detail != want {
			t.Errorf("%q, want %q", y.Blockers[0].Detail, want)
		}
	}
}

func TestRetryNowSaysWhatItChanged(t *testing.T) {
	w := newWorld(t)
	w.Dispatcher("T", func(d *outbox.Dispatcher) { d.Retry.Kind = "fixed" })
	ids := w.Post("q", "T", "a")
	ids = append(ids, w.Post("r", "T", "b")...)
	for _, l := range w.Claim(w.Node("n"), pgworld.Everything()) {
		w.Settle(w.Answer(l, pgworld.Failed()))
	}
	for i, want := range []bool{true, false} { // the second time its delay is over already
		if r, err := w.S.RetryNow(w.Ctx, w.By, ids[0]); err != nil || r.Changed != want {
			t.Errorf("%d: %+v %v", i, r, err)
		}
	}
	w.Lever(w.S.Cancel(w.Ctx, w.By, ids[1]))
	if r, err := w.S.RetryNow(w.Ctx, w.By, ids[1]); err != nil || r.Changed {
		t.Errorf("one that is to be cancelled: %+v %v", r, err)
	}
}

func TestNextAtIsTheNextQuestion(t *testing.T) {
	w := newWorld(t)
	w.Dispatcher("T", nil)
	next := func(id outbox.ID) time.Duration {
		t.Helper()
		v, err := w.S.Transaction(w.Ctx, w.ID, id)
		w.Must(err)
		q, err := w.S.Queue(w.Ctx, w.ID, v.Queue)
		w.Must(err)
		if v.NextAt == nil || q.NextAt == nil || !q.NextAt.Equal(*v.NextAt) {
			t.Fatalf("%s: %v, its queue: %v", v.State, v.NextAt, q.NextAt)
		}
		return v.NextAt.Sub(w.Now)
	}
	a, b := w.Post("q", "T", "a")[0], w.Post("r", "T", "b")[0]
	for _, l := range w.Claim(w.Node("n"), pgworld.Everything()) {
		if l.ID() == a {
			w.Settle(w.Answer(l, pgworld.Hashed()))
		} else {
			x := w.Answer(l, pgworld.NobodyKnows())
			x.Step.Delay = 8 * time.Second
			w.Settle(x)
		}
	}
	if got := next(a); got != 10*time.Second {
		t.Errorf("the next poll is in %s", got)
	}
	if got := next(b); got != 8*time.Second {
		t.Errorf("the worker is asked again in %s", got)
	}
}
