// Package reads answers people: why something waits, lists, histories, standing queues, and figures by the hour.
//
// # Words
//
//   - the answer of /why: the chain of blockers from one thing to its root, each with since, next step and lever.
//   - sample: a note about heads that stand still, and why, taken by the clock; stuck: a head that does not move.
//   - roll-up: figures of one hour, kept for 400 days.
//   - slice: the rows that one statement of a roll-up reads, about a tenth of a second, so that no snapshot stays open.
//
// # Tables
//
// stuck, rolled, rolling, rolling_part, rollup, rollup_time, rollup_failure and rollup_sender.
//
// It reads those of the core, of deliveries and of sources, and counts the newest of others by SQL that these
// register. It writes node_load of the core, and removes what is old of rollup_delivery.
//
// # Lock order
//
// None: it reads without locks, and writes only its own tables. A roll-up is one process's at a time, by the row of
// rolling.
//
// # Failures
//
//   - A process dies while it rolls up: another goes on after half a minute, from the last slice that was committed.
//   - A look takes long: looks take a bounded share of the time, since queues come first.
//   - An answer may be a moment old. It never decides anything.
package reads
