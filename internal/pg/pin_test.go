package pg_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/sequencer"
)

// saysBlocked is an answer of the worker itself. Like lost it did nothing, and may stand before a call that did.
func saysBlocked() outbox.Answer {
	return outbox.Answer{Class: outbox.ClassBlocked, Code: "BUSY", Message: "not now", Told: true}
}

func gatewaySays503() outbox.Answer {
	return outbox.Answer{Class: outbox.ClassBlocked, Code: "http_503", Message: "the worker answered HTTP 503"}
}

// twoSenders is a world with a pool of acct-1, which takes the first claim, and acct-2; each has a worker of its own,
// so that one that is away closes no gate of the type.
func twoSenders(t *testing.T) (*world, pg.Node) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "p" })
	for _, a := range []string{"acct-1", "acct-2"} {
		_, err := w.S.PutSender(w.Ctx, w.By, pg.Sender{Account: a, Pool: "p", WorkerURL: "http://127.0.0.1:9/" + a}, 0)
		w.Must(err)
	}
	return w, w.Node("n")
}

// reached ends the backoff of all senders, as time does.
func (w *world) reached() {
	w.T.Helper()
	_, err := w.S.Pool().Exec(w.Ctx, `UPDATE postern.sender SET blocked_until = NULL, block_reason = ''
		WHERE block_reason = 'worker_unreachable'`)
	w.Must(err)
}

// neverSaw is what follows when the worker is asked about a call, and does not know its token.
func neverSaw(l *pg.Lease) sequencer.Step {
	return sequencer.Asked(l.Flight(2), outbox.Status{State: outbox.StatusUnknown}, l.Dispatcher.Dispatcher, 0.5)
}

func by(leases []*pg.Lease) (list []string) {
	for _, l := range leases {
		list = append(list, l.Task.UID+" by "+l.Account)
	}
	return list
}

// Which sender may take a transaction after what its calls were answered: acct-1 is called first each time.
func TestWhoeverWasCalledForATokenSendsIt(t *testing.T) {
	for name, c := range map[string]struct {
		answers []outbox.Answer
		any     bool
	}{
		"nothing was written":                         {[]outbox.Answer{pgworld.Lost()}, true},
		"the worker says that nothing was done":       {[]outbox.Answer{saysBlocked()}, true},
		"both":                                        {[]outbox.Answer{saysBlocked(), pgworld.Lost()}, true},
		"a 503 without a body":                        {[]outbox.Answer{gatewaySays503()}, false},
		"a 503, then a refused connection":            {[]outbox.Answer{gatewaySays503(), pgworld.Lost()}, false},
		"a 503, then the worker's own word":           {[]outbox.Answer{gatewaySays503(), saysBlocked(), pgworld.Lost()}, false},
		"no answer, then a refused connection":        {[]outbox.Answer{pgworld.NobodyKnows(), pgworld.Lost()}, false},
		"a refused connection, then a 503, and again": {[]outbox.Answer{pgworld.Lost(), gatewaySays503(), pgworld.Lost()}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w, n := twoSenders(t)
			w.Post("q", "S", "a")
			l := w.Claim(n, pgworld.Everything())[0]
			account := l.Account
			for _, a := range c.answers {
				if l == nil {
					w.reached()
					_, err := w.S.PauseSender(w.Ctx, w.By, theOther(account), true)
					w.Must(err)
					l = w.Claim(n, pgworld.Everything())[0]
					_, err = w.S.PauseSender(w.Ctx, w.By, theOther(account), false)
					w.Must(err)
				}
				called := w.Answer(l, a)
				if a.Class == outbox.ClassAmbiguous { // the worker is asked, and never saw the token: it is sent again
					called.Step = neverSaw(l)
					called.Unclear = &a
				}
				l = w.Settle(called)[0].Next
			}
			w.reached()
			_, err := w.S.PauseSender(w.Ctx, w.By, account, true)
			w.Must(err)
			got, want := by(w.Claim(n, pgworld.Everything())), []string(nil)
			if c.any {
				want = []string{"a by " + theOther(account)}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("got %v, want %v", got, want)
			}
			if !c.any {
				_, err = w.S.PauseSender(w.Ctx, w.By, account, false)
				w.Must(err)
				if got := by(w.Claim(n, pgworld.Everything())); !slices.Equal(got, []string{"a by " + account}) {
					t.Fatal(got)
				}
			}
			pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
		})
	}
}

