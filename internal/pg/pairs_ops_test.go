package pg_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/internal/fault"
	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pg/stores"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/sequencer"
)

func refusal(err error) string {
	if err == nil {
		return ""
	}
	if code := fault.CodeOf(err); code != "" {
		return " " + code
	}
	return " " + err.Error()
}

func opIngest(name string, subs func(a *arena) []*pg.Submission) op {
	return op{name: name, run: func(a *arena, s *stores.Store) string {
		out, err := s.Ingest(a.Ctx, subs(a), false)
		said := refusal(err)
		for _, o := range out {
			said += fmt.Sprintf(" %d/%d %v%s", o.ID.Queue, o.ID.Seq, o.Replay, refusal(o.Err))
		}
		return said
	}}
}

var (
	ingestOne = opIngest("ingest", func(a *arena) []*pg.Submission { return []*pg.Submission{a.Sub("q", "T", "x")} })
	ingestTwo = opIngest("ingest in two queues", func(a *arena) []*pg.Submission {
		return []*pg.Submission{a.Sub("r", "T", "y"), a.Sub("q", "T", "x"), a.Sub("q", "T", "z")}
	})
)

// opDepend posts one that depends on another.
func opDepend(name, queue, on string) op {
	return opIngest(name, func(a *arena) []*pg.Submission {
		s := dependent(queue, "w-"+queue, on)
		s.ContextID = a.ID
		return []*pg.Submission{s}
	})
}

// settleOther settles an answer to the other lease of the stage.
func settleOther(answer outbox.Answer) op {
	return op{name: "settle the other " + string(answer.Class), run: func(a *arena, s *stores.Store) string {
		out, err := s.Settle(a.Ctx, []*pg.Answer{a.Answer(a.other, answer)})
		if err != nil {
			return refusal(err)
		}
		return fmt.Sprintf("fenced=%v", out[0].Fenced) + refusal(out[0].Err)
	}}
}

