// Package events stores sources, what was read from them, and the tools that are called for it. Calls of tools and
// posts of results are transactions of the core. The decisions are those of the package leader.
//
// # Words
//
//   - source: where events come from; cursor: how far it was read; page: one answer of it.
//   - source lease: a process's right to read one page, with a fence.
//   - event: one request to run a tool, known by its identity within its source.
//   - tool: an HTTP service that is called for an event, by a transaction of type leader.tool.
//   - result: what the workflow is told, by a transaction of type leader.result.
//   - room: how many events of a tool may be Active at once.
//
// # Tables
//
// source, event, event_move, event_drop and tool.
//
// It also writes the channels whose messages name events (see the package channels).
//
// # Lock order
//
// Rows of queues (a post for an event locks its queue first), then the source, then the tool's dispatcher, then
// events in the order of their ids, then channels and their messages. Looks skip events and messages that are locked,
// and may so take messages before their events. The commit that notes a posted call waits for its events and
// messages. A redrive waits for its event, so that an event and its result are redriven one after the other.
//
// # Failures
//
//   - A process dies while it reads a page: its lease ends after a minute, or with its node. A page that comes late
//     carries an old fence and stores nothing; a page without its commit is asked for again, and an event that is there
//     already is skipped.
//   - A process dies between an event's commit and its call: the event is Active and its message held; the channel
//     takes the message back, and the call has a uid made of the event, so that it is found or posted once.
//   - A tool ends or a result fails: the outcome of the transaction never changes, and is read behind the event's lock.
package events