func theOther(account string) string {
	if account == "acct-1" {
		return "acct-2"
	}
	return "acct-1"
}

// pinnedTo calls the head of queue q by a sender. The answer leaves unknown whether the call had an effect, so that the
// head is pinned to that sender.
func (w *world) pinnedTo(n pg.Node) (id outbox.ID, account string) {
	w.T.Helper()
	id = w.Post("q", "S", "a")[0]
	l := w.Claim(n, pgworld.Everything())[0]
	w.Settle(w.Answer(l, gatewaySays503()))
	w.reached()
	return id, l.Account
}

// A sender is free for others while a transaction that is pinned to it waits, and this one keeps no transaction from
// the other sender.
func TestAPinnedTransactionHoldsNeitherItsSenderNorItsLane(t *testing.T) {
	w, n := twoSenders(t)
	id, account := w.pinnedTo(n)
	_, err := w.S.PauseSender(w.Ctx, w.By, account, true)
	w.Must(err)
	w.Post("r", "S", "b", "b2")
	got := w.Claim(n, pgworld.Everything())
	if !slices.Equal(by(got), []string{"b by " + theOther(account)}) {
		t.Fatal(by(got))
	}
	_, err = w.S.PauseSender(w.Ctx, w.By, account, false)
	w.Must(err)
	w.Settle(w.Answer(w.Claim(n, pgworld.Everything())[0], gatewaySays503())) // called again, and pinned still
	w.Lever(w.S.PauseQueue(w.Ctx, w.By, "q", true))
	w.reached()
	w.Ingest(w.S, w.pinned("s", "mine", account))
	if got := w.Claim(n, pgworld.Everything()); !slices.Equal(by(got), []string{"mine by " + account}) { // free for others
		t.Fatal(by(got))
	}
	w.Lever(w.S.PauseQueue(w.Ctx, w.By, "q", false))
	w.Settle(w.Answer(got[0], pgworld.Done()))
	if got := w.Claim(n, pgworld.Everything()); len(got) > 0 {
		t.Fatal(by(got))
	}
	why, err := w.S.Reads.Why(w.Ctx, w.ID, id)
	w.Must(err)
	b := why.Blockers[0]
	if b.Kind != "pinned_sender_busy" ||
		!strings.Contains(b.Detail, "only "+account+" may send attempt 1, since it was called for it") ||
		!strings.Contains(b.Detail, "it serves queue s") {
		t.Errorf("%+v", b)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

func (w *world) pinnedSub(queue, uid, account string) *pg.Submission {
	return w.pinned(queue, uid, account)
}

// A transaction that is pinned to a sender is taken by no other one, whatever an operator does to the sender. /why
// names the blocker and the lever.
func TestWhatIsPinnedWaitsForASenderThatIsTakenAway(t *testing.T) {
	for name, c := range map[string]struct {
		do     func(w *world, account string) error
		goes   bool // it takes what is pinned to it all the same
		detail string
		lever  string
		undo   func(w *world, account string) error
	}{
		"paused": {func(w *world, a string) error { _, err := w.S.PauseSender(w.Ctx, w.By, a, true); return err }, false, "and it is paused", "/resume",
			func(w *world, a string) error { _, err := w.S.PauseSender(w.Ctx, w.By, a, false); return err }},
		"drained": {func(w *world, a string) error { _, err := w.S.DrainSender(w.Ctx, w.By, a); return err }, true, "", "", nil},
		"blocked": {func(w *world, a string) error { _, err := w.S.BlockSender(w.Ctx, w.By, a, pg.Forever); return err }, false,
			"and it is blocked until somebody unblocks it", "/unblock",
			func(w *world, a string) error { _, err := w.S.UnblockSender(w.Ctx, w.By, a); return err }},
		"removed": {func(w *world, a string) error { return w.S.RemoveSender(w.Ctx, w.By, a) }, false, "and it was removed", "",
			func(w *world, a string) error {
				_, err := w.S.PutSender(w.Ctx, w.By, pg.Sender{Account: a, Pool: "p"}, 0)
				return err
			}},
		"in another pool": {func(w *world, a string) error {
			_, err := w.S.PutSender(w.Ctx, w.By, pg.Sender{Account: a, Pool: "q"}, 0)
			return err
		}, true, "", "", nil},
		"its type has another pool": {func(w *world, _ string) error {
			w.Sender("other", "acct-9")
			w.Dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "other" })
			return nil
		}, true, "", "", nil},
		"its type needs no sender any more": {func(w *world, _ string) error { w.Dispatcher("S", nil); return nil }, true, "", "", nil},
		"its type is exclusive": {func(w *world, a string) error {
			w.Dispatcher("S", func(d *outbox.Dispatcher) { d.Pool, d.Exclusive = "p", "type" })
			_, err := w.S.PauseSender(w.Ctx, w.By, a, true)
			return err
		}, false, "and it is paused", "/resume",
			func(w *world, a string) error { _, err := w.S.PauseSender(w.Ctx, w.By, a, false); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			w, n := twoSenders(t)
			id, account := w.pinnedTo(n)
			w.Must(c.do(w, account))
			w.Must(w.S.Refresh(w.Ctx))
			_, err := w.S.Relane(w.Ctx)
			w.Must(err)
			if c.goes {
				if got := by(w.Claim(n, pgworld.Everything())); !slices.Equal(got, []string{"a by " + account}) {
					t.Fatal(got)
				}
				pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
				return
			}
			if got := by(w.Claim(n, pgworld.Everything())); len(got) > 0 {
				t.Fatal(got)
			}
			why, err := w.S.Reads.Why(w.Ctx, w.ID, id)
			w.Must(err)
			b := why.Blockers[0]
			if b.Kind != "sender_blocked" || !strings.Contains(b.Detail, "only "+account+" may send attempt 1") ||
				!strings.Contains(b.Detail, c.detail) ||
				b.Levers[0].Path != "/senders/"+account+c.lever || !strings.HasSuffix(b.Levers[1].Path, "/cancel") {
				t.Errorf("%+v", b)
			}
			w.Must(c.undo(w, account))
			if got := by(w.Claim(n, pgworld.Everything())); !slices.Equal(got, []string{"a by " + account}) {
				t.Fatal(got)
			}
			pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
		})
	}
}

