// Package deliveries stores subscriptions, and what is delivered to them: webhooks, feeds, streams, hooks of workers,
// callbacks of single transactions.
//
// # Words
//
//   - fanout: a narrow row for each subscription that may want an event, written in the commit in which the event
//     happens.
//   - delivery: one event for one receiver, with its position and what came of each call.
//   - position: a number that rises along a subscription, with gaps; a feed's cursor is one.
//   - track: deliveries go along it in order: a subscription with a queue, or a callback's URL with a queue.
//
// # Tables
//
// subscription, checkpoint, fanout, delivery and rollup_delivery.
//
// delivery is partitioned by day, checkpoint says how far a feed was acknowledged, rollup_delivery how many were
// delivered in an hour. fanout and the deliveries of callbacks and hooks are written in the commit of what they tell
// of, by the Teller that this package registers with the core.
//
// # Lock order
//
// The row of a subscription is locked by the process that numbers its events, records receipts and hands out calls,
// in one short SQL transaction. Others skip it; a process that brings receipts waits. A commit that changes queues
// locks no subscription. Retention alone locks several, in the order of their ids.
//
// # Failures
//
//   - A process dies while it numbers: PostgreSQL gives the lock back, and nothing was numbered. While it calls: the
//     delivery is due again after the time that its call may take.
//   - A receipt comes late: its number is old, and it changes nothing.
//   - An endpoint fails: its delivery waits and is repeated with growing delays, up to the time that the subscription
//     gives it; the deliveries behind it of the same queue wait, other queues go on.
//   - A new subscription: it is complete from its time "since" on (the argument stands at listenersMaxAge).
package deliveries
