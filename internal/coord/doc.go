// Package coord decides who orders the transactions of a domain among several installations, and how that is handed
// over. It has no I/O, no clock and no context.
//
// A domain is what several installations, its nodes, agree on: each has a Domain, the image of its own rows. Handle
// takes such an image and what happened, and returns the image as it is then, with the messages, calls and posts that
// go out once it is stored. Whatever goes out may be lost or doubled: a timer in the image says it again.
//
// An Intent is what the originator's node holds, a Work is the coordinator's transaction for it; both have one id. The
// Seat is the pair of role machines of a node. A Permit is the originator's yes to one generation of one holder:
// without it no public transaction is posted, and an intent has one that is open at most. So it is at the permits that
// promises are kept; whichever nodes take themselves for the coordinator, they only decide how long it takes.
//
// # Time and order
//
// A node marks each message with the beat, a number that rises with each, and never falls below its clock in
// microseconds. So of two words of a node the later one is known, and also which were said by a life that the node has
// lost: when all of a node's processes were down, its first beat lies above a gap, and what others have heard in the
// gap was said behind the moment to which its store has gone back (see restore.go).
package coord
