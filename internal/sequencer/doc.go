// Package sequencer decides what happens to the transaction at the head of a queue: its state machines as pure
// functions. It does no I/O, reads no clock and draws no random numbers; time and chance come in as arguments.
// internal/pg stores a decision in one commit, and internal/work acts upon it.
package sequencer
