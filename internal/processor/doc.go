// Package processor decides what a processor does with its batches of messages. It does no I/O and
// knows no clock: time and height come in as arguments.
//
// A processor has two lines of batches, High and Med. Each tick looks at the batch at the head of one of them, and
// executes it through the core, puts it back, or ends it. The owner of the processor may put batches anywhere into a
// line and take them from anywhere in it (S4.9).
//
//   - line: one of the two queues of a processor (S4.3).
//   - position: how many batches stand before one in its line; the head has position 0.
//   - place: a number by which the database keeps a line in order; places have gaps, and mean nothing else.
package processor
