package pg_test

import (
	"slices"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/pgtest/pgworld"
	"github.com/postern-dev/postern/internal/sequencer"
)

// stage is a state of queue q in which statements meet.
type stage struct {
	name string
	set  func(a *arena)
	ops  func(a *arena) []op
}

// flying posts to q, claims it and works the first n off: a lazy run, whose row still names the first.
func (a *arena) flying(n int, uids ...string) {
	a.T.Helper()
	a.ids = a.Post("q", "T", uids...)
	a.lease = a.Claim(a.n1, pgworld.Everything())[0]
	for range n {
		a.lease = a.Settle(a.Answer(a.lease, pgworld.Done()))[0].Next
	}
}

// failing brings q into DELAY with its timer due.
func (a *arena) failing() {
	a.flying(0, "a", "b", "c")
	a.Settle(a.Answer(a.lease, outbox.Answer{Class: outbox.ClassRetry, Code: "20203", Message: "failed"}))
	a.Later(time.Minute)
	a.stale()
}

// mixed posts to q one of each type, and claims the first.
func (a *arena) mixed(types ...string) {
	a.T.Helper()
	a.Dispatcher("U", nil)
	for i, typ := range types {
		a.ids = append(a.ids, a.Post("q", typ, string(rune('a'+i)))[0])
	}
	a.lease = a.Claim(a.n1, pgworld.Everything())[0]
}

// ofTypes are statements of nodes that work on some types alone, beside those that move a queue to its next type.
var ofTypes = []op{claim, wake, claimOf("T"), wakeOf("T"), claimOf("U"), wakeOf("U"), release, cancel(0), cancel(1),
	abandon(0), suspend(0)}

// shut closes the gate of a type, and lets the time come at which one probe goes out. Two queues stand in its lane: one
// whose call closed it, and one that has not been called.
func (a *arena) shut(typ string) {
	a.T.Helper()
	a.ids = a.Post("q", typ, "a", "b")
	a.Settle(a.Answer(a.Claim(a.n1, pgworld.Everything())[0], pgworld.Lost()))
	a.Post("r", typ, "c")
	a.Post("p", typ, "d")
	a.Later(2 * time.Second)
}

// probing lets the probe of a closed gate out.
func (a *arena) probing() {
	a.T.Helper()
	a.shut("T")
	out := a.Claim(a.n1, pgworld.Everything())
	if len(out) != 1 || !out[0].Probe || out[0].Queue == "q" {
		a.T.Fatalf("the probe is %s", leases(out))
	}
	a.lease = out[0]
}

var inHand = []op{claim, wake, release, bury, beat, giveUp, handBack, pause, ingestOne}

