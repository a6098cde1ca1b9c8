// Package channels stores high-integrity channels: messages between two processes. No message is lost.
//
// # Words
//
//   - channel: an ordered store of messages with a capacity. A source has one to the engine; a context has one from the
//     engine to the callers of its workflow.
//   - channel message: the id of an event. It is stored in the commit that changes the event, offered, held by a
//     receiver, and acknowledged in the next commit that changes the event.
//   - offered: a receiver may take it. At most capacity messages are; the others are stored and wait.
//   - fence: raised each time a message is held. An acknowledgement under an older fence is refused (stale_fence).
//
// # Tables
//
// channel (settings, one row each), channel_message (what has not ended) and channel_message_end (what has, until
// retention).
//
// # Lock order
//
// Offering (Send, Retry, Offer) locks the channel, and skips messages that are locked, so that offers to one channel
// are serial and the capacity holds. Receiving and sweeping lock messages only, and skip locked ones. An
// acknowledgement waits for its messages, in the order of their ids, and takes no lock after them. So no cycle
// exists. Rows of queues and of events come before all of these.
//
// # Failures
//
//   - A receiver dies: the sweep takes back what it holds, one fence higher, and it is offered again: at once if its
//     node is dead, else after stale_after.
//   - A receiver refuses (nack): the message is offered again after retry_every, at most max_retries times; then it is
//     dropped, which is recorded.
//   - A commit that sends is lost: the event that the message names was not changed either, since both are one commit.
package channels