// A transaction that was called cannot be moved to another queue: there it would have another id, and so another token.
func TestWhatWasCalledIsNotMovedToAnotherQueue(t *testing.T) {
	for _, c := range []struct {
		name, sender string
		answer       outbox.Answer
		moves        bool
	}{
		{"by any sender", "", gatewaySays503(), false},
		{"by the one that the client named", "acct-1", gatewaySays503(), false},
		{"and nothing was written", "", pgworld.Lost(), true},
		{"by the one that the client named, and nothing was written", "acct-1", pgworld.Lost(), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, n := twoSenders(t)
			id := w.Ingest(w.S, w.pinned("q", "a", c.sender))[0].ID
			w.Settle(w.Answer(w.Claim(n, pgworld.Everything())[0], c.answer))
			_, err := w.S.MoveTo(w.Ctx, w.By, id, "elsewhere", nil)
			if c.moves != (err == nil) || err != nil && !strings.Contains(err.Error(), "has been out before") {
				t.Error(err)
			}
			pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
		})
	}
}

// A node dies in its call, and the node that goes on hears that the worker never saw the token. The transaction stays
// with its sender, also after a refused connection.
func TestWhatADeadNodeCalledStaysWithItsSender(t *testing.T) {
	w, n := twoSenders(t)
	w.Post("q", "S", "a")
	account := w.Claim(n, pgworld.Everything())[0].Account
	w.Later(time.Hour)
	_, err := w.S.Bury(w.Ctx)
	w.Must(err)
	m := w.Node("m")
	_, err = w.S.Release(w.Ctx)
	w.Must(err)
	l := w.Claim(m, pgworld.Everything())[0]
	if !l.Resume || l.Account != account {
		t.Fatalf("%+v", l)
	}
	asked := w.Answer(l, pgworld.Done())
	asked.Result, asked.Step = outbox.Result{}, neverSaw(l)
	w.Settle(w.Answer(w.Settle(asked)[0].Next, pgworld.Lost()))
	w.reached()
	w.Lever(w.S.PauseSender(w.Ctx, w.By, account, true))
	if got := by(w.Claim(m, pgworld.Everything())); len(got) > 0 {
		t.Fatal(got)
	}
	w.Lever(w.S.PauseSender(w.Ctx, w.By, account, false))
	if got := by(w.Claim(m, pgworld.Everything())); !slices.Equal(got, []string{"a by " + account}) {
		t.Fatal(got)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

// Cancel and redrive are how an operator who knows what the sender did has another one send it: under another token.
func TestARedriveOfWhatWasPinnedHasAnotherToken(t *testing.T) {
	w, n := twoSenders(t)
	id, account := w.pinnedTo(n)
	w.Must(w.S.RemoveSender(w.Ctx, w.By, account))
	_, err := w.S.Cancel(w.Ctx, w.By, id)
	w.Must(err)
	_, err = w.S.Redrive(w.Ctx, w.By, id, pg.Redrive{})
	w.Must(err)
	got := w.Claim(n, pgworld.Everything())
	if len(got) != 1 || got[0].Account != theOther(account) || got[0].ID() == id {
		t.Fatal(by(got))
	}
}

// A pinned transaction competes for its sender with the transactions that any sender of the pool may take. The one that
// has waited longer is first, so that neither starves.
func TestWhatWaitsLongerForASenderGoesFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "p" })
	w.Sender("p", "acct-1")
	n := w.Node("n")
	w.Post("q", "S", "a")
	l := w.Claim(n, pgworld.Everything())[0]
	for i, uid := range []string{"b", "c", "d"} {
		if w.Post(uid, "S", uid); i == 1 {
			w.Later(time.Second)
			w.Settle(w.Answer(l, outbox.Answer{Class: outbox.ClassBlocked, Code: "BUSY", Until: w.Now}))
			w.Later(time.Second)
		}
	}
	var order []string
	for range 4 {
		w.Later(time.Minute) // the gate of the type
		got := w.Claim(n, pgworld.Everything())
		if len(got) != 1 {
			t.Fatal(by(got))
		}
		order = append(order, got[0].Task.UID)
		w.Settle(w.Answer(got[0], pgworld.Done()))
	}
	if !slices.Equal(order, []string{"b", "c", "a", "d"}) {
		t.Errorf("went out in the order %v", order)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}