var stages = []stage{
	{"ready",
		func(a *arena) { a.ids = a.Post("q", "T", "a", "b", "c") },
		func(a *arena) []op {
			return []op{claim, claimLeaving, claimShunning, wake, release, reap, pause, resume, hurry, ingestOne,
				ingestTwo, cancel(0), cancel(1), cancel(2), cancelAll, suspend(0), suspend(1), place(1, 0), place(2, 1),
				placeFirst(2), elsewhere(0), elsewhere(1)}
		}},
	{"in the middle of a lazy run",
		func(a *arena) { a.flying(1, "a", "b", "c", "d"); a.stale() },
		func(a *arena) []op {
			return slices.Concat(inHand, a.dispatched("done", "back", "accepted", "failed", "rejected", "blocked", "ambiguous"),
				[]op{abandon(1), cancel(2), cancel(3), cancelAll, hurry, suspend(1), suspend(2), place(3, 2), placeFirst(3), elsewhere(2)})
		}},
	{"at the end of a lazy run",
		func(a *arena) { a.flying(1, "a", "b"); a.stale() },
		func(a *arena) []op {
			return slices.Concat(inHand, a.dispatched("done", "back", "blocked"), []op{abandon(1), ingestTwo, reap})
		}},
	{"with a cancelled one behind",
		func(a *arena) {
			a.flying(0, "a", "b", "c", "d")
			_, err := a.S.Cancel(a.Ctx, a.By, a.ids[1])
			a.Must(err)
			a.stale()
		},
		func(a *arena) []op {
			return slices.Concat(inHand, a.dispatched("done", "back", "failed", "blocked"), []op{abandon(0), cancel(2), cancel(3)})
		}},
	{"with all behind cancelled",
		func(a *arena) {
			a.flying(0, "a", "b")
			_, err := a.S.Cancel(a.Ctx, a.By, a.ids[1])
			a.Must(err)
			a.stale()
		},
		func(a *arena) []op { return slices.Concat(inHand, a.dispatched("done", "back"), []op{abandon(0)}) }},
	{"of a dead node",
		func(a *arena) {
			a.flying(1, "a", "b", "c")
			a.stale()
			_, err := a.S.Bury(a.Ctx)
			a.Must(err)
		},
		func(a *arena) []op {
			return slices.Concat([]op{claim, wake, release, beat, giveUp, handBack, pause, hurry, ingestOne, abandon(1), cancel(2)},
				a.dispatched("done", "failed", "blocked"))
		}},
	{"in the lane resume",
		func(a *arena) {
			a.flying(1, "a", "b", "c")
			_, err := a.S.GiveUpAll(a.Ctx, a.n1)
			a.Must(err)
		},
		func(a *arena) []op {
			return slices.Concat([]op{claim, wake, release, pause, hurry, ingestOne, abandon(1), cancel(2)}, a.dispatched("done", "failed"))
		}},
	{"waiting to ask",
		func(a *arena) {
			a.flying(0, "a", "b")
			a.Settle(a.Answer(a.lease, outbox.Answer{Class: outbox.ClassAmbiguous, Code: "timeout", Message: "who knows"}))
		},
		func(a *arena) []op { return []op{claim, wake, release, pause, ingestOne, abandon(0), cancel(1)} }},
	{"submitted",
		func(a *arena) {
			a.flying(0, "a", "b", "c")
			a.Settle(a.Answer(a.lease, outbox.Answer{Result: outbox.Result{Hash: "0xab"}}))
			a.Later(time.Minute)
			w, err := a.S.Wake(a.Ctx, a.n1, 10, 10)
			a.Must(err)
			a.lease = w.Polls[0]
			a.Later(time.Minute)
		},
		func(a *arena) []op {
			return slices.Concat([]op{claim, wake, release, pause, putOff, ingestOne, abandon(0), cancel(1)}, a.polled("included", "dropped"))
		}},
	{"in delay", func(a *arena) { a.failing() },
		func(a *arena) []op {
			return []op{claim, wake, release, pause, ingestOne, cancel(0), cancel(1), abandon(0), retryNow(0)}
		}},
	{"after a delay",
		func(a *arena) {
			a.failing()
			w, err := a.S.Wake(a.Ctx, a.n1, 10, 10)
			a.Must(err)
			a.lease = w.Leases[0]
		},
		func(a *arena) []op {
			return slices.Concat(inHand, []op{a.elapsed(), cancel(0), cancel(1), abandon(0), retryNow(0)})
		}},
	{"watched by others",
		func(a *arena) {
			a.flying(0, "a", "b")
			for _, s := range []*pg.Submission{dependent("r", "x", "a"), dependent("r", "y"), dependent("s", "z", "x")} {
				a.ids = append(a.ids, a.postAll(s)[0].ID)
			}
			a.stale()
		},
		func(a *arena) []op {
			return slices.Concat(inHand, a.dispatched("done", "rejected", "failed", "back"), []op{abandon(0), cancel(1), cancel(2), cancel(4), elsewhere(1),
				opDepend("depend on it", "s", "a"), opDepend("depend on its dependent", "q", "x")})
		}},
	{"that others wait for twice",
		func(a *arena) {
			a.flying(0, "a", "b")
			a.Post("p", "T", "c")
			a.other = a.Claim(a.n1, pgworld.Everything())[0]
			a.ids = append(a.ids, a.postAll(dependent("r", "x", "a", "c"))[0].ID)
		},
		func(a *arena) []op {
			return slices.Concat([]op{claim, release, giveUp, cancel(2), settleOther(pgworld.Done()), settleOther(outbox.Answer{Class: outbox.ClassRejected, Code: "500"})},
				a.dispatched("done", "rejected"))
		}},
	{"with a suspended head",
		func(a *arena) {
			a.ids = a.Post("q", "T", "a", "b", "c")
			_, err := a.S.Suspend(a.Ctx, a.By, a.ids[0])
			a.Must(err)
		},
		func(a *arena) []op {
			return []op{claim, wake, release, pause, resume, hurry, ingestOne, suspend(0), suspend(1), resumeOne(0), cancel(0), cancel(1), cancelAll}
		}},
	{"with one placed ahead",
		func(a *arena) {
			a.ids = a.Post("q", "T", "a", "b", "c")
			_, err := a.S.Move(a.Ctx, a.By, a.ids[2], pg.Place{})
			a.Must(err)
		},
		func(a *arena) []op {
			return []op{claim, wake, release, pause, hurry, ingestOne, cancel(0), cancel(2), suspend(0), suspend(2), place(1, 0), placeFirst(0), placeFirst(1)}
		}},
	{"placed and in flight",
		func(a *arena) {
			a.ids = a.Post("q", "T", "a", "b", "c")
			_, err := a.S.Move(a.Ctx, a.By, a.ids[2], pg.Place{})
			a.Must(err)
			a.lease = a.Claim(a.n1, pgworld.Everything())[0]
			a.stale()
		},
		func(a *arena) []op {
			return slices.Concat(inHand, a.dispatched("done", "back", "failed", "rejected", "blocked", "accepted"), []op{abandon(2), cancel(0), place(1, 0), placeFirst(1)})
		}},
	{"suspended in flight",
		func(a *arena) {
			a.flying(0, "a", "b", "c")
			_, err := a.S.Suspend(a.Ctx, a.By, a.ids[0])
			a.Must(err)
			a.stale()
		},
		func(a *arena) []op {
			return slices.Concat(inHand, a.dispatched("done", "back", "failed", "blocked", "ambiguous"), []op{abandon(0), suspend(1), resumeOne(0), cancel(1)})
		}},
	{"suspended after a delay",
		func(a *arena) {
			a.failing()
			_, err := a.S.Suspend(a.Ctx, a.By, a.ids[0])
			a.Must(err)
			w, err := a.S.Wake(a.Ctx, a.n1, 10, 10)
			a.Must(err)
			a.lease = w.Leases[0]
		},
		func(a *arena) []op {
			return slices.Concat(inHand, []op{a.elapsed(), cancel(0), abandon(0), retryNow(0), resumeOne(0), suspend(1)})
		}},
	{"parked",
		func(a *arena) {
			a.failing()
			_, err := a.S.Suspend(a.Ctx, a.By, a.ids[0])
			a.Must(err)
			w, err := a.S.Wake(a.Ctx, a.n1, 10, 10)
			a.Must(err)
			a.lease = w.Leases[0]
			a.elapsed().run(a, a.S)
		},
		func(a *arena) []op {
			return []op{claim, wake, release, pause, hurry, ingestOne, cancel(0), cancel(1), abandon(0), retryNow(0), resumeOne(0), suspend(0)}
		}},
	{"about to be held",
		func(a *arena) { a.flying(0, "a", "b") },
		func(a *arena) []op {
			return slices.Concat(inHand, a.dispatched("held", "done"), []op{abandon(0), wasDone(0), wasNotDone(0), suspend(0), cancel(1)})
		}},
	{"held",
		func(a *arena) {
			a.flying(0, "a", "b")
			a.dispatched("held")[0].run(a, a.S)
		},
		func(a *arena) []op {
			return slices.Concat([]op{claim, wake, release, giveUp, pause, ingestOne, cancel(0), cancel(1), abandon(0), wasDone(0), wasNotDone(0), suspend(0),
				resumeOne(0)}, a.dispatched("held", "done"))
		}},
	{"idle",
		func(a *arena) {
			a.flying(0, "a")
			a.Settle(a.Answer(a.lease, pgworld.Done()))
		},
		func(a *arena) []op {
			return []op{claim, wake, release, reap, pause, hurry, ingestOne, ingestTwo, cancel(0)}
		}},
	{"reaped",
		func(a *arena) {
			a.flying(0, "a")
			a.Settle(a.Answer(a.lease, pgworld.Done()))
			_, err := a.S.Reap(a.Ctx, a.Now.Add(time.Hour), 10)
			a.Must(err)
		},
		func(a *arena) []op { return []op{reap, pause, hurry, ingestOne, ingestTwo} }},
	{"held until its time",
		func(a *arena) {
			sub := a.Sub("q", "T", "a")
			sub.NotBefore = a.Now.Add(time.Second)
			out, err := a.S.Ingest(a.Ctx, []*pg.Submission{sub, a.Sub("q", "T", "b")}, false)
			a.Must(err)
			a.ids = []outbox.ID{out[0].ID, out[1].ID}
			a.Later(2 * time.Second)
		},
		func(a *arena) []op { return []op{claim, wake, release, pause, ingestOne, cancel(0), cancel(1)} }},
	{"blocked by itself",
		func(a *arena) {
			a.flying(0, "a", "b")
			blocked := a.Answer(a.lease, outbox.Answer{
				Class:   outbox.ClassBlocked,
				Scope:   outbox.ScopeQueue,
				Code:    "http_503",
				Message: "later",
			})
			blocked.Gate = sequencer.MoveNone
			a.Settle(blocked)
			a.Later(2 * time.Second)
		},
		func(a *arena) []op {
			return []op{claim, wake, release, pause, resume, ingestOne, cancel(0), cancel(1), suspend(0), resumeOne(0),
				retryNow(0), retryNow(1), place(1, 0), elsewhere(1)}
		}},
	{"whose gate lets a probe out", func(a *arena) { a.shut("T") },
		func(a *arena) []op {
			return []op{claim, claimLeaving, claimOf("T"), claimOf("U"), wake, release, pause, pauseType, ingestOne,
				cancel(0), abandon(0), suspend(0), openType, drainSender}
		}},
	{"whose gate lets a probe out, without senders",
		func(a *arena) {
			a.Dispatcher("T", nil)
			a.shut("T")
		},
		func(a *arena) []op {
			return []op{claim, claimOf("T"), wake, release, pauseType, cancel(0), openType}
		}},
	{"with a probe out",
		func(a *arena) {
			a.probing()
			a.stale()
		},
		func(a *arena) []op {
			return slices.Concat(
				[]op{claim, claimLeaving, claimOf("T"), wake, release, bury, giveUp, handBack, pauseType, cancel(0),
					openType},
				a.dispatched("done", "back", "accepted", "failed", "rejected", "blocked", "ambiguous"))
		}},
	{"with a probe out that its node may not make",
		func(a *arena) {
			a.probing()
			a.stale()
		},
		func(a *arena) []op {
			return append(a.dispatched("left"), claim, claimLeaving, wake, release, bury, giveUp, handBack, pauseType,
				cancel(0), openType)
		}}, // no other answer: a call that was not made has none
	{"of a sender whose gate lets a probe out",
		func(a *arena) {
			own := pg.Sender{Account: "acct-1", Pool: "p", WorkerURL: "http://127.0.0.1:2/"}
			_, err := a.S.PutSender(a.Ctx, a.By, own, 0)
			a.Must(err)
			for _, account := range []string{"acct-2", "acct-3"} {
				a.Lever(a.S.PauseSender(a.Ctx, a.By, account, true))
			}
			a.shut("T")
		},
		func(a *arena) []op {
			return []op{claim, claimShunning, claimOf("T"), wake, release, pauseType, cancel(0), drainSender}
		}},
	{"in delay, with another type behind",
		func(a *arena) {
			a.mixed("T", "U", "T")
			a.Settle(a.Answer(a.lease, outbox.Answer{Class: outbox.ClassRetry, Code: "20203", Message: "failed"}))
			a.Later(time.Minute)
			a.stale()
		},
		func(a *arena) []op { return slices.Concat(ofTypes, []op{retryNow(0)}) }},
	{"of a dead node, with another type behind",
		func(a *arena) {
			a.mixed("T", "U", "T")
			_, err := a.S.GiveUpAll(a.Ctx, a.n1)
			a.Must(err)
		},
		func(a *arena) []op { return slices.Concat(ofTypes, a.dispatched("done", "rejected")) }},
	{"submitted, with another type behind",
		func(a *arena) {
			a.mixed("T", "U", "T")
			a.Settle(a.Answer(a.lease, outbox.Answer{Result: outbox.Result{Hash: "0xab"}}))
			a.Later(time.Minute)
			w, err := a.S.Wake(a.Ctx, a.n1, 10, 10)
			a.Must(err)
			a.lease = w.Polls[0]
			a.Later(time.Minute)
		},
		func(a *arena) []op { return slices.Concat(ofTypes, a.polled("included", "dropped")) }},
	{"blocked by itself, with another type behind",
		func(a *arena) {
			a.mixed("T", "U", "T")
			said := outbox.Answer{Class: outbox.ClassBlocked, Scope: outbox.ScopeQueue, Code: "http_503"}
			blocked := a.Answer(a.lease, said)
			blocked.Gate = sequencer.MoveNone
			a.Settle(blocked)
			a.Later(2 * time.Second)
		},
		func(a *arena) []op { return slices.Concat(ofTypes, []op{retryNow(0)}) }},
	{"with a worker that was away",
		func(a *arena) {
			a.flying(0, "a", "b")
			lease := a.lease
			a.Post("r", "T", "c")
			a.Settle(a.Answer(a.Claim(a.n1, pgworld.Everything())[0], outbox.Answer{Class: outbox.ClassBlocked, Code: "connection_refused", Message: "away"}))
			a.lease = lease
			a.Later(2 * time.Second)
		},
		func(a *arena) []op {
			return slices.Concat([]op{claim, wake, release, pauseType, cancel(1)}, a.dispatched("done", "back", "blocked"))
		}},
	{"of an exclusive type",
		func(a *arena) {
			a.Dispatcher("T", func(d *outbox.Dispatcher) { d.Pool, d.Exclusive = "p", "type" })
			a.Post("r", "T", "c")
			a.flying(0, "a", "b")
		},
		func(a *arena) []op {
			return slices.Concat([]op{claim, wake, release, giveUp, handBack, pauseType, abandon(0), cancel(1)}, a.dispatched("done", "accepted", "failed", "blocked"))
		}},
	{"of an exclusive type that nobody holds",
		func(a *arena) {
			a.Dispatcher("T", func(d *outbox.Dispatcher) { d.Pool, d.Exclusive = "p", "type" })
			a.ids = a.Post("q", "T", "a", "b")
			a.Post("r", "T", "c")
		},
		func(a *arena) []op { return []op{claim, wake, pauseType, drainSender} }},
	{"of a lane that types share",
		func(a *arena) {
			a.sharing()
			a.flying(0, "a", "b")
			a.Post("r", "U", "c")
		},
		func(a *arena) []op {
			return slices.Concat([]op{claim, claimOf("T"), claimOf("U"), wake, release, giveUp, handBack, abandon(0), cancel(1)},
				a.dispatched("done", "accepted", "failed", "blocked"))
		}},
	{"of a shared lane that is free",
		func(a *arena) {
			a.sharing()
			a.ids = a.Post("q", "T", "a", "b")
			a.Post("r", "U", "c")
		},
		func(a *arena) []op { return []op{claim, claimOf("T"), claimOf("U"), wake, pauseType} }},
}

// sharing puts two types that exclude each other: the pointer names nothing, so that all have one value.
func (a *arena) sharing() {
	a.T.Helper()
	a.Dispatcher("T", func(d *outbox.Dispatcher) { d.Pool, d.Exclusive = "p", "group:g:/none" })
	a.Dispatcher("U", func(d *outbox.Dispatcher) { d.Pool, d.Exclusive = "p", "group:g:/none" })
}
