// Package journal keeps records in one append-only file, for the devnet and its worker. In go values that
// become one line of JSON each; out come the same lines, in their order, when the file is opened again.
//
// What Sync has returned for survives kill -9 and a loss of power. A line that was cut off by either is
// dropped when the file is opened; a line that is damaged in the middle of the file is refused, since what
// stands behind it cannot be trusted. One process at a time holds a journal.
package journal