// However many wait at the front of an exclusive lane for a sender that cannot be taken, the one behind them goes out.
func TestManyThatArePinnedDoNotHoldAnExclusiveLane(t *testing.T) {
	w, n := twoSenders(t)
	w.Dispatcher("S", func(d *outbox.Dispatcher) { d.Pool, d.Exclusive = "p", "type" })
	_, err := w.S.PauseSender(w.Ctx, w.By, "acct-2", true)
	w.Must(err)
	w.Must(w.S.Refresh(w.Ctx))
	for i := range 12 {
		w.Post(fmt.Sprint("q", i), "S", fmt.Sprint("x", i))
	}
	for range 12 { // each is called once, by the only one that can be taken
		w.Settle(w.Answer(w.Claim(n, pgworld.Everything())[0], gatewaySays503()))
		w.reached()
	}
	var pins int
	w.Scan(`SELECT count(*) FROM postern.queue WHERE pin_sender_id IS NOT NULL`, &pins)
	w.Lever(w.S.PauseSender(w.Ctx, w.By, "acct-1", true))
	w.Lever(w.S.PauseSender(w.Ctx, w.By, "acct-2", false))
	w.Later(time.Second)
	w.Post("last", "S", "last")
	if got := by(w.Claim(n, pgworld.Everything())); pins != 12 || !slices.Equal(got, []string{"last by acct-2"}) {
		t.Fatalf("%v, behind %d that are pinned", got, pins)
	}
	pgworld.HoldsTrue(t, w.Ctx, w.S.Pool())
}
