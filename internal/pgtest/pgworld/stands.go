package pgworld

import (
	"slices"
	"time"

	"github.com/postern-dev/postern/internal/outbox"
	"github.com/postern-dev/postern/internal/pg"
	"github.com/postern-dev/postern/internal/sequencer"
)

// Beats has a node say what it works on, as a heartbeat does.
func (w *World) Beats(n pg.Node, says pg.NodeLoad) {
	w.T.Helper()
	alive, err := w.S.Beat(w.Ctx, n, says)
	w.Must(err)
	if !alive {
		w.T.Fatal("it was buried")
	}
}

// Typed registers a node that works on some types alone.
func (w *World) Typed(name string, types ...string) pg.Node {
	w.T.Helper()
	n := w.Node(name)
	n.Types = types
	return n
}

// Failed is an answer after which a transaction is retried.
func Failed() outbox.Answer {
	return outbox.Answer{Class: outbox.ClassRetry, Code: "20203", Message: "sending"}
}

// Hashed is an answer after which the chain is watched.
func Hashed() outbox.Answer {
	return outbox.Answer{Result: outbox.Result{Hash: "0xabc", Nonce: "7", Fee: "110"}}
}

// Named posts a transaction with a sender that alone may take it.
func (w *World) Named(queue, typ, uid, account string) outbox.ID {
	w.T.Helper()
	sub := w.Sub(queue, typ, uid)
	sub.Sender = account
	return w.Ingest(w.S, sub)[0].ID
}

// Stand is a way in which a head can stand. Make puts a real queue there; Stood does so and lets three seconds pass.
type Stand struct {
	Name  string
	Kinds string // of what is in the way, in order
	Said  string // a part of the summary
	Lever string // the last part of the path of the first lever of the last blocker that has one; "" for none
	Make  func(w *World) outbox.ID
}

// Stood puts a head where it stands, has all nodes beat, and lets three seconds pass.
func (w *World) Stood(c Stand) outbox.ID {
	w.T.Helper()
	w.Dispatcher("T", nil)
	id := c.Make(w)
	w.Later(3 * time.Second)
	w.Exec(`UPDATE postern.node SET heartbeat_at = $1 WHERE dead_at IS NULL`, w.Now)
	return id
}

// Stands are the ways in which a head can stand.
var Stands = slices.Concat(often, asked, rare)

