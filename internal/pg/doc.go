// Package pg is the core of the store: queues, and what moves them. It posts, leases, settles, wakes, moves and forgets
// transactions, and keeps the settings, nodes and numbers that decide about that. Callers think of no lock and no
// fence.
//
// # Words
//
//   - fence: a number in the row of a queue that rises each time a node gets the queue or loses it without having let
//     it go, and never falls (max of fence + 1 and the database's milliseconds). A lease carries it. A write whose
//     fence differs from the row's changes nothing in the queue; a late answer is recorded as an attempt.
//   - era: part of the key of a queue's row, raised by every sixteenth write. While any session holds an old snapshot,
//     a key leads to all versions of its row; by its era it leads to sixteen. A statement names an era that the row
//     has reached.
//   - front: the time from which a claim reads a lane. It is where the claim before found the first ready row, since
//     rows that were taken meanwhile stay in the index while a snapshot is held. A queue that becomes ready before the
//     front (a slow commit, a change of its lane) is found by looks from the beginning, which take a bounded share of
//     the time.
//   - lazy run: the transactions of one queue that end one after the other under one lease, each on its first attempt
//     and none marked. Only their outcomes are written; the queue's row tells the position when the run ends. The view
//     tx and the function trueCur read the position from the outcomes meanwhile.
//   - recall: settling by what the lease remembers of the row, behind a guard that locks the row and compares it.
//   - take: a post leases an idle queue to its own process in its own commit, instead of making it ready.
//   - ripple: a row that says that an end has not reached all its dependents. An end takes along the nearest ten
//     thousand that fail with it; Ripple reaches the others in commits of their own. None of them goes out meanwhile:
//     each is held.
//   - pin: the sender whose worker was called for an attempt, and alone may send that token again.
//
// # A queue in the tables
//
//	             post                 claim                     settle: retry, poll
//	task ──► queue idle ──► ready ──────────────► owned, fence+1 ──────────────────► timer
//	              ▲       (in a lane)                │      ▲                           │ due
//	              │                    settle: end   │      └───────── ready ◄──────────┘
//	              └────────── outcome ◄──────────────┤ next of the queue: same lease (lazy run)
//	                 nothing waits                   └ node dies: released, fence+1, lane resume
//
// A queue is idle (nothing waits), has a row of ready, is owned by a node, has a row of timer, or is held by a mark or
// a pause. At least one of these holds; verify checks it. Two hold where a node owns a queue whose delay is over: its
// timer is put off, and gives the queue to another should the node do nothing.
//
// # How a write works
//
// Every write to a queue has one shape: it locks the queue rows in the order of their ids, decides in Go, and writes
// rows and effects in one batch with its commit. Two differ: a claim locks them in the order of its lanes, and skips
// those that are locked; a recall decides first, and its guard compares the row behind the lock. BEGIN travels with the
// first batch and COMMIT with the last. Under READ COMMITTED each statement has its own snapshot, so what is read
// behind the lock is what the last holder of the lock committed. That is why no wake-up is lost (idle is head > tail of
// the locked row), no queue has two owners (node and fence are in the locked row), and no stale write counts.
//
// # Lock order
//
// queue_name, queue (by id), idempotency (by key), lane, dispatcher and sender (their gates, in one order for all),
// ready, timer. Then what Makers and Tellers add to the commit: they only queue statements, take no lock outside this
// order, open no connection and do not wait. Claim, wake and release take every lock with SKIP LOCKED: they never
// wait and cannot be part of a cycle.
//
// # Tables
//
// queue, queue_name, ready, lane, timer, mark, task, outcome, attempt, idempotency, dependency, ripple, redrive,
// outbox, dispatcher, dispatcher_secret, pool, sender, context, member, sql_role, node, node_load, store, quarantine,
// unreconciled, retained and identity.
//
// The first six change all the time. Rows of task, outcome, attempt and idempotency (the keys) are written once; all
// but the keys are partitioned by day. dependency and ripple tie ends to dependents, redrive a transaction to its
// successor. outbox holds rows that are staged by postern.submit. dispatcher, pool, sender, context and member are
// settings; sql_role says who reads the views. node and node_load are processes; store is the one row about this
// database, quarantine and unreconciled say what must not leave it, and retained how far retention has come. Processes
// lock the row of identity to make the partitions of a day one after the other.
//
// # Failures
//
//   - A deadlock, a serialization failure, a lost race for a key, a missing lane, name or day: the decision runs again,
//     up to eight times, then "overloaded"; nothing was done.
//   - A commit whose answer is lost or FATAL: "commit_unknown". The same key tells; each node compares its rows with
//     what it holds (doubt.go), and hands back what it does not have.
//   - A node that dies: another one buries its row, and only after that commit releases its queues (recall is refused
//     by the fence).
//   - The database goes back in time: the witness finds an acknowledged row missing and the process ends (witness.go).
//   - No place among the writers, or no connection, in ten seconds: "overloaded" or "database_unavailable"; nothing was
//     done.
package pg
