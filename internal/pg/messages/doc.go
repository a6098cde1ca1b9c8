// Package messages stores messages between contexts: what one sends stands in its msg_out, and what is delivered to one
// in its msg_in. The decisions are those of the package message.
//
// # Words
//
//   - message: one row, which both of its contexts read. Of one to a peer, or from one, the other installation has a
//     row of its own.
//   - route: the look at rights behind the lock of a message, in the commit that delivers it or lets it go to a peer.
//   - lease: a receiver has a message until a time, under a fence. Without an acknowledgement another one is handed it.
//   - settle: all jobs of a message have ended, and its result is made of their ends.
//   - carry: a transaction of the type of a peer names a message and brings it there. It ends once the peer has stored
//     the message, or refuses it for good.
//   - follow: to ask a peer what has become of the messages that it has stored. One process at a time asks, under a
//     lease in the row of the peer.
//   - word: what a peer says of a message, with the number of its steps there.
//   - late: a word that comes after the end of a message, or under a stale fence.
//
// # Tables
//
// message, message_step, message_late, message_log and message_stopped.
//
// # Lock order
//
// Messages in the order of their ids, behind them the contexts that they are from and for, and then jobs that belong
// to no message. The end of a job locks that job, and then its message. Nothing here waits while it holds a row of a
// queue.
//
// # Failures
//
//   - A process dies between a POST and the route: the loop of another one routes it.
//   - A process dies behind the commit that makes jobs of a message: the look for jobs without transactions posts them.
//   - A receiver dies: its lease ends, and the message is handed to another one under a higher fence. What the first
//     one says afterwards has an old fence, changes nothing, and is kept as late.
//   - A receiver dies after its acknowledgement: timeout_result ends the message, or its sender cancels it.
//   - A process dies between the commit that lets a message go and the post of its transaction: another one posts it
//     under the same uid, in front of what it lets go itself.
//   - The answer of a peer is lost: the call is made again, and the peer knows the message by its id.
//   - A peer loses messages, as by a restore: it calls them unknown, and they are delivered again, three times at most.
//   - Two processes follow a peer at one time: a word that is known changes nothing.
//   - The sender loses its role before the route: the message ends refused.
package messages
