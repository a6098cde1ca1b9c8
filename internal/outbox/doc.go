// Package outbox is the vocabulary of Postern: the nouns that every other package speaks of, and
// whether a value of each is well formed. It does no I/O and knows no clock.
//
// # Glossary
//
// One word, one meaning. Where a published design has a word of its own, ours is the one below.
//
// The queue:
//
//   - transaction: a request of a client that must go out once, in order. Its body is a row of task, its end is a row
//     of outcome. Its state is derived from these and its queue (S2.2).
//   - queue: the ordering key. At most one transaction of a queue is in flight (S2.4). A queue without a name holds
//     one unordered transaction (S2.18).
//   - position (seq): the order of arrival in a queue. It is part of the id and never changes.
//   - place: where a transaction stands that was moved: before or after another one (S2.4). Its rank is a number
//     between those of its neighbours, in a mark.
//   - head: the first position without an outcome. cur: the position in flight. next: the position that goes out next,
//     where that is not the head.
//   - phase: what the queue is doing with its head (S2.3). The states of the transaction in flight and of the sender
//     follow from it.
//   - mark: an exception about one transaction: cancelled, cancelling, suspended, held, watched, placed or unknown.
//     Most have none.
//   - unknown: the mark of a transaction in flight whose outcome is not known, and whose worker cannot be asked. It has
//     no owner, timer or sender, and an operator says what came of it (S2.10). People are told that it is held.
//   - attempt: one dispatch of a transaction. Its token is <id>.<arrival>.<attempt>: a worker recognises the attempt
//     by it.
//   - step: one decision of the state machine, written in one commit.
//   - outcome: how a transaction ended. It is written once and never changed.
//   - day: the UTC day under which the rows of a transaction are partitioned. It never falls along a queue.
//
// Who sends:
//
//   - dispatcher: the settings of one transaction type: worker URL, sender pool, retry, fee and timeouts.
//   - worker: the HTTP service that executes transactions (S2.7).
//   - sender: a scarce account that signs. It is bound to one queue at a time (S2.5).
//   - pool: a named set of senders.
//   - pin: the sender that a queue must wait for, since only its worker can recognise the token of an earlier call.
//   - lane: queues that wait for the same thing: a dispatcher with its pool or one sender, and a value when the
//     dispatcher is exclusive. The lane resume holds the work of dead nodes.
//   - gate: the time until which an address is left alone, since nothing came of the calls to it (S2.9). It belongs to
//     the sender, where that has an address of its own, else to the type. Then one call goes out, the probe.
//   - breaker: the part of a process that decides when a gate closes (S2.8).
//   - hook: the call to a worker after the end: on-success or on-failure (S2.12).
//   - track: the deliveries that go out in one order: those of a subscription, of the hooks, or of the callbacks.
//
// Who owns what:
//
//   - installation: one database of Postern with the processes that work on it. Its id names it to others for good.
//   - peer: another installation, as a context knows it. It takes calls at its door.
//   - deployment: the name of an installation, which its processes are started with. A database that ran under another
//     one is taken for a copy, and nothing is sent from it.
//   - context: a tenant. Every object lies in one.
//   - document: what one thing is to be, as a file for postern apply says it. An apply makes all of its documents true
//     in one commit.
//   - label: a name under which documents are applied; it names their things, so that an apply can remove those that it
//     names no more. The name of an authorization is called its label, too, as its published texts do.
//   - node: one running process, under an id that is fresh for each boot. Its epoch rises each time it is buried.
//   - lease: a queue that a node owns. It is valid while the node's heartbeat is.
//   - claim: the commit that leases queues that wait. A post to an empty queue may lease it at once, without a claim.
//   - fence: a number in the queue row, a hybrid clock, that rises with each change of the owner and never falls. A
//     write with a stale fence changes nothing.
//   - quantum: how much a node does for one queue before it looks whether others wait.
//   - witness: what a process remembers of its own commits. It tells when the database has gone back before one of
//     them.
//   - quarantine: a state of all, of a context or of a type in which nothing goes out, because commits may be lost or
//     the database may be a copy. An operator ends it.
//
// How systems meet the queue (internal/pg):
//
//   - maker: a system that posts transactions of its own. The queue asks it before a lever is pulled on one of them,
//     and tells it when one is moved or forgotten.
//   - teller: a system that tells others of an end, in the commit of that end.
//
// Events that call tools (internal/leader):
//
//   - source: where events come from. Its cursor says how far it was read. A source is leased for one page.
//   - event: one request to run a tool, known by its identity within its source. Subscriptions hear of events and
//     machines react to events, too: beside these, this one is called an event of a source.
//   - tool: an HTTP service with a name (FQN) that is called for an event. Its result goes to the workflow of the
//     event.
//   - channel: of kind cap, a sender of the pool leader, through which results go; of kind integrity, a series of
//     channel messages, one for each thing that one process hands to another. None of them is lost. In Go only the
//     second kind is called Channel.
//   - channel message: a row of an integrity channel. The word message alone is that of messages between contexts.
//
// Messages (internal/message):
//
//   - message: what an actor sends from one context to another, or to a peer: words, or jobs. It ends once.
//   - box: msg_out has what a context sends, msg_in what is delivered to it.
//   - result: the message that answers another one, and ends it.
//   - late: a word about a message that has ended, or under an old fence. It is kept, and changes nothing.
//
// Processors (internal/processor):
//
//   - processor: executes the batches of one domain, one at a time.
//   - batch: messages that are executed together or one after the other. Each batch goes out as transactions.
//   - action: one message of a batch. A run is one execution, numbered within its batch.
//   - line: one of the two queues of a processor. A batch has a number that orders it there, with gaps between the
//     numbers (column place), and a position: how many stand before it.
//   - authorization: which actors may send batches, of what, and how many.
//   - peer of a processor: another installation that may send it batches. An envelope is a batch on its way there.
//   - notice: the number under which subscribers are told of a timeout of a batch, which may have several.
//
// Domains (internal/coord):
//
//   - domain: what several installations agree on, each with a database of its own. There an installation is called a
//     node, whichever of its processes acts. A processor calls the chain that it serves its domain, too.
//   - intent: what a client of a node wants done once. It ends with one receipt.
//   - work: the coordinator's transaction for an intent, under the same id. Each time it is assembled anew begins a
//     generation.
//   - permit: the yes of an intent's node to one generation of a work. Without it no public transaction goes out.
//   - seat: the originator and the coordinator of a node, as machines.
//   - install: a number for the life of a node's rows. A new one is drawn when they may have gone back in time.
//   - beat: a number for each message of a node, which rises, and so says which of two words is the later one.
package outbox
