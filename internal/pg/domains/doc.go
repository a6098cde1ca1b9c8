// Package domains stores the domains of an installation: their seats, intents and works. The decisions are those of the
// package coord: its image of a domain is loaded behind a lock, its Handle runs what happened to its rest, and what
// that leads to is written in one commit. Public transactions are the core's.
//
// # Words
//
//   - seat: the row of coord_state. The process that holds its lock takes a step of the domain.
//   - image: the part of the rows that a decision may need. A process keeps the
//     image of its last step, and reads of it again what the steps of others have changed since.
//   - step: one SQL transaction: lock, load, decide, write. What it says goes out after its commit.
//   - activity: the public transaction of one generation. Its row is inserted by the step that dispatches; it is posted
//     to the core afterwards, under a uid that names intent and generation.
//   - word: what the core says of an activity: it has a nonce, it has gone out, it has ended.
//   - call: a question to the service of a domain, leased by a process for a while.
//   - node: an installation that has a part in a domain. Its processes are one.
//   - message: a word of one node to another. A newer one takes the slot of an older one at both ends.
//   - parcel: a message with the data that its receiver needs. The machines know ids and hashes alone.
//   - life: the time from the first process of an installation until all are down.
//
// # Tables
//
// domain, coord_state, coord_intent, coord_permit, coord_work, coord_spend, coord_activity, coord_payload, coord_call,
// coord_step, coord_in and coord_out.
//
// # Lock order
//
// A domain's row, then those of its peers, or its row of coord_state, then the rest. A claim of calls locks rows of
// coord_call alone, and one of messages rows of coord_out; both skip locked ones. The door of peers locks the rows of
// domains, for share, and then rows of coord_in, in the order of their slots. No lock of a seat is held together with
// one of a queue: activities are posted, and words read, outside of steps. A post locks the row of its activity, then
// queues; a step that ends the activity waits for that row.
//
// # Failures
//
//   - A process dies between the commit of a step and its posts: the next look finds activities without posted_at, and
//     posts them. A post and its posted_at are one commit.
//   - A process sleeps behind a refusal of the core, and another one posts meanwhile: the step takes no refusal of an
//     activity that is posted.
//   - A process dies with a call: its lease ends, and another process calls under the same key.
//   - A process sleeps and answers a call that was leased to another meanwhile: its fence is an older one, and what it
//     says changes nothing.
//   - The event of a step violates what the schema keeps: the step runs again event by event, and the one that fails is
//     put aside, with its error and an audit row. A step that fails without any pauses its domain.
//   - A message to another node is lost, comes late or twice: the machines expect nothing else. One that the schema
//     refuses is put aside like an event.
//   - A word is lost: the rows of the core say it again.
package domains
