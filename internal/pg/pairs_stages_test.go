package pg_test

import (
	"slices"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
)

// stage is a state of queue q in which statements meet.
type stage struct {
	name string
	set  func(a *arena)
	ops  func(a *arena) []op
}

// flying posts to q, claims it and works the first n off: a lazy run, whose row still names the first.
func (a *arena) flying(n int, uids ...string) {
	a.t.Helper()
	a.ids = a.post("q", "T", uids...)
	a.lease = a.claim(a.n1, everything())[0]
	for range n {
		a.lease = a.settle(a.answer(a.lease, done()))[0].Next
	}
}

// failing brings q into DELAY with its timer due.
func (a *arena) failing() {
	a.flying(0, "a", "b", "c")
	a.settle(a.answer(a.lease, outbox.Answer{Class: outbox.ClassRetry, Code: "20203", Message: "failed"}))
	a.later(time.Minute)
	a.stale()
}

var inHand = []op{claim, wake, release, bury, beat, giveUp, handBack, pause, ingestOne}

var stages = []stage{
	{"ready",
		func(a *arena) { a.ids = a.post("q", "T", "a", "b", "c") },
		func(a *arena) []op {
			return []op{claim, wake, release, reap, pause, resume, hurry, ingestOne, ingestTwo, cancel(0), cancel(1), cancel(2), cancelAll, suspend(0), suspend(1), place(1, 0), place(2, 1), placeFirst(2), elsewhere(0), elsewhere(1)}
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
			_, err := a.s.Cancel(a.ctx, a.by, a.ids[1])
			a.must(err)
			a.stale()
		},
		func(a *arena) []op {
			return slices.Concat(inHand, a.dispatched("done", "back", "failed", "blocked"), []op{abandon(0), cancel(2), cancel(3)})
		}},
	{"with all behind cancelled",
		func(a *arena) {
			a.flying(0, "a", "b")
			_, err := a.s.Cancel(a.ctx, a.by, a.ids[1])
			a.must(err)
			a.stale()
		},
		func(a *arena) []op { return slices.Concat(inHand, a.dispatched("done", "back"), []op{abandon(0)}) }},
	{"of a dead node",
		func(a *arena) {
			a.flying(1, "a", "b", "c")
			a.stale()
			_, err := a.s.Bury(a.ctx)
			a.must(err)
		},
		func(a *arena) []op {
			return slices.Concat([]op{claim, wake, release, beat, giveUp, handBack, pause, hurry, ingestOne, abandon(1), cancel(2)},
				a.dispatched("done", "failed", "blocked"))
		}},
	{"in the lane resume",
		func(a *arena) {
			a.flying(1, "a", "b", "c")
			_, err := a.s.GiveUpAll(a.ctx, a.n1)
			a.must(err)
		},
		func(a *arena) []op {
			return slices.Concat([]op{claim, wake, release, pause, hurry, ingestOne, abandon(1), cancel(2)}, a.dispatched("done", "failed"))
		}},
	{"waiting to ask",
		func(a *arena) {
			a.flying(0, "a", "b")
			a.settle(a.answer(a.lease, outbox.Answer{Class: outbox.ClassAmbiguous, Code: "timeout", Message: "who knows"}))
		},
		func(a *arena) []op { return []op{claim, wake, release, pause, ingestOne, abandon(0), cancel(1)} }},
	{"submitted",
		func(a *arena) {
			a.flying(0, "a", "b", "c")
			a.settle(a.answer(a.lease, outbox.Answer{Result: outbox.Result{Hash: "0xab"}}))
			a.later(time.Minute)
			w, err := a.s.Wake(a.ctx, a.n1, 10, 10)
			a.must(err)
			a.lease = w.Polls[0]
			a.later(time.Minute)
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
			w, err := a.s.Wake(a.ctx, a.n1, 10, 10)
			a.must(err)
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
			a.post("p", "T", "c")
			a.other = a.claim(a.n1, everything())[0]
			a.ids = append(a.ids, a.postAll(dependent("r", "x", "a", "c"))[0].ID)
		},
		func(a *arena) []op {
			return slices.Concat([]op{claim, release, giveUp, cancel(2), settleOther(done()), settleOther(outbox.Answer{Class: outbox.ClassRejected, Code: "500"})},
				a.dispatched("done", "rejected"))
		}},
	{"with a suspended head",
		func(a *arena) {
			a.ids = a.post("q", "T", "a", "b", "c")
			_, err := a.s.Suspend(a.ctx, a.by, a.ids[0])
			a.must(err)
		},
		func(a *arena) []op {
			return []op{claim, wake, release, pause, resume, hurry, ingestOne, suspend(0), suspend(1), resumeOne(0), cancel(0), cancel(1), cancelAll}
		}},
	{"with one placed ahead",
		func(a *arena) {
			a.ids = a.post("q", "T", "a", "b", "c")
			_, err := a.s.Move(a.ctx, a.by, a.ids[2], pg.Place{})
			a.must(err)
		},
		func(a *arena) []op {
			return []op{claim, wake, release, pause, hurry, ingestOne, cancel(0), cancel(2), suspend(0), suspend(2), place(1, 0), placeFirst(0), placeFirst(1)}
		}},
	{"placed and in flight",
		func(a *arena) {
			a.ids = a.post("q", "T", "a", "b", "c")
			_, err := a.s.Move(a.ctx, a.by, a.ids[2], pg.Place{})
			a.must(err)
			a.lease = a.claim(a.n1, everything())[0]
			a.stale()
		},
		func(a *arena) []op {
			return slices.Concat(inHand, a.dispatched("done", "back", "failed", "rejected", "blocked", "accepted"), []op{abandon(2), cancel(0), place(1, 0), placeFirst(1)})
		}},
	{"suspended in flight",
		func(a *arena) {
			a.flying(0, "a", "b", "c")
			_, err := a.s.Suspend(a.ctx, a.by, a.ids[0])
			a.must(err)
			a.stale()
		},
		func(a *arena) []op {
			return slices.Concat(inHand, a.dispatched("done", "back", "failed", "blocked", "ambiguous"), []op{abandon(0), suspend(1), resumeOne(0), cancel(1)})
		}},
	{"suspended after a delay",
		func(a *arena) {
			a.failing()
			_, err := a.s.Suspend(a.ctx, a.by, a.ids[0])
			a.must(err)
			w, err := a.s.Wake(a.ctx, a.n1, 10, 10)
			a.must(err)
			a.lease = w.Leases[0]
		},
		func(a *arena) []op {
			return slices.Concat(inHand, []op{a.elapsed(), cancel(0), abandon(0), retryNow(0), resumeOne(0), suspend(1)})
		}},
	{"parked",
		func(a *arena) {
			a.failing()
			_, err := a.s.Suspend(a.ctx, a.by, a.ids[0])
			a.must(err)
			w, err := a.s.Wake(a.ctx, a.n1, 10, 10)
			a.must(err)
			a.lease = w.Leases[0]
			a.elapsed().run(a, a.s)
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
			a.dispatched("held")[0].run(a, a.s)
		},
		func(a *arena) []op {
			return slices.Concat([]op{claim, wake, release, giveUp, pause, ingestOne, cancel(0), cancel(1), abandon(0), wasDone(0), wasNotDone(0), suspend(0),
				resumeOne(0)}, a.dispatched("held", "done"))
		}},
	{"idle",
		func(a *arena) {
			a.flying(0, "a")
			a.settle(a.answer(a.lease, done()))
		},
		func(a *arena) []op {
			return []op{claim, wake, release, reap, pause, hurry, ingestOne, ingestTwo, cancel(0)}
		}},
	{"reaped",
		func(a *arena) {
			a.flying(0, "a")
			a.settle(a.answer(a.lease, done()))
			_, err := a.s.Reap(a.ctx, a.now.Add(time.Hour), 10)
			a.must(err)
		},
		func(a *arena) []op { return []op{reap, pause, hurry, ingestOne, ingestTwo} }},
	{"held until its time",
		func(a *arena) {
			sub := a.sub("q", "T", "a")
			sub.NotBefore = a.now.Add(time.Second)
			out, err := a.s.Ingest(a.ctx, []*pg.Submission{sub, a.sub("q", "T", "b")}, false)
			a.must(err)
			a.ids = []outbox.ID{out[0].ID, out[1].ID}
			a.later(2 * time.Second)
		},
		func(a *arena) []op { return []op{claim, wake, release, pause, ingestOne, cancel(0), cancel(1)} }},
	{"with a worker that was away",
		func(a *arena) {
			a.flying(0, "a", "b")
			lease := a.lease
			a.post("r", "T", "c")
			a.settle(a.answer(a.claim(a.n1, everything())[0], outbox.Answer{Class: outbox.ClassBlocked, Code: "connection_refused", Message: "away"}))
			a.lease = lease
			a.later(2 * time.Second)
		},
		func(a *arena) []op {
			return slices.Concat([]op{claim, wake, release, pauseType, cancel(1)}, a.dispatched("done", "back", "blocked"))
		}},
	{"of an exclusive type",
		func(a *arena) {
			a.dispatcher("T", func(d *outbox.Dispatcher) { d.Pool, d.Exclusive = "p", "type" })
			a.post("r", "T", "c")
			a.flying(0, "a", "b")
		},
		func(a *arena) []op {
			return slices.Concat([]op{claim, wake, release, giveUp, handBack, pauseType, abandon(0), cancel(1)}, a.dispatched("done", "accepted", "failed", "blocked"))
		}},
	{"of an exclusive type that nobody holds",
		func(a *arena) {
			a.dispatcher("T", func(d *outbox.Dispatcher) { d.Pool, d.Exclusive = "p", "type" })
			a.ids = a.post("q", "T", "a", "b")
			a.post("r", "T", "c")
		},
		func(a *arena) []op { return []op{claim, wake, pauseType, drainSender} }},
}