func leases(list []*pg.Lease) string {
	var out []string
	for _, l := range list {
		out = append(out, fmt.Sprintf("%d/%d %s a%d %s", l.ID().Queue, l.ID().Seq, l.Phase, l.Attempt, l.Account))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

var (
	claim = op{name: "claim", skips: true, run: func(a *arena, s *stores.Store) string {
		l, _, err := s.Claim(a.Ctx, a.n2, pgworld.Everything())
		return leases(l) + refusal(err)
	}}
	wake = op{name: "wake", skips: true, run: func(a *arena, s *stores.Store) string {
		w, err := s.Wake(a.Ctx, a.n2, 10, 10)
		return leases(w.Leases) + "; polls " + leases(w.Polls) + refusal(err)
	}}
	release = op{name: "release", skips: true, run: func(a *arena, s *stores.Store) string {
		n, err := s.Release(a.Ctx)
		return fmt.Sprint(n) + refusal(err)
	}}
	reap = op{name: "reap", skips: true, run: func(a *arena, s *stores.Store) string {
		n, err := s.Reap(a.Ctx, a.Now.Add(time.Hour), 10)
		return fmt.Sprint(n) + refusal(err)
	}}
	bury = op{name: "bury", run: func(a *arena, s *stores.Store) string {
		p, err := s.Peers(a.Ctx, pg.Node{})
		if err != nil {
			return refusal(err)
		}
		n, err := s.BuryThose(a.Ctx, p.Others)
		return fmt.Sprint(n) + refusal(err)
	}}
	beat = op{name: "beat", run: func(a *arena, s *stores.Store) string {
		alive, err := s.Beat(a.Ctx, a.n1, pg.NodeLoad{})
		return fmt.Sprint(alive) + refusal(err)
	}}
	giveUp = op{name: "give up", run: func(a *arena, s *stores.Store) string {
		n, err := s.GiveUpAll(a.Ctx, a.n1)
		return fmt.Sprint(n) + refusal(err)
	}}
	handBack = op{name: "hand back what the lease says", skips: true, run: func(a *arena, s *stores.Store) string {
		n, left, err := s.GiveUp(a.Ctx, a.n1, []pg.Fenced{{Queue: a.lease.ID().Queue, Fence: a.lease.Fence}})
		return fmt.Sprint(n, len(left)) + refusal(err)
	}}
	putOff = op{name: "put off the poll", run: func(a *arena, s *stores.Store) string {
		return refusal(s.Polled(a.Ctx, []int64{a.ids[0].Queue}, []time.Duration{time.Minute}, []string{""}))
	}}
)

// claimOf and wakeOf are claim and wake of a node that works on some types alone.
func claimOf(types ...string) op {
	return op{name: "claim of " + strings.Join(types, ", "), skips: true, run: func(a *arena, s *stores.Store) string {
		n := a.n2
		n.Types = types
		l, _, err := s.Claim(a.Ctx, n, pgworld.Everything())
		a.only(types, l)
		return leases(l) + refusal(err)
	}}
}

func wakeOf(types ...string) op {
	return op{name: "wake of " + strings.Join(types, ", "), skips: true, run: func(a *arena, s *stores.Store) string {
		n := a.n2
		n.Types = types
		w, err := s.Wake(a.Ctx, n, 10, 10)
		a.only(types, slices.Concat(w.Leases, w.Polls))
		return leases(w.Leases) + "; polls " + leases(w.Polls) + refusal(err)
	}}
}

// claimLeaving and claimShunning are claims of a node that leaves a type, or the sender acct-1, to other nodes.
var (
	claimLeaving = op{name: "claim but of T", skips: true, run: func(a *arena, s *stores.Store) string {
		room := pgworld.Everything()
		room.Leaves = func(d *pg.Dispatcher) bool { return d.Type == "T" }
		l, _, err := s.Claim(a.Ctx, a.n2, room)
		for _, one := range l {
			if !one.Resume {
				a.T.Errorf("a node that leaves T to others got %s", one.ID())
			}
		}
		return leases(l) + refusal(err)
	}}
	claimShunning = op{name: "claim but by acct-1", skips: true, run: func(a *arena, s *stores.Store) string {
		room := pgworld.Everything()
		room.Shuns = func() (ids []int32) {
			var id int32
			a.Scan(`SELECT sender_id FROM postern.sender WHERE account = 'acct-1'`, &id)
			return append(ids, id)
		}
		l, _, err := s.Claim(a.Ctx, a.n2, room)
		for _, one := range l {
			if !one.Resume && one.Account == "acct-1" {
				a.T.Errorf("a node that leaves acct-1 to others got %s by it", one.ID())
			}
		}
		return leases(l) + refusal(err)
	}}
)

// only fails the test where a node got what is not of its types, whatever another session did meanwhile.
func (a *arena) only(types []string, list []*pg.Lease) {
	for _, l := range list {
		if !slices.Contains(types, l.Task.Type) {
			a.T.Errorf("a node of %s got %s of type %s", types, l.ID(), l.Task.Type)
		}
	}
}

func lever(name string, held int, pull func(a *arena, s *stores.Store) (pg.LeverResult, error)) op {
	return op{name: name, held: held, run: func(a *arena, s *stores.Store) string {
		r, err := pull(a, s)
		return fmt.Sprintf("%v %v", r.Changed, r.Pending) + refusal(err)
	}}
}

// cancel, abandon and retryNow pull a lever on the i-th transaction of queue q.
func cancel(i int) op {
	return lever(fmt.Sprintf("cancel %d", i+1), 1, func(a *arena, s *stores.Store) (pg.LeverResult, error) { return s.Cancel(a.Ctx, a.By, a.ids[i]) })
}

func wasDone(i int) op {
	return lever(fmt.Sprintf("was done %d", i+1), 1, func(a *arena, s *stores.Store) (pg.LeverResult, error) { return s.WasDone(a.Ctx, a.By, a.ids[i]) })
}

func wasNotDone(i int) op {
	return lever(fmt.Sprintf("was not done %d", i+1), 1, func(a *arena, s *stores.Store) (pg.LeverResult, error) { return s.WasNotDone(a.Ctx, a.By, a.ids[i]) })
}

func abandon(i int) op {
	return lever(fmt.Sprintf("abandon %d", i+1), 1, func(a *arena, s *stores.Store) (pg.LeverResult, error) { return s.Abandon(a.Ctx, a.By, a.ids[i]) })
}

func retryNow(i int) op {
	return lever(fmt.Sprintf("retry %d now", i+1), 1, func(a *arena, s *stores.Store) (pg.LeverResult, error) { return s.RetryNow(a.Ctx, a.By, a.ids[i]) })
}

func suspend(i int) op {
	return lever(fmt.Sprintf("suspend %d", i+1), 1, func(a *arena, s *stores.Store) (pg.LeverResult, error) { return s.Suspend(a.Ctx, a.By, a.ids[i]) })
}

func resumeOne(i int) op {
	return lever(fmt.Sprintf("resume %d", i+1), 1, func(a *arena, s *stores.Store) (pg.LeverResult, error) { return s.Resume(a.Ctx, a.By, a.ids[i]) })
}

// place moves the i-th transaction of queue q before the j-th.
func place(i, j int) op {
	return lever(fmt.Sprintf("move %d before %d", i+1, j+1), 1, func(a *arena, s *stores.Store) (pg.LeverResult, error) {
		return s.Move(a.Ctx, a.By, a.ids[i], pg.Place{Before: &a.ids[j]})
	})
}

// elsewhere moves the i-th transaction of queue q to queue r.
func elsewhere(i int) op {
	return lever(fmt.Sprintf("move %d to another queue", i+1), 1, func(a *arena, s *stores.Store) (pg.LeverResult, error) {
		return s.MoveTo(a.Ctx, a.By, a.ids[i], "r", nil)
	})
}

func placeFirst(i int) op {
	return lever(fmt.Sprintf("move %d first", i+1), 1, func(a *arena, s *stores.Store) (pg.LeverResult, error) {
		return s.Move(a.Ctx, a.By, a.ids[i], pg.Place{})
	})
}

var (
	// the first commit of these makes the row of a reaped queue
	pause  = lever("pause", 2, func(a *arena, s *stores.Store) (pg.LeverResult, error) { return s.PauseQueue(a.Ctx, a.By, "q", true) })
	resume = lever("resume", 2, func(a *arena, s *stores.Store) (pg.LeverResult, error) { return s.PauseQueue(a.Ctx, a.By, "q", false) })
	hurry  = op{name: "put priority High", held: 2, run: func(a *arena, s *stores.Store) string {
		_, err := s.PutQueue(a.Ctx, a.By, pg.Queue{Name: "q", Priority: "High", WhenFull: "refuse", OnFailure: "continue"}, 0)
		return refusal(err)
	}}
)

// cancelAll cancels all of queue q in one commit.
var cancelAll = op{name: "cancel all", run: func(a *arena, s *stores.Store) string {
	done, err := s.Bulk(a.Ctx, a.By, a.ids, false, s.Cancel)
	said := refusal(err)
	for _, p := range done {
		said += fmt.Sprintf(" %d %v", p.ID.Seq, p.Changed)
		if p.Refused != nil {
			said += " " + p.Refused.Code
		}
	}
	return said
}}

var pauseType = lever("pause the type", 1, func(a *arena, s *stores.Store) (pg.LeverResult, error) {
	return s.PauseDispatcher(a.Ctx, a.By, "T", true)
})

// openType puts the type as it is, which opens its gate.
var openType = op{name: "put the type", run: func(a *arena, s *stores.Store) string {
	d := s.DispatcherOf(a.ID, "T")
	_, err := s.PutDispatcher(a.Ctx, a.By, d.Dispatcher, 0)
	return refusal(err)
}}

var drainSender = lever("drain a sender", 1, func(a *arena, s *stores.Store) (pg.LeverResult, error) { return s.DrainSender(a.Ctx, a.By, "acct-1") })

// answered settles the answer of that name to the lease in hand.
func answered(name string) op {
	return op{name: "settle " + name, run: func(a *arena, s *stores.Store) string {
		out, err := s.Settle(a.Ctx, []*pg.Answer{a.answers[name]})
		if err != nil {
			return refusal(err)
		}
		said := fmt.Sprintf("fenced=%v", out[0].Fenced) + refusal(out[0].Err)
		if out[0].Next != nil {
			said += " next " + leases([]*pg.Lease{out[0].Next})
		}
		return said
	}}
}

// dispatched prepares the answers to a dispatch of the lease in hand, and returns their settles.
func (a *arena) dispatched(names ...string) []op {
	all := map[string]outbox.Answer{
		"done":      pgworld.Done(),
		"back":      pgworld.Done(),
		"accepted":  {Result: outbox.Result{Hash: "0xab", Nonce: "7"}},
		"failed":    {Class: outbox.ClassRetry, Code: "20203", Message: "failed"},
		"rejected":  {Class: outbox.ClassRejected, Code: "500", Message: "no"},
		"blocked":   {Class: outbox.ClassBlocked, Code: "connection_refused", Message: "away"},
		"ambiguous": {Class: outbox.ClassAmbiguous, Code: "timeout", Message: "who knows"},
		"held":      {Class: outbox.ClassAmbiguous, Code: "timeout", Message: "who knows"},
		"left":      {Class: outbox.ClassBlocked, Code: "address_refused", Message: "not by this node", Unsent: true},
	}
	var ops []op
	for _, name := range names {
		ans := a.Answer(a.lease, all[name])
		if name == "held" { // its worker cannot be asked
			ans.Step = sequencer.Asked(a.lease.Flight(2), outbox.Status{State: outbox.StatusUnsupported}, a.lease.Dispatcher.Dispatcher, 0.5)
		}
		if name == "left" { // to another node, which may call it
			ans.Step.Blocks, ans.Step.Delay, ans.Gate = "", 0, sequencer.MovePass
		}
		ans.Continue = name != "back"
		a.answers[name] = ans
		ops = append(ops, answered(name))
	}
	return ops
}

// polled prepares the answers to a poll of the lease in hand, and returns their settles.
func (a *arena) polled(names ...string) []op {
	all := map[string]outbox.Status{
		"included": {State: outbox.StatusIncluded, Hash: "0xab", BlockHeight: "12"},
		"dropped":  {State: outbox.StatusFailed, Hash: "0xab", FailureReason: "out of gas"},
	}
	var ops []op
	for _, name := range names {
		a.answers[name] = &pg.Answer{Lease: a.lease, Continue: true, Gate: sequencer.MoveOpen, BlockHeight: all[name].BlockHeight, Result: outbox.Result{Hash: "0xab"},
			Step: sequencer.Polled(a.lease.Flight(2), all[name], a.lease.Dispatcher.Dispatcher, 0.5)}
		ops = append(ops, answered(name))
	}
	return ops
}

// elapsed prepares the settle of a delay that is over.
func (a *arena) elapsed(earlier ...outbox.Status) op {
	a.answers["elapsed"] = &pg.Answer{Lease: a.lease, Continue: true, Gate: sequencer.MoveOpen,
		Step: sequencer.Elapsed(a.lease.Flight(2), earlier, a.lease.Dispatcher.Dispatcher, 0.5)}
	return answered("elapsed")
}