var often = []Stand{
	{"no process is alive", "no_live_node", "start `postern work`", "", func(w *World) outbox.ID {
		return w.Post("q", "T", "a")[0]
	}},
	{"all processes drain", "no_live_node", "is draining", "/nodes/n/resume", func(w *World) outbox.ID {
		w.Node("n")
		w.Lever(w.S.DrainNode(w.Ctx, w.By, "n", true))
		return w.Post("q", "T", "a")[0]
	}},
	{"no process works on its type", "no_node_for_type",
		"no live process works on type T (n takes A, B): start `postern work --types T`", "",
		func(w *World) outbox.ID {
			w.Beats(w.Typed("n", "A", "B"), pg.NodeLoad{Concurrency: 10})
			return w.Post("q", "T", "a")[0]
		}},
	{"the only process of its type drains", "no_node_for_type",
		"every process that works on type T is draining", "/nodes/n/resume",
		func(w *World) outbox.ID {
			w.Beats(w.Typed("m", "A"), pg.NodeLoad{Concurrency: 10})
			w.Node("n")
			w.Lever(w.S.DrainNode(w.Ctx, w.By, "n", true))
			return w.Post("q", "T", "a")[0]
		}},
	{"the process has no room", "node_full,in_worker", "n has 1 of 1 out", "/abandon", func(w *World) outbox.ID {
		n := w.Node("n")
		w.Post("p", "T", "a")
		w.Claim(n, Everything())
		id := w.Post("q", "T", "b")[0]
		w.Beats(n, pg.NodeLoad{Concurrency: 1, Calls: 1})
		return id
	}},
	{"its row is locked", "unclaimed", "SELECT pg_terminate_backend(", "/nodes", func(w *World) outbox.ID {
		w.Node("n")
		id := w.Post("q", "T", "a")[0]
		tx := w.Begin(w.Second(1))
		_, err := tx.Exec(w.Ctx, `SELECT FROM postern.queue FOR UPDATE`)
		w.Must(err)
		time.Sleep(2100 * time.Millisecond) // the session's clock is that of the database
		return id
	}},
	{"nothing is known to be in its way", "unclaimed", "look at the log of n", "/nodes", func(w *World) outbox.ID {
		w.Node("n")
		return w.Post("q", "T", "a")[0]
	}},
	{"others of its lane go first", "lane_turn", "another of its lane goes first", "", func(w *World) outbox.ID {
		w.Node("n")
		w.Post("p", "T", "a")
		w.Later(time.Second)
		return w.Post("q", "T", "b")[0]
	}},
	{"its queue is paused", "queue_paused", "paused by test: because", "/queues/q/resume", func(w *World) outbox.ID {
		w.Node("n")
		id := w.Post("q", "T", "a")[0]
		w.Lever(w.S.PauseQueue(w.Ctx, w.By, "q", true))
		return id
	}},
	{"a failure paused its queue", "queue_paused", "ended FAILED: never (422)", "/queues/q/resume",
		func(w *World) outbox.ID {
			_, err := w.S.PutQueue(w.Ctx, w.By, pg.Queue{Name: "q", WhenFull: "refuse", OnFailure: "pause"}, 0)
			w.Must(err)
			ids := w.Post("q", "T", "a", "b")
			l := w.Claim(w.Node("n"), Everything())
			w.Settle(w.Answer(l[0], outbox.Answer{Class: outbox.ClassRejected, Code: "422", Message: "never"}))
			return ids[1]
		}},
	{"its type is paused", "dispatcher_paused", "paused by test", "/dispatchers/T/resume", func(w *World) outbox.ID {
		w.Node("n")
		w.Lever(w.S.PauseDispatcher(w.Ctx, w.By, "T", true))
		return w.Post("q", "T", "a")[0]
	}},
	{"its context is paused", "context_paused", "paused by test", "/contexts/default/resume", func(w *World) outbox.ID {
		w.Node("n")
		w.Lever(w.S.PauseContext(w.Ctx, w.By, "default", true))
		return w.Post("q", "T", "a")[0]
	}},
	{"its type has no dispatcher", "no_dispatcher", "has no dispatcher", "/dispatchers/T", func(w *World) outbox.ID {
		w.Node("n")
		id := w.Post("q", "T", "a")[0]
		w.Must(w.S.RemoveDispatcher(w.Ctx, w.By, "T", true))
		return id
	}},
	{"its worker is away", "worker_unreachable",
		", the last by node n): refused", "/dispatchers/T",
		func(w *World) outbox.ID {
			id := w.Post("q", "T", "a")[0]
			w.Settle(w.Answer(w.Claim(w.Node("n"), Everything())[0], Lost()))
			w.Exec(`UPDATE postern.dispatcher SET gate_until = gate_until + interval '1 min'`)
			return id
		}},
	{"it is blocked by itself", "queue_blocked", "no such path (http_404); it is tried again at", "/retry",
		func(w *World) outbox.ID {
			id := w.Post("q", "T", "a")[0]
			said := outbox.Answer{
				Class:   outbox.ClassBlocked,
				Scope:   outbox.ScopeQueue,
				Code:    "http_404",
				Message: "no such path",
			}
			a := w.Answer(w.Claim(w.Node("n"), Everything())[0], said)
			a.Gate = sequencer.MoveNone
			w.Settle(a)
			return id
		}},
	{"its pool is empty", "no_free_sender", `PUT /senders/ACCOUNT {"pool":"p"} would change that`, "/senders/ACCOUNT",
		func(w *World) outbox.ID {
			w.Node("n")
			w.Dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "p" })
			return w.Post("q", "S", "a")[0]
		}},
	{"a sender left its pool", "no_free_sender",
		`PUT /senders/acct-1 {"pool":"p"} would change that`, "/senders/acct-1",
		func(w *World) outbox.ID {
			w.Node("n")
			w.Dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "p" })
			w.Sender("p", "acct-1")
			w.Must(w.S.RemoveSender(w.Ctx, w.By, "acct-1"))
			return w.Post("q", "S", "a")[0]
		}},
	{"its pool is paused", "no_free_sender", "pool p is paused by test", "/pools/p/resume", func(w *World) outbox.ID {
		w.Node("n")
		w.Dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "p" })
		w.Sender("p", "acct-1")
		w.Lever(w.S.PausePool(w.Ctx, w.By, "p", true))
		return w.Post("q", "S", "a")[0]
	}},
	{"a call holds its sender", "no_free_sender,in_worker", "acct-1 is held by transaction", "/abandon",
		func(w *World) outbox.ID {
			w.Dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "p" })
			w.Sender("p", "acct-1")
			w.Post("p", "S", "a")
			w.Claim(w.Node("n"), Everything())
			return w.Post("q", "S", "b")[0]
		}},
	{"a retry holds its sender", "no_free_sender,retry_delay", "; behind that: retry delay since", "/retry",
		func(w *World) outbox.ID {
			w.Dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "p" })
			w.Sender("p", "acct-1")
			w.Post("p", "S", "a")
			w.Settle(w.Answer(w.Claim(w.Node("n"), Everything())[0], Failed()))
			return w.Post("q", "S", "b")[0]
		}},
	{"its only sender is blocked", "sender_blocked", "acct-1, may not be used", "/senders/acct-1/unblock",
		func(w *World) outbox.ID {
			w.Node("n")
			w.Dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "p" })
			w.Sender("p", "acct-1")
			w.Lever(w.S.BlockSender(w.Ctx, w.By, "acct-1", pg.Forever))
			return w.Post("q", "S", "a")[0]
		}},
	{"its own sender serves another queue", "pinned_sender_busy,in_worker",
		"only acct-1 may take it, and it serves queue p", "/abandon",
		func(w *World) outbox.ID {
			w.Dispatcher("S", func(d *outbox.Dispatcher) { d.Pool = "p" })
			w.Sender("p", "acct-1", "acct-2")
			w.Named("p", "S", "a", "acct-1")
			w.Claim(w.Node("n"), Everything())
			return w.Named("q", "S", "b", "acct-1")
		}},
	{"its slot is taken", "no_free_slot,in_worker", "1 of 1 calls of type L are in flight", "/abandon",
		func(w *World) outbox.ID {
			w.Dispatcher("L", func(d *outbox.Dispatcher) { d.Slots = 1 })
			w.Post("p", "L", "a")
			w.Claim(w.Node("n"), Everything())
			return w.Post("q", "L", "b")[0]
		}},
	{"another has its exclusive value", "exclusive_busy,in_worker",
		"X lets one go at a time (type), and that is transaction", "/abandon",
		func(w *World) outbox.ID {
			w.Dispatcher("X", func(d *outbox.Dispatcher) { d.Exclusive = "type" })
			w.Post("p", "X", "a")
			w.Claim(w.Node("n"), Everything())
			return w.Post("q", "X", "b")[0]
		}},
	{"it is suspended", "suspended", "suspended by test", "/resume", func(w *World) outbox.ID {
		w.Node("n")
		id := w.Post("q", "T", "a")[0]
		w.Lever(w.S.Suspend(w.Ctx, w.By, id))
		return id
	}},
	{"its not_before has yet to come", "not_before", "may go out at", "/cancel", func(w *World) outbox.ID {
		w.Node("n")
		sub := w.Sub("q", "T", "a")
		sub.NotBefore = w.Now.Add(time.Hour)
		return w.Ingest(w.S, sub)[0].ID
	}},
	{"its not_before is over", "not_before", "has been over for", "/cancel", func(w *World) outbox.ID {
		w.Node("n")
		sub := w.Sub("q", "T", "a")
		sub.NotBefore = w.Now.Add(time.Millisecond)
		return w.Ingest(w.S, sub)[0].ID
	}},
	{"its dependency waits for a retry", "dependency,retry_delay", "; behind that: retry delay since", "/retry",
		func(w *World) outbox.ID {
			n := w.Node("n")
			a := w.Post("p", "T", "a")[0]
			sub := w.Sub("q", "T", "b")
			sub.DependsOn = []string{a.String()}
			id := w.Ingest(w.S, sub)[0].ID
			w.Settle(w.Answer(w.Claim(n, Everything())[0], Failed()))
			return id
		}},
	{"its dependency depends on what is behind another", "dependency,dependency,head_of_line,in_worker",
		"; behind that: in worker since", "/abandon",
		func(w *World) outbox.ID {
			n := w.Node("n")
			a := w.Post("o", "T", "z", "a")[1]
			sub := w.Sub("p", "T", "b")
			sub.DependsOn = []string{a.String()}
			b := w.Ingest(w.S, sub)[0].ID
			sub = w.Sub("q", "T", "c")
			sub.DependsOn = []string{b.String()}
			id := w.Ingest(w.S, sub)[0].ID
			w.Claim(n, Everything())
			return id
		}},
	{"its worker was called", "in_worker", "is with its worker, called by node n", "/abandon",
		func(w *World) outbox.ID {
			id := w.Post("q", "T", "a")[0]
			w.Claim(w.Node("n"), Everything())
			return id
		}},
	{"its outcome is unknown", "outcome_unknown", "no answer within 10m0s (timeout)", "/abandon",
		func(w *World) outbox.ID {
			id := w.Post("q", "T", "a")[0]
			a := w.Answer(w.Claim(w.Node("n"), Everything())[0], NobodyKnows())
			heard := NobodyKnows()
			heard.StartedAt = w.Now
			a.Unclear = &heard
			w.Settle(a)
			return id
		}},
	{"its node is gone, and no other works on its type", "no_node_for_type,resuming", "m takes A", "/abandon",
		func(w *World) outbox.ID {
			n := w.Node("n")
			w.Beats(w.Typed("m", "A"), pg.NodeLoad{Concurrency: 10})
			id := w.Post("q", "T", "a")[0]
			w.Claim(n, Everything())
			w.Lever(w.S.BuryNode(w.Ctx, w.By, "n"))
			return id
		}},
	{"it is watched, and cannot be asked", "inclusion_pending", "when it was asked last: HTTP 503", "/abandon",
		func(w *World) outbox.ID {
			id := w.Post("q", "T", "a")[0]
			w.Settle(w.Answer(w.Claim(w.Node("n"), Everything())[0], Hashed()))
			w.Must(w.S.Polled(w.Ctx, []int64{id.Queue}, []time.Duration{time.Minute}, []string{"HTTP 503"}))
			return id
		}},
	{"it is watched", "inclusion_pending", "it is given up at", "/abandon", func(w *World) outbox.ID {
		id := w.Post("q", "T", "a")[0]
		w.Settle(w.Answer(w.Claim(w.Node("n"), Everything())[0], Hashed()))
		return id
	}},
	{"it is watched for ever", "inclusion_pending", "for as long as it takes", "/abandon", func(w *World) outbox.ID {
		w.Dispatcher("I", func(d *outbox.Dispatcher) { d.Inclusion.Deadline = 0 })
		id := w.Post("q", "I", "a")[0]
		w.Settle(w.Answer(w.Claim(w.Node("n"), Everything())[0], Hashed()))
		return id
	}},
	{"it is retried", "retry_delay", "attempt 1 failed: sending (20203)", "/retry", func(w *World) outbox.ID {
		id := w.Post("q", "T", "a")[0]
		w.Settle(w.Answer(w.Claim(w.Node("n"), Everything())[0], Failed()))
		return id
	}},
	{"another stands before it", "head_of_line,in_worker", "second in q; its head: in worker since", "/abandon",
		func(w *World) outbox.ID {
			ids := w.Post("q", "T", "a", "b")
			w.Claim(w.Node("n"), Everything())
			return ids[1]
		}},
}
