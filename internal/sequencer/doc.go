// Package sequencer decides what happens to the transaction at the head of a queue: its state machines as pure
// functions. It does no I/O, reads no clock and draws no random numbers; time and chance come in as
// arguments. What it decides is stored by internal/pg in one commit and acted upon by internal/work.
package sequencer
