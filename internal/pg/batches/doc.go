// Package batches stores processors and their batches: their order, their executions and their results. Batches
// execute transactions of the core. The decisions are those of the package processor.
//
// # Words
//
//   - processor: executes the batches of one domain, one at a time. It has two lines.
//   - batch: messages that are executed together, or one after the other.
//   - line: one of the two queues of a processor; place: a number with gaps that orders it, so that putting a batch
//     anywhere writes one row. Where a gap is used up, the places around it are dealt anew.
//   - execution (run): one attempt at a batch. Its transaction's uid is made of batch and run, so that a process that
//     finds it can go on.
//   - tick: the decision about the next step of a processor. It commits that an execution begins before it posts it.
//   - authorization: a right to send batches to a processor: its actors and actions, how many at once, how often,
//     until when.
//
// # Tables
//
// processor, processor_peer, batch_line, batch_place, batch, batch_action, batch_step, batch_call, batch_callback and
// batch_authorization.
//
// # Lock order
//
// A processor's row, then its authorization, then rows of its batches: nothing of a batch is written without the
// processor's lock. A change of an authorization's settings locks that row alone. The transactions that a tick posts
// are posted in a commit of their own, after the tick's, so that no row of a queue is locked together with these.
//
// # Failures
//
//   - A process dies between the commit of a tick and its post: the next tick finds the batch Executing without its
//     transaction, and posts it under the same uid.
//   - The transaction's outcome is dropped by retention before it was read: the batch ends UnexpectedError; nothing is
//     executed again.
//   - Two ticks at once: they are serial by the lock; one_execution_per_processor refuses a second execution besides.
//   - A remote domain takes nothing within deliver_within: the transaction is cancelled where no worker was called, and
//     the batch is told as Timeout.
package batches
