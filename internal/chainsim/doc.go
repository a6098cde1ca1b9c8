// Package chainsim is a worker with a small chain inside: it speaks the worker contract (S2.7), takes
// transactions into a pool and puts them into blocks. The demo runs it, so that everything that can
// happen to a transaction can be watched without a network; it is a tool, not a test double.
//
// The rules of its chain: each account has nonces without gaps, and its transactions are included in
// their order; a transaction replaces an earlier one under the same nonce if it names its hash
// (previous_hashes) and offers a higher fee; nothing that was included is included again. The rules of
// its door: a token is executed once and answered alike ever after, and a fence lower than one seen for
// the same queue is refused with 409.
//
// What a transaction does is told by the optional member "simulate" of its data (Simulate). State is in
// memory and ends with the process.
package chainsim
