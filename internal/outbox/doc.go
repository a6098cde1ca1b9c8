// Package outbox is the vocabulary of Postern: the nouns that every other package speaks of, and
// whether a value of each is well formed. It does no I/O and knows no clock.
//
// # Glossary
//
// One word, one meaning. Where a published design has a word of its own, ours is the one below.
//
//   - transaction: what a client posts; must go out once, in order. Its body is a row of task, its end a
//     row of outcome; its state is derived from these and its queue (S2.2).
//   - queue: the ordering key. At most one transaction of a queue is in flight (S2.4). A queue without
//     a name holds one unordered transaction (S2.18).
//   - position (seq): the order of arrival in a queue; part of the id; never changes.
//   - head: the first position without an outcome. cur: the position in flight. next: what goes out next,
//     where that is not the head.
//   - phase: what the queue is doing with its head (S2.3). The state of the transaction in flight and
//     of the sender follow from it.
//   - dispatcher: the settings of one transaction type: worker URL, sender pool, retry, fee, timeouts.
//   - sender: a scarce account that signs; bound to one queue at a time (S2.5).
//   - pool: a named set of senders.
//   - worker: the HTTP service that executes (S2.7).
//   - lane: what must be free for the queues that stand in it: a dispatcher, with its pool or one
//     sender, and a value when the dispatcher is exclusive. The lane resume holds work of dead nodes.
//   - gate: the moment until which a lane's worker or a sender's worker is left alone (S2.9).
//   - mark: what is exceptional about one transaction: cancelled, cancelling, suspended, held,
//     watched, placed. Sparse.
//   - place, rank: where a moved transaction stands among those of its queue (S2.4).
//   - node: one running process, under an id that is fresh for each boot; epoch: its incarnation.
//   - lease: a queue owned by a node; valid while the node's heartbeat is.
//   - claim: the commit that leases queues that wait; a post takes its queue when it leases it to its own process.
//   - fence: a number in the queue row that rises whenever its owner changes, and never falls: a hybrid clock. A write
//     with a stale fence changes nothing.
//   - attempt: one dispatch of a transaction; token: <id>.<arrival>.<attempt>, by which a worker recognises one.
//   - step: one decision of the state machine, written in one commit.
//   - outcome: how a transaction ended. Written once, never changed.
//   - hook: the call to a worker after the end: on-success, on-failure (S2.12).
//   - context: a tenant. Every object lies in one.
//   - quantum: how much a node does for one queue before it looks whether others wait.
//   - day: the UTC day under which a transaction's rows are partitioned; never falls along a queue.
//
// Of events that call tools (internal/leader):
//
//   - source: where events come from; cursor: how far it was read.
//   - event: one request to run a tool, known by its identity within its source. What subscriptions are told of, and what
//     a machine reacts to, are events too, as the seeds say: beside them this one is "an event of a source".
//   - tool: an HTTP service with a name (FQN) that is called for an event; result: what its workflow is told of it.
//   - channel: of kind cap, a sender of the pool leader, through which results go; of kind integrity, rows between two
//     processes, each a message, of which none is lost. In Go the first are senders, and only the second Channel.
//
// Of processors (internal/processor):
//
//   - processor: what executes the batches of one domain, one at a time.
//   - batch: messages that are executed together or one after the other; each goes out as a transaction.
//   - action: one message of a batch; run: one execution, numbered within its batch.
//   - line: one of the two queues of a processor; place: a number that orders it; position: how many stand before. (What
//     deliveries go along in order, a subscription or the hooks, and the integrity channel of a source, are lines in Go too.)
//   - authorization: who may send batches, of what, and how many.
//   - peer: another installation that may send a processor batches; envelope: a batch as it is sent there.
//     nodes and machines is never called one.
//   - notice: the number under which a timeout of a batch is told, of which there may be several.
package outbox
