// Package leader decides what happens to events that call tools: events come in from sources and name a tool, and its
// answer goes out as a result through a channel. It decides on facts that are handed to it: no I/O, no clock.
//
//   - source: where events come from; cursor: how far it was read.
//   - event: one request to run a tool, known by its identity within its source.
//   - tool: an HTTP service with a name (FQN) and a schema of what it takes and what it answers.
//   - variant: the one top-level key of a tool's answer, which says which kind of answer it is.
//   - channel, of kind cap: a sender of the pool leader; one result at a time goes through it.
//   - channel, of kind integrity: rows that one process hands to another; none is lost (S1.15).
//   - walk: a graph of tools whose outputs feed other tools' inputs; here only judged, not run.
package leader
